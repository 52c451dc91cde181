//! The cursor: the epoch under way, and the progress in it.
//!
//! Each new iteration is the next epoch, or the one that was set, or the rest of the one in a state that was loaded.
//! Progress is counted by steps taken out of the loader, not by blocks made.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::batching::Listed;
use crate::plan::State;
use crate::{Plan, Result};

/// The progress of one iteration.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The number of batches that it will hand over if it is not abandoned.
    total: u64,
    steps: AtomicU64,
    ended: AtomicBool,
    closed: AtomicBool,
}

impl Delivery {
    pub(super) fn new(total: u64) -> Arc<Self> {
        let (steps, ended, closed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { total, steps, ended, closed })
    }

    /// Counts one more batch as handed over.
    pub(super) fn advance(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the iteration as exhausted.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Marks the iteration as closed: no batch will be taken from it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// The number of batches handed over so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns true if every batch was handed over, and the consumer has seen the end.
    fn is_finished(&self) -> bool {
        self.ended.load(Ordering::Relaxed) && self.steps() == self.total
    }

    /// Returns true if batches may still be taken.
    fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && !self.closed.load(Ordering::Relaxed)
    }
}

/// The place of a loader in its run.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The plan of the latest iteration, or of the next one before the first.
    plan: Plan,
    delivery: Option<Arc<Delivery>>,
    /// The plan of the iteration after that, kept because it may have to look at all sizes to count its batches.
    next: OnceLock<Plan>,
}

impl Cursor {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, delivery: None, next: OnceLock::new() }
    }

    /// The plan of the next iteration.
    pub(super) fn upcoming(&self) -> Plan {
        match self.delivery {
            None => self.plan.clone(),
            Some(_) => self.next().clone(),
        }
    }

    fn next(&self) -> &Plan {
        self.next.get_or_init(|| self.plan.at_epoch(self.plan.epoch().wrapping_add(1)))
    }

    /// The number of batches of the iteration under way on `rank`, or else of the next one.
    pub(super) fn len(&self, rank: u32) -> u64 {
        match &self.delivery {
            Some(delivery) if delivery.is_live() => delivery.total,
            _ => self.upcoming().steps_of(rank),
        }
    }

    /// Another epoch of the same run.
    pub(super) fn plan(&self, epoch: u64) -> Plan {
        match self.next.get() {
            Some(next) if next.epoch() == epoch => next.clone(),
            _ => self.plan.at_epoch(epoch),
        }
    }

    /// Begins an iteration over `plan`, which was [`upcoming`](Self::upcoming). `delivery` counts it.
    pub(super) fn begin(&mut self, plan: Plan, delivery: Arc<Delivery>) {
        self.enter(plan);
        self.delivery = Some(delivery);
    }

    /// Makes `epoch` the next one. An epoch that was loaded and not begun keeps its place.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        if self.delivery.is_some() || self.plan.epoch() != epoch {
            self.enter(self.plan(epoch));
        }
    }

    pub(super) fn state(&self) -> State {
        match &self.delivery {
            None => self.plan.state(0),
            Some(delivery) if delivery.is_finished() => self.upcoming().state(0),
            Some(delivery) => self.plan.state(delivery.steps()),
        }
    }

    pub(super) fn load(&mut self, state: &State) -> Result<()> {
        self.enter(self.plan.resume(state)?);
        Ok(())
    }

    /// Makes `seed` that of the next iteration and of those after it.
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.enter(self.upcoming().with_seed(seed));
    }

    /// Makes `lists` the batches of the next iteration.
    pub(super) fn set_lists(&mut self, lists: Listed) -> Result<()> {
        self.enter(self.upcoming().with_lists(lists)?);
        Ok(())
    }

    /// Continues where `state` was taken, in an epoch whose batches are `lists`.
    pub(super) fn load_lists(&mut self, state: &State, lists: Listed) -> Result<()> {
        self.enter(self.plan.at_epoch(state.epoch).with_lists(lists)?.resume(state)?);
        Ok(())
    }

    /// Makes `plan` that of the next iteration.
    fn enter(&mut self, plan: Plan) {
        (self.plan, self.delivery, self.next) = (plan, None, OnceLock::new());
    }
}
