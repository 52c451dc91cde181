//! `SourceWindow`: the window over the chunks of a source, and `Passes`: its orders, pass after pass.
//!
//! Promise: each pass over a source is a new order of its chunks, a function of the seed, the source and the number of the
//! pass alone. The orders that were asked for last are kept, as a source is read through one of them at a time.

use std::sync::{Mutex, PoisonError};

use serde::{Serialize, Serializer};

use crate::order::{ChunkWindow, Chunks, Purpose, RunEpoch};

/// The orders that are kept: two passes meet in a batch.
const KEPT: usize = 2;

/// The chunks of a source of samples, and how many of them are mixed at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceWindow {
    /// The chunks, as stored.
    pub chunks: Chunks,
    /// The number of chunks that are mixed at a time.
    pub open: u64,
}

impl Serialize for SourceWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.chunks.digest(), self.open).serialize(serializer)
    }
}

impl SourceWindow {
    /// The number of slots of a pass.
    pub(super) fn slots(&self, shuffled: bool) -> u64 {
        match shuffled {
            true => self.chunks.len() - self.open.min(self.chunks.len()).max(1) + 1,
            false => self.chunks.len(),
        }
    }
}

/// The orders of a source that is read chunk by chunk.
pub(crate) struct Passes {
    pub(super) window: SourceWindow,
    seed: u64,
    pub(super) shuffled: bool,
    kept: Mutex<Vec<(u64, ChunkWindow)>>,
}

crate::brief::debug_in_brief!(Passes, [window, shuffled], []);

impl Passes {
    /// The passes over source number `source` in the run `seed`.
    pub(super) fn new(window: SourceWindow, seed: u64, source: u64, shuffled: bool) -> Self {
        // Passes of source 0 are the epochs of the same dataset alone; chunks of other sources have other keys.
        let seed = match source {
            0 => seed,
            number => RunEpoch { seed, epoch: 0 }.key_numbers(Purpose::Source { number })[0],
        };
        Self { window, seed, shuffled, kept: Mutex::default() }
    }

    /// The order of a pass.
    pub(super) fn order(&self, pass: u64) -> ChunkWindow {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = kept.iter().find(|(number, _)| *number == pass) {
            return order.clone();
        }
        let chunks = self.window.chunks.clone();
        let order = match self.shuffled {
            true => ChunkWindow::new(chunks, self.window.open, self.seed, pass),
            false => ChunkWindow::stored(chunks),
        };
        kept.truncate(KEPT - 1);
        kept.insert(0, (pass, order.clone()));
        order
    }
}
