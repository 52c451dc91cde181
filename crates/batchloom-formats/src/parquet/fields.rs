//! Fields of chunks, made of decoded rows: types that are converted, lists, and columns joined to a matrix.

use batchloom::dataset::{ChunkField, Sequences};
use batchloom::{DType, Tensor};
use bytes::Bytes;

use super::columns::{ColumnInfo, ColumnLayout, Conversion};
use super::decode::DecodedRows;
use crate::buffers::Buffers;

/// A number as a column stores it, in place of a null.
pub(super) fn stored_null(null: f64, info: &ColumnInfo) -> Option<Vec<u8>> {
    let dtype = info.layout.as_ref().ok()?.dtype();
    #[expect(clippy::cast_possible_truncation, reason = "numbers of users that fit are whole")]
    let whole = null as i64;
    Some(match dtype {
        DType::F32 => {
            #[expect(clippy::cast_possible_truncation, reason = "the type of the column")]
            let value = null as f32;
            value.to_le_bytes().to_vec()
        }
        DType::F64 => null.to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(null != 0.0)],
        DType::I64 | DType::U64 => match info.conversion {
            Conversion::Times(factor) => (whole / factor).to_le_bytes().to_vec(),
            _ => whole.to_le_bytes().to_vec(),
        },
        DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 => {
            whole.to_le_bytes()[..4].to_vec()
        }
        _ => return None,
    })
}

/// The field of some decoded rows, without the first `skipped` ones.
pub(super) fn field_of(
    info: &ColumnInfo,
    layout: Result<ColumnLayout, String>,
    decoded: DecodedRows,
    skipped: usize,
    count: usize,
    buffers: &Buffers,
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
    let values = buffers.share(decoded.values).slice(bytes.0..bytes.1);
    let values = convert(values, info.conversion);
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
        (Conversion::Narrow(_), _) => 4,
        (_, Ok(ColumnLayout::Fixed(DType::U8, extent))) if !info.is_list => *extent,
        _ => dtype.size(),
    }
}

/// Stored values as elements.
fn convert(values: Bytes, conversion: Conversion) -> Bytes {
    match conversion {
        Conversion::Same => values,
        Conversion::Narrow(width) => {
            values.chunks_exact(4).flat_map(|value| &value[..width]).copied().collect::<Vec<_>>().into()
        }
        Conversion::Times(factor) => {
            let times = |value: &[u8]| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(value);
                i64::from_le_bytes(bytes).wrapping_mul(factor).to_le_bytes()
            };
            values.chunks_exact(8).flat_map(times).collect::<Vec<_>>().into()
        }
    }
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
