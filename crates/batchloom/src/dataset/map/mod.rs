//! `MapDataset`: samples that are made when their batch is formed.
//!
//! A plan needs the number of samples, and their sizes where a rule looks at them; so the batches of an epoch are known
//! before anything is read. A block is one batch. Its samples are read first, by all threads; only then are its fields
//! known, and the block is laid out like any other.

mod chunk_memory;
mod chunk_reader;
mod chunk_store;
mod error;
mod held_chunks;
pub(super) mod in_chunks;
mod item_chunks;
pub(super) mod reading;
mod source;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

pub use crate::collate::{ChunkField, HeldRows};
pub use crate::sync::ReadClock;
pub use chunk_memory::ChunkCounts;
use chunk_reader::ChunkReader;
pub use chunk_reader::{ChunkSamples, ChunkSource};
pub(crate) use in_chunks::InChunks;
use item_chunks::ItemReader;
pub use item_chunks::{ItemChunks, ItemSource, KeptItems};
pub(crate) use reading::Banned;
pub(crate) use reading::BatchRead;
use reading::{Chosen, Local};
pub use reading::{
    ChunkHolder, FilledPart, Held, HeldLayout, Objects, OnError, ReadPart, ReadRequest, Reader, Refusal,
    SampleLayout, Skipped, Stop,
};
pub use source::{Sample, SampleRng, SampleStructure, Source, SourceError, sample_key};

use super::collated::{Collated, CollatedAhead};
use super::collation::{CollateOptions, Collation, Index, Ragged, form_one};
use super::kind::{Content, ContentRequest, EpochKey, Kind};
use super::selection::Selection;
use crate::batching::error::BatchingCause;
use crate::batching::{FixedSize, Rule, Sizes};
use crate::collate::{
    Boundaries, DirectSlots, Form, HeldLists, HeldStack, Lengths, Mask, Members, PadSlot, Positions,
    ReadField, ReadParts, SampleIndex, Segments, Slot, SlotWriter, WholeField,
};
use crate::dataset::error::SelectionCause;
use crate::error::ReadError;
use crate::order::Chunks;
use crate::{ChunkedTensor, DType, Result, Tensor};
use error::MapCause;

/// Samples that are made on demand by a [`Source`].
///
/// All samples have the same fields, types and shapes, unless
///
/// - the source gives sizes: fields with at least one dimension then are as long as the size of their sample, and batches
///   are padded or packed like sequences, with the same further fields; or
/// - the loader gives a field a [`Slot`](crate::loader::Slot).
///
/// ```
/// use batchloom::dataset::{MapDataset, Sample};
/// use batchloom::{Loader, Tensor};
///
/// let read = |sample: u64, _: &mut _| Ok(Sample::new([("x", Tensor::from_vec(vec![sample; 4], &[2, 2])?)]));
/// let loader = Loader::builder(MapDataset::new((100, read)).build()?).batch_size(8).shuffle(true).build()?;
/// for batch in &loader {
///     assert_eq!(batch?.fields()[0].shape()[1..], [2, 2]);
/// }
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MapDataset {
    reader: Arc<dyn Reader>,
    samples: u64,
    sizes: Option<Sizes>,
    variable: Option<Vec<String>>,
    on_error: OnError,
    /// The chunks that samples are read in, and how many are mixed at a time, if these are read as a whole.
    in_chunks: Option<InChunks>,
    /// The samples that were selected from the reader's samples, if some were.
    selection: Option<Selection>,
}

/// The options of a [`MapDataset`].
#[derive(Clone)]
pub struct MapDatasetBuilder {
    reader: Arc<dyn Reader>,
    samples: u64,
    sizes: Option<Vec<u32>>,
    /// The names of these sizes, and sizes with other names.
    named_sizes: Vec<(String, Option<Vec<u32>>)>,
    variable: Option<Vec<String>>,
    on_error: OnError,
    in_chunks: Option<InChunks>,
    /// The bytes of memory for chunks.
    memory: Option<u64>,
}

