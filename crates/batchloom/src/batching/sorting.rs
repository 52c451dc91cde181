//! `Sorting`: the options of rules that sort samples by size, pad them and limit a batch.

use serde::Serialize;

use super::error::BatchingCause;
use super::pool::{PoolBounds, samples_in_batch};
use super::spelling::{Given, Spelling};
use super::{Oversize, Pool, Sizes, positive};
use crate::Result;

/// The options that [`TokenBudget`](super::TokenBudget) and [`CostOptimal`](super::CostOptimal) share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Sorting {
    pub(super) max_samples: Option<u64>,
    pub(super) multiple_of: u32,
    pub(super) oversize: Oversize,
    pub(super) pool: Pool,
}

impl Default for Sorting {
    fn default() -> Self {
        Self { max_samples: None, multiple_of: 1, oversize: Oversize::Error, pool: Pool::Auto }
    }
}

impl Sorting {
    /// Sets the largest number of samples in a batch.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a number is 0.
    pub(super) fn max_samples(self, max_samples: u64) -> Result<Self> {
        Ok(Self { max_samples: Some(positive("max_samples", max_samples)?), ..self })
    }

    /// Sets the number that padded lengths are a multiple of, which may not exceed `max_tokens`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a number is 0, or if `multiple_of` exceeds the budget.
    pub(super) fn multiple_of(self, multiple_of: u32, max_tokens: Option<u64>) -> Result<Self> {
        let sorting = Self { multiple_of: positive("multiple_of", multiple_of)?, ..self };
        sorting.check_multiple(max_tokens)?;
        Ok(sorting)
    }

    /// Refuses a budget that is less than the number that padded lengths are a multiple of.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if `multiple_of` exceeds the budget.
    pub(super) fn check_multiple(&self, max_tokens: Option<u64>) -> Result<()> {
        let multiple_of = self.multiple_of;
        match max_tokens.filter(|&max_tokens| u64::from(multiple_of) > max_tokens) {
            Some(max_tokens) => Err(BatchingCause::Multiple { multiple_of, max_tokens }.into()),
            None => Ok(()),
        }
    }

    /// Sets what happens to a sample that alone exceeds the budget.
    pub(super) fn oversize(self, oversize: Oversize) -> Self {
        Self { oversize, ..self }
    }

    /// Sets the size of a pool.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a number is 0.
    pub(super) fn pool(self, pool: Pool) -> Result<Self> {
        Ok(Self { pool: pool.require_positive()?, ..self })
    }

    /// The largest number of samples in a batch.
    pub(super) fn most_samples(&self) -> u64 {
        self.max_samples.unwrap_or(u64::MAX)
    }

    /// The largest padded size within a budget.
    pub(super) fn round_down(&self, max_tokens: u64) -> u64 {
        max_tokens - max_tokens % u64::from(self.multiple_of)
    }

    /// The number of samples in a pool, where `in_batch` fill a budget.
    pub(super) fn samples_in_pool_of(&self, in_batch: Option<u64>, bounds: PoolBounds) -> u64 {
        let in_batch = [in_batch, self.max_samples].into_iter().flatten().min().unwrap_or(1);
        self.pool.samples(in_batch, bounds)
    }

    /// The number of samples in a pool.
    pub(super) fn samples_in_pool(
        &self,
        max_tokens: Option<u64>,
        bounds: PoolBounds,
        sizes: Option<&Sizes>,
    ) -> u64 {
        self.pool.samples(samples_in_batch(max_tokens, self.max_samples, sizes), bounds)
    }

    /// The same options with pools of the default size, if a number was given.
    pub(super) fn with_auto_pool(&self) -> Option<Self> {
        self.pool.is_number().then_some(Self { pool: Pool::Auto, ..*self })
    }

    /// Adds the options to the text of a rule.
    pub(super) fn spell(&self, text: Spelling) -> Spelling {
        let default = Self::default();
        text.option("max_samples", &self.max_samples, &default.max_samples)
            .option("multiple_of", &self.multiple_of, &default.multiple_of)
            .option("oversize", &self.oversize, &default.oversize)
            .option("pool", &self.pool, &default.pool)
    }

    /// Reads the options from the text of a rule with this budget.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text spells no rule; and the errors of the setters.
    pub(super) fn read(given: &mut Given<'_>, max_tokens: Option<u64>) -> Result<Self> {
        let sorting = given.set_number("max_samples", Self::default(), Self::max_samples)?;
        let multiple = |sorting: Self, multiple_of| sorting.multiple_of(multiple_of, max_tokens);
        let sorting = given.set_number("multiple_of", sorting, multiple)?;
        let sorting = given.set_word("oversize", sorting, |sorting, policy| Ok(sorting.oversize(policy)))?;
        given.set_word("pool", sorting, Self::pool)
    }
}
