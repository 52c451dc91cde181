//! One look at the pages of a column: where they lie, and how long its lists are.
//!
//! Pages of columns without lists are passed over by their headers. Of the pages of lists the front is read and
//! decompressed, as far as the levels reach, which say where lists begin; no value is looked at.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::decode::{RowDecoder, WrongRows, front_of};
use super::decompress::{Decompressor, WrongBytes};
use super::fields::Null;
use super::header::{PageHeader, PageKind, WrongHeader};
use super::pages::{ColumnPages, PageBytes, PageMemory, PagePlace, damaged, decompress};
use crate::error::{FormatError, Result};
use crate::file::DataFile;

/// The bytes that are read for a header at first, and at most: statistics in it may hold long texts.
const HEADER: usize = 512;
const LONGEST_HEADER: usize = 16 << 20;

/// A page in its file.
struct FoundPage {
    /// The first byte of its header.
    start: u64,
    header: PageHeader,
}

/// The nulls that a column may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AllowedNulls {
    pub(crate) elements: bool,
    pub(crate) lists: bool,
}

impl AllowedNulls {
    /// The nulls in whose place something stands.
    pub(crate) fn of(null: &Option<Null>) -> Self {
        match null {
            None => Self::default(),
            Some(Null::EmptyList) => Self { elements: false, lists: true },
            Some(_) => Self { elements: true, lists: false },
        }
    }
}

/// The pages of the columns of a row group, and the lengths of its lists.
pub(crate) struct ScannedGroup {
    pub(crate) pages: Vec<ColumnPages>,
    pub(crate) lengths: Vec<u32>,
}

/// Finds the pages of a column in a row group; the length of each list is added to `lengths` if the column has lists.
///
/// Lists that all have `extent` elements are passed over by their headers, too, as long as the elements of each page make whole rows.
///
/// # Errors
/// The pages are damaged, or hold another number of rows than the row group; a list, or an element where none may be null,
/// is null.
pub(crate) fn scan_column(
    file: &Arc<DataFile>,
    group: &RowGroupMetaData,
    leaf: usize,
    extent: Option<usize>,
    allowed: AllowedNulls,
    first_row: i64,
    lengths: &mut Vec<u32>,
) -> Result<ColumnPages> {
    if let Some(extent) = extent
        && let Some(pages) = scan_headers(file, group, leaf, extent)?
    {
        return Ok(pages);
    }
    scan_levels(file, group, leaf, (allowed, first_row), lengths)
}

/// Finds the pages of a column of which each row has `extent` elements, by headers alone; `None` if a page does not have
/// whole rows.
fn scan_headers(
    file: &Arc<DataFile>,
    group: &RowGroupMetaData,
    leaf: usize,
    extent: usize,
) -> Result<Option<ColumnPages>> {
    let (mut found, mut elements) = (ColumnPages::default(), 0_u64);
    let is_whole = |elements: u64| elements.checked_rem(extent as u64) == Some(0);
    let mut starts = Vec::new();
    let rows = walk_pages(file, group, leaf, |_, FoundPage { start, header }| {
        starts.push(start);
        let Some(count) = header.values() else {
            found.dictionary = Some((start, 0));
            return Ok(());
        };
        let first_row =
            elements.checked_div(extent as u64).and_then(|row| u32::try_from(row).ok()).unwrap_or(u32::MAX);
        found.pages.push(PagePlace { start, bytes: 0, first_row, is_within_row: !is_whole(elements) });
        elements = elements.saturating_add(count as u64);
        Ok(())
    })?;
    if found.pages.iter().any(|page| page.is_within_row)
        || Some(elements) != u64::from(rows).checked_mul(extent as u64)
    {
        return Ok(None);
    }
    add_sizes(file, &mut found, &starts, column_end(group, leaf))?;
    Ok(Some(found))
}

/// The end of a column in its file.
fn column_end(group: &RowGroupMetaData, leaf: usize) -> u64 {
    let (start, length) = group.column(leaf).byte_range();
    start.saturating_add(length)
}

