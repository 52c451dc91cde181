//! `Packing`: bins of limited capacity, filled without padding.
//!
//! Best fit: each sample is put into the fullest bin that still has room for it. PoolBounds samples are taken in the
//! random order of the epoch, after all samples above a quarter of a bin, the longest of them first: small samples then
//! fill the gaps, and bins are new in every epoch. Otherwise samples are taken from the longest to the shortest. If full
//! bins are to cost the same, large samples are put into bins by their squares: see `even_bins.rs`. Bins with several
//! budgets are filled one after the other: see `vector_bins.rs`.
//!
//! A bin is a batch, or a row of one (`rows.rs`). What a row has no room for may be continued in later ones: `rests.rs`.

use serde::{Serialize, Serializer};

use super::bins::Bins;
use super::budget_parts::BudgetParts;
use super::budgets::MaxTokens;
use super::error::BatchingCause;
use super::even_bins::{self, fill_evenly};
use super::pool::{MOST, PoolBounds, samples_in_batch};
use super::pool_rule::PoolRule;
use super::rests::{FilledRows, Part, RowLimits, cut_full_rows, fill_rows};
use super::rows::{default_samples, group_rows};
use super::spelling::{Given, Spelled, Spelling};
use super::vector_bins::fill_bins;
use super::{
    Budgeted, Budgets, Pool, PoolBatches, PoolBudgets, PoolSizes, Rests, RowShape, Sizes, Sorted, positive,
    to_index,
};
use crate::Result;
use crate::named::named;

/// The largest capacity of a bin: boundaries are 32-bit numbers, and the tree takes four bytes for each element.
const MOST_TOKENS: u32 = 1 << 28;

/// The largest number of elements in the rows of a batch, so that their places are 32-bit numbers too.
const MOST_IN_ROWS: u64 = 1 << 31;

/// The number of batches that a pool makes at least of rows of one shape: the last one of a pool may lack rows.
const BATCHES_OF_ROWS: u64 = 256;
const MOST_OF_ROWS: u64 = 1 << 20;

/// Half the batches that a pool makes at least where chunks limit it: bins of few samples are less full.
const LEAST_BINS: u64 = 4;

/// Samples above this part of a bin are put into bins first: they need a bin that has much room.
const LARGE: u32 = 4;

/// The treatment of a sample that is larger than a bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PackedOversize {
    /// No plan is made, and the error names the sample.
    #[default]
    Error,
    /// The sample is left out, and counted.
    Drop,
    /// The sample is truncated to the capacity, and the elements that this costs are counted.
    Truncate,
    /// The sample is split into parts that fit, and all of them are delivered.
    Split,
}

named!(PackedOversize, "oversize", {
    "error" => Error,
    "drop" => Drop,
    "truncate" => Truncate,
    "split" => Split,
});

/// The order in which samples are put into bins, when they are shuffled. Without shuffling, the longest are first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PackingOrder {
    /// Samples above a quarter of the bin, the longest first, and then the rest in the random order of the epoch. It
    /// fills bins nearly as well, and bins are new in every epoch.
    #[default]
    Random,
    /// The longest first: the fewest bins. Samples of one pool share bins with much the same samples in every epoch.
    Decreasing,
}

impl PackingOrder {
    fn is_decreasing(&self) -> bool {
        *self == Self::Decreasing
    }
}

named!(PackingOrder, "order", {
    "random" => Random,
    "decreasing" => Decreasing,
});

/// Batches that are concatenations of samples, as full as they can be.
#[derive(Debug, Clone)]
pub struct Packing {
    max_tokens: MaxTokens,
    max_samples: Option<u32>,
    oversize: Option<PackedOversize>,
    pool: Pool,
    order: PackingOrder,
    rows: Option<u32>,
    rests: Rests,
}

