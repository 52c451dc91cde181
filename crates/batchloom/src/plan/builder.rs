//! The options of a plan.

use std::sync::Arc;

use super::Plan;
use super::bans::Bans;
use super::epoch::Epoch;
use super::recipe::Recipe;
use crate::batching::{FixedSize, Grouping, Keys, Labels, PadTo, Rule, SampleLabels, Sizes};
use crate::draws::{Mix, Weights};
use crate::order::{LIMIT, Shuffle};
use crate::ranks::{MOST_RANKS, Uneven};
use crate::{Error, Result};

/// The options of a [`Plan`], made by [`Plan::builder`].
#[derive(Clone)]
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
    tail: u64,
    shard_size: Option<u64>,
    pad_to: Option<PadTo>,
    labels: Option<Labels>,
    num_samples: Option<u64>,
    mix: Option<Mix>,
    weights: Option<Weights>,
    ban: Option<Vec<u64>>,
    homogeneous_by: Option<Keys>,
    distinct_by: Option<Keys>,
    epoch: u64,
    world_size: u32,
}

crate::brief::debug_in_brief!(
    PlanBuilder,
    [
        samples,
        rule,
        shuffle,
        seed,
        drop_last,
        uneven,
        sizes,
        balance,
        largest_first,
        concatenated,
        content,
        tail,
        shard_size,
        pad_to,
        labels,
        num_samples,
        mix,
        weights,
        homogeneous_by,
        distinct_by,
        epoch,
        world_size
    ],
    [ban]
);

impl Plan {
    /// The options of a plan over `samples` samples.
    pub fn builder(samples: u64) -> PlanBuilder {
        PlanBuilder::new(samples)
    }
}

