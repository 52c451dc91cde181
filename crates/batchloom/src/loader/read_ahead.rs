//! `ReadAhead`: the chunks to read before batches need them, in the order of the plan.

use std::ops::Range;

use crate::{Plan, Result};

/// The chunks that an iteration has asked for so far.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// The number of slots of the window after those of a batch, of which chunks are read early.
    slots: u64,
    /// The slots of which all chunks were asked for.
    asked: Range<u64>,
}

impl ReadAhead {
    /// Reads chunks `slots` slots early.
    pub(super) fn new(slots: u64) -> Self {
        Self { slots, asked: 0..0 }
    }

    /// The chunks that batches of `rank` from `step` on need next, and that were not asked for yet. `None` if there are no
    /// chunks, or no more steps.
    ///
    /// # Errors
    /// The errors of [`Plan::slots_ahead`].
    pub(super) fn next_chunks(&mut self, plan: &Plan, rank: u32, step: u64) -> Result<Option<NextChunks>> {
        if step >= plan.steps_of(rank) {
            return Ok(None);
        }
        let Some(slots) = plan.slots_ahead(step, rank, self.slots)? else { return Ok(None) };
        // A part of the epoch that begins elsewhere shares no slot with the part before.
        let follows = self.asked.contains(&slots.start);
        let from = if follows { self.asked.end.min(slots.end) } else { slots.start };
        let (slot, chunks) = (slots.start, plan.chunks_opened_by(from..slots.end, follows));
        self.asked = slots;
        Ok(Some(NextChunks { slot, chunks }))
    }
}

/// The chunks that batches need next.
#[derive(Debug)]
pub(super) struct NextChunks {
    /// The first slot of the window that the next batch needs.
    pub(super) slot: u64,
    /// The chunks, each with the last slot that needs it.
    pub(super) chunks: Vec<(u64, u64)>,
}