/// The options as fingerprints have them. Rules with the same facts are equal.
#[derive(PartialEq, Serialize)]
struct Facts<'a> {
    max_tokens: &'a MaxTokens,
    max_samples: Option<u32>,
    /// The policy; fingerprints keep the name that it had in their first version.
    overflow: PackedOversize,
    pool: Pool,
    /// The order; fingerprints keep the form of their first version, which knew one.
    #[serde(skip_serializing_if = "PackingOrder::is_decreasing")]
    order: PackingOrder,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<RowShape>,
    #[serde(skip_serializing_if = "Rests::is_none")]
    rests: Rests,
}

impl Serialize for Packing {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.facts().serialize(serializer)
    }
}

impl PartialEq for Packing {
    fn eq(&self, other: &Self) -> bool {
        self.facts() == other.facts()
    }
}

impl Packing {
    /// Bins of at most `max_tokens` elements.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0, or above 2^28.
    pub fn new(max_tokens: u64) -> Result<Self> {
        Self::limited(MaxTokens::one(max_tokens)?)
    }

    /// Bins that exceed none of several budgets, which count the sum of the sizes of each name.
    ///
    /// What is truncated or split of a sample are its elements: the other sizes of a truncated one stay, and count for
    /// each part of a split one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if one is above 2^28.
    pub fn within(budgets: Budgets) -> Result<Self> {
        Self::limited(MaxTokens::Several(budgets))
    }

    fn limited(max_tokens: MaxTokens) -> Result<Self> {
        let (found, limit) = (max_tokens.largest(), MOST_TOKENS);
        if found > u64::from(limit) {
            return Err(BatchingCause::BinTooLarge { found, limit }.into());
        }
        let (order, rests) = (PackingOrder::Random, Rests::None);
        Ok(Self { max_tokens, max_samples: None, oversize: None, pool: Pool::Auto, order, rows: None, rests })
    }

    /// Makes batches of `rows` bins each, as rows of one shape: see [`RowShape`]. Default: a batch is a bin.
    ///
    /// A row has places for [`max_samples`](Self::max_samples) samples, or else for a sixteenth of its elements: at least
    /// for 64, but for no more than it has elements, whatever is set. Where the bins of a pool run out, the last rows of its last batch are
    /// empty.
    ///
    /// ```
    /// use batchloom::batching::{Packing, RowShape, Rule};
    ///
    /// let rule = Rule::from(Packing::new(2048)?.rows(8)?);
    /// let shape = rule.row_shape().expect("rows");
    /// assert_eq!((shape.rows, shape.tokens, shape.samples), (8, 2048, 128));
    /// assert_eq!(rule.to_string(), "packing:2048,rows=8");
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0, if a batch has more than 2^31 elements, or if there
    /// are several budgets.
    pub fn rows(self, rows: u32) -> Result<Self> {
        if self.max_tokens.budgets().is_some() {
            return Err(BatchingCause::BudgetsOfRows { option: "rows" }.into());
        }
        let found = u64::from(positive("rows", rows)?) * u64::from(self.capacity());
        match found <= MOST_IN_ROWS {
            true => Ok(Self { rows: Some(rows), ..self }),
            false => Err(BatchingCause::RowsTooLarge {
                rows,
                max_tokens: self.capacity(),
                found,
                limit: MOST_IN_ROWS,
            }
            .into()),
        }
    }

    /// Sets what happens to what a row, or a bin, has no room for. Default: [`Rests::None`].
    ///
    /// With [`Rests::Continue`] pools end where a batch is full, and one batch of an epoch has padding, or one of each shard.
    /// Samples
    /// longer than a row are continued too, unless [`oversize`](Self::oversize) is set. Plans refuse it with several budgets.
    #[must_use]
    pub fn rests(self, rests: Rests) -> Self {
        Self { rests, ..self }
    }

