//! The builder of a plan: options are checked once, and what the epochs share is computed.

use std::sync::Arc;

use super::epoch::Epoch;
use super::error::PlanCause;
use super::options::option_setters;
use super::pool::length;
use super::recipe::Recipe;
use super::{Plan, PlanOptions, conflicts};
use crate::batching::error::BatchingCause;
use crate::batching::{Budgeted, Cost, CostModel, FixedSize, Keys, Labels, Rule, SampleLabels, Sizes};
use crate::draws::{Mix, SourceWindow, Weights};
use crate::order::{CHUNKS_OPEN, Chunks, LIMIT, Shuffle};
use crate::ranks::{BalanceWithin, MOST_RANKS};
use crate::{Error, Result, memory};

/// The most bytes for each chunk that an order takes while it is made.
const ORDER_BYTES: usize = 24;

/// A builder of a [`Plan`], made by [`Plan::builder`]: the number of samples, the options, an epoch and a world. The
/// options are documented at the fields of [`PlanOptions`].
#[derive(Debug, Clone)]
pub struct PlanBuilder {
    samples: u64,
    options: PlanOptions,
    /// The reason for which there is no rule.
    refused: Option<Error>,
    epoch: u64,
    world_size: u32,
}

impl Plan {
    /// The builder of a plan over `samples` samples.
    pub fn builder(samples: u64) -> PlanBuilder {
        PlanBuilder { samples, options: PlanOptions::default(), refused: None, epoch: 0, world_size: 1 }
    }
}

impl PlanBuilder {
    /// Makes batches of `batch_size` samples, as [`rule`](Self::rule) does with [`FixedSize`]. Default: 64.
    pub fn batch_size(mut self, batch_size: u64) -> Self {
        match FixedSize::new(batch_size) {
            Ok(rule) => self.rule(rule),
            Err(refused) => {
                self.refused = Some(refused);
                self
            }
        }
    }

