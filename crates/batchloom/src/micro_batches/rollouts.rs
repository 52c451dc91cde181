//! `Rollouts`: the samples in hand, as the planner sees them.

use super::error::MicroBatchCause;
use crate::Result;

/// Samples in hand: a length for each, and what else is known of them.
///
/// ```
/// use batchloom::micro_batches::Rollouts;
///
/// let lengths = [900, 120, 300, 310];
/// let groups = [0, 0, 1, 1];
/// let rollouts = Rollouts::new(&lengths).groups(&groups);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Rollouts<'a> {
    pub(super) lengths: &'a [u32],
    pub(super) groups: Option<&'a [u64]>,
    pub(super) classes: Option<&'a [u64]>,
    pub(super) labels: Option<&'a [u32]>,
}

impl<'a> Rollouts<'a> {
    /// Samples of these lengths.
    pub fn new(lengths: &'a [u32]) -> Self {
        Self { lengths, groups: None, classes: None, labels: None }
    }

    /// The group of each sample: any numbers, equal for samples that stay together, which need not be neighbours.
    pub fn groups(self, groups: &'a [u64]) -> Self {
        Self { groups: Some(groups), ..self }
    }

    /// The class of each sample: any numbers. A micro-batch holds samples of one class, which is the same on all ranks.
    pub fn classes(self, classes: &'a [u64]) -> Self {
        Self { classes: Some(classes), ..self }
    }

    /// The number of labels of each sample that losses do not ignore.
    pub fn labels(self, labels: &'a [u32]) -> Self {
        Self { labels: Some(labels), ..self }
    }

    /// Checks that there is one value for each sample.
    pub(super) fn check(&self) -> Result<()> {
        let samples = self.lengths.len() as u64;
        let limit = 1 << 32;
        if samples >= limit {
            return Err(MicroBatchCause::TooManySamples { found: samples, limit }.into());
        }
        let given = [
            ("groups", self.groups.map(<[u64]>::len)),
            ("classes", self.classes.map(<[u64]>::len)),
            ("labels", self.labels.map(<[u32]>::len)),
        ];
        for (option, found) in given {
            if let Some(found) = found.map(|found| found as u64).filter(|&found| found != samples) {
                return Err(MicroBatchCause::ValuesLength { option, found, samples }.into());
            }
        }
        Ok(())
    }
}
