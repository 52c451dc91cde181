//! `InChunks`: the chunks that samples are read in, as a plan has to know them, and how many of them are mixed.
//!
//! Datasets that were put together keep their windows: a mixture reads each of them in an order of its own chunks.

use std::cmp::Reverse;
use std::sync::Arc;

use super::chunk_memory::{ChunkBytes, ChunkMemory};
use super::error::MapCause;
use crate::dataset::Selection;
use crate::order::{CHUNKS_OPEN, Chunks};
use crate::{Error, Result};

/// The chunks that samples are read in.
#[derive(Debug, Clone)]
pub(crate) struct InChunks {
    pub(crate) chunks: Chunks,
    /// The number of chunks that are mixed at a time; `None` for the default of plans.
    pub(crate) open: Option<u64>,
    /// The memory for chunks, if it has a limit.
    pub(super) memory: Option<ChunkMemory>,
    /// The datasets that were put together, if several were.
    pub(super) parts: Option<Arc<[PartInChunks]>>,
}

/// The chunks of one of several datasets.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartInChunks {
    /// The number of its chunks, after the chunks of the dataset before it.
    pub(super) chunks: u64,
    pub(super) open: Option<u64>,
    pub(super) memory: Option<ChunkMemory>,
}

impl InChunks {
    /// Chunks in memory without a limit; `open` of them are mixed at a time.
    pub(super) fn new(chunks: Chunks, open: Option<u64>) -> Self {
        Self { chunks, open, memory: None, parts: None }
    }

    /// The chunks of several datasets, one dataset after the other. Their memory is the sum, if each has a limit. This
    /// memory decides the number of chunks to mix; without a limit, it is the largest number of a dataset.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if some have a limit and some have none, or the memory holds fewer than
    /// [`LEAST_CHUNKS`] of the largest chunks.
    pub(super) fn join(each: &[&Self]) -> Result<Self> {
        let part = |it: &&Self| PartInChunks { chunks: it.chunks.len(), open: it.open, memory: it.memory };
        let parts: Vec<PartInChunks> = each.iter().map(part).collect();
        let chunks = Chunks::new(each.iter().flat_map(|it| it.chunks.sizes()));
        let limited = parts.iter().position(|part| part.memory.is_some());
        let unlimited = parts.iter().position(|part| part.memory.is_none());
        if let (Some(limited), Some(unlimited)) = (limited, unlimited) {
            let bytes = parts[limited].memory.map_or(0, |memory| memory.bytes);
            return Err(MapCause::PartlyLimited { limited, bytes, unlimited }.into());
        }
        let memory = parts.iter().filter_map(|part| part.memory).reduce(ChunkMemory::and);
        let open = match memory {
            Some(memory) => {
                let refused = MapCause::ChunkMemory { bytes: memory.bytes, largest: memory.largest };
                let with_samples = chunks.sizes().filter(|&size| size > 0).count();
                Some(memory.chunks_open(with_samples as u64).ok_or(refused)?)
            }
            None => each.iter().map(|it| it.open.unwrap_or(CHUNKS_OPEN)).max(),
        };
        Ok(Self { chunks, open, memory, parts: Some(parts.into()) })
    }

    /// The bytes of memory for chunks, if it has a limit, and of the largest chunk.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        self.memory.map(|memory| (memory.bytes, memory.largest))
    }

    /// The number of chunks that the memory for them holds, if it has a limit.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match &self.parts {
            None => self.memory.map(ChunkMemory::chunks),
            Some(parts) => parts.iter().map(|part| Some(part.memory?.chunks())).sum(),
        }
    }

    /// The chunks of each dataset, and the number of chunks to mix at a time, for draws from each by itself. Where two
    /// passes over a dataset may meet in a batch, memory has to hold the chunks of both. `None` for a single dataset.
    pub(crate) fn parts(&self, passes_meet: bool) -> Option<Vec<(Chunks, u64)>> {
        let mut sizes = self.chunks.sizes();
        let part = |part: &PartInChunks| {
            let own: Vec<u64> = sizes.by_ref().take(index(part.chunks)).collect();
            let open = part.open.unwrap_or(CHUNKS_OPEN);
            let limited = part.memory.filter(|memory| passes_meet && memory.chunks() < part.chunks);
            (Chunks::new(own), limited.map_or(open, |_| (open / 2).max(1)))
        };
        Some(self.parts.as_ref()?.iter().map(part).collect())
    }

    /// The same chunks, which take at most `bytes` bytes of memory at a time, and that memory. `measure` finds the bytes
    /// of the largest one, by the sizes of its samples; if a chunk that cannot be read is `skipped`, of the largest one
    /// that can be read. Its bytes for a sample, and for a unit of size, give the bytes of all chunks.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds neither all chunks nor [`LEAST_CHUNKS`] of them; and the
    /// error of the chunk.
    pub(super) fn with_memory(
        self,
        bytes: u64,
        sizes: Option<&[u32]>,
        measure: impl Fn(u64) -> Result<ChunkBytes>,
        skipped: bool,
    ) -> Result<(Self, ChunkMemory)> {
        let size = |chunk: u64| {
            let range = self.chunks.range(chunk);
            let of_all = sizes.and_then(|sizes| sizes.get(index(range.start)..index(range.end)));
            let total = of_all.map(|sizes| sizes.iter().map(|&size| u64::from(size)).sum::<u64>());
            (total.unwrap_or(range.end - range.start), range.end - range.start)
        };
        let mut largest_first: Vec<u64> = (0..self.chunks.len()).collect();
        largest_first.sort_by_key(|chunk| Reverse(size(*chunk)));
        let mut measured =
            largest_first.into_iter().map(|chunk| Ok::<_, Error>((size(chunk), measure(chunk)?)));
        let (of, found) = match measured.next() {
            Some(Err(error)) if skipped => measured.find_map(Result::ok).ok_or(error)?,
            Some(first) => first?,
            None => ((0, 0), ChunkBytes::default()),
        };
        let bytes_of = |chunk: u64| found.scale(size(chunk), of);
        let largest = (0..self.chunks.len()).map(bytes_of).fold(found.sum().max(1), u64::max);
        let memory = ChunkMemory { bytes, largest };
        let with_samples =
            (0..self.chunks.len()).filter(|&chunk| !self.chunks.range(chunk).is_empty()).count();
        let open = memory.chunks_open(with_samples as u64);
        let open = open.ok_or(MapCause::ChunkMemory { bytes, largest: memory.largest })?;
        Ok((Self { open: Some(open), memory: Some(memory), ..self }, memory))
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

/// A number as an index.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
