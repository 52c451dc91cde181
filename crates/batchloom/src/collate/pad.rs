//! `pad`: samples of any extents in slots of the shape of their union, the rest filled with a value.
//!
//! Every byte is written once: data, then padding beside it. Only if several dimensions vary is a slot filled with
//! padding first.

use std::ops::Range;

use super::copy::copy_rows;
use super::members::number;
use super::prefetch::prefetch_rows;
use super::read_rows::take_rows;
use super::stack::stack;
use super::{Form, Members, Padding, RowSlots};
use crate::named::named;
use crate::tensor::Sequences;
use crate::{DType, Result};

/// The prefetch distance, in samples.
const AHEAD: usize = 4;

/// The side on which padding goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum PadSide {
    /// After the data.
    #[default]
    Right,
    /// Before the data.
    Left,
}

named!(PadSide, "pad_side", {
    "right" => Right,
    "left" => Left,
});

/// Samples padded to their union: `[samples, ..union, ..inner]`.
#[derive(Debug, Clone)]
pub(crate) struct Pad {
    pub(crate) sequences: Sequences,
    /// The bytes of one element of padding.
    pub(crate) value: Vec<u8>,
    pub(crate) side: PadSide,
}

impl Form for Pad {
    fn dtype(&self) -> DType {
        self.sequences.values().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        let mut shape = self.sequences.values().shape().to_vec();
        shape.splice(..1, self.leading_extents(members));
        [&[members.count], shape.as_slice()].concat()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        let inner = self.sequences.values().shape()[1..].iter().map(|&extent| Some(extent));
        self.sequences.frame().into_iter().map(|extent| extent.map(number)).chain(inner).collect()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        Some(self)
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let leading = self.leading_extents(members);
        let row = self.sequences.values().row_bytes();
        let slot = row * leading.iter().product::<usize>();
        if slot == 0 {
            return Ok(());
        }
        let starts = self.sequences.starts(members.rows(range.clone()));
        for ((member, slot), place) in range.zip(target.chunks_exact_mut(slot)).zip(0..) {
            if let Some(&start) = starts.get(place + AHEAD) {
                self.prefetch(members, member + AHEAD, start);
            }
            match self.sequences.leading() {
                1 => self.fill_line(members, member, starts[place], slot)?,
                _ => self.fill_box(members, member, &leading, slot),
            }
        }
        Ok(())
    }
}

impl Padding for Pad {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let leading = self.leading_extents(members);
        let mut taken = leading.clone();
        for (&dimension, &extent) in self.sequences.varying().iter().zip(members.extents(member)) {
            taken[dimension] = number(extent);
        }
        let row = self.sequences.values().shape()[1..].iter().product();
        lines(self.side, &leading, &taken, row, 0, each);
    }

    fn value(&self) -> Option<&[u8]> {
        Some(&self.value)
    }
}

/// Visits the lines of data of a slot of extents `slot`; `taken` of them are data, in elements: `row` for each place of
/// the last dimension. The slot begins with element `start`.
fn lines(
    side: PadSide,
    slot: &[usize],
    taken: &[usize],
    row: usize,
    start: usize,
    each: &mut dyn FnMut(Range<usize>),
) {
    let (Some((&most, inner)), Some((&extent, rest))) = (slot.split_first(), taken.split_first()) else {
        return;
    };
    let part = inner.iter().product::<usize>() * row;
    let first = start + if side == PadSide::Left { (most - extent) * part } else { 0 };
    match inner == rest {
        true => each(first..first + extent * part),
        false => (0..extent).for_each(|place| lines(side, inner, rest, row, first + place * part, each)),
    }
}

impl Pad {
    /// The extents of a slot in the leading dimensions. If samples differ in one, the union has it.
    fn leading_extents(&self, members: &Members) -> Vec<usize> {
        let same = self.sequences.frame().into_iter().map(|extent| extent.map_or(0, number));
        let mut extents: Vec<usize> = same.collect();
        for (&dimension, &most) in self.sequences.varying().iter().zip(&members.union) {
            extents[dimension] = most;
        }
        extents
    }

    /// Prefetches the sample with `start` as its first row of values.
    fn prefetch(&self, members: &Members, member: usize, start: usize) {
        let (values, row) = (self.sequences.values(), start + members.start(member));
        prefetch_rows(values, row, members.length(member) * values.row_bytes());
    }

