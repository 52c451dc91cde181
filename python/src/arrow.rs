//! Arrow lists and rows in: any object with the Arrow PyCapsule interface, without a copy.
//!
//! Promises: what a producer says of its memory is checked before anything is read by it, as far as it can be
//! (`arrow_structs`). A struct is taken over once; one that was released or taken before is refused.
//!
//! One of the files that may be unsafe: it follows the pointers of capsules, as the interface demands.
#![expect(unsafe_code, reason = "Arrow's C interface describes memory by pointers")]

use std::ffi::{CStr, c_void};

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{ArrayRef, new_empty_array};
use arrow_schema::DataType;
use batchloom::dataset::{arrow_lists, arrow_rows};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow_structs;
use crate::chunked::ChunkedTensor;
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::guard::catch_panic;

/// Lists as (values, offsets): values of shape `[total, ..]`, offsets as int64. `field` names them in errors.
#[pyfunction]
pub(crate) fn borrow_lists(object: &Bound<'_, PyAny>, field: &str) -> PyResult<(ChunkedTensor, Tensor)> {
    catch_panic(field, || {
        let chunks = take_chunks(object, field)?;
        let (values, offsets) = arrow_lists(field, &chunks).map_err(|error| raise(&error))?;
        let len = offsets.len();
        let offsets = batchloom::Tensor::from_vec(offsets, &[len]).map_err(|error| raise(&error))?;
        Ok((ChunkedTensor(values), Tensor(offsets)))
    })
}

/// The samples of an Arrow array.
#[derive(IntoPyObject)]
pub(crate) enum ArrowRows {
    /// Numbers, booleans, or lists of one size of them: an array with a row for each.
    Numbers(ChunkedTensor),
    /// Texts; `None` for nulls.
    Texts(Vec<Option<String>>),
}

/// The samples of an Arrow array, which is taken once. `field` names them in errors.
#[pyfunction]
pub(crate) fn borrow_rows(object: &Bound<'_, PyAny>, field: &str) -> PyResult<ArrowRows> {
    catch_panic(field, || {
        let chunks = take_chunks(object, field)?;
        let texts = chunks.iter().map(read_texts).collect::<Option<Vec<_>>>();
        match texts {
            Some(texts) => Ok(ArrowRows::Texts(texts.concat())),
            None => arrow_rows(field, &chunks)
                .map(|rows| ArrowRows::Numbers(ChunkedTensor(rows)))
                .map_err(|error| raise(&error)),
        }
    })
}

/// The texts of an array, `None` for each null; `None` for arrays of all other types.
fn read_texts(array: &ArrayRef) -> Option<Vec<Option<String>>> {
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().iter().map(owned).collect()),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().iter().map(owned).collect()),
        _ => None,
    }
}

/// Returns true if an Arrow array holds lists of one size of numbers, or of booleans.
#[pyfunction]
pub(crate) fn are_rows(object: &Bound<'_, PyAny>) -> bool {
    fn holds_numbers(data_type: &DataType) -> bool {
        match data_type {
            DataType::FixedSizeList(field, _) => holds_numbers(field.data_type()),
            inner => inner.is_numeric() || *inner == DataType::Boolean,
        }
    }
    let described = catch_panic("", || look_up(object));
    described
        .is_ok_and(|data_type| matches!(data_type, DataType::FixedSizeList(..)) && holds_numbers(&data_type))
}

