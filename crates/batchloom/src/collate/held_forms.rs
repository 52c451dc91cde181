//! `held_forms`: stacks, pads or packs samples in chunks that are held.
//!
//! Promise: a batch of samples in chunks has the bytes of a batch of the same samples in arrays.

use std::ops::Range;

use super::error::CollateCause;
use super::held::HeldMembers;
use super::labels::SampleTokens;
use super::pad::repeat;
use super::{Form, Members, PadSide, Padding, RowSlots, Taken};
use crate::{DType, Result};

/// The distance, in samples, at which samples are asked for.
const AHEAD: usize = 8;

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
        self.copy(
            &HeldMembers { first: held.first.wrapping_add(range.start), ..held.clone() },
            range.len(),
            target,
        );
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

impl SampleTokens for HeldLists {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn copy(&self, members: &Members, member: usize, tokens: Range<usize>, target: &mut [u8]) -> Result<()> {
        let (chunk, sample) = held(members)?.find(self.field, member);
        chunk.copy_part(sample, tokens, target)
    }
}
