//! The cursor: the epoch under way, and the progress in it.
//!
//! Each iteration is the next epoch, or the one that was set, or the rest of the one in a state that was loaded. It
//! begins as its first batch is asked for. Progress is counted by steps taken out of the loader, not by blocks made.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::metrics::{Meter, Metrics};
use crate::batching::Listed;
use crate::plan::State;
use crate::{Error, Plan, Result};

/// The progress of one iteration.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The number of batches that it will hand over if it is not abandoned.
    total: u64,
    steps: AtomicU64,
    ended: AtomicBool,
    closed: AtomicBool,
    pub(super) meter: Meter,
}

impl Delivery {
    pub(super) fn new(total: u64) -> Arc<Self> {
        let (steps, ended, closed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { total, steps, ended, closed, meter: Meter::default() })
    }

    /// Counts one more batch as handed over.
    pub(super) fn advance(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the iteration as exhausted.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.meter.end();
    }

    /// Marks the iteration as closed: no batch will be taken from it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.meter.end();
    }

    /// The number of batches handed over so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The number of batches that are left to hand over.
    pub(super) fn left(&self) -> u64 {
        self.total.saturating_sub(self.steps())
    }

    /// Returns true if every batch was handed over, and the consumer has seen the end.
    fn is_finished(&self) -> bool {
        self.ended.load(Ordering::Relaxed) && self.steps() == self.total
    }

    /// Returns true if it was closed before the first batch: the epoch can begin again.
    fn is_unspent(&self) -> bool {
        self.closed.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed) && self.steps() == 0
    }

    /// Returns true if batches may still be taken.
    fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && !self.closed.load(Ordering::Relaxed)
    }
}

/// The place of a loader in its run.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    /// The rank that is served, among as many as the plan has.
    rank: u32,
    /// The plan of the latest epoch that began, or of the next one before the first.
    plan: Plan,
    delivery: Option<Arc<Delivery>>,
    /// The number of steps that the run took before that plan.
    taken: u64,
    /// The digest of the run at the start of the epoch of that plan. Empty before any epoch.
    before: String,
    /// The plan of the epoch after that, kept because it may have to look at all sizes to count its batches.
    next: OnceLock<Plan>,
}

impl Cursor {
    pub(super) fn new(plan: Plan, rank: u32) -> Self {
        Self { rank, plan, delivery: None, taken: 0, before: String::new(), next: OnceLock::new() }
    }

    /// The rank that is served.
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub(super) fn world_size(&self) -> u32 {
        self.plan.world_size()
    }

    /// The plan of the epoch that begins next.
    pub(super) fn upcoming(&self) -> Plan {
        if self.is_begun() { self.next().clone() } else { self.plan.clone() }
    }

    fn next(&self) -> &Plan {
        self.next.get_or_init(|| self.plan.following())
    }

    /// The plan of the epoch under way, or else of the next one.
    fn current(&self) -> Plan {
        match &self.delivery {
            Some(delivery) if delivery.is_live() => self.plan.clone(),
            _ => self.upcoming(),
        }
    }

    /// The number of the epoch under way, or else of the next one.
    pub(super) fn epoch(&self) -> u64 {
        self.current().epoch()
    }

    /// The number of batches in the whole of that epoch.
    pub(super) fn len(&self) -> u64 {
        self.current().whole().steps_of(self.rank)
    }

    /// The number of batches that are left of that epoch.
    pub(super) fn remaining(&self) -> u64 {
        match &self.delivery {
            Some(delivery) if delivery.is_live() => delivery.total.saturating_sub(delivery.steps()),
            _ => self.upcoming().steps_of(self.rank),
        }
    }

    /// Another epoch of the same run.
    pub(super) fn plan(&self, epoch: u64) -> Plan {
        match self.next.get() {
            Some(next) if next.epoch() == epoch => next.clone(),
            _ => self.plan.at_epoch(epoch),
        }
    }

    /// Begins the epoch of `plan`, which was [`upcoming`](Self::upcoming). `delivery` counts it.
    pub(super) fn begin(&mut self, plan: Plan, delivery: Arc<Delivery>) {
        self.enter(plan);
        self.delivery = Some(delivery);
    }

