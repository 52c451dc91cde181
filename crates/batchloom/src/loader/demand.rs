//! Samples that are made on demand: which a block needs, reading them in parts, and laying the block out.
//!
//! A block is one batch, so `prefetch` counts batches. Its samples are read in parts, by all threads. Nothing is read
//! for a block that may not be opened yet, and nothing after the iteration has stopped.
//!
//! The first block is laid out once its samples are read. Where the shapes of slots follow from the first sample, later
//! blocks are laid out and opened before, and each part is formed by the thread that read it: straight into its slots,
//! if samples go there as they are. Otherwise each block waits for its samples.

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use super::fields::Fields;
use super::layout::BlockLayout;
use super::planned::PlannedBlock;
use super::read_ahead::ReadAhead;
use crate::collate::Members;
use crate::dataset::collated::CollatedAhead;
use crate::dataset::collation::CollateOptions;
use crate::dataset::{
    Banned, BatchRead, Dataset, FilledPart, Held, HeldLayout, Objects, ReadPart, ReadRequest, Reader,
    Refusal, SampleLayout, Stop,
};
use crate::error::{Cause, ReadError};
use crate::sync::{Instant, Mutex, MutexGuard, ReadClock};
use crate::tensor::buffer::Region;
use crate::{Error, Plan, Result};

/// The samples of a dataset that are made on demand, in one iteration.
pub(super) struct Demand {
    pub(super) dataset: Dataset,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) collate: CollateOptions,
    pub(super) threads: usize,
    /// The number of batches that may be read at the same time.
    pub(super) prefetch: usize,
    /// The first sample of the iteration, and its layout; later samples are compared to it.
    pub(super) first: Mutex<Option<(u64, SampleLayout)>>,
    /// The fields of later batches, if these can be laid out before their samples are read, once that is known.
    pub(super) direct: OnceLock<Option<Arc<Direct>>>,
    pub(super) pace: Pace,
    pub(super) clock: Arc<ReadClock>,
    /// The chunks to read early, if samples are read a chunk at a time.
    pub(super) early: Mutex<ReadAhead>,
    /// The number of this iteration among those of the reader.
    pub(super) iteration: u64,
}

impl Drop for Demand {
    fn drop(&mut self) {
        self.reader.end_iteration(self.iteration);
    }
}

/// The most parts that a batch is read in, for each thread: with several, a slow sample holds up fewer others.
const MOST_PARTS: usize = 4;

/// The least time that a part should take: threads that take turns in an interpreter, and requests to other processes,
/// cost as much as several samples of a fast function.
const LEAST: Duration = Duration::from_millis(1);

/// The time that a sample takes, as the latest parts took it: each moves it by a quarter, so that a part that was
/// interrupted does not split the batches after it.
#[derive(Default)]
pub(super) struct Pace {
    nanoseconds: AtomicU64,
}

impl Pace {
    /// Reads some samples with `read`, and notes the time.
    fn of<T>(&self, samples: usize, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let output = read();
        let latest = start.elapsed().as_nanos() / samples.max(1) as u128;
        let latest = u64::try_from(latest).unwrap_or(u64::MAX);
        let each = match self.nanoseconds.load(Ordering::Relaxed) {
            0 => latest,
            before => before - before / 4 + latest / 4,
        };
        self.nanoseconds.store(each, Ordering::Relaxed);
        output
    }

    /// The least number of samples to read together; 1 as long as the time of a sample is not known.
    fn least(&self) -> usize {
        let each = u128::from(self.nanoseconds.load(Ordering::Relaxed));
        let samples = LEAST.as_nanos().checked_div(each).unwrap_or(1);
        usize::try_from(samples).unwrap_or(usize::MAX).max(1)
    }
}

/// A block with samples to read.
pub(super) struct ToRead {
    demand: Arc<Demand>,
    /// The step of its batch.
    pub(super) step: u64,
    pub(super) members: Arc<Members>,
}

/// A block with samples that are being read.
pub(super) struct Reading {
    to_read: ToRead,
    parts: Vec<(Range<usize>, ReadPart)>,
    /// The number of members that are not read yet.
    left: usize,
}

/// Some members of a block to be read together.
pub(super) struct ReadTask {
    demand: Arc<Demand>,
    members: Arc<Members>,
    pub(super) range: Range<usize>,
}

impl Demand {
    /// The samples of the block that `rank` takes at `step`, or `None` past the end.
    ///
    /// # Errors
    /// The errors of [`Plan::parts`].
    pub(super) fn to_read(
        self: &Arc<Self>,
        fields: &Fields,
        plan: &Plan,
        rank: u32,
        step: u64,
    ) -> Result<Option<ToRead>> {
        if step >= plan.steps_of(rank) {
            return Ok(None);
        }
        let members = Arc::new(fields.members_to_read(plan, step, rank)?);
        Ok(Some(ToRead { demand: Arc::clone(self), step, members }))
    }

