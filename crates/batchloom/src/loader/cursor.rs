//! The cursor: which epoch is under way, and how far it has come.
//!
//! Each new iteration is the next epoch; a state that was loaded, or an epoch that was set, is what the next iteration
//! starts with. Counting is by steps taken out of the loader, not by blocks formed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::plan::State;
use crate::{Plan, Result};

/// How far one iteration has come.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    steps: AtomicU64,
    ended: AtomicBool,
}

impl Delivery {
    /// One more batch was handed over.
    pub(super) fn advance(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// The iteration said that there is no more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Where a loader stands in its run.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The plan of the latest iteration, or of the next one where none has begun.
    plan: Plan,
    delivery: Option<Arc<Delivery>>,
}

impl Cursor {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, delivery: None }
    }

    /// The plan of the next iteration.
    pub(super) fn upcoming(&self) -> Plan {
        match self.delivery {
            None => self.plan.clone(),
            Some(_) => self.plan.at_epoch(self.plan.epoch().wrapping_add(1)),
        }
    }

    /// Another epoch of the same run.
    pub(super) fn plan(&self, epoch: u64) -> Plan {
        self.plan.at_epoch(epoch)
    }

    /// An iteration has begun: of `plan`, which was [`upcoming`](Self::upcoming), and counted by `delivery`.
    pub(super) fn begin(&mut self, plan: Plan, delivery: Arc<Delivery>) {
        self.plan = plan;
        self.delivery = Some(delivery);
    }

    /// Makes `epoch` the next one. An epoch that was loaded and not begun keeps its place.
    pub(super) fn set_epoch(&mut self, epoch: u64) {
        if self.delivery.is_some() || self.plan.epoch() != epoch {
            self.plan = self.plan.at_epoch(epoch);
            self.delivery = None;
        }
    }

    pub(super) fn state(&self) -> State {
        match &self.delivery {
            None => self.plan.state(0),
            Some(delivery) if delivery.ended.load(Ordering::Relaxed) => self.upcoming().state(0),
            Some(delivery) => self.plan.state(delivery.steps.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn load(&mut self, state: &State) -> Result<()> {
        self.plan = self.plan.resume(state)?;
        self.delivery = None;
        Ok(())
    }
}
