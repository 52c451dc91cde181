//! The cut of row groups into chunks: runs of rows that are cheap to read alone.

use std::ops::Range;

use super::index::GroupIndex;
use super::pages::ColumnPages;

/// The bytes of a chunk, once it is read, that are aimed at.
pub(crate) const CHUNK_BYTES: u64 = 4 << 20;

/// The rows of a chunk, in a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkRows {
    /// The place of the row group among those of the index.
    pub(crate) group: usize,
    pub(crate) rows: Range<u32>,
}

/// Cuts a row group at pages, into chunks of about [`CHUNK_BYTES`].
///
/// A cut lies where a page begins, of the column with most pages. Pages of other columns hold rows of two chunks then, and
/// are decompressed for both: no chunk is smaller than one page of each of them.
///
/// `bytes` is the bytes of some rows, counted from the first of the group.
pub(crate) fn cut_group(
    place: usize,
    group: &GroupIndex,
    bytes: impl Fn(Range<u32>) -> u64,
) -> Vec<ChunkRows> {
    let chunk = |rows| ChunkRows { group: place, rows };
    if group.rows == 0 {
        return Vec::new();
    }
    let leading = (0..group.pages.len()).max_by_key(|&column| group.pages[column].pages.len());
    let others = group.pages.iter().enumerate().filter(|&(column, _)| Some(column) != leading);
    let least = others.map(|(_, column)| mean_page(column)).sum::<u64>().max(CHUNK_BYTES);
    let cuts = leading.into_iter().flat_map(|column| &group.pages[column].pages);
    let cuts = cuts.filter(|page| !page.is_within_row).map(|page| page.first_row);
    let (mut chunks, mut start) = (Vec::new(), 0);
    for cut in cuts.filter(|&cut| cut > 0 && cut < group.rows) {
        let is_large = cut > start && bytes(start..cut) >= least;
        if is_large && 2 * bytes(cut..group.rows) >= least {
            chunks.push(chunk(start..cut));
            start = cut;
        }
    }
    chunks.push(chunk(start..group.rows));
    chunks
}

/// The mean bytes of a page.
fn mean_page(column: &ColumnPages) -> u64 {
    let bytes: u64 = column.pages.iter().map(|page| u64::from(page.bytes)).sum();
    bytes / column.pages.len().max(1) as u64
}
