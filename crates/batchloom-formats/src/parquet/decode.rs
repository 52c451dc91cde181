//! The rows that some pages hold: their values, and where lists begin.
//!
//! Promises: the values of a row are those that the file holds, in order; a row or an element without a value is an error
//! with its number, unless a value for it was given.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

use super::header::PageKind;
use super::levels::{are_all, for_each_zero, level_bits, list_levels};
use super::values::{Stored, WrongValues, append_values};
use crate::buffers::{Buffer, Buffers};

/// Some rows of a column as they are stored.
#[derive(Debug, Default)]
pub(crate) struct DecodedRows {
    /// The values of all elements.
    pub(crate) values: Buffer,
    /// The element at which each row begins; empty where each row is one element.
    pub(crate) starts: Vec<usize>,
    /// The number of elements.
    pub(crate) elements: usize,
}

/// Rows that cannot be read.
#[derive(Debug)]
pub(crate) enum WrongRows {
    /// The row, counted from the first one of the first page, is null or has an element that is.
    Null(usize),
    /// A page is damaged.
    Damaged(String),
    /// The pages are sound, and have an encoding that is not read.
    Encoding(Encoding),
}

impl From<WrongValues> for WrongRows {
    fn from(wrong: WrongValues) -> Self {
        match wrong {
            WrongValues::Damaged(reason) => Self::Damaged(reason.to_owned()),
            WrongValues::Encoding(encoding) => Self::Encoding(encoding),
        }
    }
}

impl From<super::levels::CutRun> for WrongRows {
    fn from(_: super::levels::CutRun) -> Self {
        Self::Damaged("a run of levels leaves its page".to_owned())
    }
}

impl From<ParquetError> for WrongRows {
    fn from(error: ParquetError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// The form in which values of a column are stored, if all have one size.
pub(crate) fn stored_as(column: &ColumnDescriptor) -> Option<Stored> {
    Some(match column.physical_type() {
        Physical::BOOLEAN => Stored::Bits,
        Physical::INT32 | Physical::FLOAT => Stored::Bytes(4),
        Physical::INT64 | Physical::DOUBLE => Stored::Bytes(8),
        Physical::FIXED_LEN_BYTE_ARRAY => Stored::Bytes(usize::try_from(column.type_length()).ok()?),
        Physical::INT96 | Physical::BYTE_ARRAY => return None,
    })
}

/// The levels and the values of a page.
struct Parts<'a> {
    count: usize,
    encoding: Encoding,
    /// The levels that say where rows begin, and which elements are there.
    repetition: &'a [u8],
    definition: &'a [u8],
    values: &'a [u8],
}

/// The most values of a page. Runs hold any number of values in a few bytes, so that a page may tell of more than there is
/// memory for; writers begin another page long before.
const MOST_VALUES: usize = 1 << 28;

/// Takes the bytes of a page apart, whose values may be cut off; `None` for a dictionary.
fn take_apart<'a>(
    kind: PageKind,
    bytes: &'a [u8],
    column: &ColumnDescriptor,
) -> Result<Option<Parts<'a>>, WrongRows> {
    let leaves = || WrongRows::Damaged("levels leave their page".to_owned());
    let parts = match kind {
        PageKind::Dictionary { .. } | PageKind::Other => return Ok(None),
        PageKind::Data { values: count, encoding, repetition, definition } => {
            let mut rest = bytes;
            let mut levels = |most: i16, encoding: Encoding| {
                if most == 0 {
                    return Ok(&[][..]);
                }
                if encoding != Encoding::RLE {
                    return Err(WrongRows::Encoding(encoding));
                }
                let (length, after) = rest.split_first_chunk::<4>().ok_or_else(leaves)?;
                let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| leaves())?;
                let (levels, after) = after.split_at_checked(length).ok_or_else(leaves)?;
                rest = after;
                Ok(levels)
            };
            let repetition = levels(column.max_rep_level(), repetition)?;
            let definition = levels(column.max_def_level(), definition)?;
            Parts { count, encoding, repetition, definition, values: rest }
        }
        PageKind::DataV2 { values: count, encoding, repetition, definition, .. } => {
            let (repetition, rest) = bytes.split_at_checked(repetition).ok_or_else(leaves)?;
            let (definition, values) = rest.split_at_checked(definition).ok_or_else(leaves)?;
            Parts { count, encoding, repetition, definition, values }
        }
    };
    match parts.count > MOST_VALUES {
        true => Err(WrongRows::Damaged(format!("it tells of {} values", parts.count))),
        false => Ok(Some(parts)),
    }
}

