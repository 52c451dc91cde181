//! Causes of errors about the options of plans, about places in them, and about states to go on from.

use crate::error::causes;

causes! {
    /// The causes of errors about plans, which runs and loaders raise too.
    enum PlanCause {
        #[error("{found} samples are more than this version can order; expected at most {limit} (2^62)")]
        TooManySamples { found: u64, limit: u64 } is Data,
        #[error("world_size is {found}; expected the number of processes, 1 to {limit}")]
        World { found: u32, limit: u32 } is Argument of "world_size",
        #[error("rank is {rank} in a world of {world_size}; expected 0 <= rank < {world_size}")]
        Rank { rank: u32, world_size: u32 } is Argument of "rank",
        #[error("step {found} is outside the plan; expected 0 <= step < {steps}")]
        StepRange { found: u64, steps: u64 } is Range of "step",
        #[error("update {found} is outside the plan; expected 0 <= update < {updates}")]
        UpdateRange { found: u64, updates: u64 } is Range of "update",
        #[error(
            "balance_within is {within:?}, and {missing}; expected balance, and an accumulate of at least 2, the steps of \
             an update"
        )]
        NoUpdates { within: &'static str, missing: &'static str } is Argument of "balance_within",

        /// Two choices exclude each other. The option is the name of the first, if it is an argument.
        #[error("{choice} does not go with {other}: {reason}")]
        Conflict {
            option: Option<&'static str>,
            choice: &'static str,
            other: &'static str,
            reason: &'static str,
        } is Argument,
        #[error("{found} weights are given for {samples} samples; expected one for each")]
        WeightCount { found: u64, samples: u64 } is Argument of "weights",
        #[error("{option} has {found} keys for {expected} samples; expected one for each")]
        KeysLength { option: &'static str, found: u64, expected: u64 } is Argument,
        #[error("homogeneous_by has {columns} keys a sample; expected one, which all samples of a batch have")]
        SeveralKeys { columns: usize } is Argument of "homogeneous_by",
        #[error("surplus is \"drop\", and there is no distinct_by; expected keys, or surplus \"error\"")]
        SurplusWithoutKeys is Argument of "surplus",
        #[error(
            "shard_size is {found}; expected a multiple of the batch size, which is {batch_size}, so that no batch \
             lies in two shards: {}",
            name_nearest(*.found, *.batch_size)
        )]
        ShardSize { found: u64, batch_size: u64 } is Argument of "shard_size",
        #[error(
            "per_class is {per_class}, and there are no classes of equal weight; expected the class of each sample in \
             balanced_by"
        )]
        NoClasses { per_class: u64 } is Argument of "per_class",
        #[error(
            "batch_size is {found}; expected a multiple of per_class, which is {per_class}, so that each class of a \
             batch has as many samples: {}",
            name_nearest(*.found, *.per_class)
        )]
        PerClass { found: u64, per_class: u64 } is Argument of "batch_size",
        #[error(
            "num_samples is {found}; expected a multiple of batch_size, which is {batch_size}, so that each batch has \
             {per_class} samples of each of its classes: {}",
            name_nearest(*.found, *.batch_size)
        )]
        WholeBatches { found: u64, batch_size: u64, per_class: u64 } is Argument of "num_samples",
        #[error(
            "chunks hold {found} samples in {chunks} chunks, and there are {samples} samples; expected sizes of chunks \
             that add up to the number of samples"
        )]
        ChunksLength { found: u64, chunks: u64, samples: u64 } is Argument of "chunks",
        #[error(
            "chunks_open is {open}, and the samples lie in no chunks; expected the sizes of chunks in chunks, or leave \
             it out"
        )]
        OpenWithoutChunks { open: u64 } is Argument of "chunks_open",
        #[error("{rule} decides by size, and the samples have none; use FixedSize, or data with sizes")]
        NoSizes { rule: &'static str } is Argument of "rule",
        /// Sizes decide which samples share a batch.
        #[error(
            "shuffling runs needs FixedSize and samples of one size, so that neighbours share a batch; found {rule} \
             over samples that differ in size: shuffle samples instead"
        )]
        RunsOfSizes { rule: &'static str } is Argument of "shuffle",
        #[error("lists of samples are given, but {rule} makes batches; expected the rule Listed")]
        NotListed { rule: &'static str } is Argument of "rule",

        #[error(
            "pad_to does not go with this: samples have no sizes here; give sizes if they differ in size, or leave it \
             out"
        )]
        PadToWithoutSizes is Argument of "pad_to",
        #[error(
            "pad_to does not go with this: these samples differ in {dimensions} dimensions; expected one, or a slot \
             for each field"
        )]
        PadToDimensions { dimensions: usize } is Argument of "pad_to",
        #[error(
            "pad_to does not go with this: these batches are concatenations, which have no padding; leave it out"
        )]
        PadToPacked is Argument of "pad_to",
        #[error(
            "pad_to does not go with this: {rule} truncates samples itself; expected oversize \"error\" beside pad_to"
        )]
        PadToTruncated { rule: &'static str } is Argument of "pad_to",
        #[error(
            "pad_to does not go with this: {length} is no multiple of multiple_of ({multiple_of}); leave one of them \
             out"
        )]
        PadToMultiple { length: u32, multiple_of: u32 } is Argument of "pad_to",

        #[error(
            "drop_last leaves no batch: {samples} samples have {tokens} elements, and a full batch has {batch}; use fewer \
             or shorter rows, or turn drop_last off"
        )]
        NoFullBatch { samples: u64, tokens: u64, batch: u64 } is Argument of "drop_last",
        #[error(
            "drop_last leaves no step: {samples} samples make {batches} full batches{}, fewer than one for each of \
             {world_size} ranks; use smaller batches, or turn drop_last off",
            .batch_size.map(|size| format!(" of {size}")).unwrap_or_default()
        )]
        NothingLeft {
            samples: u64,
            batch_size: Option<u64>,
            batches: u64,
            world_size: u32,
        } is Argument of "drop_last",
        #[error(
            "oversize drops all {samples} samples, because they exceed max_tokens ({max_tokens}); raise max_tokens, or \
             set oversize to truncate"
        )]
        AllDropped { samples: u64, max_tokens: u64 } is Argument of "oversize",

        #[error("there are {results} results for {samples} samples; expected one for each")]
        Results { results: usize, samples: usize } is Data,
        #[error("sample {sample} has no result; expected one for each sample")]
        MissingResult { sample: u64 } is Data,
    }
}

