//! `Units`: what a micro-batch takes whole, a sample or a group, from the costliest to the cheapest.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Things with a cost and a size, by number: the costliest first, among equals the longest, then the oldest.
#[derive(Debug, Clone, Default)]
pub(super) struct Units {
    pub(super) cost: Vec<u64>,
    pub(super) tokens: Vec<u64>,
    pub(super) samples: Vec<u64>,
}

/// The limits of a micro-batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) tokens: u64,
    pub(super) samples: u64,
}

impl Room {
    /// No limits.
    pub(super) const ANY: Self = Self { tokens: u64::MAX, samples: u64::MAX };

    pub(super) fn holds(&self, tokens: u64, samples: u64) -> bool {
        tokens <= self.tokens && samples <= self.samples
    }
}

impl Units {
    /// Puts units in order; returns for each number its place among those given.
    pub(super) fn sorted(&self) -> (Self, Vec<usize>) {
        let keys = self.cost.iter().zip(&self.tokens).enumerate();
        let mut keys: Vec<_> =
            keys.map(|(place, (&cost, &tokens))| (Reverse(cost), Reverse(tokens), place)).collect();
        keys.sort_unstable();
        let places: Vec<usize> = keys.into_iter().map(|(_, _, place)| place).collect();
        let of = |values: &[u64]| places.iter().map(|&place| values[place]).collect();
        (Self { cost: of(&self.cost), tokens: of(&self.tokens), samples: of(&self.samples) }, places)
    }

    pub(super) fn cost_of(&self, units: &[usize]) -> u64 {
        units.iter().map(|&unit| self.cost[unit]).sum()
    }

    /// Returns true if no micro-batch holds the unit.
    pub(super) fn is_oversize(&self, unit: usize, room: Room) -> bool {
        !room.holds(self.tokens[unit], self.samples[unit])
    }
}

/// Numbers without gaps for any numbers: equal ones have the same, in the order in which they come.
pub(super) fn numbered(given: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut known = HashMap::new();
    given
        .map(|number| {
            let next = known.len();
            *known.entry(number).or_insert(next)
        })
        .collect()
}
