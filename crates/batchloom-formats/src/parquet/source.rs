//! `ParquetSource`: runs of pages as chunks of samples.
//!
//! Promises: a chunk is read about a megabyte at a time, column by column, and its fields have the rows
//! that the index says, or the chunk is an error that names file, column and row.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use batchloom::dataset::ChunkField;
use batchloom::order::Chunks;
use batchloom::{DType, Tensor};
use bytes::Bytes;
use parquet::file::metadata::RowGroupMetaData;

use super::chunks::{ChunkRows, cut_group};
use super::columns::{ColumnInfo, ColumnLayout};
use super::decode::{DecodedRows, RowDecoder, WrongRows, decode_any, stored_as};
use super::fields::{Null, field_of, join_columns, stored_null};
use super::files::ParquetFiles;
use super::index::{GroupIndex, ParquetIndex};
use super::pages::{ColumnPages, PageMemories, PagePlace, WrongPages, damaged, open_pages};
use crate::buffers::Buffers;
use crate::error::{FormatError, FormatErrorKind, Result};
use crate::guard::catch_panic;
use crate::source::{FieldType, FileSource, SampleElements};

/// A field of samples, and the columns that make it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldColumns {
    /// The name of the field.
    pub name: String,
    /// The names of the columns: one, or several numbers of one type, which become a row of each sample.
    pub columns: Vec<String>,
    /// True if columns become a row, even if there is one.
    pub are_joined: bool,
    /// What stands in place of nulls, if they are allowed.
    pub null: Option<Null>,
}

impl FieldColumns {
    /// A field of one column, by its name.
    pub fn single(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { columns: vec![name.clone()], name, are_joined: false, null: None }
    }
}

/// A field as it is read.
#[derive(Debug)]
struct Field {
    /// The places of its columns in the index.
    columns: Vec<usize>,
    are_joined: bool,
    null: Option<Null>,
}

/// Samples of Parquet files, a run of pages at a time.
#[derive(Debug)]
pub struct ParquetSource {
    files: ParquetFiles,
    index: ParquetIndex,
    fields: Vec<Field>,
    names: Vec<String>,
    chunks: Vec<ChunkRows>,
    /// The number of elements of each list, if lists are rows.
    row_extent: Option<usize>,
    buffers: Buffers,
    memories: PageMemories,
}

impl ParquetSource {
    /// The samples of some fields, of which the index has all columns.
    ///
    /// # Errors
    /// A column is not in the index, or holds texts or bytes of any length; columns of one field differ in type or are no
    /// numbers.
    pub fn new(files: ParquetFiles, index: ParquetIndex, fields: &[FieldColumns]) -> Result<Self> {
        let places: HashMap<&str, usize> = index
            .columns
            .iter()
            .enumerate()
            .map(|(place, &column)| (files.columns()[column].name.as_str(), place))
            .collect();
        let path = files.files()[0].file.path();
        let resolve = |field: &FieldColumns| {
            let find = |name: &String| {
                let unknown = || {
                    FormatError::new(
                        FormatErrorKind::Argument,
                        path,
                        format!("the index has no column {name:?}"),
                    )
                };
                places.get(name.as_str()).copied().ok_or_else(unknown)
            };
            let columns = field.columns.iter().map(find).collect::<Result<Vec<_>>>()?;
            if field.are_joined {
                require_joinable(&files, &index, &columns, &field.name)?;
            }
            Ok(Field { columns, are_joined: field.are_joined, null: field.null.clone() })
        };
        let columns = files.columns();
        for &column in &index.columns {
            if let Ok(ColumnLayout::Text | ColumnLayout::Binary) = columns[column].layout {
                let reason =
                    "it holds texts or bytes, which differ in length; expected numbers or lists of numbers";
                return Err(FormatError::new(FormatErrorKind::Unsupported, path, reason)
                    .of_column(&columns[column].name));
            }
        }
        let names = fields.iter().map(|field| field.name.clone()).collect();
        let fields = fields.iter().map(resolve).collect::<Result<Vec<_>>>()?;
        let chunks = cut_chunks(&files, &index);
        let (buffers, memories) = (Buffers::default(), PageMemories::default());
        Ok(Self { files, index, fields, names, chunks, row_extent: None, buffers, memories })
    }