    /// Sets [`PlanOptions::rule`].
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        (self.options.rule, self.refused) = (rule.into(), None);
        self
    }

    pub(crate) fn options_mut(&mut self) -> &mut PlanOptions {
        &mut self.options
    }

    /// The rule that decides which samples share a batch.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the batch size is 0.
    pub(crate) fn chosen_rule(&self) -> Result<&Rule> {
        self.refused.clone().map_or(Ok(&self.options.rule), Err)
    }

    /// Returns true if an epoch is not every sample once.
    pub(crate) fn draws_otherwise(&self) -> bool {
        conflicts::drawn(&self.options).is_some()
    }

    /// The option with a value for each sample by its number, if there is one.
    pub(crate) fn names_samples(&self) -> Option<&'static str> {
        match &self.options {
            PlanOptions { weights: Some(_), .. } => Some("weights of samples"),
            PlanOptions { mix: Some(mix), .. } if mix.is_balanced() => Some("classes of samples"),
            _ if self.has_keys_within_sources() => Some("keys of samples"),
            _ => None,
        }
    }

    /// Returns true if samples of one source have different keys.
    fn has_keys_within_sources(&self) -> bool {
        let PlanOptions { homogeneous_by, distinct_by, mix, .. } = &self.options;
        let Some(keys) = homogeneous_by.as_ref().or(distinct_by.as_ref()) else { return false };
        let counts = mix.as_ref().map_or_else(|| vec![self.samples], Mix::counts);
        let mut left = keys.as_slice();
        counts.into_iter().any(|count| {
            let numbers = length(count).saturating_mul(keys.columns());
            let (source, others) = left.split_at(numbers.min(left.len()));
            left = others;
            // Each sample has the keys of the one before it.
            source.iter().zip(source.iter().skip(keys.columns())).any(|(key, next)| key != next)
        })
    }

    /// Reads samples chunk by chunk: each source of a mixture in a window over its own chunks, where these are known, and
    /// otherwise all samples in one. `parts` has the chunks of each source, and how many of them are open, given whether
    /// two passes over a source may meet; `whole` has them for all samples.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the chunks of a source do not hold its samples.
    pub(crate) fn read_in_chunks(
        self,
        parts: impl FnOnce(bool) -> Option<Vec<(Chunks, u64)>>,
        whole: impl FnOnce() -> (Chunks, Option<u64>),
    ) -> Result<Self> {
        let PlanOptions { mix, num_samples, .. } = &self.options;
        let mix = mix.clone().filter(|mix| !mix.is_balanced());
        let parts =
            mix.as_ref().and_then(|mix| parts(num_samples.is_some() || !mix.draws_every_sample_once()));
        match mix.zip(parts) {
            Some((mix, parts)) => {
                let window = |(chunks, open)| Some(SourceWindow { chunks, open });
                let mix = mix.in_chunks(parts.into_iter().map(window).collect())?;
                Ok(self.mix(mix))
            }
            None => {
                let (chunks, open) = whole();
                Ok(self.chunks(chunks).chunks_open(open))
            }
        }
    }

    /// Replaces the number of samples.
    pub(crate) fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// The number of samples of all ranks at a step; `None` if batches differ in number.
    pub(crate) fn samples_in_step(&self) -> Option<u64> {
        let rule = self.chosen_rule().ok()?;
        rule.run_len()?.checked_mul(u64::from(self.world_size))
    }

    /// The choice of what is shuffled.
    pub(crate) fn shuffle_choice(&self) -> Shuffle {
        self.options.shuffle
    }

    /// Sets the epoch. Default: 0.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// Sets the number of ranks. Default: 1.
    pub fn world_size(mut self, world_size: u32) -> Self {
        self.world_size = world_size;
        self
    }

    /// Builds the plan. This is O(1) in the number of samples with [`FixedSize`] and
    /// [`LengthBuckets`](crate::batching::LengthBuckets); other rules look at every pool once, to count the steps.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are no samples or more than 2^62, if there is not one size for each,
    /// or if one is too large for the rule or for the lengths that batches are padded to;
    /// [`Kind::Argument`](crate::Kind::Argument) if a number is 0 or out of range, if options exclude each other, if
    /// the rule does not go with the sizes, the keys, the counts of labels or the shards, if there is not one weight or
    /// key for each sample, or if no step would be left; [`Kind::Range`](crate::Kind::Range) if a banned sample does
    /// not exist; and [`Kind::Memory`](crate::Kind::Memory) if there is too little to cut a pool.
    pub fn build(self) -> Result<Plan> {
        let Self { samples, mut options, refused, epoch, world_size } = self;
        refused.map_or(Ok(()), Err)?;
        match samples {
            0 => return Err(BatchingCause::NoSamples.into()),
            samples if samples > LIMIT => {
                return Err(PlanCause::TooManySamples { found: samples, limit: LIMIT }.into());
            }
            _ => {}
        }
        if world_size == 0 || world_size > MOST_RANKS {
            return Err(PlanCause::World { found: world_size, limit: MOST_RANKS }.into());
        }
        if options.concatenated {
            options.rule = options.rule.count_real_elements();
        }
        // Samples that all count the same are balanced as they are, and no batch of them has to be the first.
        options.balance &= options.sizes.is_some();
        options.largest_first &= options.sizes.is_some();
        if options.sizes.is_none() {
            options.balance_within = BalanceWithin::Window;
        }
        if options.balance && options.cost == Cost::Elements {
            options.cost = CostModel::default().into();
        }
        check_lengths(&options, samples)?;
        check_chunks(&options, samples)?;
        options.chunks_open = options.chunks.as_ref().map(|_| options.chunks_open.unwrap_or(CHUNKS_OPEN));
        check_updates(&options)?;
        conflicts::check(&options)?;
        check_classes(&options)?;
        let mut recipe = Recipe::new(samples, options);
        check_keys(&recipe)?;
        check_bans(&recipe)?;
        recipe.options.rule.check_lists(samples)?;
        check_shards(&recipe.options)?;
        recipe.counted = round_sizes(&recipe)?;
        recipe.budgeted = look_up_budgets(&recipe)?;
        let draws = recipe.draws(epoch).len();
        if draws == 0 || draws > LIMIT {
            return Err(PlanCause::TooManySamples { found: draws, limit: LIMIT }.into());
        }
        recipe.in_pool = recipe.in_pool_of(&recipe.options.rule, recipe.count_pooled(draws));
        check_sizes(&recipe, draws)?;
        let PlanOptions { labels, sizes, rule, .. } = &recipe.options;
        let known = |labels| SampleLabels::new(labels, samples, sizes.as_ref(), rule, recipe.most());
        recipe.labels = labels.clone().map(known).transpose()?;
        let plan = Plan::new(Arc::new(Epoch::new(Arc::new(recipe), epoch)), world_size, Vec::new());
        plan.require_memory()?;
        plan.require_steps()?;
        Ok(plan)
    }
}

