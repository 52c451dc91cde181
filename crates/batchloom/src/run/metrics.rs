//! The work of an iteration so far, and the time that it waited.
//!
//! Promises: counting takes a few atomic additions a block, and two readings of the clock where something waits; it
//! changes nothing else.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::sync::ReadClock;

/// The counts of one iteration, which its consumer and its workers write.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    began: OnceLock<Instant>,
    ended: OnceLock<Instant>,
    blocks: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds.
    waited: AtomicU64,
    idle: AtomicU64,
    /// Blocks in the queue and their bytes now, and the most bytes so far.
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    most_bytes: AtomicUsize,
    /// The time of threads that read samples on demand, if they are.
    reading: OnceLock<Arc<ReadClock>>,
}

impl Meter {
    /// Notes that the first block is asked for.
    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Takes the time that threads spend on reading samples from `clock`.
    pub(crate) fn follow(&self, clock: &Arc<ReadClock>) {
        self.reading.get_or_init(|| Arc::clone(clock));
    }

    /// Notes that the iteration is over.
    pub(crate) fn end(&self) {
        self.ended.get_or_init(Instant::now);
    }

    /// Counts a block that the consumer took.
    pub(crate) fn take(&self, bytes: usize) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts time that the consumer spent until it had a block.
    pub(crate) fn wait(&self, time: Duration) {
        self.waited.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }

    /// Counts time that a worker spent without work.
    pub(crate) fn count_idle(&self, time: Duration) {
        self.idle.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }

    /// Notes what is in the queue.
    pub(crate) fn queue(&self, blocks: usize, bytes: usize) {
        self.queued.store(blocks, Ordering::Relaxed);
        self.queued_bytes.store(bytes, Ordering::Relaxed);
        self.most_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The counts so far, of which `batches` were handed over.
    pub(crate) fn read(&self, batches: u64) -> Metrics {
        let end = || self.ended.get().copied().unwrap_or_else(Instant::now);
        let elapsed =
            self.began.get().map_or(Duration::ZERO, |began| end().saturating_duration_since(*began));
        let time = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        let (reading, blocked) = self.reading.get().map(|clock| clock.read()).unwrap_or_default();
        Metrics {
            batches,
            blocks: self.blocks.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            elapsed,
            waited: time(&self.waited).min(elapsed),
            idle: time(&self.idle),
            queued: self.queued.load(Ordering::Relaxed),
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed),
            most_queued_bytes: self.most_bytes.load(Ordering::Relaxed),
            reading,
            blocked,
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The work of an iteration of a loader so far, and the time that was spent waiting: see
/// [`Loader::metrics`](crate::Loader::metrics).
///
/// Its text is a verdict in one line: `the loop waited 2.1 % of the epoch for batches; at most 12 MB were ready ahead`.
/// Batches that are views of the data are formed by no block, and nothing waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of batches that were handed over.
    pub batches: u64,
    /// The number of blocks that these were cut from.
    pub blocks: u64,
    /// The bytes of those blocks.
    pub bytes: u64,
    /// The time since the first batch was asked for, until the end of the epoch.
    pub elapsed: Duration,
    /// The part of it that the loop spent in the loader: waiting for a block, or forming a part of it.
    pub waited: Duration,
    /// The time that workers spent without work, summed over all of them: the queue was full.
    pub idle: Duration,
    /// The number of blocks that are ready or in the making now.
    pub queued: usize,
    /// Bytes of the queued blocks. With samples on demand, only blocks that have been read count.
    pub queued_bytes: usize,
    /// The most bytes that were ready or in the making at once.
    pub most_queued_bytes: usize,
    /// The time that threads spent on reading samples on demand, summed over all of them, if their reader counts it: in
    /// Python, threads that call the function of a `MapDataset`.
    pub reading: Duration,
    /// The part of it that threads waited for a lock which one of them holds at a time, such as an interpreter.
    pub blocked: Duration,
}

impl Metrics {
    /// The share of the time that the loop waited for batches, from 0 to 1.
    pub fn waiting_share(&self) -> f64 {
        match self.elapsed.is_zero() {
            true => 0.0,
            false => self.waited.as_secs_f64() / self.elapsed.as_secs_f64(),
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.elapsed.is_zero() {
            return formatter.write_str("no epoch has begun");
        }
        let (share, megabytes) = (100.0 * self.waiting_share(), self.most_queued_bytes as f64 / 1e6);
        write!(
            formatter,
            "the loop waited {share:.1} % of the epoch for batches; at most {megabytes:.1} MB were ready ahead"
        )
    }
}
