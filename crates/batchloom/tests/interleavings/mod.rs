//! The loader under every order of its threads that there is time for, by the crate `shuttle`: a promise of its thread
//! protocol in each file.
//!
//! This is the loader itself, compiled with `--cfg shuttle` (`src/sync.rs`), not a model of it. Shuttle runs one thread at
//! a time and chooses at each lock, wait, signal and atomic operation which goes on. If all that are left wait, it
//! reports a deadlock with the schedule that leads there; and since no handle of a thread detaches it, a worker that
//! never ends is one. The clock stands still, so a wait whose signal was lost is not ended by its time limit.
//!
//! Small parts are run in every order (depth first). The loader has too many orders for that: small epochs are run in all
//! that have one or two preemptions (`schedules.rs`), others in random ones, and in those of PCT, which change priorities
//! at few points and so hold threads back for long. Seeds are fixed, so a
//! run is repeatable. `scripts/interleavings SCHEDULES SEED` runs more of them, or others.
//!
//! Shuttle does not model the order of memory: each atomic operation is seen at once by all threads, whatever its
//! `Ordering`. So nothing here says that those of the loader are strong enough.
//!
//! Blocks and pieces have a few bytes under `--cfg shuttle`, so that a batch of eight rows is a large one (it waits for
//! memory) of four pieces.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and it says what it ran"
)]

mod chunks;
mod delivery;
mod ends;
mod on_demand;
mod parts;
mod preemptions;
mod schedules;

use std::ops::Range;
use std::sync::Arc;
use std::{env, thread};

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, MaxSteps, Runner};

use self::schedules::Bounded;
use super::{Batch, Block, LoaderBuilder};
use crate::{Loader, Result, Tensor, TensorDataset};

/// The number of 8-byte values in a row: a row is 64 bytes.
const ROW: usize = 8;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs a test in the orders of a scheduler, or in those of them that have at most so many preemptions.
fn run(
    scheduler: impl Scheduler + 'static,
    preemptions: Option<usize>,
    test: Arc<impl Fn() + Send + Sync + 'static>,
) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 19;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    Runner::new(Bounded::new(scheduler, preemptions), config).run(move || test())
}

/// Says what was run, in a line for each test.
fn report(schedules: usize, of: &str) {
    println!("{schedules:>8} schedules, {of}: {}", thread::current().name().unwrap_or_default());
}

/// Runs each case in random orders of its threads, and in those of PCT.
fn explore<C: Copy + Send + Sync + 'static>(
    cases: impl IntoIterator<Item = C>,
    test: impl Fn(C) + Send + Sync + Copy + 'static,
) {
    let schedules = usize::try_from(number("BATCHLOOM_SCHEDULES", 60)).unwrap();
    let seed = number("BATCHLOOM_SEED", 0);
    let mut orders_run = 0;
    for case in cases {
        let test = Arc::new(move || test(case));
        orders_run += run(RandomScheduler::new_from_seed(seed, schedules), None, Arc::clone(&test));
        orders_run += run(PctScheduler::new_from_seed(seed, 3, schedules), None, test);
    }
    report(orders_run, "random and PCT");
}

/// Runs each case in all orders of its threads. Fails if there are more than `most`.
fn exhaust<C: Copy + Send + Sync + 'static>(
    cases: impl IntoIterator<Item = C>,
    most: usize,
    test: impl Fn(C) + Send + Sync + Copy + 'static,
) {
    let mut orders_run = 0;
    for case in cases {
        let schedules = run(DfsScheduler::new(Some(most), false), None, Arc::new(move || test(case)));
        assert!(schedules < most, "there are more than {most} orders");
        orders_run += schedules;
    }
    report(orders_run, "all there are");
}

/// Runs each case in all orders of its threads that have at most so many preemptions.
fn exhaust_preemptions<C: Copy + Send + Sync + 'static>(
    cases: impl IntoIterator<Item = C>,
    preemptions: usize,
    test: impl Fn(C) + Send + Sync + Copy + 'static,
) {
    let orders = || DfsScheduler::new(None, false);
    let run = |case| run(orders(), Some(preemptions), Arc::new(move || test(case)));
    let orders_run = cases.into_iter().map(run).sum();
    report(orders_run, &format!("all with at most {preemptions} preemptions"));
}

/// Runs a case in `most` of the orders that begin like the one which leaves a thread only when it waits: those that
/// differ from it late.
fn exhaust_ends(most: usize, test: impl Fn() + Send + Sync + 'static) {
    report(run(DfsScheduler::new(Some(most), false), None, Arc::new(test)), "those that differ last");
}

/// Options of a loader of blocks of one batch of `size` rows each, all of whose values are the number of the row.
fn builder(batches: usize, size: usize) -> LoaderBuilder {
    let rows = batches * size;
    let x = (0..rows * ROW).map(|place| (place / ROW) as u64).collect();
    let x = Tensor::from_vec(x, &[rows, ROW]).unwrap();
    let loader = Loader::builder(TensorDataset::new([("x", x)]).unwrap()).batch_size(size as u64);
    loader.shuffle(true).block_bytes(size * ROW * size_of::<u64>()).poison(true)
}

/// The samples of each batch of an epoch, as the plan says.
fn planned(loader: &Loader, epoch: u64) -> Vec<Vec<u64>> {
    let plan = loader.plan(epoch);
    (0..plan.steps()).map(|step| plan.indices(step, 0).unwrap()).collect()
}

/// The samples of a batch, each of whose rows is whole.
fn samples(batch: &Batch) -> Vec<u64> {
    let rows = batch.field("x").unwrap().as_slice::<u64>().unwrap().chunks(ROW);
    rows.map(|row| {
        assert!(row.iter().all(|value| *value == row[0]), "{row:?}");
        row[0]
    })
    .collect()
}

/// The samples of a block of one batch.
fn samples_of(block: &Block) -> Vec<u64> {
    let batches: Vec<_> = block.batches().collect();
    assert_eq!(batches.len(), 1);
    samples(&batches[0])
}

/// The samples of each batch of an iteration.
fn delivered(batches: impl Iterator<Item = Result<Batch>>) -> Vec<Vec<u64>> {
    batches.map(|batch| samples(&batch.unwrap())).collect()
}

/// A count that other threads move, which may be waited for.
#[derive(Debug, Default)]
struct Reached {
    count: Mutex<usize>,
    moved: Condvar,
}

impl Reached {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.moved.notify_all();
    }

    fn count(&self) -> usize {
        *self.count.lock().unwrap()
    }

    fn wait(&self, least: usize) {
        drop(self.moved.wait_while(self.count.lock().unwrap(), |count| *count < least).unwrap());
    }
}

/// Every pair of a number of threads and a choice of `prefetch`.
fn settings(threads: Range<usize>) -> impl Iterator<Item = (usize, Option<usize>)> {
    threads.flat_map(|threads| [None, Some(0), Some(1), Some(3)].map(|prefetch| (threads, prefetch)))
}

/// Options with such a choice.
fn with((threads, prefetch): (usize, Option<usize>), builder: LoaderBuilder) -> LoaderBuilder {
    prefetch.into_iter().fold(builder.num_threads(threads), LoaderBuilder::prefetch)
}
