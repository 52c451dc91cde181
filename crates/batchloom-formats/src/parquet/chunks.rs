//! The cut of row groups into chunks: runs of rows that are cheap to read alone.

use std::ops::Range;

use super::index::GroupIndex;

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
/// A cut lies where a page begins, of the column with most pages. No chunk has fewer rows than the pages of other columns
/// do on average, as each page is decompressed for every chunk that it holds rows of.
///
/// `bytes` is the bytes of some rows, counted from the first of the group.
pub(crate) fn cut_group(
    place: usize,
    group: &GroupIndex,
    bytes: impl Fn(Range<u32>) -> u64,
) -> Vec<ChunkRows> {
    let chunk = |rows| ChunkRows { group: place, rows };
    let whole = 0..group.rows;
    if whole.is_empty() {
        return Vec::new();
    }
    let most_pages = group.pages.iter().max_by_key(|column| column.pages.len());
    let fewest = group.pages.iter().map(|column| column.pages.len()).min().unwrap_or(1).max(1);
    let least_rows = group.rows / u32::try_from(fewest).unwrap_or(u32::MAX);
    let cuts = most_pages.into_iter().flat_map(|column| &column.pages);
    let cuts = cuts.filter(|page| !page.is_within_row).map(|page| page.first_row);
    let (mut chunks, mut start) = (Vec::new(), 0);
    for cut in cuts.filter(|&cut| cut > 0 && cut < group.rows) {
        let is_large = cut > start && bytes(start..cut) >= CHUNK_BYTES && cut - start >= least_rows;
        let rest = cut..group.rows;
        if is_large && 2 * bytes(rest.clone()) >= CHUNK_BYTES && 2 * (rest.end - rest.start) >= least_rows {
            chunks.push(chunk(start..cut));
            start = cut;
        }
    }
    chunks.push(chunk(start..group.rows));
    chunks
}