option_setters!(PlanBuilder);
option_setters! {
    PlanBuilder =>
    sizes: impl Into<Option<Sizes>>,
    concatenated: bool,
    content: impl Into<Option<String>>,
    tail: u64,
    labels: impl Into<Option<Labels>>,
    chunks: impl Into<Option<Chunks>>,
}

/// Checks that updates have steps, and that batches are balanced within some.
fn check_updates(options: &PlanOptions) -> Result<()> {
    if options.accumulate == Some(0) {
        return Err(BatchingCause::NotPositive { option: "accumulate" }.into());
    }
    let missing = match (options.balance, options.accumulate) {
        _ if options.balance_within.is_window() => return Ok(()),
        (false, _) => "batches are not balanced",
        (true, None | Some(1)) => "an update has one step",
        (true, Some(_)) => return Ok(()),
    };
    Err(PlanCause::NoUpdates { within: options.balance_within.name(), missing }.into())
}

/// Checks that each option with a number or a weight for each sample has one for each.
fn check_lengths(options: &PlanOptions, samples: u64) -> Result<()> {
    if options.num_samples == Some(0) {
        return Err(BatchingCause::NotPositive { option: "num_samples" }.into());
    }
    let mix = options.mix.as_ref();
    let count = options.weights.as_ref().map(Weights::len).or_else(|| mix.map(Mix::samples));
    if let Some(count) = count.filter(|&count| count != samples) {
        return Err(PlanCause::WeightCount { found: count, samples }.into());
    }
    let keys = [("homogeneous_by", &options.homogeneous_by), ("distinct_by", &options.distinct_by)];
    for (option, keys) in keys {
        let length = keys.as_ref().map_or(samples, |keys| keys.samples() as u64);
        if length != samples {
            return Err(PlanCause::KeysLength { option, found: length, expected: samples }.into());
        }
    }
    if let Some(columns) = options.homogeneous_by.as_ref().map(Keys::columns).filter(|&columns| columns > 1) {
        return Err(PlanCause::SeveralKeys { columns }.into());
    }
    if !options.surplus.is_error() && options.distinct_by.is_none() {
        return Err(PlanCause::SurplusWithoutKeys.into());
    }
    mix.map_or(Ok(()), Mix::check_length)
}

/// Checks that chunks hold all samples, that some may be open, and that there is memory for their order.
fn check_chunks(options: &PlanOptions, samples: u64) -> Result<()> {
    match (&options.chunks, options.chunks_open) {
        (_, Some(0)) => Err(BatchingCause::NotPositive { option: "chunks_open" }.into()),
        (None, Some(open)) => Err(PlanCause::OpenWithoutChunks { open }.into()),
        (Some(chunks), _) if chunks.samples() != samples => {
            let (found, count) = (chunks.samples(), chunks.len());
            Err(PlanCause::ChunksLength { found, chunks: count, samples }.into())
        }
        (Some(chunks), _) => memory::require(length(chunks.len()).saturating_mul(ORDER_BYTES)),
        (None, None) => Ok(()),
    }
}

/// Checks that batches and epochs have room for the samples of each class that [`PlanOptions::per_class`] wants.
fn check_classes(options: &PlanOptions) -> Result<()> {
    let Some(per_class) = options.per_class else { return Ok(()) };
    if per_class == 0 {
        return Err(BatchingCause::NotPositive { option: "per_class" }.into());
    }
    if !options.mix.as_ref().is_some_and(Mix::has_equal_classes) {
        return Err(PlanCause::NoClasses { per_class }.into());
    }
    let Some(batch_size) = options.rule.batch_size() else { return Ok(()) };
    if !batch_size.is_multiple_of(per_class) {
        return Err(PlanCause::PerClass { found: batch_size, per_class }.into());
    }
    match options.num_samples {
        Some(found) if !found.is_multiple_of(batch_size) => {
            Err(PlanCause::WholeBatches { found, batch_size, per_class }.into())
        }
        _ => Ok(()),
    }
}

