//! `InChunks`: the chunks that samples are read in, as a plan has to know them, and the counts of those that were read.

use super::error::MapCause;
use crate::Result;
use crate::dataset::Selection;
use crate::order::Chunks;

/// The chunks that samples are read in.
#[derive(Debug, Clone)]
pub(crate) struct InChunks {
    pub(crate) chunks: Chunks,
    /// The number of chunks that are mixed at a time; `None` for the default of plans.
    pub(crate) open: Option<u64>,
}

impl InChunks {
    /// The chunks of selected samples, in the order in which they are stored.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if samples are selected in another order, or twice.
    pub(super) fn select(&self, selection: &Selection) -> Result<Self> {
        let (mut sizes, mut last) = (vec![0; usize::try_from(self.chunks.len()).unwrap_or(0)], None);
        for sample in selection.iter() {
            if last.is_some_and(|last| last >= sample) {
                return Err(MapCause::ChunkOrder { sample, before: last.unwrap_or(0) }.into());
            }
            last = Some(sample);
            if sample < self.chunks.samples() {
                sizes[usize::try_from(self.chunks.chunk_of(sample)).unwrap_or(0)] += 1;
            }
        }
        Ok(Self { chunks: Chunks::new(sizes), open: self.open })
    }
}

/// The counts of a store of chunks so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkCounts {
    /// The chunks that were read, each time that they were.
    pub read: u64,
    /// The most chunks that were held, or were being read, at once.
    pub most_held: u64,
}