crate::brief::debug_in_brief!(MapDatasetBuilder, [reader, samples, variable, on_error], [sizes]);

impl MapDataset {
    /// The options of a dataset over a source. The size of each sample is asked for, and no data is read.
    #[expect(clippy::new_ret_no_self, reason = "a dataset has options")]
    pub fn new(source: impl Source) -> MapDatasetBuilder {
        let samples = source.len();
        let sizes = (0..samples).map(|sample| source.size(sample)).collect::<Option<Vec<_>>>();
        let sizes = sizes.filter(|sizes| !sizes.is_empty());
        MapDatasetBuilder { sizes, ..Self::with_reader(Arc::new(Local(source)), samples) }
    }

    /// The options of a dataset of samples that a front end reads.
    #[doc(hidden)]
    pub fn with_reader(reader: Arc<dyn Reader>, samples: u64) -> MapDatasetBuilder {
        MapDatasetBuilder {
            reader,
            samples,
            sizes: None,
            named_sizes: Vec::new(),
            variable: None,
            on_error: OnError::Raise,
            in_chunks: None,
            memory: None,
        }
    }

    /// The options of a dataset of samples that are read a chunk at a time. Loaders mix samples in a window over
    /// [chunks](crate::plan::PlanBuilder::chunks), and hold the chunks that batches need.
    pub fn in_chunks(chunks: Chunks, source: impl ChunkSource) -> MapDatasetBuilder {
        let (samples, in_chunks) =
            (chunks.samples(), InChunks { chunks: chunks.clone(), open: None, capacity: None });
        let reader = ChunkReader::new(Box::new(source), chunks);
        MapDatasetBuilder { in_chunks: Some(in_chunks), ..Self::with_reader(Arc::new(reader), samples) }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.samples).unwrap_or(usize::MAX)
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }
}

impl MapDataset {
    /// Returns true if a field is as long as the size of its sample, given the shape of one.
    fn is_variable(&self, options: &CollateOptions, name: &str, shape: &[usize]) -> bool {
        let has_slot = options.slots.iter().any(|(field, _)| field == name);
        let named = self.variable.as_ref().is_none_or(|names| names.iter().any(|other| other == name));
        !has_slot && named && self.sizes.is_some() && !shape.is_empty()
    }
}

impl MapDatasetBuilder {
    /// Sets the size of each sample, for sources that do not know it.
    #[must_use]
    pub fn sizes(mut self, sizes: Vec<u32>) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Gives these sizes a name, for [`Budgets`](crate::batching::Budgets).
    #[must_use]
    pub fn size_name(mut self, name: impl Into<String>) -> Self {
        self.named_sizes.push((name.into(), None));
        self
    }

    /// Adds further sizes with a name, where there are [`sizes`](Self::sizes): patches beside tokens.
    #[must_use]
    pub fn named_sizes(mut self, name: impl Into<String>, sizes: Vec<u32>) -> Self {
        self.named_sizes.push((name.into(), Some(sizes)));
        self
    }

    /// Names the fields that are as long as the size of their sample. Default: all with at least one dimension, if
    /// there are sizes.
    #[must_use]
    pub fn variable<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.variable = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the treatment of samples that cannot be read. Default: the batch is an error.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the number of chunks whose samples are mixed at a time, for samples that are read a chunk at a time. Default:
    /// the default of plans.
    #[must_use]
    pub fn chunks_open(mut self, chunks_open: u64) -> Self {
        self.in_chunks = self.in_chunks.map(|in_chunks| InChunks { open: Some(chunks_open), ..in_chunks });
        self
    }

    /// Sets the chunks of the items that the reader makes samples of. Loaders mix samples in a window over them, and the
    /// chunks that batches need are held while their samples are made.
    #[doc(hidden)]
    #[must_use]
    pub fn of_items(mut self, items: Arc<ItemChunks>) -> Self {
        self.in_chunks = Some(items.in_chunks());
        self.reader = Arc::new(ItemReader { samples: self.reader, items });
        self
    }

