//! One iteration by steps, for callers that take batches from the data themselves, for example as views.
//!
//! It computes the samples of each step and counts the batches handed over. It owns no thread; a batch that cannot be a
//! view is made when asked for, by the caller.

use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

use super::block::Block;
use super::blocks::require_process;
use super::epochs::Epochs;
use super::job::Job;
use crate::Result;
use crate::collate::FILLER;
use crate::plan::error::PlanCause;
use crate::run::Progress;
use crate::sync::{Mutex, process};

/// The steps of one epoch, on one rank. The next one is the first that was not counted by [`advance`](Self::advance).
/// The epoch begins as [`left`](Self::left) or a step is asked for.
#[doc(hidden)]
pub struct Steps {
    epochs: Arc<Epochs>,
    begun: OnceLock<BegunSteps>,
    /// Held while the epoch begins.
    beginning: Mutex<()>,
}

/// The steps of an epoch that has begun.
struct BegunSteps {
    job: Job,
    progress: Arc<Progress>,
    total: u64,
    process: u32,
}

impl Steps {
    pub(super) fn new(epochs: Arc<Epochs>) -> Self {
        Self { epochs, begun: OnceLock::new(), beginning: Mutex::new(()) }
    }

    /// The one step `step` of a job, apart from the run of the loader.
    pub(super) fn at(epochs: Arc<Epochs>, job: Job, step: u64) -> Self {
        let total = step.saturating_add(1);
        let progress = Progress::new(total);
        progress.pass_over(step);
        let begun = BegunSteps { job, progress, total, process: process::id() };
        Self { epochs, begun: OnceLock::from(begun), beginning: Mutex::new(()) }
    }

    /// The number of steps left.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the epoch cannot begin.
    pub fn left(&self) -> Result<u64> {
        let begun = self.begun()?;
        Ok(begun.total - begun.progress.steps().min(begun.total))
    }

    /// The samples of the batch `ahead` steps after the next one, if they are neighbours as stored and none of them
    /// fills up, or else `None`.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) past the last step; [`Kind::Runtime`](crate::Kind::Runtime) in a forked
    /// child; [`Kind::Argument`](crate::Kind::Argument) if the epoch cannot begin.
    pub fn run(&self, ahead: u64) -> Result<Option<Range<u64>>> {
        let begun = self.begun()?;
        begun.job.plan.run(begun.step(ahead)?, begun.job.rank)
    }

    /// The rows of a stream that continue from batch to batch, and the number of pieces of each: piece `k` is in row
    /// `k % rows`, after `k / rows` pieces. `None` for samples that lie as they are numbered.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the epoch cannot begin.
    pub fn continued_rows(&self) -> Result<Option<(u64, u64)>> {
        Ok(self.epochs.continued_rows(&self.begun()?.job.plan))
    }

    /// The samples of the next batch.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) past the last step; [`Kind::Runtime`](crate::Kind::Runtime) in a forked
    /// child; [`Kind::Argument`](crate::Kind::Argument) if the epoch cannot begin.
    pub fn indices(&self) -> Result<Vec<u64>> {
        let begun = self.begun()?;
        begun.job.plan.indices(begun.step(0)?, begun.job.rank)
    }

    /// The samples of the next batch, -1 where a place only fills up.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) past the last step; [`Kind::Runtime`](crate::Kind::Runtime) in a forked
    /// child.
    pub fn index(&self) -> Result<Vec<i64>> {
        let mut index: Vec<i64> = self.indices()?.into_iter().map(u64::cast_signed).collect();
        let begun = self.begun()?;
        let fillers = begun.job.plan.fillers(begun.step(0)?, begun.job.rank)?;
        (0..fillers).zip(index.iter_mut().rev()).for_each(|(_, place)| *place = FILLER);
        let banned = begun.job.plan.banned(begun.step(0)?);
        let is_banned = |place: &&mut i64| banned.binary_search(&place.cast_unsigned()).is_ok();
        index.iter_mut().filter(is_banned).for_each(|place| *place = FILLER);
        Ok(index)
    }

    /// Makes the next batch here and now, in separate memory.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) past the last step; [`Kind::Runtime`](crate::Kind::Runtime) in a forked
    /// child; [`Kind::Memory`](crate::Kind::Memory); [`Kind::Argument`](crate::Kind::Argument) if the batch is larger
    /// than this machine can address.
    pub fn form(&self) -> Result<Block> {
        self.begun()?.form()
    }

    /// Counts the next batch as handed over.
    pub fn advance(&self) {
        self.note(Progress::advance);
    }

    /// Marks the iteration as exhausted.
    pub fn end(&self) {
        self.note(Progress::end);
    }

    /// Marks the iteration as closed: no batch will be taken from it.
    pub fn close(&self) {
        self.note(Progress::close);
    }

    fn note(&self, change: impl FnOnce(&Progress)) {
        if let Some(begun) = self.begun.get() {
            change(&begun.progress);
        }
    }

    fn begun(&self) -> Result<&BegunSteps> {
        if let Some(begun) = self.begun.get() {
            return Ok(begun);
        }
        let _beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(begun) = self.begun.get() {
            return Ok(begun);
        }
        // A block of steps holds one batch.
        let begun = self.epochs.begin(0, |job, progress| {
            let total = job.plan.steps_of(job.rank);
            progress.meter.begin();
            Ok(BegunSteps { job, progress, total, process: process::id() })
        })?;
        Ok(self.begun.get_or_init(|| begun))
    }
}

impl BegunSteps {
    /// Makes the next batch.
    fn form(&self) -> Result<Block> {
        let step = self.step(0)?;
        let block = self.job.form(step)?;
        Ok(block.ok_or(PlanCause::StepRange { found: step, steps: self.total })?)
    }

    /// The step `ahead` steps after the next one.
    fn step(&self, ahead: u64) -> Result<u64> {
        require_process(self.process)?;
        Ok(self.progress.steps().saturating_add(ahead))
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Steps").field("is_begun", &self.begun.get().is_some()).finish_non_exhaustive()
    }
}
