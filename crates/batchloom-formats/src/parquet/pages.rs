//! The places of the pages of a column, and a reader of some of them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use crate::buffers::Buffers;
use crate::error::{FormatError, Result};
use crate::file::DataFile;

/// A page of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagePlace {
    /// The first byte in the file, of its header.
    pub(crate) start: u64,
    /// The bytes, with the header.
    pub(crate) bytes: u32,
    /// The number of rows of the row group that begin before it.
    pub(crate) first_row: u32,
    /// True if it begins within a row.
    pub(crate) is_within_row: bool,
}

/// The pages of a column in a row group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ColumnPages {
    /// The first byte and the bytes of the page that lists values, if values are numbers in a dictionary.
    pub(crate) dictionary: Option<(u64, u32)>,
    pub(crate) pages: Vec<PagePlace>,
}

impl ColumnPages {
    /// The pages that hold some rows, which are at least one.
    pub(crate) fn holding(&self, rows: &Range<u32>) -> &[PagePlace] {
        let first = self.pages.partition_point(|page| page.first_row <= rows.start).saturating_sub(1);
        let is_needed =
            |page: &&PagePlace| page.first_row < rows.end || page.first_row == rows.end && page.is_within_row;
        let count = self.pages[first..].iter().take_while(is_needed).count();
        &self.pages[first..first + count]
    }
}

/// A reader of pages that lie one behind the other in the file, after their dictionary.
pub(crate) fn read_pages(
    file: &DataFile,
    column: &ColumnChunkMetaData,
    dictionary: Option<(u64, u32)>,
    pages: &[PagePlace],
    buffers: &Buffers,
) -> Result<SerializedPageReader<Bytes>> {
    let start = pages.first().map_or(0, |page| page.start);
    let end = pages.last().map_or(start, |page| page.start + u64::from(page.bytes));
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let (place, before) = dictionary.map_or((start, 0), |(place, bytes)| (place, bytes as usize));
    let total = file.require_within(start, length).map(|()| before.saturating_add(length))?;
    let mut bytes = buffers.take(total);
    bytes.resize(total, 0);
    if place.checked_add(before as u64) == Some(start) {
        file.read_into(place, &mut bytes)?;
    } else {
        file.read_into(place, &mut bytes[..before])?;
        file.read_into(start, &mut bytes[before..])?;
    }
    open_pages(column, buffers.share(bytes)).map_err(|error| damaged(file, &error))
}

/// A reader of the pages in some bytes, as if the file began there.
fn open_pages(
    column: &ColumnChunkMetaData,
    bytes: Bytes,
) -> std::result::Result<SerializedPageReader<Bytes>, ParquetError> {
    let length = i64::try_from(bytes.len())?;
    let here = column
        .clone()
        .into_builder()
        .clear_statistics()
        .set_dictionary_page_offset(None)
        .set_data_page_offset(0)
        .set_total_compressed_size(length)
        .build()?;
    SerializedPageReader::new(Arc::new(bytes), &here, 0, None)
}

/// The error for pages that the reader of the format refuses.
pub(crate) fn damaged(file: &DataFile, error: &ParquetError) -> FormatError {
    FormatError::data(file.path(), format!("a page is damaged: {error}"))
}
