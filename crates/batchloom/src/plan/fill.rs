//! Batches of a step that are filled up, so that all have the same number of samples.
//!
//! Rules of equal counts make a smaller batch where a pool or the data ends. With several ranks, a step may then hold
//! batches of different sizes, which collective operations do not take. Such a batch repeats its own samples, in order,
//! until it is as large as the largest batch of the step; a batch that is dealt again at the last step is repeated or
//! cut to that size. Batches of rules with a budget stay as they are: filling them up would exceed it. Batches that are
//! given as lists are filled up if all but the last hold the same number of samples.

use super::Plan;
use crate::Result;
use crate::ranks::Uneven;

impl Plan {
    /// The number of places, at the end of the batch that `rank` takes at `step`, that only fill up. 0 unless batches
    /// are uneven and [masked](Uneven::Mask).
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub fn fillers(&self, step: u64, rank: u32) -> Result<u64> {
        let batch = self.batch(step, rank)?;
        if self.options().uneven != Uneven::Mask {
            return Ok(0);
        }
        let len = self.batch_len(step, rank)?;
        let is_first = u64::from(rank) < self.deal().batches_at(step);
        Ok(if is_first && !self.fills_step(batch) { len - self.own_len(batch) } else { len })
    }

    /// The number of samples of every batch at `step`, or `None` if batches stay as they are.
    pub(super) fn filled_len(&self, step: u64) -> Option<u64> {
        let batch_size = self.rule().equal_len()?;
        if self.world_size == 1 || self.options().drop_last || self.options().uneven == Uneven::Short {
            return None;
        }
        let deal = self.deal();
        let ranks = deal.batches_at(step);
        if self.epoch.uniform().is_some() && ranks > 2 {
            // At most two batches of the epoch are smaller.
            return Some(batch_size);
        }
        let mut largest = 0;
        for rank in (0..self.world_size).take_while(|&rank| u64::from(rank) < ranks) {
            largest = largest.max(deal.batch(step, rank).map_or(0, |batch| self.own_len(batch)));
            if largest == batch_size {
                break;
            }
        }
        Some(largest)
    }
}
