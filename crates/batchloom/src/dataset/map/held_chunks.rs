//! `HeldChunks`: the chunks of a reader, each read by one thread and held for all of them.
//!
//! Promises:
//!
//! - A chunk that a thread needs is read by it, or by another one that it waits for.
//! - A reader knows whether this very thread reads a chunk from one of its sources, and so would wait for itself.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use super::chunk_memory::LEAST_CHUNKS;
use super::chunk_store::{ChunkStore, Wait};
use super::reading::Stop;
use super::source::SourceError;
use crate::error::Cause;
use crate::order::Chunks;

/// A chunk that the memory for all chunks does not hold.
#[derive(Debug, thiserror::Error)]
#[error(
    "chunk {chunk} has {bytes} bytes, and memory for all chunks together is {memory} bytes, which another chunk was \
     measured for; expected memory for at least {LEAST_CHUNKS} such chunks, or smaller chunks"
)]
struct TooLarge {
    chunk: u64,
    bytes: u64,
    memory: u64,
}

/// The chunks of a reader, each as a `T`.
pub(super) struct HeldChunks<T> {
    pub(super) chunks: Chunks,
    /// The addresses of the sources that read them.
    sources: Arc<[usize]>,
    pub(super) store: ChunkStore<T>,
}

impl<T> HeldChunks<T> {
    pub(super) fn new(chunks: Chunks, sources: Arc<[usize]>) -> Self {
        Self { chunks, sources, store: ChunkStore::default() }
    }

    /// A chunk, which `read` reads now if it is not held, with its bytes; `None` if the iteration has stopped. The thread
    /// has [entered](ChunkStore::enter) the store.
    pub(super) fn hold(
        &self,
        chunk: u64,
        stop: &Stop,
        read: impl FnOnce(Range<u64>) -> Result<(T, usize), SourceError>,
    ) -> Option<Result<Arc<T>, Cause>> {
        match self.store.wait_for(chunk, stop) {
            Wait::Held(held) => Some(Ok(held)),
            Wait::Stopped => None,
            Wait::Turn => Some(self.read(chunk, read)),
            Wait::Failed(cause) => Some(Err(cause)),
        }
    }

    /// Reads a chunk that an iteration will need, unless some thread has read it since.
    pub(super) fn read_early(
        &self,
        chunk: u64,
        read: impl FnOnce(Range<u64>) -> Result<(T, usize), SourceError>,
    ) {
        if self.store.take_early(chunk) {
            // A chunk that cannot be read is an error of the batches that need it.
            drop(self.read(chunk, read));
        }
    }

    /// Reads a chunk; this thread has the turn.
    fn read(
        &self,
        chunk: u64,
        read: impl FnOnce(Range<u64>) -> Result<(T, usize), SourceError>,
    ) -> Result<Arc<T>, Cause> {
        // If reading panics, the chunk is not left as one that some thread reads.
        let turn = self.store.turn(chunk);
        let read = read(self.chunks.range(chunk)).and_then(|(held, bytes)| match self.store.memory() {
            Some(memory) if bytes as u64 > memory.bytes => {
                Err(TooLarge { chunk, bytes: bytes as u64, memory: memory.bytes }.into())
            }
            _ => Ok((held, bytes)),
        });
        match read.map_err(Cause::from) {
            Ok((held, bytes)) => Ok(turn.hold(held, bytes)),
            Err(cause) => {
                turn.fail(&cause);
                Err(cause)
            }
        }
    }

    /// Returns true if this thread reads a chunk from one of the sources.
    pub(super) fn is_reading_here(&self) -> bool {
        READING.with_borrow(|sources| sources.iter().any(|source| self.sources.contains(source)))
    }
}

/// The address of a source: a number that no other source has at the same time.
pub(super) fn address_of<S: ?Sized>(source: &S) -> usize {
    std::ptr::from_ref(source).cast::<()>().addr()
}

thread_local! {
    /// The addresses of the sources that a chunk is read from on this thread, one inside of the other.
    static READING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The note that a chunk is read from a source on this thread.
pub(super) struct ReadingHere;

impl ReadingHere {
    pub(super) fn begin(source: usize) -> Self {
        READING.with_borrow_mut(|sources| sources.push(source));
        Self
    }
}

impl Drop for ReadingHere {
    fn drop(&mut self) {
        READING.with_borrow_mut(|readers| readers.truncate(readers.len().saturating_sub(1)));
    }
}