    /// Sets the bytes of memory for chunks, for samples that are read a chunk at a time, in place of
    /// [`chunks_open`](Self::chunks_open): as many chunks are mixed as there is memory for, beside those that are read
    /// early. The largest chunk, by the sizes of its samples, is read once to learn its bytes. Iterations that run side by
    /// side have as much memory each. A batch that needs more chunks at a time than memory holds gets them nevertheless.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds fewer than 5 chunks;
    /// [`Kind::Data`](crate::Kind::Data) if there is not one size for each sample.
    pub fn build(self) -> Result<MapDataset> {
        let Self { reader, samples, sizes, named_sizes, variable, on_error, in_chunks, memory } = self;
        if let Some(count) = sizes.as_ref().map(|sizes| sizes.len() as u64).filter(|&count| count != samples)
        {
            return Err(BatchingCause::SizesLength { found: count, samples }.into());
        }
        let in_chunks = match (in_chunks, memory) {
            (Some(chunks), Some(bytes)) => {
                let skipped = on_error == OnError::Skip;
                let measure = |chunk| reader.measure_chunk(chunk);
                let (chunks, memory) = chunks.with_memory(bytes, sizes.as_deref(), measure, skipped)?;
                reader.limit_memory(memory.bytes, memory.largest);
                Some(chunks)
            }
            (in_chunks, _) => in_chunks,
        };
        let named = |sizes: Vec<u32>| {
            named_sizes.into_iter().try_fold(Sizes::new(sizes), |sizes, (name, given)| match given {
                None => sizes.named(name),
                Some(given) => sizes.with(name, given),
            })
        };
        let (sizes, selection) = (sizes.map(named).transpose()?, None);
        Ok(MapDataset { reader, samples, sizes, variable, on_error, in_chunks, selection })
    }
}

