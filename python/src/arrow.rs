//! Arrow lists in: any object with the Arrow PyCapsule interface, without a copy if it is one chunk.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, OffsetSizeTrait};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use batchloom::DType;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyArray;

use crate::dlpack::Tensor;
use crate::error::{DTypeError, DataError, raise};

/// The memory of an Arrow buffer.
struct Memory(Buffer);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lists as (values, offsets): values of shape `[total, ..]`, offsets as int64. `field` names them in errors.
#[pyfunction]
pub(crate) fn borrow_lists(object: &Bound<'_, PyAny>, field: &str) -> PyResult<(Tensor, Tensor)> {
    let failed = |error: PyErr| {
        let kind = object.get_type();
        DataError::new_err(format!("field {field}, a {kind}, gave no Arrow array: {error}"))
    };
    let chunked = object.extract::<AnyArray>().map_err(failed)?.into_chunked_array();
    let (chunks, description) = chunked.map_err(|error| failed(PyErr::from(error)))?.into_inner();
    let whole = match chunks.as_slice() {
        [] => arrow_array::new_empty_array(description.data_type()),
        [chunk] => Arc::clone(chunk),
        chunks => {
            let chunks: Vec<&dyn Array> = chunks.iter().map(AsRef::as_ref).collect();
            arrow_select::concat::concat(&chunks)
                .map_err(|error| DataError::new_err(format!("field {field}: {error}")))?
        }
    };
    if let Some(sample) = first_null(&whole) {
        return Err(DataError::new_err(format!(
            "field {field}: sample {sample} is null; expected a list for every sample (drop it, or fill it with an \
             empty one)"
        )));
    }
    let (offsets, values) = lists(&whole, field)?;
    let within = values.slice(index(offsets.first()), index(offsets.last()) - index(offsets.first()));
    if let Some(null) = first_inner_null(&within) {
        let value = null + index(offsets.first());
        let sample = offsets.partition_point(|&offset| index(Some(&offset)) <= value) - 1;
        return Err(DataError::new_err(format!(
            "field {field}: sample {sample} holds a null; expected a value in every place"
        )));
    }
    let mut inner = Vec::new();
    let (bytes, dtype) = elements(&values, &mut inner, field)?;
    let width = inner.iter().product::<usize>() * dtype.size();
    let shape = [&[values.len()], inner.as_slice()].concat();
    let strides = compact(&shape, dtype.size());
    debug_assert!(bytes.len() >= values.len() * width);
    let values = batchloom::Tensor::new(bytes, dtype, &shape, &strides, 0).map_err(|error| raise(&error))?;
    let len = offsets.len();
    let offsets = batchloom::Tensor::from_vec(offsets, &[len]).map_err(|error| raise(&error))?;
    Ok((Tensor(values), Tensor(offsets)))
}

/// Returns true if an Arrow array holds a number, or a boolean, for each sample.
#[pyfunction]
pub(crate) fn are_numbers(object: &Bound<'_, PyAny>) -> bool {
    let described = object.extract::<AnyArray>().and_then(|array| array.field());
    described.is_ok_and(|field| field.data_type().is_numeric() || *field.data_type() == DataType::Boolean)
}

/// The offsets of lists, and all their values.
fn lists(array: &ArrayRef, field: &str) -> PyResult<(Vec<i64>, ArrayRef)> {
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
        other => Err(DTypeError::new_err(format!(
            "field {field} is an Arrow array of {other}; expected lists of numbers (list, large_list or \
             fixed_size_list)"
        ))),
    }
}

/// The memory of numbers, and their type. The shape of each value goes to `inner`.
fn elements(array: &ArrayRef, inner: &mut Vec<usize>, field: &str) -> PyResult<(Bytes, DType)> {
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
        DataType::Boolean => (unpacked(array.as_boolean()), DType::Bool),
        DataType::FixedSizeList(_, width) => {
            inner.push(usize::try_from(*width).unwrap_or(0));
            return elements(array.as_fixed_size_list().values(), inner, field);
        }
        other => {
            return Err(DTypeError::new_err(format!(
                "field {field} holds lists of {other}; expected lists of numbers, or of fixed_size_lists of them"
            )));
        }
    })
}

/// Booleans as bytes: Arrow stores them as bits.
fn unpacked(array: &BooleanArray) -> Bytes {
    let bits = array.values();
    Bytes::from(bits.iter().map(u8::from).collect::<Vec<_>>())
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

fn compact(shape: &[usize], size: usize) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = size.cast_signed();
    for (stride, &len) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step *= len.max(1).cast_signed();
    }
    strides
}

/// An offset as an index; offsets of a valid array are not negative.
fn index(offset: Option<&i64>) -> usize {
    offset.map_or(0, |&offset| usize::try_from(offset).unwrap_or(0))
}
