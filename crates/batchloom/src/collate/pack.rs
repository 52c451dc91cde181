//! `pack`: samples one after the other without padding, and the fields with their boundaries.
//!
//! Samples of shape `[80, time]` vary in their second dimension, and so does their batch: it is `[80, elements]`, which lies
//! in 80 bands.
//!
//! Boundaries, positions and segments are the same fact in the three forms that kernels take: `cu_seqlens` begins at
//! 0 and ends with the number of elements, a position is 0 where a sample begins, and segment numbers count up from 1 in
//! each row; 0 is padding. A sample without elements is an empty segment.

use std::ops::Range;

use super::index::write;
use super::members::number;
use super::prefetch::prefetch_rows;
use super::read_rows::take_rows;
use super::stack::stack;
use super::{Form, Members, RowFrame, RowSlots, RowUnit};
use crate::tensor::Sequences;
use crate::{DType, Result};

/// The prefetch distance, in samples.
const AHEAD: usize = 4;

/// Samples one after the other along the dimension in which they vary: `[..outer, elements, ..inner]`. There is a band for
/// each row of the outer dimensions.
#[derive(Debug, Clone)]
pub(crate) struct Pack {
    sequences: Sequences,
    /// The extents before the dimension in which samples vary.
    outer: Vec<usize>,
}

impl Pack {
    /// The field of these samples, or `None` if they vary in several dimensions.
    pub(crate) fn new(sequences: Sequences) -> Option<Self> {
        let &[dimension] = sequences.varying() else { return None };
        let frame = sequences.frame();
        let outer = frame[..dimension].iter().map(|extent| number(extent.unwrap_or(0))).collect();
        Some(Self { sequences, outer })
    }

    /// The values of a member before its part of a band.
    fn before(&self, band: usize, members: &Members, member: usize) -> usize {
        match band {
            0 => 0,
            band => band * self.sequences.extents(members.row(member)).last().copied().map_or(0, number),
        }
    }
}

