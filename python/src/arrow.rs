//! Arrow lists in: any object with the Arrow PyCapsule interface, without a copy if it is one chunk.
//!
//! Promises: what a producer says of its memory is checked before anything is read by it, as far as it can be: lengths,
//! offsets, children, buffers, and every offset of a list. A struct is taken over once; one that was released or taken
//! before is refused.
//!
//! One of the files that may be unsafe: it follows the pointers of a producer, as the interface demands.
#![expect(unsafe_code, reason = "Arrow's C interface describes memory by pointers")]

use std::ffi::{CStr, c_void};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{ArrayRef, make_array, new_empty_array};
use arrow_schema::DataType;
use batchloom::dataset::arrow_lists;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::guard::guarded;

/// The most levels of types within types that are followed.
const DEEPEST: usize = 64;
/// The most elements of an array: more bytes than memory can have, even of the smallest type.
const MOST: i64 = i64::MAX / 64;

/// Lists as (values, offsets): values of shape `[total, ..]`, offsets as int64. `field` names them in errors.
#[pyfunction]
pub(crate) fn borrow_lists(object: &Bound<'_, PyAny>, field: &str) -> PyResult<(Tensor, Tensor)> {
    guarded(field, || {
        let failed = |error: PyErr| {
            let (kind, reason) = (object.get_type(), error.value(object.py()).to_string());
            DataError::new_err(format!("field {field}, a {kind}, gave no Arrow array: {reason}"))
        };
        let chunks = Producer::of(object).and_then(Producer::chunks).map_err(failed)?;
        let (values, offsets) = arrow_lists(field, &chunks).map_err(|error| raise(&error))?;
        let len = offsets.len();
        let offsets = batchloom::Tensor::from_vec(offsets, &[len]).map_err(|error| raise(&error))?;
        Ok((Tensor(values), Tensor(offsets)))
    })
}

/// Returns true if an Arrow array holds a number, or a boolean, for each sample.
#[pyfunction]
pub(crate) fn are_numbers(object: &Bound<'_, PyAny>) -> bool {
    let described = guarded("", || looked_up(object));
    described.is_ok_and(|found| found.is_numeric() || found == DataType::Boolean)
}

/// The type of an object's arrays, whose structs are left with it.
fn looked_up(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
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
    described(unsafe { &mut *stream })
}

/// The type of a stream's arrays.
fn described(stream: &mut FFI_ArrowArrayStream) -> PyResult<DataType> {
    if stream.release.is_none() {
        return Err(refused("its stream was released, or taken before"));
    }
    let mut schema = FFI_ArrowSchema::empty();
    let get_schema = stream.get_schema.ok_or_else(|| refused("its stream has no get_schema"))?;
    // SAFETY: the stream is not released, and `schema` is an empty struct that it may fill.
    match unsafe { get_schema(stream, &raw mut schema) } {
        0 => type_of(&schema),
        code => Err(refused(&format!("its stream has no schema: {}", stream_error(stream, code)))),
    }
}

