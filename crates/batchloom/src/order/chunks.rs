//! The borders of chunks: runs of neighbours as stored, each read as a whole.
//!
//! Promise: chunks may have any sizes, 0 and 1 included, and 8 bytes are kept for each.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

/// The chunks that samples are stored in, shared: the first chunk holds the first samples, the second the next ones,
/// and so on.
///
/// ```
/// use batchloom::order::Chunks;
///
/// let chunks = Chunks::new([100, 0, 50]);
/// assert_eq!((chunks.len(), chunks.samples()), (3, 150));
/// assert_eq!(chunks.range(2), 100..150);
/// assert_eq!(chunks.chunk_of(100), 2);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Chunks {
    /// The number of samples in each chunk and in all chunks before it.
    ends: Arc<[u64]>,
    digest: u128,
}

crate::brief::debug_in_brief!(Chunks, [], [ends]);

impl Chunks {
    /// Chunks of these numbers of samples, as stored. A sum that exceeds 64 bits stays at their limit, which no plan
    /// has as its number of samples.
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let sum = |end: &mut u64, size: u64| {
            *end = end.saturating_add(size);
            Some(*end)
        };
        let ends: Arc<[u64]> = sizes.into_iter().scan(0, sum).collect();
        let digest = xxh3_128(bytemuck::cast_slice(&ends));
        Self { ends, digest }
    }

    /// The number of chunks.
    pub fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns true if there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of samples in all chunks.
    pub fn samples(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The number of samples in each chunk.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        (0..self.ends.len())
            .map(|chunk| self.ends[chunk] - chunk.checked_sub(1).map_or(0, |last| self.ends[last]))
    }

    /// The samples of `chunk`.
    ///
    /// # Panics
    /// Panics if there is no such chunk.
    pub fn range(&self, chunk: u64) -> Range<u64> {
        let end = |chunk: u64| self.ends[index(chunk)];
        chunk.checked_sub(1).map_or(0, end)..end(chunk)
    }

    /// The chunk that holds `sample`.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`samples`](Self::samples).
    pub fn chunk_of(&self, sample: u64) -> u64 {
        assert!(sample < self.samples(), "sample {sample} is not below {}", self.samples());
        self.ends.partition_point(|&end| end <= sample) as u64
    }

    /// A name for the borders, of 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

/// The number of something that is in memory, as an index.
pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
