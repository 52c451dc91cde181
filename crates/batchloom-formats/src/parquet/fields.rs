//! Fields of chunks, made of decoded rows: types that are converted, lists, and columns joined to a matrix.

use batchloom::dataset::{ChunkField, Sequences};
use batchloom::{DType, Tensor};
use bytes::Bytes;

use super::columns::{ColumnInfo, ColumnLayout, Conversion};
use super::decode::DecodedRows;

/// A replacement for nulls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Null {
    /// An element, as its bytes: a number in place of each null.
    Element(Vec<u8>),
    /// A list without elements in place of each list that is null.
    EmptyList,
}

/// An element in place of nulls, as a column stores it.
///
/// # Errors
/// It has another number of bytes, or is a time that the column cannot store.
pub(super) fn stored_null(null: &[u8], info: &ColumnInfo) -> Result<Vec<u8>, String> {
    let size = info.layout.clone()?.dtype().size();
    if null.len() != size {
        return Err(format!("an element in place of nulls has {} bytes; expected {size}", null.len()));
    }
    let time = |factor: i64| {
        let nanoseconds = null.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let is_whole = nanoseconds % factor == 0;
        let stored = is_whole.then(|| nanoseconds / factor);
        stored.ok_or_else(|| format!("nulls= has {nanoseconds} ns; expected a multiple of {factor} ns"))
    };
    Ok(match info.conversion {
        Conversion::Same => null.to_vec(),
        // The bytes behind are left out again.
        Conversion::Narrow(_) => [null, &[0; 4]].concat()[..4].to_vec(),
        Conversion::Times(factor) => time(factor)?.to_le_bytes().to_vec(),
        Conversion::Widen(factor) => {
            let stored = i32::try_from(time(factor)?);
            stored
                .map_err(|_| "nulls= has a time that the column cannot store".to_owned())?
                .to_le_bytes()
                .to_vec()
        }
    })
}

/// The field of some decoded rows, without the first `skipped` ones.
pub(super) fn field_of(
    info: &ColumnInfo,
    layout: Result<ColumnLayout, String>,
    decoded: DecodedRows,
    skipped: usize,
    count: usize,
) -> Result<ChunkField, String> {
    let layout = layout?;
    let dtype = layout.dtype();
    let width = stored_width(info, dtype);
    let cut = || "pages hold fewer rows than the index says".to_owned();
    // The elements of the rows, and where each row begins among them.
    let (elements, offsets) = match layout {
        ColumnLayout::Scalar(_) => (skipped..skipped + count, None),
        ColumnLayout::Fixed(..) if !info.is_list => (skipped..skipped + count, None),
        _ => {
            let start = |row: usize| match decoded.starts.get(row) {
                Some(&start) => Some(start),
                None => (row == decoded.starts.len()).then_some(decoded.elements),
            };
            let (first, end) = (start(skipped).ok_or_else(cut)?, start(skipped + count).ok_or_else(cut)?);
            let offsets =
                (skipped..=skipped + count).map(|row| start(row).unwrap_or(end) - first).collect::<Vec<_>>();
            (first..end, Some(offsets))
        }
    };
    let bytes = elements.start.checked_mul(width).zip(elements.end.checked_mul(width)).ok_or_else(cut)?;
    if bytes.1 > decoded.values.len() {
        return Err(cut());
    }
    let values = Bytes::from(decoded.values).slice(bytes.0..bytes.1);
    let values = convert(values, info.conversion)?;
    let tensor =
        |shape: &[usize]| Tensor::from_bytes(values.clone(), dtype, shape).map_err(|error| error.to_string());
    match (layout, offsets) {
        (ColumnLayout::Scalar(_), _) => Ok(tensor(&[count])?.into()),
        (ColumnLayout::Fixed(_, extent), offsets) => {
            let differs = offsets
                .iter()
                .flat_map(|offsets| offsets.windows(2))
                .position(|pair| pair[1] - pair[0] != extent);
            match differs {
                Some(row) => Err(format!("row {row} of them has another number of elements than {extent}")),
                None => Ok(tensor(&[count, extent])?.into()),
            }
        }
        (_, offsets) => {
            let offsets: Vec<i64> =
                offsets.unwrap_or_default().iter().map(|&offset| offset.cast_signed() as i64).collect();
            let elements = tensor(&[elements.len()])?;
            Sequences::new(&info.name, elements, &offsets)
                .map(ChunkField::Lists)
                .map_err(|error| error.to_string())
        }
    }
}

/// The bytes of a stored element.
fn stored_width(info: &ColumnInfo, dtype: DType) -> usize {
    match (info.conversion, &info.layout) {
        (Conversion::Narrow(_) | Conversion::Widen(_), _) => 4,
        (_, Ok(ColumnLayout::Fixed(DType::U8, extent))) if !info.is_list => *extent,
        _ => dtype.size(),
    }
}

/// Stored values as elements.
///
/// # Errors
/// A time is more nanoseconds than 64 bits count.
fn convert(values: Bytes, conversion: Conversion) -> Result<Bytes, String> {
    let time = |value: i64, factor: i64| {
        let nanoseconds = value.checked_mul(factor);
        nanoseconds.ok_or_else(|| format!("a time is {value} times {factor} ns, more than 64 bits count"))
    };
    let mut converted = Vec::new();
    match conversion {
        Conversion::Same => return Ok(values),
        Conversion::Narrow(width) => {
            converted.extend(values.as_chunks::<4>().0.iter().flat_map(|value| &value[..width]));
        }
        Conversion::Times(factor) => {
            for &value in values.as_chunks().0 {
                converted.extend_from_slice(&time(i64::from_le_bytes(value), factor)?.to_le_bytes());
            }
        }
        Conversion::Widen(factor) => {
            for &value in values.as_chunks().0 {
                converted.extend_from_slice(&time(i32::from_le_bytes(value).into(), factor)?.to_le_bytes());
            }
        }
    }
    Ok(converted.into())
}

/// The rows that are written at a time, so that what is written stays in the cache.
const BLOCK_ROWS: usize = 64;

/// Columns of values of `width` bytes as one matrix, row by row.
pub(super) fn join_columns(columns: &[&[u8]], width: usize, rows: usize) -> Vec<u8> {
    match width {
        4 => join::<4>(columns, rows),
        8 => join::<8>(columns, rows),
        2 => join::<2>(columns, rows),
        _ => join::<1>(columns, rows),
    }
}

fn join<const W: usize>(columns: &[&[u8]], rows: usize) -> Vec<u8> {
    let mut joined = vec![0; rows * columns.len() * W];
    let each: Vec<&[[u8; W]]> = columns.iter().map(|column| column.as_chunks().0).collect();
    let block = BLOCK_ROWS * columns.len() * W;
    for (number, block) in joined.chunks_mut(block.max(1)).enumerate() {
        let first = number * BLOCK_ROWS;
        let (places, _) = block.as_chunks_mut::<W>();
        for (column, values) in each.iter().enumerate() {
            let rows = places.len() / columns.len().max(1);
            for (row, value) in values[first..first + rows].iter().enumerate() {
                places[row * columns.len() + column] = *value;
            }
        }
    }
    joined
}
