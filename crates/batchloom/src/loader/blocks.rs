//! One iteration: the blocks of an epoch, and the batches that are views of them.

use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::block::{Batch, Block};
use super::buffers::Loan;
use super::epochs::Epochs;
use super::error::LoaderCause;
use super::job::Job;
use super::queue::{Next, Queue};
use super::worker::help;
use super::workers::Workers;
use crate::Result;
use crate::run::Progress;
use crate::sync::{Instant, process};

/// The longest single wait, for callers that set no time limit.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The outcome of waiting for a block.
#[doc(hidden)]
#[derive(Debug)]
pub enum Polled {
    /// The next block.
    Block(Block),
    /// The block is not ready yet.
    Pending,
    /// The iteration has ended.
    End,
}

/// The blocks of one epoch, in order. It begins as the first one is asked for. Dropping it waits until the workers left
/// it.
pub struct Blocks {
    epochs: Arc<Epochs>,
    begun: Option<BegunBlocks>,
    closed: bool,
}

impl Blocks {
    pub(super) fn new(epochs: Arc<Epochs>) -> Self {
        Self { epochs, begun: None, closed: false }
    }

    /// Waits at most `patience` for the next block, or until there is something to help with.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if a worker fails or cannot be started, and in a forked child;
    /// [`Kind::Memory`](crate::Kind::Memory). The first call begins the epoch, and so may also fail with
    /// [`Kind::Argument`](crate::Kind::Argument) if the epoch has no step; another call then tries again.
    #[doc(hidden)]
    pub fn poll(&mut self, patience: Duration) -> Result<Polled> {
        if self.closed {
            return Ok(Polled::End);
        }
        match &mut self.begun {
            Some(begun) => begun.poll(patience),
            None => {
                let (epochs, workers) = (&self.epochs, self.epochs.workers());
                let begun = epochs.begin(epochs.block_bytes, |job, progress| {
                    // Samples are made by workers alone, which may take long, or enter an interpreter.
                    let helps = epochs.threads > 1 && job.demand.is_none();
                    BegunBlocks::start(job, progress, workers, helps, epochs.prefetch)
                });
                self.begun.insert(begun?).poll(patience)
            }
        }
    }

    /// The next block, if it is ready now, for consumers that begin with it while batches of the last one are in use.
    /// Errors, the end and the beginning are left to [`poll`](Self::poll).
    #[doc(hidden)]
    pub fn ahead(&mut self) -> Option<Block> {
        self.begun.as_mut().and_then(BegunBlocks::ahead)
    }

    /// Counts one batch as handed over. [`Loader::state`](super::Loader::state) reports this count.
    pub fn advance(&self) {
        if let Some(begun) = &self.begun {
            begun.progress.advance();
        }
    }

    /// Returns true if the epoch has begun.
    pub fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// The number of batches that are left; before an epoch has begun, of the epoch that would begin now. An epoch that
    /// cannot begin is one error.
    fn left(&self) -> u64 {
        match &self.begun {
            Some(begun) => begun.progress.left(),
            None => {
                let run = self.epochs.run();
                let (plan, rank) = (run.upcoming(), run.rank());
                drop(run);
                if plan.require_steps().is_ok() { plan.steps_of(rank) } else { 1 }
            }
        }
    }

    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        self.epochs.fields.names()
    }

    /// Stops the iteration and waits until the workers have left it. The iteration yields no more.
    pub fn close(&mut self) {
        self.closed = true;
        if let Some(begun) = &mut self.begun {
            begun.close();
        }
    }
}

/// The blocks of an epoch that has begun.
struct BegunBlocks {
    job: Arc<Job>,
    queue: Arc<Queue>,
    workers: Arc<Workers>,
    /// The iteration that workers are called to, if they are.
    iteration: Option<u64>,
    progress: Arc<Progress>,
    process: u32,
    /// True if the consumer fills pieces while it waits, and its memory for sample numbers.
    helps: bool,
    indices: Vec<u64>,
    /// The number of blocks handed over.
    delivered: u64,
}

impl BegunBlocks {
    /// Calls `workers` to form blocks, `prefetch` of them ahead. A consumer that `helps` is one of them while it waits,
    /// so that it takes no core from a worker. An epoch that is one small block it forms alone: it has done before a
    /// worker would have come.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if a thread cannot be started.
    pub(super) fn start(
        job: Job,
        progress: Arc<Progress>,
        workers: Arc<Workers>,
        helps: bool,
        prefetch: Option<usize>,
    ) -> Result<Self> {
        let (on_demand, counted) = (job.demand.is_some(), Arc::clone(&progress));
        let queue = Arc::new(Queue::new(job.block_bytes, prefetch, on_demand, counted));
        let (job, process) = (Arc::new(job), process::id());
        // An error of the layout is left to the consumer of that block.
        let is_small = queue.is_small(&job).unwrap_or(false);
        progress.meter.begin();
        if let Some(demand) = &job.demand {
            progress.meter.follow(&demand.clock);
        }
        let iteration = if is_small { None } else { Some(workers.call(&job, &queue)?) };
        let helps = helps || is_small;
        Ok(Self {
            job,
            queue,
            workers,
            iteration,
            progress,
            process,
            helps,
            indices: Vec::new(),
            delivered: 0,
        })
    }