/// The arrays of an object, at least one.
fn take_chunks(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Vec<ArrayRef>> {
    Producer::of(object).and_then(Producer::chunks).map_err(|error| {
        let (kind, reason) = (object.get_type(), error.value(object.py()).to_string());
        DataError::new_err(format!("field {field}, a {kind}, gave no Arrow array: {reason}"))
    })
}

/// Returns true if an Arrow array holds a number, or a boolean, for each sample.
#[pyfunction]
pub(crate) fn are_numbers(object: &Bound<'_, PyAny>) -> bool {
    let described = catch_panic("", || look_up(object));
    described.is_ok_and(|data_type| data_type.is_numeric() || data_type == DataType::Boolean)
}

/// The type of an object's arrays; it keeps its structs.
fn look_up(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
    if object.hasattr("__arrow_c_array__")? {
        let capsules = object.call_method0("__arrow_c_array__")?;
        let (schema, _): (Bound<'_, PyCapsule>, Bound<'_, PyAny>) = capsules.extract()?;
        let schema: *const FFI_ArrowSchema = pointer(&schema, c"arrow_schema")?.cast();
        // SAFETY: a capsule of this name holds a schema, which lives as long as the capsule.
        return type_of(unsafe { &*schema });
    }
    let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream: *mut FFI_ArrowArrayStream = pointer(&capsule, c"arrow_array_stream")?.cast();
    // SAFETY: a capsule of this name holds a stream, which lives as long as the capsule, and which nothing else uses while
    // this thread is attached to the interpreter.
    read_type(unsafe { &mut *stream })
}

/// The type of a stream's arrays.
fn read_type(stream: &mut FFI_ArrowArrayStream) -> PyResult<DataType> {
    if stream.release.is_none() {
        return Err(refuse("its stream was released, or taken before"));
    }
    let mut schema = FFI_ArrowSchema::empty();
    let get_schema = stream.get_schema.ok_or_else(|| refuse("its stream has no get_schema"))?;
    // SAFETY: the stream is not released, and `schema` is an empty struct that it may fill.
    match unsafe { get_schema(stream, &raw mut schema) } {
        0 => type_of(&schema),
        code => Err(refuse(&format!("its stream has no schema: {}", stream_error(stream, code)))),
    }
}

/// The record batches of a reader that this package made with pyarrow.
pub(crate) fn record_batches(reader: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    match Producer::of(reader)? {
        Producer::Stream(stream) => {
            ArrowArrayStreamReader::try_new(stream).map_err(|error| refuse(&error.to_string()))
        }
        Producer::Array(..) => Err(refuse("it is one array; expected a reader of record batches")),
    }
}

/// The structs of a producer, taken over from its capsules.
enum Producer {
    /// One array.
    Array(FFI_ArrowSchema, FFI_ArrowArray),
    /// Arrays one after the other.
    Stream(FFI_ArrowArrayStream),
}

impl Producer {
    /// Asks an object for its capsules.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("__arrow_c_array__")? {
            let capsules = object.call_method0("__arrow_c_array__")?;
            let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
            let schema = pointer(&schema, c"arrow_schema")?.cast();
            let array = pointer(&array, c"arrow_array")?.cast();
            // SAFETY: a capsule of this name holds a struct of this kind, as the interface says, which is not in use
            // elsewhere while this thread is attached to the interpreter. It leaves an empty struct behind.
            let schema = unsafe { FFI_ArrowSchema::from_raw(schema) };
            // SAFETY: as above.
            let array = unsafe { FFI_ArrowArray::from_raw(array) };
            return Ok(Self::Array(schema, array));
        }
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let stream = pointer(&capsule, c"arrow_array_stream")?.cast();
        // SAFETY: as above.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream) };
        Ok(Self::Stream(stream))
    }

    /// All its arrays: at least one, which may be empty.
    fn chunks(self) -> PyResult<Vec<ArrayRef>> {
        match self {
            Self::Array(schema, array) => Ok(vec![import(array, &type_of(&schema)?)?]),
            Self::Stream(mut stream) => {
                let data_type = read_type(&mut stream)?;
                let mut chunks = Vec::new();
                while let Some(array) = next_of(&mut stream)? {
                    chunks.push(import(array, &data_type)?);
                }
                if chunks.is_empty() {
                    chunks.push(new_empty_array(&data_type));
                }
                Ok(chunks)
            }
        }
    }
}

/// The pointer of a capsule, which has to have this name.
fn pointer(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<*mut c_void> {
    Ok(capsule.pointer_checked(Some(name))?.as_ptr())
}

/// The next array of a stream; `None` at its end.
fn next_of(stream: &mut FFI_ArrowArrayStream) -> PyResult<Option<FFI_ArrowArray>> {
    let mut array = FFI_ArrowArray::empty();
    let get_next = stream.get_next.ok_or_else(|| refuse("its stream has no get_next"))?;
    // SAFETY: the stream is not released, and `array` is an empty struct that it may fill.
    match unsafe { get_next(stream, &raw mut array) } {
        0 => Ok(array.release.is_some().then_some(array)),
        code => Err(refuse(&format!("its stream failed: {}", stream_error(stream, code)))),
    }
}

/// The words of a stream for its last error, or else the number.
fn stream_error(stream: &mut FFI_ArrowArrayStream, code: i32) -> String {
    let text = stream.get_last_error.and_then(|get| {
        // SAFETY: the stream is not released.
        let text = unsafe { get(stream) };
        // SAFETY: a text that is not null ends with 0, and lasts until the next call.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    });
    text.unwrap_or_else(|| format!("error {code}"))
}

fn refuse(reason: &str) -> PyErr {
    DataError::new_err(reason.to_owned())
}

/// The type that a schema describes.
fn type_of(schema: &FFI_ArrowSchema) -> PyResult<DataType> {
    arrow_structs::type_of(schema).map_err(|reason| refuse(&reason))
}

/// Takes an array over.
fn import(array: FFI_ArrowArray, data_type: &DataType) -> PyResult<ArrayRef> {
    arrow_structs::import(array, data_type).map_err(|reason| refuse(&reason))
}
