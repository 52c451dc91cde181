//! `stack`: gathers rows, one after the other.
//!
//! Narrow rows are copied by value, in sizes that the compiler knows; wide ones by a plain memory copy.

use std::ops::Range;

use super::copy::copy_runs;
use super::prefetch::{Prefetch, prefetch_row};
use super::read_rows::{LEAST, gather_rows};
use super::{Form, Members, RowSlots, Taken};
use crate::tensor::error::TensorCause;
use crate::tensor::{ChunkedTensor, DenseChunks, Place, Rows};
use crate::{DType, Result};

/// The row of each sample: `[samples, ..row]`.
#[derive(Debug, Clone)]
pub(crate) struct Stack(ChunkedTensor);

impl Stack {
    /// Stacks rows of `array`, the field `name`.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is a scalar.
    pub(crate) fn new(name: &str, array: &ChunkedTensor) -> Result<Self> {
        match array.shape() {
            [] => Err(TensorCause::ScalarField { field: name.to_owned() }.into()),
            [_, ..] => Ok(Self(array.clone())),
        }
    }
}

impl Form for Stack {
    fn dtype(&self) -> DType {
        self.0.dtype()
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], &self.0.shape()[1..]].concat()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = RowSlots { batch: range.len(), stride: target.len(), fillers: 0, loss_denominator: 0 };
        self.gather(members.take(range), target, slots)
    }

    fn gather(&self, taken: Taken<'_>, target: &mut [u8], slots: RowSlots) -> Result<()> {
        stack(&self.0, taken.rows, target, slots)
    }
}

/// Copies the rows `indices` of `array` to `target`, batch by batch.
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if the rows are read from a file, and it cannot be read.
///
/// # Panics
/// Panics if an index is not a row, or `target` does not hold the batches.
pub(super) fn stack(
    array: &ChunkedTensor,
    indices: &[u64],
    target: &mut [u8],
    slots: RowSlots,
) -> Result<()> {
    let bytes = array.row_bytes();
    if bytes == 0 || indices.is_empty() {
        return Ok(());
    }
    if array.is_read() && bytes >= LEAST {
        return gather_rows(array, indices, target, slots);
    }
    let Some((source, rows)) = array.only_chunk() else {
        stack_chunks(array, indices, target, slots);
        return Ok(());
    };
    if rows.are_dense() {
        let source = &source[rows.offset..];
        match bytes {
            1 => narrow::<1>(source, indices, target, slots),
            2 => narrow::<2>(source, indices, target, slots),
            4 => narrow::<4>(source, indices, target, slots),
            8 => narrow::<8>(source, indices, target, slots),
            12 => narrow::<12>(source, indices, target, slots),
            16 => narrow::<16>(source, indices, target, slots),
            24 => narrow::<24>(source, indices, target, slots),
            32 => narrow::<32>(source, indices, target, slots),
            48 => narrow::<48>(source, indices, target, slots),
            64 => narrow::<64>(source, indices, target, slots),
            128 => narrow::<128>(source, indices, target, slots),
            _ => copy_long_rows(source, bytes, indices, target, slots),
        }
    } else {
        copy_strided_rows(source, rows, indices, target, slots);
    }
    Ok(())
}

/// Copies rows of `N` bytes that lie one after the other.
fn narrow<const N: usize>(source: &[u8], indices: &[u64], target: &mut [u8], slots: RowSlots) {
    let rows = source.as_chunks::<N>().0;
    for index in &indices[..Prefetch::NARROW_AHEAD.min(indices.len())] {
        prefetch_row(source, row_number(*index) * N, N, N);
    }
    for (number, batch) in target.chunks_mut(slots.stride).enumerate() {
        let start = number * slots.batch;
        let end = (start + slots.batch).min(indices.len());
        let wanted = &indices[start..end];
        // These are the rows to prefetch meanwhile: as many, some places on; fewer at the very end.
        let ahead = &indices[(start + Prefetch::NARROW_AHEAD).min(indices.len())
            ..(end + Prefetch::NARROW_AHEAD).min(indices.len())];
        let (early, late) = batch.as_chunks_mut::<N>().0[..wanted.len()].split_at_mut(ahead.len());
        let (first, last) = wanted.split_at(ahead.len());
        for ((row, index), next) in early.iter_mut().zip(first).zip(ahead) {
            prefetch_row(source, row_number(*next) * N, N, N);
            *row = rows[row_number(*index)];
        }
        for (row, index) in late.iter_mut().zip(last) {
            *row = rows[row_number(*index)];
        }
    }
}

