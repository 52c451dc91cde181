//! Buffers that wait for their next block.
//!
//! Fresh memory costs a page fault for every page, which is more than the copy into it. So a buffer comes back when its
//! last view is gone, from any thread that drops it, and is handed out again.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::tensor::buffer::Buffer;
use crate::{Error, Result};

/// The byte that recycled buffers are filled with if poisoning is on.
const POISON: u8 = 0xA5;

/// A function that allocates at least as many bytes as it is given.
pub(super) type Allocate = Arc<dyn Fn(usize) -> Result<Buffer> + Send + Sync>;

/// The options of a pool of buffers.
#[derive(Clone)]
pub(super) struct BufferOptions {
    /// The number of free buffers to keep; others are given back.
    pub(super) keep: usize,
    /// True if a buffer is overwritten as soon as it comes back, for tests that look for views which outlive their
    /// block.
    pub(super) poison: bool,
    /// The function that allocates buffers, and the least bytes of one. `None` for the system's memory.
    pub(super) memory: Option<(Allocate, usize)>,
}

/// The buffers of one loader.
pub(super) struct Buffers {
    free: Mutex<Vec<Buffer>>,
    options: BufferOptions,
    process: u32,
}

impl Buffers {
    /// An empty pool.
    pub(super) fn new(options: BufferOptions) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), options, process: process::id() })
    }

    /// An empty pool with the same options.
    pub(super) fn afresh(&self) -> Arc<Self> {
        Self::new(self.options.clone())
    }

    /// Returns true if this process was forked after the pool was made, so that its lock cannot be trusted.
    pub(super) fn is_foreign(&self) -> bool {
        self.process != process::id()
    }

    /// Returns true if a caller allocates its memory.
    pub(super) fn is_lent(&self) -> bool {
        self.options.memory.is_some()
    }

    /// Takes a buffer of at least `bytes` bytes, its contents unspecified.
    pub(super) fn take(&self, bytes: usize) -> Result<Buffer> {
        let mut free = self.lock();
        let best =
            free.iter().enumerate().filter(|(_, buffer)| buffer.len() >= bytes).min_by_key(|(_, b)| b.len());
        match best.map(|(place, _)| place) {
            Some(place) => Ok(free.swap_remove(place)),
            None => {
                drop(free);
                self.allocate(bytes)
            }
        }
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let Some((allocate, least)) = &self.options.memory else {
            return Buffer::new(rounded(bytes)).or_else(|_| Buffer::new(bytes));
        };
        // There are few sizes, because pinned memory is kept by the framework that pins it, in powers of two.
        let slot = bytes.max(*least).checked_next_power_of_two().unwrap_or(bytes);
        let buffer = allocate(slot)?;
        match buffer.len() {
            found if found < slot => {
                Err(Error::Memory { bytes: slot, reason: format!("{found} were allocated") })
            }
            _ => Ok(buffer),
        }
    }

    /// Takes a buffer back.
    pub(super) fn give(&self, mut buffer: Buffer) {
        if self.is_foreign() {
            return;
        }
        if self.options.poison {
            buffer.poison(POISON);
        }
        let mut free = self.lock();
        free.push(buffer);
        if free.len() > self.options.keep {
            // The smallest buffer serves the fewest blocks.
            free.sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.len()));
            let surplus = free.pop();
            drop(free);
            drop(surplus);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bytes` with up to a quarter more, so that blocks of similar size fit each other's buffers.
fn rounded(bytes: usize) -> usize {
    let grain = (bytes / 4 + 1).checked_next_power_of_two();
    grain.and_then(|grain| bytes.checked_next_multiple_of(grain / 2)).unwrap_or(bytes)
}

/// A buffer in use, as the owner of a block's bytes. It returns to its pool when dropped, if the pool still exists. It
/// does not keep the pool: a batch that outlives its loader keeps one block, not all that wait.
pub(super) struct Loan {
    buffer: Option<Buffer>,
    buffers: Weak<Buffers>,
}

impl Loan {
    pub(super) fn new(buffer: Buffer, buffers: &Arc<Buffers>) -> Self {
        Self { buffer: Some(buffer), buffers: Arc::downgrade(buffers) }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let (Some(buffer), Some(buffers)) = (self.buffer.take(), self.buffers.upgrade()) {
            buffers.give(buffer);
        }
    }
}
