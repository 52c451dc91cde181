//! `TokenBudget`: each pool sorted by size, then divided greedily into batches that fill the budget.
//!
//! Batches are made from the longest sample down, so that the padded length of a batch is known when it begins, and the
//! number of samples that fit follows from it. Greedy is optimal in the number of batches: to make fewer, one of them
//! would have to hold more than fits.
//!
//! With several budgets, a batch ends before the sample with which it would exceed one of them. A budget of the lengths of
//! a field that batches pad counts samples times the longest of them; every other one counts the sum.

use serde::Serialize;

use super::budgeted::samples_that_fill;
use super::budgets::MaxTokens;
use super::pool::PoolBounds;
use super::pool_budgets::BudgetFacts;
use super::pool_rule::PoolRule;
use super::sizes::{PoolSizes, Union, round_up};
use super::sorting::Sorting;
use super::spelling::{Given, Spelled, Spelling};
use super::{Budgeted, Budgets, Oversize, Pool, PoolBatches, PoolBudgets, Sizes, Sorted, to_index, to_place};
use crate::Result;
use crate::named::named;

/// The elements that a budget counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Count {
    /// Elements with padding, which is what memory costs.
    #[default]
    Padded,
    /// Elements without padding.
    Real,
}

named!(Count, "count", {
    "padded" => Padded,
    "real" => Real,
});

/// Batches of samples of similar size that fill a budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenBudget {
    max_tokens: MaxTokens,
    count: Count,
    max_length_spread: Option<u32>,
    #[serde(flatten)]
    sorting: Sorting,
}

