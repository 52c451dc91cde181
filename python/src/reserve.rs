//! The allocator of the extension: the system's, with a reserve for small blocks.
//!
//! Memory that grows with the data is asked for before it is used, and its lack is an error. Small blocks are too many
//! to ask for, and without them Rust ends the process. So a few megabytes of addresses, which are never touched, are
//! kept back: when a small block cannot be had they are given up, and there is room for the work until an error frees
//! more. The next large block that can be had puts them back.
//!
//! Promises: blocks are the system allocator's, unchanged; a large block never takes the reserve.
#![expect(unsafe_code, reason = "an allocator hands out pointers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The bytes that are kept back, and the least bytes of a block that is large.
const RESERVE: usize = 4 << 20;
const LARGE: usize = 256 << 10;

/// The layout of the reserve.
const KEPT: Layout = Layout::new::<[u8; RESERVE]>();

/// The allocator that this file describes.
pub(crate) struct Reserved {
    kept: AtomicPtr<u8>,
}

impl Reserved {
    pub(crate) const fn new() -> Self {
        Self { kept: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Keeps a reserve, unless there is one or no memory for it.
    fn keep(&self) {
        if !self.kept.load(Ordering::Relaxed).is_null() {
            return;
        }
        // SAFETY: the layout is not of size 0.
        let block = unsafe { System.alloc(KEPT) };
        let placed = self.kept.compare_exchange(ptr::null_mut(), block, Ordering::AcqRel, Ordering::Relaxed);
        if placed.is_err() && !block.is_null() {
            // SAFETY: another thread placed its own, so this block of that layout is known here alone.
            unsafe { System.dealloc(block, KEPT) };
        }
    }

    /// Gives up the reserve. Returns false if there was none.
    fn give_up(&self) -> bool {
        let block = self.kept.swap(ptr::null_mut(), Ordering::AcqRel);
        if !block.is_null() {
            // SAFETY: it is a block of that layout, and the swap made it this thread's alone.
            unsafe { System.dealloc(block, KEPT) };
        }
        !block.is_null()
    }

    /// Takes a block, and for a small one the reserve if it has to.
    fn take(&self, bytes: usize, block: impl Fn() -> *mut u8) -> *mut u8 {
        if bytes >= LARGE {
            self.keep();
            return block();
        }
        match block() {
            none if none.is_null() && self.give_up() => block(),
            taken => taken,
        }
    }
}

// SAFETY: blocks are those of the system's allocator, for the same layouts, and null where it has none.
unsafe impl GlobalAlloc for Reserved {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is passed on; a block that was null is asked for again.
        self.take(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        self.take(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is one of the system's, of this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block is one of the system's, of this layout; where the first call returned null it is untouched.
        self.take(size, || unsafe { System.realloc(block, layout, size) })
    }
}
