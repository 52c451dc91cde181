//! `copy`: copies rows that lie one after the other, of any layout.

use crate::tensor::buffer::copy_past_caches;
use crate::tensor::{ChunkedTensor, Place, Rows, step_from};

/// The number of bytes of a sample from which a batch of any usual number of them fits no cache.
const HUGE: usize = 1 << 20;

/// Copies `count` rows from row `first` on, one after the other.
#[inline]
pub(super) fn copy_rows(array: &ChunkedTensor, first: usize, count: usize, target: &mut [u8]) {
    match array.only_chunk() {
        Some((source, rows)) => copy_rows_of_chunk(source, rows, first, count, target),
        None => copy_rows_of_chunks(array, first, count, target),
    }
}

/// Copies rows that may lie in several chunks.
#[inline(never)]
fn copy_rows_of_chunks(array: &ChunkedTensor, first: usize, count: usize, target: &mut [u8]) {
    let (bytes, mut rest) = (array.row_bytes(), target);
    array.visit(first, count, |Place { source, rows, row, .. }, count| {
        let (part, later) = std::mem::take(&mut rest).split_at_mut(count * bytes);
        copy_rows_of_chunk(source, rows, row, count, part);
        rest = later;
    });
}

/// Copies rows of one chunk.
pub(super) fn copy_rows_of_chunk(source: &[u8], rows: &Rows, first: usize, count: usize, target: &mut [u8]) {
    let bytes = rows.bytes();
    if bytes == 0 || count == 0 {
        return;
    }
    if rows.are_dense() {
        let start = rows.offset + first * bytes;
        let source = &source[start..start + count * bytes];
        return match source.len() < HUGE {
            true => target.copy_from_slice(source),
            false => copy_past_caches(source, target),
        };
    }
    for (row, target) in (first..first + count).zip(target.chunks_exact_mut(bytes)) {
        copy_runs(source, rows.start(row), &rows.steps, rows.contiguous, target);
    }
}

/// Copies the runs of one row, outermost dimension first.
pub(super) fn copy_runs(
    source: &[u8],
    start: usize,
    steps: &[(usize, isize)],
    run: usize,
    target: &mut [u8],
) {
    let Some(((count, stride), inner)) = steps.split_first() else {
        return target.copy_from_slice(&source[start..start + run]);
    };
    let part = target.len() / count;
    for (index, target) in target.chunks_exact_mut(part).enumerate() {
        copy_runs(source, step_from(start, *stride, index), inner, run, target);
    }
}
