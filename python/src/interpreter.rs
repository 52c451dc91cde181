//! Visits of the engine's threads to the interpreter, and its end.
//!
//! A worker enters Python when it allocates memory, and when it frees memory of a framework: its deleter may take
//! the interpreter's lock. A thread that does either while the interpreter ends is ended on the spot, in the middle of
//! code that cannot be left like that: the process aborts. So visits are counted, the end waits for those under way,
//! and later ones do not begin. A thread of Python that waits in the engine returns by a visit, too: if the interpreter
//! has ended meanwhile, the thread stays in the engine, where it ends with the process.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::LoaderError;

/// The longest that the end of the interpreter waits for visits.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of visits under way.
static VISITS: AtomicU64 = AtomicU64::new(0);

/// True once the interpreter ends, and the thread that ends it.
static ENDING: AtomicBool = AtomicBool::new(false);
static ENDER: OnceLock<ThreadId> = OnceLock::new();

/// The thread that loaded the module. It outlives the interpreter, which it ends if it is Python's main thread.
static LOADER: OnceLock<ThreadId> = OnceLock::new();

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

thread_local! {
    /// The visit that this thread [holds](hold).
    static HELD: Cell<Option<Visit>> = const { Cell::new(None) };
}

/// Runs a function that calls Python, on a thread of Python, under a visit: as the interpreter ends, it waits until the
/// function returns or [detaches](detach).
pub(crate) fn hold<T>(py: Python<'_>, run: impl FnOnce() -> T) -> T {
    /// Ends the visit, unless it was held before.
    struct Release(bool);

    impl Drop for Release {
        fn drop(&mut self) {
            HELD.set(HELD.take().filter(|_| self.0));
        }
    }

    let held = HELD.take();
    let _release = Release(held.is_some());
    let visit = held.or_else(|| Visit::begin().or_else(|| py.detach(return_by_visit)));
    HELD.set(visit);
    run()
}

/// Runs a function without the interpreter's lock, as [`Python::detach`] does. If the interpreter ends meanwhile, a thread
/// that was started after the module was loaded does not return: a daemon thread, as Python waits for all others.
pub(crate) fn detach<T: Send>(py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
    // The end does not wait for what the function waits for.
    let is_held = HELD.take().is_some();
    let (value, visit) = py.detach(|| (run(), return_by_visit()));
    if is_held {
        HELD.set(visit);
    }
    value
}

/// Begins a visit in which this thread returns to Python, and stays here if the interpreter ends. The thread that loaded
/// the module returns without a visit.
fn return_by_visit() -> Option<Visit> {
    let visit = Visit::begin();
    while visit.is_none() && LOADER.get() != Some(&thread::current().id()) {
        thread::park();
    }
    visit
}

/// Notes that this thread loads the module.
pub(crate) fn load() {
    LOADER.get_or_init(|| thread::current().id());
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The arrival of a thread at the interpreter, for the time that it waits there.
pub(crate) struct Arrival(Instant);

/// The stay of a thread in the interpreter.
pub(crate) struct Stay {
    arrived: Instant,
    entered: Instant,
    /// The time that the thread had computed when it entered, if it is known.
    computed: Option<Duration>,
}

/// A thread that enters later than this after its arrival found another one inside.
const AT_ONCE: Duration = Duration::from_micros(50);

impl Arrival {
    /// The arrival of this thread.
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// The stay, which begins.
    pub(crate) fn enter(self, py: Python<'_>) -> Stay {
        Stay { arrived: self.0, entered: Instant::now(), computed: computed(py) }
    }
}

impl Stay {
    /// The time since the arrival, and the part of it that the thread waited for the interpreter.
    ///
    /// The wait at the door is measured. A thread that had to wait there also takes turns with the threads inside: of the
    /// time that it does not compute, as much as they compute meanwhile counts, and no more, as it may wait for files.
    pub(crate) fn leave(self, py: Python<'_>) -> (Duration, Duration) {
        let (door, inside) = (self.entered - self.arrived, self.entered.elapsed());
        let own = self.computed.zip(computed(py)).map(|(before, after)| after.saturating_sub(before));
        let turns = match own.filter(|_| door > AT_ONCE) {
            Some(own) => {
                let visitors = u32::try_from(VISITS.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
                inside.saturating_sub(own).min(own.saturating_mul(visitors))
            }
            None => Duration::ZERO,
        };
        (door + inside, door + turns)
    }
}

/// The time that this thread has computed.
fn computed(py: Python<'_>) -> Option<Duration> {
    static THREAD_TIME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let time = THREAD_TIME.import(py, "time", "thread_time_ns").ok()?;
    Some(Duration::from_nanos(time.call0().ok()?.extract().ok()?))
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
