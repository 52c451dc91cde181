//! Workers: the threads of a loader. They start when an iteration first calls them, park between iterations, and end
//! with the loader, or with its last iteration if that lives longer.

use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, PoisonError};

use super::error::LoaderCause;
use super::job::Job;
use super::queue::Queue;
use super::worker::work;
use crate::Result;
use crate::sync::thread::{self, JoinHandle, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard, process};

/// The threads of one loader. Several iterations may have some of them at a time.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

/// The state that the threads share.
struct Shared {
    state: Mutex<State>,
    /// Signals that there may be an iteration to join, or the end.
    called: Condvar,
    /// Signals that a worker may have left an iteration.
    left: Condvar,
    /// The number of workers that may park; more workers end.
    keep: usize,
}

#[derive(Default)]
struct State {
    /// The calls that no worker has followed yet.
    calls: VecDeque<Call>,
    /// The workers at work, and the iteration that each works for.
    busy: Vec<(u64, ThreadId)>,
    /// The number of workers that are neither called nor busy.
    parked: usize,
    iterations: u64,
    ended: bool,
}

/// The call for one worker to an iteration.
struct Call {
    iteration: u64,
    job: Arc<Job>,
    queue: Arc<Queue>,
}

impl Workers {
    /// The workers of a loader; an iteration takes `keep` of them. It starts no thread.
    pub(super) fn new(keep: usize) -> Arc<Self> {
        let (state, called, left) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state, called, left, keep });
        Arc::new(Self { shared, threads: Mutex::default(), process: process::id() })
    }

    /// Returns true if this process was forked after the workers were made, so that they are in another one and their
    /// locks cannot be trusted.
    pub(super) fn is_foreign(&self) -> bool {
        self.process != process::id()
    }

    /// The same workers in a forked child: without threads.
    pub(super) fn afresh(&self) -> Arc<Self> {
        Self::new(self.shared.keep)
    }

    /// Calls as many workers to an iteration as are kept, and starts those that are missing. Returns the number of the
    /// iteration, for [`leave`](Self::leave).
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if a thread cannot be started. No worker is called then, and those that
    /// were started park.
    pub(super) fn call(&self, job: &Arc<Job>, queue: &Arc<Queue>) -> Result<u64> {
        let mut state = self.shared.lock();
        for _ in state.parked..self.shared.keep {
            self.start(&mut state)?;
        }
        let iteration = state.iterations;
        state.iterations += 1;
        state.parked -= self.shared.keep;
        let call = || Call { iteration, job: Arc::clone(job), queue: Arc::clone(queue) };
        state.calls.extend((0..self.shared.keep).map(|_| call()));
        drop(state);
        self.shared.called.notify_all();
        Ok(iteration)
    }

    /// Starts a worker, parked.
    fn start(&self, state: &mut State) -> Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        let (shared, name) = (Arc::clone(&self.shared), format!("batchloom-{}", threads.len()));
        let failed = |error: std::io::Error| LoaderCause::Spawn { reason: error.to_string() };
        let thread = thread::Builder::new().name(name).spawn(move || shared.live()).map_err(failed)?;
        threads.push(thread);
        state.parked += 1;
        Ok(())
    }

    /// Waits until every worker but the calling thread has left an iteration with a stopped queue.
    pub(super) fn leave(&self, iteration: u64) {
        let current = thread::current().id();
        let mut state = self.shared.lock();
        let calls = state.calls.len();
        state.calls.retain(|call| call.iteration != iteration);
        state.parked += calls - state.calls.len();
        while state.busy.iter().any(|&(other, worker)| other == iteration && worker != current) {
            state = self.shared.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Workers {
    /// Ends the workers and joins those that are parked. Others are at work for an iteration that one of them dropped
    /// itself, as a caller that allocates memory may; such a worker ends when it returns.
    fn drop(&mut self) {
        let threads = mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner));
        if self.is_foreign() {
            let _threads = ManuallyDrop::new(threads);
            return;
        }
        let busy: Vec<ThreadId> = {
            let mut state = self.shared.lock();
            state.ended = true;
            state.busy.iter().map(|&(_, worker)| worker).collect()
        };
        self.shared.called.notify_all();
        for thread in threads.into_iter().filter(|thread| !busy.contains(&thread.thread().id())) {
            // A worker catches its panics and reports them through the queue.
            drop(thread.join());
        }
    }
}

impl Shared {
    /// Runs a worker, which goes from call to call until the end.
    fn live(&self) {
        let current = thread::current().id();
        while let Some(Call { job, queue, .. }) = self.wait(current) {
            work(&job, &queue);
            // This comes before the iteration may count as left, so that its consumer is the one to let go of what it
            // owns.
            drop((job, queue));
            let mut state = self.lock();
            state.busy.retain(|&(_, worker)| worker != current);
            let surplus = state.parked >= self.keep;
            state.parked += usize::from(!surplus);
            drop(state);
            self.left.notify_all();
            if surplus {
                return;
            }
        }
    }

    /// The next call for a worker, or `None` at the end.
    fn wait(&self, worker: ThreadId) -> Option<Call> {
        let mut state = self.lock();
        loop {
            if let Some(call) = state.calls.pop_front() {
                state.busy.push((call.iteration, worker));
                return Some(call);
            }
            if state.ended {
                return None;
            }
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
