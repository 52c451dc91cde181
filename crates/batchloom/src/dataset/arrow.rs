//! Arrow lists as sequences, without a copy. Feature `arrow`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, OffsetSizeTrait};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use bytes::Bytes;

use super::Sequences;
use super::error::ArrowCause;
use crate::batching::error::BatchingCause;
use crate::tensor::Layout;
use crate::tensor::error::TensorCause;
use crate::{ChunkedTensor, DType, Kind, Result, Tensor, memory};

/// Returns the values of lists, `[total, ..]`, and their offsets: list `k` is the values `offsets[k]..offsets[k + 1]`.
///
/// Lists may be `List`, `LargeList` or `FixedSizeList`, of numbers, booleans, or fixed-size lists of these. Values are
/// shared, not copied, chunk by chunk, apart from booleans, which Arrow stores as bits. `field` names the lists in
/// errors.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::types::Float32Type;
/// use arrow_array::{ArrayRef, ListArray};
/// use batchloom::dataset::arrow_lists;
///
/// let lists = [vec![1.0, 2.0, 3.0], vec![], vec![4.0]].map(|list| Some(list.into_iter().map(Some)));
/// let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(lists));
/// let (values, offsets) = arrow_lists("x", &[array])?;
/// assert_eq!(values.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// assert_eq!(offsets, [0, 3, 3, 4]);
/// # Ok::<(), batchloom::Error>(())
/// ```
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if there is no chunk, if chunks do not fit together, or if a list is or holds a
/// null; [`Kind::Type`](crate::Kind::Type) if the array does not hold lists of numbers.
pub fn arrow_lists(field: &str, chunks: &[ArrayRef]) -> Result<(ChunkedTensor, Vec<i64>)> {
    match chunks {
        [] => Err(BatchingCause::NoSamples.into()),
        [chunk] => read_chunk(field, chunk, 0).map(|(values, offsets)| (values.into(), offsets)),
        chunks => join_chunks(field, chunks),
    }
}

/// Returns numbers, booleans, or lists of one size of these (of any depth), as an array with a row for each.
///
/// Values are shared, as [`arrow_lists`] shares them. `field` names the array in errors.
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if there is no chunk, if rows differ in shape, or if a row is or holds a null;
/// [`Kind::Type`](crate::Kind::Type) if the array does not hold numbers, or chunks differ in type.
pub fn arrow_rows(field: &str, chunks: &[ArrayRef]) -> Result<ChunkedTensor> {
    let (mut rows, mut first) = (Vec::with_capacity(chunks.len()), 0);
    for chunk in chunks {
        if let Some(row) = first_inner_null(chunk) {
            return Err(
                ArrowCause::NullValue { field: field.to_owned(), sample: (first + row) as u64 }.into()
            );
        }
        rows.push(read_values(field, chunk)?);
        first += chunk.len();
    }
    ChunkedTensor::new(field, rows)
}

/// The values of all chunks, and the offsets of the lists in them.
fn join_chunks(field: &str, chunks: &[ArrayRef]) -> Result<(ChunkedTensor, Vec<i64>)> {
    let lists = chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
    memory::require_each(lists + 1, size_of::<i64>())?;
    let (mut values, mut joined) = (Vec::with_capacity(chunks.len()), Vec::with_capacity(lists + 1));
    joined.push(0);
    for (number, chunk) in chunks.iter().enumerate() {
        let differs = || ArrowCause::Chunks {
            field: field.to_owned(),
            chunk: number,
            found: chunk.data_type().to_string(),
            expected: chunks[0].data_type().to_string(),
        };
        // Chunks that hold no lists of numbers, after one that does.
        let (read, offsets) = match read_chunk(field, chunk, joined.len() - 1) {
            Err(error) if number > 0 && error.kind() == Kind::Type => return Err(differs().into()),
            read => read?,
        };
        if values.first().is_some_and(|first| !have_one_kind(first, &read)) {
            return Err(differs().into());
        }
        // Values before the first list, and after the last one, are of other slices of the array.
        let taken = index(offsets.first())..index(offsets.last());
        let end = joined[joined.len() - 1];
        joined.extend(offsets[1..].iter().map(|offset| offset - offsets[0] + end));
        values.extend(read.slice(taken));
    }
    Ok((ChunkedTensor::new(field, values)?, joined))
}

/// Returns true if the values of two chunks have one type and one shape.
fn have_one_kind(one: &Tensor, other: &Tensor) -> bool {
    one.dtype() == other.dtype() && one.shape()[1..] == other.shape()[1..]
}

/// The values and the offsets of one chunk, whose first list is number `first_list` of its field.
fn read_chunk(field: &str, chunk: &ArrayRef, first_list: usize) -> Result<(Tensor, Vec<i64>)> {
    let number = |list: usize| (first_list + list) as u64;
    if let Some(list) = first_null(chunk) {
        return Err(ArrowCause::NullList { field: field.to_owned(), sample: number(list) }.into());
    }
    let (offsets, values) = lists(chunk, field)?;
    let (first, end) = (index(offsets.first()), index(offsets.last()));
    if let Some(place) = first_inner_null(&values.slice(first, end - first)) {
        let list = offsets.partition_point(|offset| index(Some(offset)) <= first + place) - 1;
        return Err(ArrowCause::NullValue { field: field.to_owned(), sample: number(list) }.into());
    }
    Ok((read_values(field, &values)?, offsets))
}

