//! Sorted samples moved to and fro at random, so that equal batches of similar samples are new in every epoch.
//!
//! A batch pads by the range of its sizes. If samples near a batch move within `k` batches, mates meet again in one of
//! `k` epochs, and the batch pads `k` times its range. So samples should move far where sizes lie close together, and
//! less where they lie far apart: for a given share of mates kept, the least padding (Lagrange's multipliers) has `k`
//! proportional to `1 / sqrt(range)`. This is what equal moves do on an axis on which each batch of the sorted samples
//! takes the square root of its range: samples are put on this axis, each moves by a random part of one width, and they
//! are sorted again. Pools that are random parts of the samples have the same `k` everywhere, and noise in proportion to
//! the size has another; at equal mates both pad more (`bench/randomness`).
//!
//! The random part of a sample is its place in the random order of the pool. All is counted in integers, so that batches
//! are the same on every platform.

use super::Sorted;

/// The parts of a unit on the axis.
const UNIT: u32 = 32;

/// A width of the axis divided by the number of batches, times this number, keeps about a quarter of the mates.
const WIDTHS: u128 = 3;

/// The places of a pool, mixed, and the longest first in each batch. `together` samples are shuffled together, those of
/// this pool among them: the fewer of them it holds, the more mates part by falling into other pools, and the less has
/// to be mixed.
pub(super) fn mix_places(sorted: &Sorted, batch_size: u64, together: u64) -> Vec<u32> {
    let (samples, batch_size) = (sorted.places.len(), usize::try_from(batch_size).unwrap_or(usize::MAX));
    let starts = || (0..samples).step_by(batch_size);
    let range = |start: usize| {
        let next = sorted.sizes.get(start.saturating_add(batch_size)).or(sorted.sizes.last());
        sorted.sizes[start] - next.copied().unwrap_or(0)
    };
    let roots: Vec<u64> = starts().map(|start| (u64::from(range(start)) << UNIT).isqrt()).collect();
    let all: u64 = roots.iter().sum();
    let batches = roots.len() as u128 * u128::from(together.max(1));
    // The move of a sample is this times its place in the pool.
    let step = (WIDTHS * u128::from(all)) << UNIT;
    let step = step / batches.max(1);
    let mut keys = Vec::with_capacity(samples);
    let mut begin = 0_u64;
    for (start, &root) in starts().zip(&roots) {
        let len = batch_size.min(samples - start);
        for (place, &sample) in sorted.places[start..start + len].iter().enumerate() {
            let on_axis = begin + root * place as u64 / len as u64;
            let moved = (step * u128::from(sample)) >> UNIT;
            keys.push((u128::from(on_axis) + moved, start + place));
        }
        begin += root;
    }
    keys.sort_unstable();
    // In a batch, the longest come first.
    keys.chunks_mut(batch_size).for_each(|batch| batch.sort_unstable_by_key(|&(_, place)| place));
    keys.into_iter().map(|(_, place)| sorted.places[place]).collect()
}
