//! Steps: one batch for each rank, in turns or in parts.
//!
//! In turns, a step is `world_size` consecutive batches. In parts, each rank takes one contiguous part of the epoch's
//! batches, the first ranks one batch more where parts differ, so that the chunks that a rank reads are read by no
//! other rank, but for those at the border of two parts.
//!
//! A batch does not depend on the world; only its place does. So a run that stops after some steps and continues with
//! another number of ranks has a simple remainder: the batches from some number on, or the rest of each part, which
//! the new ranks cut into parts again.
//!
//! Promise: with `drop_last`, [`Uneven::Pad`] or [`Uneven::Mask`], every rank has the same number of steps.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::named::named;

/// The largest number of ranks. Some results list an entry for every rank, so it is kept small.
pub const MOST_RANKS: u32 = 1 << 20;

/// The treatment of batches that do not fill the last step, if nothing is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Uneven {
    /// Batches are repeated, so that every rank has the same number of steps: those from the start of the epoch, or the
    /// last batch of each rank, if samples are read chunk by chunk. If a rule makes batches of equal numbers of
    /// samples, a smaller batch of a step repeats its samples until it has as many as the others.
    #[default]
    Pad,
    /// Steps are the same on every rank and equally large, as with [`Pad`](Self::Pad), and every sample counts exactly
    /// once: places that only fill up repeat samples of the step (or of the last batch of the rank, if samples are read
    /// chunk by chunk), come last in their batch, and are marked by an `index` of -1 and a `weight` of 0.
    Mask,
    /// The last ranks have one step less, so that every sample is used exactly once.
    Short,
}

impl Uneven {
    /// The name of this choice in Python and in states.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pad => "pad",
            Self::Mask => "mask",
            Self::Short => "short",
        }
    }
}

named!(Uneven, "uneven", {
    "pad" => Pad,
    "mask" => Mask,
    "short" => Short,
});

/// The steps that `world_size` ranks make of the batches that are left of an epoch.
#[derive(Debug, Clone)]
pub struct Deal {
    /// The batches that are left, in ascending order.
    left: Arc<[Stretch]>,
    /// The batch that each rank takes last, if ranks take parts, and some took all of theirs before.
    last: Arc<[u64]>,
    /// The number of batches in the epoch.
    batches: u64,
    world_size: u64,
    in_parts: bool,
    drop_last: bool,
    uneven: Uneven,
}

/// Consecutive batches that are left.
#[derive(Debug, Clone)]
struct Stretch {
    /// The number of batches that are left before these.
    before: u64,
    batches: Range<u64>,
}

impl Deal {
    /// Deals the batches `first..batches` to `world_size` ranks, in turns.
    pub fn new(first: u64, batches: u64, world_size: u32, drop_last: bool, uneven: Uneven) -> Self {
        let first = first.min(batches);
        let left = Arc::from([Stretch { before: 0, batches: first..batches }]);
        let (last, world_size) = (Arc::default(), u64::from(world_size));
        Self { left, last, batches, world_size, in_parts: false, drop_last, uneven }
    }

    /// Deals the batches `0..batches` to `world_size` ranks, a part to each, after other ranks took some of theirs:
    /// `past` lists (world size, steps).
    pub fn in_parts(
        batches: u64,
        past: &[(u32, u64)],
        world_size: u32,
        drop_last: bool,
        uneven: Uneven,
    ) -> Self {
        let mut deal = Self { in_parts: true, ..Self::new(0, batches, world_size, drop_last, uneven) };
        for (place, &(past_size, steps)) in (1..).zip(past) {
            deal.world_size = u64::from(past_size);
            let left = deal.after(steps);
            // The same ranks go on with their parts.
            if place == past.len() && past_size == world_size && deal.left() > 0 {
                deal.last = (0..deal.world_size).map(|rank| deal.last_batch(rank)).collect();
            }
            deal.left = left;
        }
        Self { world_size: u64::from(world_size), ..deal }
    }

    /// The rest of each part after `steps` steps.
    fn after(&self, steps: u64) -> Arc<[Stretch]> {
        let rests = (0..self.world_size).map(|rank| {
            let part = self.part(rank);
            part.start.saturating_add(steps).min(part.end)..part.end
        });
        let mut left = Vec::new();
        let mut before = 0;
        for batches in rests.flat_map(|rest| self.batches_in(rest)) {
            let count = batches.end - batches.start;
            left.push(Stretch { before, batches });
            before += count;
        }
        left.into()
    }

    /// The number of steps of the rank that has most.
    pub fn steps(&self) -> u64 {
        match self.drop_last {
            true => self.left() / self.world_size,
            false => self.left().div_ceil(self.world_size),
        }
    }

