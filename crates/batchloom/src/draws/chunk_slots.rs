//! The slots of windows over chunks that positions of an epoch need, and the chunks that these slots open.
//!
//! Samples that are all in chunks have one window. A mixture has one for each source, whose slots are numbered over the
//! passes that the epoch takes from it; a source that is not read chunk by chunk has no slot.
//!
//! Promise: positions need the chunks of the slots that are named for them, and no others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ops::Range;

use super::draws::Draws;
use super::mixed::Mixed;
use super::source_window::Passes;
use super::stream::low;
use crate::order::ChunkWindow;

/// The number of draws of a source up to which their chunks are listed, which takes about a microsecond for each: more
/// draws need most chunks that are open.
const FEW_DRAWS: u64 = 1 << 14;

/// A chunk that a slot opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenedChunk {
    /// Its number, source by source.
    pub(crate) chunk: u64,
    /// The times, on the [clock](Draws::clock) of the epoch, of the first slot asked for that needs it, and of the last
    /// slot of all.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Draws {
    /// Returns true if samples are read chunk by chunk.
    pub(crate) fn is_in_chunks(&self) -> bool {
        match self {
            Self::Mixed(mixed) => mixed.mix.is_in_chunks(),
            _ => self.chunk_window().is_some(),
        }
    }

    /// The slots of each window that hold the samples at some positions. Of a source without such a sample this is empty,
    /// and begins at the slot of its next one.
    pub(crate) fn slots_of(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        match self {
            Self::Mixed(mixed) => mixed.slots_of(positions),
            _ => self.chunk_window().map(|window| slots_of(window, &positions)).into_iter().collect(),
        }
    }

    /// The slots of each window that a block that begins with the samples at `first` needs: the slots of these samples,
    /// and for a source without a sample among them, the slot of its next sample, if that lies before `end`.
    pub(crate) fn slots_of_block(&self, first: Range<u64>, end: u64) -> Vec<Range<u64>> {
        let mut windows = self.slots_of(first);
        for (window, slots) in windows.iter_mut().enumerate() {
            if slots.is_empty() && self.position_of_slot(window, slots.start) < end {
                slots.end += 1;
            }
        }
        windows
    }

    /// The position at which a slot of a window is first needed; the number of positions if none is.
    fn position_of_slot(&self, window: usize, slot: u64) -> u64 {
        match self {
            Self::Mixed(mixed) => mixed.position_of_slot(window, slot),
            _ => match self.chunk_window() {
                Some(window) if slot < window.slots() => window.positions(slot).start,
                _ => self.len(),
            },
        }
    }

    /// The first position at which a slot after `slots`, one range for each window, is needed; the number of positions if
    /// none is.
    pub(crate) fn end_of_slots(&self, slots: &[Range<u64>]) -> u64 {
        let end = |(window, slots): (usize, &Range<u64>)| self.position_of_slot(window, slots.end);
        slots.iter().enumerate().map(end).min().unwrap_or_else(|| self.len())
    }

    /// Adds the next `more` slots to `slots`, one range for each window, in the order in which positions before `end` need
    /// them.
    pub(crate) fn add_slots(&self, slots: &mut [Range<u64>], more: u64, end: u64) {
        let next = |window: usize, slots: &Range<u64>| (self.position_of_slot(window, slots.end), window);
        let each = slots.iter().enumerate();
        let mut queue: BinaryHeap<_> = each.map(|(window, slots)| Reverse(next(window, slots))).collect();
        for _ in 0..more {
            let Some(Reverse((position, window))) = queue.pop() else { return };
            if position >= end {
                return;
            }
            slots[window].end += 1;
            queue.push(Reverse(next(window, &slots[window])));
        }
    }

    /// The chunks that slots of a window open, in the order in which they are opened: with those that are open already,
    /// unless the slots `follow` slots that were looked at. Only those in `drawn`, if there is such a list.
    pub(crate) fn chunks_opened_by(
        &self,
        window: usize,
        slots: Range<u64>,
        follow: bool,
        drawn: Option<&HashSet<u64>>,
    ) -> Vec<OpenedChunk> {
        match self {
            Self::Mixed(mixed) => mixed.chunks_opened_by(window, slots, follow, drawn),
            _ => self.chunk_window().map_or_else(Vec::new, |window| {
                let opened = |(chunk, last)| OpenedChunk { chunk, first: slots.start, last };
                window.chunks_opened_by(slots.clone(), follow).into_iter().map(opened).collect()
            }),
        }
    }

    /// The chunks of the samples of a source of a mixture at some positions, by their numbers in the source: of the window
    /// of that number. `None` if they are not few, or there are no sources.
    pub(crate) fn chunks_drawn(&self, window: usize, positions: &Range<u64>) -> Option<HashSet<u64>> {
        let Self::Mixed(mixed) = self else { return None };
        mixed.chunks_drawn(window, mixed.streams[window].passes.as_deref()?, positions)
    }

    /// The chunks that slots of a window hold samples of. A mixture names a chunk once for each pass. If `positions` hold
    /// few samples of a source of it, only the chunks of these samples.
    pub(crate) fn chunks_of_slots(
        &self,
        window: usize,
        slots: Range<u64>,
        positions: &Range<u64>,
    ) -> Vec<u64> {
        match self {
            Self::Mixed(mixed) => mixed.chunks_of_slots(window, slots, positions),
            _ => self.chunk_window().map_or_else(Vec::new, |window| window.chunks_of_slots(slots)),
        }
    }

    /// The time of a position: a number that grows by about one with each slot of any window.
    pub(crate) fn clock(&self, position: u64) -> u64 {
        match self {
            Self::Mixed(mixed) => mixed.clock(position),
            _ => self.chunk_window().map_or(0, |window| {
                if position < window.len() { window.slot_of(position) } else { window.slots() }
            }),
        }
    }

    /// The number of chunks that are open at a time, over all windows.
    pub(crate) fn chunks_open(&self) -> u64 {
        match self {
            Self::Mixed(mixed) => mixed.passes().map(|(_, passes)| passes.open()).sum(),
            _ => self.chunk_window().map_or(0, ChunkWindow::open),
        }
    }

    /// The most chunks that are open at a time where `positions` consecutive ones are read.
    pub(crate) fn most_chunks(&self, positions: impl Fn(&ChunkWindow) -> u64) -> u64 {
        let held = |window: &ChunkWindow, passes: u64| {
            let open = (window.open() - 1).saturating_mul(passes);
            open.saturating_add(positions(window)).min(window.chunks().len()).max(1)
        };
        match self {
            Self::Mixed(mixed) => {
                let of = |(source, passes): (usize, &Passes)| {
                    let (first, end) = mixed.passes_of(source);
                    // Where two passes meet, the chunks of both are open.
                    held(&passes.order(low(first)), if end > first + 1 { 2 } else { 1 })
                };
                mixed.passes().map(of).fold(0, u64::saturating_add)
            }
            _ => self.chunk_window().map_or(0, |window| held(window, 1)),
        }
    }
}

