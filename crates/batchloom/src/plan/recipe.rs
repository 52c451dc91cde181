//! The options that stay the same over all epochs and worlds of a run, what follows from them, and their fingerprint.

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::bans::Bans;
use super::{PlanOptions, conflicts};
use crate::batching::{Budgeted, Cost, Grouping, PadTo, PoolBounds, Rounding, Rule, SampleLabels, Sizes};
use crate::draws::{Draws, Mix, Mixed, PerClass, Stream, Weighted};
use crate::order::{self, CHUNKS_OPEN, ChunkWindow, Key, Order, Purpose, Shards, Shuffle};

/// The part of the open chunks that a pool spans, if its size is left open.
const POOL_SHARE: u64 = 4;

/// The number of pools that are balanced together, the number of ranks for which there are as many again, and the most
/// samples of such pools.
const POOLS_IN_WINDOW: u64 = 64;
const RANKS_OF_WINDOW: u64 = 512;
const MOST_IN_WINDOW: u64 = 1 << 26;

/// The samples and the options, which the epochs of a run share, and facts that follow from them. The hash of samples
/// and options is the fingerprint of the plan.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Recipe {
    pub(super) samples: u64,
    #[serde(flatten)]
    pub(super) options: PlanOptions,
    /// The samples that may share a batch, if their keys decide.
    #[serde(skip)]
    pub(super) grouping: Option<Grouping>,
    /// The samples that are left without weight, which may change between two steps.
    #[serde(skip)]
    pub(super) bans: Bans,
    /// The sizes that the rule is given, if samples do not have their own in a batch.
    #[serde(skip)]
    pub(super) counted: Option<Sizes>,
    /// The sizes of samples by the budgets of the rule, if it has several. Fingerprints of other rules do not know them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budgeted: Option<Budgeted>,
    /// The number of samples in each pool but the last of a shard. With chunks, pools end where slots do, and hold at
    /// least as many.
    #[serde(skip)]
    pub(super) in_pool: u64,
    /// The labels of batches, which change no plan.
    #[serde(skip)]
    pub(super) labels: Option<SampleLabels>,
}

impl Recipe {
    /// The samples and the options, before the pools are known.
    pub(super) fn new(samples: u64, options: PlanOptions) -> Self {
        let homogeneous = options.homogeneous_by.clone().map(Grouping::Homogeneous);
        let distinct = |keys| Grouping::Distinct(keys, options.surplus);
        let grouping = homogeneous.or_else(|| options.distinct_by.clone().map(distinct));
        let bans = options.ban.clone().map(Bans::new).unwrap_or_default();
        Self { samples, options, grouping, bans, counted: None, budgeted: None, in_pool: 1, labels: None }
    }

