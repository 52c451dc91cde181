//! `FixedSize`: equal numbers of samples, in order. Everything has a closed form, and nothing is stored.

use serde::Serialize;

use super::PoolBatches;
use super::pool::{MOST, whole_batches};
use crate::{Error, Result};

/// Batches of `batch_size` samples each, in order. The last batch holds the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct FixedSize {
    batch_size: u64,
}

impl Default for FixedSize {
    /// Batches of 64 samples.
    fn default() -> Self {
        Self { batch_size: 64 }
    }
}

impl FixedSize {
    /// Batches of `batch_size` samples.
    ///
    /// # Errors
    /// [`Error::BatchSize`] if `batch_size` is 0.
    pub fn new(batch_size: u64) -> Result<Self> {
        match batch_size {
            0 => Err(Error::BatchSize { found: batch_size }),
            batch_size => Ok(Self { batch_size }),
        }
    }

    /// The number of samples in a full batch.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    pub(super) fn samples_in_pool(&self) -> u64 {
        whole_batches(MOST, self.batch_size)
    }

    pub(super) fn cut(&self, sizes: &[u32]) -> PoolBatches {
        let places = (0..super::to_place(sizes.len())).collect();
        PoolBatches { places, starts: Vec::new(), ends: ends(self.batch_size, sizes.len()) }
    }
}

/// The ends of batches of `batch_size` samples, the last of them holding the rest.
pub(super) fn ends(batch_size: u64, samples: usize) -> Vec<u32> {
    let batch_size = usize::try_from(batch_size).unwrap_or(usize::MAX);
    let full = (1..=samples / batch_size).map(|batch| super::to_place(batch * batch_size));
    let rest = (!samples.is_multiple_of(batch_size)).then(|| super::to_place(samples));
    full.chain(rest).collect()
}
