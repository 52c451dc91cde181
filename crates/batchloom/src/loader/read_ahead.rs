//! `ReadAhead`: the chunks to read before batches need them, in the order of the plan.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::plan::SlotsAhead;
use crate::{Plan, Result};

/// The chunks that an iteration has requested so far.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// The number of slots of each window after a batch: their chunks are read early.
    slots: u64,
    /// The slots of each window: all of their chunks were requested.
    asked: Vec<Range<u64>>,
    /// The chunks of windows with few samples before the end of their part of the epoch, and the positions of these.
    drawn: HashMap<usize, (Range<u64>, HashSet<u64>)>,
    /// The blocks that may still need chunks.
    begun: VecDeque<BegunBlock>,
    /// The number of chunks that memory holds, if it has a limit.
    capacity: Option<u64>,
    /// The chunks of the block that begins at a step, as they were looked up last.
    looked_up: Option<(u64, Vec<u64>)>,
}

impl ReadAhead {
    /// Reads chunks `slots` slots early, into memory that holds `capacity` chunks.
    pub(super) fn new(slots: u64, capacity: Option<u64>) -> Self {
        let (asked, drawn, begun) = (Vec::new(), HashMap::new(), VecDeque::new());
        Self { slots, asked, drawn, begun, capacity, looked_up: None }
    }

    /// Returns true if memory holds the chunks of the block of `rank` that begins at `step` beside the chunks of blocks that
    /// may still need theirs; blocks before `first` need none. A block alone always fits. An error is left to the block.
    pub(super) fn fits(&mut self, plan: &Plan, rank: u32, step: u64, first: u64) -> bool {
        let Some(capacity) = self.capacity else { return true };
        self.forget_before(first);
        if self.begun.is_empty() || step >= plan.steps_of(rank) {
            return true;
        }
        if self.looked_up.as_ref().is_none_or(|(known, _)| *known != step) {
            let ahead = plan.slots_ahead(step, rank, 0);
            self.looked_up = Some((step, ahead.ok().flatten().map_or_else(Vec::new, |ahead| ahead.needed)));
        }
        let needed = self.looked_up.iter().flat_map(|(_, needed)| needed);
        let all: HashSet<u64> =
            needed.chain(self.begun.iter().flat_map(|begun| &begun.needed)).copied().collect();
        all.len() as u64 <= capacity
    }

    /// The chunks that batches of `rank` from `step` on need next, and that were not requested yet. `None` if there are no
    /// chunks, or no more steps.
    ///
    /// # Errors
    /// The errors of [`Plan::slots_ahead`].
    pub(super) fn next_chunks(&mut self, plan: &Plan, rank: u32, step: u64) -> Result<Option<NextChunks>> {
        if step >= plan.steps_of(rank) {
            return Ok(None);
        }
        let Some(SlotsAhead { time, positions, windows, needed }) =
            plan.slots_ahead(step, rank, self.slots)?
        else {
            return Ok(None);
        };
        let mut opened = Vec::new();
        for (window, slots) in windows.iter().enumerate() {
            // A part of the epoch that begins elsewhere shares no slot with the part before.
            let asked = self.asked.get(window).filter(|asked| asked.contains(&slots.start));
            let from = asked.map_or(slots.start, |asked| asked.end.min(slots.end));
            let follow = asked.is_some();
            if follow && from >= slots.end {
                continue;
            }
            let drawn = find_drawn(&mut self.drawn, plan, window, &positions);
            opened.extend(plan.chunks_opened_by(window, from..slots.end, follow, drawn));
        }
        // Sources of a mixture open theirs side by side.
        opened.sort_by_key(|opened| opened.first);
        self.asked = windows;
        let chunks = opened.iter().map(|it| (it.chunk, it.last)).collect();
        Ok(Some(NextChunks { time, needed, chunks }))
    }

    /// Notes that `block` begins, and that blocks before `first` need no further chunk. Returns the earliest time at which a
    /// block begins that may still need one, as parts of an epoch may be read in any order, and the chunks that such blocks
    /// need.
    pub(super) fn begin_block(&mut self, block: u64, next: &mut NextChunks, first: u64) -> (u64, Vec<u64>) {
        let needed = std::mem::take(&mut next.needed);
        self.begun.push_back(BegunBlock { block, time: next.time, needed });
        self.forget_before(first);
        let needed: HashSet<u64> = self.begun.iter().flat_map(|begun| &begun.needed).copied().collect();
        (self.begun.iter().map(|begun| begun.time).min().unwrap_or(next.time), needed.into_iter().collect())
    }

    fn forget_before(&mut self, first: u64) {
        while self.begun.front().is_some_and(|begun| begun.block < first) {
            self.begun.pop_front();
        }
    }

    /// The chunks that a block needs, if it may still need one.
    pub(super) fn needed(&self, block: u64) -> &[u64] {
        let begun = self.begun.iter().find(|begun| begun.block == block);
        begun.map_or(&[], |begun| &begun.needed)
    }
}

/// A block that may still need chunks.
#[derive(Debug)]
struct BegunBlock {
    block: u64,
    /// The time at which it begins.
    time: u64,
    /// The chunks that it needs.
    needed: Vec<u64>,
}

/// The chunks of the samples of a window at some positions, if they are few: listed once for all positions before an end.
fn find_drawn<'a>(
    known: &'a mut HashMap<usize, (Range<u64>, HashSet<u64>)>,
    plan: &Plan,
    window: usize,
    positions: &Range<u64>,
) -> Option<&'a HashSet<u64>> {
    let has = |(found, _): &(Range<u64>, _)| found.end == positions.end && found.start <= positions.start;
    if !known.get(&window).is_some_and(has) {
        known.remove(&window);
        known.insert(window, (positions.clone(), plan.chunks_drawn(window, positions)?));
    }
    known.get(&window).map(|(_, chunks)| chunks)
}

/// The chunks that batches need next.
#[derive(Debug)]
pub(super) struct NextChunks {
    /// The time at which the next batch begins.
    pub(super) time: u64,
    /// The chunks that its block needs.
    needed: Vec<u64>,
    /// The chunks, each with the time at which it was needed last.
    pub(super) chunks: Vec<(u64, u64)>,
}
