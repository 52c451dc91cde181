//! Blocks: consecutive batches of one rank, made together in one allocation.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::error::LoaderCause;
use super::fields::Fields;
use super::index_table::Table;
use super::layout::{FieldLayout, RunLayout, Shards};
use super::planned::PlannedBlock;
use crate::collate::error::CollateCause;
use crate::dataset::{Objects, Skipped};
use crate::error::Cause;
use crate::tensor::{Element, Layout};
use crate::{Result, Tensor, memory};

/// Consecutive batches of one rank in one allocation, ready to be handed over.
#[derive(Clone)]
pub struct Block {
    runs: Vec<ShapeRun>,
    bytes: Bytes,
    table: Option<Box<[Tensor; 3]>>,
    shards: Option<Shards>,
    skipped: Skipped,
    objects: Vec<Objects>,
    nesting: Arc<str>,
}

crate::brief::debug_in_brief!(Block, [runs, table, skipped, objects, nesting], [bytes]);

/// Consecutive batches of one shape, field by field.
#[derive(Debug, Clone)]
pub struct ShapeRun {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
    len: usize,
    samples: usize,
    longest: usize,
    space: Vec<usize>,
}

impl Block {
    pub(super) fn new(planned: &PlannedBlock, bytes: &Bytes) -> Result<Self> {
        let PlannedBlock { fields, layout, table, skipped, objects, .. } = planned;
        let runs = layout.runs.iter().map(|run| ShapeRun::new(fields, run, bytes, table.is_none()));
        let runs = runs.collect::<Result<_>>()?;
        let table = table.map(|table| tables(table, bytes)).transpose()?.map(Box::new);
        let (bytes, shards, skipped) =
            (bytes.slice(..planned.memory()), layout.shards.clone(), skipped.clone());
        let nesting = Arc::clone(fields.nesting());
        let objects = objects.clone();
        Ok(Self { runs, bytes, table, shards, skipped, objects, nesting })
    }

    /// The memory of the whole block.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The index table of a loader with [`index_table`](super::LoaderBuilder::index_table), int32 or int64: the table
    /// `[rows, members]`, and the picks `[elements]`, which give the number, within its sample, of each element. The
    /// picks are empty unless samples are subsampled.
    #[doc(hidden)]
    pub fn index_table(&self) -> Option<(&Tensor, &Tensor)> {
        self.table.as_ref().map(|parts| (&parts[0], &parts[1]))
    }

    /// The samples of all batches of an index table, int32 or int64, -1 where a place only fills up. Batches that are
    /// concatenations have one more before their first. Empty unless batches are [masked](crate::ranks::Uneven::Mask).
    #[doc(hidden)]
    pub fn index(&self) -> Option<&Tensor> {
        self.table.as_ref().map(|parts| &parts[2])
    }

    /// The shard that holds all samples of the block, and the shard after it, in samples as stored. `None` unless the
    /// block is an index table and the order goes shard by shard.
    #[doc(hidden)]
    pub fn shards(&self) -> Option<(&Range<u64>, Option<&Range<u64>>)> {
        self.shards.as_ref().map(|(shard, next)| (shard, next.as_ref()))
    }

    /// The samples that could not be read and were left out, with the reasons: see
    /// [`OnError::Skip`](crate::dataset::OnError::Skip).
    pub fn skipped(&self) -> &[(u64, Cause)] {
        &self.skipped
    }

    /// The objects that samples hold beside arrays, as their reader gave them, part by part in any order:
    /// [`ReadPart::objects`](crate::dataset::ReadPart).
    #[doc(hidden)]
    pub fn objects(&self) -> &[Objects] {
        &self.objects
    }

    /// The nesting of samples that are made on demand, as their reader told it:
    /// [`SampleStructure::nesting`](crate::dataset::SampleStructure). Empty for other data.
    #[doc(hidden)]
    pub fn nesting(&self) -> &str {
        &self.nesting
    }

    /// The runs of batches of one shape, in order: mostly one run, or one for each batch if samples differ in size.
    pub fn runs(&self) -> &[ShapeRun] {
        &self.runs
    }

    /// The batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = Batch> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len).filter_map(|index| run.batch(index)))
    }

    /// A list of the batches, in order.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn to_batches(&self) -> Result<Vec<Batch>> {
        let mut batches = memory::reserve(self.runs.iter().map(|run| run.len).sum())?;
        batches.extend(self.batches());
        Ok(batches)
    }
}

