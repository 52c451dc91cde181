//! `ChunkStore`: the chunks that are held, and which thread reads the next one.
//!
//! Promises:
//!
//! - A chunk that is held is not read again, and a chunk that is being read is read once: threads that need it wait.
//! - No more chunks are held or being read than the limits of all iterations together, which follow from their plans, or
//!   than the blocks that are open need; the chunk that iterations need for the shortest time leaves first, and all leave
//!   with the last iteration.
//! - A chunk that an iteration will need is read by the first thread that gets to it, early or because it needs it.
//! - A chunk that could not be read is not read again before an iteration begins or the last one ends.
//! - No thread waits for ever: if all threads that use chunks wait for room, one of them gets it beyond the limit.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use super::chunk_memory::{ChunkCounts, ChunkMemory};
use super::reading::Stop;
use crate::error::Cause;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, process};

/// The chunks that are held, each as a `T`.
pub(super) struct ChunkStore<T>(Arc<Holding<T>>);

/// The chunks that one process holds. A process that was forked has another store: threads that held the lock of
/// this one, or were reading a chunk, are not there.
struct Holding<T> {
    process: u32,
    /// The memory for chunks, if it has a limit. It is read without a lock, which a fork may leave locked.
    memory: OnceLock<ChunkMemory>,
    slots: Mutex<Slots<T>>,
    changed: Condvar,
    /// The number of threads that wait.
    waiting: AtomicUsize,
    /// The chunks of a process that was forked from this one.
    forked: OnceLock<Arc<Self>>,
}

/// The chunks in a store.
struct Slots<T> {
    slots: HashMap<u64, Slot<T>>,
    /// The number of times that a chunk was used.
    time: u64,
    iterations: Vec<Iteration>,
    /// The number of iterations so far.
    begun: u64,
    /// The number of threads that use chunks, and of those among them that wait for room.
    busy: usize,
    cramped: usize,
    /// The chunks that could not be read, and the reasons.
    failed: HashMap<u64, Cause>,
    /// The number of bytes of the chunks that are held, and the memory for them in each iteration, if it has a limit.
    bytes: usize,
    memory: Option<ChunkMemory>,
    counts: ChunkCounts,
}

/// An iteration, and the chunks that it needs.
struct Iteration {
    number: u64,
    /// The most chunks that it needs at a time, as far as its plan says without its blocks.
    most: usize,
    /// The chunks that its open blocks need.
    open: Vec<u64>,
    /// The earliest time at which a block of it begins that may still read chunks.
    time: u64,
    /// The last time at which it needs each chunk, of the chunks that it needs from this time on.
    needs: HashMap<u64, u64>,
    /// The chunks that it will need, and that no thread has begun to read.
    early: HashSet<u64>,
}

/// A chunk in the store.
enum Slot<T> {
    /// Some thread reads it.
    Reading,
    /// It is held, has a number of bytes, and was used last at a time.
    Held { chunk: Arc<T>, bytes: usize, used: u64 },
}

/// The end of a wait for a chunk.
pub(super) enum Wait<T> {
    /// It is held.
    Held(Arc<T>),
    /// The thread is to read it.
    Turn,
    /// It could not be read.
    Failed(Cause),
    /// The iteration has stopped.
    Stopped,
}

/// The time after which a thread that waits for a chunk looks whether the iteration has stopped.
const PATIENCE: Duration = Duration::from_millis(50);

impl<T> Default for ChunkStore<T> {
    fn default() -> Self {
        Self(Holding::new(None))
    }
}