    /// The same samples with lists as rows.
    ///
    /// # Errors
    /// Two lists differ in length; the error names file and row.
    pub fn as_rows(self) -> Result<Self> {
        let lengths = self.index.lengths().unwrap_or_default();
        let Some(&first) = lengths.first() else { return Ok(self) };
        if let Some(row) = lengths.iter().position(|&length| length != first) {
            let group = self.index.groups.iter().rfind(|group| group.first_row <= row as u64);
            let (file, before) =
                group.map_or((0, 0), |group| (group.file, self.index.first_row_of(group.file)));
            let reason = format!(
                "row {} has lists of {} elements, and the first row has {first}; expected one length for rows",
                row as u64 - before,
                lengths[row]
            );
            return Err(FormatError::data(self.files.files()[file].file.path(), reason));
        }
        Ok(Self { row_extent: Some(first as usize), ..self })
    }

    fn read_field(&self, field: &Field, group: &GroupIndex, rows: &Range<u32>) -> Result<ChunkField> {
        let mut columns =
            field.columns.iter().map(|&place| self.read_column(place, field.null.as_ref(), group, rows));
        if !field.are_joined {
            let first = columns.next();
            return first.unwrap_or_else(|| {
                Err(FormatError::new(
                    FormatErrorKind::Argument,
                    self.files.files()[0].file.path(),
                    "a field has no column",
                ))
            });
        }
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let count = (rows.end - rows.start) as usize;
        let tensors = columns.iter().map(|column| match column {
            ChunkField::Rows(rows) => rows.chunks().next(),
            _ => None,
        });
        let tensors: Vec<&Tensor> = tensors.flatten().collect();
        let dtype = tensors.first().map_or(DType::U8, |tensor| tensor.dtype());
        let values: Vec<&[u8]> = tensors.iter().map(|tensor| tensor.bytes().as_ref()).collect();
        let joined = join_columns(&values, dtype.size(), count);
        let tensor = Tensor::from_bytes(joined.into(), dtype, &[count, tensors.len()]);
        Ok(tensor.map_err(|error| self.wrong(group, error.to_string()))?.into())
    }

    /// Reads some rows of the column at a place of the index.
    fn read_column(
        &self,
        place: usize,
        null: Option<&Null>,
        group: &GroupIndex,
        rows: &Range<u32>,
    ) -> Result<ChunkField> {
        let file = &self.files.files()[group.file];
        let name = &self.files.columns()[self.index.columns[place]].name;
        // Files may have their columns in other orders.
        let info = file.columns.iter().find(|column| column.name == *name);
        let info =
            info.ok_or_else(|| self.wrong(group, "the column is missing".to_owned()).of_column(name))?;
        let metadata = file.metadata.row_group(group.group);
        let pages = &group.pages[place];
        let held = pages.holding(rows);
        let before = held.first().map_or(0, |page| page.first_row);
        let null_lists_are_empty = null == Some(&Null::EmptyList);
        let null = match null {
            Some(Null::Element(null)) => {
                Some(stored_null(null, info).map_err(|reason| self.wrong(group, reason).of_column(name))?)
            }
            _ => None,
        };
        let elements = self.count_elements(group, info, pages, held);
        let decoded = self.decode(
            group,
            metadata,
            info,
            (pages.dictionary, held),
            elements,
            (null.as_deref(), null_lists_are_empty),
        );
        let read = decoded.map_err(|wrong| match wrong {
            WrongPages::Read(error) => error,
            WrongPages::Rows(wrong) => describe_rows(
                file.file.path(),
                wrong,
                group.first_row - self.index.first_row_of(group.file) + u64::from(before),
            ),
        });
        let field = read.and_then(|decoded| {
            let skipped = (rows.start - before) as usize;
            let count = (rows.end - rows.start) as usize;
            let field = field_of(info, self.layout_of(info), decoded, skipped, count);
            field.map_err(|reason| self.wrong(group, reason))
        });
        let place = |row: u32| group.first_row - self.index.first_row_of(group.file) + u64::from(row);
        field.map_err(|error| {
            let rows = format!("rows {} to {}", place(rows.start), place(rows.end).saturating_sub(1));
            error.at(&rows).of_column(name)
        })
    }