impl Kind for MapDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        Vec::new()
    }

    fn sizes(&self) -> Option<Sizes> {
        self.sizes.clone()
    }

    /// The facts about samples; fields are known once samples were read.
    fn collation(&self, _: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let named = self.variable.iter().flatten();
        let mut slotted = named.filter(|name| options.slots.iter().any(|(field, _)| field == *name));
        if let Some(field) = slotted.next() {
            return Err(MapCause::SlotOfColumn { field: field.clone() }.into());
        }
        let ragged = self.sizes.clone().map(|sizes| Ragged {
            guide: None,
            sizes,
            own_sizes: true,
            subsamples: false,
            shuffles: false,
        });
        Ok(Collation { ragged, ..Collation::new(Vec::new(), Index::Rows)? })
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        let in_chunks = match self.in_chunks.as_ref().map(|it| it.select(selection)).transpose() {
            Ok(in_chunks) => in_chunks,
            Err(error) => return Some(Err(error)),
        };
        let chosen = Chosen::new(Arc::clone(&self.reader), selection.clone());
        let outer = self.selection.as_ref();
        let text = outer.map_or_else(|| Ok(selection.clone()), |outer| selection.within(outer));
        let sizes = || self.sizes.as_ref().map(|sizes| sizes.gather(selection.iter())).transpose();
        let selected = |(text, sizes)| Self {
            reader: Arc::new(chosen),
            samples: selection.len(),
            sizes,
            in_chunks,
            selection: Some(text),
            ..self.clone()
        };
        let (samples, expected) = (selection.samples(), self.samples);
        Some(match samples == expected {
            true => text
                .and_then(|text| Ok((text, sizes()?)))
                .map(|text| Arc::new(selected(text)) as Arc<dyn Kind>),
            false => Err(SelectionCause::Samples { found: samples, expected }.into()),
        })
    }

    fn content(&self, _: &ContentRequest) -> Result<Option<Content>> {
        let selected = self.selection.as_ref();
        Ok(selected.map(|selected| Content {
            text: format!("select {}", selected.text()),
            rows: None,
            tail: 0,
        }))
    }

    fn rows(&self, _: Range<usize>) -> Vec<Range<usize>> {
        Vec::new()
    }

    fn most_rows(&self, _: usize) -> Vec<usize> {
        Vec::new()
    }

    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let (stop, clock) = (Stop::default(), ReadClock::default());
        let request = ReadRequest { samples: &[sample], seed: 0, epoch: 0, stop: &stop, clock: &clock };
        let read = BatchRead {
            samples: vec![sample],
            parts: vec![(0..1, self.reader.read(&request)?)],
            first: None,
        };
        let plain = Self { sizes: None, variable: None, on_error: OnError::Raise, ..self.clone() };
        let collated = plain.collate(&FixedSize::new(1)?.into(), &CollateOptions::default(), read)?;
        let members = Members { samples: vec![sample], ..Members::of_count(1, 0) };
        let fields = collated.collation.names.iter().zip(&collated.collation.forms);
        fields.map(|(name, form)| Ok((name.clone(), form_one(&**form, &members)?))).collect()
    }

    fn in_chunks(&self) -> Option<&InChunks> {
        self.in_chunks.as_ref()
    }

    fn reader(&self) -> Option<&Arc<dyn Reader>> {
        Some(&self.reader)
    }

    fn collate(&self, rule: &Rule, options: &CollateOptions, read: BatchRead) -> Result<Collated> {
        if self.reader.makes_batches() {
            return collate_whole(self, rule, options, read);
        }
        ReadBatch::new(self, read)?.collate(self, rule, options)
    }

    fn collate_ahead(
        &self,
        rule: &Rule,
        options: &CollateOptions,
        expected: &SampleLayout,
    ) -> Result<Option<CollatedAhead>> {
        if self.reader.makes_batches() {
            return Ok(None);
        }
        if self.reader.chunk_holder().is_some() && options.slots.is_empty() && !self.skips() {
            return self.collate_held(rule, options, expected).map(Some);
        }
        let mut fields: Vec<(String, Arc<dyn Form>)> = Vec::new();
        let mut as_read = true;
        for (name, (dtype, shape)) in expected.structure.names.iter().zip(&expected.fields) {
            let slot = options.slots.iter().find(|(field, _)| field == name);
            let slot = slot.map_or(&Slot::Same, |(_, slot)| slot);
            let Some(fixed) = slot.fixed_shape(shape).filter(|_| !self.is_variable(options, name, shape))
            else {
                return Ok(None);
            };
            let stored = slot.dtype(*dtype);
            let set = options.fields.iter().find(|(field, _)| field == name);
            let dtype = set.map_or(stored, |(_, options)| options.target(stored));
            let changes = set.is_some_and(|(_, options)| options.changes(stored));
            as_read &= matches!(slot, Slot::Same) && !changes;
            fields.push((name.clone(), Arc::new(DirectSlots { dtype, shape: fixed })));
        }
        let own = fields.len();
        let described = describing_fields(self, rule, options, false);
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let ragged = self.collation(rule, options, (0, 0))?.ragged;
        let collation = Collation { own, ragged, ..Collation::new(fields, Index::Rows)? };
        let marks = self.skips().then(Arc::default);
        // The types of fields are those in batches.
        let options = CollateOptions { fields: Vec::new(), ..options.clone() };
        let collated = Collated { collation, options, marks, skipped: Vec::new(), first: None };
        Ok(Some(CollatedAhead { collated, as_read, held: None }))
    }

    fn skips(&self) -> bool {
        self.on_error == OnError::Skip
    }
}

