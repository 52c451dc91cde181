//! Pools of samples that are read chunk by chunk: some slots of the window, or a part of one.
//!
//! Promise: a pool ends where a slot ends (at the last whole batch before that, if batches are of a fixed size), or
//! inside of a slot that is larger than two pools have to be.

use std::ops::RangeInclusive;

use crate::order::ChunkWindow;

/// The first position of each pool: all pools but the last have at least `in_pool` samples (a whole number of batches
/// of `batch_size`, or less than one), and all have fewer than twice as many.
pub(super) fn find_pools(window: &ChunkWindow, in_pool: u64, batch_size: u64) -> Vec<u64> {
    let (mut starts, mut start) = (vec![0], 0);
    for slot in 0..window.slots() {
        let end = window.positions(slot).end;
        while end - start >= in_pool {
            let border = if end - start < in_pool.saturating_mul(2) { end } else { start + in_pool };
            let border = border - border % batch_size;
            if border <= start || end == window.len() && end - border < in_pool {
                break;
            }
            start = border;
            starts.push(start);
        }
    }
    starts
}

/// The slots that each pool has samples of: the first and the last. `starts` are the first positions of pools, which end
/// before `end`. One pass over the slots.
pub(super) fn slots_of_pools(window: &ChunkWindow, starts: &[u64], end: u64) -> Vec<RangeInclusive<u64>> {
    let mut slot = 0;
    let mut slot_of = |position: u64| {
        while slot + 1 < window.slots() && window.positions(slot).end <= position {
            slot += 1;
        }
        slot
    };
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts.iter().zip(ends).map(|(&start, end)| slot_of(start)..=slot_of(end.max(start + 1) - 1)).collect()
}
