//! Memory for blocks that a function of Python allocates, for workers of the engine.
//!
//! A worker that asks for it runs anything that Python runs then: it may collect garbage, or find that the interpreter
//! ends. So it is counted while it asks, and the end of the interpreter waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use batchloom::Error;
use pyo3::prelude::*;

use crate::dlpack::{Lent, lent};

/// The number of workers that are asking Python for memory.
static ASKING: AtomicU64 = AtomicU64::new(0);

/// A worker that is asking, counted as long as this lives.
struct Asking;

impl Asking {
    fn new() -> Self {
        ASKING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits, for at most ten seconds, until no worker asks Python for memory. Workers of iterations that were closed or
/// dropped do not ask again.
#[pyfunction]
pub(crate) fn settle(py: Python<'_>) {
    let end = Instant::now() + Duration::from_secs(10);
    py.detach(|| {
        while ASKING.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Resets the count: a forked child has no workers.
pub(crate) fn forget() {
    ASKING.store(0, Ordering::Relaxed);
}

/// Allocates memory with a function of Python, from any thread.
pub(crate) fn allocated(allocate: &Py<PyAny>, bytes: usize) -> batchloom::Result<Lent> {
    let _asking = Asking::new();
    let failed = |reason: String| Error::Memory { bytes, reason };
    let lend = |py: Python<'_>| lent(allocate.bind(py).call1((bytes,))?.as_any());
    let found = Python::try_attach(|py| lend(py).map_err(|error| failed(error.to_string())));
    found.unwrap_or_else(|| Err(failed("the interpreter is ending".to_owned())))
}