impl MapDataset {
    /// The fields of batches of samples that are copied from the chunks that hold them.
    ///
    /// # Errors
    /// As [`ReadBatch::collate`].
    fn collate_held(
        &self,
        rule: &Rule,
        options: &CollateOptions,
        expected: &SampleLayout,
    ) -> Result<CollatedAhead> {
        let names = &expected.structure.names;
        let dtypes: Vec<_> = expected.fields.iter().map(|(dtype, _)| *dtype).collect();
        let options = options.with_types(names, &dtypes)?;
        let (mut fields, mut variable) = (Vec::<(String, Arc<dyn Form>)>::new(), Vec::new());
        for (field, (name, (dtype, shape))) in names.iter().zip(&expected.fields).enumerate() {
            let (dtype, is_variable) = (*dtype, self.is_variable(&options, name, shape));
            let form: Arc<dyn Form> = match is_variable {
                false => Arc::new(HeldStack { field, dtype, shape: shape.clone() }),
                true => Arc::new(HeldLists {
                    field,
                    dtype,
                    inner: shape[1..].to_vec(),
                    concatenates: rule.packs(),
                    side: options.pad_side,
                    value: options.slot_padding(name, &Slot::Pad(PadSlot::default()), dtype)?,
                }),
            };
            fields.push((name.clone(), form));
            variable.push(is_variable);
        }
        let own = fields.len();
        let described = describing_fields(self, rule, &options, variable.contains(&true));
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let ragged = self.collation(rule, &options, (0, 0))?.ragged;
        let collation = Collation { own, ragged, ..Collation::new(fields, Index::Rows)? };
        let collated = Collated { collation, options, marks: None, skipped: Vec::new(), first: None };
        Ok(CollatedAhead { collated, as_read: false, held: Some(variable) })
    }
}

/// The samples of one batch, read.
struct ReadBatch {
    samples: Vec<u64>,
    /// The layout of each sample, or `None` for those that are left out.
    layouts: Vec<Option<SampleLayout>>,
    parts: ReadParts,
    skipped: Skipped,
    /// The sample that later samples are compared to, and its layout.
    first: (u64, SampleLayout),
}

impl ReadBatch {
    /// Looks at what was read, and at what failed.
    fn new(dataset: &MapDataset, batch: BatchRead) -> Result<Self> {
        let (mut layouts, mut parts, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (range, part) in batch.parts {
            for (outcome, &sample) in part.outcomes.into_iter().zip(&batch.samples[range.clone()]) {
                match (outcome, dataset.on_error) {
                    (Ok(layout), _) => layouts.push(Some(layout)),
                    (Err(cause), _) if Banned::is(&cause) => layouts.push(None),
                    (Err(cause), OnError::Raise) => return Err(ReadError::Failed { sample, cause }.into()),
                    (Err(cause), OnError::Skip) => {
                        layouts.push(None);
                        skipped.push((sample, cause));
                    }
                }
            }
            parts.push((range, part.samples));
        }
        let own = || {
            batch.samples.iter().zip(&layouts).find_map(|(&sample, layout)| Some((sample, layout.clone()?)))
        };
        let Some(first) = batch.first.or_else(own) else {
            let banned = || (batch.samples.first().copied().unwrap_or(0), Banned.into());
            let (sample, cause) = skipped.into_iter().next().unwrap_or_else(banned);
            return Err(ReadError::NoneRead { sample, cause }.into());
        };
        Ok(Self { samples: batch.samples, layouts, parts: parts.into(), skipped, first })
    }

    /// The layouts of the samples that could be read, with their numbers and places.
    fn layouts(&self) -> impl Iterator<Item = (u64, &SampleLayout)> {
        self.samples
            .iter()
            .zip(&self.layouts)
            .filter_map(|(&sample, layout)| Some((sample, layout.as_ref()?)))
    }

    /// The fields of the batch.
    fn collate(self, dataset: &MapDataset, rule: &Rule, options: &CollateOptions) -> Result<Collated> {
        let names = Arc::clone(&self.first.1.structure.names);
        self.check_structure()?;
        let slot = |name: &String| options.slots.iter().find(|(field, _)| field == name);
        let of = |(name, (dtype, _)): (&String, &(DType, _))| {
            slot(name).map_or(*dtype, |(_, slot)| slot.dtype(*dtype))
        };
        let dtypes: Vec<_> = names.iter().zip(&self.first.1.fields).map(of).collect();
        let options = options.with_types(&names, &dtypes)?;
        check_names("fields", options.slots.iter().map(|(name, _)| name), &names)?;
        check_names("columns", dataset.variable.iter().flatten(), &names)?;
        check_names("pad_value", options.pad_numbers.iter().filter_map(|(name, _)| name.as_ref()), &names)?;
        let mut variable = false;
        let mut fields = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let field = self.field(dataset, rule, &options, place, name)?;
            variable |= field.is_variable;
            fields.push((name.clone(), Arc::new(field) as Arc<dyn Form>));
        }
        if rule.packs() && !variable {
            return Err(ReadError::NothingToPack { rule: rule.name(), sample: self.first.0 }.into());
        }
        let own = fields.len();
        let described = describing_fields(dataset, rule, &options, variable);
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let ragged = dataset.collation(rule, &options, (0, 0))?.ragged;
        let collation = Collation { own, ragged, ..Collation::new(fields, Index::Rows)? };
        let marks = dataset.skips().then(|| self.marks());
        Ok(Collated { collation, options, marks, skipped: self.skipped, first: Some(self.first) })
    }

