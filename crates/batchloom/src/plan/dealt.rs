//! The batches of an epoch as they are dealt, for pictures of a plan.

use std::sync::Arc;

use super::Plan;
use super::epoch::Epoch;
use super::parts::Parts;
use crate::batching::Cost;

impl Plan {
    /// The same epoch where batches are dealt as they come, from its start.
    pub(crate) fn without_balance(&self) -> Self {
        let recipe = self.recipe().with_options(|options| options.balance = false);
        Self::new(Arc::new(Epoch::new(Arc::new(recipe), self.epoch())), self.world_size, Vec::new())
    }

    /// Visits the batches of all steps, pool by pool: the step of each, its rank, its samples that count, and its cost by
    /// `cost`.
    pub(crate) fn each_dealt(&self, cost: Cost, mut visit: impl FnMut(u64, u32, &Parts, f64)) {
        let deal = self.deal();
        let mut take = |(step, rank): (u64, u32), parts: Parts| {
            let parts = parts.fit(self.filled_len(step));
            let shape_cost = cost.of(self.epoch.batch_shape(&parts, &self.epoch.measure(&parts)));
            let fillers = self.fillers(step, rank).unwrap_or_default();
            let counted = parts.samples.len() as u64 - fillers;
            visit(step, rank, &parts.fit(Some(counted)).without(self.banned(step)), shape_cost);
        };
        for place in 0..self.epoch.pools() {
            let pool = self.pool(place);
            for index in 0..pool.len() {
                let batch = pool.first + index;
                for place in deal.first_place(batch).into_iter().chain(deal.places_again(batch)) {
                    take(place, pool.parts(index, self.recipe()));
                }
            }
        }
    }
}
