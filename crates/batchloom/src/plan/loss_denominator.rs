//! The denominator of the loss of an update, over all its ranks and steps.
//!
//! Promise: every rank finds the same number before the first step of the update, without communication. The sums of the
//! latest update are kept, and so its samples are looked at once, however many batches it has.

use super::Plan;
use super::label_sums::LabelSums;
use super::parts::Parts;
use crate::Result;
use crate::batching::{Labels, Loss, SampleLabels};

impl Plan {
    /// The samples of a batch, without fillers and banned samples.
    pub(super) fn counted_parts(&self, step: u64, rank: u32) -> Result<Parts> {
        let counted = self.batch_len(step, rank)? - self.fillers(step, rank)?;
        Ok(self.parts(step, rank)?.fit(Some(counted)).without(self.banned(step)))
    }

    /// The denominator of the loss of the update of `step`, over all its ranks and steps: the number of its labels, or of
    /// its samples with a label, and at least 1. `None` if the plan does not know the labels of samples.
    ///
    /// ```
    /// use batchloom::Plan;
    /// use batchloom::batching::{LabelCounts, Labels, Loss};
    ///
    /// let labels = Labels::from(LabelCounts::new([3, 0, 1, 2]));
    /// let plan = Plan::builder(4).batch_size(1).world_size(2).accumulate(2).labels(Some(labels)).build()?;
    /// assert_eq!(plan.loss_denominator(1, Loss::TokenMean)?, Some(6));
    /// assert_eq!(plan.loss_denominator(1, Loss::SequenceMean)?, Some(3));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such step.
    pub fn loss_denominator(&self, step: u64, loss: Loss) -> Result<Option<u64>> {
        let Some(labels) = self.recipe().labels.as_ref() else { return Ok(None) };
        let index = self.update_of(step);
        let sums = self.latest_update.sums(index, || self.sum_labels(labels, index))?;
        Ok(Some(loss.denominator(sums.labels, sums.sequences)))
    }

    /// Returns true if the plan knows the labels of samples.
    pub(crate) fn knows_labels(&self) -> bool {
        self.recipe().labels.is_some()
    }

    /// The sums of an update.
    fn sum_labels(&self, labels: &SampleLabels, index: u64) -> Result<LabelSums> {
        let mut sums = LabelSums::default();
        for step in self.steps_of_update(index) {
            for rank in (0..self.world_size()).filter(|rank| step < self.steps_of(*rank)) {
                sums = sums.and(self.sum_batch(labels, step, rank)?);
            }
        }
        Ok(sums)
    }

    /// The sums of a batch. The samples need not be known where each has as many labels.
    fn sum_batch(&self, labels: &SampleLabels, step: u64, rank: u32) -> Result<LabelSums> {
        match labels.labels() {
            Labels::Each(each) if !self.holds_banned(step, rank)? => {
                let sequences = self.batch_len(step, rank)? - self.fillers(step, rank)?;
                Ok(LabelSums { labels: each * sequences, sequences: if *each > 0 { sequences } else { 0 } })
            }
            _ => Ok(LabelSums::of(labels, &self.counted_parts(step, rank)?)),
        }
    }
}