    /// Sets the largest number of samples in a bin. Default: no limit but the budget.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn max_samples(self, max_samples: u32) -> Result<Self> {
        Ok(Self { max_samples: Some(positive("max_samples", max_samples)?), ..self })
    }

    /// Sets what happens to a sample that is larger than a bin. Default: [`PackedOversize::Error`], or
    /// [`PackedOversize::Split`] where [rests](Self::rests) are continued.
    #[must_use]
    pub fn oversize(self, oversize: PackedOversize) -> Self {
        Self { oversize: Some(oversize), ..self }
    }

    fn facts(&self) -> Facts<'_> {
        let &Self { ref max_tokens, max_samples, pool, order, rests, .. } = self;
        let (overflow, rows) = (self.policy(), self.row_shape());
        Facts { max_tokens, max_samples, overflow, pool, order, rows, rests }
    }

    /// The treatment of a sample that is larger than a bin.
    fn policy(&self) -> PackedOversize {
        self.oversize.unwrap_or(match self.rests {
            Rests::None => PackedOversize::Error,
            Rests::Continue => PackedOversize::Split,
        })
    }

    /// The largest number of samples in a bin.
    fn most_samples(&self) -> u32 {
        self.row_shape().map(|shape| shape.samples).or(self.max_samples).unwrap_or(u32::MAX)
    }

    /// Sets the order in which shuffled samples are put into bins. Default: [`PackingOrder::Random`].
    #[must_use]
    pub fn order(self, order: PackingOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the size of a pool, in samples, when they are shuffled. Larger pools fill bins better. Default: 16 384, as
    /// a random order keeps no batch mates together, however large the pool. With [rows](Self::rows), the samples of about
    /// 256 batches if these are more, and at most 2^20.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn pool(self, pool: impl Into<Pool>) -> Result<Self> {
        Ok(Self { pool: pool.into().require_positive()?, ..self })
    }

    /// The largest number of elements in a bin.
    fn capacity(&self) -> u32 {
        match &self.max_tokens {
            MaxTokens::One(max_tokens) => u32::try_from(*max_tokens).unwrap_or(MOST_TOKENS),
            MaxTokens::Several(_) => MOST_TOKENS,
        }
    }

    /// Returns true if what is too large of a sample is cut off, or delivered elsewhere.
    fn cuts(&self) -> bool {
        matches!(self.policy(), PackedOversize::Truncate | PackedOversize::Split)
    }

    /// Packs samples by several budgets. The longest come first in each bin.
    fn cut_by_budgets(&self, pool: PoolSizes<'_>, budgets: PoolBudgets<'_>) -> PoolBatches {
        let decreasing = pool.together.is_none() || self.order == PackingOrder::Decreasing;
        if budgets.each().all(|row| budgets.fits(row)) {
            let bin_of = fill_bins(budgets, self.max_samples, decreasing);
            let (places, ends) = lay_out(&Sorted::new(pool.sizes), &bin_of);
            return PoolBatches { places, ends, ..PoolBatches::default() };
        }
        let policy = self.policy();
        let (splits, drops) = (policy == PackedOversize::Split, policy == PackedOversize::Drop);
        let parts = BudgetParts::cut(pool.sizes, budgets, splits, drops);
        let bin_of = fill_bins(parts.budgets(budgets), self.max_samples, decreasing);
        let (order, ends) = lay_out(&Sorted::new(&parts.lengths), &bin_of);
        parts.lay_out(&order, ends)
    }

    /// Bins of whole samples, but for those that are larger than a bin.
    fn cut_bins(&self, sizes: &[u32], pooled: Pooled) -> PoolBatches {
        let whole = |(places, ends)| PoolBatches { places, ends, ..PoolBatches::default() };
        if sizes.iter().all(|&size| size <= self.capacity()) {
            return whole(self.pack(sizes, pooled));
        }
        match self.policy() {
            PackedOversize::Split => self.cut_parts(sizes, pooled),
            PackedOversize::Drop => whole(self.pack_fitting(sizes, pooled)),
            PackedOversize::Truncate | PackedOversize::Error => {
                let truncated: Vec<u32> = sizes.iter().map(|&size| size.min(self.capacity())).collect();
                whole(self.pack(&truncated, pooled))
            }
        }
    }

    /// Full bins, whose gaps the samples of other bins fill; as rows of batches, if batches have rows.
    fn cut_continued(&self, sizes: &[u32], pooled: Pooled, drop_last: bool) -> PoolBatches {
        let fits = |size: u32| size <= self.capacity() || self.policy() != PackedOversize::Drop;
        let kept = (0..).zip(sizes).filter(|&(_, &size)| fits(size));
        let kept = kept.map(|(place, &size)| (place, self.count_taken(size)));
        let (full, parts) = cut_full_rows(kept, self.capacity());
        let lengths: Vec<u32> = parts.iter().map(|part| part.size).collect();
        let most = self.most_samples();
        // A bin that is not full keeps a place for what fills it.
        let fewer = Self { max_samples: Some(most.saturating_sub(1).max(1)), rows: None, ..self.clone() };
        let (order, ends) = fewer.pack(&lengths, pooled);
        let bins: Vec<Part> = order.iter().map(|&part| parts[to_index(part)]).collect();
        let limits = RowLimits { tokens: self.capacity(), samples: to_index(most) };
        let FilledRows { rows, full } = fill_rows(&full, &bins, &ends, limits);
        let mut batches = group_rows(rows, self.rows.unwrap_or(1), full, pooled.is_shuffled);
        let in_full = to_index(self.rows.unwrap_or(1)).saturating_mul(batches.ends.len());
        if drop_last && full < in_full {
            batches.drop_last();
        }
        batches.starts.fill(0);
        batches.order_parts(0..batches.ends.len());
        if self.rows.is_none() {
            batches.row_ends.clear();
        }
        batches
    }

    /// The number of samples that about 256 batches of rows hold; 0 if batches are no rows.
    fn samples_of_rows(&self, sizes: Option<&Sizes>) -> u64 {
        let Some((shape, sizes)) = self.row_shape().zip(sizes) else { return 0 };
        let tokens = u128::from(shape.elements()) * u128::from(BATCHES_OF_ROWS);
        let samples = (tokens * u128::from(sizes.len())).div_ceil(u128::from(sizes.total().max(1)));
        u64::try_from(samples).unwrap_or(u64::MAX).min(MOST_OF_ROWS)
    }

    /// Splits samples into parts and packs these, as [`pack`](Self::pack) does.
    fn cut_parts(&self, sizes: &[u32], pooled: Pooled) -> PoolBatches {
        let capacity = self.capacity();
        let mut parts = Vec::new();
        for (sample, &size) in (0..).zip(sizes) {
            parts.push((sample, 0_u32, size.min(capacity)));
            let mut start = capacity;
            while start < size {
                parts.push((sample, start, (size - start).min(capacity)));
                start = start.saturating_add(capacity);
            }
        }
        let lengths: Vec<u32> = parts.iter().map(|&(_, _, length)| length).collect();
        let (order, ends) = self.pack(&lengths, pooled);
        let (places, starts) =
            order.iter().map(|&part| parts[to_index(part)]).map(|part| (part.0, part.1)).unzip();
        PoolBatches { places, starts, ends, ..PoolBatches::default() }
    }

    /// The places of those `sizes` that fit a bin, as [`pack`](Self::pack) returns them.
    fn pack_fitting(&self, sizes: &[u32], pooled: Pooled) -> (Vec<u32>, Vec<u32>) {
        let fitting = (0..).zip(sizes).filter(|&(_, &size)| size <= self.capacity());
        let (fitting, sizes): (Vec<u32>, Vec<u32>) = fitting.unzip();
        let (places, ends) = self.pack(&sizes, pooled);
        (places.into_iter().map(|place| fitting[to_index(place)]).collect(), ends)
    }

    /// The places of `sizes`, bin after bin, the longest first in each, and the end of each bin.
    fn pack(&self, sizes: &[u32], pooled: Pooled) -> (Vec<u32>, Vec<u32>) {
        let sorted = Sorted::new(sizes);
        lay_out(&sorted, &self.fill_bins(sizes, &sorted, pooled))
    }

    /// The bin of each sample.
    fn fill_bins(&self, sizes: &[u32], sorted: &Sorted, pooled: Pooled) -> Vec<u32> {
        let (capacity, most) = (self.capacity(), self.most_samples());
        let random = pooled.is_shuffled && self.order == PackingOrder::Random;
        let order = |large: u32| random.then(|| Sorted::above(sizes, capacity / large));
        let of_sample = |order: &Sorted, of: &[u32]| {
            let mut bin_of = vec![0; sizes.len()];
            of.iter().zip(&order.places).for_each(|(&bin, &sample)| bin_of[to_index(sample)] = bin);
            bin_of
        };
        let even_order = pooled.is_even.then(|| order(even_bins::LARGE));
        let even_order = even_order.as_ref().map(|order| order.as_ref().unwrap_or(sorted));
        let even = even_order.and_then(|order| Some((order, fill_evenly(order, capacity, most)?)));
        if let Some((order, bins)) = even.as_ref().filter(|(_, bins)| bins.are_many) {
            return of_sample(order, &bins.of);
        }
        let order = order(LARGE);
        let order = order.as_ref().unwrap_or(sorted);
        let best = Bins::fill(&order.sizes, capacity, most);
        match even.filter(|(_, bins)| bins.count <= best.count_used()) {
            Some((order, bins)) => of_sample(order, &bins.of),
            None => of_sample(order, &best.of),
        }
    }
}

