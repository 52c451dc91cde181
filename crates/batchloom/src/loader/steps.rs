//! One iteration by steps, for callers that take batches from the data themselves, for example as views.
//!
//! It tells the samples of each step and counts the batches handed over. It owns no thread; a batch that cannot be a
//! view is made when asked for, by the caller.

use std::ops::Range;
use std::process;
use std::sync::Arc;

use bytes::Bytes;

use super::block::Block;
use super::buffers::Loan;
use super::cursor::Delivery;
use super::job::Job;
use crate::collate::FILLER;
use crate::{Error, Result};

/// The steps of one epoch, on one rank. The next one is the first that was not counted by [`advance`](Self::advance).
pub struct Steps {
    job: Job,
    delivery: Arc<Delivery>,
    total: u64,
    process: u32,
}

impl Steps {
    pub(super) fn new(job: Job, delivery: Arc<Delivery>) -> Self {
        let total = job.plan.steps_of(job.rank);
        Self { job, delivery, total, process: process::id() }
    }

    /// The number of steps left.
    pub fn left(&self) -> u64 {
        self.total - self.delivery.steps().min(self.total)
    }

    /// The samples of the batch `ahead` steps after the next one, if they are neighbours as stored and none of them fills
    /// up, or else `None`.
    ///
    /// # Errors
    /// [`Error::StepRange`] past the last step, and [`Error::Forked`] in a forked child.
    pub fn run(&self, ahead: u64) -> Result<Option<Range<u64>>> {
        self.job.plan.run(self.step(ahead)?, self.job.rank)
    }

    /// The samples of the next batch.
    ///
    /// # Errors
    /// [`Error::StepRange`] past the last step, and [`Error::Forked`] in a forked child.
    pub fn indices(&self) -> Result<Vec<u64>> {
        self.job.plan.indices(self.step(0)?, self.job.rank)
    }

    /// The samples of the next batch, -1 where a place only fills up.
    ///
    /// # Errors
    /// [`Error::StepRange`] past the last step, and [`Error::Forked`] in a forked child.
    pub fn index(&self) -> Result<Vec<i64>> {
        let mut index: Vec<i64> = self.indices()?.into_iter().map(u64::cast_signed).collect();
        let fillers = self.job.plan.fillers(self.step(0)?, self.job.rank)?;
        (0..fillers).zip(index.iter_mut().rev()).for_each(|(_, place)| *place = FILLER);
        Ok(index)
    }

    /// Makes the next batch here and now, in memory of its own.
    ///
    /// # Errors
    /// [`Error::StepRange`] past the last step, [`Error::Forked`] in a forked child, [`Error::Memory`] and
    /// [`Error::BatchTooLarge`].
    pub fn form(&self) -> Result<Block> {
        let step = self.step(0)?;
        let planned =
            self.job.lay_out(step, None)?.ok_or(Error::StepRange { found: step, steps: self.total })?;
        let opened = self.job.open(step, planned)?;
        let mut indices = Vec::new();
        opened.tasks.into_iter().try_for_each(|task| self.job.fill(task, &mut indices))?;
        let buffer = opened.whole.join().ok_or_else(|| Error::Worker {
            block: step,
            message: "a delivered batch is still being written".to_owned(),
        })?;
        Block::new(
            &self.job.fields,
            &opened.planned,
            &Bytes::from_owner(Loan::new(buffer, &self.job.buffers)),
        )
    }

    /// Counts the next batch as handed over.
    pub fn advance(&self) {
        self.delivery.advance();
    }

    /// Marks the iteration as exhausted.
    pub fn end(&self) {
        self.delivery.end();
    }

    /// Marks the iteration as closed: no batch will be taken from it.
    pub fn close(&self) {
        self.delivery.close();
    }

    fn step(&self, ahead: u64) -> Result<u64> {
        let current = process::id();
        match current == self.process {
            true => Ok(self.delivery.steps().saturating_add(ahead)),
            false => Err(Error::Forked { started: self.process, current }),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Steps").field("plan", &self.job.plan).finish_non_exhaustive()
    }
}
