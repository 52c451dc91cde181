//! `PoolBatches`: the batches that a rule makes of one pool, by places in the pool.

use std::ops::Range;

/// The batches that a rule makes of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolBatches {
    /// Places in the pool, batch after batch.
    pub(crate) places: Vec<u32>,
    /// For each place, the first element that is taken. Empty if it is always 0.
    pub(crate) starts: Vec<u32>,
    /// For each place, the number of elements that are taken. Empty if it follows from the size of the sample.
    pub(crate) taken: Vec<u32>,
    /// The end of each batch in `places`.
    pub(crate) ends: Vec<u32>,
    /// The end of each row in `places`, if batches are rows of one shape: each batch ends with a row.
    pub(crate) row_ends: Vec<u32>,
}

impl PoolBatches {
    /// Appends the batches of a pool; its first place is `first`.
    pub(crate) fn append_pool(&mut self, batches: Self, first: u32) {
        if first == 0 && self.places.is_empty() {
            *self = batches;
            return;
        }
        self.append_by(&batches, |place| first + place);
    }

    /// Appends the batches of a part of the pool; their places count within `part`.
    pub(super) fn append(&mut self, batches: &Self, part: &[u32]) {
        self.append_by(batches, |place| part[to_index(place)]);
    }

    /// Appends batches, with other places.
    fn append_by(&mut self, batches: &Self, place: impl Fn(u32) -> u32) {
        // Batches without parts begin with the first element of each sample.
        if !self.starts.is_empty() || !batches.starts.is_empty() {
            let before = self.places.len();
            self.starts.resize(before, 0);
            self.starts.extend(&batches.starts);
            self.starts.resize(before + batches.places.len(), 0);
        }
        let before = to_place(self.places.len());
        self.places.extend(batches.places.iter().map(|&other| place(other)));
        self.taken.extend(&batches.taken);
        self.ends.extend(batches.ends.iter().map(|&end| before + end));
        self.row_ends.extend(batches.row_ends.iter().map(|&end| before + end));
    }

    /// The parts of a batch, as places in the lists.
    pub(crate) fn range(&self, batch: usize) -> Range<usize> {
        batch.checked_sub(1).map_or(0, |before| to_index(self.ends[before]))..to_index(self.ends[batch])
    }

    /// The end of each row of a batch, counted from its first part.
    pub(crate) fn row_ends_of(&self, batch: usize) -> Vec<u32> {
        let range = self.range(batch);
        let (first, end) = (to_place(range.start), to_place(range.end));
        let rows = self.row_ends.partition_point(|&row| row <= first);
        self.row_ends[rows..].iter().take_while(|&&row| row <= end).map(|&row| row - first).collect()
    }

    /// Leaves out the last batch.
    pub(super) fn drop_last(&mut self) {
        self.ends.pop();
        let (parts, end) = (self.ends.last().map_or(0, |&end| to_index(end)), self.ends.last().copied());
        self.places.truncate(parts);
        self.starts.truncate(parts);
        self.taken.truncate(parts);
        self.row_ends.truncate(self.row_ends.partition_point(|&row| Some(row) <= end));
    }

    /// Makes the sample at place 0 begin `by` elements later.
    pub(crate) fn shift_first(&mut self, by: u32) {
        if by > 0 {
            let parts = self.starts.iter_mut().zip(&self.places);
            parts.filter(|&(_, &place)| place == 0).for_each(|(start, _)| *start += by);
        }
    }

    /// Gives the parts of each sample its elements in the order of batches. A sample begins with the first element that
    /// a part of it has.
    pub(crate) fn order_parts(&mut self, batches: impl Iterator<Item = usize>) {
        let mut next = vec![u32::MAX; self.places.iter().max().map_or(0, |&place| to_index(place) + 1)];
        for (&place, &start) in self.places.iter().zip(&self.starts) {
            next[to_index(place)] = next[to_index(place)].min(start);
        }
        let mut is_done = vec![false; self.ends.len()];
        for batch in batches {
            if std::mem::replace(&mut is_done[batch], true) {
                continue;
            }
            for part in self.range(batch) {
                let next = &mut next[to_index(self.places[part])];
                self.starts[part] = *next;
                *next += self.taken[part];
            }
        }
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
