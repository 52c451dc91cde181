//! `PoolBatches`: the batches that a rule makes of one pool, by places in the pool.

/// The batches that a rule makes of a pool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolBatches {
    /// Places in the pool, batch after batch.
    pub(crate) places: Vec<u32>,
    /// For each place, the first element that is taken. Empty if it is always 0.
    pub(crate) starts: Vec<u32>,
    /// The end of each batch in `places`.
    pub(crate) ends: Vec<u32>,
}

impl PoolBatches {
    /// Appends the batches of a pool; its first place is `first`.
    pub(crate) fn append_pool(&mut self, batches: Self, first: u32) {
        if first == 0 {
            *self = batches;
            return;
        }
        self.append_starts(&batches);
        let before = to_place(self.places.len());
        self.places.extend(batches.places.iter().map(|&place| first + place));
        self.ends.extend(batches.ends.iter().map(|&end| before + end));
    }

    /// Appends the first elements of batches, which are 0 for batches without parts.
    fn append_starts(&mut self, batches: &Self) {
        if !self.starts.is_empty() || !batches.starts.is_empty() {
            let before = self.places.len();
            self.starts.resize(before, 0);
            self.starts.extend(&batches.starts);
            self.starts.resize(before + batches.places.len(), 0);
        }
    }

    /// Appends the batches of a part of the pool; their places count within `part`.
    pub(super) fn append(&mut self, batches: &Self, part: &[u32]) {
        let before = self.places.len();
        self.append_starts(batches);
        self.places.extend(batches.places.iter().map(|&place| part[to_index(place)]));
        self.ends.extend(batches.ends.iter().map(|end| to_place(before) + end));
    }
}

/// A place in a pool, which holds fewer than 2^32 samples.
pub(super) fn to_place(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// A place as an index.
pub(super) fn to_index(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}
