//! Answers of a plan: what a step delivers, and where a sample comes.

/// One step: `world_size` batches, one for each rank, taken at the same time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The number of the step in the plan.
    pub index: u64,
    /// The number of samples over all ranks: the divisor of a loss that is averaged over samples.
    pub samples: u64,
    /// The number of elements over all ranks, without padding.
    pub tokens: u64,
    /// The number of labels over all ranks that losses do not ignore: the divisor of a loss that is averaged over
    /// labels. `None` if the plan knows neither that the loader makes labels nor their
    /// [counts](crate::batching::LabelCounts).
    pub labels: Option<u64>,
    /// The number of samples of each batch that count: all of them, unless some only fill up ([`Uneven::Mask`](crate::ranks::Uneven::Mask)), which
    /// come last in `batches`, or are [banned](crate::Plan::banned). These are in no other number here.
    pub counts: Vec<u64>,
    /// The samples of each batch, one batch for every rank that takes part.
    pub batches: Vec<Vec<u64>>,
}

/// The place of a sample in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Place {
    /// The step that delivers the sample.
    pub step: u64,
    /// The rank that takes its batch.
    pub rank: u32,
    /// The index of the sample in the batch.
    pub index: u64,
}
