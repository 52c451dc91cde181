//! Steps: `world_size` consecutive batches, one for each rank.
//!
//! A batch does not depend on the world; only its place does. So a run that stops after some steps and goes on with
//! another number of ranks has a simple remainder: the batches from [`Deal::first`] on.
//!
//! Promise: with `drop_last` or [`Uneven::Pad`], every rank has the same number of steps.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest number of ranks. Some results list an entry for every rank, so it is kept small.
pub const MOST_RANKS: u32 = 1 << 20;

/// The treatment of batches that do not fill the last step, if nothing is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uneven {
    /// Batches from the start of the epoch are repeated, so that every rank has the same number of steps.
    #[default]
    Pad,
    /// The last ranks have one step less, so that every sample comes exactly once.
    Short,
}

impl Uneven {
    /// The name of this choice in Python and in states.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pad => "pad",
            Self::Short => "short",
        }
    }
}

impl FromStr for Uneven {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pad" => Ok(Self::Pad),
            "short" => Ok(Self::Short),
            other => Err(format!("uneven is {other:?}; expected \"pad\" or \"short\"")),
        }
    }
}

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
        Some(match place.checked_sub(self.left()) {
            None => self.first + place,
            Some(beyond) => beyond % self.batches,
        })
    }

    /// The steps and ranks that take `batch`. Empty if it is dropped or came earlier; several if it is repeated.
    pub fn places(&self, batch: u64) -> Vec<(u64, u32)> {
        let once = batch.checked_sub(self.first).filter(|place| *place < self.dealt());
        // Batch b is repeated at places b, b + batches, .. past those that are left.
        let again =
            (0..).map(|round| batch + round * self.batches).take_while(|beyond| *beyond < self.repeated());
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
            Uneven::Pad => (self.steps() * self.world_size).saturating_sub(self.left()),
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
