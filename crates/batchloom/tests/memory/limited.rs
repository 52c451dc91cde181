//! An allocator that refuses what would exceed a limit, unless it is small.
//!
//! Promises: a block of less than `SMALL` bytes is never refused, and without a limit, nothing is; a refusal lifts the limit,
//! so that there is memory for telling of it; the bytes in use are the sum of those that were handed out and not taken back.
#![expect(unsafe_code, reason = "an allocator hands out pointers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least bytes of a block that may be refused: what grows with the data is larger.
const SMALL: usize = 32 << 10;

/// The allocator that this file describes.
pub(super) struct Limited {
    used: AtomicUsize,
    peak: AtomicUsize,
    limit: AtomicUsize,
}

impl Limited {
    pub(super) const fn new() -> Self {
        Self { used: AtomicUsize::new(0), peak: AtomicUsize::new(0), limit: AtomicUsize::new(usize::MAX) }
    }

    /// Runs `work` with so many bytes beyond those in use. Returns what it returned, and the most bytes that it took.
    pub(super) fn within<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> (T, usize) {
        let before = self.used.load(Ordering::SeqCst);
        self.peak.store(before, Ordering::SeqCst);
        self.limit.store(before.saturating_add(bytes), Ordering::SeqCst);
        let returned = work();
        self.limit.store(usize::MAX, Ordering::SeqCst);
        (returned, self.peak.load(Ordering::SeqCst).saturating_sub(before))
    }

    /// Counts so many bytes, unless they are too many.
    fn admit(&self, bytes: usize, large: bool) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        let fits = !large || used <= self.limit.load(Ordering::SeqCst);
        if fits {
            self.peak.fetch_max(used, Ordering::SeqCst);
        } else {
            self.used.fetch_sub(bytes, Ordering::SeqCst);
            self.limit.store(usize::MAX, Ordering::SeqCst);
        }
        fits
    }
}

// SAFETY: blocks are those of the allocator of the system, unchanged, and a refusal is a null pointer, as for it.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !self.admit(layout.size(), layout.size() >= SMALL) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the block is one of `alloc` or `realloc`, of this layout, and so one of the system's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks may be there for a time.
        if !self.admit(size, size >= SMALL) {
            return ptr::null_mut();
        }
        // SAFETY: the block is one of this allocator, of this layout, and the caller's size is passed on.
        let moved = unsafe { System.realloc(block, layout, size) };
        self.used.fetch_sub(if moved.is_null() { size } else { layout.size() }, Ordering::SeqCst);
        moved
    }
}