    /// The number of elements in some pages, as far as the index knows it.
    fn count_elements(
        &self,
        group: &GroupIndex,
        info: &ColumnInfo,
        pages: &ColumnPages,
        held: &[PagePlace],
    ) -> usize {
        let Some(first) = held.first() else { return 0 };
        let place = pages.pages.partition_point(|page| page.start < first.start) + held.len();
        let end = pages.pages.get(place).map_or(group.rows, |page| page.first_row);
        let rows = end.saturating_sub(first.first_row) as usize;
        match info.layout {
            Ok(ColumnLayout::Fixed(_, extent)) if info.is_list => rows.saturating_mul(extent),
            Ok(ColumnLayout::List(_)) => {
                let start = usize::try_from(group.first_row)
                    .unwrap_or(usize::MAX)
                    .saturating_add(first.first_row as usize);
                let lengths =
                    self.index.lengths().and_then(|lengths| lengths.get(start..start.saturating_add(rows)));
                lengths.unwrap_or_default().iter().map(|&length| length as usize).sum()
            }
            _ => rows,
        }
    }

    fn decode(
        &self,
        group: &GroupIndex,
        metadata: &RowGroupMetaData,
        info: &ColumnInfo,
        (dictionary, pages): (Option<(u64, u32)>, &[PagePlace]),
        elements: usize,
        (null, null_lists_are_empty): (Option<&[u8]>, bool),
    ) -> std::result::Result<DecodedRows, WrongPages> {
        let file = &self.files.files()[group.file].file;
        let column = metadata.column(info.leaf);
        let descriptor = column.column_descr();
        let mut memory = self.memories.take();
        let decoder = RowDecoder::new(descriptor, stored_as(descriptor), null);
        let mut decoder = decoder.with_room(elements, &self.buffers).with_empty_lists(null_lists_are_empty);
        let added = memory.add_rows(file, column, (dictionary, pages), &mut decoder);
        if let Err(WrongPages::Rows(WrongRows::Encoding(_))) = added {
            let total = memory.read(file, dictionary, pages)?;
            let pages = open_pages(column, Bytes::copy_from_slice(&memory.stored[..total]));
            let pages = pages.map_err(|error| WrongPages::Read(damaged(file, &error.to_string())))?;
            let any = decode_any(&column.column_descr_ptr(), Box::new(pages), null, null_lists_are_empty);
            return any.map_err(WrongPages::Rows);
        }
        added?;
        self.memories.give_back(memory);
        Ok(decoder.finish())
    }

    /// The samples of a column.
    fn layout_of(&self, info: &ColumnInfo) -> std::result::Result<ColumnLayout, String> {
        match (info.layout.clone(), self.row_extent) {
            (Ok(ColumnLayout::List(dtype)), Some(extent)) => Ok(ColumnLayout::Fixed(dtype, extent)),
            (layout, _) => layout,
        }
    }

    fn wrong(&self, group: &GroupIndex, reason: String) -> FormatError {
        FormatError::data(self.files.files()[group.file].file.path(), reason)
    }
}

impl FileSource for ParquetSource {
    fn chunks(&self) -> Chunks {
        Chunks::new(self.chunks.iter().map(|chunk| u64::from(chunk.rows.end - chunk.rows.start)))
    }

