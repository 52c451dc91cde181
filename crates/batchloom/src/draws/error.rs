//! Causes of errors about weights, and about the sources that samples are drawn from.

use crate::error::causes;

causes! {
    /// The causes of errors about draws.
    enum DrawsCause {
        #[error("the weight of {of} {place} is {weight}; expected a finite number, at least 0")]
        Weight { of: &'static str, place: usize, weight: f64 } is Argument of "weights",
        #[error("the weights of {count} {of}s sum to {total}; expected a finite sum above 0")]
        WeightSum { of: &'static str, count: usize, total: f64 } is Argument of "weights",
        #[error("there are {found} weights for {sources} sources; expected one for each")]
        WeightCount { found: usize, sources: usize } is Argument of "weights",
        /// Weights that were written down are read again.
        #[error("the units of weights begin with {first:?} and end with {last:?}; expected them to rise from 0")]
        Units { first: Option<u64>, last: Option<u64> } is Argument of "weights",
        #[error("the history has weights of {found} sources; expected weights of {sources} sources")]
        HistorySources { found: usize, sources: usize } is Argument of "weights",

        #[error(
            "the schedule has weights from {amount} on after weights from {last} on; expected amounts that increase"
        )]
        ScheduleOrder { amount: u64, last: u64 } is Argument of "schedule",
        #[error("the schedule has {found} weights for {sources} sources from {amount} on; expected one for each")]
        ScheduleCount { amount: u64, found: usize, sources: usize } is Argument of "schedule",

        #[error("source {name} has no {what}; expected some, or a weight of 0")]
        EmptySource { name: String, what: String } is Argument,
        #[error("there are {found} names for {sources} sources; expected one for each")]
        NameCount { found: usize, sources: usize } is Argument of "names",
        #[error("there are {found} windows over chunks for {sources} sources; expected one for each")]
        WindowCount { found: usize, sources: usize } is Argument of "chunks",
        #[error("the {chunks} chunks of source {name} hold {found} samples, and the source has {samples}; expected all of them")]
        SourceChunks { name: String, found: u64, chunks: u64, samples: u64 } is Argument of "chunks",
        #[error("chunks_open of source {name} is 0; expected at least 1")]
        NothingOpen { name: String } is Argument of "chunks_open",
        #[error("{found} samples have classes; expected 1 to {limit}")]
        Classes { found: usize, limit: u32 } is Argument of "balanced_by",
        #[error("there are {found} numbers of {by} for {samples} samples; expected one for each, and fewer than 2^32")]
        Measures { by: String, found: usize, samples: u64 } is Argument,
        #[error("there are {found} members for {samples} samples; expected one for each")]
        Members { found: usize, samples: u64 } is Argument,
        #[error(
            "to go through every source by {by}, an epoch would draw about {draws:.1e} samples; expected at most \
             {limit:.1e}: weights that differ less, or another end of the epoch"
        )]
        TooManyDraws { by: String, draws: f64, limit: f64 } is Argument of "weights",
    }
}
