//! The progress of one iteration: the number of batches that were handed over.
//!
//! Promise: a batch counts as it is handed over, not as it is made, so that a state never leaves out one that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::metrics::Meter;

/// The progress of one iteration, which its consumer writes and its run reads.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The number of batches to hand over.
    total: u64,
    steps: AtomicU64,
    ended: AtomicBool,
    closed: AtomicBool,
    pub(crate) meter: Meter,
}

impl Progress {
    /// The progress of an iteration over `total` batches, before the first.
    pub(crate) fn new(total: u64) -> Arc<Self> {
        let (steps, ended, closed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { total, steps, ended, closed, meter: Meter::default() })
    }

    /// Counts one more batch as handed over.
    pub(crate) fn advance(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the iteration as exhausted.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.meter.end();
    }

    /// Marks the iteration as closed: its consumer takes no more batches.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.meter.end();
    }

    /// The number of batches to hand over in the whole iteration.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The number of batches handed over so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The number of batches that are left to hand over.
    pub(crate) fn left(&self) -> u64 {
        self.total.saturating_sub(self.steps())
    }

    /// Counts `steps` batches as handed over, and the end if they are all.
    pub(crate) fn pass_over(&self, steps: u64) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
        if self.left() == 0 {
            self.end();
        }
    }

    /// Returns true if every batch was handed over, and the consumer has seen the end.
    pub(super) fn is_finished(&self) -> bool {
        self.ended.load(Ordering::Relaxed) && self.steps() == self.total
    }

    /// Returns true if the iteration was closed before its first batch: the epoch can begin again.
    pub(super) fn is_unspent(&self) -> bool {
        self.closed.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed) && self.steps() == 0
    }

    /// Returns true if batches may still be taken.
    pub(super) fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && !self.closed.load(Ordering::Relaxed)
    }
}
