//! `Buffer`: bytes that are written one after the other; and `Buffers`: memory of chunks that are gone, for chunks to come.
//!
//! Promises: fresh pages of the system cost as much as a copy, so memory is used again, from epoch to epoch too, and is
//! asked for in large pages; buffers in use and memory that waits for the next ones together take no more than the most
//! that buffers took at one time, but for the copy that is made while one grows; room in a buffer is handed out as it is,
//! without being cleared first.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::MmapMut;

/// The bytes from which on a buffer has pages of its own.
const LARGE: usize = 2 << 20;

/// Large buffers have a multiple of these bytes, so that a chunk finds room in the buffer of another chunk that was a little
/// smaller. What is not written takes no memory.
const STEP: usize = 1 << 20;

/// The memory of a buffer.
#[derive(Debug)]
enum Room {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Default for Room {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large(map) => map,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large(map) => map,
        }
    }
}

impl Room {
    fn new(bytes: usize) -> Self {
        let map = (bytes >= LARGE).then(|| MmapMut::map_anon(bytes.next_multiple_of(STEP)).ok()).flatten();
        match map {
            Some(map) => {
                // This is only advice: if the kernel has no large pages, small ones do.
                #[cfg(target_os = "linux")]
                drop(map.advise(memmap2::Advice::HugePage));
                Self::Large(map)
            }
            None => Self::Small(vec![0; bytes]),
        }
    }
}

/// Bytes that are written one after the other.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    room: Room,
    len: usize,
    /// The buffers that its memory goes back to.
    home: Option<Buffers>,
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len(), room: Room::Small(bytes), home: None }
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.room[..len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give_back(mem::take(&mut self.room));
        }
    }
}

impl Buffer {
    /// Empties the buffer, which keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes back the bytes from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends `bytes` bytes, to be written: so far they hold anything.
    pub(crate) fn grow(&mut self, bytes: usize) -> &mut [u8] {
        let (start, end) = (self.len, self.len.saturating_add(bytes));
        if end > self.room.len() {
            let mut larger = Room::new(end.max(start.saturating_mul(2)));
            larger[..start].copy_from_slice(self);
            if let Some(home) = &self.home {
                home.exchange(self.room.len(), larger.len());
            }
            self.room = larger;
        }
        self.len = end;
        &mut self.room[start..end]
    }

    /// Appends bytes.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }
}

/// Memory of some files: buffers in use, counted, and memory that lies unused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    unused: Vec<Room>,
    /// The bytes of buffers in use, and the most that they had at one time.
    lent: usize,
    most_lent: usize,
}

impl Pool {
    /// The place of the smallest unused room of some bytes at least.
    fn smallest(&self, bytes: usize) -> Option<usize> {
        let fitting = self.unused.iter().enumerate().filter(|(_, room)| room.len() >= bytes);
        fitting.min_by_key(|(_, room)| room.len()).map(|(place, _)| place)
    }

    /// Counts buffers that came into use and that are gone. Takes out unused rooms, the smallest first, while all memory is
    /// more than buffers had at one time.
    fn count(&mut self, lent: usize, back: usize) -> Vec<Room> {
        self.lent = self.lent.saturating_sub(back).saturating_add(lent);
        self.most_lent = self.most_lent.max(self.lent);
        let mut bytes: usize = self.unused.iter().map(|room| room.len()).sum();
        let mut surplus = Vec::new();
        while self.lent.saturating_add(bytes) > self.most_lent {
            let Some(place) = self.smallest(0) else { break };
            let room = self.unused.swap_remove(place);
            bytes -= room.len();
            surplus.push(room);
        }
        surplus
    }
}

impl Buffers {
    /// An empty buffer with room for some bytes.
    pub(crate) fn take(&self, bytes: usize) -> Buffer {
        let mut pool = self.lock();
        let found = pool.smallest(bytes).map(|place| pool.unused.swap_remove(place));
        drop(pool);
        let room = found.unwrap_or_else(|| Room::new(bytes));
        self.exchange(0, room.len());
        Buffer { room, len: 0, home: Some(self.clone()) }
    }

    /// Counts a buffer that has other memory now.
    fn exchange(&self, before: usize, now: usize) {
        let surplus = self.lock().count(now, before);
        // Giving pages back takes long enough for others to wait: the lock is free by now.
        drop(surplus);
    }

    fn give_back(&self, room: Room) {
        let mut pool = self.lock();
        let bytes = room.len();
        pool.unused.push(room);
        let surplus = pool.count(0, bytes);
        drop(pool);
        drop(surplus);
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
