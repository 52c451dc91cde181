//! What a plan costs, before it is run.

use serde::Serialize;

use super::Plan;

/// The cost of a plan over all ranks.
///
/// `samples + repeated` is what is delivered here plus `dropped` plus `earlier`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// Samples in the dataset.
    pub samples: u64,
    /// Batches over all ranks, repeated ones included.
    pub batches: u64,
    /// Steps of the rank that has most.
    pub steps: u64,
    /// Ranks.
    pub world: u32,
    /// Elements delivered that are data.
    pub real: u64,
    /// Elements delivered, padding included.
    pub padded: u64,
    /// The share of `padded` that is padding.
    pub padding: f64,
    /// Samples left out by `drop_last`.
    pub dropped: u64,
    /// Samples delivered a second time to fill the last step.
    pub repeated: u64,
    /// Samples delivered in earlier parts of the epoch.
    pub earlier: u64,
    /// Elements of the largest batch, padding included.
    pub largest: u64,
    /// The share of all ranks' time spent waiting for the largest batch of a step.
    pub imbalance: f64,
}

impl Plan {
    /// What this plan costs. O(world).
    pub fn stats(&self) -> Stats {
        let (first, dealt) = (self.deal.first(), self.deal.dealt());
        let earlier = self.cut.samples_before(first);
        let once = self.cut.samples_before(first + dealt) - earlier;
        let repeated = self.last_step().iter().sum::<u64>() - (once - self.samples_before_last_step(once));
        let real = once + repeated;
        Stats {
            samples: self.samples(),
            batches: dealt + self.deal.repeated(),
            steps: self.steps(),
            world: self.world,
            real,
            padded: real,
            padding: 0.0,
            dropped: self.samples() - earlier - once,
            repeated,
            earlier,
            largest: self.largest(),
            imbalance: self.imbalance(real),
        }
    }

    /// The sizes of the batches in the last step; all earlier steps hold full batches.
    fn last_step(&self) -> Vec<u64> {
        let Some(last) = self.steps().checked_sub(1) else { return Vec::new() };
        (0..self.world).filter_map(|rank| self.batch_len(last, rank).ok()).collect()
    }

    /// Of the `once` samples dealt once, those before the last step.
    fn samples_before_last_step(&self, once: u64) -> u64 {
        let before = self.steps().saturating_sub(1) * u64::from(self.world);
        let first = self.deal.first();
        (self.cut.samples_before(first + before) - self.cut.samples_before(first)).min(once)
    }

    fn largest(&self) -> u64 {
        let first = self.batch_len(0, 0).unwrap_or(0);
        self.last_step().into_iter().max().unwrap_or(0).max(first)
    }

    fn imbalance(&self, real: u64) -> f64 {
        let last = self.last_step();
        let busy = real - last.iter().sum::<u64>();
        let waited = busy + last.iter().max().unwrap_or(&0) * u64::from(self.world);
        match waited {
            0 => 0.0,
            waited => 1.0 - real as f64 / waited as f64,
        }
    }
}
