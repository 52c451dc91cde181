//! The options of a plan, as one value.
//!
//! [`PlanOptions`] decides what an epoch draws, in which order, and how samples share batches and batches share steps.
//! A [`PlanBuilder`](super::PlanBuilder) and a [`LoaderBuilder`](crate::loader::LoaderBuilder) fill it, a
//! [`Plan`](super::Plan) holds it, and the fingerprint of a plan is its hash. An option is documented here, at its
//! field. Which options exclude each other is a table in `conflicts.rs`.

use serde::{Serialize, Serializer};

use super::bans::Banned;
use crate::batching::{Cost, FixedSize, Keys, Labels, PadTo, Rule, Sizes, Surplus};
use crate::draws::{Mix, Weights};
use crate::order::{Chunks, Shuffle};
use crate::ranks::{BalanceWithin, Uneven};

/// The options of a [`Plan`](super::Plan). The default is every sample once, in stored order, 64 to a batch.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::plan::PlanOptions;
///
/// let mut options = PlanOptions::default();
/// options.seed = 7;
/// options.shuffle = true.into();
/// let plan = Plan::builder(1000).options(options).batch_size(8).build()?;
/// assert_eq!(plan.options().seed, 7);
/// # Ok::<(), batchloom::Error>(())
/// ```
// The names and the order of these fields are hashed, so they are part of the state format. An option at its default is
// left out of the hash if it was added after the first release.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct PlanOptions {
    /// The rule that decides which samples share a batch. Default: [`FixedSize`] with 64 samples.
    #[serde(serialize_with = "Rule::serialize_parts")]
    pub rule: Rule,
    /// The things that each epoch puts in a new random order: samples (`true`), nothing (`false`), or
    /// [`Shuffle::Runs`]. Default: nothing.
    pub shuffle: Shuffle,
    /// The number that random orders depend on, besides the epoch. Default: 0.
    pub seed: u64,
    /// Leaves out samples that do not fill a batch, and batches that do not fill a step. Default: keep every sample.
    pub drop_last: bool,
    /// The treatment of batches that do not fill a step, unless they are dropped. Default: [`Uneven::Pad`].
    pub uneven: Uneven,
    /// The sizes of the samples, for rules to sort, count and budget by. Default: every sample counts as one element.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "digest")]
    pub sizes: Option<Sizes>,
    /// Puts batches of similar [cost](Self::cost) into the same step, so that no rank waits for another. Batches of many
    /// pools are compared: of 64, and of 64 more for every 512 ranks that an epoch begins with (never of two shards).
    /// [`Packing`](crate::batching::Packing) makes batches of as many elements that cost the same, whatever the price of
    /// a pair of elements is; neither the cost nor the world decides which samples share a batch. Default: off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub balance: bool,
    /// The cost of a batch, which [`balance`](Self::balance) compares, and by which [`stats`](super::Plan::stats) counts
    /// the time that ranks wait unless it is given another one. It is part of the fingerprint with `balance` alone. Default: [`CostModel::default`]
    /// with `balance`, and otherwise the elements of the batch, padding counted.
    ///
    /// [`CostModel::default`]: crate::batching::CostModel
    #[serde(skip_serializing_if = "is_elements")]
    pub cost: Cost,
    /// Puts the largest batch first, so that an out-of-memory error occurs in the first step. Default: off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub largest_first: bool,
    /// Concatenates samples without padding, whatever the rule, so that budgets count real elements. Default: off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub concatenated: bool,
    /// A name for the contents of the samples, for data that its number of samples and their sizes do not identify. It
    /// is part of the fingerprint. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The number of elements of a stream that are in no sample, which [`stats`](super::Plan::stats) repeats. Default:
    /// 0.
    #[serde(skip)]
    pub tail: u64,
    /// Shuffles samples within shards of `shard_size` neighbours as stored, and the shards among each other. The order
    /// then needs one shard at a time, for data that is larger than the memory of a device, or read from disk.
    ///
    /// `shard_size` has to be a multiple of the batch size, if batches have one. For other rules, a pool ends with its
    /// shard. Without [`shuffle`](Self::shuffle), shards are read as stored. Default: all samples are shuffled
    /// together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_size: Option<u64>,
    /// The lengths that batches are padded to, and so the sizes that rules sort, count and budget by. Default: the
    /// length of the longest sample of the batch, as the rule rounds it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_to: Option<PadTo>,
    /// The labels of samples that losses do not ignore, for [`Step::labels`](super::Step::labels). They change neither
    /// the plan nor its fingerprint. Default: labels are not known.
    #[serde(skip)]
    pub labels: Option<Labels>,
    /// The number of samples that an epoch draws. Without weights, each epoch continues where the epoch before it
    /// stopped, through permutations of all samples: every sample is used once before any repeats. Default: the number
    /// of samples of the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_samples: Option<u64>,
    /// Draws samples from several sources by weight, each in separate passes. Sources that are read chunk by chunk have a
    /// window over their own chunks ([`Mix::in_chunks`]), and ranks then take parts of an epoch, as with
    /// [`chunks`](Self::chunks). Default: one source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Draws samples with replacement, in proportion to their weights, instead of every sample once. An epoch draws as
    /// many as there are samples, or [`num_samples`](Self::num_samples). The order is random, so this needs
    /// [`shuffle`](Self::shuffle). Weights may change between epochs, and are no part of the fingerprint.
    ///
    /// The expected number of draws of a sample is exactly its share, and the actual number differs by less than 2. To
    /// find the sample at a position takes O(log samples). Default: every sample once.
    #[serde(skip)]
    pub weights: Option<Weights>,
    /// Leaves some samples without weight: each keeps its place in its batch, and so does every other sample. The place
    /// holds zeros (labels to ignore), an `index` of -1 and a `weight` of 0, and counts in no [`Step`](super::Step).
    ///
    /// The list may change between two steps: a run that is resumed by a plan with another list follows this list from
    /// there on, and its state holds both. Bans are no part of the fingerprint, but a state with bans is refused by a
    /// plan without a list: an empty list lifts them. Default: `None`.
    #[serde(skip)]
    pub ban: Option<Banned>,
    /// Puts samples of one key into each batch, and batches of one key into each step: for batches of one source or
    /// class. The rule cuts the samples of each key by themselves, so that at most one batch of a key is short (one of
    /// each pool, for rules that sort).
    ///
    /// With several ranks, a step that the batches of its key do not fill is left out with
    /// [`drop_last`](Self::drop_last); otherwise batches of its key are repeated, or fill up without weight: see
    /// [`uneven`](Self::uneven), which may not be [`Uneven::Short`]. That is less than one step for each key. Default:
    /// batches hold any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homogeneous_by: Option<Keys>,
    /// Puts no two samples that share a key into a batch, for losses with the other samples of the batch as negatives.
    /// Needs [`FixedSize`] and [`shuffle`](Self::shuffle).
    ///
    /// With one key a sample, batches are made wherever they can be. With [several](Keys::several), they are made where
    /// no order can fail: where `(batches - most) * batch_size > around`, for full batches, the `most` samples that one
    /// sample shares keys with, and `around`, the other samples of the `(batch_size - 1) * columns` most frequent keys.
    /// [`surplus`](Self::surplus) decides otherwise. Default: batches hold any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_by: Option<Keys>,
    /// Fills batches with this many samples of each of some classes, for contrastive losses: `batch_size / per_class`
    /// classes, of [`Mix::balanced`], in turns. Needs [`FixedSize`] with a multiple of it.
    ///
    /// The classes of a batch differ where there are enough; otherwise, turns of a batch are divided among them evenly,
    /// to one. Every class has a turn before any has another. A class gives all its samples before it repeats one, and
    /// the samples of a turn differ where the class has enough; otherwise, a turn repeats them evenly, to one. Passes
    /// over classes and samples continue from epoch to epoch. So an epoch has whole batches: [`num_samples`] is a
    /// multiple of the batch size, and by default the number of samples, rounded up to one. Default: samples take
    /// turns.
    ///
    /// [`num_samples`]: Self::num_samples
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_class: Option<u64>,
    /// The chunks that samples are stored in, for data that is read chunk by chunk. Samples are mixed in a window over
    /// [`chunks_open`](Self::chunks_open) of them, and read in stored order without [`shuffle`](Self::shuffle). A pool
    /// of a rule ends where a slot of the [window](crate::order::ChunkWindow) does (for batches of a fixed size, at the
    /// last whole batch).
    ///
    /// Each rank takes one contiguous part of the batches of an epoch, so that it reads chunks that no other rank
    /// reads, but for those at the borders of its part. A rank that lacks a batch at the last step takes its own last
    /// one again. Default: samples are in memory, or can be read one by one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "digest_chunks")]
    pub chunks: Option<Chunks>,
    /// The number of chunks whose samples are mixed at a time, if there are [`chunks`](Self::chunks) and samples are
    /// shuffled: about `1 / chunks_open` of the pairs of samples in a batch are of one chunk. Default: 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks_open: Option<u64>,
    /// The number of steps of an update of the optimizer, which accumulates their gradients, for
    /// [`update`](super::Plan::update). It is part of the fingerprint where batches are [balanced within](Self::balance_within) updates. Default:
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<u64>,
    /// The batches among which those of a step are chosen, with [`balance`](Self::balance): of a window of pools, or of
    /// an update, which then holds random samples and is even at each step, or over its steps. Default:
    /// [`BalanceWithin::Window`].
    #[serde(skip_serializing_if = "BalanceWithin::is_window")]
    pub balance_within: BalanceWithin,
    /// The treatment of samples that no batch has room for, with [`distinct_by`](Self::distinct_by), because their keys
    /// are too frequent. [`Surplus::Drop`] leaves them out, other ones in each epoch, and [`stats`](super::Plan::stats)
    /// counts them; the number of batches then follows from the samples of the epoch. With one key a sample, as few as
    /// possible are left out. Default: an error.
    #[serde(skip_serializing_if = "Surplus::is_error")]
    pub surplus: Surplus,
}

