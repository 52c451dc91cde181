//! Runs of whole lines of a file.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{FormatError, Result};
use crate::file::DataFile;

/// The bytes of a chunk that are aimed at.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The longest line: memory for a longer one is not asked for.
const LONGEST_LINE: usize = 1 << 30;

/// Cuts a file into runs of whole lines.
pub(crate) fn cut_lines(file: &DataFile) -> Result<Vec<Range<u64>>> {
    let total = file.marks().0;
    let (mut runs, mut start) = (Vec::new(), 0);
    while start < total {
        let (mut end, mut step) = (start, CHUNK_BYTES);
        loop {
            let length = usize::try_from(total - end).unwrap_or(usize::MAX).min(step);
            let bytes = file.read(end, length)?;
            let after = end + length as u64;
            if after == total {
                end = total;
                break;
            }
            if let Some(place) = memchr::memrchr(b'\n', &bytes) {
                end += place as u64 + 1;
                break;
            }
            // A line that is longer than a chunk is read in ever longer steps.
            (end, step) = (after, step.saturating_mul(2));
            if end - start > LONGEST_LINE as u64 {
                let reason = format!("the line from byte {start} on has more than {LONGEST_LINE} bytes");
                return Err(FormatError::data(file.path(), reason));
            }
        }
        runs.push(start..end);
        start = end;
    }
    Ok(runs)
}

/// Reads a run of lines.
pub(crate) fn read_run(file: &DataFile, run: &Range<u64>) -> Result<Bytes> {
    let bytes = file.read(run.start, usize::try_from(run.end - run.start).unwrap_or(usize::MAX))?;
    // Some programs begin files with a mark of their encoding.
    let marked = run.start == 0 && bytes.starts_with(b"\xef\xbb\xbf");
    Ok(if marked { bytes.slice(3..) } else { bytes })
}

/// The lines of a run that are not blank.
pub(crate) fn lines_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = rest[..end].trim_ascii();
            rest = rest.get(end + 1..).unwrap_or_default();
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    })
}

/// The first byte of each line of a file that is not blank, and its bytes.
///
/// # Errors
/// The file cannot be read or was changed.
pub fn line_places(path: impl AsRef<Path>) -> Result<Vec<[u64; 2]>> {
    let file = DataFile::open(path.as_ref(), true)?;
    let mut places = Vec::new();
    for run in cut_lines(&file)? {
        let bytes = read_run(&file, &run)?;
        let start = run.end - bytes.len() as u64;
        for line in lines_of(&bytes) {
            let place = line.as_ptr().addr() - bytes.as_ptr().addr();
            places.push([start + place as u64, line.len() as u64]);
        }
    }
    Ok(places)
}