    /// The number of steps of `rank`.
    pub fn steps_of(&self, rank: u32) -> u64 {
        match (self.drop_last, self.uneven) {
            (false, Uneven::Short) => self.left().saturating_sub(u64::from(rank)).div_ceil(self.world_size),
            _ => self.steps(),
        }
    }

    /// The batch that `rank` takes at `step`, or `None` past the end of its steps.
    pub fn batch(&self, step: u64, rank: u32) -> Option<u64> {
        if step >= self.steps_of(rank) {
            return None;
        }
        if self.in_parts {
            let rank = u64::from(rank);
            let place = self.part(rank).start + step;
            return Some(if place < self.part(rank).end {
                self.batch_at(place)
            } else {
                self.last_batch(rank)
            });
        }
        let place = step * self.world_size + u64::from(rank);
        Some(match (place.checked_sub(self.left()), self.uneven) {
            (None, _) => self.batch_at(place),
            // It is of the same step, and needs no other data than the batches before it.
            (Some(_), Uneven::Mask) => self.batches - 1,
            (Some(beyond), _) => beyond % self.batches,
        })
    }

    /// The number of ranks, from rank 0 on, with a batch at `step` that is not dealt again.
    pub fn batches_at(&self, step: u64) -> u64 {
        self.left().saturating_sub(step * self.world_size).min(self.world_size)
    }

    /// The consecutive batches, from the one at `step` on, that `rank` takes step by step.
    pub(crate) fn run(&self, step: u64, rank: u32) -> Range<u64> {
        let Some(first) = self.batch(step, rank) else { return 0..0 };
        let place = match self.in_parts {
            true => self.part(u64::from(rank)).start + step,
            false => step * self.world_size + u64::from(rank),
        };
        let end = match (self.in_parts, self.world_size) {
            (true, _) => self.taken(u64::from(rank)).end,
            (false, 1) => self.left(),
            (false, _) => place + 1,
        };
        let same = self.left.get(self.stretch_at(place)).filter(|_| place < end);
        same.map_or(first..first + 1, |stretch| first..stretch.batches.end.min(first + (end - place)))
    }

    /// The step and the rank that take `batch`. `None` if it is dropped or came earlier.
    pub(crate) fn first_place(&self, batch: u64) -> Option<(u64, u32)> {
        let stretch = self.left.partition_point(|stretch| stretch.batches.end <= batch);
        let stretch = self.left.get(stretch)?;
        let place = stretch.before + batch.checked_sub(stretch.batches.start)?;
        let (step, rank) = match self.in_parts {
            true => self.place_in_part(place),
            false => (place / self.world_size, place % self.world_size),
        };
        (step < self.steps()).then(|| (step, rank_of(rank)))
    }

    /// The steps and ranks that take `batch` again, to fill the last step.
    pub(crate) fn places_again(&self, batch: u64) -> Vec<(u64, u32)> {
        let (Some(step), 1..) = (self.steps().checked_sub(1), self.repeated()) else { return Vec::new() };
        let ranks = self.batches_at(step)..self.world_size;
        match (self.in_parts, self.uneven) {
            (true, _) if step > 0 => {
                let last = self.first_place(batch).filter(|&(before, _)| before + 1 == step);
                let filled = last.filter(|(_, rank)| ranks.contains(&u64::from(*rank)));
                filled.map(|(_, rank)| (step, rank)).into_iter().collect()
            }
            // Batches that ranks take last are in ascending order.
            (true, _) => {
                let at_least = |least: u64| {
                    let (mut low, mut high) = (ranks.start, ranks.end);
                    while low < high {
                        let rank = low.midpoint(high);
                        if self.last_batch(rank) < least { low = rank + 1 } else { high = rank }
                    }
                    low
                };
                (at_least(batch)..at_least(batch + 1)).map(|rank| (step, rank_of(rank))).collect()
            }
            (false, Uneven::Mask) if batch + 1 < self.batches => Vec::new(),
            (false, Uneven::Mask) => ranks.map(|rank| (step, rank_of(rank))).collect(),
            // Batch b is repeated at places b, b + batches, .. past those that are left.
            (false, _) => (batch..self.repeated())
                .step_by(usize::try_from(self.batches).unwrap_or(usize::MAX))
                .map(|beyond| (step, rank_of(ranks.start + beyond)))
                .collect(),
        }
    }

    /// The steps and ranks that take `batch`. Empty if it is dropped or came earlier; several if it is repeated. Places
    /// that only fill up are left out.
    pub fn places(&self, batch: u64) -> Vec<(u64, u32)> {
        let again = if self.uneven == Uneven::Pad { self.places_again(batch) } else { Vec::new() };
        self.first_place(batch).into_iter().chain(again).collect()
    }

