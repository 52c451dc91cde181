//! The chunks that the next batches of a rank need, for readers that begin with them early.
//!
//! Promise: these are functions of the plan alone, so that a store of chunks can be filled in the order in which batches
//! need them.

use std::collections::HashSet;
use std::ops::Range;

use super::Plan;
use crate::Result;
use crate::draws::OpenedChunk;

/// The slots that the batch at a step needs, and those after them that later batches need.
#[derive(Debug)]
pub(crate) struct SlotsAhead {
    /// The time at which the batch begins.
    pub(crate) time: u64,
    /// The positions from the batch on, up to the end of its part of the epoch.
    pub(crate) positions: Range<u64>,
    /// The slots of each window.
    pub(crate) windows: Vec<Range<u64>>,
    /// The chunks that the block of the batch needs.
    pub(crate) needed: Vec<u64>,
}

impl Plan {
    /// The step before which the batches that `rank` takes from `step` on need no chunk that the first of them does not
    /// need, or in a mixture the next sample of a source. Where a rule sorts, a batch may hold any sample of its pool, and
    /// the step is the one after the last batch of that pool. `None` if samples are not read chunk by chunk.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub(crate) fn end_of_chunks(&self, step: u64, rank: u32) -> Result<Option<u64>> {
        if !self.epoch.draws.is_in_chunks() {
            return Ok(None);
        }
        let run = self.batch(step, rank)?..self.deal().run(step, rank).end;
        let last = match self.epoch.positions(run.start) {
            Some(first) if !first.is_empty() && self.epoch.is_consecutive() => {
                let slots = self.epoch.draws.slots_of_block(first, self.epoch.draws.len());
                let end = self.epoch.draws.end_of_slots(&slots);
                let fits = |batch| self.epoch.positions(batch).is_some_and(|positions| positions.end <= end);
                last_that(run.clone(), fits)
            }
            None if !self.recipe().is_homogeneous() => {
                let pool = self.epoch.pool_of(run.start);
                last_that(run.clone(), |batch| self.epoch.pool_of(batch) == pool)
            }
            _ => run.start,
        };
        Ok(Some(step + (last - run.start) + 1))
    }

    /// The slots of each window that the block that begins with the batch of `rank` at `step` needs, and at most `more`
    /// after them, of all windows together, that its next batches need. `None` if samples are not read chunk by chunk.
    ///
    /// # Errors
    /// As [`end_of_chunks`](Self::end_of_chunks).
    pub(crate) fn slots_ahead(&self, step: u64, rank: u32, more: u64) -> Result<Option<SlotsAhead>> {
        let draws = &self.epoch.draws;
        if !draws.is_in_chunks() {
            return Ok(None);
        }
        let batch = self.batch(step, rank)?;
        let last = self.deal().run(step, rank).end.max(batch + 1) - 1;
        let (own, all) = (self.epoch.positions_read(batch, batch), self.epoch.positions_read(batch, last));
        if own.is_empty() {
            return Ok(None);
        }
        let positions = own.start..all.end.max(own.end);
        let mut windows = draws.slots_of_block(own.clone(), positions.end);
        let chunks =
            |(window, slots): (usize, &Range<u64>)| draws.chunks_of_slots(window, slots.clone(), &positions);
        let needed = windows.iter().enumerate().flat_map(chunks).collect();
        draws.add_slots(&mut windows, more, positions.end);
        Ok(Some(SlotsAhead { time: draws.clock(own.start), positions, windows, needed }))
    }

    /// The chunks that `slots` of a window open, in the order in which slots need them: with those that are open already,
    /// unless the slots `follow` slots that were looked at. Only those in `drawn`, if there is such a list.
    pub(crate) fn chunks_opened_by(
        &self,
        window: usize,
        slots: Range<u64>,
        follow: bool,
        drawn: Option<&HashSet<u64>>,
    ) -> Vec<OpenedChunk> {
        self.epoch.draws.chunks_opened_by(window, slots, follow, drawn)
    }

    /// The chunks of the samples at some positions of a window, if a source of a mixture has few samples there.
    pub(crate) fn chunks_drawn(&self, window: usize, positions: &Range<u64>) -> Option<HashSet<u64>> {
        self.epoch.draws.chunks_drawn(window, positions)
    }
}

/// The last of some batches that fits. The first one fits, and none fits after one that does not.
fn last_that(batches: Range<u64>, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut last, mut beyond) = (batches.start, batches.end.max(batches.start + 1));
    while beyond - last > 1 {
        let middle = last.midpoint(beyond);
        if fits(middle) { last = middle } else { beyond = middle }
    }
    last
}
