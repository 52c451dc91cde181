//! The queue between workers and consumer: it hands out tasks, waits for pieces, and delivers blocks in order.
//!
//! Promises, whatever the timing: blocks are delivered by number; the blocks that wait here are a single one, or take
//! at most the bytes of `prefetch` blocks (of the largest so far, or of the usual size if no number was chosen), beside
//! a block of samples on demand that the consumer asked for; if `prefetch` is 0, there is one only while the consumer
//! needs it; `stop` and `fail` end every wait. The protocol is in `README.md` beside this file.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::buffers::{Buffers, Delivered};
use super::demand::{Extras, Reading, ToRead};
use super::failure::Failure;
use super::job::{Filling, Job, LaidOut, NextBlock, Opened, Task};
use super::layout::RunLayout;
use super::planned::PlannedBlock;
use super::signal::{SOON, Signal};
use crate::dataset::{ReadPart, Stop};
use crate::run::Progress;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Instant, Mutex, MutexGuard};
use crate::tensor::buffer::SplitBuffer;
use crate::{Error, Result};

/// The number of blocks of the usual size that may wait unless another was chosen. Of samples on demand these are
/// batches, and a single one, where they are larger than `LARGE`.
pub(super) const PREFETCH: usize = 2;
const LARGE: usize = 32 << 20;

/// A block in the queue.
enum QueuedBlock {
    /// Its samples are being read.
    Reading(Reading),
    /// Its samples are read, and a thread lays it out.
    Read,
    /// Its pieces are being filled.
    Filling {
        planned: Box<PlannedBlock>,
        whole: SplitBuffer,
        /// The number of pieces that are not filled yet.
        left: usize,
        /// The additions of filled pieces beside their bytes.
        extras: Extras,
        /// The first batch that cannot be formed, if there is one.
        failure: Option<Failure>,
    },
    /// It cannot be made.
    Failed(Error),
}

impl QueuedBlock {
    /// An open block with a number of pieces to fill.
    fn open(planned: Box<PlannedBlock>, whole: SplitBuffer, left: usize) -> Self {
        Self::Filling { planned, whole, left, extras: Extras::default(), failure: None }
    }

    /// Returns true if it has no piece left to fill, or cannot be made.
    fn is_filled(&self) -> bool {
        matches!(self, Self::Filling { left: 0, .. } | Self::Failed(_))
    }
}

/// The answer to a consumer.
pub(super) enum Next {
    /// The next block, in order.
    Block(Box<PlannedBlock>, SplitBuffer, Delivered),
    /// No block is ready yet.
    Pending,
    /// All blocks have been delivered.
    End,
}

struct Inner {
    /// The open blocks. The front one has the number `delivered`.
    blocks: VecDeque<QueuedBlock>,
    tasks: VecDeque<Task>,
    /// The tasks of reading chunks that later blocks need, and the number of threads that read one.
    early: VecDeque<Task>,
    reading_early: usize,
    delivered: u64,
    opened: u64,
    /// The block to open next, if it is laid out already, and the step that comes after it, with its batch if that is
    /// planned already.
    next: Option<NextBlock>,
    step: u64,
    first: Option<RunLayout>,
    /// True while a thread opens a block, and true once every block is opened.
    opening: bool,
    exhausted: bool,
    /// True if the next block waits for the memory of chunks that open blocks need.
    lacks_memory: bool,
    /// The number of bytes of the blocks in `blocks`, and of the largest block so far.
    bytes: usize,
    largest: usize,
    stopped: bool,
    failure: Option<Error>,
}

impl Inner {
    /// Returns true if the front block has no piece left to fill, or cannot be made.
    fn is_ready(&self) -> bool {
        self.blocks.front().is_some_and(QueuedBlock::is_filled)
    }

    /// Returns true as long as the first block is not formed. Samples of others are not read before: those of the first
    /// decide how all are laid out, and a slow sample, or one that ends its process, must not hold up the batches
    /// before.
    fn awaits_first(&self) -> bool {
        self.delivered == 0 && !self.blocks.is_empty() && !self.is_ready()
    }

