//! The costs of reading chunks: how well a window mixes them, and how many reads all ranks make.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::Plan;
use super::epoch::Epoch;
use super::pool::length;
use crate::order::ChunkWindow;

/// The most batches to look at for pairs, if samples all count the same, and the most samples of each.
const MOST_BATCHES: u64 = 1024;
const MOST_MATES: u64 = 64;

/// The costs of reading chunks over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChunkStats {
    /// The number of chunks that are open at a time: 1 if nothing is shuffled, and all chunks if there are fewer than
    /// may be open. Over all sources of a mixture.
    pub chunks_open: u64,
    /// The number of chunks that all ranks together read. A chunk counts for each rank that needs it, and again for
    /// each part of an epoch that a rank takes after the number of ranks has changed; of a source of a mixture, again
    /// for each pass. Chunks without samples are not read.
    pub chunks_read: u64,
    /// The share of the pairs of samples in a batch that are of one chunk: about `1 / chunks_open` in large chunks. All
    /// pairs of the epoch count where sizes decide; otherwise of 64 neighbours in each of 1024 batches. `None` if
    /// batches hold one sample each.
    pub pairs_of_one_chunk: Option<f64>,
}

/// The chunks that consecutive blocks of batches need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunksNeeded {
    /// The most of them that are needed at a time.
    pub(crate) at_once: u64,
    /// The number of these, at the least, that no block needs before blocks of the next pool do.
    pub(crate) later: u64,
}

impl Plan {
    /// The costs of reading chunks, if samples are read chunk by chunk.
    pub(super) fn chunk_stats(&self) -> Option<ChunkStats> {
        self.epoch.draws.is_in_chunks().then(|| ChunkStats {
            chunks_open: self.epoch.draws.chunks_open(),
            chunks_read: (0..self.world_size).map(|rank| self.count_chunks(rank)).sum(),
            pairs_of_one_chunk: self.epoch.pairs_of_one_chunk(),
        })
    }

    /// The chunks that `blocks` consecutive blocks of batches need, each a batch or several that need no further chunk;
    /// `None` if samples are not read chunk by chunk. One pass over the slots of each window.
    pub(crate) fn chunks_needed(&self, blocks: u64) -> Option<ChunksNeeded> {
        let draws = &self.epoch.draws;
        if !draws.is_in_chunks() {
            return None;
        }
        if let Some(batch_size) = self.epoch.uniform() {
            // A block that begins in the last slot of the block before adds the other slots of its first batch.
            let slots = |window: &ChunkWindow| {
                let more = window.most_slots(batch_size) - 1;
                more.saturating_mul(blocks).saturating_add(1).max(blocks)
            };
            return Some(ChunksNeeded { at_once: draws.most_chunks(slots), later: 0 });
        }
        // Sizes decide inside of pools. Blocks lie in one of them, or in two that follow each other. If pools are so small
        // that they lie in more, the store goes beyond this number.
        let (in_two, in_one) = match self.epoch.slots_of_pools() {
            Some(pools) => {
                let count =
                    |first: &RangeInclusive<u64>, last: &RangeInclusive<u64>| last.end() - first.start() + 1;
                let in_one = pools.iter().map(|pool| count(pool, pool)).max().unwrap_or(1);
                let in_two =
                    pools.windows(2).map(|pools| count(&pools[0], &pools[1])).max().unwrap_or(in_one);
                (draws.most_chunks(|_| in_two), draws.most_chunks(|_| in_one))
            }
            None => {
                // The samples of a pool, fewer than twice as many as it has to have, lie anywhere in several windows.
                let most = self.epoch.recipe.in_pool.saturating_mul(2);
                let in_pools =
                    |pools: u64| draws.most_chunks(|window| window.most_slots(most.saturating_mul(pools)));
                (in_pools(2), in_pools(1))
            }
        };
        Some(ChunksNeeded { at_once: in_two, later: in_two - in_one })
    }

    /// The number of chunks that a rank reads.
    fn count_chunks(&self, rank: u32) -> u64 {
        let draws = &self.epoch.draws;
        let (mut open, mut read) = (HashSet::new(), 0);
        for batches in self.deal().batches_of(rank) {
            let positions = self.epoch.positions_read(batches.start, batches.end - 1);
            if positions.is_empty() {
                continue;
            }
            let windows = draws.slots_of(positions.clone()).into_iter().enumerate();
            let of = |(window, slots)| draws.chunks_of_slots(window, slots, &positions);
            let chunks: Vec<u64> = windows.flat_map(of).collect();
            // Chunks that these batches share with those before stay open.
            read += chunks.iter().filter(|chunk| !open.contains(*chunk)).count() as u64;
            open = chunks.into_iter().collect();
        }
        read
    }
}

impl Epoch {
    /// The share of the pairs of samples in a batch that are of one chunk. `None` if there is no pair.
    fn pairs_of_one_chunk(&self) -> Option<f64> {
        let (mut pairs, mut same) = (0, 0);
        let mut count = |samples: &[u64]| {
            let mut held: Vec<u64> =
                samples.iter().filter_map(|&sample| self.recipe.chunk_of(sample)).collect();
            held.sort_unstable();
            pairs += count_pairs(samples.len());
            same +=
                held.chunk_by(|one, other| one == other).map(|chunk| count_pairs(chunk.len())).sum::<u128>();
        };
        if self.uniform().is_none() {
            self.each_batch(count);
            return (pairs > 0).then(|| same as f64 / pairs as f64);
        }
        let batches = self.batches();
        let looked_at = batches.min(MOST_BATCHES);
        for place in 0..looked_at {
            // place * batches / looked_at, whose product could exceed 64 bits.
            let batch = place * (batches / looked_at) + place * (batches % looked_at) / looked_at;
            let Some(positions) = self.positions(batch) else { break };
            let positions = positions.start..positions.end.min(positions.start + MOST_MATES);
            let mut samples = vec![0; length(positions.end - positions.start)];
            self.draws.fill(positions.start, &mut samples);
            count(&samples);
        }
        (pairs > 0).then(|| same as f64 / pairs as f64)
    }
}

/// The number of pairs among `len` things.
fn count_pairs(len: usize) -> u128 {
    let len = len as u128;
    len * len.saturating_sub(1) / 2
}
