//! The order of the samples in one epoch: as stored, shuffled, shuffled shard by shard, or by a window over chunks.

use super::{ChunkWindow, Key, Permutation, Shards};

/// The order of the samples in one epoch. It takes O(1) memory, and O(1) time to make, unless it has a window over
/// chunks.
#[derive(Debug, Clone)]
pub struct Order {
    samples: u64,
    arrangement: Arrangement,
}

#[derive(Debug, Clone)]
enum Arrangement {
    /// Position `k` holds sample `k`.
    Stored,
    Shuffled(Permutation),
    Sharded(Shards),
    Windowed(ChunkWindow),
}

impl From<Shards> for Order {
    fn from(shards: Shards) -> Self {
        Self { samples: shards.len(), arrangement: Arrangement::Sharded(shards) }
    }
}

impl From<ChunkWindow> for Order {
    fn from(window: ChunkWindow) -> Self {
        Self { samples: window.len(), arrangement: Arrangement::Windowed(window) }
    }
}

impl Order {
    /// The order of `samples` samples: shuffled by `key`, or as stored without a key.
    ///
    /// # Panics
    /// Panics if `samples` exceeds [`LIMIT`](super::LIMIT) and there is a key.
    pub fn new(samples: u64, key: Option<&Key>) -> Self {
        let shuffled = |key| Arrangement::Shuffled(Permutation::new(samples, key));
        Self { samples, arrangement: key.map_or(Arrangement::Stored, shuffled) }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The shards, if samples are shuffled shard by shard.
    pub fn shards(&self) -> Option<&Shards> {
        match &self.arrangement {
            Arrangement::Sharded(shards) => Some(shards),
            _ => None,
        }
    }

    /// The window over chunks, if samples are read chunk by chunk.
    pub fn chunk_window(&self) -> Option<&ChunkWindow> {
        match &self.arrangement {
            Arrangement::Windowed(window) => Some(window),
            _ => None,
        }
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        match &self.arrangement {
            Arrangement::Shuffled(permutation) => permutation.get(position),
            Arrangement::Sharded(shards) => shards.get(position),
            Arrangement::Windowed(window) => window.get(position),
            Arrangement::Stored => {
                assert!(position < self.samples, "position {position} is not below {}", self.samples);
                position
            }
        }
    }

    /// Fills `out` with the samples at positions `start`, `start + 1`, and so on.
    ///
    /// # Panics
    /// Panics if a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        match &self.arrangement {
            Arrangement::Shuffled(permutation) => permutation.fill(start, out),
            Arrangement::Sharded(shards) => shards.fill(start, out),
            Arrangement::Windowed(window) => window.fill(start, out),
            Arrangement::Stored => {
                assert!(
                    start + out.len() as u64 <= self.samples,
                    "positions from {start} leave {}",
                    self.samples
                );
                out.iter_mut().zip(start..).for_each(|(sample, position)| *sample = position);
            }
        }
    }

    /// The position of `sample`: the inverse of [`get`](Self::get).
    ///
    /// # Panics
    /// Panics if `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        match &self.arrangement {
            Arrangement::Shuffled(permutation) => permutation.find(sample),
            Arrangement::Sharded(shards) => shards.find(sample),
            Arrangement::Windowed(window) => window.find(sample),
            Arrangement::Stored => {
                assert!(sample < self.samples, "sample {sample} is not below {}", self.samples);
                sample
            }
        }
    }
}
