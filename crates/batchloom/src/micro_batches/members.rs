//! `Members`: the samples of each unit, in one list.

/// The samples of units, by the number of the unit; each unit has one at least.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The samples of the first unit, then those of the next one.
    samples: Vec<usize>,
    /// The end of each unit in `samples`.
    ends: Vec<usize>,
}

impl Members {
    /// Each sample as a unit.
    pub(super) fn alone(samples: usize) -> Self {
        Self { samples: (0..samples).collect(), ends: (1..=samples).collect() }
    }

    /// Samples by their units, which are numbered in the order of their first samples.
    pub(super) fn of_units(unit_of: &[usize]) -> Self {
        let mut ends = vec![0; unit_of.iter().max().map_or(0, |most| most + 1)];
        unit_of.iter().for_each(|&unit| ends[unit] += 1);
        let mut begin = 0;
        // As long as samples are put in place, an end is the place of the next one.
        for end in &mut ends {
            begin += std::mem::replace(end, begin);
        }
        let mut samples = vec![0; unit_of.len()];
        for (sample, &unit) in unit_of.iter().enumerate() {
            samples[ends[unit]] = sample;
            ends[unit] += 1;
        }
        Self { samples, ends }
    }

    /// Some units, in the order in which they are named.
    pub(super) fn select(&self, units: &[usize]) -> Self {
        let mut selected =
            Self { samples: Vec::with_capacity(self.samples.len()), ends: Vec::with_capacity(units.len()) };
        for &unit in units {
            selected.samples.extend_from_slice(self.of(unit));
            selected.ends.push(selected.samples.len());
        }
        selected
    }

    /// The samples of a unit, in order.
    pub(super) fn of(&self, unit: usize) -> &[usize] {
        let begin = unit.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.samples[begin..self.ends[unit]]
    }

    /// The samples of each unit.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        (0..self.len()).map(|unit| self.of(unit))
    }

    /// The number of units.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