impl TokenBudget {
    /// Batches of at most `max_tokens` elements.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn new(max_tokens: u64) -> Result<Self> {
        MaxTokens::one(max_tokens).map(Self::limited)
    }

    /// Batches that exceed none of several budgets. With [`Count::Padded`], a budget of the lengths of a field that
    /// batches pad counts samples times the longest of them, and every other one the sum of its sizes.
    pub fn within(budgets: Budgets) -> Self {
        Self::limited(MaxTokens::Several(budgets))
    }

    fn limited(max_tokens: MaxTokens) -> Self {
        Self { max_tokens, count: Count::Padded, max_length_spread: None, sorting: Sorting::default() }
    }

    /// Sets whether padding counts. Default: it does.
    #[must_use]
    pub fn count(self, count: Count) -> Self {
        Self { count, ..self }
    }

    /// Sets by how much the longest sample of a batch may exceed the shortest. Default: any amount.
    #[must_use]
    pub fn max_length_spread(self, spread: u32) -> Self {
        Self { max_length_spread: Some(spread), ..self }
    }

    /// Sets the largest number of samples in a batch. Default: no limit but the budget.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn max_samples(self, max_samples: u64) -> Result<Self> {
        Ok(Self { sorting: self.sorting.max_samples(max_samples)?, ..self })
    }

    /// Rounds padded lengths up to a multiple of this number, for fewer distinct shapes. Default: 1.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0, or if it exceeds the budget.
    pub fn multiple_of(self, multiple_of: u32) -> Result<Self> {
        Ok(Self { sorting: self.sorting.multiple_of(multiple_of, self.elements())?, ..self })
    }

    /// Sets what happens to a sample that alone exceeds the budget. Default: [`Oversize::Error`].
    #[must_use]
    pub fn oversize(self, oversize: Oversize) -> Self {
        Self { sorting: self.sorting.oversize(oversize), ..self }
    }

    /// Sets the size of a pool, in samples, when they are shuffled. Larger pools mean less padding and less randomness.
    /// Default: [`Pool::Auto`].
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn pool(self, pool: impl Into<Pool>) -> Result<Self> {
        Ok(Self { sorting: self.sorting.pool(pool.into())?, ..self })
    }

    /// The number of elements that a batch holds at most, unless there are budgets with names.
    fn elements(&self) -> Option<u64> {
        match &self.max_tokens {
            MaxTokens::One(max_tokens) => Some(*max_tokens),
            MaxTokens::Several(_) => None,
        }
    }

    /// The number of elements, which is any with budgets that have names.
    fn most_elements(&self) -> u64 {
        self.elements().unwrap_or(u64::MAX)
    }

    /// The largest sample of one variable dimension that fits a limit alone.
    fn most(&self, limit: u64) -> u64 {
        match self.count {
            Count::Padded => self.sorting.round_down(limit),
            Count::Real => limit,
        }
    }

    /// The elements that a budget counts of a batch of `samples`, given the longest of them and the sum of their sizes.
    fn counted(&self, facts: &BudgetFacts, samples: u64, longest: u32, sum: u64) -> u64 {
        match self.count == Count::Padded && facts.is_padded {
            true => round_up(longest, self.sorting.multiple_of).saturating_mul(samples),
            false => sum,
        }
    }

    /// Divides a pool by several budgets.
    fn by_budgets(&self, pool: PoolSizes<'_>, budgets: PoolBudgets<'_>) -> PoolBatches {
        let facts = budgets.facts;
        let of_primary =
            facts.iter().filter(|facts| facts.is_primary).map(|facts| self.most(facts.limit)).min();
        let cut_to = of_primary.filter(|_| self.sorting.oversize == Oversize::Truncate).unwrap_or(u64::MAX);
        let cut_to = u32::try_from(cut_to).unwrap_or(u32::MAX);
        let taken = |facts: &BudgetFacts, size: u32| if facts.is_primary { size.min(cut_to) } else { size };
        let fits = |&place: &u32| {
            let row = facts.iter().zip(budgets.row(to_index(place)));
            row.map(|(facts, &size)| (facts, taken(facts, size)))
                .all(|(facts, size)| self.counted(facts, 1, size, size.into()) <= facts.limit)
        };
        let sizes: Vec<u32> = pool.sizes.iter().map(|&size| size.min(cut_to)).collect();
        let (mut places, alone): (Vec<u32>, Vec<u32>) =
            Sorted::new(&sizes).places.into_iter().partition(fits);
        let mut ends = Vec::new();
        let mut batch = Filled::new(facts.len());
        for &place in &places {
            let sample = (to_index(place), sizes[to_index(place)]);
            let row = facts.iter().zip(budgets.row(sample.0)).map(|(facts, &size)| taken(facts, size));
            if batch.samples > 0 && !self.has_room(facts, &batch, row.clone(), sample.1) {
                ends.push(batch.end);
                batch = Filled { end: batch.end, ..Filled::new(facts.len()) };
            }
            batch.add(row, sample.1);
        }
        ends.extend((batch.samples > 0).then_some(batch.end));
        if self.sorting.oversize != Oversize::Drop {
            ends = (1..=to_place(alone.len()))
                .chain(ends.iter().map(|end| end + to_place(alone.len())))
                .collect();
            places.splice(0..0, alone);
        }
        PoolBatches { places, ends, ..PoolBatches::default() }
    }

    /// Returns true if a batch stays within every limit with one more sample.
    fn has_room(
        &self,
        facts: &[BudgetFacts],
        batch: &Filled,
        row: impl Iterator<Item = u32>,
        length: u32,
    ) -> bool {
        let samples = batch.samples + 1;
        let mut counts = facts.iter().zip(batch.longest.iter().zip(&batch.sums)).zip(row);
        samples <= self.sorting.most_samples()
            && self.max_length_spread.is_none_or(|spread| batch.first - length <= spread)
            && counts.all(|((facts, (&longest, &sum)), size)| {
                self.counted(facts, samples, longest.max(size), sum + u64::from(size)) <= facts.limit
            })
    }

    /// Returns true if a sample of these extents fits alone.
    fn fits(&self, extents: &[u32]) -> bool {
        let multiple_of = if self.count == Count::Real { 1 } else { self.sorting.multiple_of };
        let elements = extents
            .iter()
            .try_fold(1_u64, |product, &extent| product.checked_mul(round_up(extent, multiple_of)));
        elements.is_some_and(|elements| elements <= self.most_elements())
    }

    /// The ends of batches of sorted samples, padding counted. The first sample of a batch is its longest and so
    /// decides how many fit.
    fn by_padded(&self, sizes: &[u32]) -> Vec<u32> {
        let (mut ends, mut start) = (Vec::new(), 0);
        while let Some(&longest) = sizes.get(start) {
            let fit = self
                .most_elements()
                .checked_div(round_up(longest, self.sorting.multiple_of))
                .unwrap_or(u64::MAX);
            let fit = usize::try_from(fit.min(self.sorting.most_samples())).unwrap_or(usize::MAX).max(1);
            let candidates = &sizes[start..start.saturating_add(fit).min(sizes.len())];
            start += match self.max_length_spread {
                Some(spread) => candidates.partition_point(|&size| longest - size <= spread),
                None => candidates.len(),
            };
            ends.push(to_place(start));
        }
        ends
    }

    /// The ends of batches of sorted samples, padding not counted.
    fn by_real(&self, sizes: &[u32]) -> Vec<u32> {
        let (mut ends, mut start, mut real) = (Vec::new(), 0, 0);
        for (end, &size) in sizes.iter().enumerate() {
            let spread = self.max_length_spread.is_some_and(|spread| sizes[start] - size > spread);
            let full = real + u64::from(size) > self.most_elements()
                || (end - start) as u64 >= self.sorting.most_samples();
            if end > start && (spread || full) {
                ends.push(to_place(end));
                (start, real) = (end, 0);
            }
            real += u64::from(size);
        }
        ends.extend((start < sizes.len()).then(|| to_place(sizes.len())));
        ends
    }

    /// Does the work of the two above for samples with several variable dimensions, whose union grows as the batch
    /// does.
    fn by_shape(&self, sorted: &Sorted, dimensions: usize, extents: &[u32]) -> PoolBatches {
        let mut batches = PoolBatches::default();
        let mut batch = Growing::default();
        for (&sample, &size) in sorted.places.iter().zip(&sorted.sizes) {
            let start = to_index(sample) * dimensions;
            let extents = &extents[start..start + dimensions];
            let fits = self.fits(extents);
            if !fits && self.sorting.oversize == Oversize::Drop {
                continue;
            }
            let next = batch.with(size, extents);
            if batch.samples > 0 && (!fits || !batch.fits || !self.takes(&next)) {
                batches.ends.push(to_place(batches.places.len()));
                batch = Growing::default().with(size, extents);
            } else {
                batch = next;
            }
            batch.fits = fits;
            batches.places.push(sample);
        }
        batches.ends.extend((batch.samples > 0).then(|| to_place(batches.places.len())));
        batches
    }

    /// Returns true if a batch stays within every limit.
    fn takes(&self, batch: &Growing) -> bool {
        let elements = match self.count {
            Count::Padded => batch.union.elements(self.sorting.multiple_of).saturating_mul(batch.samples),
            Count::Real => batch.real,
        };
        elements <= self.most_elements()
            && batch.samples <= self.sorting.most_samples()
            && self.max_length_spread.is_none_or(|spread| batch.longest - batch.shortest <= spread)
    }
}

