//! Steps: `world_size` consecutive batches, one for each rank.
//!
//! A batch does not depend on the world; only its place does. So a run that stops after some steps and continues with
//! another number of ranks has a simple remainder: the batches from [`Deal::first`] on.
//!
//! Promise: with `drop_last`, [`Uneven::Pad`] or [`Uneven::Mask`], every rank has the same number of steps.

use serde::{Deserialize, Serialize};

use crate::named::named;

/// The largest number of ranks. Some results list an entry for every rank, so it is kept small.
pub const MOST_RANKS: u32 = 1 << 20;

/// The treatment of batches that do not fill the last step, if nothing is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Uneven {
    /// Batches from the start of the epoch are repeated, so that every rank has the same number of steps. If a rule
    /// makes batches of equal numbers of samples, a smaller batch of a step repeats its samples until it has as many
    /// as the others.
    #[default]
    Pad,
    /// Steps are the same on every rank and equally large, as with [`Pad`](Self::Pad), and every sample counts exactly
    /// once: places that only fill up repeat samples of the step, come last in their batch, and are marked by an
    /// `index` of -1 and a `weight` of 0.
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

/// The steps that `world_size` ranks make of the batches from `first` on.
#[derive(Debug, Clone)]
pub struct Deal {
    first: u64,
    batches: u64,
    world_size: u64,
    drop_last: bool,
    uneven: Uneven,
}

impl Deal {
    /// Deals the batches `first..batches` to `world_size` ranks.
    pub fn new(first: u64, batches: u64, world_size: u32, drop_last: bool, uneven: Uneven) -> Self {
        Self { first: first.min(batches), batches, world_size: u64::from(world_size), drop_last, uneven }
    }

    /// The number of batches dealt in earlier parts of the epoch.
    pub fn first(&self) -> u64 {
        self.first
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
        let place = step * self.world_size + u64::from(rank);
        Some(match (place.checked_sub(self.left()), self.uneven) {
            (None, _) => self.first + place,
            // It is of the same step, and needs no other data than the batches before it.
            (Some(_), Uneven::Mask) => self.batches - 1,
            (Some(beyond), _) => beyond % self.batches,
        })
    }

    /// The number of ranks, from rank 0 on, with a batch at `step` that is not dealt again.
    pub fn batches_at(&self, step: u64) -> u64 {
        self.left().saturating_sub(step * self.world_size).min(self.world_size)
    }

    /// The steps and ranks that take `batch`. Empty if it is dropped or came earlier; several if it is repeated. Places
    /// that only fill up are left out.
    pub fn places(&self, batch: u64) -> Vec<(u64, u32)> {
        let once = batch.checked_sub(self.first).filter(|place| *place < self.dealt());
        // Batch b is repeated at places b, b + batches, .. past those that are left.
        let repeated = if self.uneven == Uneven::Pad { self.repeated() } else { 0 };
        let again = (0..).map(|round| batch + round * self.batches).take_while(|beyond| *beyond < repeated);
        let again = again.map(|beyond| self.left() + beyond);
        once.into_iter().chain(again).map(|place| (place / self.world_size, self.rank_at(place))).collect()
    }

    /// The number of batches dealt here, each counted once.
    pub fn dealt(&self) -> u64 {
        self.left().min(self.steps() * self.world_size)
    }

    /// The number of batches that are dealt a second time to fill the last step.
    pub fn repeated(&self) -> u64 {
        match self.uneven {
            Uneven::Pad | Uneven::Mask => (self.steps() * self.world_size).saturating_sub(self.left()),
            Uneven::Short => 0,
        }
    }

    fn left(&self) -> u64 {
        self.batches - self.first
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of world, which is a u32")]
    fn rank_at(&self, place: u64) -> u32 {
        (place % self.world_size) as u32
    }
}
