//! `Runs`: the borders of batches of equal numbers of samples, as runs of positions.
//!
//! Runs of neighbours that are shuffled as wholes begin at another sample in each epoch, so that samples get new
//! neighbours. A first run may then be short as well as the last one. An epoch has the same number of runs in every
//! epoch: as many as without the move where that leaves half a run to move in, and one more otherwise.

use std::ops::Range;

use super::recipe::Recipe;
use crate::order::{Key, Permutation, Purpose};

/// The runs of an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    samples: u64,
    batch_size: u64,
    /// The number of samples before the first full run: a short run, or dropped.
    first: u64,
    drop_last: bool,
}

impl Runs {
    /// The runs of an epoch of `samples` positions, if samples all count the same.
    pub(super) fn new(recipe: &Recipe, samples: u64, epoch: u64) -> Option<Self> {
        let batch_size = recipe.uniform()?;
        let runs = Self { samples, batch_size, first: 0, drop_last: recipe.options.drop_last };
        let (from, choices) = runs.moves();
        if !recipe.moves_runs() || choices == 0 {
            return Some(runs);
        }
        let key = Key::new(recipe.options.seed, epoch, Purpose::Offset);
        Some(runs.move_by(from + Permutation::new(choices, &key).get(0)))
    }

    /// The least number of samples that runs are moved by, and the number of choices from there on.
    fn moves(&self) -> (u64, u64) {
        let rest = self.samples % self.batch_size;
        if self.samples <= self.batch_size {
            return (0, 0);
        }
        if self.drop_last {
            // What is dropped in front and behind is no full run.
            return (0, rest + 1);
        }
        let last = if rest == 0 { self.batch_size } else { rest };
        match last <= self.batch_size / 2 {
            true => (0, self.batch_size - last + 1),
            false => (self.batch_size - last + 1, last - 1),
        }
    }

    /// These runs, `by` samples on: towards the end where runs are dropped, and towards the start otherwise.
    fn move_by(self, by: u64) -> Self {
        let first = if self.drop_last || by == 0 { by } else { self.batch_size - by };
        Self { first, ..self }
    }

    /// The number of runs in front of the first full one.
    fn front(&self) -> u64 {
        u64::from(self.first > 0 && !self.drop_last)
    }

    /// The number of runs.
    pub(super) fn count(&self) -> u64 {
        let rest = self.samples - self.first;
        match self.drop_last {
            true => rest / self.batch_size,
            false => self.front() + rest.div_ceil(self.batch_size),
        }
    }

    /// The positions of `run`.
    pub(super) fn positions(&self, run: u64) -> Range<u64> {
        if run < self.front() {
            return 0..self.first;
        }
        let start = self.first + (run - self.front()) * self.batch_size;
        start..start.saturating_add(self.batch_size).min(self.samples)
    }

    /// The run that holds `position`, or `None` if it is dropped.
    pub(super) fn run_of(&self, position: u64) -> Option<u64> {
        let run = match position.checked_sub(self.first) {
            Some(position) => self.front() + position / self.batch_size,
            None if self.front() == 1 => 0,
            None => return None,
        };
        (run < self.count()).then_some(run)
    }
}
