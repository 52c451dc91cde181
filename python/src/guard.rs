//! A guard around code that reads descriptions of memory which another library made.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::error::DataError;

/// Runs `read`, and turns a panic into an error that names the field: libraries panic on descriptions that contradict
/// themselves in a way that no check has foreseen.
pub(crate) fn catch_panic<T>(field: &str, read: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let reason = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(DataError::new_err(format!(
            "field {field} is described in a way that contradicts itself: {reason}"
        )))
    })
}