    /// The chunks that block `block`, whose batches of `rank` begin at `step`, and the blocks after it need next, and that
    /// no task reads yet. Blocks before `first` need no further chunk. An error is left to the block that needs them.
    pub(super) fn next_chunks(&self, plan: &Plan, rank: u32, step: u64, block: u64, first: u64) -> Vec<u64> {
        let mut early = lock(&self.early);
        let Ok(Some(mut next)) = early.next_chunks(plan, rank, step) else { return Vec::new() };
        let opened = early.begin_block(block, &mut next, first);
        self.reader.note_chunks(self.iteration, opened, &next.chunks);
        next.chunks.into_iter().map(|(chunk, _)| chunk).collect()
    }

    /// Returns true if memory holds the chunks of the block of `rank` that begins at `step` beside the chunks of open blocks;
    /// blocks before `first` need none.
    pub(super) fn fits(&self, plan: &Plan, rank: u32, step: u64, first: u64) -> bool {
        lock(&self.early).fits(plan, rank, step, first)
    }

    /// Returns true if a thread that fills a block would wait for a chunk which another thread reads, while there is room to
    /// read one more.
    pub(super) fn has_time_for_more(&self, block: u64) -> bool {
        self.reader.has_time_for_more(lock(&self.early).needed(block))
    }

    /// The number of parts that a batch of `samples` samples is read in. Threads that read several batches at the same
    /// time need not share one of a fast function, or one that is read by one call.
    fn parts(&self, samples: usize) -> usize {
        let (fewest, most) = (self.threads.div_ceil(self.prefetch), self.threads * MOST_PARTS);
        match self.reader.reads_together() {
            true => fewest,
            false => (samples / self.pace.least()).clamp(fewest, most),
        }
    }

    /// The first sample of the dataset that can be read, and its layout: for a batch with all samples left out, when
    /// no other was read before.
    ///
    /// # Errors
    /// Failures of the machinery.
    fn any_readable(&self, plan: &Plan, stop: &Stop) -> Result<Option<(u64, SampleLayout)>> {
        for sample in 0..self.dataset.len() as u64 {
            if stop.is_set() {
                break;
            }
            if plan.banned(0).binary_search(&sample).is_ok() {
                continue;
            }
            let (seed, epoch, clock) = (plan.seed(), plan.epoch(), &*self.clock);
            let request = ReadRequest { samples: &[sample], seed, epoch, stop, clock };
            if let Some(Ok(layout)) = self.reader.read(&request)?.outcomes.into_iter().next() {
                return Ok(Some((sample, layout)));
            }
        }
        Ok(None)
    }

    /// The fields of batches of samples that are like the first, if they can be laid out before they are read.
    ///
    /// # Errors
    /// The errors of [`Fields::of_batch`].
    pub(super) fn direct(&self, plan: &Plan) -> Result<Option<Arc<Direct>>> {
        if let Some(known) = self.direct.get() {
            return Ok(known.clone());
        }
        let Some((first, expected)) = lock(&self.first).clone() else { return Ok(None) };
        let collated = self.dataset.kind().collate_ahead(plan.rule(), &self.collate, &expected)?;
        let direct = |ahead: CollatedAhead| -> Result<_> {
            let nesting = Arc::clone(&expected.structure.nesting);
            let fields = Arc::new(Fields::of_batch(ahead.collated, plan, nesting)?);
            let layout = |variable| HeldLayout { layout: expected.clone(), variable };
            let held = ahead.held.map(layout);
            Ok(Arc::new(Direct { fields, first, as_read: ahead.as_read, held, expected }))
        };
        let direct = collated.map(direct).transpose()?;
        Ok(self.direct.get_or_init(|| direct).clone())
    }
}

/// The fields of batches with samples that are read straight into their slots.
pub(super) struct Direct {
    pub(super) fields: Arc<Fields>,
    /// The first sample of the iteration, and its layout.
    pub(super) first: u64,
    pub(super) expected: SampleLayout,
    /// True if the reader puts samples into their slots.
    pub(super) as_read: bool,
    /// The layout of samples that are copied from chunks, if they are.
    pub(super) held: Option<HeldLayout>,
}

/// A member that could not be read and is left out: its place, its number, and the reason.
pub(super) type SkippedMember = (usize, (u64, Cause));

/// The additions of a filled part to its block, beside its bytes.
#[derive(Default)]
pub(super) struct Extras {
    /// The members that are left out.
    pub(super) skipped: Vec<SkippedMember>,
    /// The objects that samples hold beside arrays.
    pub(super) objects: Vec<Objects>,
}

