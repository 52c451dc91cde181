//! `Buffers`: memory of chunks that are gone, for chunks to come. Fresh pages of the system cost as much as a copy.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The most buffers that lie unused: about as many as threads read at a time.
const MOST: usize = 4;

/// Buffers that lie unused, shared by all chunks of some files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A buffer with room for some bytes; what it holds is of no use.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest one that is large enough.
        let fitting = unused.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= bytes);
        match fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(place, _)| place) {
            Some(place) => unused.swap_remove(place),
            None => Vec::with_capacity(bytes),
        }
    }

    /// Shared bytes, whose memory comes back here when the last of them is gone.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, buffers: self.clone() })
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.len() < MOST {
            unused.push(buffer);
        }
    }
}

/// Bytes in a buffer that is given back.
struct Lent {
    bytes: Vec<u8>,
    buffers: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.bytes));
    }
}
