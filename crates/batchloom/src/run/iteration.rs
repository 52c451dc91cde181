//! One iteration over the batches of an epoch, for readers that are not a loader.
//!
//! Promise: each batch is counted in the run as it is handed over. A reader that takes its samples from
//! [`Iteration::plan`], ahead of their use, counts them itself by [`Iteration::advance`].

use std::iter::FusedIterator;
use std::sync::Arc;

use super::progress::Progress;
use crate::{Plan, Result};

/// The batches of one epoch on one rank, as the numbers of their samples. [`Run::begin`](super::Run::begin) returns it.
///
/// The iterator counts each batch in the run as it yields it. When it is dropped before its first batch, its epoch
/// begins again; when it is dropped later, the run stays where it was left.
#[derive(Debug)]
pub struct Iteration {
    plan: Plan,
    rank: u32,
    progress: Arc<Progress>,
}

impl Iteration {
    pub(super) fn new(plan: Plan, rank: u32, progress: Arc<Progress>) -> Self {
        Self { plan, rank, progress }
    }

    /// The plan with the steps that this iteration hands over.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The rank that takes the batches.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of batches that were handed over: the next step of the plan.
    pub fn step(&self) -> u64 {
        self.progress.steps()
    }

    /// The number of batches that are left to hand over.
    pub fn left(&self) -> u64 {
        self.progress.left()
    }

    /// Counts one more batch as handed over, for readers that read its samples from the [plan](Self::plan) themselves.
    pub fn advance(&self) {
        self.progress.advance();
    }

    /// Notes that the consumer has seen the end. With [`Uneven::Short`](crate::ranks::Uneven::Short), the epoch of a
    /// rank that has one step less is over only then. The iterator does so as it returns `None`.
    pub fn end(&self) {
        self.progress.end();
    }
}

impl Iterator for Iteration {
    type Item = Result<Vec<u64>>;

    /// The samples of the next batch. A batch whose samples cannot be listed is an error, and is not counted.
    fn next(&mut self) -> Option<Self::Item> {
        if self.progress.left() == 0 {
            self.progress.end();
            return None;
        }
        let samples = self.plan.indices(self.progress.steps(), self.rank);
        if samples.is_ok() {
            self.progress.advance();
        }
        Some(samples)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.progress.left()).unwrap_or(usize::MAX);
        (left, None)
    }
}

impl FusedIterator for Iteration {}

impl Drop for Iteration {
    fn drop(&mut self) {
        self.progress.close();
    }
}