impl Extras {
    /// Adds the additions of another part of the block.
    pub(super) fn extend(&mut self, part: Self) {
        self.skipped.extend(part.skipped);
        self.objects.extend(part.objects);
    }
}

/// Some members of a block to be read straight into their slots.
pub(super) struct DirectTask {
    task: ReadTask,
    direct: Arc<Direct>,
}

impl DirectTask {
    /// The members.
    pub(super) fn range(&self) -> Range<usize> {
        self.task.range.clone()
    }

    /// Reads the members into `regions`, one for each field.
    ///
    /// # Errors
    /// The place of a member, and the error that kept it from its batch.
    pub(super) fn run(
        &self,
        plan: &Plan,
        regions: Vec<Region>,
        stop: &Stop,
    ) -> Result<Extras, (usize, Error)> {
        if !self.direct.as_read || self.direct.fields.has_loss() || self.task.banned().contains(&true) {
            return self.form(plan, regions, stop);
        }
        let Self { task: ReadTask { demand, members, range }, direct } = self;
        let (own, mut slots) = (direct.fields.own_fields(), regions);
        let mut described = slots.split_off(own);
        let request = self.task.request(plan, stop);
        let read = || demand.reader.read_into(&request, &direct.expected, &mut slots);
        let outcomes = demand.pace.of(range.len(), read);
        let FilledPart { outcomes, objects } = outcomes.map_err(|error| (range.start, error))?;
        for (form, region) in direct.fields.forms()[own..].iter().zip(&mut described) {
            form.fill(members, range.clone(), region).map_err(|error| (range.start, error))?;
        }
        let mut skipped = Vec::new();
        for (member, outcome) in range.clone().zip(outcomes) {
            let sample = members.samples[member];
            match outcome {
                Ok(()) => {}
                Err(Refusal::Failed(cause)) if demand.dataset.kind().skips() => {
                    let place = member - range.start;
                    for ((dtype, shape), slots) in direct.expected.fields.iter().zip(&mut slots) {
                        clear(slots, place, dtype.size() * shape.iter().product::<usize>());
                    }
                    let weights = direct.fields.names()[own..].iter().position(|name| name == "weight");
                    weights
                        .into_iter()
                        .for_each(|field| clear(&mut described[field], place, size_of::<f32>()));
                    skipped.push((member, (sample, cause)));
                }
                Err(Refusal::Failed(cause)) => {
                    return Err((member, ReadError::Failed { sample, cause }.into()));
                }
                Err(Refusal::Differs(layout)) => {
                    return Err((member, direct.expected.layout_error(direct.first, &layout, sample).into()));
                }
            }
        }
        Ok(Extras { skipped, objects: objects.into_iter().collect() })
    }
}

impl DirectTask {
    /// Reads the members, and forms them in `regions` as if they were a batch.
    fn form(&self, plan: &Plan, mut regions: Vec<Region>, stop: &Stop) -> Result<Extras, (usize, Error)> {
        let Self { task: ReadTask { demand, members, range }, direct } = self;
        let failed = |error| (range.start, error);
        let mut part = self.task.read(plan, stop).map_err(failed)?;
        if part.outcomes.len() < range.len() {
            // The iteration has stopped.
            return Ok(Extras::default());
        }
        let has_failed = |outcome: &Result<_, Cause>| outcome.as_ref().is_err_and(|cause| !Banned::is(cause));
        let places = range.clone().zip(&part.outcomes).filter(|(_, outcome)| has_failed(outcome));
        let places: Vec<usize> = places.map(|(member, _)| member).collect();
        let own = members.part(range.clone());
        let objects = part.objects.take().into_iter().collect();
        let first = Some((direct.first, direct.expected.clone()));
        let read = BatchRead { samples: own.samples.clone(), parts: vec![(0..own.count, part)], first };
        let collated = demand.dataset.kind().collate(plan.rule(), &demand.collate, read);
        let mut collated = collated.map_err(failed)?;
        let skipped = places.into_iter().zip(mem::take(&mut collated.skipped)).collect();
        let nesting = Arc::clone(&direct.expected.structure.nesting);
        let fields = Fields::of_batch(collated, plan, nesting).map_err(failed)?;
        for (form, region) in fields.forms().iter().zip(&mut regions) {
            form.fill(&own, 0..own.count, region).map_err(failed)?;
        }
        Ok(Extras { skipped, objects })
    }
}

