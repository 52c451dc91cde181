//! Updates of the optimizer: several steps, and what their losses are divided by.
//!
//! Updates are counted from the start of an epoch, over all worlds. The last one holds the steps that are left, and one
//! that a resume cuts ends with the steps that it lacks.

use std::ops::Range;

use super::Plan;
use super::error::PlanCause;
use super::label_sums::LabelSums;
use crate::Result;
use crate::batching::Cost;

/// One update of the optimizer, over all ranks: up to [`accumulate`](super::PlanOptions::accumulate) steps.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Update {
    /// The number of the update in the plan.
    pub index: u64,
    /// The steps.
    pub steps: Range<u64>,
    /// The number of samples over all steps and ranks.
    pub samples: u64,
    /// The number of elements over all steps and ranks, without padding.
    pub tokens: u64,
    /// The number of labels over all steps and ranks that losses do not ignore: the divisor of a loss that is averaged
    /// over labels. `None` as for [`Step::labels`](super::Step::labels).
    pub labels: Option<u64>,
    /// The number of samples, or of parts of samples that are split, with at least one label: the divisor of a loss
    /// that is averaged over samples. `None` where `labels` is.
    pub sequences: Option<u64>,
    /// The sum of the costs of all batches, by the [cost](super::PlanOptions::cost) of the plan, or another one that was
    /// [asked for](Plan::update_by).
    pub cost: f64,
    /// The share of the time of all ranks that is spent waiting at each step of the update, or once at its end with
    /// [`BalanceWithin::UpdateSum`](crate::ranks::BalanceWithin::UpdateSum).
    pub imbalance: f64,
}

impl Plan {
    /// The number of steps of an update.
    fn accumulate(&self) -> u64 {
        self.options().accumulate.unwrap_or(1)
    }

    /// The number of steps of the first update that earlier parts of the epoch took.
    fn steps_begun(&self) -> u64 {
        let taken = self.past.iter().fold(0_u64, |sum, (_, steps)| sum.saturating_add(*steps));
        taken % self.accumulate()
    }

    /// The number of updates.
    pub fn updates(&self) -> u64 {
        match self.steps() {
            0 => 0,
            steps => steps.saturating_add(self.steps_begun()).div_ceil(self.accumulate()),
        }
    }

    /// One update over all ranks. Its counts are known on every rank before its first step, without communication.
    ///
    /// ```
    /// use batchloom::Plan;
    ///
    /// let plan = Plan::builder(100).batch_size(5).world_size(2).accumulate(4).build()?;
    /// assert_eq!((plan.steps(), plan.updates()), (10, 3));
    /// assert_eq!((plan.update(0)?.samples, plan.update(2)?.samples), (40, 20)); // the last one holds what is left
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such update.
    pub fn update(&self, index: u64) -> Result<Update> {
        self.update_by(index, self.options().cost)
    }

    /// One update over all ranks, with its cost and the time that ranks wait by `cost`.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such update.
    pub fn update_by(&self, index: u64, cost: impl Into<Cost>) -> Result<Update> {
        let cost = cost.into();
        if index >= self.updates() {
            return Err(PlanCause::UpdateRange { found: index, updates: self.updates() }.into());
        }
        let steps = self.steps_of_update(index);
        let mut update =
            Update { index, steps: steps.clone(), labels: Some(0), sequences: Some(0), ..Update::default() };
        let (mut longest, mut sums) = (0.0, Vec::new());
        for step in steps {
            let costs = self.costs(step, cost)?;
            sums.resize(sums.len().max(costs.len()), 0.0_f64);
            for (rank, (batch_cost, sum)) in (0..).zip(costs.iter().zip(&mut sums)) {
                update.cost += batch_cost;
                *sum += batch_cost;
                self.count_samples_of(&mut update, step, rank)?;
            }
            longest += costs.into_iter().fold(0.0, f64::max);
        }
        if self.options().balance_within.waits_once() {
            longest = sums.into_iter().fold(0.0, f64::max);
        }
        let all = longest * f64::from(self.world_size());
        update.imbalance = if all > 0.0 { (1.0 - update.cost / all).max(0.0) } else { 0.0 };
        Ok(update)
    }

    /// The update that `step` belongs to.
    pub fn update_of(&self, step: u64) -> u64 {
        step.saturating_add(self.steps_begun()) / self.accumulate()
    }

    /// The number of steps after which ranks wait for the first time, and for all later times.
    pub(super) fn waits(&self) -> (u64, u64) {
        match self.options().balance_within.waits_once() {
            true => (self.accumulate() - self.steps_begun(), self.accumulate()),
            false => (1, 1),
        }
    }

    /// The update that `step` belongs to, if batches are balanced within updates, and the step otherwise: its samples
    /// are to be random.
    pub(super) fn composed_with(&self, step: u64) -> u64 {
        match self.options().balance_within.is_window() {
            true => step,
            false => self.update_of(step),
        }
    }

    /// The steps of an update.
    pub(super) fn steps_of_update(&self, index: u64) -> Range<u64> {
        let (accumulate, begun) = (self.accumulate(), self.steps_begun());
        let first = index.saturating_mul(accumulate).saturating_sub(begun);
        let end = index.saturating_add(1).saturating_mul(accumulate).saturating_sub(begun);
        first..end.min(self.steps())
    }

    /// The cost of the batch of each rank that takes part in `step`.
    fn costs(&self, step: u64, cost: Cost) -> Result<Vec<f64>> {
        let ranks = (0..self.world_size()).filter(|rank| step < self.steps_of(*rank));
        let of_rank = |rank| {
            let parts = self.parts(step, rank)?;
            let measure = self.epoch.measure(&parts);
            Ok(cost.of(self.epoch.batch_shape(&parts, &measure)))
        };
        ranks.map(of_rank).collect()
    }

    /// Adds the samples of a batch that count.
    fn count_samples_of(&self, update: &mut Update, step: u64, rank: u32) -> Result<()> {
        let parts = self.counted_parts(step, rank)?;
        update.samples += parts.samples.len() as u64;
        update.tokens += parts.sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
        let sums = self.recipe().labels.as_ref().map(|labels| LabelSums::of(labels, &parts));
        update.labels = update.labels.zip(sums).map(|(before, sums)| before + sums.labels);
        update.sequences = update.sequences.zip(sums).map(|(before, sums)| before + sums.sequences);
        Ok(())
    }
}