    /// Makes `epoch` the next one. An epoch that was loaded and not begun keeps its place.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        if self.is_begun() || self.plan.epoch() != epoch {
            self.enter(self.plan(epoch));
        }
    }

    /// Returns true if some, but not all batches of an epoch were handed over.
    pub(super) fn is_mid_epoch(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| (1..delivery.total).contains(&delivery.steps()))
    }

    /// Refuses another rank in the middle of an epoch.
    ///
    /// # Errors
    /// [`Error::MidEpoch`].
    pub(super) fn check_rank(&self, rank: u32, world_size: u32) -> Result<()> {
        match &self.delivery {
            Some(delivery) if self.is_mid_epoch() => Err(Error::MidEpoch {
                taken: delivery.steps(),
                total: delivery.total,
                epoch: self.plan.epoch(),
                served: (self.rank, self.world_size()),
                rank,
                world_size,
            }),
            _ => Ok(()),
        }
    }

    /// Serves `rank` from the next epoch on, whose plan is `plan`.
    pub(super) fn serve(&mut self, rank: u32, plan: Plan) {
        self.enter(plan);
        self.rank = rank;
    }

    /// The metrics of the latest iteration.
    pub(super) fn metrics(&self) -> Metrics {
        self.delivery.as_ref().map_or_else(Metrics::default, |delivery| delivery.meter.read(delivery.steps()))
    }

    /// The number of steps that the run has taken, over all epochs.
    pub(super) fn steps(&self) -> u64 {
        let steps = match &self.delivery {
            Some(delivery) if delivery.is_finished() => self.plan.steps(),
            Some(delivery) => delivery.steps(),
            None => 0,
        };
        self.taken.saturating_add(steps)
    }

    pub(super) fn state(&self) -> State {
        let state = match &self.delivery {
            Some(delivery) if delivery.is_finished() => self.next().state(0),
            Some(delivery) => self.plan.state(delivery.steps()),
            None => self.plan.state(0),
        };
        let is_left = state.epoch != self.plan.epoch();
        let before = if is_left { self.digest_after() } else { self.before.clone() };
        let steps = self.steps();
        if steps == 0 {
            return state;
        }
        State {
            steps: Some(steps),
            digest: Some(state.digest_after(&before)),
            digest_before: Some(before),
            ..state
        }
    }

    /// The digest of the run at the start of the next epoch, if this one is left now.
    fn digest_after(&self) -> String {
        let left = match &self.delivery {
            Some(delivery) if delivery.is_finished() => self.plan.at(self.plan.steps()),
            Some(delivery) => self.plan.at(delivery.steps()),
            None => self.plan.at(0),
        };
        if left.worlds.is_empty() { self.before.clone() } else { left.digest_after(&self.before) }
    }

    pub(super) fn load(&mut self, state: &State) -> Result<()> {
        self.enter_at(state, self.plan.resume(state)?);
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
        self.enter_at(state, self.plan.at_epoch(state.epoch).with_lists(lists)?.resume(state)?);
        Ok(())
    }

    /// Returns true if the epoch of `plan` began, and a batch of it was or may be handed over.
    fn is_begun(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| !delivery.is_unspent())
    }

    /// Makes `plan` that of the next epoch.
    fn enter(&mut self, plan: Plan) {
        self.taken = self.steps();
        if self.is_begun() || plan.epoch() != self.plan.epoch() {
            self.before = self.digest_after();
        }
        (self.plan, self.delivery, self.next) = (plan, None, OnceLock::new());
    }

    /// Makes `plan` that of the next epoch, in the run that came to `state`.
    fn enter_at(&mut self, state: &State, plan: Plan) {
        self.enter(plan);
        self.taken = steps_of(state);
        self.before = state.digest_before.clone().unwrap_or_default();
        // A state that leaves nothing of its epoch is the start of the next one.
        if self.plan.epoch() != state.epoch {
            self.before = state.digest_after(&self.before);
        }
    }
}

/// The number of steps that a run had taken when its state was saved. States of plans know those of their epoch alone.
fn steps_of(state: &State) -> u64 {
    let of_epoch = || state.worlds.iter().map(|&(_, steps)| steps).sum();
    state.steps.unwrap_or_else(of_epoch)
}
