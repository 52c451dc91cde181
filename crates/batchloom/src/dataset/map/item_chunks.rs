//! `ItemChunks`: items that a front end reads a chunk at a time, and makes samples of one by one.
//!
//! Promises:
//!
//! - The chunks that the items of a request lie in are held until its samples are made.
//! - All readers of the same items share the chunks that are held.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::chunk_memory::{ChunkBytes, ChunkCounts};
use super::chunk_store::Entered;
use super::held_chunks::{HeldChunks, ReadingHere, address_of};
use super::in_chunks::InChunks;
use super::reading::{FilledPart, Held, ReadPart, ReadRequest, Reader, SampleLayout};
use super::source::SourceError;
use crate::Result;
use crate::error::{Cause, ReadError};
use crate::order::Chunks;
use crate::sync::ReadClock;
use crate::tensor::buffer::Region;

/// The object of a front end that keeps the items of a chunk until it is dropped.
pub type KeptItems = Box<dyn Any + Send + Sync>;

/// The way to chunks of items.
pub trait ItemSource: Debug + Send + Sync + 'static {
    /// Reads the items of a chunk, and returns what keeps them, and their bytes. An item that cannot be read is an error
    /// of its sample, not of its chunk.
    ///
    /// # Errors
    /// Failures of the machinery.
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<(KeptItems, usize), SourceError>;

    /// The bytes of a chunk, which is read for it.
    ///
    /// # Errors
    /// The chunk cannot be read.
    fn measure(&self, chunk: u64) -> Result<usize, SourceError>;
}

/// Items that are read a chunk at a time, and the chunks that are held.
pub struct ItemChunks {
    source: Box<dyn ItemSource>,
    held: HeldChunks<KeptItems>,
    in_chunks: InChunks,
}

impl ItemChunks {
    /// The items of chunks. The items of `open` chunks are mixed at a time; `None` is the default of plans.
    pub fn new(chunks: Chunks, source: impl ItemSource, open: Option<u64>) -> Self {
        let in_chunks = InChunks::new(chunks.clone(), open);
        let source: Box<dyn ItemSource> = Box::new(source);
        Self { held: HeldChunks::new(chunks, [address_of(&*source)].into()), source, in_chunks }
    }

    /// The chunks of several datasets, one dataset after the other, which `source` reads. Each keeps its window where it is
    /// a source of a mixture, and all together have the memory that each has.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds fewer than 5 of the largest chunks.
    pub fn join(parts: &[&Self], source: impl ItemSource) -> Result<Self> {
        let each: Vec<&InChunks> = parts.iter().map(|part| &part.in_chunks).collect();
        let in_chunks = InChunks::join(&each)?;
        let source: Box<dyn ItemSource> = Box::new(source);
        let held = HeldChunks::new(in_chunks.chunks.clone(), [address_of(&*source)].into());
        if let Some(memory) = in_chunks.memory {
            held.store.limit_memory(memory);
        }
        Ok(Self { source, held, in_chunks })
    }

    /// Sets the bytes of memory for chunks, in place of how many are mixed, as
    /// [`MapDatasetBuilder::memory`](super::MapDatasetBuilder::memory). If a chunk that cannot be read is `skipped`, the
    /// largest one that can be read is measured.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds fewer than 5 chunks; and the error of the largest chunk.
    pub fn memory(self, bytes: u64, skipped: bool) -> Result<Self> {
        let Self { source, held, in_chunks } = self;
        let measure = |chunk: u64| {
            let failed = |cause| ReadError::Failed { sample: held.chunks.range(chunk).start, cause };
            let bytes = source.measure(chunk).map_err(|error| failed(Cause::from(error)))?;
            Ok(ChunkBytes::of_rows(bytes as u64))
        };
        let (in_chunks, memory) = in_chunks.with_memory(bytes, None, measure, skipped)?;
        held.store.limit_memory(memory);
        Ok(Self { source, held, in_chunks })
    }

    /// The number of chunks that are mixed at a time; `None` for the default of plans.
    pub fn chunks_open(&self) -> Option<u64> {
        self.in_chunks.open
    }

    /// The counts of chunks so far.
    pub fn counts(&self) -> ChunkCounts {
        self.held.store.counts()
    }

    pub(super) fn in_chunks(&self) -> InChunks {
        self.in_chunks.clone()
    }

    /// Reads the items of a chunk.
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<(KeptItems, usize), SourceError> {
        let _reading = ReadingHere::begin(address_of(&*self.source));
        self.source.read(chunk, clock)
    }

    /// Holds the chunks that the samples of a request lie in, while what is returned is there; `None` if the iteration
    /// has stopped.
    ///
    /// # Errors
    /// Failures of the machinery.
    fn hold(&self, request: &ReadRequest<'_>) -> Result<Option<Holding>> {
        let in_use = self.held.store.enter();
        let mut needed: Vec<(u64, u64)> =
            request.samples.iter().map(|&sample| (self.held.chunks.chunk_of(sample), sample)).collect();
        needed.sort_unstable();
        needed.dedup_by_key(|(chunk, _)| *chunk);
        let mut kept = Vec::with_capacity(needed.len());
        for (chunk, sample) in needed {
            match self.held.hold(chunk, request.stop, |_| self.read(chunk, request.clock)) {
                None => return Ok(None),
                Some(Ok(items)) => kept.push(items),
                Some(Err(cause)) => return Err(ReadError::Failed { sample, cause }.into()),
            }
        }
        Ok(Some(Holding { _kept: kept, _in_use: in_use }))
    }
}

/// The chunks that a request needs. They may leave before their thread has left the store.
struct Holding {
    _kept: Vec<Arc<KeptItems>>,
    _in_use: Entered<KeptItems>,
}

impl Debug for ItemChunks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ItemChunks").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A reader of samples that are made of items in chunks.
#[derive(Debug)]
pub(super) struct ItemReader {
    pub(super) samples: Arc<dyn Reader>,
    pub(super) items: Arc<ItemChunks>,
}

impl Reader for ItemReader {
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart> {
        match self.items.hold(request)? {
            Some(_holding) => self.samples.read(request),
            None => Ok(ReadPart { outcomes: Vec::new(), samples: Arc::new(Held(Vec::new())), objects: None }),
        }
    }

    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> Result<FilledPart> {
        match self.items.hold(request)? {
            Some(_holding) => self.samples.read_into(request, expected, slots),
            None => Ok(FilledPart { outcomes: Vec::new(), objects: None }),
        }
    }

    fn makes_batches(&self) -> bool {
        self.samples.makes_batches()
    }

    fn reads_together(&self) -> bool {
        self.samples.reads_together()
    }

    fn begin_iteration(&self, most: usize) -> u64 {
        self.items.held.store.begin_iteration(most)
    }

    fn end_iteration(&self, iteration: u64) {
        self.items.held.store.end_iteration(iteration);
    }

    fn note_chunks(&self, iteration: u64, opened: (u64, Vec<u64>), chunks: &[(u64, u64)]) {
        self.items.held.store.note(iteration, opened, chunks);
    }

    fn read_early(&self, chunk: u64, clock: &ReadClock) {
        self.items.held.read_early(chunk, |_| self.items.read(chunk, clock));
    }

    fn has_time_for_more(&self, needed: &[u64]) -> bool {
        self.items.held.store.has_time_for_more(needed)
    }

    fn is_reading_here(&self) -> bool {
        self.items.held.is_reading_here()
    }

    fn chunk_counts(&self) -> Option<ChunkCounts> {
        Some(self.items.counts())
    }
}
