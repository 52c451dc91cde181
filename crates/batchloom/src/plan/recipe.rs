//! The options that stay the same over all epochs and worlds of a run, and their fingerprint.

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::bans::Bans;
use crate::batching::{FixedSize, Grouping, PadTo, Rounding, Rule, SampleLabels, Sizes};
use crate::draws::{Draws, Mix, Mixed, Stream, Weighted, Weights};
use crate::order::{self, Key, Order, Purpose, Shards, Shuffle};
use crate::ranks::Uneven;

/// The options of a run. Their hash is the plan's fingerprint, so the names and the order of these fields are part of
/// the state format. Options that were added after the first version are left out when they change nothing.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Recipe {
    pub(super) samples: u64,
    #[serde(serialize_with = "Rule::serialize_parts")]
    pub(super) rule: Rule,
    pub(super) shuffle: Shuffle,
    pub(super) seed: u64,
    pub(super) drop_last: bool,
    pub(super) uneven: Uneven,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "digest")]
    pub(super) sizes: Option<Sizes>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) balance: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) largest_first: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) concatenated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
    /// The number of elements of a stream that are in no sample.
    #[serde(skip)]
    pub(super) tail: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shard_size: Option<u64>,
    /// True if runs of neighbours begin at another sample in each epoch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) moves_runs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pad_to: Option<PadTo>,
    /// The number of draws of an epoch, if it is not that of the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) num_samples: Option<u64>,
    /// The sources of samples, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mix: Option<Mix>,
    /// The weights of samples, which may change from epoch to epoch.
    #[serde(skip)]
    pub(super) weights: Option<Weights>,
    /// The samples that may share a batch, if their keys decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) grouping: Option<Grouping>,
    /// The samples that are left without weight, which may change between two steps.
    #[serde(skip)]
    pub(super) bans: Bans,
    /// The sizes that the rule is given, if samples do not have their own in a batch.
    #[serde(skip)]
    pub(super) counted: Option<Sizes>,
    /// The number of samples in each pool but the last of a shard.
    #[serde(skip)]
    pub(super) in_pool: u64,
    /// The labels of batches, which change no plan.
    #[serde(skip)]
    pub(super) labels: Option<SampleLabels>,
}

impl Recipe {
    /// The fingerprint, 32 hexadecimal digits.
    pub(super) fn fingerprint(&self) -> String {
        // These are plain structs of numbers, booleans and names: serialising them cannot fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("{:032x}", xxh3_128(format!("{} {text}", order::VERSION).as_bytes()))
    }

    /// The rule, if samples all count the same and nothing has to be known of any.
    pub(super) fn uniform(&self) -> Option<&FixedSize> {
        match &self.rule {
            Rule::FixedSize(rule) if self.sizes.is_none() && self.grouping.is_none() => Some(rule),
            _ => None,
        }
    }

    /// The sizes that the rule is given.
    pub(super) fn counted(&self) -> Option<&Sizes> {
        self.counted.as_ref().or(self.sizes.as_ref())
    }

    /// The largest number of elements that a batch takes of a sample.
    pub(super) fn most(&self) -> Option<u32> {
        self.pad_to.as_ref().map(PadTo::most).or_else(|| self.rule.limit())
    }

    /// The way in which padded lengths are rounded.
    pub(super) fn rounding(&self) -> Rounding<'_> {
        self.pad_to.as_ref().map_or(Rounding::Multiple(self.rule.multiple_of()), Rounding::To)
    }

    /// Returns true if batches are concatenations of samples, without padding.
    pub(super) fn packs(&self) -> bool {
        self.concatenated || self.rule.packs()
    }

    /// The samples that an epoch draws.
    pub(super) fn draws(&self, epoch: u64) -> Draws {
        let &Self { samples, seed, shuffle, num_samples, .. } = self;
        let shuffled = shuffle == Shuffle::Samples;
        if let Some(mix) = &self.mix {
            return Draws::Mixed(Box::new(Mixed::new(mix.clone(), num_samples, seed, epoch, shuffled)));
        }
        if let Some(weights) = &self.weights {
            let draws = num_samples.unwrap_or(samples);
            return Draws::Weighted(Weighted::new(weights.clone(), draws, seed, epoch));
        }
        if let Some(len) = num_samples {
            let stream = Stream { samples, seed, source: 0, shuffled };
            return Draws::Passes { stream, first: epoch.wrapping_mul(len), len };
        }
        let key = || Key::new(seed, epoch, Purpose::Samples);
        Draws::Once(match (shuffled, self.shard_size) {
            (true, Some(in_shard)) => Order::from(Shards::new(samples, in_shard, seed, epoch)),
            (true, None) => Order::new(samples, Some(&key())),
            (false, _) => Order::new(samples, None),
        })
    }

    /// Returns true if samples of one key share a batch.
    pub(super) fn is_homogeneous(&self) -> bool {
        self.grouping.as_ref().is_some_and(Grouping::is_homogeneous)
    }

    /// Returns true if an epoch is not every sample once.
    pub(super) fn draws_otherwise(&self) -> bool {
        self.mix.is_some() || self.weights.is_some() || self.num_samples.is_some()
    }

    /// The sources whose weights may change, if there are some.
    pub(super) fn sources(&self) -> Option<&Mix> {
        self.mix.as_ref().filter(|mix| !mix.is_balanced())
    }

    /// Returns true if position `k` holds sample `k`.
    pub(super) fn is_stored(&self) -> bool {
        self.shuffle != Shuffle::Samples && !self.draws_otherwise()
    }

    /// The number of samples in each shard but the last, or of all samples if there are no shards, where an epoch has
    /// `positions`.
    pub(super) fn in_shard(&self, positions: u64) -> u64 {
        self.shard_size.unwrap_or(u64::MAX).min(self.kept(positions)).max(1)
    }

    /// The number of samples that pools are a part of, where an epoch has `positions`. Weights of sources may change, and
    /// with them the length of epochs; pools may not.
    pub(super) fn pooled(&self, positions: u64) -> u64 {
        if self.mix.is_some() { self.samples } else { positions }
    }

    /// The number of samples in each pool but the last of a shard, if `rule` decides. If samples come in stored order, a
    /// shard is one pool.
    pub(super) fn in_pool_of(&self, rule: &Rule, positions: u64) -> u64 {
        if self.grouping.is_some() {
            return u64::MAX;
        }
        let in_shard = self.in_shard(positions);
        let in_pool = match self.shuffle == Shuffle::Samples || matches!(rule, Rule::FixedSize(_)) {
            true => rule.samples_in_pool(in_shard, self.counted()).min(in_shard),
            false => in_shard,
        };
        // Another epoch may have more positions: what is a pool in this one is then several, of whole batches.
        match self.mix {
            Some(_) => in_pool.checked_next_multiple_of(rule.batch_size().unwrap_or(1)).unwrap_or(u64::MAX),
            None => in_pool,
        }
    }

    /// The number of samples that are left of `positions` when those that fill no batch are dropped.
    pub(super) fn kept(&self, positions: u64) -> u64 {
        match self.rule.batch_size() {
            Some(batch_size) if self.drop_last && !self.is_homogeneous() => {
                positions - positions % batch_size
            }
            _ => positions,
        }
    }
}

fn digest<S: Serializer>(sizes: &Option<Sizes>, serializer: S) -> Result<S::Ok, S::Error> {
    sizes.as_ref().map(Sizes::digest).serialize(serializer)
}
