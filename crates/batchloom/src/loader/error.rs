//! Causes of errors about the options of loaders, about the memory of blocks, and about threads.

use crate::error::causes;

causes! {
    /// The causes of errors about loaders.
    enum LoaderCause {
        #[error("num_threads is 0; expected at least 1")]
        Threads is Argument of "num_threads",
        #[error("{option} is set, which this kind of data does not have; expected {expected}")]
        Inapplicable { option: &'static str, expected: &'static str } is Argument,
        #[error("field {field}: index tables have no slots; expected blocks of samples")]
        SlotInTable { field: String } is Argument of "slot",
        #[error("own_lengths: index tables have one length for each sample; expected blocks of samples")]
        OwnLengthsInTable is Argument of "own_lengths",
        #[error("offset_by: index tables hold no indices of field {field}; expected blocks of samples")]
        OffsetInTable { field: String } is Argument of "offset_by",
        #[error(
            "loss is {loss:?}, and the number of labels of each sample is not known before its batch is formed; expected \
             label_counts, as count_labels of the dataset counts them, or numbers of your own"
        )]
        LossWithoutCounts { loss: &'static str } is Argument of "label_counts",
        #[error("batching: index tables have no rows of one shape, and no rests of samples; expected blocks of samples")]
        RowsInTable is Argument of "batching",
        #[error("loss: index tables hold no weights of labels; expected blocks of samples")]
        LossInTable is Argument of "loss",
        #[error("samples are banned, which does not go with {other}: {reason}")]
        Bans { other: &'static str, reason: &'static str } is Argument of "ban",
        #[error(
            "the function that reads a chunk iterates a loader over the same chunks, which would wait for the chunk for \
             ever; expected it to read from elsewhere, or from another dataset"
        )]
        ReadsItself is Runtime,
        #[error("the batch has no field {field}; expected one of {}", known.join(", "))]
        NoField { field: String, known: Vec<String> } is Argument,
        /// The fingerprints of the plan, and of the loader's plans with its seed.
        #[error(
            "the plan belongs to other data or has other options: its fingerprint is {found}, and the loader's plans \
             have {expected}; expected a plan that the loader returned, or the rest of one"
        )]
        ForeignPlan { found: String, expected: String } is Argument of "plan",

        /// Some of the data may be on the device already.
        #[error(
            "resident is True, and the data takes {needed} bytes, but {free} are free on {device}{}; set resident to \
             False, which copies blocks as they are needed, or to auto",
            if *.shared > 0 { format!(" (and {shared} of it are there already)") } else { String::new() }
        )]
        DeviceMemory { needed: u64, free: u64, shared: u64, device: String } is Device of "resident",
        /// The limit would set the size of shards.
        #[error(
            "resident is {bytes}, but {free} bytes are free on {device}; expected at most that: lower it, give a \
             shard_size, or set resident to False, which copies blocks as they are needed"
        )]
        ResidentBytes { bytes: u64, free: u64, device: String } is Device of "resident",
        #[error(
            "a shard of {samples} samples takes {bytes} bytes, and two of them have to fit into {limit}, the bytes that \
             resident allows; expected more, a smaller shard_size or smaller batches; or set resident to False"
        )]
        ShardTooLarge { samples: u64, bytes: u64, limit: u64 } is Argument of "resident",
        #[error(
            "the rows of a batch of {batch_size} windows take {batch_bytes} bytes, and two batches have to fit into \
             {limit}, the bytes that resident allows; expected more, or smaller batches"
        )]
        RowsBeyondLimit { batch_size: u64, batch_bytes: u64, limit: u64 } is Argument of "resident",
        #[error(
            "the rows of a batch of {batch_size} windows take {batch_bytes} bytes, and two batches have to fit into \
             {free}, the free memory of {device}; expected smaller batches"
        )]
        RowsBeyondDevice { batch_size: u64, batch_bytes: u64, free: u64, device: String } is Device of "batch_size",

        #[error(
            "could not start a worker thread: {reason}; expected room for one: take a smaller num_threads, or raise \
             the limit of threads (ulimit -u) or of memory (ulimit -v)"
        )]
        Spawn { reason: String } is Runtime of "num_threads",
        /// An invariant was broken.
        #[error("a worker failed while forming block {block}: {message}; please report this")]
        Worker { block: u64, message: String } is Runtime,
        #[error(
            "this iterator was started in process {started} and its threads do not exist in process {current}; start a \
             new iteration after the fork"
        )]
        Forked { started: u32, current: u32 } is Runtime,
    }
}