impl PlanBuilder {
    fn new(samples: u64) -> Self {
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
            tail: 0,
            shard_size: None,
            pad_to: None,
            labels: None,
            num_samples: None,
            mix: None,
            weights: None,
            ban: None,
            homogeneous_by: None,
            distinct_by: None,
            epoch: 0,
            world_size: 1,
        }
    }

    /// Makes batches of `batch_size` samples, as [`rule`](Self::rule) does with [`FixedSize`]. Default: 64.
    pub fn batch_size(mut self, batch_size: u64) -> Self {
        self.rule = FixedSize::new(batch_size).map(Rule::from);
        self
    }

    /// Sets the rule by which samples share a batch.
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        self.rule = Ok(rule.into());
        self
    }

    /// Sets what each epoch puts in a random order of its own: samples (`true`), nothing (`false`), or
    /// [`Shuffle::Runs`]. Default: nothing.
    pub fn shuffle(mut self, shuffle: impl Into<Shuffle>) -> Self {
        self.shuffle = shuffle.into();
        self
    }

    /// Sets the number that random orders depend on, besides the epoch. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Leaves out samples that do not fill a batch, and batches that do not fill a step. Default: keep every sample.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets what happens to batches that do not fill a step, unless they are dropped. Default: [`Uneven::Pad`].
    pub fn uneven(mut self, uneven: Uneven) -> Self {
        self.uneven = uneven;
        self
    }

    /// The rule by which samples share a batch.
    ///
    /// # Errors
    /// [`Error::BatchSize`].
    pub(crate) fn chosen_rule(&self) -> Result<Rule> {
        self.rule.clone()
    }

    /// Sets the sizes of the samples, by which rules sort, count and budget. Default: every sample counts as one
    /// element.
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Puts batches of similar cost into the same step, so that no rank waits for another. Default: off.
    pub fn balance(mut self, balance: bool) -> Self {
        self.balance = balance;
        self
    }

    /// Puts the largest batch first, so that an out-of-memory error shows up in the first step. Default: off.
    pub fn largest_first(mut self, largest_first: bool) -> Self {
        self.largest_first = largest_first;
        self
    }

    /// Concatenates samples without padding, whatever the rule, so that budgets count real elements. Default: off.
    pub fn concatenated(mut self, concatenated: bool) -> Self {
        self.concatenated = concatenated;
        self
    }

    /// Sets a name for what the samples are made of, for data whose number of samples and sizes do not identify it. It
    /// is part of the fingerprint.
    pub fn content(mut self, content: String) -> Self {
        self.content = Some(content);
        self
    }

    /// Sets the number of elements of a stream that are in no sample, which [`stats`](Plan::stats) repeats. Default: 0.
    pub fn tail(mut self, tail: u64) -> Self {
        self.tail = tail;
        self
    }

    /// Shuffles samples within shards of `shard_size` neighbours as stored, and the shards among each other. The order
    /// then needs one shard at a time, for data that is larger than the memory of a device, or read from disk.
    ///
    /// `shard_size` has to be a multiple of the batch size, if batches have one. For other rules, a pool ends with its
    /// shard. Without [`shuffle`](Self::shuffle), shards come as stored. Default: all samples are shuffled together.
    pub fn shard_size(mut self, shard_size: impl Into<Option<u64>>) -> Self {
        self.shard_size = shard_size.into();
        self
    }

    /// Sets the lengths that batches are padded to, and so the sizes that rules sort, count and budget by. Default: the
    /// length of the longest sample of the batch, as the rule rounds it up.
    pub fn pad_to(mut self, pad_to: impl Into<Option<PadTo>>) -> Self {
        self.pad_to = pad_to.into();
        self
    }

    /// Sets the labels of samples that losses do not ignore, for [`Step::labels`](super::Step::labels). It changes neither
    /// the plan nor its fingerprint. Default: labels are not known.
    pub fn labels(mut self, labels: impl Into<Labels>) -> Self {
        self.labels = Some(labels.into());
        self
    }

    /// Draws samples with replacement, as often as their weights say, instead of every sample once. An epoch draws as many
    /// as there are samples, or [`num_samples`](Self::num_samples). They come in random order, so this needs
    /// [`shuffle`](Self::shuffle). Weights may change between epochs, and are no part of the fingerprint.
    ///
    /// A sample is expected exactly as often as its weight says, and comes less than twice more or fewer. To find the
    /// sample at a position takes O(log samples).
    pub fn weights(mut self, weights: impl Into<Option<Weights>>) -> Self {
        self.weights = weights.into();
        self
    }

    /// Sets the number of samples that an epoch draws. Without weights, each epoch goes on where the one before it
    /// stopped, through permutations of all samples: none comes again before all have come. Default: that of the samples.
    pub fn num_samples(mut self, num_samples: impl Into<Option<u64>>) -> Self {
        self.num_samples = num_samples.into();
        self
    }

    /// Draws samples from several sources by weight, each in passes of its own.
    pub fn mix(mut self, mix: impl Into<Option<Mix>>) -> Self {
        self.mix = mix.into();
        self
    }

    /// Leaves some samples without weight: each keeps its place in its batch, and so does every other sample. The place
    /// holds zeros (labels to ignore), an `index` of -1 and a `weight` of 0, and counts in no [`Step`](super::Step).
    ///
    /// The list may change between two steps: a run that is resumed by a plan with another list follows this one
    /// from there on, and its state holds both. Bans are no part of the fingerprint, but a state that has some goes on in
    /// no plan that has none: an empty list lifts them. Default: `None`.
    pub fn ban(mut self, samples: impl Into<Option<Vec<u64>>>) -> Self {
        self.ban = samples.into();
        self
    }

    /// Puts samples of one key into each batch, and batches of one key into each step: for batches of one source or class. The
    /// rule cuts the samples of each key by themselves, so that at most one batch of a key is short (one of each pool, for
    /// rules that sort).
    ///
    /// With several ranks, a step that the batches of its key do not fill is left out with [`drop_last`](Self::drop_last);
    /// otherwise batches of its key come again, or fill up without weight: see [`uneven`](Self::uneven), which may not be
    /// [`Uneven::Short`]. That is less than one step for each key.
    pub fn homogeneous_by(mut self, keys: impl Into<Option<Keys>>) -> Self {
        self.homogeneous_by = keys.into();
        self
    }

    /// Puts no two samples of one key into a batch, for losses whose negatives are the other samples of the batch. Needs
    /// [`FixedSize`] and [`shuffle`](Self::shuffle).
    pub fn distinct_by(mut self, keys: impl Into<Option<Keys>>) -> Self {
        self.distinct_by = keys.into();
        self
    }

    /// Returns true if an epoch is not every sample once.
    pub(crate) fn draws_otherwise(&self) -> bool {
        self.num_samples.is_some() || self.mix.is_some() || self.weights.is_some()
    }

    /// The option that says something of each sample by its number, if there is one.
    pub(crate) fn names_samples(&self) -> Option<&'static str> {
        match self {
            Self { weights: Some(_), .. } => Some("weights of samples"),
            Self { mix: Some(mix), .. } if mix.is_balanced() => Some("classes of samples"),
            _ if self.has_keys_within_sources() => Some("keys of samples"),
            _ => None,
        }
    }

    /// Returns true if samples of one source have different keys.
    fn has_keys_within_sources(&self) -> bool {
        let Some(keys) = self.homogeneous_by.as_ref().or(self.distinct_by.as_ref()) else { return false };
        let counts = self.mix.as_ref().map_or_else(|| vec![self.samples], Mix::counts);
        let mut left = keys.as_slice();
        counts.into_iter().any(|count| {
            let (source, others) =
                left.split_at(usize::try_from(count).map_or(left.len(), |count| count.min(left.len())));
            left = others;
            source.windows(2).any(|pair| pair[0] != pair[1])
        })
    }

    /// Replaces the number of samples.
    pub(crate) fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// The number of samples of all ranks at a step, if all batches have as many.
    pub(crate) fn samples_in_step(&self) -> Option<u64> {
        let rule = self.rule.as_ref().ok()?;
        let batch_size = rule.batch_size().filter(|_| !rule.sorts())?;
        batch_size.checked_mul(u64::from(self.world_size))
    }

    /// The choice of what is shuffled.
    pub(crate) fn shuffled(&self) -> Shuffle {
        self.shuffle
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
    /// [`Error::NoSamples`] and [`Error::TooManySamples`]; [`Error::BatchSize`], [`Error::World`],
    /// [`Error::NotPositive`] and [`Error::ShardSize`]; [`Error::NoSizes`], [`Error::SizesLength`],
    /// [`Error::RunsOfSizes`], [`Error::PadTo`], [`Error::TooLong`], [`Error::Oversize`], [`Error::Dimensions`] and [`Error::PoolTooLarge`];
    /// [`Error::LabelCountsLength`], [`Error::LabelCountsWhole`] and [`Error::LabelCountsPiece`]; and
    /// [`Error::NothingLeft`] or [`Error::AllDropped`] if no step would be left.
    /// [`Error::SampleRange`] if a sample that is banned is not there; [`Error::KeysLength`], [`Error::Grouping`] and
    /// [`Error::TooFrequent`]. [`Error::Memory`] if there is too little to cut a pool.
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
        let mut recipe = Recipe {
            samples: self.samples,
            rule,
            shuffle: self.shuffle,
            seed: self.seed,
            drop_last: self.drop_last,
            uneven: self.uneven,
            // Samples that all count the same are balanced as they are, and no batch of them has to come first.
            balance: self.balance && self.sizes.is_some(),
            largest_first: self.largest_first && self.sizes.is_some(),
            concatenated: self.concatenated,
            content: self.content,
            tail: self.tail,
            shard_size: self.shard_size,
            // A run lies in one shard.
            moves_runs: self.shuffle == Shuffle::Runs && self.shard_size.is_none(),
            sizes: self.sizes,
            pad_to: self.pad_to,
            counted: None,
            in_pool: 1,
            labels: None,
            num_samples: self.num_samples,
            mix: self.mix,
            weights: self.weights,
            grouping: grouping(self.homogeneous_by, self.distinct_by)?,
            bans: self.ban.map(Bans::new).unwrap_or_default(),
        };
        check_draws(&recipe)?;
        check_grouping(&recipe)?;
        check_bans(&recipe)?;
        check_lists(&recipe)?;
        check_shards(&recipe)?;
        recipe.counted = counted(&recipe)?;
        let draws = recipe.draws(self.epoch).len();
        if draws == 0 || draws > LIMIT {
            return Err(Error::TooManySamples { found: draws, limit: LIMIT });
        }
        recipe.in_pool = recipe.in_pool_of(&recipe.rule, recipe.pooled(draws));
        check_sizes(&recipe, draws)?;
        let known = |labels| {
            SampleLabels::new(labels, recipe.samples, recipe.sizes.as_ref(), &recipe.rule, recipe.most())
        };
        recipe.labels = self.labels.map(known).transpose()?;
        let plan = Plan::new(Arc::new(Epoch::new(Arc::new(recipe), self.epoch)), self.world_size, Vec::new());
        plan.require_memory()?;
        plan.require_steps()?;
        Ok(plan)
    }
}

