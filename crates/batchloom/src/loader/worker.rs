//! The work on one iteration: fills pieces of blocks, in a worker or in the consumer.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::LoaderCause;
use super::job::{Done, Job, Task};
use super::queue::Queue;
use crate::Result;

/// Fills pieces of an iteration until there are no more, or the queue stops.
pub(super) fn work(job: &Job, queue: &Queue) {
    let mut indices = Vec::new();
    while fill_one(job, queue, &mut indices, || queue.take(job)) {}
}

/// Fills one piece of the block that is due, for a consumer that would wait otherwise. Returns false without a piece.
pub(super) fn help(job: &Job, queue: &Queue, indices: &mut Vec<u64>) -> bool {
    fill_one(job, queue, indices, || queue.take_waiting(job))
}

/// Takes a task and fills its piece. Returns false without a task. Every failure, a panic included, reaches the
/// consumer through the queue.
fn fill_one(
    job: &Job,
    queue: &Queue,
    indices: &mut Vec<u64>,
    take: impl Fn() -> Result<Option<Task>>,
) -> bool {
    let current = Cell::new(None);
    let done = catch_unwind(AssertUnwindSafe(|| {
        let Some(task) = take()? else { return Ok(false) };
        let block = task.block;
        current.set(Some(block));
        match job.run(task, indices, queue.stop_sign()) {
            Ok(Done::Filled(extras)) => queue.finish(block, extras),
            Ok(Done::Early) => queue.finish_early(),
            Ok(Done::Read(range, part)) => {
                queue.finish_reading(block, range, part);
                lay_out(job, queue, &current)?;
            }
            Err(failure) => queue.fail_part(block, failure),
        }
        Ok(true)
    }));
    let block = current.get();
    match (done, block) {
        (Ok(Ok(done)), _) => return done,
        (Ok(Err(error)), Some(block)) => {
            queue.fail_block(block, error);
            return true;
        }
        (Ok(Err(error)), None) => queue.fail(error),
        (Err(cause), _) => {
            let (block, message) = (block.unwrap_or(0), message(&*cause));
            queue.fail(LoaderCause::Worker { block, message }.into());
        }
    }
    false
}

/// Lays out and opens blocks of read samples, in order.
///
/// # Errors
/// The errors of [`Reading::lay_out`](super::demand::Reading::lay_out) and [`Job::open`]; `current` is the block then.
fn lay_out(job: &Job, queue: &Queue, current: &Cell<Option<u64>>) -> Result<()> {
    while let Some((block, reading)) = queue.take_read() {
        current.set(Some(block));
        queue.admit_read(block, job.open(block, reading.lay_out(&job.plan, queue.stop_sign())?.into())?);
    }
    Ok(())
}

/// The message of a panic.
fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}