/// The number of bytes that the levels at the front of a page of the first version take, as far as the bytes so far say.
pub(super) fn front_of(column: &ColumnDescriptor, bytes: &[u8]) -> usize {
    let mut needed = 0_usize;
    for _ in [column.max_rep_level(), column.max_def_level()].into_iter().filter(|&most| most > 0) {
        let length = bytes.get(needed..).and_then(|rest| rest.first_chunk::<4>());
        needed = needed.saturating_add(4);
        match length {
            Some(length) => needed = needed.saturating_add(u32::from_le_bytes(*length) as usize),
            None => return needed,
        }
    }
    needed
}

/// A decoder that adds the rows of pages, one page after the other.
pub(crate) struct RowDecoder<'a> {
    column: &'a ColumnDescriptor,
    /// The form of values; `None` where only levels are looked at.
    stored: Option<Stored>,
    /// The value of an element that is null.
    fill: Option<&'a [u8]>,
    /// True if a list that is null has no elements, and is none otherwise.
    has_empty_lists: bool,
    dictionary: Buffer,
    /// True once a page was not what [`levels_before`](Self::levels_before) took it for.
    has_other_pages: bool,
    rows: DecodedRows,
}

impl<'a> RowDecoder<'a> {
    /// A decoder of values, or of levels alone.
    pub(crate) fn new(column: &'a ColumnDescriptor, stored: Option<Stored>, fill: Option<&'a [u8]>) -> Self {
        let (dictionary, rows) = (Buffer::default(), DecodedRows::default());
        Self { column, stored, fill, has_empty_lists: false, dictionary, has_other_pages: false, rows }
    }

    /// The same decoder, to which lists that are null have no elements if `are_empty` is true.
    pub(crate) fn with_empty_lists(self, are_empty: bool) -> Self {
        Self { has_empty_lists: are_empty, ..self }
    }

    /// The same decoder, with room for so many values.
    pub(crate) fn with_room(mut self, values: usize, buffers: &Buffers) -> Self {
        self.rows.values = buffers.take(values.saturating_mul(self.stored.map_or(0, Stored::width)));
        self
    }

    /// The rows of the pages so far.
    pub(crate) fn rows(&self) -> &DecodedRows {
        &self.rows
    }

    /// The rows of all pages.
    pub(crate) fn finish(self) -> DecodedRows {
        self.rows
    }

    /// The bytes of levels before the values of a page of `bytes` bytes, if these values can be decompressed to where they
    /// stay: they are stored as they are, and the values so far are longer than the levels. This holds if the page has no
    /// null, which is looked up once the page is decompressed.
    pub(super) fn levels_before(&self, kind: PageKind, bytes: usize) -> Option<usize> {
        let (PageKind::Data { values, encoding: Encoding::PLAIN, .. }, Some(Stored::Bytes(width))) =
            (kind, self.stored)
        else {
            return None;
        };
        let levels = bytes.checked_sub(values.checked_mul(width)?)?;
        let is_such = bytes > 0 && values <= MOST_VALUES && levels <= self.rows.values.len();
        (is_such && !self.has_other_pages).then_some(levels)
    }