impl Form for Pack {
    fn dtype(&self) -> DType {
        self.sequences.values().dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&self.outer[..], &[members.elements()], &self.sequences.values().shape()[1..]].concat()
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.ends[member] * self.sequences.values().row_bytes()
    }

    fn bands(&self) -> usize {
        self.outer.iter().product()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        let inner = self.sequences.values().shape()[1..].iter().copied().map(Some);
        self.outer.iter().copied().map(Some).chain([None]).chain(inner).collect()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        self.fill_band(members, range, 0, target)
    }

    fn fill_band(
        &self,
        members: &Members,
        range: Range<usize>,
        band: usize,
        target: &mut [u8],
    ) -> Result<()> {
        let (values, row) = (self.sequences.values(), self.sequences.values().row_bytes());
        if let Some(scattered) = members.find_scattered_rows(&self.sequences, range.clone()) {
            let slots =
                RowSlots { batch: scattered.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
            return stack(values, &scattered, target, slots);
        }
        let starts = self.sequences.starts(members.rows(range.clone()));
        let first = |member: usize| {
            starts[member - range.start] + self.before(band, members, member) + members.start(member)
        };
        let mut rest = target;
        for member in range.clone() {
            if member + AHEAD < range.end {
                let bytes = members.length(member + AHEAD) * row;
                prefetch_rows(values, first(member + AHEAD), bytes);
            }
            let length = members.length(member);
            let (part, later) = rest.split_at_mut(length * row);
            take_rows(values, first(member), length, part)?;
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

    fn row_unit(&self) -> RowUnit {
        RowUnit::Boundary
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

    fn row_unit(&self) -> RowUnit {
        RowUnit::Boundary
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write(ends(members, &range).iter().map(|end| end.cast_signed() as i64), target);
        Ok(())
    }
}

/// The boundaries of samples in rows of one shape, counted from the start of each row: `[rows, samples + 1]`. The last
/// boundary of a row is repeated, and a row without samples has zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowBoundaries {
    pub(super) dtype: DType,
    pub(super) frame: RowFrame,
}

impl RowBoundaries {
    /// The place of the first boundary that is written with a member; for one past the last, the end.
    fn place(&self, members: &Members, member: usize) -> usize {
        let row_len = self.frame.samples + 1;
        if member >= members.count {
            return self.frame.rows * row_len;
        }
        let row = members.row_of(member);
        row * row_len + start_of_end(member - members.row_members(row).start)
    }

    fn repeat(&self, end: usize, target: &mut [u8]) {
        match self.dtype {
            DType::I64 => target.as_chunks_mut().0.fill((end.cast_signed() as i64).to_ne_bytes()),
            _ => target.as_chunks_mut().0.fill(as_short(end).to_ne_bytes()),
        }
    }

    fn write(&self, ends: impl Iterator<Item = usize>, target: &mut [u8]) {
        match self.dtype {
            DType::I64 => write(ends.map(|end| end.cast_signed() as i64), target),
            _ => write_short(ends, target),
        }
    }
}

impl Form for RowBoundaries {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self, _: &Members) -> Vec<usize> {
        vec![self.frame.rows, self.frame.samples + 1]
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        self.place(members, member) * self.dtype.size()
    }

    fn row_unit(&self) -> RowUnit {
        RowUnit::Batch
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let (size, row_len) = (self.dtype.size(), self.frame.samples + 1);
        let (mut first, mut row, mut rest) = (range.start, members.row_of(range.start), target);
        while first < range.end {
            let held = members.row_members(row);
            let end = held.end.min(range.end);
            let begin = members.ends[held.start];
            let place = row * row_len + start_of_end(first - held.start);
            let (row_end, row_after) = ((row + 1) * row_len, members.row_after(row, held.end));
            let next = match end == held.end {
                true if end == members.count => self.frame.rows * row_len,
                true => row_after * row_len,
                false => row * row_len + start_of_end(end - held.start),
            };
            let in_row = next.min(row_end) - place;
            let (part, later) = rest.split_at_mut((next - place) * size);
            let (boundaries, no_samples) = part.split_at_mut(in_row * size);
            let from = if first == held.start { first } else { first + 1 };
            let last = members.ends[end] - begin;
            let ends = &members.ends[from..=end];
            let (boundaries, repeated) = boundaries.split_at_mut((ends.len() * size).min(boundaries.len()));
            self.write(ends.iter().map(|end| end - begin), boundaries);
            self.repeat(last, repeated);
            no_samples.fill(0);
            (first, row, rest) = (end, row_after, later);
        }
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

/// The number of each element in its sample: `[elements]`, int64. The later parts of a sample begin at 0 again, unless
/// `continues`: then they begin with the number that their first element has in the sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions {
    pub(crate) continues: bool,
}

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
            let first = if self.continues { members.start(member) } else { 0 };
            write((first..first + length).map(|number| number.cast_signed() as i64), part);
            rest = later;
        }
        Ok(())
    }
}

/// The number of each element's sample in its row, from 1: `[elements]`, int32.
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
        let (mut row, mut held) = (members.row_of(range.start), 0..0);
        for member in range {
            let (part, later) = rest.split_at_mut(members.length(member) * size_of::<i32>());
            if !held.contains(&member) {
                row = if held.is_empty() { row } else { members.row_after(row, member) };
                held = members.row_members(row);
            }
            let segment = as_short(member - held.start + 1).to_ne_bytes();
            part.as_chunks_mut().0.fill(segment);
            rest = later;
        }
        Ok(())
    }
}

/// Writes numbers below 2^31 one after the other.
fn write_short(numbers: impl Iterator<Item = usize>, target: &mut [u8]) {
    for (slot, number) in target.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *slot = as_short(number).to_ne_bytes();
    }
}

/// A number below 2^31.
fn as_short(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
