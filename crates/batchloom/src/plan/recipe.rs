//! The options that stay the same over all epochs and worlds of a run, and their fingerprint.

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use crate::batching::{FixedSize, PadTo, Rounding, Rule, SampleLabels, Sizes};
use crate::order::{self, Shuffle};
use crate::ranks::Uneven;

/// The options of a run. Their hash is the plan's fingerprint, so the names and the order of these fields are part of
/// the state format. Options that were added after the first version are left out when they change nothing.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Recipe {
    pub(super) samples: u64,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shard_size: Option<u64>,
    /// True if runs of neighbours begin at another sample in each epoch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) moves_runs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pad_to: Option<PadTo>,
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
            Rule::FixedSize(rule) if self.sizes.is_none() => Some(rule),
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

    /// The number of samples in each shard but the last, or of all samples if there are no shards.
    pub(super) fn in_shard(&self) -> u64 {
        self.shard_size.unwrap_or(u64::MAX).min(self.kept()).max(1)
    }

    /// The number of samples in each pool but the last of a shard, if `rule` decides. If samples come in stored order, a
    /// shard is one pool.
    pub(super) fn in_pool_of(&self, rule: &Rule) -> u64 {
        let in_shard = self.in_shard();
        match self.shuffle == Shuffle::Samples || matches!(rule, Rule::FixedSize(_)) {
            true => rule.samples_in_pool(in_shard, self.counted()).min(in_shard),
            false => in_shard,
        }
    }

    /// The pool that holds `position`.
    pub(super) fn pool_at(&self, position: u64) -> u64 {
        let in_shard = self.in_shard();
        position / in_shard * self.pools_in_shard() + position % in_shard / self.in_pool
    }

    /// The first position of `pool`. A pool ends at the first position of the next one, or at [`kept`](Self::kept).
    pub(super) fn start_of(&self, pool: u64) -> u64 {
        let pools = self.pools_in_shard();
        pool / pools * self.in_shard() + pool % pools * self.in_pool
    }

    fn pools_in_shard(&self) -> u64 {
        self.in_shard().div_ceil(self.in_pool)
    }

    /// The number of samples that are left when those that fill no batch are dropped.
    pub(super) fn kept(&self) -> u64 {
        match self.rule.batch_size() {
            Some(batch_size) if self.drop_last => self.samples - self.samples % batch_size,
            _ => self.samples,
        }
    }
}

fn digest<S: Serializer>(sizes: &Option<Sizes>, serializer: S) -> Result<S::Ok, S::Error> {
    sizes.as_ref().map(Sizes::digest).serialize(serializer)
}
