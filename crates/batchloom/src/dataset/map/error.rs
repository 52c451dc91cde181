//! Causes of errors about the options of samples that are made on demand. What is wrong with a sample is a
//! [`ReadError`](crate::error::ReadError).

use super::chunk_memory::LEAST_CHUNKS;
use crate::error::causes;

causes! {
    /// The causes of errors about datasets of samples that are made on demand.
    enum MapCause {
        #[error(
            "field {field}: it is as long as the size of its sample, and it has a slot; expected one of the two"
        )]
        SlotOfColumn { field: String } is Argument of "slot",
        #[error(
            "a field of samples is named {field}, which batches use themselves; expected another name, or samples \
             without it"
        )]
        OwnName { field: String } is Data,
        /// Chunks are read once, in the order of a plan.
        #[error(
            "sample {sample} is selected after sample {before}, and samples are read in chunks; expected each sample once, \
             in the order in which they are stored: sort the numbers, or select from mapped files, as `batchloom convert \
             FILES --out FOLDER --to arrow` writes them"
        )]
        ChunkOrder { sample: u64, before: u64 } is Argument,
        #[error(
            "memory is {bytes} bytes, and a chunk takes up to {largest}; expected memory for at least {} chunks, which is \
             {} bytes, or smaller chunks",
            LEAST_CHUNKS,
            LEAST_CHUNKS.saturating_mul(*largest)
        )]
        ChunkMemory { bytes: u64, largest: u64 } is Argument of "memory",
        /// The sum of some limits would limit no dataset without one.
        #[error(
            "memory is {bytes} bytes for the chunks of dataset {limited}, and there is none for those of dataset \
             {unlimited}; expected memory for each dataset, or for none: what all have together is the limit"
        )]
        PartlyLimited { limited: usize, bytes: u64, unlimited: usize } is Argument of "memory",
    }
}
