//! Structs of Arrow's C interface, checked before anything is read by them, and taken over as arrays.
//!
//! Promises: lengths, offsets, children, buffers, and every offset of a list are checked as far as they can be; a
//! struct that was released or taken before is refused. A producer that lies about the size of a buffer cannot be seen
//! through. Errors are words that go on from the name of the field.
//!
//! One of the files that may be unsafe: it follows the pointers of a producer, as the interface demands. It knows
//! nothing of Python, so that the fuzz target `arrow` is of this very file.
#![expect(unsafe_code, reason = "Arrow's C interface describes memory by pointers")]

use std::ffi::{CStr, c_void};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::{ArrayRef, make_array, new_empty_array};
use arrow_schema::DataType;

/// The most levels of types within types that are followed.
const DEEPEST: usize = 64;
/// The most elements of an array: more bytes than memory can have, even of the smallest type.
const MOST: i64 = i64::MAX / 64;

/// The reason for which a struct is refused.
type Checked<T> = Result<T, String>;

fn refuse<T>(reason: &str) -> Checked<T> {
    Err(reason.to_owned())
}

/// The type that a schema describes.
pub(crate) fn type_of(schema: &FFI_ArrowSchema) -> Checked<DataType> {
    check_schema(schema, 0)?;
    DataType::try_from(schema).map_err(|error| error.to_string())
}

/// Checks that a schema has what its readers follow: a format, and the number of children that it declares.
fn check_schema(schema: &FFI_ArrowSchema, depth: usize) -> Checked<()> {
    if schema.release.is_none() {
        return refuse("its schema was released, or taken before");
    }
    if depth > DEEPEST {
        return refuse("its types lie more than 64 deep in each other");
    }
    for (text, name) in [(schema.format, "format"), (schema.name, "name")] {
        if text.is_null() && name == "format" {
            return refuse("its schema has no format");
        }
        // SAFETY: a text that is not null ends with 0.
        if !text.is_null() && unsafe { CStr::from_ptr(text) }.to_str().is_err() {
            return Err(format!("the {name} in its schema is not UTF-8"));
        }
    }
    if !schema.dictionary.is_null() {
        return refuse("its values are a dictionary; expected plain values: decode it first");
    }
    // SAFETY: the schema has so many pointers to children, as the interface says.
    let children = unsafe { pointer_list(schema.n_children, schema.children.cast()) }?;
    for &child in children {
        let child: *const FFI_ArrowSchema = child.cast();
        // SAFETY: a child that is not null is a schema, which lives as long as this one.
        let child = unsafe { child.as_ref() }.ok_or("a child of its schema is missing")?;
        check_schema(child, depth + 1)?;
    }
    Ok(())
}

/// The pointers to children.
///
/// # Safety
/// If `list` is not null, it holds `count` pointers, which last as long as the result is used.
unsafe fn pointer_list<'a>(count: i64, list: *const *const c_void) -> Checked<&'a [*const c_void]> {
    match usize::try_from(count).ok().filter(|&count| count <= 1 << 16) {
        Some(0) => Ok(&[]),
        Some(_) if list.is_null() => Err(format!("it has {count} children, and no list of them")),
        // SAFETY: the caller says so.
        Some(count) => Ok(unsafe { std::slice::from_raw_parts(list, count) }),
        None => Err(format!("it has {count} children; expected 0 to 65536")),
    }
}

/// Takes an array over. One of a type that no dataset reads is taken for an empty one, so that its type is refused.
pub(crate) fn import(array: FFI_ArrowArray, data_type: &DataType) -> Checked<ArrayRef> {
    if !is_read(data_type) && !is_text(data_type) {
        return Ok(new_empty_array(data_type));
    }
    check_array(&array, data_type)?;
    if array.length == 0 {
        // Its buffers may hold nothing, not even the offset before the first list.
        return Ok(new_empty_array(data_type));
    }
    // SAFETY: the struct is not released, and its lengths, children and buffers are those of its type, as was checked. Texts
    // are validated before anything reads them.
    let data = unsafe { from_ffi_and_data_type(array, data_type.clone()) };
    let data = data.map_err(|error| error.to_string())?;
    if is_text(data_type) {
        data.validate_full().map_err(|error| format!("its texts are no UTF-8: {error}"))?;
    }
    Ok(make_array(data))
}

