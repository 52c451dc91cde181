//! The columns of a Parquet file that can be fields, by the names that users know.
//!
//! Promises: a column has the name of its outermost list, or the names on the way to it joined by dots; columns of other
//! types have a reason in words, which is an error once such a column is chosen.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use batchloom::DType;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use crate::error::{FormatError, FormatErrorKind, Result};
use crate::guard::catch_panic;

/// The key of the metadata in which writers keep the schema of Arrow.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// A column of a file: a name, and what its samples are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The name.
    pub name: String,
    /// The type of its elements and the shape of a sample, or the reason why it makes no tensor.
    pub layout: std::result::Result<ColumnLayout, String>,
    /// The number of the column among those that hold values.
    pub(crate) leaf: usize,
    /// True if elements are times, counted in nanoseconds.
    pub(crate) is_time: bool,
    /// True if a sample is stored as a list.
    pub(crate) is_list: bool,
    /// The conversion of stored values into elements.
    pub(crate) conversion: Conversion,
}

/// The samples of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnLayout {
    /// A number for each sample.
    Scalar(DType),
    /// As many numbers for each sample.
    Fixed(DType, usize),
    /// A list for each sample, of any length.
    List(DType),
    /// A text for each sample, as bytes of UTF-8.
    Text,
    /// Bytes for each sample.
    Binary,
}

impl ColumnLayout {
    /// The type of the elements; bytes for texts.
    pub fn dtype(self) -> DType {
        match self {
            Self::Scalar(dtype) | Self::Fixed(dtype, _) | Self::List(dtype) => dtype,
            Self::Text | Self::Binary => DType::U8,
        }
    }
}

impl fmt::Display for ColumnLayout {
    /// Writes the layout in words, as `lists of 3 int64`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(dtype) => formatter.write_str(dtype.name()),
            Self::Fixed(dtype, extent) => write!(formatter, "lists of {extent} {}", dtype.name()),
            Self::List(dtype) => write!(formatter, "lists of {}", dtype.name()),
            Self::Text => formatter.write_str("texts"),
            Self::Binary => formatter.write_str("bytes"),
        }
    }
}

/// The change of stored values on the way to elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// No change: elements are stored as they are.
    Same,
    /// The low bytes of each value: integers of 8 and 16 bits are stored in 32.
    Narrow(usize),
    /// Integers of 64 bits are multiplied: times become nanoseconds.
    Times(i64),
    /// Integers of 32 bits are multiplied, and have 64 then: dates become nanoseconds.
    Widen(i64),
}

/// The columns of a file, in its order.
pub(crate) fn list_columns(metadata: &FileMetaData) -> Vec<ColumnInfo> {
    let hints = arrow_hints(metadata);
    let schema = metadata.schema_descr();
    let mut columns: Vec<ColumnInfo> =
        (0..schema.num_columns()).map(|leaf| describe_column(schema, leaf, &hints)).collect();
    // A map or a list of structs has values in several places, and one name.
    columns
        .dedup_by(|next, before| next.layout.is_err() && before.layout.is_err() && next.name == before.name);
    columns
}

/// The columns of several files, which have to be the same by name.
///
/// # Errors
/// A column has another layout in another file, or is missing there; the error names the file and both.
pub(crate) fn require_alike(
    first: (&Path, &[ColumnInfo]),
    other: (&Path, &[ColumnInfo]),
    chosen: &[String],
) -> Result<()> {
    let describe = |column: &ColumnInfo| match &column.layout {
        Ok(layout) if column.is_time => format!("{layout} of time"),
        Ok(layout) => layout.to_string(),
        Err(reason) => reason.clone(),
    };
    for name in chosen {
        let of = |columns: &[ColumnInfo]| columns.iter().find(|column| column.name == *name).map(describe);
        let (expected, found) = (of(first.1), of(other.1));
        if expected != found {
            let found = found.unwrap_or_else(|| "missing".to_owned());
            let expected = expected.unwrap_or_else(|| "missing".to_owned());
            let reason = format!("it is {found}; expected {expected}, as in {}", first.0.display());
            return Err(FormatError::data(other.0, reason).of_column(name));
        }
    }
    Ok(())
}

/// The error for a column that is not there, which offers the nearest name.
pub(crate) fn missing(file: &Path, name: &str, columns: &[ColumnInfo]) -> FormatError {
    let near = columns
        .iter()
        .map(|column| (strsim::jaro_winkler(name, &column.name), &column.name))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = match near.filter(|near| near.0 > 0.7) {
        Some((_, near)) => format!("did you mean {near:?}?"),
        None => {
            let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
            format!("expected one of {}", names.join(", "))
        }
    };
    FormatError::new(FormatErrorKind::Argument, file, format!("there is no column {name:?}; {hint}"))
}

/// The path from the root to a leaf.
fn path_to<'a>(schema: &'a SchemaDescriptor, column: &ColumnDescriptor) -> Vec<&'a Type> {
    let (mut node, mut path) = (schema.root_schema(), Vec::new());
    for part in column.path().parts() {
        let next = node.get_fields().iter().find(|field| field.name() == part);
        let Some(next) = next else { break };
        node = next;
        path.push(node);
        if node.is_primitive() {
            break;
        }
    }
    path
}