    /// Fills a slot with a sample along one dimension; `start` is its first row of values.
    fn fill_line(&self, members: &Members, member: usize, start: usize, slot: &mut [u8]) -> Result<()> {
        let (values, length) = (self.sequences.values(), members.length(member));
        let first = start + members.start(member);
        let bytes = length * values.row_bytes();
        let (data, padding) = match self.side {
            PadSide::Right => slot.split_at_mut(bytes),
            PadSide::Left => {
                let (padding, data) = slot.split_at_mut(slot.len() - bytes);
                (data, padding)
            }
        };
        match members.find_scattered_rows(&self.sequences, member..member + 1) {
            Some(scattered) => {
                let slots =
                    RowSlots { batch: scattered.len(), stride: data.len(), fillers: 0, loss_denominator: 0 };
                stack(values, &scattered, data, slots)?;
            }
            None => take_rows(values, first, length, data)?,
        }
        repeat(&self.value, padding);
        Ok(())
    }

    /// Fills a slot with a sample along several dimensions.
    fn fill_box(&self, members: &Members, member: usize, leading: &[usize], slot: &mut [u8]) {
        repeat(&self.value, slot);
        let sample = members.row(member);
        let stored: Vec<usize> =
            self.sequences.extents(sample).iter().map(|&extent| number(extent)).collect();
        let (mut taken, mut skipped) = (stored.clone(), vec![0; stored.len()]);
        for (&dimension, &extent) in self.sequences.varying().iter().zip(members.extents(member)) {
            taken[dimension] = number(extent);
        }
        if let [dimension] = self.sequences.varying() {
            skipped[*dimension] = members.start(member);
        }
        let copy = PartCopy { pad: self, stored: &stored, skipped: &skipped, taken: &taken, slot: leading };
        copy.fill(0, self.sequences.start(sample), slot);
    }
}

/// A part of a sample that goes into a part of a slot, dimension by dimension.
struct PartCopy<'a> {
    pad: &'a Pad,
    stored: &'a [usize],
    skipped: &'a [usize],
    taken: &'a [usize],
    slot: &'a [usize],
}

impl PartCopy<'_> {
    /// Copies the values along `dimension` and those after it, from row `start` of the values on.
    fn fill(&self, dimension: usize, start: usize, slot: &mut [u8]) {
        let values = self.pad.sequences.values();
        let stride: usize = self.stored[dimension + 1..].iter().product();
        let part = values.row_bytes() * self.slot[dimension + 1..].iter().product::<usize>();
        let offset = match self.pad.side {
            PadSide::Right => 0,
            PadSide::Left => self.slot[dimension] - self.taken[dimension],
        };
        let slot = &mut slot[offset * part..(offset + self.taken[dimension]) * part];
        let start = start + self.skipped[dimension] * stride;
        if dimension + 1 == self.stored.len() {
            return copy_rows(values, start, self.taken[dimension], slot);
        }
        for (index, part) in slot.chunks_exact_mut(part.max(1)).enumerate() {
            self.fill(dimension + 1, start + index * stride, part);
        }
    }
}

/// Tells data from padding, element by element: `[samples, ..union]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask(pub(crate) PadSide);

impl Form for Mask {
    fn dtype(&self) -> DType {
        DType::Bool
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], members.union.as_slice()].concat()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slot: usize = members.union.iter().product();
        if slot > 0 {
            for (member, slot) in range.zip(target.chunks_exact_mut(slot)) {
                mark(self.0, members.extents(member), &members.union, slot);
            }
        }
        Ok(())
    }
}

/// Marks the data of one slot, dimension by dimension.
fn mark(side: PadSide, extents: &[u32], union: &[usize], slot: &mut [u8]) {
    let (Some((&extent, inner)), Some((&most, rest))) = (extents.split_first(), union.split_first()) else {
        return slot.fill(1);
    };
    let part: usize = rest.iter().product();
    let data = match side {
        PadSide::Right => 0..number(extent),
        PadSide::Left => most - number(extent)..most,
    };
    slot[..data.start * part].fill(0);
    slot[data.end * part..].fill(0);
    let data = &mut slot[data.start * part..data.end * part];
    match rest.is_empty() {
        true => data.fill(1),
        false => data.chunks_exact_mut(part.max(1)).for_each(|part| mark(side, inner, rest, part)),
    }
}

/// Fills with one element over and over.
pub(super) fn repeat(value: &[u8], target: &mut [u8]) {
    match value.split_first() {
        Some((&first, rest)) if rest.iter().all(|&byte| byte == first) => target.fill(first),
        Some(_) => target.chunks_exact_mut(value.len()).for_each(|element| element.copy_from_slice(value)),
        None => {}
    }
}
