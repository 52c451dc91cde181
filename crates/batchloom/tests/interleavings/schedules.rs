//! Bounds on the orders that a scheduler of shuttle chooses: preemptions are counted, and threads that a forked child has
//! not stand still in it.
//!
//! A preemption lets another thread go on while the one before could. All orders of the threads of an epoch are too many
//! to run. Those with one or two preemptions are not, and most errors of threads need no more.

use std::cell::Cell;

use shuttle::current;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::thread::yield_now;

use crate::sync::process;
use crate::{Error, Kind};

thread_local! {
    /// The number of the latest thread of this schedule.
    static LATEST: Cell<usize> = const { Cell::new(0) };
    /// The number of the first thread that was started after the fork of this schedule.
    static FIRST: Cell<Option<usize>> = const { Cell::new(None) };
    /// The thread that is in the child now, with those that were started after the fork.
    static CHILD: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// Returns true for the error of an iteration that another process started.
pub(super) fn is_forked(error: &Error) -> bool {
    error.kind() == Kind::Runtime && error.to_string().contains("this iterator was started in process")
}

/// Does `work` as if in a forked child, the same one each time: of all threads, it has this one and those that were started
/// since the first time. The test fails if the child waits for another one, or for a lock that another one holds.
pub(super) fn in_child<T>(work: impl FnOnce() -> T) -> T {
    // A thread counts from the first choice after its start on.
    yield_now();
    FIRST.set(FIRST.get().or(Some(LATEST.get() + 1)));
    CHILD.set(Some(current::me()));
    let result = process::in_child(work);
    CHILD.set(None);
    result
}

/// The orders of another scheduler, less those that this file excludes.
pub(super) struct Bounded<S> {
    inner: S,
    /// The most preemptions of an order, if they are bounded, and those that are left of this one.
    most: Option<usize>,
    left: usize,
}

impl<S> Bounded<S> {
    /// The orders with at most `most` preemptions, if that is given.
    pub(super) fn new(inner: S, most: Option<usize>) -> Self {
        Self { inner, most, left: 0 }
    }
}

impl<S: Scheduler> Scheduler for Bounded<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.most.unwrap_or(usize::MAX);
        LATEST.set(0);
        FIRST.set(None);
        CHILD.set(None);
        self.inner.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let latest = runnable.iter().map(|task| usize::from(task.id())).max();
        LATEST.set(LATEST.get().max(latest.unwrap_or(0)));
        let exists = |task: TaskId| {
            let is_later = || FIRST.get().is_some_and(|first| usize::from(task) >= first);
            CHILD.get().is_none_or(|child| child == task || is_later())
        };
        let mut choices: Vec<&Task> = runnable.iter().copied().filter(|task| exists(task.id())).collect();
        assert!(!choices.is_empty(), "a forked child waits for a thread that it does not have");
        let goes_on = choices.iter().copied().find(|task| !yields && Some(task.id()) == current);
        if let Some(task) = goes_on.filter(|_| self.left == 0) {
            choices = vec![task];
        }
        let chosen = self.inner.next_task(&choices, current, yields)?;
        self.left -= usize::from(goes_on.is_some_and(|task| task.id() != chosen));
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}