    /// True for each sample that could not be read.
    fn marks(&self) -> Arc<[bool]> {
        self.layouts.iter().map(Option::is_none).collect()
    }

    /// Refuses samples with other fields than the first.
    fn check_structure(&self) -> Result<()> {
        let (first, expected) = (self.first.0, &self.first.1.structure);
        let differs = |(_, layout): &(u64, &SampleLayout)| layout.structure != *expected;
        match self.layouts().find(differs) {
            None => Ok(()),
            Some((sample, layout)) => Err(ReadError::Structure {
                sample,
                found: layout.structure.to_string(),
                first,
                expected: expected.to_string(),
            }
            .into()),
        }
    }

    /// The form of one field.
    fn field(
        &self,
        dataset: &MapDataset,
        rule: &Rule,
        options: &CollateOptions,
        place: usize,
        name: &str,
    ) -> Result<ReadField> {
        let (dtype, first) = &self.first.1.fields[place];
        let slot = options.slots.iter().find(|(field, _)| field == name).map(|(_, slot)| slot.clone());
        let is_variable = dataset.is_variable(options, name, first);
        self.check_layouts(dataset, place, name, is_variable, slot.as_ref())?;
        let side = options.pad_side;
        let slot = slot.unwrap_or(if is_variable {
            Slot::Pad(PadSlot { side, ..PadSlot::default() })
        } else {
            Slot::Same
        });
        let shape = match is_variable {
            // The first extent is that of the batch, which its members know.
            true => first.clone(),
            false => {
                let mut shapes: Vec<_> =
                    self.layouts().map(|(_, layout)| layout.fields[place].1.as_slice()).collect();
                if shapes.is_empty() {
                    // Every sample of the batch is left out.
                    shapes.push(first);
                }
                slot.shape(name, shapes.into_iter())?
            }
        };
        let dtype = slot.dtype(*dtype);
        let padding = options.slot_padding(name, &slot, dtype)?;
        let writer = SlotWriter { slot, shape, dtype, padding };
        let shape_of =
            |layout: &Option<SampleLayout>| layout.as_ref().map(|layout| layout.fields[place].1.clone());
        let shapes = self.layouts.iter().map(shape_of).collect();
        let concatenates = is_variable && rule.packs();
        let parts = Arc::clone(&self.parts);
        Ok(ReadField { parts, field: place, writer, concatenates, is_variable, shapes })
    }