/// The places of sorted samples, bin after bin, the longest first in each, and the end of each bin.
fn lay_out(sorted: &Sorted, bin_of: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut ends = vec![0; bin_of.iter().max().map_or(0, |&bin| to_index(bin) + 1) + 1];
    bin_of.iter().for_each(|&bin| ends[to_index(bin) + 1] += 1);
    (1..ends.len()).for_each(|bin| ends[bin] += ends[bin - 1]);
    let mut places = vec![0; bin_of.len()];
    for &sample in &sorted.places {
        let end = &mut ends[to_index(bin_of[to_index(sample)])];
        places[to_index(*end)] = sample;
        *end += 1;
    }
    ends.pop();
    (places, ends)
}

/// The facts about a pool on which the order of its samples and the choice of their bins depend.
#[derive(Debug, Clone, Copy)]
struct Pooled {
    is_shuffled: bool,
    /// Full bins are to cost the same.
    is_even: bool,
}

impl PoolRule for Packing {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        if let Some(budgets) = pool.budgets {
            return self.cut_by_budgets(pool, budgets);
        }
        let pooled = Pooled { is_shuffled: pool.together.is_some(), is_even: pool.even };
        if self.continues() {
            return self.cut_continued(pool.sizes, pooled, pool.drop_last);
        }
        let bins = self.cut_bins(pool.sizes, pooled);
        match self.rows {
            Some(rows) => {
                let count = bins.ends.len();
                group_rows(bins, rows, count, pooled.is_shuffled)
            }
            None => bins,
        }
    }

    fn samples_in_pool(&self, bounds: PoolBounds, sizes: Option<&Sizes>) -> u64 {
        match self.pool {
            Pool::Auto => {
                let in_batch = match self.rows {
                    Some(_) => self.samples_of_rows(sizes).div_ceil(BATCHES_OF_ROWS),
                    None => samples_in_batch(
                        Some(u64::from(self.capacity())),
                        self.max_samples.map(u64::from),
                        sizes,
                    ),
                };
                let wanted = MOST.max(self.samples_of_rows(sizes));
                bounds.limit(wanted, in_batch.saturating_mul(LEAST_BINS).min(wanted / 2))
            }
            pool => pool.samples(1, bounds),
        }
    }

    fn packs(&self) -> bool {
        true
    }

    fn splits(&self) -> bool {
        self.continues() || self.policy() == PackedOversize::Split
    }

    fn continues(&self) -> bool {
        self.rests == Rests::Continue
    }

    fn row_shape(&self) -> Option<RowShape> {
        let samples = self.max_samples.unwrap_or_else(|| default_samples(self.capacity()));
        let (tokens, samples) = (self.capacity(), samples.min(self.capacity()));
        self.rows.map(|rows| RowShape { rows, tokens, samples })
    }

    fn counts_real(&self) -> bool {
        self.rows.is_some()
    }

    fn count_taken(&self, size: u32) -> u32 {
        match self.policy() {
            PackedOversize::Drop if size > self.capacity() => 0,
            PackedOversize::Truncate => size.min(self.capacity()),
            _ => size,
        }
    }

    fn takes_dimensions(&self) -> bool {
        false
    }

    fn budget(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.largest(sizes).map(|largest| largest * u64::from(self.rows.unwrap_or(1)))
    }

    fn budgets(&self) -> Option<&Budgets> {
        self.max_tokens.budgets()
    }

    fn limit(&self, sizes: Option<&Sizes>) -> Option<u32> {
        let limit = self.largest(sizes).filter(|_| self.cuts() || self.continues());
        limit.and_then(|limit| u32::try_from(limit).ok())
    }

    fn largest(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.max_tokens.of_primary(|name| sizes.is_some_and(|sizes| sizes.is_primary(name)))
    }

    fn check_budgets(&self, budgeted: &Budgeted) -> Result<()> {
        match self.policy() {
            _ if self.continues() => Err(BatchingCause::BudgetsOfRows { option: "rests" }.into()),
            PackedOversize::Drop => Ok(()),
            _ => budgeted.check(self.cuts(), |_, size| u64::from(size)),
        }
    }

    fn find_oversize(&self, sizes: &Sizes) -> Option<usize> {
        match self.policy() {
            PackedOversize::Error => sizes.find_above(u64::from(self.capacity())),
            _ => None,
        }
    }

    fn count_parts(&self, sizes: &Sizes) -> u64 {
        match self.largest(Some(sizes)).and_then(|limit| u32::try_from(limit).ok()) {
            Some(limit) if self.policy() == PackedOversize::Split => {
                sizes.as_slice().iter().map(|&size| u64::from(size.div_ceil(limit))).sum()
            }
            _ => 0,
        }
    }
}

impl Spelled for Packing {
    const NAME: &'static str = "packing";
    const FORM: Option<&'static str> = Some("packing:N");

    fn spell(&self) -> Spelling {
        Spelling::with_limits(Self::NAME, &self.max_tokens)
            .option("max_samples", &self.max_samples, &None)
            .option("oversize", &self.policy(), &Self { oversize: None, ..self.clone() }.policy())
            .option("pool", &self.pool, &Pool::Auto)
            .option("order", &self.order, &PackingOrder::default())
            .option("rows", &self.rows, &None)
            .option("rests", &self.rests, &Rests::default())
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::limited(MaxTokens::read(given)?)?;
        let rule = given.set_number("max_samples", rule, Self::max_samples)?;
        let rule = given.set_word("oversize", rule, |rule, policy| Ok(rule.oversize(policy)))?;
        let rule = given.set_word("pool", rule, |rule: Self, pool: Pool| rule.pool(pool))?;
        let rule = given.set_word("order", rule, |rule, order| Ok(rule.order(order)))?;
        let rule = given.set_number("rows", rule, Self::rows)?;
        given.set_word("rests", rule, |rule, rests| Ok(rule.rests(rests)))
    }
}