    /// Returns true if samples are being read, so that there will be pieces to fill.
    fn is_reading(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, QueuedBlock::Reading(_) | QueuedBlock::Read))
    }

    /// The block of a number, if it is open.
    fn block(&mut self, number: u64) -> Option<&mut QueuedBlock> {
        let place = usize::try_from(number.checked_sub(self.delivered)?).ok()?;
        self.blocks.get_mut(place)
    }

    /// The first block with pieces that are not filled.
    fn first_unfilled(&self) -> u64 {
        self.delivered + self.blocks.iter().take_while(|block| block.is_filled()).count() as u64
    }

    /// Adds the tasks of reading the chunks that the block to open now, which begins at `step`, and later blocks need.
    fn read_early(&mut self, job: &Job, step: u64) {
        self.early.extend(job.read_early(self.opened, step, self.first_unfilled()));
    }

    /// The task of reading the next chunk early, if fewer than `threads` threads do so.
    fn take_early(&mut self, threads: usize) -> Option<Task> {
        let task = if self.reading_early < threads { self.early.pop_front() } else { None };
        self.reading_early += usize::from(task.is_some());
        task
    }

    /// The next task of a worker. Where it would wait for a chunk that another thread reads, it reads the next chunk instead:
    /// the thread that has read the chunk then takes the task that needs it.
    fn take_task(&mut self, job: &Job) -> Option<Task> {
        let waits = |task: &Task| job.has_time_for_more(task.block);
        if !self.early.is_empty() && self.tasks.front().is_some_and(waits) {
            return self.take_early(usize::MAX);
        }
        // One thread at least fills blocks whose chunks are there.
        self.tasks.pop_front().or_else(|| self.take_early(job.threads_that_read_early()))
    }

    /// Lays out the block to open next, if there is one and it is not laid out yet.
    fn lay_out(&mut self, job: &Job) -> Result<()> {
        if self.next.is_none() {
            self.next = job.lay_out(self.step, self.first.take())?;
        }
        Ok(())
    }
}

/// The queue that this file describes.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// The same as `stopped` there, for threads that are reading or wait for memory.
    stop: Stop,
    /// Signals that there may be work, or the end.
    work: Signal,
    /// Signals that the front block may be ready, or that there may be work for the consumer, or the end.
    ready: Signal,
    /// True while the consumer waits for a block that is not ready. Written under the lock.
    asked: AtomicBool,
    /// The number of blocks that may wait, if that was chosen, and the usual bytes of a block.
    prefetch: Option<usize>,
    block_bytes: usize,
    /// True if samples are made on demand.
    on_demand: bool,
    /// The iteration that metrics are written to.
    progress: Arc<Progress>,
}

impl Queue {
    /// A queue in which at most `prefetch` blocks of about `block_bytes` wait.
    pub(super) fn new(
        block_bytes: usize,
        prefetch: Option<usize>,
        on_demand: bool,
        progress: Arc<Progress>,
    ) -> Self {
        let inner = Inner {
            blocks: VecDeque::new(),
            tasks: VecDeque::new(),
            early: VecDeque::new(),
            reading_early: 0,
            delivered: 0,
            opened: 0,
            next: None,
            step: 0,
            first: None,
            opening: false,
            exhausted: false,
            lacks_memory: false,
            bytes: 0,
            largest: block_bytes,
            stopped: false,
            failure: None,
        };
        let (inner, stop, asked) = (Mutex::new(inner), Stop::default(), AtomicBool::new(false));
        let (work, ready) = (Signal::default(), Signal::default());
        Self { inner, stop, work, ready, asked, prefetch, block_bytes, on_demand, progress }
    }

    /// Notes that the consumer needs the next block. Unless that is ready, it is opened now if it is not open yet,
    /// whatever the consumer keeps.
    pub(super) fn ask(&self, buffers: &Buffers) {
        let inner = self.lock();
        let is_first = !inner.is_ready() && !self.asked.swap(true, Ordering::SeqCst);
        if is_first && (self.on_demand || self.prefetch == Some(0)) {
            self.work.raise();
        }
        drop(inner);
        buffers.keep();
    }

