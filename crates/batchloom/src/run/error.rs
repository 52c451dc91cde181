//! Causes of errors about runs, where they stand.

use crate::error::causes;

causes! {
    /// The causes of errors about runs.
    enum RunCause {
        /// Another rank is to be served in the middle of an epoch.
        #[error(
            "{taken} of {total} batches of epoch {epoch} were handed over to rank {} of {}, and now this is rank \
             {rank} of {world_size}; set epoch {epoch} to begin it anew, or epoch {} to go on with the next one, or \
             load the state to share what is left among the ranks of now",
            served.0, served.1, epoch.wrapping_add(1)
        )]
        MidEpoch {
            taken: u64,
            total: u64,
            epoch: u64,
            served: (u32, u32),
            rank: u32,
            world_size: u32,
        } is Runtime of "rank",
    }
}