/// Calls `each` with memory and each page of values or of a dictionary. Returns the number of rows of the row group.
fn walk_pages(
    file: &DataFile,
    group: &RowGroupMetaData,
    leaf: usize,
    mut each: impl FnMut(&mut PageMemory, FoundPage) -> Result<()>,
) -> Result<u32> {
    let rows = u32::try_from(group.num_rows());
    let rows = rows.map_err(|_| FormatError::data(file.path(), "a row group has 2^32 rows or more"))?;
    let (mut start, end) = (group.column(leaf).byte_range().0, column_end(group, leaf));
    let mut memory = PageMemory::default();
    while start < end {
        let header = read_header(file, start, end, &mut memory.stored)?;
        let bytes = (header.length as u64).saturating_add(header.stored as u64);
        let next = start.saturating_add(bytes);
        if next > end {
            return Err(damaged(file, "it leaves its column"));
        }
        if header.kind != PageKind::Other {
            each(&mut memory, FoundPage { start, header })?;
        }
        start = next;
    }
    Ok(rows)
}

/// The header of the page that begins at `start`, in a column that ends at `end`; `bytes` is memory for it.
fn read_header(file: &DataFile, start: u64, end: u64, bytes: &mut Vec<u8>) -> Result<PageHeader> {
    let left = end.min(file.marks().0).saturating_sub(start);
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(LONGEST_HEADER);
    let mut count = HEADER.min(most);
    loop {
        bytes.resize(count, 0);
        file.read_into(start, bytes)?;
        match PageHeader::read(bytes) {
            Ok(header) => return Ok(header),
            Err(WrongHeader::Cut) if count < most => count = count.saturating_mul(8).min(most),
            Err(_) => return Err(damaged(file, "its header is no header")),
        }
    }
}

/// The bytes of a page up to the end of its levels, or of all of it.
fn read_levels<'a>(
    file: &DataFile,
    column: &ColumnChunkMetaData,
    FoundPage { start, header }: &FoundPage,
    memory: &'a mut PageMemory,
) -> Result<PageBytes<'a>> {
    let PageMemory { stored, page, front, decompressor } = memory;
    let first = start.saturating_add(header.length as u64);
    let read = |bytes: &mut Vec<u8>, count: usize| {
        let before = bytes.len();
        bytes.resize(count, 0);
        file.read_into(first + before as u64, &mut bytes[before..])
    };
    let leaves = || damaged(file, "levels leave their page");
    stored.clear();
    if let PageKind::DataV2 { repetition, definition, .. } = header.kind {
        let levels = repetition.saturating_add(definition);
        let levels = Some(levels).filter(|&levels| levels <= header.stored).ok_or_else(leaves)?;
        read(stored, levels)?;
        return Ok(PageBytes::Here(stored));
    }
    let descriptor = column.column_descr();
    let compression = column.compression();
    if compression == Compression::UNCOMPRESSED {
        let mut needed = front_of(descriptor, &[]);
        while stored.len() < needed {
            let needed_now = Some(needed).filter(|&needed| needed <= header.stored).ok_or_else(leaves)?;
            read(stored, needed_now)?;
            needed = front_of(descriptor, stored);
        }
        return Ok(PageBytes::Here(stored));
    }
    if Decompressor::knows(compression) {
        let read = decompressor.front(
            compression,
            header.stored,
            |bytes| front_of(descriptor, bytes),
            |bytes, count| read(bytes, count).map_err(Unread::Read),
            (stored, front),
        );
        return match read {
            Ok(()) => Ok(PageBytes::Here(front)),
            Err(Unread::Read(error)) => Err(error),
            Err(Unread::Wrong) => {
                Err(damaged(file, &format!("its front is not levels, compressed by {compression}")))
            }
        };
    }
    let whole = header.length.saturating_add(header.stored);
    file.require_within(*start, whole)?;
    stored.resize(whole, 0);
    file.read_into(*start, stored)?;
    decompress(file, column, header, stored, (page, decompressor))
}

/// A front of a page that is not there.
enum Unread {
    Read(FormatError),
    Wrong,
}

impl From<WrongBytes> for Unread {
    fn from(_: WrongBytes) -> Self {
        Self::Wrong
    }
}

