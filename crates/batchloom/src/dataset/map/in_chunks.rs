//! `InChunks`: the chunks that samples are read in, as a plan has to know them, and how many of them are mixed.

use std::cmp::Reverse;

use super::chunk_memory::ChunkMemory;
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
    /// The number of chunks that the memory for them holds, if it has a limit.
    pub(crate) capacity: Option<u64>,
}

impl InChunks {
    /// The same chunks, which take at most `bytes` bytes of memory at a time, and that memory. `measure` finds the bytes
    /// of the largest one, by the sizes of its samples; if a chunk that cannot be read is `skipped`, of the largest one
    /// that can be read.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds neither all chunks nor [`LEAST_CHUNKS`] of them; and the
    /// error of the chunk.
    pub(super) fn with_memory(
        self,
        bytes: u64,
        sizes: Option<&[u32]>,
        measure: impl Fn(u64) -> Result<u64>,
        skipped: bool,
    ) -> Result<(Self, ChunkMemory)> {
        let index = |sample: u64| usize::try_from(sample).unwrap_or(usize::MAX);
        let size = |chunk: &u64| {
            let range = self.chunks.range(*chunk);
            let of_all = sizes.and_then(|sizes| sizes.get(index(range.start)..index(range.end)));
            let total = of_all.map(|sizes| sizes.iter().map(|&size| u64::from(size)).sum::<u64>());
            (total.unwrap_or(range.end - range.start), range.end - range.start)
        };
        let mut largest_first: Vec<u64> = (0..self.chunks.len()).collect();
        largest_first.sort_by_key(|chunk| Reverse(size(chunk)));
        let mut measured = largest_first.into_iter().map(measure);
        let first = measured.next().unwrap_or(Ok(1));
        let largest = match first {
            Err(error) if skipped => measured.find_map(Result::ok).ok_or(error)?,
            first => first?,
        };
        let memory = ChunkMemory { bytes, largest: largest.max(1) };
        let with_samples =
            (0..self.chunks.len()).filter(|&chunk| !self.chunks.range(chunk).is_empty()).count();
        let open = memory.chunks_open(with_samples as u64);
        let open = open.ok_or(MapCause::ChunkMemory { bytes, largest: memory.largest })?;
        Ok((Self { open: Some(open), capacity: Some(memory.chunks()), ..self }, memory))
    }

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
        Ok(Self { chunks: Chunks::new(sizes), ..self.clone() })
    }
}
