//! A signal between threads that share a lock: those that wait for it stay awake for a moment, then sleep.
//!
//! Promises: a thread that began to wait under the lock misses no signal that is raised under it later, and raising a
//! signal that no sleeper waits for makes no system call. It takes a sleeper tens of microseconds to wake, which is a
//! good part of the time that a batch of a few megabytes takes; a thread that expects its signal so soon looks for it
//! instead.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, yield_while};

/// The time that a thread stays awake which expects its signal soon: about as long as waking takes.
pub(super) const SOON: Duration = Duration::from_micros(50);

/// The signal that this file describes.
#[derive(Default)]
pub(super) struct Signal {
    /// The number of times that it was raised, which may wrap. Written under the lock.
    raised: AtomicU32,
    /// The number of threads that sleep, or are about to. Read and written under the lock.
    asleep: AtomicUsize,
    wake: Condvar,
}

impl Signal {
    /// Wakes all threads that wait. The caller holds the lock.
    pub(super) fn raise(&self) {
        self.raised.fetch_add(1, Ordering::Release);
        if self.asleep.load(Ordering::Relaxed) > 0 {
            self.wake.notify_all();
        }
    }

    /// Waits until the signal is raised or `patience` is over, and stays `awake` for so much of that time. It may
    /// return early. `guard` guards `lock`, which is free while the thread waits.
    pub(super) fn wait<'a, T>(
        &self,
        lock: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        awake: Duration,
        patience: Duration,
    ) -> MutexGuard<'a, T> {
        let seen = self.raised.load(Ordering::Relaxed);
        let mut guard = guard;
        if !awake.is_zero() {
            drop(guard);
            yield_while(awake.min(patience), || self.raised.load(Ordering::Acquire) == seen);
            guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        }
        if self.raised.load(Ordering::Relaxed) != seen {
            return guard;
        }
        self.asleep.fetch_add(1, Ordering::Relaxed);
        let guard = self.wake.wait_timeout(guard, patience).unwrap_or_else(PoisonError::into_inner).0;
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}
