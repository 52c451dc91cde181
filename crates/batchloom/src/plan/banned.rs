//! The samples of a step that are left without weight.

use super::Plan;
use super::epoch::first;
use crate::Result;

impl Plan {
    /// The samples that have no weight at `step`, ascending. Each keeps its place in its batch, and is still among its
    /// [`indices`](Self::indices).
    pub fn banned(&self, step: u64) -> &[u64] {
        let batch = step.saturating_mul(u64::from(self.world_size)).saturating_add(first(&self.past));
        self.recipe().bans.at(self.epoch(), batch)
    }

    /// Returns true if some step of the run banned a sample.
    pub(crate) fn has_bans(&self) -> bool {
        self.recipe().bans.are_some()
    }

    /// Returns true if the batch that `rank` sees at `step` may hold a banned sample.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub(crate) fn holds_banned(&self, step: u64, rank: u32) -> Result<bool> {
        let banned = self.banned(step);
        if banned.is_empty() {
            return Ok(false);
        }
        Ok(match self.epoch.uniform() {
            Some(_) => self.epoch.ban_batches().binary_search(&self.batch(step, rank)?).is_ok(),
            None => self.indices(step, rank)?.iter().any(|sample| banned.binary_search(sample).is_ok()),
        })
    }

    /// The number of first places of banned samples in this plan, and the number of all their places, if samples all
    /// count the same.
    pub(super) fn count_banned(&self) -> (u64, u64) {
        let (deal, bans) = (self.deal(), &self.recipe().bans);
        let is_banned = |sample: u64, step: u64| self.banned(step).binary_search(&sample).is_ok();
        let (mut once, mut all) = (0, 0);
        for sample in bans.all() {
            let places = self.slots(sample).unwrap_or_default();
            all += places.iter().filter(|place| is_banned(sample, place.step)).count() as u64;
            let positions = self.epoch.draws.find(sample).into_iter();
            let batches = positions.filter_map(|position| self.epoch.batch_of(position));
            let steps = batches.filter_map(|batch| deal.first_place(batch)).map(|(step, _)| step);
            once += steps.filter(|&step| is_banned(sample, step)).count() as u64;
        }
        (once, all)
    }
}