/// The option by which an epoch is not every sample once.
fn drawn_by(recipe: &Recipe) -> Option<&'static str> {
    match recipe {
        Recipe { mix: Some(mix), .. } if mix.is_balanced() => Some("balanced_by"),
        Recipe { mix: Some(_), .. } => Some("a mixture"),
        Recipe { weights: Some(_), .. } => Some("weights"),
        Recipe { num_samples: Some(_), .. } => Some("num_samples"),
        _ => None,
    }
}

/// Checks that what is drawn is what there is, and that nothing else decides it.
fn check_draws(recipe: &Recipe) -> Result<()> {
    let Some(draws) = drawn_by(recipe) else { return Ok(()) };
    let refused = |option, reason| Err(Error::Draws { draws, option, reason });
    if recipe.num_samples == Some(0) {
        return Err(Error::NotPositive { name: "num_samples" });
    }
    let count = recipe.weights.as_ref().map(Weights::len).or_else(|| recipe.mix.as_ref().map(Mix::samples));
    if let Some(found) = count.filter(|&found| found != recipe.samples) {
        let expected = recipe.samples;
        let reason =
            format!("weights are those of {found} samples, and there are {expected}; expected as many");
        return Err(Error::Weights { reason });
    }
    if let Some(mix) = &recipe.mix {
        mix.check_length()?;
    }
    match recipe {
        Recipe { mix: Some(_), weights: Some(_), .. } => {
            refused("weights", "samples of sources come in passes; expected weights of sources alone")
        }
        Recipe { mix: Some(mix), num_samples: Some(_), .. } if mix.is_measured() => {
            refused("num_samples", "shares are those of tokens or labels; expected turns by samples")
        }
        Recipe { weights: Some(_), shuffle: Shuffle::Nothing, .. } => {
            refused("stored order", "samples are drawn at random; expected them to be shuffled")
        }
        Recipe { shuffle: Shuffle::Runs, .. } => refused(
            "an order of runs",
            "batches are no runs of neighbours; expected to shuffle samples, or nothing",
        ),
        Recipe { shard_size: Some(_), .. } => {
            refused("shard_size", "samples are drawn from all of the data; leave it out")
        }
        Recipe { rule: Rule::Listed(_), .. } => {
            refused("a list of batches", "the list says which samples come; expected another rule")
        }
        _ => Ok(()),
    }
}

