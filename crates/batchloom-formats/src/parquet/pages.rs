//! The places of the pages of a column, and the reading of some of them into memory that is used again.

use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::PageReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::decode::{RowDecoder, WrongRows};
use super::decompress::Decompressor;
use super::header::{PageHeader, PageKind};
use crate::buffers::Buffer;
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

/// Pages are read together if they lie within these bytes. Reading rows of 1 KB took 0.95 of the time that one read for a
/// chunk took.
const READ_BYTES: u64 = 1 << 20;

/// Memory for pages, and a decompressor, which are used for read after read.
#[derive(Debug, Default)]
pub(crate) struct PageMemory {
    /// Pages as they are stored.
    pub(super) stored: Vec<u8>,
    /// A page once it is decompressed, and the front of one.
    pub(super) page: Buffer,
    pub(super) front: Vec<u8>,
    pub(super) decompressor: Decompressor,
}

impl PageMemory {
    /// Reads pages that lie one behind the other in the file, after their dictionary; returns their bytes.
    pub(crate) fn read(
        &mut self,
        file: &DataFile,
        dictionary: Option<(u64, u32)>,
        pages: &[PagePlace],
    ) -> Result<usize> {
        let start = pages.first().map_or(0, |page| page.start);
        let end = pages.last().map_or(start, |page| page.start + u64::from(page.bytes));
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let (place, before) = dictionary.map_or((start, 0), |(place, bytes)| (place, bytes as usize));
        let total = file.require_within(start, length).map(|()| before.saturating_add(length))?;
        file.require_within(place, before)?;
        // What a read overwrites is not cleared again.
        if self.stored.len() < total {
            self.stored.resize(total, 0);
        }
        let bytes = &mut self.stored[..total];
        if place.checked_add(before as u64) == Some(start) {
            file.read_into(place, bytes)?;
        } else {
            file.read_into(place, &mut bytes[..before])?;
            file.read_into(start, &mut bytes[before..])?;
        }
        Ok(total)
    }

    /// Adds the rows of pages that lie one behind the other in the file, after their dictionary, to `decoder`. About a
    /// megabyte is read at a time, so that a core's cache holds it until it is decompressed.
    pub(crate) fn add_rows(
        &mut self,
        file: &DataFile,
        column: &ColumnChunkMetaData,
        (mut dictionary, mut pages): (Option<(u64, u32)>, &[PagePlace]),
        decoder: &mut RowDecoder<'_>,
    ) -> std::result::Result<(), WrongPages> {
        while let Some(first) = pages.first() {
            let is_near = |page: &PagePlace| page.start + u64::from(page.bytes) - first.start <= READ_BYTES;
            let (near, others) = pages.split_at(pages.partition_point(is_near).max(1));
            let total = self.read(file, dictionary.take(), near)?;
            self.decode(file, column, total, decoder)?;
            pages = others;
        }
        Ok(())
    }

