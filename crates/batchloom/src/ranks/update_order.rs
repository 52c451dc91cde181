//! The order of batches where batches are balanced within updates of the optimizer.
//!
//! An update is `accumulate` steps. Its batches are random: they are consecutive in the mixed order of their window. An
//! update that lies in two windows is balanced in each of its two parts.
//!
//! Ranks wait at each step, or once an update. At each step they wait least where the batches that cost most form the
//! first step of an update, and so on; in a step, the rank with the least cost so far takes the batch that costs most.
//! Then each rank has one batch of every step, so a rank with the costliest batch cannot have only cheap ones besides.
//! `update_sums.rs` deals such a rank cheap batches, for ranks that wait once an update
//! ([`UpdateSum`](super::BalanceWithin::UpdateSum)).
//!
//! Updates are counted from the start of the epoch, over all worlds: one that a change of the world cuts ends with the
//! steps that it lacks, in the new world.

use super::update_sums::divide_evenly;
use super::{BalanceWithin, BatchOrder};

/// The updates of an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Updates {
    /// The steps of an update.
    pub(crate) accumulate: u64,
    /// The places where ranks wait.
    pub(crate) within: BalanceWithin,
}

impl BatchOrder<'_> {
    /// The batches in the order of dealing, such that ranks wait little within an update. `worlds` lists the parts of
    /// the epoch as (world size, batches taken), the present part last.
    pub(crate) fn balance_updates(&self, worlds: &[(u32, u64)], updates: Updates) -> Vec<u32> {
        let Updates { accumulate, within } = updates;
        let end = self.first + self.costs.len() as u64;
        let mixed = self.mix();
        let mut is_dealt = vec![false; mixed.len()];
        let (mut dealt, mut from, mut steps): (Vec<u32>, u64, u64) = (Vec::new(), 0, 0);
        for &(world_size, batches) in worlds {
            let to = from.saturating_add(batches);
            let start = from.max(self.first);
            let world_size = u64::from(world_size);
            if start < to.min(end) {
                let left: Vec<u32> = mixed.iter().copied().filter(|&batch| !is_dealt[index(batch)]).collect();
                let update = world_size.saturating_mul(accumulate);
                let begun = (accumulate - steps % accumulate).saturating_mul(world_size);
                let taken = start - from;
                let open = match taken < begun {
                    true => begun - taken,
                    false => update - (taken - begun) % update,
                };
                let mut order =
                    self.order_updates(&left, length(open), length(update), (length(world_size), within));
                order.truncate(length(to.min(end) - start));
                order.iter().for_each(|&batch| is_dealt[index(batch)] = true);
                dealt.append(&mut order);
            }
            from = to;
            steps = steps.saturating_add(batches / world_size);
        }
        dealt.extend(mixed.iter().filter(|&&batch| !is_dealt[index(batch)]));
        dealt
    }

    /// Updates of `update` batches after the `open` ones that end an update.
    fn order_updates(
        &self,
        batches: &[u32],
        open: usize,
        update: usize,
        (world_size, within): (usize, BalanceWithin),
    ) -> Vec<u32> {
        let (begun, whole) = batches.split_at(open.min(batches.len()));
        let parts =
            std::iter::once((begun, open % world_size)).chain(whole.chunks(update).map(|part| (part, 0)));
        let order = parts.flat_map(|(part, open)| {
            let mut sorted = part.to_vec();
            sorted.sort_by(|&a, &b| self.cost_of(b).total_cmp(&self.cost_of(a)).then(a.cmp(&b)));
            // The cheapest end a step that others began.
            let mut order = sorted.split_off(sorted.len() - open.min(sorted.len()));
            order.append(&mut match within {
                BalanceWithin::UpdateSum => self.order_by_sums(&sorted, world_size),
                _ => self.order_by_steps(&sorted, world_size),
            });
            order
        });
        order.collect()
    }

    /// The batches of an update, the most costly one first, such that ranks wait once an update, and little.
    fn order_by_sums(&self, sorted: &[u32], world_size: usize) -> Vec<u32> {
        let costs: Vec<f64> = sorted.iter().map(|&batch| self.cost_of(batch)).collect();
        let mut of_ranks: Vec<Vec<u32>> = vec![Vec::new(); world_size];
        for (&batch, rank) in sorted.iter().zip(divide_evenly(&costs, world_size)) {
            of_ranks[rank].push(batch);
        }
        for batches in &mut of_ranks {
            if let Some(place) = self.find_largest(batches) {
                batches[..=place].rotate_right(1);
            }
        }
        let of_step = |step: usize| of_ranks.iter().filter_map(move |batches| batches.get(step).copied());
        (0..sorted.len().div_ceil(world_size)).flat_map(of_step).collect()
    }

    /// The batches of an update, the most costly one first, such that ranks wait little at each step.
    fn order_by_steps(&self, sorted: &[u32], world_size: usize) -> Vec<u32> {
        let mut order = Vec::with_capacity(sorted.len());
        let mut steps: Vec<&[u32]> = sorted.chunks(world_size).collect();
        let holds_largest = |step: &&[u32]| self.largest.is_some_and(|largest| step.contains(&largest));
        if let Some(place) = steps.iter().position(holds_largest) {
            steps[..=place].rotate_right(1);
        }
        let mut totals = vec![0.0; world_size];
        for step in steps {
            order.extend(self.order_step(step, &mut totals));
        }
        order
    }

    /// The batches of a step by rank: the most costly one for the rank with the least total.
    fn order_step(&self, step: &[u32], totals: &mut [f64]) -> Vec<u32> {
        // A step that lacks batches is the first ranks'.
        let mut ranks: Vec<usize> = (0..step.len()).collect();
        ranks.sort_by(|&a, &b| totals[a].total_cmp(&totals[b]).then(a.cmp(&b)));
        let mut order = vec![0; step.len()];
        for (&batch, rank) in step.iter().zip(ranks) {
            order[rank] = batch;
            totals[rank] += self.cost_of(batch);
        }
        order
    }

    /// The cost of a batch by a model.
    fn cost_of(&self, batch: u32) -> f64 {
        f64::from_bits(self.costs[index(batch)])
    }
}

fn index(batch: u32) -> usize {
    usize::try_from(batch).unwrap_or(usize::MAX)
}

/// A number of batches of one window, as an index.
fn length(batches: u64) -> usize {
    usize::try_from(batches).unwrap_or(usize::MAX)
}