    /// Adds the rows of a page with `levels` bytes [before](Self::levels_before) its values, `bytes` in all. `decompress`
    /// writes the page to where its values stay. Its levels lie over values of rows before, which are put back. `page` is
    /// memory to do so.
    pub(super) fn add_in_place<E: From<WrongRows>>(
        &mut self,
        kind: PageKind,
        (levels, bytes): (usize, usize),
        page: &mut Buffer,
        decompress: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.rows.values.len();
        page.clear();
        page.extend_from_slice(&self.rows.values[before - levels..]);
        self.rows.values.grow(bytes - levels);
        let target = &mut self.rows.values[before - levels..];
        decompress(target)?;
        target[..levels].swap_with_slice(page);
        let parts = take_apart(kind, page, self.column).ok().flatten();
        if let Some(parts) = parts.filter(|parts| parts.values.is_empty())
            && self.is_full(&parts)?
        {
            return Ok(self.add_starts(&parts)?);
        }
        self.has_other_pages = true;
        page.extend_from_slice(&self.rows.values[before..]);
        self.rows.values.truncate(before);
        Ok(self.add(kind, page)?)
    }

    /// Returns true if every element of a page has a value.
    fn is_full(&self, parts: &Parts<'_>) -> Result<bool, WrongRows> {
        let most = self.column.max_def_level();
        let value = u64::from(most.unsigned_abs());
        Ok(most == 0 || are_all(parts.definition, level_bits(most), parts.count, value)?)
    }

    /// Adds the rows of a page.
    pub(crate) fn add(&mut self, kind: PageKind, page: &[u8]) -> Result<(), WrongRows> {
        let Some(parts) = take_apart(kind, page, self.column)? else {
            if let (Some(stored), PageKind::Dictionary { values }) = (self.stored, kind) {
                self.dictionary.clear();
                append_values(stored, Encoding::PLAIN, page, &[], values, &mut self.dictionary)?;
            }
            return Ok(());
        };
        if self.is_full(&parts)? {
            self.add_full(&parts)
        } else {
            let most = self.column.max_def_level();
            let repetition = match self.column.max_rep_level() {
                0 => Vec::new(),
                _ => list_levels(parts.repetition, 1, parts.count)?,
            };
            let definition = list_levels(parts.definition, level_bits(most), parts.count)?;
            let is_there = self.add_levels(&repetition, &definition)?;
            let count = is_there.iter().filter(|&&is_there| is_there).count();
            let Some(stored) = self.stored else { return Ok(()) };
            let mut values = Buffer::default();
            append_values(stored, parts.encoding, parts.values, &self.dictionary, count, &mut values)?;
            self.spread(&is_there, &values, stored.width());
            Ok(())
        }
    }

    /// Adds a page that has no null.
    fn add_full(&mut self, parts: &Parts<'_>) -> Result<(), WrongRows> {
        self.add_starts(parts)?;
        let Some(stored) = self.stored else { return Ok(()) };
        let dictionary = &self.dictionary;
        Ok(append_values(
            stored,
            parts.encoding,
            parts.values,
            dictionary,
            parts.count,
            &mut self.rows.values,
        )?)
    }

    /// Adds the starts of the rows of a page that has no null, and its number of elements, without the values.
    fn add_starts(&mut self, parts: &Parts<'_>) -> Result<(), WrongRows> {
        if self.column.max_rep_level() > 0 {
            let (starts, before) = (&mut self.rows.starts, self.rows.elements);
            for_each_zero(parts.repetition, parts.count, |place| starts.push(before + place))?;
        }
        self.rows.elements += parts.count;
        Ok(())
    }

    /// Adds rows by their levels; returns for each element whether it has a value.
    fn add_levels(&mut self, repetition: &[u8], definition: &[u8]) -> Result<Vec<bool>, WrongRows> {
        let most = self.column.max_def_level().unsigned_abs();
        let is_list = self.column.max_rep_level() > 0;
        let least = self.column.repeated_ancestor_def_level().unsigned_abs();
        let mut is_there = Vec::with_capacity(definition.len());
        for (place, &level) in definition.iter().enumerate() {
            let level = u16::from(level);
            if is_list && repetition.get(place) == Some(&0) {
                self.rows.starts.push(self.rows.elements);
            }
            if is_list && level < least {
                // One less is a list without elements, anything lower no list at all.
                if level + 1 < least && !self.has_empty_lists {
                    return Err(WrongRows::Null(self.rows.starts.len().saturating_sub(1)));
                }
                continue;
            }
            if level < most && self.fill.is_none() {
                let row = if is_list { self.rows.starts.len().saturating_sub(1) } else { self.rows.elements };
                return Err(WrongRows::Null(row));
            }
            is_there.push(level >= most);
            self.rows.elements += 1;
        }
        Ok(is_there)
    }

