//! Lengths in a column of a table: numbers, or lists and texts, which count by length.

use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_schema::{DataType, Schema};

use super::{Tables, length};

/// Reads the column of a file, which has to be named if there are several.
pub(super) fn lengths(tables: &dyn Tables, path: &Path, column: Option<&str>) -> Result<Vec<u32>> {
    let schema = tables.open(path, None)?.schema;
    let column = match column {
        Some(column) => choose_column(&schema, column)?,
        None => only_column(&schema)?,
    };
    let table = tables.open(path, Some(std::slice::from_ref(&column)))?;
    let mut lengths = Vec::new();
    for batch in table.batches {
        let batch = batch?;
        let array = batch.column_by_name(&column).context("the column is missing from a part of the file")?;
        add(&**array, &column, &mut lengths)?;
    }
    Ok(lengths)
}

fn choose_column(schema: &Schema, column: &str) -> Result<String> {
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    match names.contains(&column) {
        true => Ok(column.to_owned()),
        false => bail!("the file {}", describe_missing(column, &names)),
    }
}

fn only_column(schema: &Schema) -> Result<String> {
    match &schema.fields()[..] {
        [field] => Ok(field.name().clone()),
        fields => {
            let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
            bail!("there are {} columns; expected --column, one of {}", names.len(), names.join(", "))
        }
    }
}

/// A message for a column that is not there, which offers the nearest name.
pub(crate) fn describe_missing(column: &str, names: &[&str]) -> String {
    let near = names
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(column, a).total_cmp(&strsim::jaro_winkler(column, b)));
    match near.filter(|near| strsim::jaro_winkler(column, near) > 0.7) {
        Some(near) => format!("has no column {column:?}; did you mean {near:?}?"),
        None => format!("has no column {column:?}; expected one of {}", names.join(", ")),
    }
}

/// Adds the lengths of some rows.
fn add(array: &dyn Array, column: &str, lengths: &mut Vec<u32>) -> Result<()> {
    let first = lengths.len();
    if array.null_count() > 0 {
        let place = (0..array.len()).find(|&place| array.is_null(place)).unwrap_or(0);
        bail!("row {} of column {column:?} is null; expected a value in every row", first + place);
    }
    let mut push = |numbers: &mut dyn Iterator<Item = i64>| -> Result<()> {
        for (place, number) in numbers.enumerate() {
            lengths.push(length(number, || format!("row {} of column {column:?}", first + place))?);
        }
        Ok(())
    };
    match array.data_type() {
        DataType::List(_) => push(&mut array.as_list::<i32>().offsets().lengths().map(as_i64)),
        DataType::LargeList(_) => push(&mut array.as_list::<i64>().offsets().lengths().map(as_i64)),
        DataType::FixedSizeList(_, size) => push(&mut (0..array.len()).map(|_| i64::from(*size))),
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            push(&mut (0..texts.len()).map(|place| as_i64(texts.value(place).chars().count())))
        }
        DataType::LargeUtf8 => {
            let texts = array.as_string::<i64>();
            push(&mut (0..texts.len()).map(|place| as_i64(texts.value(place).chars().count())))
        }
        DataType::Utf8View => {
            let texts = array.as_string_view();
            push(&mut (0..texts.len()).map(|place| as_i64(texts.value(place).chars().count())))
        }
        DataType::Int8 => push(&mut numbers::<Int8Type>(array)),
        DataType::Int16 => push(&mut numbers::<Int16Type>(array)),
        DataType::Int32 => push(&mut numbers::<Int32Type>(array)),
        DataType::Int64 => push(&mut numbers::<Int64Type>(array)),
        DataType::UInt8 => push(&mut numbers::<UInt8Type>(array)),
        DataType::UInt16 => push(&mut numbers::<UInt16Type>(array)),
        DataType::UInt32 => push(&mut numbers::<UInt32Type>(array)),
        DataType::UInt64 => push(&mut numbers::<UInt64Type>(array)),
        other => bail!("column {column:?} is of {other}; expected integers, lists or texts"),
    }
}

/// The numbers of an array. What is too large for 64 bits with a sign is no length either.
fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> impl Iterator<Item = i64>
where
    T::Native: TryInto<i64>,
{
    array.as_primitive::<T>().values().iter().map(|&number| number.try_into().unwrap_or(i64::MAX))
}

fn as_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
