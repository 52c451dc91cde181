//! Columns as bytes: numbers, rows of numbers, and lists of both, for formats that hold nothing else.
//!
//! Promise: what a column of Arrow holds beside these is told before a value is read.

use anyhow::{Context, Result, bail};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;

/// Numbers of one type and shape, one row after the other.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) kind: DataType,
    /// The shape of a row.
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// The type of the numbers in rows of one shape; `None` for a type that holds something else.
pub(super) fn number_of(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::FixedSizeList(inner, _) => number_of(inner.data_type()),
        DataType::Boolean => Some(kind),
        kind if kind.is_integer() || kind.is_floating() => Some(kind),
        _ => None,
    }
}

/// The type of the elements of lists; `None` for a type that is no list.
pub(super) fn element_of(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::List(inner) | DataType::LargeList(inner) => Some(inner.data_type()),
        _ => None,
    }
}

/// The numbers of an array without nulls.
pub(super) fn read_numbers(array: &dyn Array) -> Result<Numbers> {
    if let Some(rows) = array.as_fixed_size_list_opt() {
        let extent = usize::try_from(rows.value_length())?;
        let first = usize::try_from(rows.value_offset(0))?;
        let mut found = read_numbers(&*rows.values().slice(first, rows.len() * extent))?;
        found.shape.insert(0, extent);
        return Ok(found);
    }
    let kind = array.data_type().clone();
    let bytes = match kind.primitive_width() {
        Some(width) => {
            let data = array.to_data();
            let buffer = data.buffers().first().context("numbers without memory")?;
            let (first, end) = (data.offset() * width, (data.offset() + data.len()) * width);
            buffer.as_slice()[first..end].to_vec()
        }
        None => array
            .as_boolean_opt()
            .context("neither numbers nor truth values")?
            .values()
            .iter()
            .map(u8::from)
            .collect(),
    };
    Ok(Numbers { kind, shape: Vec::new(), bytes })
}

/// The numbers of lists without nulls, and the length of each list; numbers that are in no list have no lengths.
pub(super) fn read_lists(array: &dyn Array) -> Result<(Numbers, Option<Vec<usize>>)> {
    let (values, lengths, bounds) = if let Some(lists) = array.as_list_opt::<i32>() {
        let offsets = lists.offsets();
        let bounds = (usize::try_from(offsets[0])?, usize::try_from(offsets[lists.len()])?);
        (lists.values(), offsets.lengths().collect(), bounds)
    } else if let Some(lists) = array.as_list_opt::<i64>() {
        let offsets = lists.offsets();
        let bounds = (usize::try_from(offsets[0])?, usize::try_from(offsets[lists.len()])?);
        (lists.values(), offsets.lengths().collect(), bounds)
    } else {
        return Ok((read_numbers(array)?, None));
    };
    Ok((read_numbers(&*values.slice(bounds.0, bounds.1 - bounds.0))?, Some(lengths)))
}

/// The first row that is null, or holds a null.
pub(super) fn find_null(array: &dyn Array) -> Result<Option<usize>> {
    if array.null_count() > 0 {
        return Ok((0..array.len()).find(|&row| array.is_null(row)));
    }
    let row_holds_null = |row: usize| -> Result<bool> {
        let values = match array.data_type() {
            DataType::List(_) => array.as_list::<i32>().value(row),
            DataType::LargeList(_) => array.as_list::<i64>().value(row),
            DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
            other => bail!("{other} holds no values"),
        };
        Ok(find_null(&*values)?.is_some())
    };
    let has_nulls = match array.data_type() {
        DataType::List(_) => holds_null(&**array.as_list::<i32>().values()),
        DataType::LargeList(_) => holds_null(&**array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => holds_null(&**array.as_fixed_size_list().values()),
        _ => false,
    };
    // A null may lie between lists, in none of them.
    for row in (0..array.len()).filter(|_| has_nulls) {
        if row_holds_null(row)? {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// Returns true if there is a null anywhere in an array.
fn holds_null(array: &dyn Array) -> bool {
    let inner = array.as_fixed_size_list_opt().map(|rows| rows.values());
    array.null_count() > 0 || inner.is_some_and(|inner| holds_null(&**inner))
}
