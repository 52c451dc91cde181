//! The work on one iteration: fills pieces of blocks, in a worker or in the consumer.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::job::{Job, Task};
use super::queue::Queue;
use crate::{Error, Result};

/// Fills pieces of an iteration until there are no more, or the queue stops.
pub(super) fn work(job: &Job, queue: &Queue) {
    let mut indices = Vec::new();
    while fill_one(job, queue, &mut indices, || queue.take(job)) {}
}

/// Fills one piece of the block that is due, for a consumer that would wait otherwise. Returns false if there is none.
pub(super) fn help(job: &Job, queue: &Queue, indices: &mut Vec<u64>) -> bool {
    fill_one(job, queue, indices, || queue.take_waiting(job))
}

/// Takes a task and fills its piece. Returns false if there is none. Every failure, a panic included, reaches the
/// consumer through the queue.
fn fill_one(
    job: &Job,
    queue: &Queue,
    indices: &mut Vec<u64>,
    take: impl Fn() -> Result<Option<Task>>,
) -> bool {
    let current = Cell::new(0);
    let filled = catch_unwind(AssertUnwindSafe(|| {
        let Some(task) = take()? else { return Ok(false) };
        current.set(task.block);
        job.fill(task, indices)?;
        queue.finish(current.get());
        Ok(true)
    }));
    let failure = match filled {
        Ok(Ok(filled)) => return filled,
        Ok(Err(error)) => error,
        Err(cause) => Error::Worker { block: current.get(), message: message(&*cause) },
    };
    queue.fail(failure);
    false
}

/// The message of a panic.
fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}