/// The samples that may share a batch.
fn grouping(homogeneous_by: Option<Keys>, distinct_by: Option<Keys>) -> Result<Option<Grouping>> {
    match (homogeneous_by, distinct_by) {
        (Some(_), Some(_)) => Err(Error::Grouping {
            grouping: "homogeneous_by",
            option: "distinct_by",
            reason: "a batch holds one key or different ones; expected one of them",
        }),
        (Some(keys), None) => Ok(Some(Grouping::Homogeneous(keys))),
        (None, keys) => Ok(keys.map(Grouping::Distinct)),
    }
}

/// Checks that each sample has a key, and that nothing else decides which samples share a batch.
fn check_grouping(recipe: &Recipe) -> Result<()> {
    let Some(grouping) = &recipe.grouping else { return Ok(()) };
    let refused = |option, reason| Err(Error::Grouping { grouping: grouping.name(), option, reason });
    let (found, expected) = (grouping.keys().as_slice().len() as u64, recipe.samples);
    if found != expected {
        return Err(Error::KeysLength { grouping: grouping.name(), found, expected });
    }
    match recipe {
        Recipe { shuffle: Shuffle::Runs, .. } => refused(
            "an order of runs",
            "keys decide which samples share a batch; expected to shuffle samples",
        ),
        Recipe { shard_size: Some(_), .. } => {
            refused("shard_size", "samples of one key lie in several shards; leave it out")
        }
        Recipe { balance: true, .. } => {
            refused("balance", "batches of a step are chosen by their keys; leave one of them out")
        }
        Recipe { largest_first: true, .. } => {
            refused("largest_first", "batches of a step are chosen by their keys; leave one of them out")
        }
        Recipe { rule: Rule::Listed(_), .. } => {
            refused("a list of batches", "the list says which samples share one; expected another rule")
        }
        Recipe { uneven: Uneven::Short, drop_last: false, .. } if grouping.is_homogeneous() => refused(
            "uneven short",
            "the steps that batches of one key do not fill come anywhere; expected uneven pad or mask, or drop_last",
        ),
        Recipe { mix: Some(mix), .. } if grouping.is_homogeneous() && mix.is_balanced() => {
            refused("balanced_by", "a batch of one key may lack samples of a class; leave one of them out")
        }
        _ if grouping.is_homogeneous() => Ok(()),
        Recipe { shuffle: Shuffle::Nothing, .. } => {
            refused("stored order", "samples move to other batches; expected them to be shuffled")
        }
        recipe if recipe.draws_otherwise() => refused(
            drawn_by(recipe).unwrap_or("a choice of samples"),
            "keys may then be too frequent in some epoch; expected every sample once",
        ),
        Recipe { rule: Rule::FixedSize(rule), .. } => {
            grouping.check(rule.batch_size(), recipe.kept(recipe.samples))
        }
        _ => refused(
            "a rule that sorts by size",
            "samples move to other batches; expected batches of a fixed size",
        ),
    }
}

