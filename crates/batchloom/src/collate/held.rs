//! Samples in chunks that are held: forms copy them while a piece of batches is filled.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::copy::copy_rows;
use super::prefetch::prefetch_rows;
use crate::tensor::{ChunkedTensor, Sequences};
use crate::{DType, Result, Tensor, memory};

/// One field of the samples of a chunk.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChunkField {
    /// A row for each sample.
    Rows(ChunkedTensor),
    /// An array for each sample, of any length.
    Lists(Sequences),
}

impl<R: Into<ChunkedTensor>> From<R> for ChunkField {
    fn from(rows: R) -> Self {
        Self::Rows(rows.into())
    }
}

impl ChunkField {
    /// The number of samples, or `None` for a scalar.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Rows(rows) => rows.shape().first().copied(),
            Self::Lists(lists) => Some(lists.len()),
        }
    }

    /// The number of bytes of all samples.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.values();
        let bytes = values.row_bytes().saturating_mul(values.shape().first().copied().unwrap_or(1));
        match self {
            Self::Rows(_) => bytes,
            Self::Lists(lists) => bytes.saturating_add(lists.len().saturating_mul(SAMPLE_BYTES)),
        }
    }

    fn values(&self) -> &ChunkedTensor {
        match self {
            Self::Rows(rows) => rows,
            Self::Lists(lists) => lists.values(),
        }
    }

    /// The type and the shape of a sample.
    pub(crate) fn layout(&self, sample: usize) -> (DType, Vec<usize>) {
        let (extents, inner) = self.shape(sample);
        (
            self.values().dtype(),
            extents.iter().map(|&extent| number(extent)).chain(inner.iter().copied()).collect(),
        )
    }

    /// The shape of a sample in two parts: the extents that are stored for each sample, and those that all share.
    fn shape(&self, sample: usize) -> (&[u32], &[usize]) {
        let inner = &self.values().shape()[1..];
        match self {
            Self::Rows(_) => (&[], inner),
            Self::Lists(lists) => (lists.extents(sample), inner),
        }
    }

    /// The first extent of a sample; 1 for a scalar.
    pub(crate) fn first_extent(&self, sample: usize) -> usize {
        let (extents, inner) = self.shape(sample);
        extents.first().map(|&extent| number(extent)).or_else(|| inner.first().copied()).unwrap_or(1)
    }

    /// Returns true if a sample has this type and shape, whose first extent may differ if it is `variable`.
    pub(crate) fn has_layout(&self, sample: usize, dtype: DType, shape: &[usize], variable: bool) -> bool {
        let (extents, inner) = self.shape(sample);
        let skipped = usize::from(variable);
        let mut found = extents.iter().map(|&extent| number(extent)).chain(inner.iter().copied());
        self.values().dtype() == dtype
            && extents.len() + inner.len() == shape.len()
            && (skipped == 0 || found.next().is_some())
            && found.eq(shape.iter().skip(skipped).copied())
    }

    /// Writes a sample into its slot, which is as large.
    pub(crate) fn copy(&self, sample: usize, slot: &mut [u8]) {
        let rows = match self {
            Self::Rows(_) => sample..sample + 1,
            Self::Lists(lists) => lists.rows_of(sample..sample + 1),
        };
        copy_rows(self.values(), rows.start, rows.len(), slot);
    }

    /// Writes a part of a sample along its first dimension, `part`, into a slot that is as large.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn copy_part(&self, sample: usize, part: Range<usize>, slot: &mut [u8]) -> Result<()> {
        let most = self.first_extent(sample);
        if part == (0..most) {
            self.copy(sample, slot);
            return Ok(());
        }
        match self {
            Self::Lists(lists) => {
                let each: usize = lists.extents(sample)[1..].iter().map(|&extent| number(extent)).product();
                let first = lists.rows_of(sample..sample + 1).start + part.start * each;
                copy_rows(lists.values(), first, part.len() * each, slot);
            }
            Self::Rows(rows) => {
                let mut whole = memory::reserve(rows.row_bytes())?;
                whole.resize(rows.row_bytes(), 0);
                self.copy(sample, &mut whole);
                let each = rows.row_bytes() / most.max(1);
                slot.copy_from_slice(&whole[part.start * each..part.end * each]);
            }
        }
        Ok(())
    }

    /// A copy of a sample, which does not keep the memory of the chunk.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn to_tensor(&self, sample: usize) -> Result<Tensor> {
        let (dtype, shape) = self.layout(sample);
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let mut copy = memory::reserve(bytes)?;
        copy.resize(bytes, 0);
        self.copy(sample, &mut copy);
        Tensor::from_bytes(copy.into(), dtype, &shape)
    }

    /// Asks the processor for a sample that is copied soon.
    fn prefetch(&self, sample: usize) {
        let values = self.values();
        let (row, rows) = match self {
            Self::Rows(_) => (sample, 1),
            Self::Lists(lists) => (lists.start(sample), number(lists.extents(sample)[0])),
        };
        if rows > 0 {
            prefetch_rows(values, row, rows.saturating_mul(values.row_bytes()));
        }
    }
}

