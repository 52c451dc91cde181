//! `HeldChunks`: the chunks of a reader, each read by one thread and held for all of them.
//!
//! Promises:
//!
//! - A chunk that a thread needs is read by it, or by another one that it waits for.
//! - A reader knows whether this very thread reads one of its chunks, and so would wait for itself.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use super::chunk_store::{ChunkStore, Wait};
use super::reading::Stop;
use super::source::SourceError;
use crate::error::Cause;
use crate::order::Chunks;

/// The chunks of a reader, each as a `T`.
pub(super) struct HeldChunks<T> {
    pub(super) chunks: Chunks,
    pub(super) store: ChunkStore<T>,
}

impl<T> HeldChunks<T> {
    pub(super) fn new(chunks: Chunks) -> Self {
        Self { chunks, store: ChunkStore::default() }
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
        let _reading = ReadingHere::begin(self.address());
        match read(self.chunks.range(chunk)).map_err(Cause::from) {
            Ok((held, bytes)) => Ok(turn.hold(held, bytes)),
            Err(cause) => {
                turn.fail(&cause);
                Err(cause)
            }
        }
    }

    /// Returns true if this thread reads one of these chunks.
    pub(super) fn is_reading_here(&self) -> bool {
        READING.with_borrow(|readers| readers.contains(&self.address()))
    }

    /// A number that no other chunks have at the same time.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

thread_local! {
    /// The readers that read a chunk on this thread, one inside of the other.
    static READING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The note that a chunk is read on this thread.
struct ReadingHere;

impl ReadingHere {
    fn begin(address: usize) -> Self {
        READING.with_borrow_mut(|readers| readers.push(address));
        Self
    }
}

impl Drop for ReadingHere {
    fn drop(&mut self) {
        READING.with_borrow_mut(|readers| readers.truncate(readers.len().saturating_sub(1)));
    }
}