    /// The number of batches dealt here, each counted once.
    pub fn dealt(&self) -> u64 {
        self.left().min(self.steps() * self.world_size)
    }

    /// The batches dealt here, each once, in ascending order.
    pub(crate) fn dealt_batches(&self) -> Vec<Range<u64>> {
        match self.in_parts && self.drop_last {
            false => self.batches_in(0..self.dealt()).collect(),
            true => (0..self.world_size).flat_map(|rank| self.batches_in(self.taken(rank))).collect(),
        }
    }

    /// The batches dealt in earlier parts of the epoch, in ascending order.
    pub(crate) fn earlier_batches(&self) -> Vec<Range<u64>> {
        let starts = [0].into_iter().chain(self.left.iter().map(|stretch| stretch.batches.end));
        let ends = self.left.iter().map(|stretch| stretch.batches.start).chain([self.batches]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|batches| !batches.is_empty()).collect()
    }

    /// Returns true if `batch` was dealt in an earlier part of the epoch.
    pub(crate) fn is_earlier(&self, batch: u64) -> bool {
        let stretch = self.left.partition_point(|stretch| stretch.batches.end <= batch);
        batch < self.batches && self.left.get(stretch).is_none_or(|stretch| batch < stretch.batches.start)
    }

    /// The batches that `rank` takes, each once, in ascending order.
    pub(crate) fn batches_of(&self, rank: u32) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let (mut step, steps) = (0, self.steps_of(rank));
        while step < steps {
            let run = self.run(step, rank);
            step += run.end - run.start;
            found.push(run);
        }
        found
    }

    /// The number of batches that are dealt a second time to fill the last step.
    pub fn repeated(&self) -> u64 {
        match self.uneven {
            Uneven::Pad | Uneven::Mask => (self.steps() * self.world_size).saturating_sub(self.left()),
            Uneven::Short => 0,
        }
    }

    /// The number of batches that are left.
    fn left(&self) -> u64 {
        self.left.last().map_or(0, |last| last.before + (last.batches.end - last.batches.start))
    }

    /// The part of a rank, as places among the batches that are left. The first ranks have one more where parts differ.
    fn part(&self, rank: u64) -> Range<u64> {
        let (each, more) = (self.left() / self.world_size, self.left() % self.world_size);
        let start = |rank: u64| rank * each + rank.min(more);
        start(rank)..start(rank + 1)
    }

    /// The batch that a rank takes last, if ranks take parts: the last one of all if it has none.
    fn last_batch(&self, rank: u64) -> u64 {
        let (part, had) = (self.part(rank), self.last.get(usize::try_from(rank).unwrap_or(usize::MAX)));
        match had.filter(|_| part.is_empty()) {
            Some(&batch) => batch,
            None => self.batch_at(part.end.saturating_sub(1)),
        }
    }

    /// The part of a rank without what is dropped.
    fn taken(&self, rank: u64) -> Range<u64> {
        let part = self.part(rank);
        part.start..part.end.min(part.start + self.steps())
    }

    /// The step and the rank of a place among the batches that are left, if ranks take parts.
    fn place_in_part(&self, place: u64) -> (u64, u64) {
        let (each, more) = (self.left() / self.world_size, self.left() % self.world_size);
        let rank = match place.checked_sub(more * (each + 1)) {
            None => place / (each + 1),
            Some(place) => more + place / each,
        };
        (place - self.part(rank).start, rank)
    }

    /// The batch at a place among those that are left.
    fn batch_at(&self, place: u64) -> u64 {
        let stretch = &self.left[self.stretch_at(place)];
        stretch.batches.start + (place - stretch.before)
    }

    /// The number of the stretch that holds a place.
    fn stretch_at(&self, place: u64) -> usize {
        self.left.partition_point(|stretch| stretch.before <= place).saturating_sub(1)
    }

    /// The batches at some places among those that are left.
    fn batches_in(&self, places: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self.stretch_at(places.start);
        let stretches = self.left[from.min(self.left.len())..].iter();
        let stretches = stretches.take_while(move |stretch| stretch.before < places.end);
        let cut = move |stretch: &Stretch| {
            let at = |place: u64| stretch.batches.start + place.saturating_sub(stretch.before);
            at(places.start)..at(places.end).min(stretch.batches.end)
        };
        stretches.map(cut).filter(|batches| !batches.is_empty())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a number below world_size, which is a u32")]
fn rank_of(number: u64) -> u32 {
    number as u32
}
