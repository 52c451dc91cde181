//! The layout of a block before it has memory: its batches, their shapes, and the place of each of their fields.
//!
//! A block is a few runs of batches of one shape. In memory a run is one array for each field, `[batches, ..shape]`,
//! whose batches each start at a multiple of 64 bytes, so that every framework takes them as they are. If samples
//! differ in size, every batch is a run, and runs follow each other in memory. Otherwise the arrays of a field do, so
//! that a framework can take batches of several lengths as one array. The pieces of a block are disjoint parts of its
//! memory that workers fill independently.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::fields::Fields;
use crate::collate::error::CollateCause;
use crate::collate::{Members, RowSlots};
use crate::{DType, Plan, Result, memory};

/// The alignment of every batch, in bytes.
const ALIGN: usize = 64;

/// The number of bytes of a piece, approximately, so that it and the memory that is read for it fit a core's cache.
/// Blocks have few bytes, and yet several pieces, where every order of threads is tried.
const PIECE_BYTES: usize = if cfg!(all(test, shuttle)) { 128 } else { 512 * 1024 };

/// The largest number of samples of a piece, so that their numbers fit the cache.
const PIECE_SAMPLES: usize = 8192;

/// The limits of a block, besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The largest number of batches.
    pub(super) batches: usize,
    /// True if its samples have to lie in one shard of the order, if that has shards.
    pub(super) one_shard: bool,
    /// True if its batches have to need no chunk that the first of them does not need.
    pub(super) same_chunks: bool,
}

impl Limits {
    /// The limits of a block of samples.
    pub(super) const FORMED: Self = Self { batches: 1 << 16, one_shard: false, same_chunks: false };
    /// The limits of a block of samples in chunks: a chunk that takes long holds up no other batch.
    pub(super) const IN_CHUNKS: Self = Self { same_chunks: true, ..Self::FORMED };
    /// The limits of an index table: fewer batches, because all of them are made at once.
    pub(super) const INDEXED: Self = Self { batches: 512, one_shard: true, same_chunks: false };
}

/// The layout of one block.
#[derive(Debug)]
pub(super) struct BlockLayout {
    pub(super) runs: Vec<RunLayout>,
    /// The number of bytes of all batches.
    pub(super) bytes: usize,
    /// The step after the last batch.
    pub(super) end: u64,
    /// The block's shard and the next one, if the block is an index table and the order goes shard by shard.
    pub(super) shards: Option<Shards>,
    /// The batch after the last one, if it was planned and did not fit.
    pub(super) next: Option<RunLayout>,
    /// True if memory holds the arrays of one field after another, not of one run after another.
    by_field: bool,
}

/// The shard that holds all samples of a block, and the next shard after it, in samples as stored.
pub(super) type Shards = (Range<u64>, Option<Range<u64>>);

/// The layout of consecutive batches of one shape.
#[derive(Debug, Clone)]
pub(super) struct RunLayout {
    /// The step of the first batch.
    pub(super) step: u64,
    /// The number of batches.
    pub(super) batches: usize,
    /// The number of samples in each batch.
    pub(super) samples: usize,
    /// The array of each field.
    pub(super) slots: Vec<FieldLayout>,
    /// The shape of the elements of a batch that an index table numbers.
    pub(super) space: Vec<usize>,
    /// The members of each batch, if samples differ in size.
    pub(super) members: Arc<Members>,
}

/// The array of one field in a run.
#[derive(Debug, Clone)]
pub(super) struct FieldLayout {
    /// The place in the block where it starts.
    pub(super) offset: usize,
    /// The number of bytes from one batch to the next.
    pub(super) stride: usize,
    pub(super) dtype: DType,
    /// The shape of a batch.
    pub(super) shape: Vec<usize>,
}