impl Default for Rule {
    fn default() -> Self {
        FixedSize::default().into()
    }
}

/// Setters of [`PlanOptions`] for a builder that has `options_mut`: one for each option in the list.
macro_rules! option_setters {
    ($builder:ty => $($name:ident: $value:ty),+ $(,)?) => {
        impl $builder {
            $(
                #[doc = concat!("Sets [`PlanOptions::", stringify!($name), "`](crate::plan::PlanOptions::", stringify!($name), ").")]
                #[expect(clippy::allow_attributes, reason = "some of these types convert into themselves")]
                #[allow(clippy::useless_conversion, reason = "one line for options of any type")]
                pub fn $name(mut self, $name: $value) -> Self {
                    self.options_mut().$name = $name.into();
                    self
                }
            )+
        }
    };
    // The options of a plan whose samples a loader's dataset describes.
    ($builder:ty) => {
        $crate::plan::options::option_setters! {
            $builder =>
            shuffle: impl Into<$crate::order::Shuffle>,
            seed: u64,
            drop_last: bool,
            uneven: $crate::ranks::Uneven,
            balance: bool,
            cost: impl Into<$crate::batching::Cost>,
            largest_first: bool,
            shard_size: impl Into<Option<u64>>,
            pad_to: impl Into<Option<$crate::batching::PadTo>>,
            num_samples: impl Into<Option<u64>>,
            mix: impl Into<Option<$crate::draws::Mix>>,
            weights: impl Into<Option<$crate::draws::Weights>>,
            homogeneous_by: impl Into<Option<$crate::batching::Keys>>,
            distinct_by: impl Into<Option<$crate::batching::Keys>>,
            per_class: impl Into<Option<u64>>,
            chunks_open: impl Into<Option<u64>>,
            accumulate: impl Into<Option<u64>>,
            balance_within: $crate::ranks::BalanceWithin,
            surplus: $crate::batching::Surplus,
        }

        impl $builder {
            /// Replaces all options of the plan.
            pub fn options(mut self, options: $crate::plan::PlanOptions) -> Self {
                *self.options_mut() = options;
                self
            }

            /// Sets [`PlanOptions::ban`](crate::plan::PlanOptions::ban).
            pub fn ban(mut self, samples: impl Into<Option<Vec<u64>>>) -> Self {
                self.options_mut().ban = samples.into().map($crate::plan::Banned::new);
                self
            }
        }
    };
}
pub(crate) use option_setters;

fn is_elements(cost: &Cost) -> bool {
    *cost == Cost::Elements
}

fn digest<S: Serializer>(sizes: &Option<Sizes>, serializer: S) -> Result<S::Ok, S::Error> {
    sizes.as_ref().map(Sizes::digest).serialize(serializer)
}

fn digest_chunks<S: Serializer>(chunks: &Option<Chunks>, serializer: S) -> Result<S::Ok, S::Error> {
    chunks.as_ref().map(Chunks::digest).serialize(serializer)
}
