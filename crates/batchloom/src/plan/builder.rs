//! How a plan is asked for.

use std::sync::Arc;

use super::Plan;
use super::epoch::Epoch;
use super::recipe::Recipe;
use crate::batching::{FixedSize, Rule, Sizes};
use crate::order::{LIMIT, Shuffle};
use crate::ranks::{MOST_RANKS, Uneven};
use crate::{Error, Result};

/// The options of a [`Plan`], made by [`Plan::builder`].
#[derive(Debug, Clone)]
pub struct PlanBuilder {
    samples: u64,
    rule: Result<Rule>,
    shuffle: Shuffle,
    seed: u64,
    drop_last: bool,
    uneven: Uneven,
    sizes: Option<Sizes>,
    balance: bool,
    largest_first: bool,
    concatenated: bool,
    content: Option<String>,
    shard_size: Option<u64>,
    epoch: u64,
    world_size: u32,
}

impl PlanBuilder {
    pub(super) fn new(samples: u64) -> Self {
        Self {
            samples,
            rule: FixedSize::new(64).map(Rule::from),
            shuffle: Shuffle::Nothing,
            seed: 0,
            drop_last: false,
            uneven: Uneven::Pad,
            sizes: None,
            balance: false,
            largest_first: false,
            concatenated: false,
            content: None,
            shard_size: None,
            epoch: 0,
            world_size: 1,
        }
    }

    /// Batches of `batch_size` samples, short for [`rule`](Self::rule) with [`FixedSize`]. Default: 64.
    pub fn batch_size(mut self, batch_size: u64) -> Self {
        self.rule = FixedSize::new(batch_size).map(Rule::from);
        self
    }

    /// How samples share a batch.
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        self.rule = Ok(rule.into());
        self
    }

    /// What each epoch puts in a random order of its own: samples (`true`), nothing (`false`), or [`Shuffle::Runs`].
    /// Default: nothing.
    pub fn shuffle(mut self, shuffle: impl Into<Shuffle>) -> Self {
        self.shuffle = shuffle.into();
        self
    }

    /// What the random orders depend on, besides the epoch. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether to leave out what does not fill a batch and a step. Default: keep every sample.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// What happens to batches that do not fill a step, unless they are dropped. Default: [`Uneven::Pad`].
    pub fn uneven(mut self, uneven: Uneven) -> Self {
        self.uneven = uneven;
        self
    }

    /// The sizes of the samples: what rules sort, count and budget by. Default: every sample counts as one element.
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Whether batches of similar cost form a step, so that no rank waits for another. Default: no.
    pub fn balance(mut self, balance: bool) -> Self {
        self.balance = balance;
        self
    }

    /// Whether the largest batch comes first, so that memory is claimed once and its want shows at once. Default: no.
    pub fn largest_first(mut self, largest_first: bool) -> Self {
        self.largest_first = largest_first;
        self
    }

    /// Whether batches are samples one after the other without padding, whatever the rule, so that budgets count real
    /// elements. Default: no.
    pub fn concatenated(mut self, concatenated: bool) -> Self {
        self.concatenated = concatenated;
        self
    }

    /// A name for what samples are made of, where their number and sizes do not say it: part of the fingerprint.
    pub fn content(mut self, content: String) -> Self {
        self.content = Some(content);
        self
    }

    /// Shuffles within shards of so many neighbours as stored, and shards among each other, so that the order needs one
    /// shard at a time: for data that is larger than the memory of a device, or read from disk. A multiple of the batch
    /// size, where there is one; a pool of other rules ends where its shard ends. Without
    /// [`shuffle`](Self::shuffle), shards come as stored. Default: none, everything is shuffled at once.
    pub fn shard_size(mut self, shard_size: impl Into<Option<u64>>) -> Self {
        self.shard_size = shard_size.into();
        self
    }

    /// Another number of samples.
    pub(crate) fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// Samples of all ranks at a step, where all batches have as many.
    pub(crate) fn samples_in_step(&self) -> Option<u64> {
        let rule = self.rule.as_ref().ok()?;
        let batch_size = rule.batch_size().filter(|_| !rule.sorts())?;
        batch_size.checked_mul(u64::from(self.world_size))
    }

    /// What is in random order.
    pub(crate) fn shuffled(&self) -> Shuffle {
        self.shuffle
    }

    /// Which epoch. Default: 0.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The number of ranks. Default: 1.
    pub fn world_size(mut self, world_size: u32) -> Self {
        self.world_size = world_size;
        self
    }

    /// The plan. O(1) in the number of samples with [`FixedSize`] and [`LengthBuckets`](crate::batching::LengthBuckets);
    /// other rules cut every pool once, to know how many steps there are.
    ///
    /// # Errors
    /// [`Error::NoSamples`], [`Error::TooManySamples`], [`Error::BatchSize`], [`Error::World`]; [`Error::NotPositive`] and
    /// [`Error::ShardSize`]; [`Error::NoSizes`],
    /// [`Error::SizesLength`], [`Error::RunsOfSizes`], [`Error::Oversize`], [`Error::Dimensions`], [`Error::PoolTooLarge`]; and
    /// [`Error::NothingLeft`] or [`Error::AllDropped`] where no step would be left.
    pub fn build(self) -> Result<Plan> {
        let rule = if self.concatenated { self.rule?.unpadded() } else { self.rule? };
        match self.samples {
            0 => return Err(Error::NoSamples),
            found if found > LIMIT => return Err(Error::TooManySamples { found, limit: LIMIT }),
            _ => {}
        }
        if self.world_size == 0 || self.world_size > MOST_RANKS {
            return Err(Error::World { found: self.world_size, limit: MOST_RANKS });
        }
        let recipe = Recipe {
            samples: self.samples,
            rule,
            shuffle: self.shuffle,
            seed: self.seed,
            drop_last: self.drop_last,
            uneven: self.uneven,
            // Samples that all count the same are balanced as they are, and none is larger.
            balance: self.balance && self.sizes.is_some(),
            largest_first: self.largest_first && self.sizes.is_some(),
            concatenated: self.concatenated,
            content: self.content,
            shard_size: self.shard_size,
            sizes: self.sizes,
        };
        check_shards(&recipe)?;
        check_sizes(&recipe)?;
        let plan = Plan::new(Arc::new(Epoch::new(Arc::new(recipe), self.epoch)), self.world_size, Vec::new());
        plan.require_steps()?;
        Ok(plan)
    }
}

/// No batch lies in two shards: those of equal size fill a shard.
fn check_shards(recipe: &Recipe) -> Result<()> {
    match (recipe.shard_size, recipe.rule.batch_size()) {
        (Some(0), _) => Err(Error::NotPositive { name: "shard_size" }),
        (Some(found), Some(batch_size)) if !found.is_multiple_of(batch_size) => {
            Err(Error::ShardSize { found, batch_size })
        }
        _ => Ok(()),
    }
}

fn check_sizes(recipe: &Recipe) -> Result<()> {
    if recipe.shuffle == Shuffle::Runs && recipe.uniform().is_none() {
        return Err(Error::RunsOfSizes { rule: recipe.rule.name() });
    }
    match &recipe.sizes {
        None if recipe.uniform().is_none() => Err(Error::NoSizes { rule: recipe.rule.name() }),
        None => Ok(()),
        Some(sizes) if sizes.len() != recipe.samples => {
            Err(Error::SizesLength { found: sizes.len(), samples: recipe.samples })
        }
        Some(sizes) => recipe.rule.check(sizes, recipe.in_pool()),
    }
}
