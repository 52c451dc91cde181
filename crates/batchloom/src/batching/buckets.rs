//! `LengthBuckets`: each pool sorted by size, then divided into equal numbers.
//!
//! This is the classical procedure: sort each group of `pool x batch_size` samples, and divide it into `pool` batches.

use serde::Serialize;

use super::{PoolBatches, Sorted, positive};
use crate::Result;

/// Batches of `batch_size` samples of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LengthBuckets {
    batch_size: u64,
    pool: u64,
    multiple_of: u32,
}

impl LengthBuckets {
    /// Batches of `batch_size` samples, from pools of 100 batches.
    ///
    /// # Errors
    /// [`Error::NotPositive`](crate::Error::NotPositive) if `batch_size` is 0.
    pub fn new(batch_size: u64) -> Result<Self> {
        Ok(Self { batch_size: positive("batch_size", batch_size)?, pool: 100, multiple_of: 1 })
    }

    /// Sets the number of batches that are made of one pool when samples are shuffled. Larger pools mean less padding
    /// and less randomness.
    ///
    /// # Errors
    /// [`Error::NotPositive`](crate::Error::NotPositive) if it is 0.
    pub fn pool(self, pool: u64) -> Result<Self> {
        Ok(Self { pool: positive("pool", pool)?, ..self })
    }

    /// Rounds padded lengths up to a multiple of this number. Default: 1.
    ///
    /// # Errors
    /// [`Error::NotPositive`](crate::Error::NotPositive) if it is 0.
    pub fn multiple_of(self, multiple_of: u32) -> Result<Self> {
        Ok(Self { multiple_of: positive("multiple_of", multiple_of)?, ..self })
    }

    pub(super) fn batch_size(&self) -> u64 {
        self.batch_size
    }

    pub(super) fn samples_in_pool(&self) -> u64 {
        self.batch_size.saturating_mul(self.pool)
    }

    pub(super) fn padded_to(&self) -> u32 {
        self.multiple_of
    }

    pub(super) fn cut(&self, sizes: &[u32]) -> PoolBatches {
        let places = Sorted::new(sizes).places;
        PoolBatches { ends: super::fixed::ends(self.batch_size, places.len()), places, starts: Vec::new() }
    }
}