impl<T> ChunkStore<T> {
    /// Waits until a chunk is held, until this thread is to read it, or until the iteration has stopped. The thread has
    /// [entered](Self::enter) the store.
    pub(super) fn wait_for(&self, chunk: u64, stop: &Stop) -> Wait<T> {
        // Chunks may lie in memory of a front end, which has locks of its own: they leave when no lock is held here.
        let mut left = Vec::new();
        let here = self.here();
        let mut slots = here.lock();
        loop {
            if stop.is_set() {
                return Wait::Stopped;
            }
            slots.time += 1;
            let time = slots.time;
            if let Some(Slot::Held { chunk, used, .. }) = slots.slots.get_mut(&chunk) {
                *used = time;
                return Wait::Held(Arc::clone(chunk));
            }
            if let Some(cause) = slots.failed.get(&chunk) {
                return Wait::Failed(cause.clone());
            }
            if slots.take_turn(chunk, true, &mut left) {
                return Wait::Turn;
            }
            let needs_room = !slots.slots.contains_key(&chunk);
            slots.cramped += usize::from(needs_room);
            if needs_room && slots.is_stuck() {
                slots.cramped -= 1;
                slots.begin(chunk);
                return Wait::Turn;
            }
            here.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = here.changed.wait_timeout(slots, PATIENCE);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
            here.waiting.fetch_sub(1, Ordering::SeqCst);
            slots.cramped -= usize::from(needs_room);
        }
    }

    /// Notes that this thread uses chunks, until the guard is dropped.
    pub(super) fn enter(&self) -> Entered<T> {
        let here = Arc::clone(self.here());
        here.lock().busy += 1;
        Entered(here)
    }

    /// The turn of this thread to read a chunk. If it is dropped without one, the chunk is not there.
    pub(super) fn turn(&self, chunk: u64) -> Turn<'_, T> {
        Turn { held: self.here(), chunk }
    }

    /// Wakes the threads that wait for a chunk, or for room.
    pub(super) fn wake(&self) {
        self.here().wake();
    }

    /// Sets the memory for chunks, once.
    pub(super) fn limit_memory(&self, memory: ChunkMemory) {
        let here = self.here();
        here.lock().memory = Some(*here.memory.get_or_init(|| memory));
    }

    /// Begins an iteration that needs at most `most` chunks at a time, and returns its number.
    pub(super) fn begin_iteration(&self, most: usize) -> u64 {
        let here = self.here();
        let mut slots = here.lock();
        slots.begun += 1;
        slots.failed.clear();
        let number = slots.begun;
        let (needs, early) = (HashMap::new(), HashSet::new());
        slots.iterations.push(Iteration { number, most, open: Vec::new(), time: 0, needs, early });
        drop(slots);
        here.wake();
        number
    }

    /// Ends an iteration. With the last one, all chunks leave.
    pub(super) fn end_iteration(&self, number: u64) {
        let mut slots = self.here().lock();
        slots.iterations.retain(|iteration| iteration.number != number);
        let left = if slots.iterations.is_empty() { slots.leave() } else { Vec::new() };
        drop(slots);
        drop(left);
    }

    /// Notes the chunks that an iteration will need, each with the last time at which it needs it, the earliest time at which
    /// an open block of it begins, and the chunks that its open blocks need.
    pub(super) fn note(&self, number: u64, (time, open): (u64, Vec<u64>), chunks: &[(u64, u64)]) {
        let mut slots = self.here().lock();
        let Slots { slots, iterations, .. } = &mut *slots;
        let Some(iteration) = iterations.iter_mut().find(|iteration| iteration.number == number) else {
            return;
        };
        (iteration.time, iteration.open) = (time, open);
        iteration.needs.retain(|_, last| *last >= time);
        iteration.needs.extend(chunks.iter().copied());
        let missing = chunks.iter().map(|(chunk, _)| *chunk).filter(|chunk| !slots.contains_key(chunk));
        iteration.early.extend(missing);
    }

    /// Returns true if another thread reads one of the chunks that a thread needs, while there is room for one more.
    pub(super) fn has_time_for_more(&self, needed: &[u64]) -> bool {
        let slots = self.here().lock();
        let is_read = |chunk: &u64| matches!(slots.slots.get(chunk), Some(Slot::Reading));
        needed.iter().any(is_read) && slots.has_room()
    }

    /// Takes the turn to read a chunk that an iteration will need. Returns false if it was read since, or there is
    /// no room for it.
    pub(super) fn take_early(&self, chunk: u64) -> bool {
        let mut left = Vec::new();
        let mut slots = self.here().lock();
        let has_turn = slots.is_early(chunk) && slots.take_turn(chunk, false, &mut left);
        slots.forget_early(chunk);
        drop(slots);
        drop(left);
        has_turn
    }

    /// The memory for chunks, if it has a limit.
    pub(super) fn memory(&self) -> Option<ChunkMemory> {
        self.here().lock().memory
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> ChunkCounts {
        self.here().lock().counts
    }

    /// The chunks that this process holds.
    fn here(&self) -> &Arc<Holding<T>> {
        let mut here = &self.0;
        while here.process != process::id() {
            here = here.forked.get_or_init(|| Holding::new(here.memory.get().copied()));
        }
        here
    }
}

