//! Keys: the seeds of shuffles, independent of each other.
//!
//! A key is the key of a ChaCha8 stream that spells out (seed, epoch, purpose, version). The four are kept apart, never
//! added up: the second epoch of one run is never the first of another, and no purpose repeats the shuffle of another.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};

/// The generator of random numbers for one sample.
pub type SampleRng = ChaCha8Rng;

/// The version of the algorithm. It is part of every key, fingerprint and state.
pub const VERSION: u32 = 1;

/// The purpose of a shuffle. Each purpose has its own, independent shuffle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The order of the samples in an epoch.
    Samples,
    /// The order of the batches of one pool.
    Batches {
        /// The number of the pool.
        pool: u64,
    },
    /// The order of batches that are runs of neighbours.
    Runs,
    /// The order of documents in a stream.
    Documents,
    /// The choice of rows from a group that has too many.
    Rows {
        /// The number of the group.
        group: u64,
    },
    /// The order of shards, of samples or of runs.
    Shards,
    /// The place of the short shard among all shards.
    ShortShard,
    /// The order inside one shard.
    Shard {
        /// The number of the shard, as stored.
        number: u64,
    },
    /// The sample at which runs of neighbours begin.
    Offset,
    /// The token at which the pieces of a stream begin.
    Jitter,
    /// The samples of the parts of a split.
    Split,
    /// The draws of samples that have weights.
    Weights,
    /// A pass over the samples of one of several sources.
    Source {
        /// The number of the source.
        number: u64,
    },
    /// The order in which sources of the same weight take turns.
    Turns,
    /// The order of classes, or of the samples of a class, around a circle.
    Circle {
        /// The number of the circle.
        number: u64,
    },
    /// The order of what a pass around a circle takes in whole groups.
    Pass {
        /// The number of the circle.
        number: u64,
    },
    /// The augmentation of one sample.
    Sample {
        /// The number of the sample.
        number: u64,
    },
    /// The slots that hold one sample in a batch.
    Slot {
        /// The number of the sample.
        number: u64,
    },
    /// The order of chunks.
    Chunks,
    /// The order inside one chunk.
    Chunk {
        /// The number of the chunk, as stored.
        number: u64,
    },
    /// The order of the samples that a window over chunks mixes at a time.
    ChunkSlot {
        /// The number of the slot.
        number: u64,
    },
}

impl Purpose {
    /// The number that stands for the purpose in a key. Part of the promise of [`VERSION`].
    fn code(self) -> u32 {
        match self {
            Self::Samples => 1,
            Self::Batches { .. } => 2,
            Self::Runs => 3,
            Self::Rows { .. } => 4,
            Self::Documents => 5,
            Self::Shards => 6,
            Self::ShortShard => 7,
            Self::Shard { .. } => 8,
            Self::Sample { .. } => 9,
            Self::Offset => 10,
            Self::Jitter => 11,
            Self::Split => 12,
            Self::Weights => 13,
            Self::Source { .. } => 14,
            Self::Turns => 15,
            Self::Circle { .. } => 16,
            Self::Pass { .. } => 17,
            Self::Slot { .. } => 18,
            Self::Chunks => 19,
            Self::Chunk { .. } => 20,
            Self::ChunkSlot { .. } => 21,
        }
    }

    /// The number that separates the shuffles of this purpose.
    fn number(self) -> u64 {
        match self {
            Self::Samples
            | Self::Runs
            | Self::Documents
            | Self::Shards
            | Self::ShortShard
            | Self::Offset
            | Self::Jitter
            | Self::Split
            | Self::Weights
            | Self::Turns
            | Self::Chunks => 0,
            Self::Batches { pool } => pool,
            Self::Rows { group } => group,
            Self::Shard { number }
            | Self::Sample { number }
            | Self::Source { number }
            | Self::Circle { number }
            | Self::Pass { number }
            | Self::Slot { number }
            | Self::Chunk { number }
            | Self::ChunkSlot { number } => number,
        }
    }
}

/// One epoch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RunEpoch {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
}

impl RunEpoch {
    /// The generator for `purpose` in this epoch, the same on every platform.
    pub(crate) fn generator(self, purpose: Purpose) -> SampleRng {
        Key::new(self.seed, self.epoch, purpose).stream()
    }

    /// The numbers that a generator of a front end starts from: the first two of the generator for `purpose`.
    pub(crate) fn key_numbers(self, purpose: Purpose) -> [u64; 2] {
        let mut rng = self.generator(purpose);
        [rng.next_u64(), rng.next_u64()]
    }
}

/// The key of one shuffle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key for `purpose` in `epoch` of the run `seed`.
    pub fn new(seed: u64, epoch: u64, purpose: Purpose) -> Self {
        let mut key = [0; 32];
        key[0..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&epoch.to_le_bytes());
        key[16..20].copy_from_slice(&purpose.code().to_le_bytes());
        key[20..24].copy_from_slice(&VERSION.to_le_bytes());
        key[24..32].copy_from_slice(&purpose.number().to_le_bytes());
        Self(key)
    }

    /// The stream of numbers that this key stands for, the same on every platform.
    pub(crate) fn stream(&self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }
}