    /// Adds the rows of the pages among the first `total` stored bytes to `decoder`.
    fn decode(
        &mut self,
        file: &DataFile,
        column: &ColumnChunkMetaData,
        total: usize,
        decoder: &mut RowDecoder<'_>,
    ) -> std::result::Result<(), WrongPages> {
        let Self { stored, page, decompressor, .. } = self;
        let compression = column.compression();
        let mut rest = &stored[..total];
        while !rest.is_empty() {
            let header = PageHeader::read(rest).map_err(|_| damaged(file, "its header is no header"))?;
            let length = header.length.checked_add(header.stored);
            let whole = length.and_then(|length| rest.get(..length));
            let whole = whole.ok_or_else(|| damaged(file, "it leaves its column"))?;
            rest = &rest[whole.len()..];
            if header.kind == PageKind::Other {
                continue;
            }
            let (kind, bytes, stored) = (header.kind, header.bytes, &whole[header.length..]);
            require_checksum(file, &header, stored)?;
            let fits = Decompressor::knows(compression) && Decompressor::fits(compression, stored, bytes);
            match decoder.levels_before(kind, bytes).filter(|_| fits) {
                Some(levels) => decoder.add_in_place(kind, (levels, bytes), page, |target| {
                    let done = decompressor.decompress_into(compression, stored, target);
                    done.map_err(|_| WrongPages::from(not_compressed(file, bytes, compression)))
                })?,
                None => {
                    let bytes = decompress(file, column, &header, whole, (page, decompressor))?;
                    decoder.add(kind, &bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Pages whose rows cannot be taken.
#[derive(Debug)]
pub(super) enum WrongPages {
    /// They cannot be read.
    Read(FormatError),
    /// Their rows are refused.
    Rows(WrongRows),
}

impl From<FormatError> for WrongPages {
    fn from(error: FormatError) -> Self {
        Self::Read(error)
    }
}

impl From<WrongRows> for WrongPages {
    fn from(wrong: WrongRows) -> Self {
        Self::Rows(wrong)
    }
}

/// Refuses stored bytes of a page that have another checksum than its header says.
pub(super) fn require_checksum(file: &DataFile, header: &PageHeader, stored: &[u8]) -> Result<()> {
    match header.checksum {
        Some(expected) if crc32fast::hash(stored) != expected => {
            Err(damaged(file, "its bytes have another checksum than its header says"))
        }
        _ => Ok(()),
    }
}

/// The bytes of a page, decompressed into `page` unless they are stored as they are; `whole` is the page with its header.
pub(super) fn decompress<'a>(
    file: &DataFile,
    column: &ColumnChunkMetaData,
    header: &PageHeader,
    whole: &'a [u8],
    (page, decompressor): (&'a mut Buffer, &mut Decompressor),
) -> Result<PageBytes<'a>> {
    let compression = column.compression();
    let stored = &whole[header.length..];
    // Levels of the second version lie before what is compressed.
    let (levels, is_compressed) = match header.kind {
        PageKind::DataV2 { repetition, definition, is_compressed, .. } => {
            (repetition.saturating_add(definition), is_compressed)
        }
        _ => (0, true),
    };
    if compression == Compression::UNCOMPRESSED || !is_compressed {
        return Ok(PageBytes::Here(stored));
    }
    if !Decompressor::knows(compression) {
        let read =
            open_pages(column, Bytes::copy_from_slice(whole)).and_then(|mut reader| reader.get_next_page());
        let read = read.map_err(|error| damaged(file, &error.to_string()))?;
        return read
            .map(|page| PageBytes::Read(page.buffer().clone()))
            .ok_or_else(|| damaged(file, "it is no page"));
    }
    let parts = stored.split_at_checked(levels).zip(header.bytes.checked_sub(levels));
    let ((levels, values), bytes) = parts.ok_or_else(|| damaged(file, "levels leave their page"))?;
    // A page of nulls has no values, not even compressed ones.
    if bytes == 0 {
        return Ok(PageBytes::Here(levels));
    }
    let decompressed = decompressor.decompress(compression, (levels, values), bytes, page);
    decompressed.map_err(|_| not_compressed(file, bytes, compression))?;
    Ok(PageBytes::Here(page))
}

/// The bytes of a page.
pub(super) enum PageBytes<'a> {
    Here(&'a [u8]),
    /// Bytes that the reader of the format's own crate decompressed.
    Read(Bytes),
}

impl Deref for PageBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(bytes) => bytes,
            Self::Read(bytes) => bytes,
        }
    }
}

/// A reader of the pages in some bytes by the format's own crate, as if the file began there.
pub(crate) fn open_pages(
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

/// The error for a page that does not become the bytes that its header says.
fn not_compressed(file: &DataFile, bytes: usize, compression: Compression) -> FormatError {
    damaged(file, &format!("it is not {bytes} bytes, compressed by {compression}"))
}

/// The error for a page that cannot be read.
pub(crate) fn damaged(file: &DataFile, reason: &str) -> FormatError {
    FormatError::data(file.path(), format!("a page is damaged: {reason}"))
}

/// Memory for reads of pages that lies unused: as much as threads read at a time.
#[derive(Debug, Default)]
pub(crate) struct PageMemories(Mutex<Vec<PageMemory>>);

impl PageMemories {
    pub(crate) fn take(&self) -> PageMemory {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, memory: PageMemory) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}