/// The bytes that are stored for each list beside its values.
const SAMPLE_BYTES: usize = size_of::<u64>() + size_of::<u32>();

/// The fields of a chunk that is held.
pub(crate) trait HeldChunk: Debug + Send + Sync {
    /// The fields, in the order in which samples have them.
    fn fields(&self) -> &[ChunkField];
}

/// Samples of some chunks, which stay in memory as long as this does.
pub struct HeldRows {
    chunks: Vec<Arc<dyn HeldChunk>>,
    /// The place of the chunk of each sample in `chunks`, and its row there.
    rows: Vec<(usize, usize)>,
    /// The note that the chunks are in use, which ends after they left.
    _in_use: Box<dyn Any + Send + Sync>,
}

impl Debug for HeldRows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HeldRows").field("samples", &self.rows.len()).finish_non_exhaustive()
    }
}

impl HeldRows {
    /// Samples of chunks: for each, the place of its chunk in `chunks` and its row there.
    pub(crate) fn new(
        chunks: Vec<Arc<dyn HeldChunk>>,
        rows: Vec<(usize, usize)>,
        in_use: impl Any + Send + Sync,
    ) -> Self {
        Self { chunks, rows, _in_use: Box::new(in_use) }
    }

    /// The field number `field` of the chunk of a sample, and the row of the sample there.
    pub(crate) fn find(&self, field: usize, place: usize) -> (&ChunkField, usize) {
        let (chunk, row) = self.rows[place];
        (&self.chunks[chunk].fields()[field], row)
    }

    /// The first sample with a field that varies and is not as long as the size of the sample: its place, the field and
    /// the shape.
    pub(crate) fn find_wrong_size(
        &self,
        samples: &[u64],
        variable: &[bool],
        sizes: &[u32],
    ) -> Option<(usize, usize, Vec<usize>)> {
        let fields: Vec<usize> = (0..variable.len()).filter(|&field| variable[field]).collect();
        samples.iter().enumerate().find_map(|(place, &sample)| {
            let size =
                sizes.get(usize::try_from(sample).unwrap_or(usize::MAX)).map_or(0, |&size| number(size));
            fields.iter().find_map(|&field| {
                let (chunk, row) = self.find(field, place);
                (chunk.first_extent(row) != size).then(|| (place, field, chunk.layout(row).1))
            })
        })
    }
}

/// The held samples of consecutive members.
#[derive(Debug, Clone)]
pub(crate) struct HeldMembers {
    /// All of them.
    pub(crate) rows: Arc<HeldRows>,
    /// The place of member 0. It may lie before the first place, and wraps around then: members before those that are held
    /// have no place.
    pub(crate) first: usize,
}

impl HeldMembers {
    pub(super) fn find(&self, field: usize, member: usize) -> (&ChunkField, usize) {
        self.rows.find(field, self.first.wrapping_add(member))
    }

    /// Asks the processor for the field of a member that is copied soon, if it is before `end`.
    pub(super) fn prefetch(&self, field: usize, member: usize, end: usize) {
        if member < end {
            let (chunk, row) = self.find(field, member);
            chunk.prefetch(row);
        }
    }
}

/// An extent as an index.
fn number(extent: u32) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}
