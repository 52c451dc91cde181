//! Buffers that wait for their next block.
//!
//! Fresh memory costs a page fault for every page, which is more than the copy into it. So a buffer returns when its
//! last view is gone, from any thread that drops it, and is handed out again.
//!
//! A loop drops a batch just after it has taken the next. Where blocks are large, a thread that is about to open one
//! ahead waits for that: otherwise there would be one block more than the loop and `prefetch` ask for. The blocks that
//! a consumer holds as it asks for another one are those that it keeps, so that no wait is in vain twice.

use std::sync::{Arc, PoisonError, Weak};

use crate::sync::{Condvar, Mutex, MutexGuard, process};
use crate::tensor::buffer::Buffer;
use crate::{Error, Result};

/// The byte that recycled buffers are filled with if poisoning is on.
const POISON: u8 = 0xA5;

/// The least bytes of a block for which memory is waited for: a few where every order of threads is tried.
const LARGE: usize = if cfg!(all(test, shuttle)) { 512 } else { 8 << 20 };

/// A function that allocates at least the given number of bytes.
pub(super) type Allocate = Arc<dyn Fn(usize) -> Result<Buffer> + Send + Sync>;

/// The options of a pool of buffers.
#[derive(Clone)]
pub(super) struct BufferOptions {
    /// The number of free buffers to keep; more buffers are freed.
    pub(super) keep: usize,
    /// True if a buffer is overwritten as soon as it returns, for tests that look for views which outlive their
    /// block.
    pub(super) poison: bool,
    /// The function that allocates buffers, and the least bytes of one. `None` for the system's memory.
    pub(super) memory: Option<(Allocate, usize)>,
}

/// The buffers of one loader.
pub(super) struct Buffers {
    pool: Mutex<Pool>,
    /// Signals that a buffer has come back, or was dropped, or that a consumer asks for a block or stops.
    given: Condvar,
    options: BufferOptions,
    process: u32,
}

#[derive(Default)]
struct Pool {
    free: Vec<Buffer>,
    /// The number of buffers that hold blocks which were delivered.
    delivered: usize,
    /// The number of them that the consumer held when it last asked for a block.
    kept: usize,
}

impl Pool {
    /// The place of the smallest free buffer of at least `bytes` bytes.
    fn best(&self, bytes: usize) -> Option<usize> {
        let fits = self.free.iter().enumerate().filter(|(_, buffer)| buffer.len() >= bytes);
        fits.min_by_key(|(_, buffer)| buffer.len()).map(|(place, _)| place)
    }
}

impl Buffers {
    /// An empty pool.
    pub(super) fn new(options: BufferOptions) -> Arc<Self> {
        let (pool, given) = (Mutex::default(), Condvar::new());
        Arc::new(Self { pool, given, options, process: process::id() })
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
        let mut pool = self.lock();
        match pool.best(bytes) {
            Some(place) => Ok(pool.free.swap_remove(place)),
            None => {
                drop(pool);
                self.allocate(bytes)
            }
        }
    }

    /// Counts a buffer of a delivered block.
    pub(super) fn deliver(self: &Arc<Self>) -> Delivered {
        self.lock().delivered += 1;
        Delivered(Arc::downgrade(self))
    }

    /// Waits for a buffer of at least `bytes` bytes, if that is much, until the consumer has at most one block, or
    /// those that it keeps, or `is_over`; [`keep`](Self::keep) looks at that again.
    pub(super) fn wait(&self, bytes: usize, is_over: impl Fn() -> bool) {
        if bytes < LARGE {
            return;
        }
        let waits =
            |pool: &mut Pool| pool.delivered > pool.kept.max(1) && pool.best(bytes).is_none() && !is_over();
        drop(self.given.wait_while(self.lock(), waits));
    }

    /// Notes that the consumer keeps the blocks that it has now: it asks for another one, or stops.
    pub(super) fn keep(&self) {
        let mut pool = self.lock();
        pool.kept = pool.delivered;
        self.given.notify_all();
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let Some((allocate, least)) = &self.options.memory else {
            return Buffer::new(round_up(bytes)).or_else(|_| Buffer::new(bytes));
        };
        // There are few sizes, because pinned memory is kept by the framework that pins it, in powers of two.
        let slot = bytes.max(*least).checked_next_power_of_two().unwrap_or(bytes);
        let buffer = allocate(slot)?;
        match buffer.len() {
            allocated if allocated < slot => {
                Err(Error::out_of_memory(slot, format!("{allocated} were allocated")))
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
        let mut pool = self.lock();
        pool.free.push(buffer);
        self.given.notify_all();
        if pool.free.len() > self.options.keep {
            // The smallest buffer serves the fewest blocks.
            pool.free.sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.len()));
            let surplus = pool.free.pop();
            drop(pool);
            drop(surplus);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bytes` with up to a quarter more, so that blocks of similar size fit each other's buffers.
fn round_up(bytes: usize) -> usize {
    let grain = (bytes / 4 + 1).checked_next_power_of_two();
    grain.and_then(|grain| bytes.checked_next_multiple_of(grain / 2)).unwrap_or(bytes)
}

/// A buffer that holds a block which was delivered, counted as long as this lives.
pub(super) struct Delivered(Weak<Buffers>);

impl Drop for Delivered {
    fn drop(&mut self) {
        if let Some(buffers) = self.0.upgrade().filter(|buffers| !buffers.is_foreign()) {
            let mut pool = buffers.lock();
            pool.delivered -= 1;
            buffers.given.notify_all();
        }
    }
}

/// A buffer in use, as the owner of a block's bytes. It returns to its pool when dropped, if the pool still exists. It
/// does not keep the pool: a batch that outlives its loader keeps one block, not all that wait.
pub(super) struct Loan {
    buffer: Option<Buffer>,
    // Dropped after the buffer was given back.
    delivered: Delivered,
}

impl Loan {
    pub(super) fn new(buffer: Buffer, delivered: Delivered) -> Self {
        Self { buffer: Some(buffer), delivered }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let (Some(buffer), Some(buffers)) = (self.buffer.take(), self.delivered.0.upgrade()) {
            buffers.give(buffer);
        }
    }
}