impl<T> Holding<T> {
    fn new(memory: Option<ChunkMemory>) -> Arc<Self> {
        let slots = Slots {
            slots: HashMap::new(),
            time: 0,
            iterations: Vec::new(),
            begun: 0,
            busy: 0,
            cramped: 0,
            failed: HashMap::new(),
            bytes: 0,
            memory,
            counts: ChunkCounts::default(),
        };
        Arc::new(Self {
            process: process::id(),
            memory: memory.map_or_else(OnceLock::new, OnceLock::from),
            slots: Mutex::new(slots),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            forked: OnceLock::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait. One that begins to wait just now wakes by itself soon.
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_all();
        }
    }
}

/// The note that a thread uses chunks.
pub(super) struct Entered<T>(Arc<Holding<T>>);

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.wake();
    }
}

/// The turn of a thread to read a chunk.
pub(super) struct Turn<'a, T> {
    held: &'a Holding<T>,
    chunk: u64,
}

impl<T> Turn<'_, T> {
    /// Holds the chunk, of `bytes` bytes, that was read.
    pub(super) fn hold(self, chunk: T, bytes: usize) -> Arc<T> {
        let chunk = Arc::new(chunk);
        let mut slots = self.held.lock();
        slots.time += 1;
        slots.bytes = slots.bytes.saturating_add(bytes);
        if let Some(memory) = &mut slots.memory {
            memory.largest = memory.largest.max(bytes as u64);
        }
        slots.counts.read += 1;
        slots.counts.largest = slots.counts.largest.max(bytes as u64);
        slots.counts.most_bytes = slots.counts.most_bytes.max(slots.bytes as u64);
        let used = slots.time;
        slots.slots.insert(self.chunk, Slot::Held { chunk: Arc::clone(&chunk), bytes, used });
        chunk
    }
}

impl<T> Turn<'_, T> {
    /// Notes that the chunk could not be read.
    pub(super) fn fail(self, cause: &Cause) {
        self.held.lock().failed.insert(self.chunk, cause.clone());
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut slots = self.held.lock();
        if matches!(slots.slots.get(&self.chunk), Some(Slot::Reading)) {
            slots.slots.remove(&self.chunk);
        }
        drop(slots);
        self.held.wake();
    }
}

impl<T> Slots<T> {
    /// Takes the turn to read a chunk, if it is not in the store and there is room for it. Chunks that iterations will
    /// need leave for a chunk that is needed `now` alone.
    fn take_turn(&mut self, chunk: u64, now: bool, left: &mut Vec<Slot<T>>) -> bool {
        let has_turn = !self.slots.contains_key(&chunk) && self.make_room(now, left);
        if has_turn {
            self.begin(chunk);
        }
        has_turn
    }

    /// Notes that some thread reads a chunk.
    fn begin(&mut self, chunk: u64) {
        self.forget_early(chunk);
        self.slots.insert(chunk, Slot::Reading);
        self.counts.most_held = self.counts.most_held.max(self.slots.len() as u64);
    }