    /// The time that a worker without work stays awake: where nothing is made ahead, the next block is often asked for
    /// at once.
    fn awake(&self) -> Duration {
        if self.prefetch == Some(0) && !self.on_demand { SOON } else { Duration::ZERO }
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns true if a block may be opened now: the only one that waits, unless it was to be asked for, or one of the
    /// blocks that fill the bytes that may wait. Of samples that are read on demand, the same number of batches may
    /// wait.
    fn may_open(&self, inner: &Inner, next: &LaidOut) -> bool {
        let bytes = next.planned.layout.bytes;
        if !matches!(next.filling, Filling::Forms) {
            return self.may_read(inner, inner.largest.max(bytes));
        }
        let most = match self.prefetch {
            Some(blocks) => inner.largest.saturating_mul(blocks),
            None => self.block_bytes.saturating_mul(PREFETCH),
        };
        match inner.blocks.is_empty() {
            true => self.prefetch != Some(0) || self.is_asked(),
            false => inner.bytes.saturating_add(bytes) <= most,
        }
    }

    /// Returns true if one more batch may be read on demand: `prefetch` of them ahead of the one in use. That is the
    /// batch that a consumer needs, except of large batches: it may still hold their memory.
    fn may_read(&self, inner: &Inner, largest: usize) -> bool {
        let prefetch = self.prefetch.unwrap_or(if largest > LARGE { 1 } else { PREFETCH });
        let asked = self.is_asked() && (largest <= LARGE || prefetch == 0);
        inner.blocks.len() < prefetch.saturating_add(asked.into())
    }

    /// A worker's next task, from a block that is opened for it if that is allowed. `None` when there will be no more.
    ///
    /// # Errors
    /// The errors of [`Job::lay_out`] and [`Job::open`].
    pub(super) fn take(&self, job: &Job) -> Result<Option<Task>> {
        let mut inner = self.lock();
        while !inner.stopped {
            if let Some(task) = inner.take_task(job) {
                return Ok(Some(task));
            }
            inner = match self.reserve(&mut inner, job)? {
                Some(planned) => self.open(inner, job, planned)?,
                None if !inner.tasks.is_empty() => inner,
                None if !inner.early.is_empty() => return Ok(inner.take_early(usize::MAX)),
                None if inner.exhausted && !inner.is_reading() => break,
                None => {
                    let begun = Instant::now();
                    let inner = self.work.wait(&self.inner, inner, self.awake(), Duration::MAX);
                    self.progress.meter.count_idle(begun.elapsed());
                    inner
                }
            };
        }
        Ok(None)
    }

    /// A task for a consumer that would wait otherwise. `None` if the front block is ready, or there is nothing to do
    /// at the moment. It opens no block in memory that a caller allocates: an allocation may do things that belong in
    /// the consumer's own time, as Python handles signals.
    ///
    /// # Errors
    /// The errors of [`Job::lay_out`] and [`Job::open`].
    pub(super) fn take_waiting(&self, job: &Job) -> Result<Option<Task>> {
        let mut inner = self.lock();
        if inner.is_ready() || inner.stopped {
            return Ok(None);
        }
        if inner.tasks.is_empty()
            && !job.buffers.is_lent()
            && let Some(planned) = self.reserve(&mut inner, job)?
        {
            inner = self.open(inner, job, planned)?;
        }
        Ok(inner.tasks.pop_front())
    }

    /// True if all that is left is one small block that the consumer may open, so that no worker is needed.
    ///
    /// # Errors
    /// The same as those of [`Job::lay_out`].
    pub(super) fn is_small(&self, job: &Job) -> Result<bool> {
        let mut inner = self.lock();
        inner.lay_out(job)?;
        let planned = match &inner.next {
            Some(NextBlock::LaidOut(laid_out)) => &laid_out.planned,
            Some(NextBlock::ToRead(_)) => return Ok(false),
            None => {
                // No worker is called for such an epoch, and a consumer opens no lent memory: its end has to be known
                // here.
                self.exhaust(&mut inner);
                return Ok(true);
            }
        };
        let ends = planned.layout.end >= job.plan.steps_of(job.rank);
        Ok(ends && planned.layout.is_small() && !job.buffers.is_lent())
    }

    /// The layout of the block to open now, if there is one, it may be opened, and no other thread is opening one.
    fn reserve(&self, inner: &mut Inner, job: &Job) -> Result<Option<LaidOut>> {
        if inner.opening || inner.exhausted || (inner.awaits_first() && job.demand.is_some()) {
            return Ok(None);
        }
        inner.lay_out(job)?;
        match inner.next.take() {
            None => self.exhaust(inner),
            // Blocks whose chunks memory does not hold side by side are open one after the other.
            Some(waiting) if !job.fits(inner.step, inner.first_unfilled()) => {
                (inner.next, inner.lacks_memory) = (Some(waiting), true);
            }
            Some(NextBlock::LaidOut(mut next)) if self.may_open(inner, &next) => {
                let step = inner.step;
                (inner.step, inner.first) = (next.planned.layout.end, next.planned.layout.next.take());
                inner.opening = true;
                inner.read_early(job, step);
                return Ok(Some(next));
            }
            Some(NextBlock::ToRead(to_read)) if self.may_read(inner, inner.largest) => {
                let step = to_read.step;
                inner.step = step + 1;
                inner.read_early(job, step);
                self.admit_reading(inner, to_read);
            }
            waiting => inner.next = waiting,
        }
        Ok(None)
    }

    /// Opens a block that needs its samples read.
    fn admit_reading(&self, inner: &mut Inner, to_read: ToRead) {
        let number = inner.opened;
        inner.opened += 1;
        inner.tasks.extend(to_read.tasks().map(|task| Task::read(number, task)));
        inner.blocks.push_back(QueuedBlock::Reading(Reading::new(to_read)));
        self.progress.meter.queue(inner.blocks.len(), inner.bytes);
        self.notify(inner);
    }

    /// Opens a block, without the lock: an allocation may take long, and may return to this queue. A large block
    /// that is not needed yet waits for the memory of the batch that the consumer is about to drop.
    fn open<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        job: &Job,
        next: LaidOut,
    ) -> Result<MutexGuard<'a, Inner>> {
        let number = inner.opened;
        drop(inner);
        job.buffers.wait(next.planned.memory(), || self.is_asked() || self.stop.is_set());
        let opened = job.open(number, next)?;
        let mut inner = self.lock();
        inner.opening = false;
        self.admit(&mut inner, opened);
        Ok(inner)
    }

    /// Notes that there are no more blocks to open, and wakes every thread that waits.
    fn exhaust(&self, inner: &mut Inner) {
        inner.exhausted = true;
        inner.early.clear();
        self.notify(inner);
    }

    fn admit(&self, inner: &mut Inner, opened: Opened) {
        let Opened { planned, whole, tasks } = opened;
        let bytes = planned.layout.bytes;
        inner.opened += 1;
        inner.bytes += bytes;
        inner.largest = inner.largest.max(bytes);
        inner.blocks.push_back(QueuedBlock::open(planned, whole, tasks.len()));
        inner.tasks.extend(tasks);
        self.progress.meter.queue(inner.blocks.len(), inner.bytes);
        self.notify(inner);
    }

    /// Adds samples that were read for `block`. There are fewer than were asked for if the iteration has stopped.
    pub(super) fn finish_reading(&self, block: u64, range: Range<usize>, part: ReadPart) {
        if let Some(QueuedBlock::Reading(reading)) = self.lock().block(block) {
            reading.add(range, part);
        }
    }

    /// Takes the samples of the oldest block that is not laid out, if they are all read: blocks are laid out one after
    /// the other, so that the first sample, which later samples are compared to, does not depend on timing.
    pub(super) fn take_read(&self) -> Option<(u64, Reading)> {
        let mut inner = self.lock();
        let delivered = inner.delivered;
        let filled = |block: &QueuedBlock| matches!(block, QueuedBlock::Filling { .. });
        let place = inner.blocks.iter().position(|block| !filled(block)).filter(|_| !inner.stopped)?;
        let block = inner.blocks.get_mut(place)?;
        match mem::replace(block, QueuedBlock::Read) {
            QueuedBlock::Reading(reading) if reading.is_complete() => {
                Some((delivered + place as u64, reading))
            }
            other => {
                *block = other;
                None
            }
        }
    }

    /// Opens a block of read samples: its pieces are filled before anything is read for later ones.
    pub(super) fn admit_read(&self, block: u64, opened: Opened) {
        let mut inner = self.lock();
        let Opened { planned, whole, tasks } = opened;
        inner.bytes += planned.layout.bytes;
        self.progress.meter.queue(inner.blocks.len(), inner.bytes);
        let left = tasks.len();
        if let Some(block) = inner.block(block) {
            *block = QueuedBlock::open(planned, whole, left);
        }
        tasks.into_iter().rev().for_each(|task| inner.tasks.push_front(task));
        self.notify(&inner);
    }

    /// Notes that a block cannot be made. The consumer gets the error in place of the block, and those before it first.
    pub(super) fn fail_block(&self, number: u64, error: Error) {
        let mut inner = self.lock();
        if let Some(block) = inner.block(number)
            && !matches!(block, QueuedBlock::Failed(_))
        {
            *block = QueuedBlock::Failed(error);
        }
        self.notify(&inner);
    }

    /// Counts one chunk as read early.
    pub(super) fn finish_early(&self) {
        self.lock().reading_early -= 1;
    }

    /// Counts one piece of `block` as filled, its memory let go, and adds its `extras` to the block.
    pub(super) fn finish(&self, block: u64, part: Extras) {
        let mut inner = self.lock();
        if let Some(QueuedBlock::Filling { left, extras, .. }) = inner.block(block) {
            *left -= 1;
            extras.extend(part);
            if *left == 0 && mem::take(&mut inner.lacks_memory) {
                self.work.raise();
            }
        }
        if block == inner.delivered && inner.is_ready() {
            self.ready.raise();
            if block == 0 {
                self.work.raise();
            }
        }
    }

    /// Notes that a part of a block failed. Of several failures the first in the block counts.
    pub(super) fn fail_part(&self, number: u64, failed: Failure) {
        let mut inner = self.lock();
        if let Some(QueuedBlock::Filling { left, failure, .. }) = inner.block(number) {
            *left -= 1;
            if failure.as_ref().is_none_or(|first| failed.is_before(first)) {
                *failure = Some(failed);
            }
            self.notify(&inner);
        } else {
            drop(inner);
            self.fail_block(number, failed.error);
        }
    }

    /// The sign that the iteration has stopped.
    pub(super) fn stop_sign(&self) -> &Stop {
        &self.stop
    }

    /// The next block if it is ready before `deadline`. A consumer that `helps` is told as soon as there is work.
    ///
    /// # Errors
    /// The error that a worker reported.
    pub(super) fn next(&self, deadline: Instant, helps: bool, buffers: &Arc<Buffers>) -> Result<Next> {
        let mut inner = self.lock();
        loop {
            if let Some(error) = &inner.failure {
                return Err(error.clone());
            }
            if inner.stopped || (inner.exhausted && inner.blocks.is_empty()) {
                return Ok(Next::End);
            }
            if inner.is_ready() {
                return self.deliver(&mut inner, buffers);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (helps && !inner.tasks.is_empty()) {
                return Ok(Next::Pending);
            }
            // A consumer that helps waits for the last pieces alone, which are being filled.
            let awake = if helps { SOON } else { Duration::ZERO };
            inner = self.ready.wait(&self.inner, inner, awake, left);
        }
    }

    /// Takes the front block, which is ready: of a block that failed, the batches before the failure. The failure then
    /// stays there, and is an error each time.
    fn deliver(&self, inner: &mut Inner, buffers: &Arc<Buffers>) -> Result<Next> {
        let (mut planned, whole, Extras { mut skipped, objects }, failure) = match inner.blocks.pop_front() {
            Some(QueuedBlock::Filling { planned, whole, extras, failure, .. }) => {
                (planned, whole, extras, failure)
            }
            Some(QueuedBlock::Failed(error)) => {
                inner.blocks.push_front(QueuedBlock::Failed(error.clone()));
                return Err(error);
            }
            _ => return Ok(Next::Pending),
        };
        if let Some(Failure { step, error, .. }) = failure {
            inner.blocks.push_front(QueuedBlock::Failed(error.clone()));
            if !planned.end_before(step) {
                return Err(error);
            }
        } else {
            inner.delivered += 1;
        }
        skipped.sort_unstable_by_key(|(member, _)| *member);
        planned.skipped.extend(skipped.into_iter().map(|(_, skipped)| skipped));
        planned.objects.extend(objects);
        self.asked.store(false, Ordering::SeqCst);
        inner.bytes -= planned.layout.bytes;
        self.progress.meter.take(planned.layout.bytes);
        self.progress.meter.queue(inner.blocks.len(), inner.bytes);
        // Counted before a thread can open the next block, which may wait for this one's memory.
        let delivered = buffers.deliver();
        self.work.raise();
        Ok(Next::Block(planned, whole, delivered))
    }

    /// Ends every wait, now and later.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        self.stop.set();
        self.notify(&inner);
    }

    /// Wakes all that wait. The caller holds the lock.
    fn notify(&self, _: &Inner) {
        self.work.raise();
        self.ready.raise();
    }

    /// The memory of blocks that were never delivered, to be taken after the workers have ended.
    pub(super) fn drain(&self) -> Vec<SplitBuffer> {
        let mut inner = self.lock();
        inner.tasks.clear();
        self.progress.meter.queue(0, 0);
        let whole = |block| match block {
            QueuedBlock::Filling { whole, .. } => Some(whole),
            _ => None,
        };
        inner.blocks.drain(..).filter_map(whole).collect()
    }

    /// Stops the queue, with an error for the consumer.
    pub(super) fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
        self.stop();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
