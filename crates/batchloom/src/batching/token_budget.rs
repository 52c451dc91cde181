//! `TokenBudget`: each pool sorted by size, then divided greedily into batches that fill the budget.
//!
//! Batches are made from the longest sample down, so that the padded length of a batch is known when it begins, and the
//! number of samples that fit follows from it. Greedy is optimal in the number of batches: to make fewer, one of them
//! would have to hold more than fits.

use serde::Serialize;

use super::pool_rule::PoolRule;
use super::sizes::{PoolSizes, Union, round_up};
use super::sorting::Sorting;
use super::spelling::{Given, Spelled, Spelling};
use super::{Oversize, Pool, PoolBatches, Sizes, Sorted, positive, to_place};
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenBudget {
    max_tokens: u64,
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
        Ok(Self {
            max_tokens: positive("max_tokens", max_tokens)?,
            count: Count::Padded,
            max_length_spread: None,
            sorting: Sorting::default(),
        })
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
        Ok(Self { sorting: self.sorting.multiple_of(multiple_of, Some(self.max_tokens))?, ..self })
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

    /// The largest sample of one variable dimension that fits alone.
    fn most(&self) -> u64 {
        match self.count {
            Count::Padded => self.sorting.round_down(self.max_tokens),
            Count::Real => self.max_tokens,
        }
    }

    /// Returns true if a sample of these extents fits alone.
    fn fits(&self, extents: &[u32]) -> bool {
        let multiple_of = if self.count == Count::Real { 1 } else { self.sorting.multiple_of };
        let elements = extents
            .iter()
            .try_fold(1_u64, |product, &extent| product.checked_mul(round_up(extent, multiple_of)));
        elements.is_some_and(|elements| elements <= self.max_tokens)
    }

    /// The ends of batches of sorted samples, padding counted. The first sample of a batch is its longest and so
    /// decides how many fit.
    fn by_padded(&self, sizes: &[u32]) -> Vec<u32> {
        let (mut ends, mut start) = (Vec::new(), 0);
        while let Some(&longest) = sizes.get(start) {
            let fit =
                self.max_tokens.checked_div(round_up(longest, self.sorting.multiple_of)).unwrap_or(u64::MAX);
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
            let full = real + u64::from(size) > self.max_tokens
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
            let start = super::to_index(sample) * dimensions;
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
        elements <= self.max_tokens
            && batch.samples <= self.sorting.most_samples()
            && self.max_length_spread.is_none_or(|spread| batch.longest - batch.shortest <= spread)
    }
}

impl PoolRule for TokenBudget {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        let sorted = Sorted::new(pool.sizes);
        let oversize = self.sorting.oversize;
        match (pool.extents, self.count) {
            (None, Count::Padded) => oversize.cut(sorted, self.most(), |sizes| self.by_padded(sizes)),
            (None, Count::Real) => oversize.cut(sorted, self.most(), |sizes| self.by_real(sizes)),
            (Some((dimensions, extents)), _) => self.by_shape(&sorted, dimensions, extents),
        }
    }

    fn samples_in_pool(&self, samples: u64, sizes: Option<&Sizes>) -> u64 {
        self.sorting.samples_in_pool(Some(self.max_tokens), samples, sizes)
    }

    fn counts_real(&self) -> bool {
        self.count == Count::Real
    }

    fn multiple_of(&self) -> u32 {
        self.sorting.multiple_of
    }

    fn budget(&self) -> Option<u64> {
        Some(self.max_tokens)
    }

    fn limit(&self) -> Option<u32> {
        self.sorting.oversize.limit(self.most())
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
        Some(Self { sorting: self.sorting.with_auto_pool()?, ..*self })
    }
}

impl Spelled for TokenBudget {
    const NAME: &'static str = "token-budget";
    const FORM: Option<&'static str> = Some("token-budget:N");

    fn spell(&self) -> Spelling {
        let text = Spelling::new(Self::NAME, self.max_tokens)
            .option("count", &self.count, &Count::default())
            .option("max_length_spread", &self.max_length_spread, &None);
        self.sorting.spell(text)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::new(given.number()?)?;
        let rule = given.set_word("count", rule, |rule, count| Ok(rule.count(count)))?;
        let spread = |rule: Self, spread| Ok(rule.max_length_spread(spread));
        let rule = given.set_number("max_length_spread", rule, spread)?;
        Ok(Self { sorting: Sorting::read(given, Some(rule.max_tokens))?, ..rule })
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
