//! The engine's errors as Python exceptions, one class for each kind. The classes are written in Python.

use batchloom::dataset::FailedPart;
use batchloom::error::ReadError;
use batchloom::{Error, Kind};
use pyo3::prelude::*;

// They are written in batchloom/errors.py.
mod class {
    pyo3::import_exception!(batchloom.errors, ArgumentError);
    pyo3::import_exception!(batchloom.errors, DataError);
    pyo3::import_exception!(batchloom.errors, DeviceError);
    pyo3::import_exception!(batchloom.errors, DTypeError);
    pyo3::import_exception!(batchloom.errors, LoaderError);
    pyo3::import_exception!(batchloom.errors, OutOfMemoryError);
    pyo3::import_exception!(batchloom.errors, RangeError);
    pyo3::import_exception!(batchloom.errors, SampleError);
    pyo3::import_exception!(batchloom.errors, StateError);
    pyo3::import_exception!(batchloom.errors, UnsupportedFileError);
}

pub(crate) use class::{
    ArgumentError, DTypeError, DataError, DeviceError, LoaderError, OutOfMemoryError, RangeError,
    SampleError, StateError, UnsupportedFileError,
};

/// The exception for an error of the engine.
pub(crate) fn raise(error: &Error) -> PyErr {
    let failed = error.reading().and_then(ReadError::cause).map(|cause| cause.get());
    if let Some(exception) = failed.and_then(|cause| cause.downcast_ref::<PyErr>()) {
        // An error of the user's function or its process, which names the sample.
        return Python::attach(|py| exception.clone_ref(py));
    }
    let part = failed.and_then(|cause| cause.downcast_ref::<FailedPart>());
    if let Some((part, exception)) = part.and_then(|part| Some((part, part.cause.downcast_ref::<PyErr>()?))) {
        return Python::attach(|py| {
            let text = format!("dataset {}: {}", part.dataset, exception.value(py));
            let named = SampleError::new_err((text, error.sample()));
            named.set_cause(py, Some(exception.clone_ref(py)));
            named
        });
    }
    let message = error.to_string();
    match error.kind() {
        Kind::Argument => ArgumentError::new_err(message),
        Kind::Data => DataError::new_err(message),
        Kind::Range => RangeError::new_err(message),
        Kind::Type => DTypeError::new_err(message),
        Kind::Device => DeviceError::new_err(message),
        Kind::State => StateError::new_err(message),
        Kind::Memory => OutOfMemoryError::new_err(message),
        _ => LoaderError::new_err(message),
    }
}