fn describe_column(schema: &SchemaDescriptor, leaf: usize, hints: &ArrowHints) -> ColumnInfo {
    let column = schema.column(leaf);
    let path = path_to(schema, &column);
    let repeated = path.iter().position(|node| is_repeated(node));
    let names: Vec<_> = path.iter().map(|node| node.name()).collect();
    // The list that a repeated node belongs to names the column.
    let map = path.iter().position(|node| is_map(node));
    let named = match repeated {
        Some(place) if map.is_some_and(|map| map < place) => map.map_or(place, |map| map + 1),
        Some(place) if place > 0 && is_list(path[place - 1]) => place,
        Some(place) => place + 1,
        None => names.len(),
    };
    let name = names[..named].join(".");
    let (elements, stored) = element_type(&column);
    let conversion =
        hints.durations.get(&name).copied().filter(|_| stored == Conversion::Same).unwrap_or(stored);
    let layout = elements.and_then(|elements| match (repeated, elements) {
        _ if column.max_rep_level() > 1 => Err("lists of lists".to_owned()),
        (Some(place), _) if path.iter().take(place).any(|node| is_map(node)) => Err("a map".to_owned()),
        (Some(place), _)
            if names.len() > place + 2 || path[place].is_group() && path[place].get_fields().len() != 1 =>
        {
            Err("lists of structs".to_owned())
        }
        (Some(_), Elements::Numbers(dtype)) => match hints.extents.get(&name) {
            Some(&extent) => Ok(ColumnLayout::Fixed(dtype, extent)),
            None => Ok(ColumnLayout::List(dtype)),
        },
        (Some(_), _) => Err("lists of texts or bytes".to_owned()),
        (None, Elements::Numbers(dtype)) => Ok(ColumnLayout::Scalar(dtype)),
        (None, Elements::Bytes(extent)) => Ok(ColumnLayout::Fixed(DType::U8, extent)),
        (None, Elements::Text) => Ok(ColumnLayout::Text),
        (None, Elements::Binary) => Ok(ColumnLayout::Binary),
    });
    let has_times = is_time(&column) || hints.durations.contains_key(&name);
    ColumnInfo { name, layout, leaf, is_time: has_times, is_list: repeated.is_some(), conversion }
}

fn is_repeated(node: &Type) -> bool {
    let info = node.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

fn is_list(node: &Type) -> bool {
    let info = node.get_basic_info();
    info.converted_type() == ConvertedType::LIST || matches!(info.logical_type_ref(), Some(LogicalType::List))
}

fn is_map(node: &Type) -> bool {
    let info = node.get_basic_info();
    matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
        || matches!(info.logical_type_ref(), Some(LogicalType::Map))
}

/// The elements of a column.
enum Elements {
    Numbers(DType),
    /// As many bytes for each.
    Bytes(usize),
    Text,
    Binary,
}

fn element_type(column: &ColumnDescriptor) -> (std::result::Result<Elements, String>, Conversion) {
    let numbers = |dtype| (Ok(Elements::Numbers(dtype)), Conversion::Same);
    let narrow = |dtype: DType| (Ok(Elements::Numbers(dtype)), Conversion::Narrow(dtype.size()));
    let refused = |reason: &str| (Err(reason.to_owned()), Conversion::Same);
    let logical = column.logical_type_ref();
    let is_decimal =
        column.converted_type() == ConvertedType::DECIMAL || matches!(logical, Some(LogicalType::Decimal(_)));
    if is_decimal {
        return refused("decimals");
    }
    if matches!(logical, Some(LogicalType::Unknown)) {
        return refused("nulls alone");
    }
    match (column.physical_type(), integer_of(column)) {
        (Physical::BOOLEAN, _) => numbers(DType::Bool),
        (Physical::FLOAT, _) => numbers(DType::F32),
        (Physical::DOUBLE, _) => numbers(DType::F64),
        (Physical::INT32, _) if is_time(column) => {
            (Ok(Elements::Numbers(DType::I64)), Conversion::Widen(factor_of(column)))
        }
        (Physical::INT32, Some((8, true))) => narrow(DType::I8),
        (Physical::INT32, Some((16, true))) => narrow(DType::I16),
        (Physical::INT32, Some((8, false))) => narrow(DType::U8),
        (Physical::INT32, Some((16, false))) => narrow(DType::U16),
        (Physical::INT32, Some((_, false))) => numbers(DType::U32),
        (Physical::INT32, _) => numbers(DType::I32),
        (Physical::INT64, Some((_, false))) => numbers(DType::U64),
        (Physical::INT64, _) => (Ok(Elements::Numbers(DType::I64)), times_of(column)),
        (Physical::INT96, _) => refused("timestamps of 96 bits"),
        (Physical::FIXED_LEN_BYTE_ARRAY, _) if matches!(logical, Some(LogicalType::Float16)) => {
            numbers(DType::F16)
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, _) => {
            (Ok(Elements::Bytes(usize::try_from(column.type_length()).unwrap_or(0))), Conversion::Same)
        }
        (Physical::BYTE_ARRAY, _) => {
            let is_text =
                matches!(
                    column.converted_type(),
                    ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM
                ) || matches!(logical, Some(LogicalType::String | LogicalType::Json | LogicalType::Enum));
            (Ok(if is_text { Elements::Text } else { Elements::Binary }), Conversion::Same)
        }
    }
}

/// The number of bits of integers, and whether they have a sign.
fn integer_of(column: &ColumnDescriptor) -> Option<(i8, bool)> {
    if let Some(LogicalType::Integer(integer)) = column.logical_type_ref() {
        return Some((integer.bit_width, integer.is_signed));
    }
    match column.converted_type() {
        ConvertedType::INT_8 => Some((8, true)),
        ConvertedType::INT_16 => Some((16, true)),
        ConvertedType::UINT_8 => Some((8, false)),
        ConvertedType::UINT_16 => Some((16, false)),
        ConvertedType::UINT_32 => Some((32, false)),
        ConvertedType::UINT_64 => Some((64, false)),
        _ => None,
    }
}

/// Returns true if a column holds times: dates, times of day, or timestamps.
fn is_time(column: &ColumnDescriptor) -> bool {
    let by_logical = matches!(
        column.logical_type_ref(),
        Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_))
    );
    by_logical
        || matches!(
            column.converted_type(),
            ConvertedType::DATE
                | ConvertedType::TIME_MILLIS
                | ConvertedType::TIME_MICROS
                | ConvertedType::TIMESTAMP_MILLIS
                | ConvertedType::TIMESTAMP_MICROS
        )
}

