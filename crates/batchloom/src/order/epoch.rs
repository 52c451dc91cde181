//! The order of the samples in one epoch: as stored, or shuffled.

use super::{Key, Permutation};

/// The order of the samples in one epoch. O(1) in memory and in time to make.
#[derive(Debug, Clone)]
pub struct Order {
    samples: u64,
    /// None where position `k` holds sample `k`.
    permutation: Option<Permutation>,
}

impl Order {
    /// The order of `samples` samples: shuffled by `key`, or as stored where there is none.
    ///
    /// # Panics
    /// As [`Permutation::new`].
    pub fn new(samples: u64, key: Option<&Key>) -> Self {
        Self { samples, permutation: key.map(|key| Permutation::new(samples, key)) }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Where `position` is not below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        match &self.permutation {
            Some(permutation) => permutation.get(position),
            None => {
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
        match &self.permutation {
            Some(permutation) => permutation.fill(start, out),
            None => {
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
        match &self.permutation {
            Some(permutation) => permutation.find(sample),
            None => {
                assert!(sample < self.samples, "sample {sample} is not below {}", self.samples);
                sample
            }
        }
    }
}