/// Checks that all samples find a batch, if the samples of a batch have different keys.
fn check_keys(recipe: &Recipe) -> Result<()> {
    match (&recipe.grouping, recipe.options.rule.run_len()) {
        (Some(grouping), Some(batch_size)) if !grouping.is_homogeneous() => {
            grouping.check(batch_size, recipe.count_kept(recipe.samples))
        }
        _ => Ok(()),
    }
}

/// Checks that banned samples exist.
fn check_bans(recipe: &Recipe) -> Result<()> {
    let samples = recipe.samples;
    match recipe.bans.all().last() {
        Some(&sample) if sample >= samples => Err(BatchingCause::SampleRange { sample, samples }.into()),
        _ => Ok(()),
    }
}

/// Checks that no batch lies in two shards: batches of equal size have to fill a shard.
fn check_shards(options: &PlanOptions) -> Result<()> {
    match (options.shard_size, options.rule.batch_size()) {
        (Some(0), _) => Err(BatchingCause::NotPositive { option: "shard_size" }.into()),
        (Some(shard_size), Some(batch_size)) if !shard_size.is_multiple_of(batch_size) => {
            Err(PlanCause::ShardSize { found: shard_size, batch_size }.into())
        }
        _ => Ok(()),
    }
}

/// The sizes that the rule is given, if batches are padded to given lengths.
fn round_sizes(recipe: &Recipe) -> Result<Option<Sizes>> {
    let Some(pad_to) = &recipe.options.pad_to else { return Ok(None) };
    let sizes = recipe.options.sizes.as_ref().ok_or(PlanCause::PadToWithoutSizes)?;
    let (dimensions, multiple_of) = (sizes.dimensions(), recipe.options.rule.multiple_of());
    if dimensions > 1 {
        return Err(PlanCause::PadToDimensions { dimensions }.into());
    }
    if recipe.packs() {
        return Err(PlanCause::PadToPacked.into());
    }
    if recipe.limit().is_some() {
        return Err(PlanCause::PadToTruncated { rule: recipe.options.rule.name() }.into());
    }
    if let Some(&length) = pad_to.lengths().iter().find(|length| !length.is_multiple_of(multiple_of)) {
        return Err(PlanCause::PadToMultiple { length, multiple_of }.into());
    }
    pad_to.sizes(sizes, recipe.options.rule.counts_real()).map(Some)
}

/// The sizes of samples by the budgets of the rule, if it has several and samples have sizes.
fn look_up_budgets(recipe: &Recipe) -> Result<Option<Budgeted>> {
    let budgets = recipe.options.rule.budgets().zip(recipe.sizes_for_rule());
    budgets.map(|(budgets, sizes)| Budgeted::new(budgets, sizes)).transpose()
}

fn check_sizes(recipe: &Recipe, draws: u64) -> Result<()> {
    let limit = u64::from(u32::MAX);
    if recipe.grouping.is_some() && draws > limit {
        return Err(BatchingCause::PoolTooLarge { found: draws, limit }.into());
    }
    if recipe.options.shuffle == Shuffle::Runs && recipe.uniform().is_none() {
        return Err(PlanCause::RunsOfSizes { rule: recipe.options.rule.name() }.into());
    }
    match &recipe.options.sizes {
        None if recipe.options.rule.listed().is_some() => Ok(()),
        None if recipe.options.rule.batch_size().is_none() || recipe.options.rule.looks_at_sizes() => {
            Err(PlanCause::NoSizes { rule: recipe.options.rule.name() }.into())
        }
        None => Ok(()),
        Some(sizes) if sizes.len() != recipe.samples => {
            Err(BatchingCause::SizesLength { found: sizes.len(), samples: recipe.samples }.into())
        }
        Some(sizes) => {
            // With chunks, a pool holds fewer than twice as many.
            let most = if recipe.pools_end_with_chunks() {
                recipe.in_pool.saturating_mul(2)
            } else {
                recipe.in_pool
            };
            let sizes = recipe.sizes_for_rule().unwrap_or(sizes);
            recipe.options.rule.check(sizes, recipe.budgeted.as_ref(), most.min(draws))
        }
    }
}
