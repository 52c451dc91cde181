//! `LengthBuckets`: each pool sorted by size, then divided into equal numbers.
//!
//! This is the classical procedure: sort each group of `pool x batch_size` samples, and divide it into `pool` batches. By
//! default, groups are as large as they may be, and sorted samples are [mixed] so that batches are new in every epoch.

use serde::Serialize;

use super::pool::{LEAST_POOLS, MOST, PoolBounds, whole_batches};
use super::pool_rule::PoolRule;
use super::spelling::{Given, Spelled, Spelling};
use super::{Pool, PoolBatches, PoolSizes, Sizes, Sorted, mix_places, positive};
use crate::Result;

/// Batches of `batch_size` samples of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LengthBuckets {
    batch_size: u64,
    pool: Pool,
    multiple_of: u32,
}

impl LengthBuckets {
    /// Batches of `batch_size` samples.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if `batch_size` is 0.
    pub fn new(batch_size: u64) -> Result<Self> {
        Ok(Self { batch_size: positive("batch_size", batch_size)?, pool: Pool::Auto, multiple_of: 1 })
    }

    /// Sets the size of a pool, in batches, when samples are shuffled. Larger pools mean less padding and less
    /// randomness. Default: at most 16 384 samples, which are mixed with others of similar size so that about a quarter
    /// of batch mates stay together from one epoch to the next.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn pool(self, pool: impl Into<Pool>) -> Result<Self> {
        Ok(Self { pool: pool.into().require_positive()?, ..self })
    }

    /// Rounds padded lengths up to a multiple of this number. Default: 1.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn multiple_of(self, multiple_of: u32) -> Result<Self> {
        Ok(Self { multiple_of: positive("multiple_of", multiple_of)?, ..self })
    }
}

impl PoolRule for LengthBuckets {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        let sorted = Sorted::new(pool.sizes);
        let apart = |together: &u64| *together >= LEAST_POOLS * pool.sizes.len() as u64;
        let places = match pool.together.filter(|together| self.pool == Pool::Auto && !apart(together)) {
            Some(together) => mix_places(&sorted, self.batch_size, together),
            None => sorted.places,
        };
        PoolBatches {
            ends: super::fixed_size::ends(self.batch_size, places.len()),
            places,
            ..PoolBatches::default()
        }
    }

    fn samples_in_pool(&self, bounds: PoolBounds, _: Option<&Sizes>) -> u64 {
        match self.pool {
            Pool::Auto => whole_batches(bounds.limit(MOST, self.batch_size).min(MOST), self.batch_size),
            Pool::Of(batches) => batches.saturating_mul(self.batch_size),
            Pool::All => u64::MAX,
        }
    }

    fn batch_size(&self) -> Option<u64> {
        Some(self.batch_size)
    }

    fn multiple_of(&self) -> u32 {
        self.multiple_of
    }

    fn with_auto_pool(&self) -> Option<Self> {
        self.pool.is_number().then_some(Self { pool: Pool::Auto, ..*self })
    }
}

impl Spelled for LengthBuckets {
    const NAME: &'static str = "length-buckets";
    const FORM: Option<&'static str> = Some("length-buckets:N");

    fn spell(&self) -> Spelling {
        let text = Spelling::new(Self::NAME, self.batch_size);
        text.option("pool", &self.pool, &Pool::Auto).option("multiple_of", &self.multiple_of, &1)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::new(given.number()?)?;
        let rule = given.set_word("pool", rule, |rule: Self, pool: Pool| rule.pool(pool))?;
        given.set_number("multiple_of", rule, Self::multiple_of)
    }
}