/// Checks that what is banned is there.
fn check_bans(recipe: &Recipe) -> Result<()> {
    let samples = recipe.samples;
    match recipe.bans.all().last() {
        Some(&found) if found >= samples => Err(Error::SampleRange { found, samples }),
        _ => Ok(()),
    }
}

/// Checks that lists name samples that there are, and that nothing else decides their order.
fn check_lists(recipe: &Recipe) -> Result<()> {
    let deciding = [
        ("shuffle", recipe.shuffle != Shuffle::Nothing),
        ("shard_size", recipe.shard_size.is_some()),
        ("balance", recipe.balance),
        ("largest_first", recipe.largest_first),
    ];
    match (recipe.rule.listed(), deciding.iter().find(|(_, decides)| *decides)) {
        (Some(_), Some(&(name, _))) => Err(Error::OrderOfLists { name }),
        _ => recipe.rule.check_lists(recipe.samples),
    }
}

/// Checks that no batch lies in two shards: batches of equal size have to fill a shard.
fn check_shards(recipe: &Recipe) -> Result<()> {
    match (recipe.shard_size, recipe.rule.batch_size()) {
        (Some(0), _) => Err(Error::NotPositive { name: "shard_size" }),
        (Some(found), Some(batch_size)) if !found.is_multiple_of(batch_size) => {
            Err(Error::ShardSize { found, batch_size })
        }
        _ => Ok(()),
    }
}

/// The sizes that the rule is given, if batches are padded to given lengths.
fn counted(recipe: &Recipe) -> Result<Option<Sizes>> {
    let Some(pad_to) = &recipe.pad_to else { return Ok(None) };
    let refused = |reason: String| Error::PadTo { reason };
    let Some(sizes) = &recipe.sizes else {
        return Err(refused(
            "samples have no sizes here; give sizes if they differ in size, or leave it out".to_owned(),
        ));
    };
    let (dimensions, multiple_of) = (sizes.dimensions(), recipe.rule.multiple_of());
    if dimensions > 1 {
        return Err(refused(format!(
            "these samples differ in {dimensions} dimensions; expected one, or a slot for each field"
        )));
    }
    if recipe.packs() {
        return Err(refused(
            "these batches are concatenations, which have no padding; leave it out".to_owned(),
        ));
    }
    if recipe.rule.limit().is_some() {
        let rule = recipe.rule.name();
        return Err(refused(format!(
            "{rule} truncates samples itself; expected oversize \"error\" beside pad_to"
        )));
    }
    if let Some(length) = pad_to.lengths().iter().find(|length| !length.is_multiple_of(multiple_of)) {
        return Err(refused(format!(
            "{length} is no multiple of multiple_of ({multiple_of}); leave one of them out"
        )));
    }
    pad_to.sizes(sizes, recipe.rule.counts_real()).map(Some)
}

fn check_sizes(recipe: &Recipe, draws: u64) -> Result<()> {
    let limit = u64::from(u32::MAX);
    if recipe.grouping.is_some() && draws > limit {
        return Err(Error::PoolTooLarge { found: draws, limit });
    }
    if recipe.shuffle == Shuffle::Runs && recipe.uniform().is_none() {
        return Err(Error::RunsOfSizes { rule: recipe.rule.name() });
    }
    match &recipe.sizes {
        None if recipe.rule.listed().is_some() => Ok(()),
        None if recipe.rule.batch_size().is_none() || recipe.rule.sorts() => {
            Err(Error::NoSizes { rule: recipe.rule.name() })
        }
        None => Ok(()),
        Some(sizes) if sizes.len() != recipe.samples => {
            Err(Error::SizesLength { found: sizes.len(), samples: recipe.samples })
        }
        Some(sizes) => recipe.rule.check(recipe.counted().unwrap_or(sizes), recipe.in_pool.min(draws)),
    }
}