    /// The same run with other options that change neither pools nor labels.
    pub(super) fn with_options(&self, change: impl FnOnce(&mut PlanOptions)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.options);
        changed
    }

    /// Returns true if runs of neighbours begin at another sample in each epoch. With shards, a run lies in one shard.
    pub(super) fn moves_runs(&self) -> bool {
        self.options.shuffle == Shuffle::Runs && self.options.shard_size.is_none()
    }

    /// The fingerprint, 32 hexadecimal digits.
    pub(super) fn fingerprint(&self) -> String {
        // What changes no batch and no place of one is for statistics alone.
        let same = self.with_options(|options| {
            if !options.balance {
                options.cost = Cost::Elements;
            }
            if options.balance_within.is_window() {
                options.accumulate = None;
            }
        });
        // These are plain structs of numbers, booleans and names: serialising them cannot fail.
        let text = serde_json::to_string(&same).unwrap_or_default();
        format!("{:032x}", xxh3_128(format!("{} {text}", order::VERSION).as_bytes()))
    }

    /// The number of samples in a full batch, if samples all count the same and nothing has to be known of any.
    pub(super) fn uniform(&self) -> Option<u64> {
        let knows_samples = self.options.sizes.is_some() || self.grouping.is_some();
        self.options.rule.run_len().filter(|_| !knows_samples)
    }

    /// The sizes that the rule is given.
    pub(super) fn sizes_for_rule(&self) -> Option<&Sizes> {
        self.counted.as_ref().or(self.options.sizes.as_ref())
    }

    /// The largest number of elements that a batch takes of a sample.
    pub(super) fn most(&self) -> Option<u32> {
        self.options.pad_to.as_ref().map(PadTo::most).or_else(|| self.limit())
    }

    /// The largest number of elements that the rule takes of a sample, if it truncates or splits longer ones.
    pub(super) fn limit(&self) -> Option<u32> {
        self.options.rule.limit(self.options.sizes.as_ref())
    }

    /// The way in which padded lengths are rounded.
    pub(super) fn rounding(&self) -> Rounding<'_> {
        self.options.pad_to.as_ref().map_or(Rounding::Multiple(self.options.rule.multiple_of()), Rounding::To)
    }

    /// Returns true if batches are concatenations of samples, without padding.
    pub(super) fn packs(&self) -> bool {
        self.options.concatenated || self.options.rule.packs()
    }

    /// The samples that an epoch draws.
    pub(super) fn draws(&self, epoch: u64) -> Draws {
        let samples = self.samples;
        let &PlanOptions { seed, shuffle, num_samples, .. } = &self.options;
        let shuffled = shuffle == Shuffle::Samples;
        if let Some((mix, numbers)) = self.options.mix.as_ref().zip(self.per_class()) {
            return Draws::PerClass(Box::new(PerClass::new(mix.clone(), numbers, seed, epoch, shuffled)));
        }
        if let Some(mix) = &self.options.mix {
            return Draws::Mixed(Box::new(Mixed::new(mix.clone(), num_samples, seed, epoch, shuffled)));
        }
        if let Some(weights) = &self.options.weights {
            let draws = num_samples.unwrap_or(samples);
            return Draws::Weighted(Weighted::new(weights.clone(), draws, seed, epoch));
        }
        if let Some(len) = num_samples {
            let stream = Stream { samples, seed, source: 0, shuffled, passes: None };
            return Draws::Passes { stream, first: epoch.wrapping_mul(len), len };
        }
        if let Some(chunks) = self.options.chunks.clone() {
            let window = match (shuffled, self.options.chunks_open) {
                (true, open) => ChunkWindow::new(chunks, open.unwrap_or(CHUNKS_OPEN), seed, epoch),
                (false, _) => ChunkWindow::stored(chunks),
            };
            return Draws::Once(Order::from(window));
        }
        let key = || Key::new(seed, epoch, Purpose::Samples);
        Draws::Once(match (shuffled, self.options.shard_size) {
            (true, Some(in_shard)) => Order::from(Shards::new(samples, in_shard, seed, epoch)),
            (true, None) => Order::new(samples, Some(&key())),
            (false, _) => Order::new(samples, None),
        })
    }

    /// The numbers of samples of a class in a batch, of all in a batch, and of all in an epoch, if batches have some of
    /// each class.
    fn per_class(&self) -> Option<(u64, u64, u64)> {
        let (per_class, batch_size) = self.options.per_class.zip(self.options.rule.batch_size())?;
        let draws = self.options.num_samples.or_else(|| self.samples.checked_next_multiple_of(batch_size));
        Some((per_class, batch_size, draws.unwrap_or(u64::MAX)))
    }

    /// Returns true if samples are read chunk by chunk.
    pub(super) fn is_in_chunks(&self) -> bool {
        self.options.chunks.is_some() || self.options.mix.as_ref().is_some_and(Mix::is_in_chunks)
    }

    /// Returns true if a pool ends where a slot of the window over chunks does. The windows of several sources have no
    /// common slots.
    pub(super) fn pools_end_with_chunks(&self) -> bool {
        self.options.chunks.is_some()
    }

    /// The chunk that holds a sample, numbered over all sources, if it is read with one.
    pub(super) fn chunk_of(&self, sample: u64) -> Option<u64> {
        match (&self.options.chunks, &self.options.mix) {
            (Some(chunks), _) => Some(chunks.chunk_of(sample)),
            (None, Some(mix)) => mix.chunk_of(sample),
            (None, None) => None,
        }
    }

    /// Returns true if samples of one key share a batch.
    pub(super) fn is_homogeneous(&self) -> bool {
        self.grouping.as_ref().is_some_and(Grouping::is_homogeneous)
    }

    /// Returns true if the keys of samples decide how many batches an epoch has.
    pub(super) fn counts_by_keys(&self) -> bool {
        self.grouping.as_ref().is_some_and(Grouping::counts_batches)
    }

    /// Returns true if an epoch is not every sample once.
    pub(super) fn draws_otherwise(&self) -> bool {
        conflicts::drawn(&self.options).is_some()
    }

    /// The sources with weights that may change, if there are some.
    pub(super) fn sources(&self) -> Option<&Mix> {
        self.options.mix.as_ref().filter(|mix| !mix.is_balanced())
    }

    /// Returns true if position `k` holds sample `k`.
    pub(super) fn is_stored(&self) -> bool {
        self.options.shuffle != Shuffle::Samples && !self.draws_otherwise()
    }

    /// The number of samples in each shard but the last, or of all samples if there are no shards, where an epoch has
    /// `positions`.
    pub(super) fn in_shard(&self, positions: u64) -> u64 {
        self.options.shard_size.unwrap_or(u64::MAX).min(self.count_kept(positions)).max(1)
    }

    /// The number of samples that pools are a part of, where an epoch has `positions`. Weights of sources may change,
    /// and with them the length of epochs; pools may not.
    pub(super) fn count_pooled(&self, positions: u64) -> u64 {
        if self.options.mix.is_some() { self.samples } else { positions }
    }

    /// The number of samples in each pool but the last of a shard, if `rule` decides; with chunks, the least number. If
    /// samples come in stored order, a shard is one pool, unless there are chunks.
    pub(super) fn in_pool_of(&self, rule: &Rule, positions: u64) -> u64 {
        if self.grouping.is_some() {
            return u64::MAX;
        }
        let in_shard = self.in_shard(positions);
        let is_part =
            self.options.shuffle == Shuffle::Samples || self.is_in_chunks() || !rule.looks_at_sizes();
        let in_pool = match is_part {
            true => rule.samples_in_pool(self.pool_bounds(in_shard), self.sizes_for_rule()).min(in_shard),
            false => in_shard,
        };
        // Another epoch may have more positions: what is a pool in this one is then several, of whole batches.
        match self.options.mix {
            Some(_) => in_pool.checked_next_multiple_of(rule.batch_size().unwrap_or(1)).unwrap_or(u64::MAX),
            None => in_pool,
        }
    }

    /// The bounds of pools where a shard has `in_shard` samples. With chunks, a pool takes at most what a quarter of the
    /// open chunks hold, so that its chunks fit beside the window into memory that was given for chunks.
    fn pool_bounds(&self, in_shard: u64) -> PoolBounds {
        let (chunks, open) = match (&self.options.chunks, &self.options.mix) {
            (Some(chunks), _) => (chunks.len(), self.options.chunks_open.unwrap_or(CHUNKS_OPEN)),
            (None, Some(mix)) => mix.count_chunks(),
            (None, None) => (0, 0),
        };
        match open < chunks {
            true => {
                let in_slot = self.samples.div_ceil(chunks - open + 1);
                PoolBounds { samples: in_shard, most: in_slot.saturating_mul((open / POOL_SHARE).max(1)) }
            }
            false => PoolBounds::of(in_shard),
        }
    }

    /// The number of pools that are dealt together: one, unless batches are balanced. The more ranks take a step, the
    /// more batches it takes to find similar ones.
    pub(super) fn pools_in_window(&self, world_size: u32) -> u64 {
        if !self.options.balance {
            return 1;
        }
        let pools = POOLS_IN_WINDOW * u64::from(world_size).div_ceil(RANKS_OF_WINDOW);
        pools.min(MOST_IN_WINDOW / self.in_pool.max(1)).max(1)
    }

    /// The number of samples that are left of `positions` when those that fill no batch are dropped.
    pub(super) fn count_kept(&self, positions: u64) -> u64 {
        match self.options.rule.batch_size() {
            Some(batch_size) if self.options.drop_last && !self.counts_by_keys() => {
                positions - positions % batch_size
            }
            _ => positions,
        }
    }
}