    /// Refuses arrays with other types and shapes than in the first sample, and lengths that are not the sizes.
    fn check_layouts(
        &self,
        dataset: &MapDataset,
        place: usize,
        name: &str,
        is_variable: bool,
        slot: Option<&Slot>,
    ) -> Result<()> {
        let (first, (expected, expected_shape)) = (self.first.0, &self.first.1.fields[place]);
        let slot = slot.unwrap_or(&Slot::Same);
        for (sample, layout) in self.layouts() {
            let (dtype, shape) = &layout.fields[place];
            let array = || format!("field {name} of sample {sample}");
            slot.check_array(array, *dtype, shape)?;
            let fits = match is_variable {
                true => shape.len() == expected_shape.len() && shape[1..] == expected_shape[1..],
                false => slot.takes_both(shape, expected_shape),
            };
            if dtype != expected || !fits {
                let (field, shape) = (name.to_owned(), shape.clone());
                let expected_shape = expected_shape.clone();
                let (dtype, expected) = (*dtype, *expected);
                return Err(ReadError::Layout {
                    field,
                    sample,
                    found: dtype,
                    shape,
                    first,
                    expected,
                    expected_shape,
                }
                .into());
            }
            let sizes = dataset.sizes.as_ref().filter(|_| is_variable);
            let size = sizes.map(|sizes| sizes.as_slice()[usize::try_from(sample).unwrap_or(usize::MAX)]);
            if let Some(size) = size.filter(|&size| shape[0] as u64 != u64::from(size)) {
                return Err(
                    ReadError::Size { field: name.to_owned(), sample, shape: shape.clone(), size }.into()
                );
            }
        }
        Ok(())
    }
}

/// The fields of a batch that was made as a whole. Each batch has fields of its own.
fn collate_whole(
    dataset: &MapDataset,
    rule: &Rule,
    options: &CollateOptions,
    read: BatchRead,
) -> Result<Collated> {
    let sample = read.samples.first().copied().unwrap_or(0);
    let part = read.parts.into_iter().next().map(|(_, part)| part);
    let missing = || ReadError::Failed { sample, cause: SourceError::from("its batch was not made").into() };
    let ReadPart { outcomes, samples: batch, .. } = part.ok_or_else(missing)?;
    let layout = outcomes.into_iter().next().ok_or_else(missing)?;
    let layout = layout.map_err(|cause| ReadError::Failed { sample, cause })?;
    let field = |(field, (dtype, shape)): (usize, &(DType, Vec<usize>))| {
        let writer = SlotWriter::same(*dtype, shape.clone());
        let name = layout.structure.names[field].clone();
        (name, Arc::new(WholeField { batch: Arc::clone(&batch), field, writer }) as Arc<dyn Form>)
    };
    let fields = layout.fields.iter().enumerate().map(field).collect();
    let ragged = dataset.collation(rule, options, (0, 0))?.ragged;
    let collation = Collation { ragged, ..Collation::new(fields, Index::Rows)? };
    let first = Some((sample, layout));
    Ok(Collated { collation, options: options.clone(), marks: None, skipped: Vec::new(), first })
}

/// Refuses options for fields that samples do not have.
fn check_names<'a>(
    option: &'static str,
    mut given: impl Iterator<Item = &'a String>,
    names: &[String],
) -> Result<()> {
    match given.find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => {
            Err(ReadError::UnknownField { option, field: name.clone(), names: names.join(", ") }.into())
        }
    }
}

/// Refuses fields of samples with the name of a field that describes them.
fn check_own_names(fields: &[(String, Arc<dyn Form>)], described: &[(&str, Arc<dyn Form>)]) -> Result<()> {
    let is_own = |name: &String| described.iter().any(|(own, _)| own == name);
    match fields.iter().find(|(name, _)| is_own(name)) {
        Some((field, _)) => Err(MapCause::OwnName { field: field.clone() }.into()),
        None => Ok(()),
    }
}

/// The fields that describe a batch of samples with sizes.
fn describing_fields(
    dataset: &MapDataset,
    rule: &Rule,
    options: &CollateOptions,
    is_variable: bool,
) -> Vec<(&'static str, Arc<dyn Form>)> {
    let mut fields: Vec<(&str, Arc<dyn Form>)> = match (is_variable, rule.packs()) {
        (false, _) => Vec::new(),
        (true, true) => vec![
            ("cu_seqlens", Arc::new(Boundaries)),
            ("position_ids", Arc::new(Positions { continues: rule.continues() })),
            ("segment_ids", Arc::new(Segments)),
        ],
        (true, false) => {
            vec![("attention_mask", Arc::new(Mask(options.pad_side))), ("lengths", Arc::new(Lengths))]
        }
    };
    if dataset.sizes.is_some() {
        fields.push(("index", Arc::new(SampleIndex)));
    }
    fields
}
