//! `read_rows`: rows of arrays in maps of files, read from the files: the pages of the maps stay out of memory.
//!
//! Promises: a batch has the bytes that a copy from the map has. Rows that follow each other are read at once. A read
//! takes about as long as a copy of 4 KB. Of narrower rows, a block takes several from each piece that the system maps, so
//! fewer bytes than [`LEAST`] are copied from the map.

use super::RowSlots;
use super::copy::{copy_rows, copy_rows_of_chunk};
use crate::Result;
use crate::tensor::{ChunkedTensor, Place};

/// The least bytes that are read.
pub(super) const LEAST: usize = 256;

/// Copies `count` rows from row `first` on, one after the other, or reads them if their array has a file.
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if the file cannot be read.
#[inline]
pub(super) fn take_rows(array: &ChunkedTensor, first: usize, count: usize, target: &mut [u8]) -> Result<()> {
    match array.is_read() {
        true => read_rows(array, first, count, target),
        false => {
            copy_rows(array, first, count, target);
            Ok(())
        }
    }
}

/// Reads rows into batches, one after the other: `indices` are the rows.
///
/// # Errors
/// As [`take_rows`].
#[inline(never)]
pub(super) fn gather_rows(
    array: &ChunkedTensor,
    indices: &[u64],
    target: &mut [u8],
    slots: RowSlots,
) -> Result<()> {
    let bytes = array.row_bytes();
    for (batch, wanted) in target.chunks_mut(slots.stride).zip(indices.chunks(slots.batch)) {
        let mut rest = batch;
        for run in wanted.chunk_by(|row, next| row.checked_add(1) == Some(*next)) {
            let (part, later) = rest.split_at_mut(run.len() * bytes);
            read_rows(array, usize::try_from(run[0]).unwrap_or(usize::MAX), run.len(), part)?;
            rest = later;
        }
    }
    Ok(())
}

#[inline(never)]
fn read_rows(array: &ChunkedTensor, first: usize, count: usize, target: &mut [u8]) -> Result<()> {
    let (bytes, mut rest, mut read) = (array.row_bytes(), target, Ok(()));
    array.visit(first, count, |place, count| {
        let (part, later) = std::mem::take(&mut rest).split_at_mut(count * bytes);
        rest = later;
        if read.is_ok() {
            read = read_rows_of_chunk(place, count, part);
        }
    });
    read
}

/// Reads rows of one chunk; rows that have gaps between them are copied from the map.
fn read_rows_of_chunk(place: Place<'_>, count: usize, target: &mut [u8]) -> Result<()> {
    let Place { source, rows, row, file } = place;
    match file.filter(|_| rows.are_dense() && target.len() >= LEAST) {
        Some(file) => {
            let start = rows.start(row);
            // Rows that do not exist are no bytes of the array, though the file may go on.
            assert!(
                start.checked_add(target.len()).is_some_and(|end| end <= source.len()),
                "rows are in the array"
            );
            file.read(start, target)
        }
        None => {
            copy_rows_of_chunk(source, rows, row, count, target);
            Ok(())
        }
    }
}
