//! The choices of a planner that have names.

use crate::named::named;

/// The places where ranks wait for each other, which decides what is balanced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncEvery {
    /// Ranks wait at every micro-batch, as with pipeline stages, expert parallelism or gradients that are reduced each time.
    #[default]
    MicroBatch,
    /// Ranks wait once, at the step of the optimizer.
    Update,
}

named!(SyncEvery, "sync", {
    "micro_batch" => MicroBatch,
    "update" => Update,
});

/// The treatment of a sample, or of a group that a micro-batch takes whole, that alone exceeds a micro-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OversizeSample {
    /// No plan is made, and the error names the first one.
    #[default]
    Error,
    /// It is a micro-batch alone. Only such micro-batches exceed the limits.
    Alone,
    /// It is left out, and listed.
    Drop,
}

named!(OversizeSample, "oversize", {
    "error" => Error,
    "alone" => Alone,
    "drop" => Drop,
});

/// The place that keeps the samples of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Whole {
    /// A rank takes all samples of a group, in one micro-batch or in several.
    Rank,
    /// A micro-batch takes all samples of a group.
    MicroBatch,
}

named!(Whole, "whole", {
    "rank" => Rank,
    "micro_batch" => MicroBatch,
});

impl Whole {
    /// The name of the choice.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::MicroBatch => "micro_batch",
        }
    }
}

/// The order of the micro-batches of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MicroBatchOrder {
    /// The costliest first: a lack of memory shows at once.
    #[default]
    LargestFirst,
    /// The cheapest at both ends, where the stages of a pipeline fill and drain.
    Ends,
}

named!(MicroBatchOrder, "order", {
    "largest_first" => LargestFirst,
    "ends" => Ends,
});