/// Numbers, or lists of one size of numbers, as an array over their memory.
fn read_values(field: &str, values: &ArrayRef) -> Result<Tensor> {
    let mut shape = vec![values.len()];
    let (bytes, dtype) = elements(values, &mut shape, field)?;
    let large =
        || TensorCause::Layout { shape: shape.clone(), strides: Vec::new(), offset: 0, bytes: bytes.len() };
    let layout = Layout::compact(&shape, dtype.size()).ok_or_else(large)?;
    Tensor::new(bytes, dtype, &shape, layout.strides(), 0)
}

impl Sequences {
    /// The lists of an Arrow array, in one chunk or several: a sequence for each. See [`arrow_lists`].
    ///
    /// # Errors
    /// The errors of [`arrow_lists`] and of [`new`](Self::new).
    pub fn from_arrow(field: &str, chunks: &[ArrayRef]) -> Result<Self> {
        let (values, offsets) = arrow_lists(field, chunks)?;
        Self::new(field, values, &offsets)
    }
}

/// The memory of an Arrow buffer.
struct Memory(Buffer);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The offsets of lists, and all their values.
fn lists(array: &ArrayRef, field: &str) -> Result<(Vec<i64>, ArrayRef)> {
    // Offsets are copied, as int64.
    memory::require_each(array.len() + 1, size_of::<i64>())?;
    fn parts<O: OffsetSizeTrait + Into<i64>>(array: &ArrayRef) -> (Vec<i64>, ArrayRef) {
        let lists = array.as_list::<O>();
        (lists.value_offsets().iter().map(|&offset| offset.into()).collect(), Arc::clone(lists.values()))
    }
    match array.data_type() {
        DataType::List(_) => Ok(parts::<i32>(array)),
        DataType::LargeList(_) => Ok(parts::<i64>(array)),
        DataType::FixedSizeList(_, width) => {
            let offsets = (0..=array.len()).map(|sample| i64::from(*width) * sample as i64).collect();
            Ok((offsets, Arc::clone(array.as_fixed_size_list().values())))
        }
        other => Err(ArrowCause::NoLists { field: field.to_owned(), found: other.to_string() }.into()),
    }
}

/// The memory of numbers, and their type. The shape of each value is appended to `shape`.
fn elements(array: &ArrayRef, shape: &mut Vec<usize>, field: &str) -> Result<(Bytes, DType)> {
    fn memory<T: ArrowPrimitiveType>(array: &ArrayRef) -> Bytes {
        Bytes::from_owner(Memory(array.as_primitive::<T>().values().inner().clone()))
    }
    Ok(match array.data_type() {
        DataType::Int8 => (memory::<Int8Type>(array), DType::I8),
        DataType::Int16 => (memory::<Int16Type>(array), DType::I16),
        DataType::Int32 => (memory::<Int32Type>(array), DType::I32),
        DataType::Int64 => (memory::<Int64Type>(array), DType::I64),
        DataType::UInt8 => (memory::<UInt8Type>(array), DType::U8),
        DataType::UInt16 => (memory::<UInt16Type>(array), DType::U16),
        DataType::UInt32 => (memory::<UInt32Type>(array), DType::U32),
        DataType::UInt64 => (memory::<UInt64Type>(array), DType::U64),
        DataType::Float16 => (memory::<Float16Type>(array), DType::F16),
        DataType::Float32 => (memory::<Float32Type>(array), DType::F32),
        DataType::Float64 => (memory::<Float64Type>(array), DType::F64),
        DataType::Boolean => (unpack_bits(array.as_boolean()), DType::Bool),
        DataType::FixedSizeList(_, width) => {
            shape.push(usize::try_from(*width).unwrap_or(0));
            return elements(array.as_fixed_size_list().values(), shape, field);
        }
        other => {
            return Err(ArrowCause::Elements { field: field.to_owned(), found: other.to_string() }.into());
        }
    })
}

/// Booleans as bytes: Arrow stores them as bits.
fn unpack_bits(array: &BooleanArray) -> Bytes {
    Bytes::from(array.values().iter().map(u8::from).collect::<Vec<_>>())
}

fn first_null(array: &ArrayRef) -> Option<usize> {
    (array.null_count() > 0).then(|| (0..array.len()).find(|&place| array.is_null(place))).flatten()
}

/// The first value that is null or, in lists of fixed size, holds a null.
fn first_inner_null(array: &ArrayRef) -> Option<usize> {
    let inner = array.as_fixed_size_list_opt().and_then(|lists| {
        let width = usize::try_from(lists.value_length()).ok()?;
        Some(first_inner_null(lists.values())? / width)
    });
    first_null(array).into_iter().chain(inner).min()
}

/// An offset as an index. Offsets of a valid array are not negative.
fn index(offset: Option<&i64>) -> usize {
    offset.map_or(0, |&offset| usize::try_from(offset).unwrap_or(0))
}
