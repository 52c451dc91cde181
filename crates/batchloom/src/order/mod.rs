//! The order of the samples in one epoch.
//!
//! This module knows the number of samples, their chunks and a key, and nothing else. Everything here is a pure
//! function, takes O(1) memory (16 bytes for each chunk, if there are chunks) and can be asked for any position without
//! the ones before it.

mod chunk_window;
mod chunks;
mod key;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod order;
mod permutation;
mod shards;
mod shuffle;

pub(crate) use chunk_window::CHUNKS_OPEN;
pub use chunk_window::ChunkWindow;
pub use chunks::Chunks;
pub use key::{Key, Purpose, RunEpoch, SampleRng, VERSION};
pub use order::Order;
pub use permutation::{LIMIT, Permutation};
pub use shards::Shards;
pub use shuffle::Shuffle;
