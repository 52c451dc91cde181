//! Blocks in memory that a function of Python allocates, for workers of the engine.

use batchloom::Error;
use pyo3::prelude::*;

use crate::dlpack::{Lent, take_over};
use crate::interpreter::Visit;

/// Allocates memory with a function of Python, from any thread.
pub(crate) fn allocate_with(allocate: &Py<PyAny>, bytes: usize) -> batchloom::Result<Lent> {
    let failed = |reason: String| Error::out_of_memory(bytes, reason);
    let lend = |py: Python<'_>| take_over(allocate.bind(py).call1((bytes,))?.as_any());
    let visit = Visit::begin();
    let memory =
        visit.and_then(|_visit| Python::try_attach(|py| lend(py).map_err(|error| failed(error.to_string()))));
    memory.unwrap_or_else(|| Err(failed("the interpreter is ending".to_owned())))
}