/// Clears one of several parts of `bytes` bytes. The memory may be longer than all of them.
fn clear(memory: &mut [u8], place: usize, bytes: usize) {
    memory[place * bytes..(place + 1) * bytes].fill(0);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ToRead {
    /// The layout of the block, if that is known before its samples are read, and the tasks of reading these.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a batch is larger than this machine can address.
    pub(super) fn lay_out_ahead(&self, plan: &Plan) -> Result<Option<(Box<PlannedBlock>, Vec<DirectTask>)>> {
        // Fields that are copied from chunks may have one part for a whole batch, such as boundaries of samples: a batch
        // that is not laid out with its chunks, as it has banned samples, is read first and then formed as a whole.
        let Some(direct) = self.demand.direct(plan)?.filter(|direct| direct.held.is_none()) else {
            return Ok(None);
        };
        let layout = BlockLayout::of_one(&direct.fields, self.step, Arc::clone(&self.members))?;
        let task = |task: ReadTask| DirectTask { task, direct: Arc::clone(&direct) };
        let tasks = self.tasks().map(task).collect();
        let fields = Arc::clone(&direct.fields);
        Ok(Some((Box::new(PlannedBlock::of(fields, layout)), tasks)))
    }

    /// The parts in which the samples are read.
    pub(super) fn tasks(&self) -> impl Iterator<Item = ReadTask> + use<> {
        let (demand, members) = (Arc::clone(&self.demand), Arc::clone(&self.members));
        let parts = if demand.reader.makes_batches() { 1 } else { demand.parts(members.count) };
        let part = members.count.div_ceil(parts).max(1);
        (0..members.count).step_by(part).map(move |start| {
            let range = start..(start + part).min(members.count);
            ReadTask { demand: Arc::clone(&demand), members: Arc::clone(&members), range }
        })
    }
}

impl ReadTask {
    /// Reads the samples.
    ///
    /// # Errors
    /// Failures of the machinery. A sample that cannot be read is an outcome.
    pub(super) fn read(&self, plan: &Plan, stop: &Stop) -> Result<ReadPart> {
        let request = self.request(plan, stop);
        let banned = self.banned();
        if !banned.contains(&true) {
            let read = || self.demand.reader.read(&request);
            return self.demand.pace.of(self.range.len(), read);
        }
        let counted = request.samples.iter().zip(banned).filter(|(_, banned)| !**banned);
        let counted: Vec<u64> = counted.map(|(&sample, _)| sample).collect();
        let part = match counted.as_slice() {
            [] => ReadPart { outcomes: Vec::new(), samples: Arc::new(Held(Vec::new())), objects: None },
            samples => self.demand.reader.read(&ReadRequest { samples, ..request })?,
        };
        Ok(part.insert_banned(banned))
    }

    /// True for each member that is banned. Empty if all count.
    fn banned(&self) -> &[bool] {
        self.members.banned.get(self.range.clone()).unwrap_or_default()
    }

    fn request<'a>(&'a self, plan: &Plan, stop: &'a Stop) -> ReadRequest<'a> {
        let samples = &self.members.samples[self.range.clone()];
        ReadRequest { samples, seed: plan.seed(), epoch: plan.epoch(), stop, clock: &self.demand.clock }
    }
}

impl Reading {
    pub(super) fn new(to_read: ToRead) -> Self {
        let left = to_read.members.count;
        Self { to_read, parts: Vec::new(), left }
    }

    /// Adds members that were read.
    pub(super) fn add(&mut self, range: Range<usize>, part: ReadPart) {
        self.left -= range.len();
        self.parts.push((range, part));
    }

    /// Returns true if no member is left to read.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The layout of the block of read samples. Blocks arrive here in order.
    ///
    /// # Errors
    /// An error that names the sample that does not fit the rest, or could not be read.
    pub(super) fn lay_out(self, plan: &Plan, stop: &Stop) -> Result<PlannedBlock> {
        let Self { to_read: ToRead { demand, step, members }, mut parts, .. } = self;
        parts.sort_unstable_by_key(|(range, _)| range.start);
        let mut first = lock(&demand.first);
        let is_lost = parts.iter().all(|(_, part)| part.outcomes.iter().all(Result::is_err));
        if first.is_none() && is_lost && (demand.dataset.kind().skips() || plan.has_bans()) {
            *first = demand.any_readable(plan, stop)?;
        }
        let objects = parts.iter_mut().filter_map(|(_, part)| part.objects.take()).collect();
        let read = BatchRead { samples: members.samples.clone(), parts, first: first.clone() };
        let mut collated = demand.dataset.kind().collate(plan.rule(), &demand.collate, read)?;
        let latest = collated.first.take();
        if first.is_none() {
            first.clone_from(&latest);
        }
        let skipped = mem::take(&mut collated.skipped);
        let nesting =
            latest.as_ref().map_or_else(|| "".into(), |(_, layout)| Arc::clone(&layout.structure.nesting));
        let fields = Arc::new(Fields::of_batch(collated, plan, nesting)?);
        let layout = BlockLayout::of_one(&fields, step, members)?;
        Ok(PlannedBlock { skipped, objects, ..PlannedBlock::of(fields, layout) })
    }
}
