//! One look at the pages of a column: where they lie, and how long its lists are.
//!
//! Pages of columns without lists are passed over by their headers. Those of lists are decompressed, since the levels say
//! where lists begin; no value is looked at.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::column::page::PageReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::decode::{RowDecoder, WrongRows};
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
        let bytes = self.file.read(self.place, count).map_err(std::io::Error::other)?;
        buffer[..count].copy_from_slice(&bytes);
        self.place += count as u64;
        Ok(count)
    }
}

/// The pages of the columns of a row group, and the lengths of its lists.
pub(crate) struct ScannedGroup {
    pub(crate) pages: Vec<ColumnPages>,
    pub(crate) lengths: Vec<u32>,
}

/// Finds the pages of a column in a row group; the length of each list is added to `lengths` if the column has lists.
///
/// # Errors
/// The pages are damaged, or hold another number of rows than the row group; a list, or an element where none may be null,
/// is null.
pub(crate) fn scan_column(
    file: &Arc<DataFile>,
    group: &RowGroupMetaData,
    leaf: usize,
    allows_null: bool,
    lengths: &mut Vec<u32>,
) -> Result<ColumnPages> {
    let column = group.column(leaf);
    let rows = u32::try_from(group.num_rows());
    let rows = rows.map_err(|_| FormatError::data(file.path(), "a row group has 2^32 rows or more"))?;
    let noting = Arc::new(Noting { file: file.clone(), header: AtomicU64::new(0) });
    let wrong = |error: &ParquetError| damaged(file, error);
    let end = column.byte_range().0.saturating_add(column.byte_range().1);
    let mut reader = SerializedPageReader::new(noting.clone(), column, rows as usize, None)
        .map_err(|error| wrong(&error))?;
    let descriptor = column.column_descr();
    let is_list = descriptor.max_rep_level() > 0;
    let mut decoder = RowDecoder::new(descriptor, None, allows_null.then_some(&[][..]));
    let (mut found, mut first_row) = (ColumnPages::default(), 0_u32);
    let mut starts = Vec::new();
    while let Some(header) = reader.peek_next_page().map_err(|error| wrong(&error))? {
        let start = noting.header.load(Ordering::Relaxed);
        starts.push(start);
        if header.is_dict {
            found.dictionary = Some((start, 0));
            reader.skip_next_page().map_err(|error| wrong(&error))?;
            continue;
        }
        let before = first_row;
        let is_within_row = if is_list {
            let (rows, elements) = (decoder.rows().starts.len(), decoder.rows().elements);
            let page = reader.get_next_page().map_err(|error| wrong(&error))?;
            if let Some(page) = page {
                decoder.add(&page).map_err(|error| describe_wrong(file, error))?;
            }
            let decoded = decoder.rows();
            first_row = u32::try_from(decoded.starts.len()).unwrap_or(u32::MAX);
            decoded.starts.get(rows).is_none_or(|&first| first != elements) && decoded.elements > elements
        } else {
            let levels = u32::try_from(header.num_levels.unwrap_or(0)).unwrap_or(u32::MAX);
            first_row = first_row.saturating_add(levels);
            reader.skip_next_page().map_err(|error| wrong(&error))?;
            false
        };
        found.pages.push(PagePlace { start, bytes: 0, first_row: before, is_within_row });
    }
    if first_row != rows {
        let reason = format!("its pages hold {first_row} rows of a row group of {rows}");
        return Err(FormatError::data(file.path(), reason));
    }
    add_sizes(file, &mut found, &starts, end)?;
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
fn describe_wrong(file: &DataFile, wrong: WrongRows) -> FormatError {
    match wrong {
        WrongRows::Null(row) => FormatError::data(
            file.path(),
            format!(
                "row {row} of a row group is null, or has an element that is; expected a value, or nulls= with a value for it"
            ),
        ),
        WrongRows::Damaged(reason) => FormatError::data(file.path(), format!("a page is damaged: {reason}")),
        WrongRows::Encoding(encoding) => FormatError::new(
            crate::error::FormatErrorKind::Unsupported,
            file.path(),
            format!("levels are encoded as {encoding}, which is not read here"),
        ),
    }
}