/// The slots of a window that hold the samples at some positions.
fn slots_of(window: &ChunkWindow, positions: &Range<u64>) -> Range<u64> {
    let slot = |position: u64| {
        if position < window.len() { window.slot_of(position) } else { window.slots() }
    };
    let first = slot(positions.start);
    first..if positions.is_empty() { first } else { slot(positions.end - 1) + 1 }
}

impl Mixed {
    /// The sources that are read chunk by chunk, and their passes.
    fn passes(&self) -> impl Iterator<Item = (usize, &Passes)> {
        self.streams.iter().enumerate().filter_map(|(source, it)| Some((source, it.passes.as_deref()?)))
    }

    /// The first pass that the epoch takes from a source, and the pass after the last one.
    fn passes_of(&self, source: usize) -> (u128, u128) {
        let samples = u128::from(self.streams[source].samples.max(1));
        let first = u128::from(self.draws_before_epoch()[source]);
        let draws = u128::from(self.draws_before(self.len())[source]);
        (first / samples, (first + draws).div_ceil(samples).max(first / samples + 1))
    }

    /// The slot of a draw of a source in this epoch, numbered over passes.
    fn slot_of(&self, source: usize, passes: &Passes, before: u64, draw: u64) -> u64 {
        let samples = u128::from(self.streams[source].samples.max(1));
        let place = u128::from(before) + u128::from(draw);
        let pass = place / samples;
        let within = passes.order(low(pass)).slot_of(low(place % samples));
        low(pass - u128::from(before) / samples) * passes.slots() + within
    }

    /// The first draw of a source in this epoch that a slot holds, or 0 if it was drawn before.
    fn draw_of_slot(&self, source: usize, passes: &Passes, slot: u64) -> u64 {
        let samples = u128::from(self.streams[source].samples.max(1));
        let before = u128::from(self.draws_before_epoch()[source]);
        let pass = before / samples + u128::from(slot / passes.slots());
        let start = passes.order(low(pass)).positions(slot % passes.slots()).start;
        u64::try_from((pass * samples + u128::from(start)).saturating_sub(before)).unwrap_or(u64::MAX)
    }

    /// The position at which a slot of a source is first needed; the number of positions if none is.
    fn position_of_slot(&self, source: usize, slot: u64) -> u64 {
        self.streams[source].passes.as_deref().map_or_else(
            || self.len(),
            |passes| self.position_of(source, self.draw_of_slot(source, passes, slot)),
        )
    }

