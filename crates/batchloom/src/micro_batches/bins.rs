//! `Bins`: the micro-batches that are being filled.

use super::units::{Room, Units};

/// Micro-batches: what is in each, by numbers of units, and how much that is.
#[derive(Debug, Clone, Default)]
pub(super) struct Bins {
    pub(super) members: Vec<Vec<usize>>,
    pub(super) cost: Vec<u64>,
    pub(super) tokens: Vec<u64>,
    pub(super) samples: Vec<u64>,
}

impl Bins {
    pub(super) fn new(count: usize) -> Self {
        Self {
            members: vec![Vec::new(); count],
            cost: vec![0; count],
            tokens: vec![0; count],
            samples: vec![0; count],
        }
    }

    /// Bins that hold these units.
    pub(super) fn of(units: &Units, members: Vec<Vec<usize>>) -> Self {
        let sum =
            |values: &[u64]| members.iter().map(|held| held.iter().map(|&unit| values[unit]).sum()).collect();
        let (cost, tokens, samples) = (sum(&units.cost), sum(&units.tokens), sum(&units.samples));
        Self { members, cost, tokens, samples }
    }

    /// Adds the bins of another list.
    pub(super) fn append(&mut self, mut other: Self) {
        self.members.append(&mut other.members);
        self.cost.append(&mut other.cost);
        self.tokens.append(&mut other.tokens);
        self.samples.append(&mut other.samples);
    }

    /// Adds an empty bin; returns its number.
    pub(super) fn add_empty(&mut self) -> usize {
        self.members.push(Vec::new());
        self.cost.push(0);
        self.tokens.push(0);
        self.samples.push(0);
        self.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if a bin has room for a unit. An empty one takes a unit that no bin holds.
    pub(super) fn fits(&self, units: &Units, room: Room, bin: usize, unit: usize) -> bool {
        self.members[bin].is_empty()
            || room.holds(self.tokens[bin] + units.tokens[unit], self.samples[bin] + units.samples[unit])
    }

    /// Returns true if a bin has room for `unit` once `gone`, which it holds, is elsewhere.
    pub(super) fn fits_instead(
        &self,
        units: &Units,
        room: Room,
        bin: usize,
        gone: usize,
        unit: usize,
    ) -> bool {
        self.members[bin].len() == 1
            || room.holds(
                self.tokens[bin] - units.tokens[gone] + units.tokens[unit],
                self.samples[bin] - units.samples[gone] + units.samples[unit],
            )
    }

    /// Returns true if a bin exceeds no limit, or holds one unit alone.
    pub(super) fn is_within(&self, room: Room, bin: usize) -> bool {
        self.members[bin].len() == 1 || room.holds(self.tokens[bin], self.samples[bin])
    }

    pub(super) fn put(&mut self, units: &Units, bin: usize, unit: usize) {
        self.members[bin].push(unit);
        self.cost[bin] += units.cost[unit];
        self.tokens[bin] += units.tokens[unit];
        self.samples[bin] += units.samples[unit];
    }

    pub(super) fn take(&mut self, units: &Units, bin: usize, unit: usize) {
        let Some(at) = self.members[bin].iter().position(|&other| other == unit) else { return };
        self.members[bin].swap_remove(at);
        self.cost[bin] -= units.cost[unit];
        self.tokens[bin] -= units.tokens[unit];
        self.samples[bin] -= units.samples[unit];
    }

    /// Gives each empty bin the cheapest unit of a bin with two, as far as there are such.
    pub(super) fn occupy(&mut self, units: &Units) {
        let empty: Vec<usize> = (0..self.len()).filter(|&bin| self.members[bin].is_empty()).collect();
        if empty.is_empty() {
            return;
        }
        let crowded = (0..self.len()).filter(|&bin| self.members[bin].len() > 1);
        let mut donors: Vec<(usize, usize)> =
            crowded.flat_map(|bin| self.members[bin].iter().map(move |&unit| (unit, bin))).collect();
        // The cheapest unit has the largest number.
        donors.sort_unstable();
        for to in empty {
            let found = loop {
                let Some((unit, from)) = donors.pop() else { return };
                if self.members[from].len() > 1 {
                    break (unit, from);
                }
            };
            self.take(units, found.1, found.0);
            self.put(units, to, found.0);
        }
    }
}
