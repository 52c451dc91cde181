//! The chunks that the next batches of a rank need, for readers that begin with them early.
//!
//! Promise: these are functions of the plan alone, so that a store of chunks can be filled in the order in which batches
//! need them.

use std::ops::Range;

use super::Plan;
use crate::Result;

impl Plan {
    /// The step before which the batches that `rank` takes from `step` on need no chunk that the first of them does not
    /// need. `None` if samples are not read chunk by chunk.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub(crate) fn end_of_chunks(&self, step: u64, rank: u32) -> Result<Option<u64>> {
        let Some(window) = self.epoch.draws.chunk_window() else { return Ok(None) };
        let run = self.batch(step, rank)?..self.deal().run(step, rank).end;
        let first = self.epoch.positions(run.start).filter(|positions| !positions.is_empty());
        let Some(first) = first.filter(|_| self.epoch.is_consecutive()) else { return Ok(Some(step + 1)) };
        let end = window.positions(window.slot_of(first.end - 1)).end;
        let fits = |batch: u64| self.epoch.positions(batch).is_some_and(|positions| positions.end <= end);
        let (mut last, mut beyond) = (run.start, run.end.max(run.start + 1));
        while beyond - last > 1 {
            let middle = last.midpoint(beyond);
            if fits(middle) { last = middle } else { beyond = middle }
        }
        Ok(Some(step + (beyond - run.start)))
    }

    /// The slots of the window that the batch of `rank` at `step` needs, and at most `more` after them that its next
    /// batches need. `None` if samples are not read chunk by chunk.
    ///
    /// # Errors
    /// As [`end_of_chunks`](Self::end_of_chunks).
    pub(crate) fn slots_ahead(&self, step: u64, rank: u32, more: u64) -> Result<Option<Range<u64>>> {
        let Some(window) = self.epoch.draws.chunk_window() else { return Ok(None) };
        let batch = self.batch(step, rank)?;
        let last = self.deal().run(step, rank).end.max(batch + 1) - 1;
        let (own, all) = (self.epoch.positions_read(batch, batch), self.epoch.positions_read(batch, last));
        if own.is_empty() {
            return Ok(None);
        }
        let (first, end) = (window.slot_of(own.start), window.slot_of(own.end - 1) + 1);
        let most = window.slot_of(all.end.max(own.end) - 1) + 1;
        Ok(Some(first..end.saturating_add(more).min(most)))
    }

    /// The chunks that `slots` open, each with the last slot that needs it, in the order in which slots need them: with
    /// those that are open already, unless the slots `follow` slots that were looked at.
    pub(crate) fn chunks_opened_by(&self, slots: Range<u64>, follow: bool) -> Vec<(u64, u64)> {
        self.epoch.draws.chunk_window().map_or_else(Vec::new, |window| window.chunks_opened_by(slots, follow))
    }
}