/// Copies rows of any length that lie one after the other.
fn copy_long_rows(source: &[u8], bytes: usize, indices: &[u64], target: &mut [u8], slots: RowSlots) {
    let prefetch = Prefetch::of_rows(bytes);
    for index in &indices[..prefetch.ahead.min(indices.len())] {
        prefetch_row(source, row_number(*index) * bytes, bytes, prefetch.bytes);
    }
    let mut ahead = indices.iter().skip(prefetch.ahead);
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        for (row, index) in batch.chunks_exact_mut(bytes).zip(wanted) {
            if let Some(next) = ahead.next() {
                prefetch_row(source, row_number(*next) * bytes, bytes, prefetch.bytes);
            }
            let start = row_number(*index) * bytes;
            row.copy_from_slice(&source[start..start + bytes]);
        }
    }
}

/// Copies rows of several chunks.
fn stack_chunks(array: &ChunkedTensor, indices: &[u64], target: &mut [u8], slots: RowSlots) {
    let Some(chunks) = array.dense_chunks() else {
        return stack_strided_chunks(array, indices, target, slots);
    };
    match array.row_bytes() {
        1 => gather_chunks::<1>(chunks, 1, indices, target, slots),
        2 => gather_chunks::<2>(chunks, 2, indices, target, slots),
        4 => gather_chunks::<4>(chunks, 4, indices, target, slots),
        8 => gather_chunks::<8>(chunks, 8, indices, target, slots),
        16 => gather_chunks::<16>(chunks, 16, indices, target, slots),
        bytes => gather_chunks::<0>(chunks, bytes, indices, target, slots),
    }
}

/// The number of rows that are looked up at most before they are copied: a power of two above each prefetch distance.
const FOUND: usize = 32;

/// Copies rows of `bytes` bytes that lie one after the other in each chunk: of `N` bytes, if `N` is not 0. Each row is
/// looked up some rows ahead, and asked for then.
fn gather_chunks<const N: usize>(
    chunks: DenseChunks<'_>,
    bytes: usize,
    indices: &[u64],
    target: &mut [u8],
    slots: RowSlots,
) {
    let prefetch = Prefetch::of_rows(bytes);
    let ahead = if N > 0 { Prefetch::NARROW_AHEAD } else { prefetch.ahead };
    let find = |index: u64| {
        let (source, start) = chunks.find(row_number(index));
        prefetch_row(source, start, bytes, prefetch.bytes);
        (source, start)
    };
    let mut found: [(&[u8], usize); FOUND] = [(&[], 0); FOUND];
    for (place, &index) in found.iter_mut().zip(&indices[..ahead.min(indices.len())]) {
        *place = find(index);
    }
    let mut number = 0;
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        for row in batch.chunks_exact_mut(bytes).take(wanted.len()) {
            if let Some(&next) = indices.get(number + ahead) {
                found[(number + ahead) % FOUND] = find(next);
            }
            let (source, start) = found[number % FOUND];
            let source = &source[start..start + bytes];
            match (row.first_chunk_mut::<N>(), source.first_chunk::<N>()) {
                (Some(row), Some(source)) if N > 0 => *row = *source,
                _ => row.copy_from_slice(source),
            }
            number += 1;
        }
    }
}

/// Copies rows of several chunks. Some chunks have gaps between their rows.
fn stack_strided_chunks(array: &ChunkedTensor, indices: &[u64], target: &mut [u8], slots: RowSlots) {
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        for (row, index) in batch.chunks_exact_mut(array.row_bytes()).zip(wanted) {
            let Place { source, rows, row: number, .. } = array.find(row_number(*index));
            copy_runs(source, rows.start(number), &rows.steps, rows.contiguous, row);
        }
    }
}

/// Copies rows of any layout, run by run.
fn copy_strided_rows(source: &[u8], rows: &Rows, indices: &[u64], target: &mut [u8], slots: RowSlots) {
    let bytes = rows.bytes();
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        for (row, index) in batch.chunks_exact_mut(bytes).zip(wanted) {
            let start = rows.start(row_number(*index));
            copy_runs(source, start, &rows.steps, rows.contiguous, row);
        }
    }
}

/// An index as a number in memory. If a plan has more samples than memory has rows, a bounds check fails.
#[inline(always)]
fn row_number(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
