//! Workers: threads that fill pieces of blocks.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::block::{BlockLayout, Piece, RunLayout};
use super::buffers::Buffers;
use super::fields::Fields;
use super::index_table::Table;
use super::queue::{Opened, Queue};
use crate::collate::Slots;
use crate::tensor::buffer::Region;
use crate::{Error, Plan, Result};

/// Called by a worker before each piece, with the number of its block. A test's way to delay or to fail.
pub(super) type Probe = Arc<dyn Fn(u64) + Send + Sync>;

/// What all workers of an iterator share: what to make, never how far it has come.
pub(super) struct Job {
    pub(super) fields: Arc<Fields>,
    pub(super) plan: Plan,
    pub(super) rank: u32,
    /// About how many bytes a block takes.
    pub(super) block_bytes: usize,
    pub(super) buffers: Arc<Buffers>,
    pub(super) probe: Option<Probe>,
}

/// A part of one block, and the memory that it fills.
pub(super) struct Task {
    pub(super) block: u64,
    part: Part,
    regions: Vec<Region>,
}

/// What one worker fills at once.
enum Part {
    /// A piece of a run: a region for each field.
    Piece(RunLayout, Piece),
    /// The addresses of all runs: one region.
    Table(Vec<RunLayout>, Table),
}

impl Job {
    /// The layout of the block that begins with `step`; none past the end.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`].
    pub(super) fn lay_out(&self, step: u64) -> Result<Option<BlockLayout>> {
        BlockLayout::new(&self.fields, &self.plan, self.rank, step, self.block_bytes)
    }

    /// Takes memory for a block and lists its pieces.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn open(&self, block: u64, layout: BlockLayout) -> Result<Opened> {
        // Memory first: where there is none for the block, there may be none for the list of its pieces.
        let buffer = self.buffers.take(layout.memory())?;
        if let Some(table) = layout.table {
            let (whole, regions) = buffer.split(&[0, layout.memory()]);
            let part = Part::Table(layout.runs.clone(), table);
            return Ok(Opened { layout, whole, tasks: vec![Task { block, part, regions }] });
        }
        let pieces = layout.pieces();
        let (whole, regions) = buffer.split(&layout.cuts(&self.fields, &pieces));
        let mut regions = regions.into_iter();
        let mut tasks = Vec::new();
        for (run, pieces) in layout.runs.iter().zip(pieces) {
            // The cuts list all pieces of one field before the next field; a task takes its piece of every field.
            let mut taken: Vec<Vec<Region>> = pieces.iter().map(|_| Vec::new()).collect();
            for _ in &self.fields.forms {
                taken.iter_mut().zip(&mut regions).for_each(|(taken, region)| taken.push(region));
            }
            let task = |(piece, regions)| Task { block, part: Part::Piece(run.clone(), piece), regions };
            tasks.extend(pieces.into_iter().zip(taken).map(task));
        }
        Ok(Opened { layout, whole, tasks })
    }

    /// Fills one piece.
    pub(super) fn fill(&self, task: Task, indices: &mut Vec<u64>) -> Result<()> {
        if let Some(probe) = &self.probe {
            probe(task.block);
        }
        let Task { part, regions, .. } = task;
        match (part, &self.fields.index_table) {
            (Part::Table(runs, table), Some((index_table, _))) => {
                let mut regions = regions.into_iter();
                regions.try_for_each(|mut region| {
                    index_table.fill(&self.plan, self.rank, &runs, table, &mut region)
                })
            }
            (Part::Piece(run, piece), _) if self.fields.ragged.is_some() => {
                for (form, mut region) in self.fields.forms.iter().zip(regions) {
                    form.fill(&run.members, piece.rows.clone(), &mut region);
                }
                Ok(())
            }
            (Part::Piece(run, piece), _) => self.fill_uniform(&run, &piece, regions, indices),
            (Part::Table(..), None) => Ok(()),
        }
    }

    /// Fills one piece of batches whose samples do not differ in size: the plan says here and now which they are.
    fn fill_uniform(
        &self,
        run: &RunLayout,
        piece: &Piece,
        regions: Vec<Region>,
        indices: &mut Vec<u64>,
    ) -> Result<()> {
        let (batches, rows) = (piece.batches.len(), piece.rows.len());
        indices.resize(batches * rows, 0);
        let step = run.step + piece.batches.start as u64;
        self.plan.fill(step, self.rank, piece.rows.start as u64, indices)?;
        for ((form, mut region), slot) in self.fields.forms.iter().zip(regions).zip(&run.slots) {
            let stride = if batches == 1 { region.len() } else { slot.stride };
            form.gather(indices, &mut region, Slots { batch: rows, stride });
        }
        Ok(())
    }
}

/// Starts `count` workers.
///
/// # Errors
/// [`Error::Spawn`]; those that were started end by themselves, as the queue is stopped.
pub(super) fn start(count: usize, job: &Arc<Job>, queue: &Arc<Queue>) -> Result<Vec<JoinHandle<()>>> {
    let spawn = |number: usize| {
        let (job, queue) = (Arc::clone(job), Arc::clone(queue));
        let work = move || work(&job, &queue);
        let failed = |error: std::io::Error| Error::Spawn { reason: error.to_string() };
        thread::Builder::new().name(format!("batchloom-{number}")).spawn(work).map_err(failed)
    };
    let workers: Result<Vec<_>> = (0..count).map(spawn).collect();
    if workers.is_err() {
        queue.stop();
    }
    workers
}

/// The life of a worker: fills pieces until there are none, or the queue stops.
fn work(job: &Job, queue: &Queue) {
    let mut indices = Vec::new();
    while fill_one(job, queue, &mut indices, || queue.take(job)) {}
}

/// Fills one piece of whatever block is due, for a consumer that would wait otherwise; false where there is none.
pub(super) fn help(job: &Job, queue: &Queue, indices: &mut Vec<u64>) -> bool {
    fill_one(job, queue, indices, || queue.take_waiting(job))
}

/// Takes a task and fills its piece; false where there is none. Whatever goes wrong, a panic included, reaches the
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

/// What a panic said.
fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}
