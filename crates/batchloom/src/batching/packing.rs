//! `Packing`: bins of limited capacity, filled without padding.
//!
//! Best fit: each sample is put into the fullest bin that still has room for it. Shuffled samples are taken in the
//! random order of the epoch, after all samples above a quarter of a bin, the longest of them first: small samples then
//! fill the gaps, and bins are new in every epoch. Otherwise samples are taken from the longest to the shortest. If full
//! bins are to cost the same, large samples are put into bins by their squares: see `even_bins.rs`. Bins with several
//! budgets are filled one after the other: see `vector_bins.rs`.

use serde::Serialize;

use super::bins::Bins;
use super::budgets::MaxTokens;
use super::error::BatchingCause;
use super::even_bins::{self, fill_evenly};
use super::pool::MOST;
use super::pool_rule::PoolRule;
use super::spelling::{Given, Spelled, Spelling};
use super::vector_bins::fill_bins;
use super::{
    Budgeted, Budgets, Pool, PoolBatches, PoolBudgets, PoolSizes, Sizes, Sorted, positive, to_index,
};
use crate::Result;
use crate::named::named;

/// The largest capacity of a bin: boundaries are 32-bit numbers, and the tree takes four bytes for each element.
const MOST_TOKENS: u32 = 1 << 28;

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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Packing {
    max_tokens: MaxTokens,
    max_samples: Option<u32>,
    /// The policy; fingerprints keep the name that it had in their first version.
    #[serde(rename = "overflow")]
    oversize: PackedOversize,
    pool: Pool,
    /// The order; fingerprints keep the form of their first version, which knew one.
    #[serde(skip_serializing_if = "PackingOrder::is_decreasing")]
    order: PackingOrder,
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
        let (oversize, order) = (PackedOversize::Error, PackingOrder::Random);
        Ok(Self { max_tokens, max_samples: None, oversize, pool: Pool::Auto, order })
    }

    /// Sets the largest number of samples in a bin. Default: no limit but the budget.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn max_samples(self, max_samples: u32) -> Result<Self> {
        Ok(Self { max_samples: Some(positive("max_samples", max_samples)?), ..self })
    }

    /// Sets what happens to a sample that is larger than a bin. Default: [`PackedOversize::Error`].
    #[must_use]
    pub fn oversize(self, oversize: PackedOversize) -> Self {
        Self { oversize, ..self }
    }

    /// Sets the order in which shuffled samples are put into bins. Default: [`PackingOrder::Random`].
    #[must_use]
    pub fn order(self, order: PackingOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the size of a pool, in samples, when they are shuffled. Larger pools fill bins better. Default: 16 384, as
    /// a random order keeps no batch mates together, however large the pool.
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

    /// Packs samples by several budgets. The longest come first in each bin.
    fn cut_by_budgets(&self, pool: PoolSizes<'_>, budgets: PoolBudgets<'_>) -> PoolBatches {
        let facts = budgets.facts;
        let cut_to = facts.iter().filter(|facts| facts.is_primary).map(|facts| facts.limit).min();
        let cut_to = cut_to.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX);
        let fits = |row: &[u32]| facts.iter().zip(row).all(|(facts, &size)| u64::from(size) <= facts.limit);
        let decreasing = pool.together.is_none() || self.order == PackingOrder::Decreasing;
        if budgets.each().all(fits) {
            let bin_of = fill_bins(budgets, self.max_samples, decreasing);
            let (places, ends) = lay_out(&Sorted::new(pool.sizes), &bin_of);
            return PoolBatches { places, starts: Vec::new(), ends };
        }
        let (mut places, mut starts) = (Vec::new(), Vec::new());
        let (mut lengths, mut rows) = (Vec::new(), Vec::with_capacity(budgets.rows.len()));
        let mut add = |place: u32, row: &[u32], start: u32, length: u32| {
            places.push(place);
            starts.push(start);
            lengths.push(length);
            rows.extend(facts.iter().zip(row).map(|(facts, &size)| match facts.is_primary {
                true => (size - start).min(cut_to),
                false => size,
            }));
        };
        for (place, (row, &size)) in (0..).zip(budgets.each().zip(pool.sizes)) {
            match self.oversize {
                PackedOversize::Split => {
                    for start in (0..size.max(1)).step_by(to_index(cut_to)) {
                        add(place, row, start, (size - start).min(cut_to));
                    }
                }
                PackedOversize::Drop if !fits(row) => {}
                _ => add(place, row, 0, size.min(cut_to)),
            }
        }
        let bin_of = fill_bins(PoolBudgets { facts, rows: &rows }, self.max_samples, decreasing);
        let (order, ends) = lay_out(&Sorted::new(&lengths), &bin_of);
        let of_order = |values: &[u32]| order.iter().map(|&part| values[to_index(part)]).collect();
        let starts = if starts.iter().any(|&start| start > 0) { of_order(&starts) } else { Vec::new() };
        PoolBatches { places: of_order(&places), starts, ends }
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
        PoolBatches { places, starts, ends }
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
        let (capacity, most) = (self.capacity(), self.max_samples.unwrap_or(u32::MAX));
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
        let (sizes, pooled) =
            (pool.sizes, Pooled { is_shuffled: pool.together.is_some(), is_even: pool.even });
        let whole = |(places, ends)| PoolBatches { places, starts: Vec::new(), ends };
        if sizes.iter().all(|&size| size <= self.capacity()) {
            return whole(self.pack(sizes, pooled));
        }
        match self.oversize {
            PackedOversize::Split => self.cut_parts(sizes, pooled),
            PackedOversize::Drop => whole(self.pack_fitting(sizes, pooled)),
            PackedOversize::Truncate | PackedOversize::Error => {
                let truncated: Vec<u32> = sizes.iter().map(|&size| size.min(self.capacity())).collect();
                whole(self.pack(&truncated, pooled))
            }
        }
    }

    fn samples_in_pool(&self, samples: u64, _: Option<&Sizes>) -> u64 {
        match self.pool {
            Pool::Auto => MOST,
            pool => pool.samples(1, samples),
        }
    }

    fn packs(&self) -> bool {
        true
    }

    fn splits(&self) -> bool {
        self.oversize == PackedOversize::Split
    }

    fn takes_dimensions(&self) -> bool {
        false
    }

    fn budget(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.max_tokens.of_primary(|name| sizes.is_some_and(|sizes| sizes.is_primary(name)))
    }

    fn budgets(&self) -> Option<&Budgets> {
        self.max_tokens.budgets()
    }

    fn limit(&self, sizes: Option<&Sizes>) -> Option<u32> {
        let cuts = matches!(self.oversize, PackedOversize::Truncate | PackedOversize::Split);
        self.budget(sizes).filter(|_| cuts).and_then(|limit| u32::try_from(limit).ok())
    }

    fn check_budgets(&self, budgeted: &Budgeted) -> Result<()> {
        let cuts = matches!(self.oversize, PackedOversize::Truncate | PackedOversize::Split);
        match self.oversize {
            PackedOversize::Drop => Ok(()),
            _ => budgeted.check(cuts, |_, size| u64::from(size)),
        }
    }

    fn find_oversize(&self, sizes: &Sizes) -> Option<usize> {
        match self.oversize {
            PackedOversize::Error => sizes.find_above(u64::from(self.capacity())),
            _ => None,
        }
    }

    fn count_parts(&self, sizes: &Sizes) -> u64 {
        match self.budget(Some(sizes)).and_then(|limit| u32::try_from(limit).ok()) {
            Some(limit) if self.oversize == PackedOversize::Split => {
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
            .option("oversize", &self.oversize, &PackedOversize::default())
            .option("pool", &self.pool, &Pool::Auto)
            .option("order", &self.order, &PackingOrder::default())
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::limited(MaxTokens::read(given)?)?;
        let rule = given.set_number("max_samples", rule, Self::max_samples)?;
        let rule = given.set_word("oversize", rule, |rule, policy| Ok(rule.oversize(policy)))?;
        let rule = given.set_word("pool", rule, |rule: Self, pool: Pool| rule.pool(pool))?;
        given.set_word("order", rule, |rule, order| Ok(rule.order(order)))
    }
}
