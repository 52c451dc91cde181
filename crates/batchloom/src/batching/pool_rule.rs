//! `PoolRule`: the questions that a plan has for a rule. Each rule answers them in its own file.
//!
//! A rule has to define how large its pools are and how it cuts one. Every other question has an answer by default: the
//! answer of a rule that sorts the samples of a pool by size, pads them, and has no budget.

use std::any::Any;

use super::pool::PoolBounds;
use super::{Budgeted, Budgets, PoolBatches, PoolSizes, RowShape, Sizes};
use crate::Result;

/// A rule for which samples of a pool share a batch.
pub(super) trait PoolRule: Any {
    /// Cuts a pool into batches. Its samples passed [`Rule::check`](super::Rule::check).
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches;

    /// The number of samples in a pool. `sizes` are the sizes of all samples of the dataset.
    fn samples_in_pool(&self, bounds: PoolBounds, sizes: Option<&Sizes>) -> u64;

    /// The number of samples in a full batch; `None` if full batches differ in number.
    fn batch_size(&self) -> Option<u64> {
        None
    }

    /// The number of samples in a batch, if only one where the data or a pool ends holds fewer.
    fn equal_len(&self) -> Option<u64> {
        self.batch_size()
    }

    /// Returns true if sizes decide which samples of a pool share a batch.
    ///
    /// The batches of a pool then differ in kind, so their order is mixed; sizes are required; samples in stored order
    /// are one pool; and `distinct_by` is refused.
    fn looks_at_sizes(&self) -> bool {
        true
    }

    /// Returns true if batches are concatenations.
    fn packs(&self) -> bool {
        false
    }

    /// Returns true if a sample may be split between batches.
    fn splits(&self) -> bool {
        false
    }

    /// Returns true if what a batch has no room for is continued in later ones, so that pools end where a batch is full.
    fn continues(&self) -> bool {
        false
    }

    /// The shape of batches, if they are rows of one shape.
    fn row_shape(&self) -> Option<RowShape> {
        None
    }

    /// The number of elements that batches take of a sample of this size, in all of its parts.
    fn count_taken(&self, size: u32) -> u32 {
        size.min(self.limit(None).filter(|_| !self.splits()).unwrap_or(u32::MAX))
    }

    /// Returns true if the budget counts elements without padding.
    fn counts_real(&self) -> bool {
        false
    }

    /// Returns true if samples may differ in several dimensions.
    fn takes_dimensions(&self) -> bool {
        true
    }

    /// The number that padded lengths are a multiple of.
    fn multiple_of(&self) -> u32 {
        1
    }

    /// The largest number of elements in a batch, if there is a limit. `sizes` are those of all samples of the dataset:
    /// of several budgets, the one of the elements counts.
    fn budget(&self, _sizes: Option<&Sizes>) -> Option<u64> {
        None
    }

    /// The budgets with names, if there are some.
    fn budgets(&self) -> Option<&Budgets> {
        None
    }

    /// The largest number of elements of a sample that is not too large, if there is a limit.
    /// `sizes` are as for [`budget`](Self::budget).
    fn largest(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.budget(sizes)
    }

    /// The largest number of elements of a sample that one batch takes, if longer samples are truncated or split.
    /// `sizes` are as for [`budget`](Self::budget).
    fn limit(&self, _sizes: Option<&Sizes>) -> Option<u32> {
        None
    }

    /// Checks that no sample exceeds a budget with a name, if the rule refuses such samples.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the first sample that does.
    fn check_budgets(&self, _budgeted: &Budgeted) -> Result<()> {
        Ok(())
    }

    /// The first sample that is larger than a batch may be, if the rule refuses such samples.
    fn find_oversize(&self, _sizes: &Sizes) -> Option<usize> {
        None
    }

    /// The number of parts that all samples together are split into, or 0 if samples are not split.
    fn count_parts(&self, _sizes: &Sizes) -> u64 {
        0
    }

    /// Checks that the rule names samples of a dataset of `samples`, if it names some.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such sample.
    fn check_lists(&self, _samples: u64) -> Result<()> {
        Ok(())
    }

    /// This rule for batches that are not padded: its budget counts real elements.
    fn count_real_elements(self) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// This rule with pools of the default size, if it sorts pools of a number that was given.
    fn with_auto_pool(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}