/// Finds the pages of a column. Pages of lists are decompressed as far as their levels reach.
fn scan_levels(
    file: &Arc<DataFile>,
    group: &RowGroupMetaData,
    leaf: usize,
    (allowed, row_of_group): (AllowedNulls, i64),
    lengths: &mut Vec<u32>,
) -> Result<ColumnPages> {
    let descriptor = group.column(leaf).column_descr();
    let is_list = descriptor.max_rep_level() > 0;
    let mut decoder = RowDecoder::new(descriptor, None, allowed.elements.then_some(&[][..]))
        .with_empty_lists(allowed.lists);
    let (mut found, mut first_row) = (ColumnPages::default(), 0_u32);
    let (mut starts, mut wrong) = (Vec::new(), None);
    let column = group.column(leaf);
    let rows = walk_pages(file, group, leaf, |memory, page| {
        starts.push(page.start);
        let Some(count) = page.header.values() else {
            found.dictionary = Some((page.start, 0));
            return Ok(());
        };
        let before = first_row;
        let is_within_row = if is_list {
            let (rows, elements) = (decoder.rows().starts.len(), decoder.rows().elements);
            let levels = read_levels(file, column, &page, memory)?;
            if let Err(error) = decoder.add(page.header.kind, &levels) {
                wrong.get_or_insert(error);
            }
            let decoded = decoder.rows();
            first_row = u32::try_from(decoded.starts.len()).unwrap_or(u32::MAX);
            decoded.starts.get(rows).is_none_or(|&first| first != elements) && decoded.elements > elements
        } else {
            first_row = first_row.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            false
        };
        found.pages.push(PagePlace { start: page.start, bytes: 0, first_row: before, is_within_row });
        Ok(())
    })?;
    if let Some(wrong) = wrong {
        return Err(describe_wrong(file, wrong, row_of_group));
    }
    if first_row != rows {
        let reason = format!("its pages hold {first_row} rows of a row group of {rows}");
        return Err(FormatError::data(file.path(), reason));
    }
    add_sizes(file, &mut found, &starts, column_end(group, leaf))?;
    if is_list {
        let decoded = decoder.finish();
        let ends = decoded.starts.iter().skip(1).copied().chain([decoded.elements]);
        for (start, end) in decoded.starts.iter().zip(ends) {
            let length = u32::try_from(end - start);
            lengths.push(
                length.map_err(|_| FormatError::data(file.path(), "a list has 2^32 elements or more"))?,
            );
        }
    }
    Ok(found)
}

/// Adds the bytes of each page: it ends where the next one begins. `starts` are in the order of the file.
fn add_sizes(file: &DataFile, found: &mut ColumnPages, starts: &[u64], end: u64) -> Result<()> {
    let size_of = |start: u64| {
        let next = starts.get(starts.partition_point(|&other| other <= start)).copied().unwrap_or(end);
        u32::try_from(next.saturating_sub(start))
            .map_err(|_| FormatError::data(file.path(), "a page has 2^32 bytes or more"))
    };
    for page in &mut found.pages {
        page.bytes = size_of(page.start)?;
    }
    if let Some((start, _)) = found.dictionary {
        found.dictionary = Some((start, size_of(start)?));
    }
    Ok(())
}

/// The error for rows that cannot be read while pages are looked at.
fn describe_wrong(file: &DataFile, wrong: WrongRows, row_of_group: i64) -> FormatError {
    match wrong {
        WrongRows::Null(row) => {
            let row = row_of_group + i64::try_from(row).unwrap_or(0);
            let reason = format!(
                "row {row} is null, or has an element that is; expected a value, or nulls= with a value for elements, or [] for lists"
            );
            FormatError::data(file.path(), reason)
        }
        WrongRows::Damaged(reason) => FormatError::data(file.path(), format!("a page is damaged: {reason}")),
        WrongRows::Encoding(encoding) => FormatError::new(
            crate::error::FormatErrorKind::Unsupported,
            file.path(),
            format!("levels are encoded as {encoding}, which is not read here"),
        ),
    }
}