impl BlockLayout {
    /// The layout of the batches that `rank` takes from `step` on: about `bytes` bytes of them, and at least
    /// one. `None` past the end. `first` is the first of them, if it is planned already.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a batch is larger than this machine can address.
    pub(super) fn new(
        fields: &Fields,
        plan: &Plan,
        rank: u32,
        step: u64,
        bytes: usize,
        limits: Limits,
        mut first: Option<RunLayout>,
    ) -> Result<Option<Self>> {
        let steps = plan.steps_of(rank);
        let by_field = !fields.is_ragged();
        let mut layout = Self { runs: Vec::new(), bytes: 0, end: step, shards: None, next: None, by_field };
        let most = limits.batches;
        let steps = if limits.one_shard { layout.enter(plan, rank, steps, most)? } else { steps };
        let steps = match limits.same_chunks && step < steps {
            true => plan.end_of_chunks(step, rank)?.map_or(steps, |end| end.min(steps)),
            false => steps,
        };
        let mut batches = 0;
        while layout.end < steps && batches < most {
            if layout.bytes >= bytes && !layout.runs.is_empty() {
                break;
            }
            let run = first.take().map_or_else(|| layout.run(fields, plan, rank), Ok)?;
            let end = layout.bytes.saturating_add(run.bytes());
            if end > bytes && !layout.runs.is_empty() {
                layout.next = Some(run);
                break;
            }
            let fit = (bytes - layout.bytes.min(bytes)).checked_div(run.bytes()).unwrap_or(most);
            let fit = fit.clamp(1, most - batches).min(usize::try_from(steps - layout.end).unwrap_or(fit));
            let same = layout.same(fields, plan, rank, &run.members, fit)?;
            batches += same;
            layout.end += same as u64;
            layout.push(run, same);
        }
        layout.place();
        Ok((!layout.runs.is_empty()).then_some(layout))
    }

    /// The layout of the batch of `members`, at `step`, as a separate block.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a batch is larger than this machine can address.
    pub(super) fn of_one(fields: &Fields, step: u64, members: Arc<Members>) -> Result<Self> {
        let run = RunLayout::new(fields, step, members)?;
        let mut layout =
            Self { runs: Vec::new(), bytes: 0, end: step, shards: None, next: None, by_field: false };
        layout.push(run, 1);
        layout.end += 1;
        layout.place();
        Ok(layout)
    }

    /// Notes the shard in which the block begins, if the order goes shard by shard, and returns the step before which
    /// the block has to end: at most `most` batches on.
    fn enter(&mut self, plan: &Plan, rank: u32, steps: u64, most: usize) -> Result<u64> {
        if plan.options().shard_size.is_none() || self.end >= steps {
            return Ok(steps);
        }
        let Some(shard) = plan.shard(self.end, rank)? else { return Ok(steps) };
        let (mut end, most) = (self.end + 1, steps.min(self.end + most as u64));
        while end < most && plan.shard(end, rank)?.as_ref() == Some(&shard) {
            end += 1;
        }
        let next = next_shard(plan, rank, &shard, end - 1, steps)?;
        self.shards = Some((shard, next));
        Ok(end)
    }

    /// True if one thread fills the block so soon that another one would only be woken for it.
    pub(super) fn is_small(&self) -> bool {
        self.bytes <= PIECE_BYTES
    }

    /// The next batch, as a run.
    fn run(&self, fields: &Fields, plan: &Plan, rank: u32) -> Result<RunLayout> {
        RunLayout::new(fields, self.end, Arc::new(fields.members(plan, self.end, rank)?))
    }