/// Returns true for texts that arrays are checked for. Lists of them are not read.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
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

/// Checks an array of a type that [`is_read`], or [`is_text`].
fn check_array(array: &FFI_ArrowArray, data_type: &DataType) -> Checked<()> {
    if array.release.is_none() {
        return refuse("it was released, or taken before");
    }
    let (length, offset) = (array.length, array.offset);
    if length < 0 || offset < 0 || length.checked_add(offset).is_none_or(|end| end > MOST) {
        return Err(format!(
            "it has length {length} and offset {offset}; expected neither to be negative or huge"
        ));
    }
    if array.null_count < -1 || array.null_count > length {
        return Err(format!("it has {} nulls in {length} values", array.null_count));
    }
    let buffers = match data_type {
        DataType::FixedSizeList(..) => 1,
        DataType::Utf8 | DataType::LargeUtf8 => 3,
        _ => 2,
    };
    let expected = (buffers, i64::from(data_type.is_nested()));
    let counts = (array.n_buffers, array.n_children);
    if counts != expected {
        return Err(format!(
            "as {data_type} it has {} buffers and {} children; expected {} and {}",
            counts.0, counts.1, expected.0, expected.1
        ));
    }
    if !array.dictionary.is_null() {
        return refuse("its values are a dictionary; expected plain values: decode it first");
    }
    // SAFETY: the array has so many pointers to buffers, as the interface says.
    let buffers = unsafe { pointer_list(array.n_buffers, array.buffers.cast()) }?;
    if array.null_count > 0 && buffers[0].is_null() {
        return Err(format!("it has {} nulls, and no buffer that says where", array.null_count));
    }
    if let Some(values) = buffers.get(1)
        && values.is_null()
        && length > 0
    {
        return Err(format!("it has {length} values, and no buffer of them"));
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
            let end = end.ok_or_else(|| format!("its lists have {width} values each"))?;
            check_child(array, of.data_type(), end)
        }
        DataType::Utf8 => check_text(buffers, check_offsets::<i32>(buffers[1], offset, length)?),
        DataType::LargeUtf8 => check_text(buffers, check_offsets::<i64>(buffers[1], offset, length)?),
        _ => Ok(()),
    }
}

/// Checks that texts that reach to byte `end` have a buffer.
fn check_text(buffers: &[*const c_void], end: i64) -> Checked<()> {
    match end > 0 && buffers[2].is_null() {
        true => Err(format!("its texts reach to byte {end}, and there is no buffer of them")),
        false => Ok(()),
    }
}

/// Checks that offsets begin at 0 or above and never fall; returns the last one.
fn check_offsets<T: Copy + Into<i64>>(buffer: *const c_void, offset: i64, length: i64) -> Checked<i64> {
    // No lists may have no offset at all, in a buffer of no bytes.
    if length == 0 || buffer.is_null() {
        return Ok(0);
    }
    let mut before = 0;
    for place in offset..=offset + length {
        let address = buffer.cast::<T>().wrapping_add(usize::try_from(place).unwrap_or(0));
        // SAFETY: the buffer has an offset for each list, and one more, as the interface says; it may lie anywhere.
        let list_offset: i64 = unsafe { address.read_unaligned() }.into();
        if list_offset < before {
            return Err(format!(
                "offset {place} of its lists is {list_offset}, below {before}, the one before"
            ));
        }
        before = list_offset;
    }
    Ok(before)
}

/// Checks the values of lists; at least `least` are needed.
fn check_child(array: &FFI_ArrowArray, data_type: &DataType, least: i64) -> Checked<()> {
    // SAFETY: the array has so many pointers to children, as the interface says.
    let children = unsafe { pointer_list(array.n_children, array.children.cast()) }?;
    let child: *const FFI_ArrowArray = children.first().map_or(std::ptr::null(), |child| child.cast());
    // SAFETY: a child that is not null is an array, which lives as long as this one.
    let child = unsafe { child.as_ref() }.ok_or("the values of its lists are missing")?;
    check_array(child, data_type)?;
    match child.length < least {
        true => Err(format!("its lists reach to value {least}, and there are {}", child.length)),
        false => Ok(()),
    }
}