/// The parts of an index table.
fn tables(table: Table, bytes: &Bytes) -> Result<[Tensor; 3]> {
    let (shape, picks, index) = table.shape();
    let size = table.dtype().size();
    let tensor = |shape: &[usize], offset| {
        let compact = Layout::compact(shape, size);
        let compact = compact.ok_or(CollateCause::BatchTooLarge { samples: shape[0] as u64, row: size })?;
        Tensor::new(bytes.clone(), table.dtype(), shape, compact.strides(), offset)
    };
    let end = shape[0] * shape[1] * size;
    Ok([tensor(&shape, 0)?, tensor(&[picks], end)?, tensor(&[index], end + picks * size)?])
}

impl ShapeRun {
    fn new(fields: &Fields, run: &RunLayout, bytes: &Bytes, has_fields: bool) -> Result<Self> {
        let tensor = |slot: &FieldLayout| {
            let size = slot.dtype.size();
            let compact = Layout::compact(&slot.shape, size).ok_or(CollateCause::BatchTooLarge {
                samples: run.samples as u64,
                row: slot.shape.iter().skip(1).product::<usize>().saturating_mul(size),
            })?;
            let shape = [&[run.batches], slot.shape.as_slice()].concat();
            let strides = [&[slot.stride.cast_signed()], compact.strides()].concat();
            Tensor::new(bytes.clone(), slot.dtype, &shape, &strides, slot.offset)
        };
        let tensors = run.slots.iter().filter(|_| has_fields).map(tensor).collect::<Result<_>>()?;
        let (len, samples, longest) = (run.batches, run.samples, run.members.longest());
        let (names, space) = (Arc::clone(fields.names()), run.space.clone());
        Ok(Self { names, fields: tensors, len, samples, longest, space })
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &Arc<[String]> {
        &self.names
    }

    /// The number of batches.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no batches.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each field of all batches: `[batches, ..shape]`. Batches are compact and start at multiples of 64 bytes; there
    /// may be gaps between them.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }

    /// The size of the longest sample, if samples differ in size.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The number of samples in each batch.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The shape of the elements of each batch that an index table numbers: `[samples]`, `[samples, ..extents]` if
    /// samples are padded, `[elements]` if they are concatenated, or `[samples, seq_len + 1]` for a stream.
    #[doc(hidden)]
    pub fn space(&self) -> &[usize] {
        &self.space
    }

    /// A view of batch `index`, or `None` past the end.
    pub fn batch(&self, index: usize) -> Option<Batch> {
        let fields = self.fields.iter().map(|field| field.index(index)).collect::<Option<_>>()?;
        let (samples, longest) = (self.samples, self.longest);
        Some(Batch { names: Arc::clone(&self.names), fields, samples, longest })
    }
}

/// One batch: an array for each field.
///
/// A batch is a view of its block, in which each field is compact and 64-byte aligned. The memory of a block stays as
/// it is as long as any of its batches is held. Batches of [`Loader::views`](super::Loader::views) are views of the
/// data, with the strides that it has.
#[derive(Debug, Clone)]
pub struct Batch {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
    samples: usize,
    longest: usize,
}

impl Batch {
    /// Neighbours of a dataset of samples of one size, in the memory of the dataset.
    pub(super) fn of_views(names: Arc<[String]>, fields: Vec<Tensor>, samples: usize) -> Self {
        Self { names, fields, samples, longest: 0 }
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&Tensor> {
        let place = self.names.iter().position(|other| other == name)?;
        self.fields.get(place)
    }

    /// The values of the field with this name, in row-major order.
    ///
    /// ```
    /// use batchloom::{Loader, Tensor, TensorDataset};
    ///
    /// let dataset = TensorDataset::new([("x", Tensor::from(vec![1_i64, 2, 3]))])?;
    /// let loader = Loader::builder(dataset).batch_size(2).build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// assert_eq!(batch.view::<i64>("x")?, [1, 2]);
    /// assert!(batch.view::<f32>("x").is_err() && batch.view::<i64>("y").is_err());
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such field; and those of [`Tensor::try_as_slice`].
    pub fn view<T: Element>(&self, name: &str) -> Result<&[T]> {
        self.known_field(name)?.try_as_slice()
    }

    /// The field with this name.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is none, with the names of the fields.
    pub fn known_field(&self, name: &str) -> Result<&Tensor> {
        let missing = || LoaderCause::NoField { field: name.to_owned(), known: self.names.to_vec() };
        Ok(self.field(name).ok_or_else(missing)?)
    }

    /// The fields by name, in order, for callers that keep them. They hold the memory of the block as the batch does.
    pub fn into_fields(self) -> Vec<(String, Tensor)> {
        self.names.iter().cloned().zip(self.fields).collect()
    }

    /// The number of samples, or of parts of split samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Returns true if there are no samples, which never happens in a batch that a loader made.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The size of the longest sample, if samples differ in size: `max_seqlen` of a packed batch.
    pub fn longest(&self) -> usize {
        self.longest
    }
}