causes! {
    /// The causes of errors about states.
    enum StateCause {
        #[error("the state has format version {found}; this release reads version {expected}")]
        Version { found: u32, expected: u32 } is State,
        #[error(
            "the state belongs to another plan: its fingerprint is {found}, this plan's is {expected}; expected the \
             same number of samples, batch rule, shuffle, drop_last, uneven and balance (with its cost model) as when \
             it was saved; for data in chunks, the same number of samples in each chunk; for a mixture, the same names \
             of sources, when_exhausted, and chunks_open or memory of each; and, for a stream of tokens, the same \
             documents, seq_len and separator, and as many ranks if its rows continue from batch to batch"
        )]
        Fingerprint { found: String, expected: String } is State,
        /// The numbers of chunks that are open at a time, where there are chunks.
        #[error(
            "the run of the state mixes {}, and this plan {}; expected the same chunks, and the same chunks_open or \
             memory as when it was saved",
            name_open(*.found), name_open(*.expected)
        )]
        ChunksOpen { found: Option<u64>, expected: Option<u64> } is State of "chunks_open",
        /// The digests of the lists.
        #[error(
            "the epoch that the state interrupted had other batches: the digest of their lists is {found}, and the \
             digest of the present lists is {expected}; expected lists that depend on nothing but the epoch, so that \
             they come again"
        )]
        Lists { found: String, expected: String } is State,
        /// The digests of the weights, if there are some.
        #[error(
            "the epoch under way was drawn {}, and samples are drawn {} now; expected the same until the epoch ends",
            name_weights(.found), name_weights(.expected)
        )]
        Weights { found: Option<String>, expected: Option<String> } is State,
        /// The plan says nothing of bans.
        #[error(
            "the state bans {found} samples{}, and here no ban is given; expected a list: the same, another one, or an \
             empty one to lift the ban",
            .sample.map(|first| format!(", the first of them {first}")).unwrap_or_default()
        )]
        Bans { found: usize, sample: Option<u64> } is State of "ban",

        #[error("the state is damaged: {digest} is {found:.80?}; expected 32 hexadecimal digits")]
        DamagedDigest { digest: &'static str, found: String } is State,
        #[error("the state is damaged: it holds no weights of sources; expected some for a mixture")]
        DamagedMixture is State,
        #[error("the state is damaged: {reason}")]
        DamagedWeights { reason: String } is State,
        #[error("the state is damaged: its bans are not in order; expected them to begin one after the other")]
        DamagedBans is State,
        #[error("the state is damaged: its banned samples are not in order; expected them to rise")]
        DamagedBan is State,
        #[error("the state is damaged: it bans sample {sample}, and there are {samples}; expected a sample below that")]
        DamagedBanRange { sample: u64, samples: u64 } is State,
        #[error(
            "the state is damaged: it holds {found} batches, but its worlds add up to {expected}; expected the same \
             number"
        )]
        DamagedBatches { found: u64, expected: u64 } is State,
        #[error("the state is damaged: it holds steps of a world of {world_size}; expected 1 to {limit} ranks")]
        DamagedWorld { world_size: u32, limit: u32 } is State,
        #[error(
            "the state is damaged: it holds {steps} steps in a world of {world_size}, but {left} were left; expected \
             at most these"
        )]
        DamagedSteps { steps: u64, world_size: u32, left: u64 } is State,
    }
}

impl PlanCause {
    /// The error of two choices that exclude each other. Words for a choice have spaces; the name of an argument has none.
    pub(crate) fn conflict(choice: &'static str, other: &'static str, reason: &'static str) -> Self {
        let option = Some(choice).filter(|choice| !choice.contains(' '));
        Self::Conflict { option, choice, other, reason }
    }
}

/// Weights as a message names them.
fn name_weights(digest: &Option<String>) -> String {
    digest.as_ref().map_or("without weights".to_owned(), |digest| format!("by weights of digest {digest}"))
}

/// The number of chunks that are open at a time, as a message names it.
fn name_open(open: Option<u64>) -> String {
    open.map_or("no chunks".to_owned(), |open| {
        format!("{open} chunk{} at a time", if open == 1 { "" } else { "s" })
    })
}

/// The multiples of `step` next to `number`, without 0.
fn name_nearest(number: u64, step: u64) -> String {
    let below = number - number % step;
    match (below, below.checked_add(step)) {
        (0, above) => format!("{}", above.unwrap_or(step)),
        (below, Some(above)) => format!("{below} or {above}"),
        (below, None) => format!("{below}"),
    }
}
