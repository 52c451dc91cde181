//! `pack`: samples one after the other without padding, and what tells them apart.
//!
//! Boundaries, positions and segments say the same thing in the three ways that kernels ask for: `cu_seqlens` begins at
//! 0 and ends with the number of elements, a position is 0 exactly where a segment begins, and segment numbers count
//! up from 0. A sample without elements has a segment of its own, which is empty.

use std::ops::Range;

use super::Members;
use super::index::write;
use super::stack::{Slots, copy_rows, prefetch_rows, stack};
use crate::dataset::Sequences;

/// How many samples ahead a sample is asked for.
const AHEAD: usize = 4;

/// The values of some members.
pub(super) fn values(sequences: &Sequences, members: &Members, range: Range<usize>, target: &mut [u8]) {
    let (rows, source) = (sequences.rows(), sequences.values().bytes());
    if let Some(scattered) = members.scattered(sequences, range.clone()) {
        let slots = Slots { batch: scattered.len(), stride: target.len() };
        return stack(source, rows, &scattered, target, slots);
    }
    let starts = sequences.starts(&members.samples[range.clone()]);
    let first = |member: usize| starts[member - range.start] + members.start(member);
    let mut rest = target;
    for member in range.clone() {
        if member + AHEAD < range.end {
            let bytes = members.length(member + AHEAD) * rows.bytes();
            prefetch_rows(source, rows, first(member + AHEAD), bytes);
        }
        let length = members.length(member);
        let (part, later) = rest.split_at_mut(length * rows.bytes());
        copy_rows(source, rows, first(member), length, part);
        rest = later;
    }
}

/// Where each member ends; with the first member, also where it begins.
pub(super) fn boundaries(members: &Members, range: Range<usize>, target: &mut [u8]) {
    write_short(ends(members, &range).iter().copied(), target);
}

/// The same, in 64 bits.
pub(super) fn offsets(members: &Members, range: Range<usize>, target: &mut [u8]) {
    write(ends(members, &range).iter().map(|end| end.cast_signed() as i64), target);
}

fn ends<'a>(members: &'a Members, range: &Range<usize>) -> &'a [usize] {
    let first = if range.start == 0 { 0 } else { range.start + 1 };
    &members.ends[first..=range.end]
}

/// The number of each element in its sample; a sample that goes on from an earlier batch begins at 0 again.
pub(super) fn positions(members: &Members, range: Range<usize>, target: &mut [u8]) {
    let mut rest = target;
    for member in range {
        let length = members.length(member);
        let (part, later) = rest.split_at_mut(length * size_of::<i64>());
        write(0..length.cast_signed() as i64, part);
        rest = later;
    }
}

/// The number of each element's member.
pub(super) fn segments(members: &Members, range: Range<usize>, target: &mut [u8]) {
    let mut rest = target;
    for member in range {
        let (part, later) = rest.split_at_mut(members.length(member) * size_of::<i32>());
        write_short(std::iter::repeat(member), part);
        rest = later;
    }
}

/// Writes numbers below 2^31 one after the other.
fn write_short(numbers: impl Iterator<Item = usize>, target: &mut [u8]) {
    for (slot, number) in target.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *slot = i32::try_from(number).unwrap_or(i32::MAX).to_ne_bytes();
    }
}