impl PoolRule for TokenBudget {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        if let Some(budgets) = pool.budgets {
            return self.by_budgets(pool, budgets);
        }
        let most = self.most(self.most_elements());
        let sorted = Sorted::new(pool.sizes);
        let oversize = self.sorting.oversize;
        match (pool.extents, self.count) {
            (None, Count::Padded) => oversize.cut(sorted, most, |sizes| self.by_padded(sizes)),
            (None, Count::Real) => oversize.cut(sorted, most, |sizes| self.by_real(sizes)),
            (Some((dimensions, extents)), _) => self.by_shape(&sorted, dimensions, extents),
        }
    }

    fn samples_in_pool(&self, bounds: PoolBounds, sizes: Option<&Sizes>) -> u64 {
        match &self.max_tokens {
            MaxTokens::One(max_tokens) => self.sorting.samples_in_pool(Some(*max_tokens), bounds, sizes),
            MaxTokens::Several(budgets) => {
                let in_batch = sizes.and_then(|sizes| samples_that_fill(budgets, sizes));
                self.sorting.samples_in_pool_of(in_batch, bounds)
            }
        }
    }

    fn counts_real(&self) -> bool {
        self.count == Count::Real
    }

    fn multiple_of(&self) -> u32 {
        self.sorting.multiple_of
    }

    fn takes_dimensions(&self) -> bool {
        self.max_tokens.budgets().is_none()
    }

    fn budget(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.max_tokens.of_primary(|name| sizes.is_some_and(|sizes| sizes.is_primary(name)))
    }

    fn budgets(&self) -> Option<&Budgets> {
        self.max_tokens.budgets()
    }

    fn limit(&self, sizes: Option<&Sizes>) -> Option<u32> {
        self.budget(sizes).and_then(|limit| self.sorting.oversize.limit(self.most(limit)))
    }

    fn check_budgets(&self, budgeted: &Budgeted) -> Result<()> {
        match self.sorting.oversize {
            Oversize::Alone | Oversize::Drop => Ok(()),
            oversize => budgeted.check(oversize == Oversize::Truncate, |facts, size| {
                self.counted(facts, 1, size, size.into())
            }),
        }
    }

    fn find_oversize(&self, sizes: &Sizes) -> Option<usize> {
        if self.sorting.oversize != Oversize::Error {
            return None;
        }
        (0..sizes.as_slice().len()).find(|&sample| !self.fits(sizes.extents(sample)))
    }

    fn count_real_elements(self) -> Self {
        self.count(Count::Real)
    }

    fn with_auto_pool(&self) -> Option<Self> {
        Some(Self { sorting: self.sorting.with_auto_pool()?, ..self.clone() })
    }
}

