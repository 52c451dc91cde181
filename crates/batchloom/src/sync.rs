//! The means by which the threads of a loader meet: locks, condition variables, atomic flags, threads, and the clock
//! that ends a wait.
//!
//! Promises: they are the standard library's, under other paths. In this crate's own tests with `--cfg shuttle` they
//! are from the crate `shuttle`, which runs the threads one at a time and chooses at each of these operations which
//! thread runs next: so the loader itself is what `scripts/interleavings` runs under many orders of its threads. The
//! clock stands still then. A time limit that is not zero never ends, so it hides no signal that was lost.
//!
//! Values that no thread waits for, and that decide nothing that one does, stay with the standard library: counts of
//! metrics, and values that are set once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(not(all(test, shuttle)))]
pub(crate) use real::{Condvar, Instant, Mutex, MutexGuard, atomic, process, thread, yield_while};
#[cfg(all(test, shuttle))]
pub(crate) use scheduled::{Condvar, Instant, Mutex, MutexGuard, atomic, process, thread, yield_while};

/// The time that threads spent on reading samples of an iteration, and the part of it that they waited for a lock which
/// only one of them can hold: the interpreter of a front end.
#[derive(Debug, Default)]
pub struct ReadClock {
    /// Nanoseconds.
    spent: AtomicU64,
    waited: AtomicU64,
}

impl ReadClock {
    /// Counts time that a thread spent on reading, and the part of it that the thread waited.
    pub fn count(&self, spent: Duration, waited: Duration) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(nanoseconds(spent), Ordering::Relaxed);
        self.waited.fetch_add(nanoseconds(waited.min(spent)), Ordering::Relaxed);
    }

    /// The time that was spent so far, and the part of it that threads waited, summed over all threads.
    pub(crate) fn read(&self) -> (Duration, Duration) {
        let time = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        (time(&self.spent), time(&self.waited))
    }
}

#[cfg(not(all(test, shuttle)))]
mod real {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
    use std::time::Duration;
    pub(crate) use std::time::Instant;
    pub(crate) use std::{process, thread};

    /// Lets other threads run as long as `holds` and `time` is not over, without a sleep.
    pub(crate) fn yield_while(time: Duration, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while holds() && start.elapsed() < time {
            thread::yield_now();
        }
    }
}

#[cfg(all(test, shuttle))]
mod scheduled {
    use std::ops::Add;
    use std::time::Duration;

    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};

    /// Lets other threads run once, if `holds`, for any number of steps that the scheduler likes.
    pub(crate) fn yield_while(_: Duration, holds: impl Fn() -> bool) {
        if holds() {
            thread::yield_now();
        }
    }

    /// A reading of the clock that stands still.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            Self(Duration::ZERO)
        }

        pub(crate) fn elapsed(self) -> Duration {
            Self::now().saturating_duration_since(self)
        }

        pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }

    pub(crate) mod thread {
        use std::io;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};

        use shuttle::thread;
        pub(crate) use shuttle::thread::{ThreadId, current, yield_now};

        /// A thread to be started.
        pub(crate) struct Builder(thread::Builder);

        /// A thread that was started. Shuttle's own does not report whether it has ended.
        pub(crate) struct JoinHandle<T> {
            handle: thread::JoinHandle<T>,
            finished: Arc<AtomicBool>,
        }

        impl Builder {
            pub(crate) fn new() -> Self {
                Self(thread::Builder::new())
            }

            pub(crate) fn name(self, name: String) -> Self {
                Self(self.0.name(name))
            }

            pub(crate) fn spawn<T: Send + 'static>(
                self,
                run: impl FnOnce() -> T + Send + 'static,
            ) -> io::Result<JoinHandle<T>> {
                let finished = Arc::new(AtomicBool::new(false));
                let finish = Arc::clone(&finished);
                let run = move || {
                    let result = run();
                    finish.store(true, Ordering::SeqCst);
                    result
                };
                Ok(JoinHandle { handle: self.0.spawn(run)?, finished })
            }
        }

        impl<T> JoinHandle<T> {
            pub(crate) fn is_finished(&self) -> bool {
                self.finished.load(Ordering::SeqCst)
            }

            pub(crate) fn thread(&self) -> &thread::Thread {
                self.handle.thread()
            }

            pub(crate) fn join(self) -> thread::Result<T> {
                self.handle.join()
            }
        }
    }

    pub(crate) mod process {
        use std::cell::Cell;

        thread_local! {
            // Shuttle runs all threads of a test on that of the test itself.
            static IS_CHILD: Cell<bool> = const { Cell::new(false) };
        }

        /// The number of this process, or another one in the child that a test pretends to fork.
        pub(crate) fn id() -> u32 {
            std::process::id().wrapping_add(IS_CHILD.get().into())
        }

        /// Does `work` as if in a forked child, the same one each time.
        pub(crate) fn in_child<T>(work: impl FnOnce() -> T) -> T {
            IS_CHILD.set(true);
            let result = work();
            IS_CHILD.set(false);
            result
        }
    }
}
