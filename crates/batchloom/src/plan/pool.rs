//! A pool: its samples, the batches that the rule makes of them, and the order in which these are dealt.

use std::ops::Range;
use std::sync::Arc;

use super::parts::Parts;
use super::recipe::Recipe;
use crate::batching::{Grouping, PoolBatches, Sizes};
use crate::ranks::Dealt;

/// One pool, its batches in the order of dealing.
#[derive(Debug)]
pub(super) struct DealtPool {
    /// The number of its first batch in the epoch.
    pub(super) first: u64,
    pub(super) batched: Arc<BatchedPool>,
    /// The order in which the batches are dealt, or `None` if they are dealt as the rule made them.
    pub(super) dealt: Option<Vec<Dealt>>,
}

/// The samples of a pool, and the batches that the rule makes of them.
#[derive(Debug, Clone)]
pub(super) struct BatchedPool {
    pub(super) samples: PoolSamples,
    pub(super) batches: PoolBatches,
}

/// The sample at each place of a pool.
#[derive(Debug, Clone)]
pub(super) enum PoolSamples {
    Run(u64),
    Listed(Vec<u64>),
}

impl DealtPool {
    /// The number of batches that are dealt, those that fill steps included.
    pub(super) fn len(&self) -> u64 {
        self.dealt.as_ref().map_or(self.batched.batches.ends.len(), Vec::len) as u64
    }

    /// Returns true if the batch dealt in place `place` is dealt elsewhere too, and fills a step here.
    pub(super) fn fills(&self, place: u64) -> bool {
        self.dealt.as_ref().is_some_and(|dealt| dealt[length(place)].fills)
    }

    /// The number of samples, or parts of samples, in the batch dealt in place `place` of the pool.
    pub(super) fn batch_len(&self, place: u64) -> u64 {
        self.batched.range(self.batch(place)).len() as u64
    }

    /// The samples, and the elements taken of each, of the batch dealt in place `place` of the pool.
    pub(super) fn parts(&self, place: u64, recipe: &Recipe) -> Parts {
        self.batched.parts(self.batch(place), recipe)
    }

    /// The samples of the batch dealt in place `place` of the pool.
    pub(super) fn indices(&self, place: u64) -> Vec<u64> {
        self.batched.samples(self.batch(place))
    }

    /// The batches that hold the sample at `place`: the place of each in the order of dealing, and the index of the
    /// sample in it.
    pub(super) fn find(&self, place: u64) -> Vec<(u64, u64)> {
        let held = |batch: usize| {
            let places = &self.batched.batches.places[self.batched.range(batch)];
            (0..).zip(places).filter(move |(_, other)| u64::from(**other) == place).map(|(index, _)| index)
        };
        (0..self.len()).flat_map(|dealt| held(self.batch(dealt)).map(move |index| (dealt, index))).collect()
    }

    /// Deals the last batch that the rule made last, if it has fewer than `full` elements.
    pub(super) fn end_with_partial(&mut self, full: u64) {
        let Some(last) = self.batched.batches.ends.len().checked_sub(1) else { return };
        let taken = &self.batched.batches.taken[self.batched.range(last)];
        let is_partial = taken.iter().map(|&taken| u64::from(taken)).sum::<u64>() < full;
        if let (true, Some(dealt)) = (is_partial, &mut self.dealt) {
            dealt.sort_by_key(|dealt| length(u64::from(dealt.batch)) == last);
        }
    }

    /// Gives the parts of each sample its elements in the order in which batches are dealt.
    pub(super) fn order_parts(&mut self) {
        let order: Vec<usize> = (0..self.len()).map(|place| self.batch(place)).collect();
        Arc::make_mut(&mut self.batched).batches.order_parts(order.into_iter());
    }

    fn batch(&self, place: u64) -> usize {
        let place = length(place);
        self.dealt.as_ref().map_or(place, |dealt| length(u64::from(dealt[place].batch)))
    }
}

impl BatchedPool {
    /// The key of all samples of a batch.
    pub(super) fn key(&self, batch: usize, grouping: &Grouping) -> u32 {
        self.samples(batch).first().map_or(0, |&sample| grouping.key(sample))
    }

    pub(super) fn range(&self, batch: usize) -> Range<usize> {
        self.batches.range(batch)
    }

    pub(super) fn samples(&self, batch: usize) -> Vec<u64> {
        let places = &self.batches.places[self.range(batch)];
        match &self.samples {
            PoolSamples::Run(start) => places.iter().map(|&place| start + u64::from(place)).collect(),
            PoolSamples::Listed(samples) => {
                places.iter().map(|&place| samples[length(u64::from(place))]).collect()
            }
        }
    }

    pub(super) fn parts(&self, batch: usize, recipe: &Recipe) -> Parts {
        let samples = self.samples(batch);
        let limit = recipe.most().unwrap_or(u32::MAX);
        // Without sizes, every sample counts as one element.
        let all = recipe.options.sizes.as_ref().map(Sizes::as_slice);
        let size = |sample| all.map_or(1, |sizes| sizes[length(sample)]);
        let first = |&sample: &u64| {
            recipe
                .options
                .pad_to
                .as_ref()
                .map_or(0, |pad_to| pad_to.start(size(sample), size(sample).min(limit)))
        };
        let starts = match self.batches.starts.get(self.range(batch)) {
            Some(starts) => starts.to_vec(),
            None => samples.iter().map(first).collect(),
        };
        let taken = |(&sample, start): (&u64, &u32)| (size(sample) - start).min(limit);
        let sizes = match self.batches.taken.get(self.range(batch)) {
            Some(taken) if !taken.is_empty() => taken.to_vec(),
            _ => samples.iter().zip(&starts).map(taken).collect(),
        };
        Parts { samples, starts, sizes, row_ends: self.batches.row_ends_of(batch) }
    }
}

/// The number of things that are in memory, as an index.
pub(super) fn length(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