    /// The number of batches, of the next `most`, that have one shape: if samples do not differ in size, those with as
    /// many, and as many fillers, whose losses are divided by the same number.
    fn same(&self, fields: &Fields, plan: &Plan, rank: u32, members: &Members, most: usize) -> Result<usize> {
        if fields.is_ragged() || members.are_listed() {
            return Ok(1);
        }
        let steps = self.end..plan.steps_of(rank).min(self.end + most as u64);
        let mut count = 1;
        for step in steps.skip(1) {
            let fillers = if fields.is_marked() { plan.fillers(step, rank)? } else { 0 };
            let is_other =
                plan.batch_len(step, rank)? != members.count as u64 || fillers != members.fillers as u64;
            let is_other = is_other || fields.loss_denominator(plan, step)? != members.loss_denominator;
            if is_other || plan.holds_banned(step, rank)? || fields.is_shorter(plan, step, rank)? {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Adds `batches` batches like `run` at the end.
    fn push(&mut self, mut run: RunLayout, batches: usize) {
        self.bytes = self.bytes.saturating_add(run.bytes().saturating_mul(batches));
        run.batches = batches;
        self.runs.push(run);
    }

    /// Gives each array its place in memory.
    fn place(&mut self) {
        let mut offset: usize = 0;
        for (run, field) in self.arrays() {
            let run = &mut self.runs[run];
            run.slots[field].offset = offset;
            offset = offset.saturating_add(run.slots[field].stride.saturating_mul(run.batches));
        }
    }

    /// Leaves out the batches from `step` on; the memory of the others stays where it is until the block is
    /// [compacted](Self::compact). Returns false if none is left.
    pub(super) fn end_before(&mut self, step: u64) -> bool {
        self.runs.retain(|run| run.step < step);
        if let Some(run) = self.runs.last_mut() {
            let left = usize::try_from(step - run.step).unwrap_or(usize::MAX);
            run.batches = run.batches.min(left);
        }
        !self.runs.is_empty()
    }

    /// A copy of the arrays of the batches that are left, one after the other, from the memory of all. Consumers may take
    /// the memory of a block as a whole.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn compact(&mut self, whole: &Bytes) -> Result<Bytes> {
        let array = |layout: &Self, (run, field): (usize, usize)| {
            let (run, slot) = (&layout.runs[run], &layout.runs[run].slots[field]);
            slot.offset..slot.offset + slot.stride * run.batches
        };
        let before: Vec<_> = self.arrays().into_iter().map(|place| array(self, place)).collect();
        self.place();
        self.bytes = before.iter().map(Range::len).sum();
        let mut copy: Vec<u8> = memory::reserve(self.bytes + ALIGN)?;
        copy.resize(self.bytes + ALIGN, 0);
        let start = copy.as_ptr().align_offset(ALIGN).min(ALIGN);
        for (place, from) in self.arrays().into_iter().zip(before) {
            let to = array(self, place);
            copy[start + to.start..start + to.end].copy_from_slice(&whole[from]);
        }
        Ok(Bytes::from(copy).slice(start..start + self.bytes))
    }

    /// The run and the field of each array, in the order in which memory holds them.
    pub(super) fn arrays(&self) -> Vec<(usize, usize)> {
        let (runs, fields) = (self.runs.len(), self.runs.first().map_or(0, |run| run.slots.len()));
        match self.by_field {
            true => (0..fields).flat_map(|field| (0..runs).map(move |run| (run, field))).collect(),
            false => (0..runs).flat_map(|run| (0..fields).map(move |field| (run, field))).collect(),
        }
    }

    /// The pieces of each run. Empty if rows have no width.
    pub(super) fn pieces(&self) -> Vec<Vec<Piece>> {
        self.runs.iter().map(RunLayout::pieces).collect()
    }

    /// The offsets at which the block's memory is cut into the regions of `pieces`: for each array, for each of its bands,
    /// for each piece.
    pub(super) fn cuts(&self, fields: &Fields, pieces: &[Vec<Piece>]) -> Vec<usize> {
        let mut cuts = Vec::new();
        for (place, field) in self.arrays() {
            let (run, form) = (&self.runs[place], &fields.forms()[field]);
            let slot = &run.slots[field];
            let bands = form.bands();
            let bytes = if bands > 1 { form.start(&run.members, run.samples) } else { 0 };
            for band in 0..bands {
                let start = |piece: &Piece| {
                    let within = band * bytes + form.start(&run.members, piece.rows.start);
                    slot.offset + piece.batches.start * slot.stride + within
                };
                cuts.extend(pieces[place].iter().map(start));
            }
        }
        cuts.push(self.bytes);
        cuts
    }
}

impl RunLayout {
    /// The layout of one batch, at `step`.
    fn new(fields: &Fields, step: u64, members: Arc<Members>) -> Result<Self> {
        let space = fields.index().space(&members);
        let mut run = Self { step, batches: 1, samples: members.count, slots: Vec::new(), space, members };
        if fields.forms().iter().any(|form| run.members.elements() > form.most_elements()) {
            let (samples, row) = (run.samples as u64, run.members.longest());
            return Err(CollateCause::BatchTooLarge { samples, row }.into());
        }
        for form in fields.forms() {
            let (dtype, shape) = (form.dtype(), form.shape(&run.members));
            let bytes = shape.iter().try_fold(dtype.size(), |bytes: usize, &len| bytes.checked_mul(len));
            let stride = bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
            let stride = stride.filter(|&stride| isize::try_from(stride).is_ok());
            let row = shape.iter().skip(1).product::<usize>().saturating_mul(dtype.size());
            let samples = shape.first().map_or(1, |&samples| samples as u64);
            let stride = stride.ok_or(CollateCause::BatchTooLarge { samples, row })?;
            run.slots.push(FieldLayout { offset: 0, stride, dtype, shape });
        }
        Ok(run)
    }

    /// The number of bytes of one batch.
    fn bytes(&self) -> usize {
        self.slots.iter().fold(0, |bytes, slot| bytes.saturating_add(slot.stride))
    }

    /// Pieces of about [`PIECE_BYTES`]: several whole batches, or part of one.
    fn pieces(&self) -> Vec<Piece> {
        let real = |slot: &FieldLayout| slot.shape.iter().product::<usize>() * slot.dtype.size();
        let bytes: usize = self.slots.iter().map(real).sum();
        let row = bytes.div_ceil(self.samples.max(1));
        let Some(most) = PIECE_BYTES.checked_div(row) else { return Vec::new() };
        let most = most.clamp(1, PIECE_SAMPLES);
        match most / self.samples.max(1) {
            0 => (0..self.batches)
                .flat_map(|batch| {
                    (0..self.samples).step_by(most).map(move |row| Piece {
                        batches: batch..batch + 1,
                        rows: row..(row + most).min(self.samples),
                    })
                })
                .collect(),
            whole => (0..self.batches)
                .step_by(whole)
                .map(|batch| Piece {
                    batches: batch..(batch + whole).min(self.batches),
                    rows: 0..self.samples,
                })
                .collect(),
        }
    }
}

/// The part of a run that one worker fills at once: some of its batches, or some rows of one.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// The batches of the run: exactly one, unless `rows` are all of them.
    pub(super) batches: Range<usize>,
    /// The rows of each of these batches.
    pub(super) rows: Range<usize>,
}

impl Piece {
    /// The places of its rows in its region of `bytes` bytes in a field.
    pub(super) fn slots(&self, run: &RunLayout, field: &FieldLayout, bytes: usize) -> RowSlots {
        let stride = if self.batches.len() == 1 { bytes } else { field.stride };
        RowSlots {
            batch: self.rows.len(),
            stride,
            fillers: run.members.fillers_in(&self.rows),
            loss_denominator: run.members.loss_denominator,
        }
    }
}

/// The shard that comes after the one of step `within`, found by doubling and halving. Batches of a shard come one
/// after the other, unless some are repeated or exchanged; this may then miss a shard, which is only found later.
fn next_shard(
    plan: &Plan,
    rank: u32,
    shard: &Range<u64>,
    mut within: u64,
    steps: u64,
) -> Result<Option<Range<u64>>> {
    let mut stride = 1;
    while within + stride < steps && plan.shard(within + stride, rank)?.as_ref() == Some(shard) {
        (within, stride) = (within + stride, stride * 2);
    }
    let mut beyond = steps.min(within + stride);
    while beyond - within > 1 {
        let middle = within.midpoint(beyond);
        if plan.shard(middle, rank)?.as_ref() == Some(shard) { within = middle } else { beyond = middle }
    }
    if beyond < steps { plan.shard(beyond, rank) } else { Ok(None) }
}
