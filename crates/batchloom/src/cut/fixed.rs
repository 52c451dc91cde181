//! `FixedSize`: equal numbers of samples, in order. Closed forms throughout: nothing is stored.

use std::ops::Range;

use serde::Serialize;

use crate::{Error, Result};

/// Batches of `batch_size` samples each, in order; the last one holds what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct FixedSize {
    batch_size: u64,
}

impl FixedSize {
    /// Batches of `batch_size` samples.
    ///
    /// # Errors
    /// Where `batch_size` is 0.
    pub fn new(batch_size: u64) -> Result<Self> {
        match batch_size {
            0 => Err(Error::BatchSize { found: batch_size }),
            batch_size => Ok(Self { batch_size }),
        }
    }

    /// Samples in a full batch.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    pub(super) fn batches(&self, samples: u64, drop_last: bool) -> u64 {
        match drop_last {
            true => samples / self.batch_size,
            false => samples.div_ceil(self.batch_size),
        }
    }

    pub(super) fn positions(&self, batch: u64, samples: u64) -> Range<u64> {
        let start = batch * self.batch_size;
        start..start.saturating_add(self.batch_size).min(samples)
    }

    pub(super) fn batch_of(&self, position: u64) -> u64 {
        position / self.batch_size
    }
}
