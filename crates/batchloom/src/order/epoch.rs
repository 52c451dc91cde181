//! The order of the samples in one epoch: as stored, or shuffled.

use super::{Key, Permutation};

/// The order of the samples in one epoch. O(1) in memory and in time to make.
#[derive(Debug, Clone)]
pub enum Order {
    /// Position `k` holds sample `k`.
    Stored {
        /// How many samples there are.
        samples: u64,
    },
    /// Position `k` holds the sample that a keyed permutation puts there.
    Shuffled(Permutation),
}

impl Order {
    /// The order of `samples` samples: shuffled by `key`, or as stored where there is none.
    pub fn new(samples: u64, key: Option<&Key>) -> Self {
        match key {
            Some(key) => Self::Shuffled(Permutation::new(samples, key)),
            None => Self::Stored { samples },
        }
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        match self {
            Self::Stored { samples } => *samples,
            Self::Shuffled(permutation) => permutation.len(),
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples at positions `start`, `start + 1`, and so on, as many as `out` holds.
    ///
    /// # Panics
    /// Where a position is not below [`len`](Self::len).
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        match self {
            Self::Shuffled(permutation) => permutation.fill(start, out),
            Self::Stored { samples } => {
                assert!(start + out.len() as u64 <= *samples, "positions from {start} leave {samples}");
                out.iter_mut().zip(start..).for_each(|(sample, position)| *sample = position);
            }
        }
    }

    /// The position of `sample`.
    ///
    /// # Panics
    /// Where `sample` is not below [`len`](Self::len).
    pub fn find(&self, sample: u64) -> u64 {
        match self {
            Self::Shuffled(permutation) => permutation.find(sample),
            Self::Stored { samples } => {
                assert!(sample < *samples, "sample {sample} is not below {samples}");
                sample
            }
        }
    }
}