    fn lengths(&self) -> Option<&[u32]> {
        self.index.lengths().filter(|_| self.row_extent.is_none())
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn types(&self) -> Vec<FieldType> {
        let layout = |field: &Field| {
            let column = field.columns.first().and_then(|&place| self.index.columns.get(place));
            column.and_then(|&column| self.files.columns()[column].layout.as_ref().ok().copied())
        };
        let of = |field: &Field| {
            let layout = layout(field).unwrap_or(ColumnLayout::Binary);
            let elements = match layout {
                _ if field.are_joined => SampleElements::Row(field.columns.len()),
                ColumnLayout::Scalar(_) => SampleElements::One,
                ColumnLayout::Fixed(_, extent) => SampleElements::Row(extent),
                _ => self.row_extent.map_or(SampleElements::List, SampleElements::Row),
            };
            FieldType { dtype: layout.dtype(), elements }
        };
        self.fields.iter().map(of).collect()
    }

    fn read_chunk(&self, chunk: u64) -> Result<Vec<ChunkField>> {
        let path = self.files.files()[0].file.path();
        let chunk = usize::try_from(chunk).ok().and_then(|chunk| self.chunks.get(chunk));
        let missing = || FormatError::new(FormatErrorKind::Argument, path, "there is no such chunk");
        let chunk = chunk.ok_or_else(missing)?;
        let group = &self.index.groups[chunk.group];
        let read = || self.fields.iter().map(|field| self.read_field(field, group, &chunk.rows)).collect();
        catch_panic(read)
            .unwrap_or_else(|reason| Err(self.wrong(group, format!("a page is damaged: {reason}"))))
    }
}

fn describe_rows(path: &Path, wrong: WrongRows, first_row: u64) -> FormatError {
    match wrong {
        WrongRows::Null(row) => {
            let row = first_row + row as u64;
            FormatError::data(
                path,
                format!("row {row} is null; expected a value in each, or nulls= with a value for it"),
            )
        }
        WrongRows::Damaged(reason) => FormatError::data(path, format!("a page is damaged: {reason}")),
        WrongRows::Encoding(encoding) => {
            let reason = format!("it is encoded as {encoding}, which is not read here");
            FormatError::new(FormatErrorKind::Unsupported, path, reason)
        }
    }
}

/// Columns of one field: numbers of one type.
fn require_joinable(
    files: &ParquetFiles,
    index: &ParquetIndex,
    columns: &[usize],
    field: &str,
) -> Result<()> {
    let infos: Vec<&ColumnInfo> =
        columns.iter().map(|&place| &files.columns()[index.columns[place]]).collect();
    let path = files.files()[0].file.path();
    let mut expected = None;
    for info in infos {
        let Ok(ColumnLayout::Scalar(dtype)) = info.layout else {
            let reason = format!("field {field} joins columns of numbers; expected one number in each row");
            return Err(FormatError::new(FormatErrorKind::Type, path, reason).of_column(&info.name));
        };
        match expected {
            None => expected = Some((dtype, &info.name)),
            Some((first, name)) if first != dtype => {
                let reason = format!(
                    "it is {}, and {name} is {}; expected columns of one type in field {field}",
                    dtype.name(),
                    first.name()
                );
                return Err(FormatError::new(FormatErrorKind::Type, path, reason).of_column(&info.name));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The chunks of all row groups.
fn cut_chunks(files: &ParquetFiles, index: &ParquetIndex) -> Vec<ChunkRows> {
    let layouts = index.columns.iter().filter_map(|&column| files.columns()[column].layout.as_ref().ok());
    let (mut fixed, mut by_length) = (0_u64, 0_u64);
    for layout in layouts {
        match *layout {
            ColumnLayout::Scalar(dtype) => fixed += dtype.size() as u64,
            ColumnLayout::Fixed(dtype, extent) => fixed += (dtype.size() * extent) as u64,
            // Besides its values a list has a place and a length.
            ColumnLayout::List(dtype) => (fixed, by_length) = (fixed + 12, by_length + dtype.size() as u64),
            ColumnLayout::Text | ColumnLayout::Binary => fixed += 64,
        }
    }
    let lengths = index.lengths().filter(|_| by_length > 0);
    let before: Option<Vec<u64>> = lengths.map(|lengths| {
        let sums = lengths.iter().scan(0, |sum, &length| {
            *sum += u64::from(length);
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    });
    let cut = |(place, group): (usize, &GroupIndex)| {
        let at = |row: u32| usize::try_from(group.first_row + u64::from(row)).unwrap_or(usize::MAX);
        let elements = |rows: &Range<u32>| {
            before.as_ref().map_or(0, |before| before[at(rows.end)] - before[at(rows.start)])
        };
        cut_group(place, group, |rows| u64::from(rows.end - rows.start) * fixed + elements(&rows) * by_length)
    };
    index.groups.iter().enumerate().flat_map(cut).collect()
}