    /// Appends values, with the given one where there is none.
    fn spread(&mut self, is_there: &[bool], values: &[u8], width: usize) {
        let mut values = values.chunks_exact(width.max(1));
        let zero = vec![0; width];
        let fill = self.fill.unwrap_or(&zero);
        for &is_there in is_there {
            let value = if is_there { values.next().unwrap_or(fill) } else { fill };
            self.rows.values.extend_from_slice(value);
        }
    }
}

/// The rows of pages in any encoding, by the readers of the format's own crate.
pub(crate) fn decode_any(
    column: &ColumnDescPtr,
    pages: Box<dyn PageReader>,
    fill: Option<&[u8]>,
    has_empty_lists: bool,
) -> Result<DecodedRows, WrongRows> {
    match column.physical_type() {
        Physical::BOOLEAN => decode_by::<BoolType>(column, pages, (fill, has_empty_lists), |value, out| {
            out.push(u8::from(*value))
        }),
        Physical::INT32 => decode_by::<Int32Type>(column, pages, (fill, has_empty_lists), |value, out| {
            out.extend_from_slice(&value.to_le_bytes())
        }),
        Physical::INT64 => decode_by::<Int64Type>(column, pages, (fill, has_empty_lists), |value, out| {
            out.extend_from_slice(&value.to_le_bytes())
        }),
        Physical::FLOAT => decode_by::<FloatType>(column, pages, (fill, has_empty_lists), |value, out| {
            out.extend_from_slice(&value.to_le_bytes())
        }),
        Physical::DOUBLE => decode_by::<DoubleType>(column, pages, (fill, has_empty_lists), |value, out| {
            out.extend_from_slice(&value.to_le_bytes())
        }),
        Physical::FIXED_LEN_BYTE_ARRAY => {
            decode_by::<FixedLenByteArrayType>(column, pages, (fill, has_empty_lists), |value, out| {
                out.extend_from_slice(value.data())
            })
        }
        Physical::INT96 | Physical::BYTE_ARRAY => Err(WrongRows::Encoding(Encoding::PLAIN)),
    }
}

fn decode_by<T: DataType>(
    column: &ColumnDescPtr,
    pages: Box<dyn PageReader>,
    (fill, has_empty_lists): (Option<&[u8]>, bool),
    write: impl Fn(&T::T, &mut Vec<u8>),
) -> Result<DecodedRows, WrongRows> {
    let mut reader = ColumnReaderImpl::<T>::new(column.clone(), pages);
    let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let (records, _, levels) =
            reader.read_records(1 << 16, Some(&mut definition), Some(&mut repetition), &mut values)?;
        if records == 0 && levels == 0 {
            break;
        }
    }
    let stored = stored_as(column);
    let mut decoder = RowDecoder::new(column, stored, fill).with_empty_lists(has_empty_lists);
    let narrow = |levels: &[i16]| levels.iter().map(|level| level.to_le_bytes()[0]).collect::<Vec<_>>();
    let mut bytes = Vec::new();
    values.iter().for_each(|value| write(value, &mut bytes));
    if column.max_def_level() == 0 && column.max_rep_level() == 0 {
        return Ok(DecodedRows { elements: values.len(), values: bytes.into(), starts: Vec::new() });
    }
    let definition = if definition.is_empty() { vec![0; repetition.len()] } else { narrow(&definition) };
    let is_there = decoder.add_levels(&narrow(&repetition), &definition)?;
    decoder.spread(&is_there, &bytes, stored.map_or(0, Stored::width));
    Ok(decoder.finish())
}
