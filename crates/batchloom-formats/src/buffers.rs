//! `Buffer`: bytes that are written one after the other; and `Buffers`: memory of chunks that are gone, for chunks to come.
//!
//! Promises: fresh pages of the system cost as much as a copy, so memory is used again, from epoch to epoch too, and is
//! asked for in large pages; chunks and memory that waits for the next ones together take no more than the most that
//! chunks took at one time, and a few buffers; room in a buffer is handed out as it is, without being cleared first.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::MmapMut;

/// The buffers that may always lie unused: about the number of threads that read at a time.
const SPARE: usize = 4;

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
#[derive(Debug)]
pub(crate) struct Buffer {
    room: Room,
    len: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { room: Room::Small(Vec::new()), len: 0 }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len(), room: Room::Small(bytes) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.room_mut()[..len]
    }
}

impl Buffer {
    fn room(&self) -> &[u8] {
        match &self.room {
            Room::Small(bytes) => bytes,
            Room::Large(map) => map,
        }
    }

    fn room_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Small(bytes) => bytes,
            Room::Large(map) => map,
        }
    }

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
        if end > self.room().len() {
            let mut larger = Room::new(end.max(start.saturating_mul(2)));
            match &mut larger {
                Room::Small(room) => room[..start].copy_from_slice(self),
                Room::Large(room) => room[..start].copy_from_slice(self),
            }
            self.room = larger;
        }
        self.len = end;
        &mut self.room_mut()[start..end]
    }

    /// Appends bytes.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }
}

/// Memory of some files: buffers that chunks have, counted, and buffers that lie unused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    unused: Vec<Buffer>,
    /// The bytes of buffers that chunks have, and the most that they had at one time.
    lent: usize,
    most_lent: usize,
}

impl Pool {
    /// The place of the smallest unused buffer with room for some bytes.
    fn smallest(&self, bytes: usize) -> Option<usize> {
        let fitting = self.unused.iter().enumerate().filter(|(_, buffer)| buffer.room().len() >= bytes);
        fitting.min_by_key(|(_, buffer)| buffer.room().len()).map(|(place, _)| place)
    }

    /// Takes out unused buffers, the smallest first, while there are more than [`SPARE`] and all buffers have more bytes than
    /// chunks had at one time.
    fn take_surplus(&mut self) -> Vec<Buffer> {
        let mut bytes: usize = self.unused.iter().map(|buffer| buffer.room().len()).sum();
        let mut surplus = Vec::new();
        while self.unused.len() > SPARE && self.lent.saturating_add(bytes) > self.most_lent {
            let Some(place) = self.smallest(0) else { break };
            let buffer = self.unused.swap_remove(place);
            bytes -= buffer.room().len();
            surplus.push(buffer);
        }
        surplus
    }
}

impl Buffers {
    /// An empty buffer with room for some bytes.
    pub(crate) fn take(&self, bytes: usize) -> Buffer {
        let mut pool = self.lock();
        match pool.smallest(bytes) {
            Some(place) => {
                let mut buffer = pool.unused.swap_remove(place);
                buffer.clear();
                buffer
            }
            None => {
                drop(pool);
                Buffer { room: Room::new(bytes), len: 0 }
            }
        }
    }

    /// Shared bytes, whose memory comes back here when the last of them is gone.
    pub(crate) fn share(&self, buffer: Buffer) -> Bytes {
        let mut pool = self.lock();
        pool.lent = pool.lent.saturating_add(buffer.room().len());
        pool.most_lent = pool.most_lent.max(pool.lent);
        let surplus = pool.take_surplus();
        drop(pool);
        drop(surplus);
        Bytes::from_owner(Lent { buffer, buffers: self.clone() })
    }

    fn give_back(&self, buffer: Buffer) {
        let mut pool = self.lock();
        pool.lent = pool.lent.saturating_sub(buffer.room().len());
        pool.unused.push(buffer);
        let surplus = pool.take_surplus();
        // Giving pages back takes long enough for others to wait.
        drop(pool);
        drop(surplus);
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes in a buffer that is given back.
struct Lent {
    buffer: Buffer,
    buffers: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.buffer));
    }
}
