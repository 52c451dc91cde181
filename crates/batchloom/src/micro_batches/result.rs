//! `MicroBatches`: the samples of each micro-batch of each rank, and what is known of them before the first one runs.

use serde::Serialize;

use super::bound::{bound_duration, cost};
use super::deal::Slot;
use super::options::SyncEvery;
use super::price::{Moments, Price};
use super::problem::Problem;
use super::rollouts::Rollouts;
use crate::batching::CostModel;

/// The micro-batches of all ranks, equal on every rank.
///
/// Arrays of micro-batches are by rank, then by micro-batch: micro-batch `k` of rank `r` is number `r * count + k`.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MicroBatches {
    /// The number of ranks.
    pub world_size: u32,
    /// The micro-batches of each rank.
    pub count: u64,
    /// The samples of all micro-batches, one micro-batch after the other.
    pub index: Vec<u64>,
    /// The place in `index` where each micro-batch begins, and the end: `world_size * count + 1` numbers.
    pub offsets: Vec<u64>,
    /// The weight of each sample in `index`: 1, or 0 where it only fills up.
    pub weight: Vec<f32>,
    /// For each sample given, its place in `index` where its weight is 1; -1 if it was dropped or left.
    pub inverse: Vec<i64>,
    /// The tokens of each micro-batch.
    pub tokens: Vec<u64>,
    /// The tokens of each micro-batch, each sample rounded up to `multiple_of`, as `max_tokens` counts them.
    pub padded_tokens: Vec<u64>,
    /// The cost of each micro-batch, samples of weight 0 counted.
    pub cost: Vec<f64>,
    /// The labels of each micro-batch, samples of weight 0 left out, if labels were given.
    pub labels: Option<Vec<u64>>,
    /// The labels of all micro-batches, if labels were given.
    pub total_labels: Option<u64>,
    /// The samples that have a label; all samples that are planned if labels were not given.
    pub sequences: u64,
    /// The share of the time of all ranks that is spent waiting, by the cost model.
    pub imbalance: f64,
    /// A number that the imbalance of no plan with as many micro-batches is below.
    pub bound: f64,
    /// The samples that exceed a micro-batch and were dropped.
    pub dropped: Vec<u64>,
    /// The samples that an exact number of micro-batches left over: the latest ones.
    pub left: Vec<u64>,
}

crate::brief::debug_in_brief!(
    MicroBatches,
    [world_size, count, total_labels, sequences, imbalance, bound],
    [index, offsets, weight, inverse, tokens, padded_tokens, cost, labels, dropped, left]
);

impl MicroBatches {
    /// The samples of a micro-batch of a rank, those of weight 0 included.
    ///
    /// # Panics
    /// There is no such rank or micro-batch.
    pub fn get(&self, rank: u32, micro_batch: u64) -> &[u64] {
        assert!(
            rank < self.world_size && micro_batch < self.count,
            "no micro-batch {micro_batch} of rank {rank}"
        );
        let number = to_index(u64::from(rank) * self.count + micro_batch);
        &self.index[to_index(self.offsets[number])..to_index(self.offsets[number + 1])]
    }
}

/// A number that is the place of an element.
fn to_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The facts by which micro-batches are described.
pub(super) struct Description<'a> {
    pub(super) problem: &'a Problem,
    pub(super) rollouts: &'a Rollouts<'a>,
    pub(super) model: CostModel,
    pub(super) price: &'a Price,
    pub(super) sync: SyncEvery,
    pub(super) max_tokens: u64,
    /// The greatest cost that one rank must take.
    pub(super) largest: f64,
}