    /// Returns true if an iteration will need a chunk, and no thread has begun to read it.
    fn is_early(&self, chunk: u64) -> bool {
        self.iterations.iter().any(|iteration| iteration.early.contains(&chunk))
    }

    fn forget_early(&mut self, chunk: u64) {
        for iteration in &mut self.iterations {
            iteration.early.remove(&chunk);
        }
    }

    /// The time for which iterations will need a chunk; `None`, which is less than any, if none needs it.
    fn remaining(&self, chunk: u64) -> Option<u64> {
        let each =
            self.iterations.iter().filter_map(|it| Some(it.needs.get(&chunk)?.saturating_sub(it.time)));
        each.max()
    }

    /// Returns true if all threads that use chunks wait for room, and no thread reads a chunk.
    fn is_stuck(&self) -> bool {
        self.cramped >= self.busy && !self.slots.values().any(|slot| matches!(slot, Slot::Reading))
    }

    /// Returns true if there is room for a chunk that is read early.
    fn has_room(&self) -> bool {
        let is_unused = |(number, slot): (&u64, &Slot<T>)| match slot {
            Slot::Held { chunk, .. } => Arc::strong_count(chunk) == 1 && self.remaining(*number).is_none(),
            Slot::Reading => false,
        };
        !self.is_full(false) || self.slots.iter().any(is_unused)
    }

    /// Returns true if there is no room for one more chunk. Where it is needed `now`, there is room for all chunks that
    /// iterations have noted: none of these leaves for another one. An early read leaves room for what open blocks lack.
    fn is_full(&self, now: bool) -> bool {
        let lacks = |it: &Iteration| it.open.iter().filter(|chunk| !self.slots.contains_key(chunk)).count();
        let lacking = if now { 0 } else { self.iterations.iter().map(lacks).sum() };
        let reading = self.slots.values().filter(|slot| matches!(slot, Slot::Reading)).count() + lacking;
        let exceeds = |memory: ChunkMemory| {
            let room = memory.bytes.saturating_mul(self.iterations.len().max(1) as u64);
            memory.largest.saturating_mul(reading as u64 + 1).saturating_add(self.bytes as u64) > room
        };
        let most = |it: &Iteration| if now { it.most.max(it.needs.len()) } else { it.most };
        let limit = self.iterations.iter().fold(0_usize, |limit, it| limit.saturating_add(most(it)));
        self.slots.len() + lacking >= limit.max(1)
            || (!self.slots.is_empty() && self.memory.is_some_and(exceeds))
    }

    /// Makes room for one chunk: the chunk that iterations need for the shortest time goes to `left`. Of several, that is
    /// the one that was used the longest time ago. Returns false if all that are held are in use.
    fn make_room(&mut self, now: bool, left: &mut Vec<Slot<T>>) -> bool {
        while self.is_full(now) {
            let unused = self.slots.iter().filter_map(|(&number, slot)| match slot {
                Slot::Held { chunk, used, .. } if Arc::strong_count(chunk) == 1 => {
                    Some((self.remaining(number), *used, number))
                }
                Slot::Held { .. } | Slot::Reading => None,
            });
            let leaving = unused.min().filter(|(remaining, ..)| now || remaining.is_none());
            let Some((remaining, _, number)) = leaving else { return false };
            self.counts.left_early += u64::from(remaining.is_some());
            left.extend(self.remove(number));
        }
        true
    }

    /// Takes out all chunks that no thread reads.
    fn leave(&mut self) -> Vec<Slot<T>> {
        self.failed.clear();
        let (reading, held) =
            mem::take(&mut self.slots).into_iter().partition(|(_, slot)| matches!(slot, Slot::Reading));
        self.slots = reading;
        self.bytes = 0;
        let held: HashMap<u64, Slot<T>> = held;
        held.into_values().collect()
    }

    fn remove(&mut self, chunk: u64) -> Option<Slot<T>> {
        let slot = self.slots.remove(&chunk)?;
        if let Slot::Held { bytes, .. } = &slot {
            self.bytes -= bytes;
        }
        Some(slot)
    }
}
