//! One look at the pages of a column: where they lie, and how long its lists are.
//!
//! Pages of columns without lists are passed over by their headers. Those of lists are decompressed, since the levels say
//! where lists begin; no value is looked at.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::column::page::{PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::decode::{RowDecoder, WrongRows};
use super::fields::Null;
use super::pages::{ColumnPages, PagePlace, damaged};
use crate::error::{FormatError, Result};
use crate::file::DataFile;

/// The bytes that are read for a header.
const HEADER: usize = 512;

/// A file as the reader of pages sees it. It notes where the last header began and the last page ended.
struct Noting {
    file: Arc<DataFile>,
    header: AtomicU64,
}

impl Length for Noting {
    fn len(&self) -> u64 {
        self.file.marks().0
    }
}

impl ChunkReader for Noting {
    type T = BufReader<ReadFrom>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        self.header.store(start, Ordering::Relaxed);
        Ok(BufReader::with_capacity(HEADER, ReadFrom { file: self.file.clone(), place: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        self.file.read(start, length).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// The bytes of a file from a place on.
struct ReadFrom {
    file: Arc<DataFile>,
    place: u64,
}

impl Read for ReadFrom {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.file.marks().0.saturating_sub(self.place);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if left == 0 {
            // A header that tells of more than there is would be passed over byte by byte, without an end.
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = self.file.read(self.place, count).map_err(std::io::Error::other)?;
        buffer[..count].copy_from_slice(&bytes);
        self.place += count as u64;
        Ok(count)
    }
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
/// Lists that all have `extent` elements are not decompressed either, as long as the elements of each page make whole rows.
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
    let rows = walk_pages(file, group, leaf, |reader, start, header| {
        starts.push(start);
        reader.skip_next_page()?;
        if header.is_dict {
            found.dictionary = Some((start, 0));
            return Ok(());
        }
        let first_row =
            elements.checked_div(extent as u64).and_then(|row| u32::try_from(row).ok()).unwrap_or(u32::MAX);
        found.pages.push(PagePlace { start, bytes: 0, first_row, is_within_row: !is_whole(elements) });
        elements += header.num_levels.unwrap_or(0) as u64;
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

/// Calls `each` with the reader of pages before every page, the first byte of its header, and what its header says.
/// Returns the number of rows of the row group.
fn walk_pages(
    file: &Arc<DataFile>,
    group: &RowGroupMetaData,
    leaf: usize,
    mut each: impl FnMut(
        &mut SerializedPageReader<Noting>,
        u64,
        PageMetadata,
    ) -> std::result::Result<(), ParquetError>,
) -> Result<u32> {
    let rows = u32::try_from(group.num_rows());
    let rows = rows.map_err(|_| FormatError::data(file.path(), "a row group has 2^32 rows or more"))?;
    let noting = Arc::new(Noting { file: file.clone(), header: AtomicU64::new(0) });
    let mut walk = || {
        let mut reader = SerializedPageReader::new(noting.clone(), group.column(leaf), rows as usize, None)?;
        while let Some(header) = reader.peek_next_page()? {
            each(&mut reader, noting.header.load(Ordering::Relaxed), header)?;
        }
        Ok(())
    };
    walk().map_err(|error: ParquetError| damaged(file, &error))?;
    Ok(rows)
}

/// Finds the pages of a column; those of lists are decompressed for their levels.
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
    let rows = walk_pages(file, group, leaf, |reader, start, header| {
        starts.push(start);
        if header.is_dict || !is_list {
            reader.skip_next_page()?;
        }
        if header.is_dict {
            found.dictionary = Some((start, 0));
            return Ok(());
        }
        let before = first_row;
        let is_within_row = if is_list {
            let (rows, elements) = (decoder.rows().starts.len(), decoder.rows().elements);
            if let Some(page) = reader.get_next_page()?
                && let Err(error) = decoder.add(&page)
            {
                wrong.get_or_insert(error);
            }
            let decoded = decoder.rows();
            first_row = u32::try_from(decoded.starts.len()).unwrap_or(u32::MAX);
            decoded.starts.get(rows).is_none_or(|&first| first != elements) && decoded.elements > elements
        } else {
            let levels = u32::try_from(header.num_levels.unwrap_or(0)).unwrap_or(u32::MAX);
            first_row = first_row.saturating_add(levels);
            false
        };
        found.pages.push(PagePlace { start, bytes: 0, first_row: before, is_within_row });
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
