//! The order of the samples in one epoch: as stored, shuffled, or shuffled shard by shard.

use super::{Key, Permutation, Shards};

/// The order of the samples in one epoch. O(1) in memory and in time to make.
#[derive(Debug, Clone)]
pub struct Order {
    samples: u64,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    /// Position `k` holds sample `k`.
    Stored,
    Shuffled(Permutation),
    Sharded(Shards),
}

impl From<Shards> for Order {
    fn from(shards: Shards) -> Self {
        Self { samples: shards.len(), way: Way::Sharded(shards) }
    }
}

impl Order {
    /// The order of `samples` samples: shuffled by `key`, or as stored where there is none.
    ///
    /// # Panics
    /// As [`Permutation::new`].
    pub fn new(samples: u64, key: Option<&Key>) -> Self {
        let shuffled = |key| Way::Shuffled(Permutation::new(samples, key));
        Self { samples, way: key.map_or(Way::Stored, shuffled) }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The shards that samples are shuffled in, where they are.
    pub fn shards(&self) -> Option<&Shards> {
        match &self.way {
            Way::Sharded(shards) => Some(shards),
            _ => None,
        }
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Where `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        match &self.way {
            Way::Shuffled(permutation) => permutation.get(position),
            Way::Sharded(shards) => shards.get(position),
            Way::Stored => {
                assert!(position < self.samples, "position {position} is not below {}", self.samples);
                position
            }
        }
    }

    /// The samples at positions `start`, `start + 1`, and so on, as many as `out` holds.
    ///
    /// # Panics
    /// Where a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        match &self.way {
            Way::Shuffled(permutation) => permutation.fill(start, out),
            Way::Sharded(shards) => shards.fill(start, out),
            Way::Stored => {
                assert!(
                    start + out.len() as u64 <= self.samples,
                    "positions from {start} leave {}",
                    self.samples
                );
                out.iter_mut().zip(start..).for_each(|(sample, position)| *sample = position);
            }
        }
    }

    /// The position of `sample`.
    ///
    /// # Panics
    /// Where `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        match &self.way {
            Way::Shuffled(permutation) => permutation.find(sample),
            Way::Sharded(shards) => shards.find(sample),
            Way::Stored => {
                assert!(sample < self.samples, "sample {sample} is not below {}", self.samples);
                sample
            }
        }
    }
}