/// The nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// The factor that makes times of a column nanoseconds; 1 for numbers that are no times.
fn factor_of(column: &ColumnDescriptor) -> i64 {
    let of_unit = |unit: TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1000,
        TimeUnit::NANOS => 1,
    };
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Date), _) | (_, ConvertedType::DATE) => DAY,
        (Some(LogicalType::Timestamp(time)), _) => of_unit(time.unit),
        (Some(LogicalType::Time(time)), _) => of_unit(time.unit),
        (_, ConvertedType::TIME_MILLIS | ConvertedType::TIMESTAMP_MILLIS) => 1_000_000,
        (_, ConvertedType::TIME_MICROS | ConvertedType::TIMESTAMP_MICROS) => 1000,
        _ => 1,
    }
}

/// The change of integers of 64 bits: times become nanoseconds.
fn times_of(column: &ColumnDescriptor) -> Conversion {
    match factor_of(column) {
        1 => Conversion::Same,
        factor => Conversion::Times(factor),
    }
}

/// The facts about columns that only the schema of Arrow has, by name. Writers keep it beside the schema of Parquet.
#[derive(Debug, Default)]
struct ArrowHints {
    /// The number of elements of lists that all have one.
    extents: HashMap<String, usize>,
    /// The change of durations, which become nanoseconds.
    durations: HashMap<String, Conversion>,
}

fn arrow_hints(metadata: &FileMetaData) -> ArrowHints {
    let mut hints = ArrowHints::default();
    let pairs = metadata.key_value_metadata().into_iter().flatten();
    let text = pairs.filter(|pair| pair.key == ARROW_SCHEMA).find_map(|pair| pair.value.as_ref());
    let bytes = text.and_then(|text| BASE64_STANDARD.decode(text).ok());
    // What another library does not parse gives no hints.
    let schema = bytes.and_then(|bytes| catch_panic(|| try_schema_from_ipc_buffer(&bytes)).ok()?.ok());
    if let Some(schema) = schema {
        add_hints(schema.fields(), "", &mut hints);
    }
    hints
}

fn add_hints(fields: &arrow_schema::Fields, before: &str, hints: &mut ArrowHints) {
    use arrow_schema::DataType;
    for field in fields {
        let name = format!("{before}{}", field.name());
        let elements = match field.data_type() {
            DataType::Struct(fields) => {
                add_hints(fields, &format!("{name}."), hints);
                continue;
            }
            DataType::FixedSizeList(inner, extent) => {
                hints.extents.insert(name.clone(), usize::try_from(*extent).unwrap_or(0));
                inner.data_type()
            }
            DataType::List(inner) | DataType::LargeList(inner) => inner.data_type(),
            other => other,
        };
        if let DataType::Duration(unit) = elements {
            let conversion = match unit {
                arrow_schema::TimeUnit::Second => Conversion::Times(1_000_000_000),
                arrow_schema::TimeUnit::Millisecond => Conversion::Times(1_000_000),
                arrow_schema::TimeUnit::Microsecond => Conversion::Times(1000),
                arrow_schema::TimeUnit::Nanosecond => Conversion::Same,
            };
            hints.durations.insert(name, conversion);
        }
    }
}