    fn slots_of(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        let (before, start) = (self.draws_before_epoch(), self.draws_before(positions.start));
        let end = if positions.is_empty() { start.clone() } else { self.draws_before(positions.end) };
        let slots = |source: usize| {
            let Some(passes) = self.streams[source].passes.as_deref() else { return 0..0 };
            let slot = |draw| self.slot_of(source, passes, before[source], draw);
            let first = slot(start[source]);
            first..if end[source] > start[source] { slot(end[source] - 1) + 1 } else { first }
        };
        (0..self.streams.len()).map(slots).collect()
    }

    /// The parts of some slots of a source that lie in one pass each: the number of its first slot, its order, and the
    /// slots there.
    fn split_by_pass(
        &self,
        source: usize,
        passes: &Passes,
        slots: Range<u64>,
    ) -> Vec<(u64, ChunkWindow, Range<u64>)> {
        let (in_pass, first_pass) = (passes.slots(), self.passes_of(source).0);
        let of_pass = |pass: u64| {
            let before = pass * in_pass;
            let own = slots.start.max(before) - before..slots.end.min(before + in_pass) - before;
            (before, passes.order(low(first_pass + u128::from(pass))), own)
        };
        (slots.start / in_pass..slots.end.div_ceil(in_pass))
            .map(of_pass)
            .filter(|it| !it.2.is_empty())
            .collect()
    }

    /// The number of the first chunk of a source.
    fn first_chunk(&self, source: usize) -> u64 {
        self.passes().filter(|(other, _)| *other < source).map(|(_, it)| it.window.chunks.len()).sum()
    }

    /// The chunks of the samples of a source at some positions, if these are few.
    fn chunks_drawn(&self, source: usize, passes: &Passes, positions: &Range<u64>) -> Option<HashSet<u64>> {
        let draws = |position| self.draws_before(position)[source];
        let (start, end) = (draws(positions.start), draws(positions.end));
        let few = end.checked_sub(start).filter(|&few| few <= FEW_DRAWS)?;
        let mut samples = vec![0; usize::try_from(few).ok()?];
        self.streams[source].fill(self.draws_before_epoch()[source], start, &mut samples);
        Some(samples.into_iter().map(|sample| passes.window.chunks.chunk_of(sample)).collect())
    }

    fn chunks_opened_by(
        &self,
        source: usize,
        slots: Range<u64>,
        follow: bool,
        drawn: Option<&HashSet<u64>>,
    ) -> Vec<OpenedChunk> {
        let Some(passes) = self.streams[source].passes.as_deref() else { return Vec::new() };
        let (first_chunk, mut opened) = (self.first_chunk(source), Vec::new());
        if slots.is_empty() {
            return opened;
        }
        let is_drawn = |chunk: &u64| drawn.is_none_or(|drawn| drawn.contains(chunk));
        for (before, order, own) in self.split_by_pass(source, passes, slots.clone()) {
            let first = self.clock(self.position_of_slot(source, before + own.start));
            let follows = follow && before + own.start == slots.start;
            let own_chunks = order.chunks_opened_by(own, follows).into_iter();
            for (chunk, last) in own_chunks.filter(|(chunk, _)| is_drawn(chunk)) {
                let end = self.position_of_slot(source, before + last + 1);
                let last = self.clock(end.saturating_sub(1));
                opened.push(OpenedChunk { chunk: first_chunk + chunk, first, last });
            }
        }
        opened
    }

    fn chunks_of_slots(&self, source: usize, slots: Range<u64>, positions: &Range<u64>) -> Vec<u64> {
        let Some(passes) = self.streams[source].passes.as_deref() else { return Vec::new() };
        let drawn = self.chunks_drawn(source, passes, positions);
        let first_chunk = self.first_chunk(source);
        let parts = self.split_by_pass(source, passes, slots).into_iter();
        parts
            .flat_map(|(_, order, own)| order.chunks_of_slots(own))
            .filter(|chunk| drawn.as_ref().is_none_or(|drawn| drawn.contains(chunk)))
            .map(|chunk| first_chunk + chunk)
            .collect()
    }

    fn clock(&self, position: u64) -> u64 {
        let slots = |(source, passes): (usize, &Passes)| {
            let (first, end) = self.passes_of(source);
            passes.slots().saturating_mul(low(end - first))
        };
        let all = self.all_slots.get_or_init(|| self.passes().map(slots).fold(0, u64::saturating_add));
        position / (self.len() / (*all).max(1)).max(1)
    }
}

impl Passes {
    /// The number of slots of a pass.
    fn slots(&self) -> u64 {
        self.window.slots(self.shuffled).max(1)
    }

    /// The number of chunks that are open at a time.
    fn open(&self) -> u64 {
        if self.shuffled { self.window.open.min(self.window.chunks.len()).max(1) } else { 1 }
    }
}
