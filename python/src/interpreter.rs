//! Visits of the engine's threads to the interpreter, and its end.
//!
//! A worker enters Python when it allocates memory, and when it frees memory of a framework: its deleter may take
//! the interpreter's lock. A thread that does either while the interpreter ends is ended on the spot, in the middle of
//! code that cannot be left like that: the process aborts. So visits are counted, the end waits for those under way,
//! and later ones do not begin.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error::LoaderError;

/// The longest that the end of the interpreter waits for visits.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of visits under way.
static VISITS: AtomicU64 = AtomicU64::new(0);

/// True once the interpreter ends, and the thread that ends it.
static ENDING: AtomicBool = AtomicBool::new(false);
static ENDER: OnceLock<ThreadId> = OnceLock::new();

/// A visit, under way as long as this lives.
pub(crate) struct Visit(());

impl Visit {
    /// Begins a visit, unless the interpreter ends. The thread that ends it is at home there until the last.
    pub(crate) fn begin() -> Option<Self> {
        // Counted first: either the end sees this visit, or this visit sees the end.
        VISITS.fetch_add(1, Ordering::SeqCst);
        let visit = Self(());
        let may_begin = !ENDING.load(Ordering::SeqCst) || ENDER.get() == Some(&thread::current().id());
        may_begin.then_some(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a function in Python, unless the interpreter ends.
pub(crate) fn enter<T>(run: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    let visit = Visit::begin();
    let returned = visit.and_then(|_visit| Python::try_attach(run));
    returned.unwrap_or_else(|| Err(LoaderError::new_err("the interpreter is ending")))
}

/// Waits, for at most ten seconds, for visits under way, and lets no other thread begin one. The thread that ends the
/// interpreter calls it before.
#[pyfunction]
pub(crate) fn settle(py: Python<'_>) {
    ENDER.get_or_init(|| thread::current().id());
    ENDING.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    py.detach(|| {
        while VISITS.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Returns true if the interpreter ends although a visit is under way: a function that does not return in time. Its
/// thread cannot be ended, so whoever waits for it would wait with the process.
pub(crate) fn is_left_behind() -> bool {
    ENDING.load(Ordering::SeqCst) && VISITS.load(Ordering::SeqCst) > 0
}

/// Resets the count: a forked child has no workers.
pub(crate) fn forget() {
    VISITS.store(0, Ordering::SeqCst);
}