impl Description<'_> {
    /// Describes the micro-batches at each index, and the samples that are left.
    pub(super) fn describe(&self, slots: &[Slot], world: u32, left: Vec<usize>) -> MicroBatches {
        let ranks = to_index(u64::from(world));
        let (samples, micro_batches) = (self.rollouts.lengths.len(), ranks * slots.len());
        let mut found = MicroBatches {
            world_size: world,
            count: slots.len() as u64,
            index: Vec::with_capacity(samples),
            offsets: Vec::with_capacity(micro_batches + 1),
            weight: Vec::with_capacity(samples),
            inverse: vec![-1; samples],
            tokens: Vec::with_capacity(micro_batches),
            padded_tokens: Vec::with_capacity(micro_batches),
            cost: Vec::with_capacity(micro_batches),
            labels: self.rollouts.labels.map(|_| Vec::with_capacity(micro_batches)),
            total_labels: self.rollouts.labels.map(|_| 0),
            sequences: 0,
            imbalance: 0.0,
            bound: 0.0,
            dropped: self.problem.dropped.iter().map(|&sample| sample as u64).collect(),
            left: left.into_iter().map(|sample| sample as u64).collect(),
        };
        found.offsets.push(0);
        let fillers = self.find_fillers(slots);
        let mut durations = Vec::with_capacity(micro_batches);
        for rank in 0..ranks {
            for slot in slots {
                let moments = self.append(&mut found, &slot.ranks[rank], fillers[slot.class]);
                durations.push(self.price.of_batch(moments));
            }
        }
        let busy: f64 = durations.iter().sum();
        let waited = |duration: f64| {
            let all = duration * ranks as f64;
            if all > 0.0 { (1.0 - busy / all).max(0.0) } else { 0.0 }
        };
        found.imbalance = waited(self.measure(&durations, ranks, slots.len()));
        let fixed = self.price.fixed() * slots.len() as f64;
        found.bound = waited(fixed + self.bound(slots, ranks)).min(found.imbalance);
        found
    }

    /// The cheapest sample of each class: what a rank without a sample takes again.
    fn find_fillers(&self, slots: &[Slot]) -> Vec<usize> {
        let mut fillers = vec![(u64::MAX, usize::MAX); self.problem.classes];
        for slot in slots {
            for sample in self.samples(slot.ranks.iter().flatten()) {
                let filler = &mut fillers[slot.class];
                *filler = (*filler).min((self.problem.rounded[sample], sample));
            }
        }
        fillers.into_iter().map(|(_, sample)| sample).collect()
    }

    fn samples<'s>(
        &'s self,
        units: impl Iterator<Item = &'s usize> + 's,
    ) -> impl Iterator<Item = usize> + 's {
        units.flat_map(|&unit| self.problem.members.of(unit).iter().copied())
    }

    /// Appends a micro-batch; returns what its cost depends on.
    fn append(&self, found: &mut MicroBatches, units: &[usize], filler: usize) -> Moments {
        let begin = found.index.len();
        found.index.extend(self.samples(units.iter()).map(|sample| sample as u64));
        let is_filled = found.index.len() == begin;
        if is_filled {
            found.index.push(filler as u64);
        }
        found.index[begin..].sort_unstable();
        let (mut moments, mut tokens, mut labels) = (Moments::default(), 0, 0);
        for place in begin..found.index.len() {
            let sample = to_index(found.index[place]);
            moments.add(self.problem.rounded[sample]);
            tokens += u64::from(self.rollouts.lengths[sample]);
            if !is_filled {
                let own = self.rollouts.labels.map(|labels| u64::from(labels[sample]));
                labels += own.unwrap_or(0);
                found.sequences += u64::from(own != Some(0));
                found.inverse[sample] = i64::try_from(place).unwrap_or(i64::MAX);
            }
            found.weight.push(if is_filled { 0.0 } else { 1.0 });
        }
        found.offsets.push(found.index.len() as u64);
        found.tokens.push(tokens);
        found.padded_tokens.push(moments.tokens);
        found.cost.push(self.model.packed_cost(moments.tokens, moments.squares));
        if let (Some(all), Some(total)) = (&mut found.labels, &mut found.total_labels) {
            all.push(labels);
            *total += labels;
        }
        moments
    }

    /// The time of all micro-batches.
    fn measure(&self, durations: &[f64], ranks: usize, count: usize) -> f64 {
        let most = |costs: &mut dyn Iterator<Item = f64>| costs.fold(0.0, f64::max);
        match self.sync {
            SyncEvery::MicroBatch => {
                let of = |slot| most(&mut (0..ranks).map(|rank| durations[rank * count + slot]));
                (0..count).map(of).sum()
            }
            SyncEvery::Update => most(&mut durations.chunks(count.max(1)).map(|rank| rank.iter().sum())),
        }
    }

    /// The least time of the samples that are planned.
    fn bound(&self, slots: &[Slot], ranks: usize) -> f64 {
        let mut classes = vec![Vec::new(); self.problem.classes];
        for slot in slots {
            let lengths =
                self.samples(slot.ranks.iter().flatten()).map(|sample| self.problem.rounded[sample]);
            classes[slot.class].extend(lengths);
        }
        let longest = classes.iter().flatten().max().map_or(0.0, |&length| cost(self.price, length));
        let facts = (self.max_tokens, ranks, self.largest.max(longest));
        bound_duration(classes, self.price, self.sync, facts)
    }
}
