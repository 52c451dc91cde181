//! `pack`: samples one after the other without padding, and the fields with their boundaries.
//!
//! Boundaries, positions and segments are the same fact in the three forms that kernels take: `cu_seqlens` begins at
//! 0 and ends with the number of elements, a position is 0 exactly where a segment begins, and segment numbers count up
//! from 0. A sample without elements is an empty segment.

use std::ops::Range;

use super::copy::copy_rows;
use super::index::write;
use super::prefetch::prefetch_rows;
use super::stack::stack;
use super::{Form, Members, RowSlots};
use crate::tensor::Sequences;
use crate::{DType, Result};

/// The prefetch distance, in samples.
const AHEAD: usize = 4;

/// Samples one after the other: `[elements, ..inner]`.
#[derive(Debug, Clone)]
pub(crate) struct Pack(pub(crate) Sequences);

impl Form for Pack {
    fn dtype(&self) -> DType {
        self.0.values().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.elements()], &self.0.values().shape()[1..]].concat()
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.ends[member] * self.0.values().row_bytes()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let (values, row) = (self.0.values(), self.0.values().row_bytes());
        if let Some(scattered) = members.find_scattered_rows(&self.0, range.clone()) {
            let slots =
                RowSlots { batch: scattered.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
            stack(values, &scattered, target, slots);
            return Ok(());
        }
        let starts = self.0.starts(members.rows(range.clone()));
        let first = |member: usize| starts[member - range.start] + members.start(member);
        let mut rest = target;
        for member in range.clone() {
            if member + AHEAD < range.end {
                let bytes = members.length(member + AHEAD) * row;
                prefetch_rows(values, first(member + AHEAD), bytes);
            }
            let length = members.length(member);
            let (part, later) = rest.split_at_mut(length * row);
            copy_rows(values, first(member), length, part);
            rest = later;
        }
        Ok(())
    }
}

/// The boundaries of concatenated samples, as int32: `[samples + 1]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boundaries;

impl Form for Boundaries {
    fn dtype(&self) -> DType {
        DType::I32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count + 1]
    }

    fn start(&self, _: &Members, member: usize) -> usize {
        start_of_end(member) * size_of::<i32>()
    }

    fn most_elements(&self) -> usize {
        usize::try_from(i32::MAX).unwrap_or(usize::MAX)
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write_short(ends(members, &range).iter().copied(), target);
        Ok(())
    }
}

/// The boundaries of concatenated samples, as int64: `[samples + 1]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets;

impl Form for Offsets {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count + 1]
    }

    fn start(&self, _: &Members, member: usize) -> usize {
        start_of_end(member) * size_of::<i64>()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write(ends(members, &range).iter().map(|end| end.cast_signed() as i64), target);
        Ok(())
    }
}

/// The place of the first boundary that is written with a member: the first boundary goes with the first sample, and
/// each sample has the one at its end.
fn start_of_end(member: usize) -> usize {
    if member == 0 { 0 } else { member + 1 }
}

/// The boundaries that are written with some members.
fn ends<'a>(members: &'a Members, range: &Range<usize>) -> &'a [usize] {
    let first = if range.start == 0 { 0 } else { range.start + 1 };
    &members.ends[first..=range.end]
}

/// The number of each element in its sample: `[elements]`, int64. A sample that continues from an earlier batch begins
/// at 0 again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions;

impl Form for Positions {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.elements()]
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.ends[member] * size_of::<i64>()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let mut rest = target;
        for member in range {
            let length = members.length(member);
            let (part, later) = rest.split_at_mut(length * size_of::<i64>());
            write(0..length.cast_signed() as i64, part);
            rest = later;
        }
        Ok(())
    }
}

/// The number of each element's sample in the batch: `[elements]`, int32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments;

impl Form for Segments {
    fn dtype(&self) -> DType {
        DType::I32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.elements()]
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.ends[member] * size_of::<i32>()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let mut rest = target;
        for member in range {
            let (part, later) = rest.split_at_mut(members.length(member) * size_of::<i32>());
            write_short(std::iter::repeat(member), part);
            rest = later;
        }
        Ok(())
    }
}

/// Writes numbers below 2^31 one after the other.
fn write_short(numbers: impl Iterator<Item = usize>, target: &mut [u8]) {
    for (slot, number) in target.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *slot = i32::try_from(number).unwrap_or(i32::MAX).to_ne_bytes();
    }
}