/// The record batches of a reader that this package made with pyarrow.
pub(crate) fn record_batches(reader: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    match Producer::of(reader)? {
        Producer::Stream(stream) => {
            ArrowArrayStreamReader::try_new(stream).map_err(|error| refused(&error.to_string()))
        }
        Producer::Array(..) => Err(refused("it is one array; expected a reader of record batches")),
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
            Self::Array(schema, array) => Ok(vec![imported(array, &type_of(&schema)?)?]),
            Self::Stream(mut stream) => {
                let data_type = described(&mut stream)?;
                let mut chunks = Vec::new();
                while let Some(array) = next_of(&mut stream)? {
                    chunks.push(imported(array, &data_type)?);
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
    let get_next = stream.get_next.ok_or_else(|| refused("its stream has no get_next"))?;
    // SAFETY: the stream is not released, and `array` is an empty struct that it may fill.
    match unsafe { get_next(stream, &raw mut array) } {
        0 => Ok(array.release.is_some().then_some(array)),
        code => Err(refused(&format!("its stream failed: {}", stream_error(stream, code)))),
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

fn refused(reason: &str) -> PyErr {
    DataError::new_err(reason.to_owned())
}

/// The type that a schema describes.
fn type_of(schema: &FFI_ArrowSchema) -> PyResult<DataType> {
    check_schema(schema, 0)?;
    DataType::try_from(schema).map_err(|error| refused(&error.to_string()))
}

/// Checks that a schema has what its readers follow: a format, and as many children as it says.
fn check_schema(schema: &FFI_ArrowSchema, depth: usize) -> PyResult<()> {
    if schema.release.is_none() {
        return Err(refused("its schema was released, or taken before"));
    }
    if depth > DEEPEST {
        return Err(refused("its types lie more than 64 deep in each other"));
    }
    for (text, name) in [(schema.format, "format"), (schema.name, "name")] {
        if text.is_null() && name == "format" {
            return Err(refused("its schema has no format"));
        }
        // SAFETY: a text that is not null ends with 0.
        if !text.is_null() && unsafe { CStr::from_ptr(text) }.to_str().is_err() {
            return Err(refused(&format!("the {name} in its schema is not UTF-8")));
        }
    }
    if !schema.dictionary.is_null() {
        return Err(refused("its values are a dictionary; expected plain values: decode it first"));
    }
    // SAFETY: the schema has so many pointers to children, as the interface says.
    let children = unsafe { children(schema.n_children, schema.children.cast()) }?;
    for &child in children {
        let child: *const FFI_ArrowSchema = child.cast();
        // SAFETY: a child that is not null is a schema, which lives as long as this one.
        let child = unsafe { child.as_ref() }.ok_or_else(|| refused("a child of its schema is missing"))?;
        check_schema(child, depth + 1)?;
    }
    Ok(())
}

/// The pointers to children.
///
/// # Safety
/// If `found` is not null, there are `count` of them, which last as long as the result is used.
unsafe fn children<'a>(count: i64, found: *const *const c_void) -> PyResult<&'a [*const c_void]> {
    match usize::try_from(count).ok().filter(|&count| count <= 1 << 16) {
        Some(0) => Ok(&[]),
        Some(_) if found.is_null() => Err(refused(&format!("it has {count} children, and no list of them"))),
        // SAFETY: the caller says so.
        Some(count) => Ok(unsafe { std::slice::from_raw_parts(found, count) }),
        None => Err(refused(&format!("it has {count} children; expected 0 to 65536"))),
    }
}

/// Takes an array over. One of a type that no dataset reads is taken for an empty one, so that its type is refused.
fn imported(array: FFI_ArrowArray, data_type: &DataType) -> PyResult<ArrayRef> {
    if !is_read(data_type) {
        return Ok(new_empty_array(data_type));
    }
    check_array(&array, data_type)?;
    // SAFETY: the struct is not released, and its lengths, children and buffers are those of its type, as was checked.
    let data = unsafe { from_ffi_and_data_type(array, data_type.clone()) };
    data.map(make_array).map_err(|error| refused(&error.to_string()))
}

/// Returns true for types that arrays are checked for: numbers, booleans, and lists of them.
fn is_read(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => {
            is_read(of.data_type())
        }
        DataType::Boolean => true,
        other => other.is_integer() || other.is_floating(),
    }
}

/// Checks an array of a type that [`is_read`].
fn check_array(array: &FFI_ArrowArray, data_type: &DataType) -> PyResult<()> {
    if array.release.is_none() {
        return Err(refused("it was released, or taken before"));
    }
    let (length, offset) = (array.length, array.offset);
    if length < 0 || offset < 0 || length.checked_add(offset).is_none_or(|end| end > MOST) {
        return Err(refused(&format!(
            "it has length {length} and offset {offset}; expected neither to be negative or huge"
        )));
    }
    if array.null_count < -1 || array.null_count > length {
        return Err(refused(&format!("it has {} nulls in {length} values", array.null_count)));
    }
    let is_fixed = matches!(data_type, DataType::FixedSizeList(..));
    let expected = (if is_fixed { 1 } else { 2 }, i64::from(data_type.is_nested()));
    let found = (array.n_buffers, array.n_children);
    if found != expected {
        return Err(refused(&format!(
            "as {data_type} it has {} buffers and {} children; expected {} and {}",
            found.0, found.1, expected.0, expected.1
        )));
    }
    if !array.dictionary.is_null() {
        return Err(refused("its values are a dictionary; expected plain values: decode it first"));
    }
    // SAFETY: the array has so many pointers to buffers, as the interface says.
    let buffers = unsafe { children(array.n_buffers, array.buffers.cast()) }?;
    if array.null_count > 0 && buffers[0].is_null() {
        return Err(refused(&format!("it has {} nulls, and no buffer that says where", array.null_count)));
    }
    if let Some(values) = buffers.get(1)
        && values.is_null()
        && length > 0
    {
        return Err(refused(&format!("it has {length} values, and no buffer of them")));
    }
    match data_type {
        DataType::List(of) => {
            let end = check_offsets::<i32>(buffers[1], offset, length)?;
            check_child(array, of.data_type(), end)
        }
        DataType::LargeList(of) => {
            let end = check_offsets::<i64>(buffers[1], offset, length)?;
            check_child(array, of.data_type(), end)
        }
        DataType::FixedSizeList(of, width) => {
            let end = i64::from(*width).checked_mul(offset + length).filter(|_| *width >= 0);
            let end = end.ok_or_else(|| refused(&format!("its lists have {width} values each")))?;
            check_child(array, of.data_type(), end)
        }
        _ => Ok(()),
    }
}

/// Checks that offsets begin at 0 or above and never fall; returns the last one.
fn check_offsets<T: Copy + Into<i64>>(buffer: *const c_void, offset: i64, length: i64) -> PyResult<i64> {
    // No list may have no offset at all, in a buffer of no bytes.
    if length == 0 || buffer.is_null() {
        return Ok(0);
    }
    let mut before = 0;
    for place in offset..=offset + length {
        let address = buffer.cast::<T>().wrapping_add(usize::try_from(place).unwrap_or(0));
        // SAFETY: the buffer has an offset for each list, and one more, as the interface says; it may lie anywhere.
        let found: i64 = unsafe { address.read_unaligned() }.into();
        if found < before {
            return Err(refused(&format!(
                "offset {place} of its lists is {found}, below {before}, the one before"
            )));
        }
        before = found;
    }
    Ok(before)
}

/// Checks the values of lists, of which at least `least` are needed.
fn check_child(array: &FFI_ArrowArray, data_type: &DataType, least: i64) -> PyResult<()> {
    // SAFETY: the array has so many pointers to children, as the interface says.
    let children = unsafe { children(array.n_children, array.children.cast()) }?;
    let child: *const FFI_ArrowArray = children.first().map_or(std::ptr::null(), |child| child.cast());
    // SAFETY: a child that is not null is an array, which lives as long as this one.
    let child = unsafe { child.as_ref() }.ok_or_else(|| refused("the values of its lists are missing"))?;
    check_array(child, data_type)?;
    match child.length < least {
        true => Err(refused(&format!("its lists reach to value {least}, and there are {}", child.length))),
        false => Ok(()),
    }
}
