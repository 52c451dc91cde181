//! `FixedSize`: equal numbers of samples, in order. Everything has a closed form, and nothing is stored.

use serde::Serialize;

use super::error::BatchingCause;
use super::pool::{MOST, PoolBounds, whole_batches};
use super::pool_rule::PoolRule;
use super::spelling::{Given, Spelled, Spelling};
use super::{PoolBatches, PoolSizes, Sizes, positive};
use crate::Result;

/// Batches of `batch_size` samples each, in order. The last batch holds the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct FixedSize {
    batch_size: u64,
    /// The number that padded lengths are a multiple of; fingerprints keep the form of rules that have none.
    #[serde(skip_serializing_if = "is_one")]
    multiple_of: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_one(multiple_of: &u32) -> bool {
    *multiple_of == 1
}

impl Default for FixedSize {
    /// Batches of 64 samples.
    fn default() -> Self {
        Self { batch_size: 64, multiple_of: 1 }
    }
}

impl FixedSize {
    /// Batches of `batch_size` samples.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if `batch_size` is 0.
    pub fn new(batch_size: u64) -> Result<Self> {
        match batch_size {
            0 => Err(BatchingCause::BatchSize { found: batch_size }.into()),
            batch_size => Ok(Self { batch_size, multiple_of: 1 }),
        }
    }

    /// Rounds padded lengths up to a multiple of this number, for fewer distinct shapes. Default: 1.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn multiple_of(self, multiple_of: u32) -> Result<Self> {
        Ok(Self { multiple_of: positive("multiple_of", multiple_of)?, ..self })
    }

    /// The number of samples in a full batch.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }
}

impl PoolRule for FixedSize {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        let samples = pool.sizes.len();
        let places = (0..super::to_place(samples)).collect();
        PoolBatches { places, ends: ends(self.batch_size, samples), ..PoolBatches::default() }
    }

    fn samples_in_pool(&self, bounds: PoolBounds, _: Option<&Sizes>) -> u64 {
        whole_batches(bounds.limit(MOST, self.batch_size).min(MOST), self.batch_size)
    }

    fn batch_size(&self) -> Option<u64> {
        Some(self.batch_size)
    }

    fn looks_at_sizes(&self) -> bool {
        false
    }

    fn multiple_of(&self) -> u32 {
        self.multiple_of
    }
}

impl Spelled for FixedSize {
    const NAME: &'static str = "fixed-size";
    const FORM: Option<&'static str> = Some("fixed-size:N");

    fn spell(&self) -> Spelling {
        Spelling::new(Self::NAME, self.batch_size).option("multiple_of", &self.multiple_of, &1)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let rule = Self::new(given.number()?)?;
        given.set_number("multiple_of", rule, Self::multiple_of)
    }
}

/// The ends of batches of `batch_size` samples, the last of them holding the rest.
pub(super) fn ends(batch_size: u64, samples: usize) -> Vec<u32> {
    let batch_size = usize::try_from(batch_size).unwrap_or(usize::MAX);
    let full = (1..=samples / batch_size).map(|batch| super::to_place(batch * batch_size));
    let rest = (!samples.is_multiple_of(batch_size)).then(|| super::to_place(samples));
    full.chain(rest).collect()
}
