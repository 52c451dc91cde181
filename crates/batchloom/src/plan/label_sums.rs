//! `LabelSums`: the labels of samples that losses count, added up.

use std::sync::{Mutex, PoisonError};

use super::parts::Parts;
use crate::Result;
use crate::batching::SampleLabels;

/// The labels of some samples, and the samples, or parts of them, with at least one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LabelSums {
    pub(super) labels: u64,
    pub(super) sequences: u64,
}

impl LabelSums {
    /// The sums of parts of samples.
    pub(super) fn of(labels: &SampleLabels, parts: &Parts) -> Self {
        let each = labels.each(&parts.samples, &parts.starts, &parts.sizes);
        let sequences = each.iter().filter(|&&labels| labels > 0).count() as u64;
        Self { labels: each.iter().sum(), sequences }
    }

    /// The sums of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { labels: self.labels + other.labels, sequences: self.sequences + other.sequences }
    }
}

/// The sums of the update that was asked for last, with its number.
#[derive(Debug, Default)]
pub(super) struct LatestUpdate(Mutex<Option<(u64, LabelSums)>>);

impl LatestUpdate {
    /// The sums of update `index`, which `count` counts unless it was the last one that was asked for.
    ///
    /// # Errors
    /// The errors of `count`.
    pub(super) fn sums(&self, index: u64, count: impl FnOnce() -> Result<LabelSums>) -> Result<LabelSums> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, sums)) = *latest
            && number == index
        {
            return Ok(sums);
        }
        let sums = count()?;
        *latest = Some((index, sums));
        Ok(sums)
    }
}
