//! `RowShape`: bins as rows of one batch, all of one shape.
//!
//! Promise: a batch has as many rows as every other batch. Rows hold whole bins, in an order that follows from their
//! samples alone, so a batch mixes bins of every kind. Where bins run out, rows are empty.

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::{PoolBatches, to_index, to_place};

/// The elements of a row for each sample that a row has a place for by default, and the least number of such places.
const TOKENS_PER_SAMPLE: u32 = 16;
const LEAST_SAMPLES: u32 = 64;

/// The number of samples that a row of `tokens` elements has places for by default.
pub(super) fn default_samples(tokens: u32) -> u32 {
    tokens.div_ceil(TOKENS_PER_SAMPLE).max(LEAST_SAMPLES).min(tokens)
}

/// The shape of batches in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct RowShape {
    /// The number of rows in a batch.
    pub rows: u32,
    /// The number of elements in a row, padding included.
    pub tokens: u32,
    /// The largest number of samples in a row: the number of places for what batches hold of each sample.
    pub samples: u32,
}

impl RowShape {
    /// The number of elements in a batch, padding included.
    pub fn elements(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.tokens)
    }
}

/// Batches of `rows` bins. If `mixes`, the first `mixed` bins come in another order: they were made from the longest
/// samples down, and each batch is to hold all kinds. The order follows from the places of their first samples, which
/// are random.
pub(super) fn group_rows(bins: PoolBatches, rows: u32, mixed: usize, mixes: bool) -> PoolBatches {
    let bins = if mixes { mix_bins(&bins, mixed) } else { bins };
    let row_ends = bins.ends;
    let last = row_ends.len().saturating_sub(1);
    let is_last = |row: usize| row == last || (row + 1).is_multiple_of(to_index(rows));
    let ends = row_ends.iter().enumerate().filter(|(row, _)| is_last(*row)).map(|(_, &end)| end).collect();
    PoolBatches { ends, row_ends, ..bins }
}

/// The same bins, the first `mixed` of them in another order.
fn mix_bins(bins: &PoolBatches, mixed: usize) -> PoolBatches {
    let start = |bin: usize| bin.checked_sub(1).map_or(0, |before| to_index(bins.ends[before]));
    let number = |bin: usize| {
        let first = start(bin);
        let begin = bins.starts.get(first).copied().unwrap_or(0);
        xxh3_64(&((u64::from(bins.places[first]) << 32) | u64::from(begin)).to_le_bytes())
    };
    let order = sort_hashes((0..mixed).map(number).collect());
    let order = order.into_iter().map(|(_, bin)| bin).chain(mixed..bins.ends.len());
    let mut made = PoolBatches::default();
    made.places.reserve(bins.places.len());
    for bin in order {
        let parts = start(bin)..to_index(bins.ends[bin]);
        made.places.extend_from_slice(&bins.places[parts.clone()]);
        made.starts.extend_from_slice(bins.starts.get(parts.clone()).unwrap_or_default());
        made.taken.extend_from_slice(bins.taken.get(parts).unwrap_or_default());
        made.ends.push(to_place(made.places.len()));
    }
    made
}

/// Hashes and their places, in ascending order. Hashes are spread evenly, so each is about where its share of all numbers
/// is, and what is left to move is a few places. O(n).
fn sort_hashes(hashes: Vec<u64>) -> Vec<(u64, usize)> {
    let count = hashes.len();
    let share = |hash: u64| usize::try_from((u128::from(hash) * count as u128) >> 64).unwrap_or(0);
    let mut starts = vec![0; count + 1];
    hashes.iter().for_each(|&hash| starts[share(hash) + 1] += 1);
    (1..starts.len()).for_each(|share| starts[share] += starts[share - 1]);
    let mut sorted = vec![(0, 0); count];
    for (place, hash) in hashes.into_iter().enumerate() {
        let start = &mut starts[share(hash)];
        sorted[*start] = (hash, place);
        *start += 1;
    }
    // Elements of other shares never pass each other.
    for end in 1..count {
        let mut place = end;
        while place > 0 && sorted[place - 1] > sorted[place] {
            sorted.swap(place - 1, place);
            place -= 1;
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn hashes_are_sorted_as_the_library_sorts_them(
            hashes in proptest::collection::vec(proptest::num::u64::ANY, 0..200),
            same in proptest::collection::vec(0_u64..4, 0..50),
        ) {
            let hashes = [hashes, same].concat();
            let mut expected: Vec<(u64, usize)> = hashes.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            proptest::prop_assert_eq!(sort_hashes(hashes), expected);
        }
    }
}