impl Spelled for TokenBudget {
    const NAME: &'static str = "token-budget";
    const FORM: Option<&'static str> = Some("token-budget:N");

    fn spell(&self) -> Spelling {
        let text = Spelling::with_limits(Self::NAME, &self.max_tokens)
            .option("count", &self.count, &Count::default())
            .option("max_length_spread", &self.max_length_spread, &None);
        self.sorting.spell(text)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::limited(MaxTokens::read(given)?);
        let rule = given.set_word("count", rule, |rule, count| Ok(rule.count(count)))?;
        let spread = |rule: Self, spread| Ok(rule.max_length_spread(spread));
        let rule = given.set_number("max_length_spread", rule, spread)?;
        Ok(Self { sorting: Sorting::read(given, rule.elements())?, ..rule })
    }
}

/// A batch of several budgets, to which samples are added from the longest to the shortest.
#[derive(Debug)]
struct Filled {
    samples: u64,
    /// The length of its first sample.
    first: u32,
    /// The largest size and the sum of the sizes, by each budget.
    longest: Vec<u32>,
    sums: Vec<u64>,
    /// The number of samples of this batch and of all before it.
    end: u32,
}

impl Filled {
    fn new(budgets: usize) -> Self {
        Self { samples: 0, first: 0, longest: vec![0; budgets], sums: vec![0; budgets], end: 0 }
    }

    fn add(&mut self, row: impl Iterator<Item = u32>, length: u32) {
        self.first = if self.samples == 0 { length } else { self.first };
        self.samples += 1;
        self.end += 1;
        for ((longest, sum), size) in self.longest.iter_mut().zip(&mut self.sums).zip(row) {
            *longest = size.max(*longest);
            *sum += u64::from(size);
        }
    }
}

/// A batch to which samples are added, from the largest to the smallest.
#[derive(Debug, Default)]
struct Growing {
    samples: u64,
    real: u64,
    longest: u32,
    shortest: u32,
    union: Union,
    /// True if its samples fit alone.
    fits: bool,
}

impl Growing {
    /// This batch with one more sample.
    fn with(&self, size: u32, extents: &[u32]) -> Self {
        let mut union = self.union.clone();
        union.add(extents);
        let longest = if self.samples == 0 { size } else { self.longest };
        let real = self.real + u64::from(size);
        Self { samples: self.samples + 1, real, longest, shortest: size, union, fits: self.fits }
    }
}
