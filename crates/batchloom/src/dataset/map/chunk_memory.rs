//! `ChunkMemory`: the memory for chunks that are held, and `ChunkCounts`: how it was used.

/// The memory for the chunks that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkMemory {
    /// The number of bytes for all chunks.
    pub(super) bytes: u64,
    /// The number of bytes of the largest chunk, at least 1.
    pub(super) largest: u64,
}

impl ChunkMemory {
    /// The memory for the chunks of two datasets together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), largest: self.largest.max(other.largest) }
    }

    /// The number of chunks that it holds.
    pub(super) fn chunks(self) -> u64 {
        self.bytes / self.largest
    }

    /// The number of chunks to mix, of `all`: all if it holds them, otherwise four fifths of those that it holds, so that
    /// the rest are read early. `None` if it holds neither all nor [`LEAST_CHUNKS`].
    pub(super) fn chunks_open(self, all: u64) -> Option<u64> {
        match self.chunks() {
            chunks if chunks >= all => Some(all.max(1)),
            chunks if chunks < LEAST_CHUNKS => None,
            chunks => Some(chunks - (chunks / 5).max(LEAST_CHUNKS - 1)),
        }
    }
}

/// The bytes of one chunk, by what they grow with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkBytes {
    /// The bytes that grow with the number of samples.
    pub rows: u64,
    /// The bytes that grow with the sizes of samples.
    pub lists: u64,
}

impl ChunkBytes {
    /// The bytes of a chunk that were not told apart.
    pub(super) fn of_rows(rows: u64) -> Self {
        Self { rows, lists: 0 }
    }

    /// The bytes of all fields.
    pub(super) fn sum(self) -> u64 {
        self.rows.saturating_add(self.lists)
    }

    /// The bytes of another chunk, by the sum of its sizes and its number of samples. `of` has these two numbers for this
    /// chunk.
    pub(super) fn scale(self, (sizes, samples): (u64, u64), of: (u64, u64)) -> u64 {
        let scaled = |bytes: u64, count: u64, of: u64| {
            let scaled = u128::from(bytes) * u128::from(count) / u128::from(of.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        scaled(self.rows, samples, of.1).saturating_add(scaled(self.lists, sizes, of.0))
    }
}

/// The least number of chunks that memory holds: one to mix, and those that the blocks ahead need.
pub(super) const LEAST_CHUNKS: u64 = 5;

/// The counts of a store of chunks so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkCounts {
    /// The chunks that were read, each time that they were.
    pub read: u64,
    /// The most chunks that were held, or were being read, at once.
    pub most_held: u64,
    /// The most bytes of chunks that were held at once, as arrays count them.
    pub most_bytes: u64,
    /// The bytes of the largest chunk that was read.
    pub largest: u64,
    /// The chunks that left while batches needed them, as memory was full: they are read again.
    pub left_early: u64,
}