    fn poll(&mut self, patience: Duration) -> Result<Polled> {
        require_process(self.process)?;
        let begun = Instant::now();
        let deadline = begun + patience;
        self.queue.ask(&self.job.buffers);
        while self.helps && Instant::now() < deadline && help(&self.job, &self.queue, &mut self.indices) {}
        let polled = self.take(deadline);
        self.progress.meter.wait(begun.elapsed());
        let polled = polled?;
        if matches!(polled, Polled::End) {
            self.progress.end();
        }
        Ok(polled)
    }

    fn ahead(&mut self) -> Option<Block> {
        match self.take(Instant::now()) {
            Ok(Polled::Block(block)) => Some(block),
            Ok(Polled::Pending) => {
                self.job.buffers.keep();
                None
            }
            _ => None,
        }
    }

    fn take(&mut self, deadline: Instant) -> Result<Polled> {
        require_process(self.process)?;
        Ok(match self.queue.next(deadline, self.helps, &self.job.buffers)? {
            Next::Block(mut planned, whole, delivered) => {
                // Every region was let go before its piece was counted as filled.
                let buffer = whole.join().ok_or_else(|| LoaderCause::Worker {
                    block: self.delivered,
                    message: "a delivered block is still being written".to_owned(),
                })?;
                self.delivered += 1;
                let bytes = planned.memory_of_batches(Bytes::from_owner(Loan::new(buffer, delivered)))?;
                Polled::Block(Block::new(&planned, &bytes)?)
            }
            Next::Pending => Polled::Pending,
            Next::End => Polled::End,
        })
    }

    fn close(&mut self) {
        self.progress.close();
        if self.process != process::id() {
            // In a forked child, these threads do not exist, and one of them may have held a lock.
            return;
        }
        self.queue.stop();
        self.job.buffers.keep();
        if let Some(iteration) = self.iteration.take() {
            // A worker may drop its own blocks while memory is allocated for it; it then leaves when it comes back.
            self.workers.leave(iteration);
        }
        for whole in self.queue.drain() {
            whole.join().into_iter().for_each(|buffer| self.job.buffers.give(buffer));
        }
    }
}

impl Drop for BegunBlocks {
    fn drop(&mut self) {
        self.close();
    }
}

impl Iterator for Blocks {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Result<Block>> {
        loop {
            match self.poll(PATIENCE) {
                Ok(Polled::Block(block)) => return Some(Ok(block)),
                Ok(Polled::Pending) => {}
                Ok(Polled::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Blocks").field("is_begun", &self.is_begun()).finish_non_exhaustive()
    }
}

/// The batches of one epoch, in order. It begins as the first one is asked for. Dropping it waits until the workers
/// left it.
///
/// The length is known, so that progress can be shown and `collect` allocates once: it is the number of batches that
/// are left, unless one of them is an error, which is the last.
#[derive(Debug)]
pub struct Batches {
    /// The blocks, or `None` after the end or a failure.
    blocks: Option<Blocks>,
    ready: std::vec::IntoIter<Batch>,
}

impl Batches {
    pub(super) fn new(blocks: Blocks) -> Self {
        Self { blocks: Some(blocks), ready: Vec::new().into_iter() }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.blocks.as_ref().map_or(0, Blocks::left);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        (left, Some(left))
    }

    fn next(&mut self) -> Option<Result<Batch>> {
        let blocks = self.blocks.as_mut()?;
        loop {
            if let Some(batch) = self.ready.next() {
                blocks.advance();
                return Some(Ok(batch));
            }
            match blocks.next().map(|block| block.and_then(|block| block.to_batches())) {
                Some(Ok(batches)) => self.ready = batches.into_iter(),
                Some(Err(error)) => {
                    self.blocks = None;
                    return Some(Err(error));
                }
                None => {
                    self.blocks = None;
                    return None;
                }
            }
        }
    }
}

impl ExactSizeIterator for Batches {}

impl FusedIterator for Batches {}

/// Refuses to go on with an iteration in another process than the one that started it: a forked child has none of its
/// threads.
///
/// # Errors
/// [`Kind::Runtime`](crate::Kind::Runtime), with the numbers of both processes.
#[doc(hidden)]
pub fn require_process(started: u32) -> Result<()> {
    let current = process::id();
    match current == started {
        true => Ok(()),
        false => Err(LoaderCause::Forked { started, current }.into()),
    }
}
