//! Samples in chunks that are held: what forms copy from while a piece of batches is filled.
//!
//! Promise: a batch of samples in chunks has the bytes of a batch of the same samples in arrays.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::error::CollateCause;
use super::members::number;
use super::pad::repeat;
use super::prefetch::prefetch_rows;
use super::stack::copy_rows;
use super::{Form, Members, PadSide, Padding, RowSlots, Taken};
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
    fn copy_part(&self, sample: usize, part: Range<usize>, slot: &mut [u8]) -> Result<()> {
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

/// The distance, in samples, at which samples are asked for.
const AHEAD: usize = 8;

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

/// Some of the samples that are held: those of consecutive members.
#[derive(Debug, Clone)]
pub(crate) struct HeldMembers {
    /// All of them.
    pub(crate) rows: Arc<HeldRows>,
    /// The place of the first member.
    pub(crate) first: usize,
}

impl HeldMembers {
    fn find(&self, field: usize, member: usize) -> (&ChunkField, usize) {
        self.rows.find(field, self.first + member)
    }

    /// Asks the processor for the field of a member that is copied soon, if it is before `end`.
    fn prefetch(&self, field: usize, member: usize, end: usize) {
        if member < end {
            let (chunk, row) = self.find(field, member);
            chunk.prefetch(row);
        }
    }
}

/// The held samples of members.
///
/// # Errors
/// [`Kind::Runtime`](crate::Kind::Runtime) if they are not held, which is a fault of the loader.
fn held(members: &Members) -> Result<&HeldMembers> {
    Ok(members.held.as_ref().ok_or(CollateCause::NotHeld)?)
}

/// A field of samples of one shape, in chunks: `[samples, ..sample]`.
#[derive(Debug, Clone)]
pub(crate) struct HeldStack {
    /// The place of the field in samples.
    pub(crate) field: usize,
    pub(crate) dtype: DType,
    /// The shape of a sample.
    pub(crate) shape: Vec<usize>,
}

impl HeldStack {
    fn copy(&self, held: &HeldMembers, count: usize, target: &mut [u8]) {
        let bytes = self.shape.iter().product::<usize>() * self.dtype.size();
        if bytes == 0 {
            return;
        }
        for (member, slot) in target.chunks_exact_mut(bytes).take(count).enumerate() {
            held.prefetch(self.field, member + AHEAD, count);
            let (chunk, row) = held.find(self.field, member);
            chunk.copy(row, slot);
        }
    }
}

impl Form for HeldStack {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], self.shape.as_slice()].concat()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let held = held(members)?;
        self.copy(&HeldMembers { first: held.first + range.start, ..held.clone() }, range.len(), target);
        Ok(())
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        let mut held = taken.held.cloned().ok_or(CollateCause::NotHeld)?;
        for (batch, wanted) in target.chunks_mut(slots.stride.max(1)).zip(taken.chunks(slots.batch.max(1))) {
            self.copy(&held, wanted.samples.len(), batch);
            held.first += wanted.samples.len();
        }
        Ok(())
    }
}

/// A field of samples that differ in their first extent, in chunks: padded, `[samples, longest, ..inner]`, or one after
/// the other, `[elements, ..inner]`.
#[derive(Debug, Clone)]
pub(crate) struct HeldLists {
    /// The place of the field in samples.
    pub(crate) field: usize,
    pub(crate) dtype: DType,
    /// The shape of an element of a sample.
    pub(crate) inner: Vec<usize>,
    /// True if samples are one after the other.
    pub(crate) concatenates: bool,
    pub(crate) side: PadSide,
    /// The bytes of one element of padding.
    pub(crate) value: Vec<u8>,
}

impl HeldLists {
    fn row_bytes(&self) -> usize {
        self.inner.iter().product::<usize>() * self.dtype.size()
    }
}

impl Form for HeldLists {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        match self.concatenates {
            true => [&[members.elements()], self.inner.as_slice()].concat(),
            false => [&[members.count, members.union[0]], self.inner.as_slice()].concat(),
        }
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        match self.concatenates {
            true => members.ends[member] * self.row_bytes(),
            false => member * members.union[0] * self.row_bytes(),
        }
    }

    fn is_data(&self) -> bool {
        true
    }

    fn is_concatenated(&self) -> bool {
        self.concatenates
    }

    fn sample(&self) -> Vec<Option<usize>> {
        std::iter::once(None).chain(self.inner.iter().copied().map(Some)).collect()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        (!self.concatenates).then_some(self)
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let (held, row, mut rest) = (held(members)?, self.row_bytes(), target);
        for member in range.clone() {
            held.prefetch(self.field, member + AHEAD, range.end);
            let (length, first) = (members.length(member), members.start(member));
            let places = if self.concatenates { length } else { members.union[0] };
            let (slot, later) = std::mem::take(&mut rest).split_at_mut(places * row);
            let (padding, data) = match self.side {
                PadSide::Right => {
                    let (data, padding) = slot.split_at_mut(length * row);
                    (padding, data)
                }
                PadSide::Left => slot.split_at_mut((places - length) * row),
            };
            let (chunk, sample) = held.find(self.field, member);
            chunk.copy_part(sample, first..first + length, data)?;
            repeat(&self.value, padding);
            rest = later;
        }
        Ok(())
    }
}

impl Padding for HeldLists {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let (most, length) = (members.union[0], members.length(member));
        let first = if self.side == PadSide::Left { most - length } else { 0 };
        let each_element: usize = self.inner.iter().product();
        each(first * each_element..(first + length) * each_element);
    }

    fn value(&self) -> Option<&[u8]> {
        Some(&self.value)
    }
}
