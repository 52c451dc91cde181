//! Causes of errors about micro-batches.

use crate::error::causes;

causes! {
    /// The causes of errors about the options of a planner, and about samples that it cannot plan.
    enum MicroBatchCause {
        #[error("{option} is 0; expected at least 1")]
        NotPositive { option: &'static str } is Argument,
        #[error("world_size is {found}; expected the number of processes, 1 to {limit}")]
        World { found: u32, limit: u32 } is Argument of "world_size",
        #[error(
            "multiple_of is {multiple_of}, more than max_tokens ({max_tokens}), so no sample of length 1 fits; use a \
             smaller multiple_of"
        )]
        Multiple { multiple_of: u32, max_tokens: u64 } is Argument of "multiple_of",
        #[error(
            "{found} micro-batches of {world_size} ranks are more than this version can plan; expected at most {limit} \
             in all: use fewer micro-batches or larger ones"
        )]
        TooMany { found: u64, world_size: u32, limit: u64 } is Argument,
        #[error("count is {count}, less than least ({least}); expected a count of at least as many micro-batches")]
        CountBelowLeast { count: u32, least: u32 } is Argument of "count",
        #[error("count is {count}; expected a multiple of count_multiple_of, which is {multiple}")]
        CountMultiple { count: u32, multiple: u32 } is Argument of "count",
        #[error(
            "count is {count}, and the oldest samples, from sample {sample} on, need {needed} micro-batches on a rank; \
             expected a count of at least as many"
        )]
        CountTooSmall { count: u32, needed: u64, sample: u64 } is Argument of "count",
        #[error("groups are given, and whole is not; expected whole to be \"rank\" or \"micro_batch\"")]
        GroupsWithoutWhole is Argument of "whole",
        #[error("whole is {whole:?}, and there are no groups; expected the group of each sample in groups")]
        WholeWithoutGroups { whole: &'static str } is Argument of "groups",

        #[error("{found} samples are more than this version can plan; expected fewer than {limit} (2^32)")]
        TooManySamples { found: u64, limit: u64 } is Data of "lengths",
        #[error("{option} holds {found} values for {samples} samples; expected one for each")]
        ValuesLength { option: &'static str, found: u64, samples: u64 } is Data,
        #[error(
            "sample {sample} has length {length}, which{} exceeds max_tokens ({max_tokens}); raise max_tokens, or set \
             oversize to \"alone\" or \"drop\"",
            if *.multiple_of > 1 { format!(", rounded up to a multiple of {multiple_of},") } else { String::new() }
        )]
        Oversize { sample: u64, length: u32, multiple_of: u32, max_tokens: u64 } is Data of "max_tokens",
        #[error(
            "the group of sample {sample} has {tokens} tokens in {samples} samples, and a micro-batch holds {max_tokens} \
             tokens{}; raise the limit, set whole to \"rank\", or set oversize to \"alone\" or \"drop\"",
            .max_samples.map_or_else(String::new, |most| format!(" in at most {most} samples"))
        )]
        OversizeGroup {
            sample: u64,
            tokens: u64,
            samples: u64,
            max_tokens: u64,
            max_samples: Option<u32>,
        } is Data of "max_tokens",
        #[error(
            "the group of sample {sample} has samples of several classes; expected one class in a group that a \
             micro-batch takes whole, or whole set to \"rank\""
        )]
        MixedGroup { sample: u64 } is Data of "classes",
        #[error(
            "equal_samples is set, and {samples} samples do not divide among {world_size} ranks; expected a multiple \
             of world_size"
        )]
        EqualSamples { samples: u64, world_size: u32 } is Data of "equal_samples",
        #[error(
            "equal_samples is set, and the group of sample {sample} has {found} samples where the first group has \
             {expected}; expected groups of one size"
        )]
        EqualGroups { sample: u64, found: u64, expected: u64 } is Data of "equal_samples",
        #[error(
            "equal_samples is set, and {groups} groups do not divide among {world_size} ranks; expected a multiple of \
             world_size"
        )]
        EqualGroupCount { groups: u64, world_size: u32 } is Data of "equal_samples",
    }
}
