//! Arrow lists in: any object with the Arrow PyCapsule interface, without a copy if it is one chunk.

use arrow_schema::DataType;
use batchloom::dataset::arrow_lists;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyArray;

use crate::dlpack::Tensor;
use crate::error::{DataError, raise};

/// Lists as (values, offsets): values of shape `[total, ..]`, offsets as int64. `field` names them in errors.
#[pyfunction]
pub(crate) fn borrow_lists(object: &Bound<'_, PyAny>, field: &str) -> PyResult<(Tensor, Tensor)> {
    let failed = |error: PyErr| {
        let kind = object.get_type();
        DataError::new_err(format!("field {field}, a {kind}, gave no Arrow array: {error}"))
    };
    let chunked = object.extract::<AnyArray>().map_err(failed)?.into_chunked_array();
    let (mut chunks, description) = chunked.map_err(|error| failed(PyErr::from(error)))?.into_inner();
    if chunks.is_empty() {
        chunks.push(arrow_array::new_empty_array(description.data_type()));
    }
    let (values, offsets) = arrow_lists(field, &chunks).map_err(|error| raise(&error))?;
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
