//! The samples of a pool from the longest to the shortest, with which every rule that pads begins.

use super::to_index;

/// Places in the pool and their sizes, longest first. Equal sizes keep the order of the pool.
#[derive(Debug)]
pub(super) struct Sorted {
    pub(super) places: Vec<u32>,
    pub(super) sizes: Vec<u32>,
}

impl Sorted {
    /// Sorts by size. Sizes are small integers, so this is a counting sort, unless the largest exceeds twice the number
    /// of samples.
    pub(super) fn new(sizes: &[u32]) -> Self {
        let most = sizes.iter().copied().max().unwrap_or(0);
        match to_index(most) <= sizes.len().saturating_mul(2) {
            true => Self::sort_by_counting(sizes, to_index(most)),
            false => Self::sort_by_comparing(sizes),
        }
    }

    /// Sorts samples above `size`, and leaves the rest behind them in the order of the pool.
    pub(super) fn above(sizes: &[u32], size: u32) -> Self {
        let large: Vec<u32> = sizes.iter().map(|&other| if other > size { other } else { 0 }).collect();
        let places = Self::new(&large).places;
        let sizes = places.iter().map(|&place| sizes[to_index(place)]).collect();
        Self { places, sizes }
    }

    fn sort_by_counting(sizes: &[u32], most: usize) -> Self {
        // starts[s] is the place for the next sample of size `most - s`.
        let mut starts = vec![0_usize; most + 2];
        sizes.iter().for_each(|&size| starts[most - to_index(size) + 1] += 1);
        let mut sorted = Vec::with_capacity(sizes.len());
        for (size, &count) in (0..=number(most)).rev().zip(&starts[1..]) {
            sorted.resize(sorted.len() + count, size);
        }
        (1..starts.len()).for_each(|size| starts[size] += starts[size - 1]);
        let mut places = vec![0; sizes.len()];
        for (place, &size) in (0..).zip(sizes) {
            let start = &mut starts[most - to_index(size)];
            places[*start] = place;
            *start += 1;
        }
        Self { places, sizes: sorted }
    }

    fn sort_by_comparing(sizes: &[u32]) -> Self {
        // Numbers in this form sort by descending size, then by ascending place.
        let key = |(place, &size): (u32, &u32)| u64::from(!size) << 32 | u64::from(place);
        let mut keys: Vec<u64> = (0..).zip(sizes).map(key).collect();
        keys.sort_unstable();
        let places = keys.iter().map(|&key| low(key)).collect();
        Self { places, sizes: keys.iter().map(|&key| !low(key >> 32)).collect() }
    }
}

/// A size that was a 32-bit number before it became an index.
fn number(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of a 64-bit key")]
fn low(key: u64) -> u32 {
    key as u32
}
