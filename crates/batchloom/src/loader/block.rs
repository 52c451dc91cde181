//! Blocks: consecutive batches of one rank, formed together in one allocation.
//!
//! A block is a few runs of batches of one shape. In memory a run is one array for each field, `[batches, ..shape]`,
//! whose batches each start at a multiple of 64 bytes, so that every framework takes them as they are. Where samples
//! differ in size, every batch is a run of its own. The pieces of a block are disjoint parts of its memory that workers
//! fill independently.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::fields::Fields;
use super::index_table::Table;
use crate::collate::Members;
use crate::tensor::Layout;
use crate::{DType, Error, Plan, Result, Tensor};

/// Every batch starts at a multiple of this.
const ALIGN: usize = 64;

/// A piece holds about this many bytes, so that it and what is read for it fit a core's cache,
const PIECE_BYTES: usize = 512 * 1024;

/// and at most this many samples, so that their numbers do.
const PIECE_SAMPLES: usize = 8192;

/// A block holds at most this many batches;
const MOST_BATCHES: usize = 1 << 16;

/// one of addresses fewer, as all of its batches are made at once.
const MOST_ADDRESSED: usize = 512;

/// The layout of one block.
#[derive(Debug)]
pub(super) struct BlockLayout {
    pub(super) runs: Vec<RunLayout>,
    /// Bytes of the batches.
    pub(super) bytes: usize,
    /// The step after the last batch.
    pub(super) end: u64,
    /// Where the block is addresses, these.
    pub(super) table: Option<Table>,
    /// Where it is addresses and the order goes shard by shard: its shard, and the next one.
    shards: Option<Shards>,
}

/// The shard that holds all samples of a block, and the next shard after it, in samples as stored.
type Shards = (Range<u64>, Option<Range<u64>>);

/// The layout of consecutive batches of one shape.
#[derive(Debug, Clone)]
pub(super) struct RunLayout {
    /// The step of the first batch.
    pub(super) step: u64,
    /// How many batches.
    pub(super) batches: usize,
    /// Samples in each.
    pub(super) samples: usize,
    /// What each field takes.
    pub(super) slots: Vec<FieldLayout>,
    /// The shape of what is addressed in each.
    space: Vec<usize>,
    /// Who they are, where samples differ in size.
    pub(super) members: Arc<Members>,
}

/// The array of one field in a run.
#[derive(Debug, Clone)]
pub(super) struct FieldLayout {
    /// Where it starts in the block.
    pub(super) offset: usize,
    /// Bytes from one batch to the next.
    pub(super) stride: usize,
    dtype: DType,
    /// The shape of a batch.
    shape: Vec<usize>,
}

impl BlockLayout {
    /// The layout of the batches that `rank` takes from `step` on, as many as take about `bytes` bytes, at least one;
    /// none past the end.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`].
    pub(super) fn new(
        fields: &Fields,
        plan: &Plan,
        rank: u32,
        step: u64,
        bytes: usize,
    ) -> Result<Option<Self>> {
        let steps = plan.steps_of(rank);
        let mut layout = Self { runs: Vec::new(), bytes: 0, end: step, table: None, shards: None };
        let most = if fields.index_table.is_some() { MOST_ADDRESSED } else { MOST_BATCHES };
        let steps = layout.enter(fields, plan, rank, steps)?;
        let mut batches = 0;
        while layout.end < steps && batches < most {
            let run = layout.run(fields, plan, rank)?;
            let end = layout.bytes.saturating_add(run.bytes());
            if end > bytes && !layout.runs.is_empty() {
                break;
            }
            let fit = (bytes - layout.bytes.min(bytes)).checked_div(run.bytes()).unwrap_or(most);
            let fit = fit.clamp(1, most - batches).min(usize::try_from(steps - layout.end).unwrap_or(fit));
            let same = layout.same(fields, plan, rank, run.samples, fit)?;
            batches += same;
            layout.end += same as u64;
            layout.push(run, same);
        }
        if let Some((index_table, limit)) = &fields.index_table {
            layout.table = Some(index_table.table(plan, rank, &layout.runs, *limit)?);
        }
        Ok((!layout.runs.is_empty()).then_some(layout))
    }

    /// Where blocks are addresses and the order goes shard by shard, notes the shards; returns the step before which
    /// the block has to end.
    fn enter(&mut self, fields: &Fields, plan: &Plan, rank: u32, steps: u64) -> Result<u64> {
        if fields.index_table.is_none() || plan.shard_size().is_none() || self.end >= steps {
            return Ok(steps);
        }
        let Some(shard) = plan.shard(self.end, rank)? else { return Ok(steps) };
        let (mut end, most) = (self.end + 1, steps.min(self.end + MOST_ADDRESSED as u64));
        while end < most && plan.shard(end, rank)?.as_ref() == Some(&shard) {
            end += 1;
        }
        let next = next_shard(plan, rank, &shard, end - 1, steps)?;
        self.shards = Some((shard, next));
        Ok(end)
    }

    /// Bytes of the block in memory.
    pub(super) fn memory(&self) -> usize {
        self.table.map_or(self.bytes, |table| table.bytes())
    }

    /// The next batch, as a run.
    fn run(&self, fields: &Fields, plan: &Plan, rank: u32) -> Result<RunLayout> {
        let members = fields.members(plan, self.end, rank)?;
        let mut run = RunLayout {
            step: self.end,
            batches: 1,
            samples: members.count,
            slots: Vec::new(),
            space: fields.space(&members),
            members: Arc::new(members),
        };
        if fields.has_boundaries() && i32::try_from(run.members.elements()).is_err() {
            // Boundaries are 32-bit numbers.
            let (samples, row) = (run.samples as u64, run.members.longest());
            return Err(Error::BatchTooLarge { samples, row });
        }
        for form in &fields.forms {
            let (dtype, shape) = (form.dtype(), form.shape(&run.members));
            let bytes = shape.iter().try_fold(dtype.size(), |bytes: usize, &len| bytes.checked_mul(len));
            let stride = bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
            let stride = stride.filter(|&stride| isize::try_from(stride).is_ok());
            let row = shape[1..].iter().product::<usize>().saturating_mul(dtype.size());
            let stride = stride.ok_or(Error::BatchTooLarge { samples: shape[0] as u64, row })?;
            run.slots.push(FieldLayout { offset: 0, stride, dtype, shape });
        }
        Ok(run)
    }

    /// How many of the next `most` batches have one shape: where samples do not differ, those with as many.
    fn same(&self, fields: &Fields, plan: &Plan, rank: u32, samples: usize, most: usize) -> Result<usize> {
        if fields.ragged.is_some() {
            return Ok(1);
        }
        let steps = self.end..plan.steps_of(rank).min(self.end + most as u64);
        let mut count = 1;
        for step in steps.skip(1) {
            if plan.batch_len(step, rank)? != samples as u64 {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Puts `batches` batches like `run` behind those that are there.
    fn push(&mut self, mut run: RunLayout, batches: usize) {
        run.batches = batches;
        for slot in &mut run.slots {
            slot.offset = self.bytes;
            self.bytes = self.bytes.saturating_add(slot.stride.saturating_mul(batches));
        }
        self.runs.push(run);
    }

    /// The pieces of each run; none where rows have no width.
    pub(super) fn pieces(&self) -> Vec<Vec<Piece>> {
        self.runs.iter().map(RunLayout::pieces).collect()
    }

    /// Where to cut the block's memory into the regions of `pieces`: for each run, for each field, for each piece.
    pub(super) fn cuts(&self, fields: &Fields, pieces: &[Vec<Piece>]) -> Vec<usize> {
        let mut cuts = Vec::new();
        for (run, pieces) in self.runs.iter().zip(pieces) {
            for (slot, form) in run.slots.iter().zip(&fields.forms) {
                let start = |piece: &Piece| {
                    let within = form.start(&run.members, piece.rows.start);
                    slot.offset + piece.batches.start * slot.stride + within
                };
                cuts.extend(pieces.iter().map(start));
            }
        }
        cuts.push(self.bytes);
        cuts
    }
}

impl RunLayout {
    /// The shape of the elements that are addressed in each batch.
    pub(super) fn space(&self) -> &[usize] {
        &self.space
    }

    /// Bytes of one batch.
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

/// What one worker fills at once: some batches of a run, or some rows of one.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Batches of the run; exactly one, unless `rows` are all of them.
    pub(super) batches: Range<usize>,
    /// Rows of each of these batches.
    pub(super) rows: Range<usize>,
}

/// The shard that comes after the one of step `within`, found by doubling and halving. Batches of a shard come one after
/// the other, but where some are repeated or exchanged; then this may miss one, which is only not known so early.
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

/// Consecutive batches of one rank in one allocation, formed and ready.
#[derive(Debug, Clone)]
pub struct Block {
    runs: Vec<ShapeRun>,
    bytes: Bytes,
    table: Option<Box<(Tensor, Tensor)>>,
    shards: Option<Shards>,
}

/// Consecutive batches of one shape, field by field.
#[derive(Debug, Clone)]
pub struct ShapeRun {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
    len: usize,
    samples: usize,
    longest: usize,
    space: Vec<usize>,
}

impl Block {
    pub(super) fn new(fields: &Fields, layout: &BlockLayout, bytes: &Bytes) -> Result<Self> {
        let runs = layout.runs.iter().map(|run| ShapeRun::new(fields, run, bytes, layout.table.is_none()));
        let runs = runs.collect::<Result<_>>()?;
        let table = layout.table.map(|table| tables(table, bytes)).transpose()?.map(Box::new);
        Ok(Self { runs, bytes: bytes.slice(..layout.memory()), table, shards: layout.shards.clone() })
    }

    /// Its memory, all of it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The addresses of a loader of [`index_table`](super::LoaderBuilder::index_table), int32 or int64: the table `[rows,
    /// members]`, and `[elements]`, for each element that is addressed which one of its sample it is; empty unless
    /// samples are thinned out.
    pub fn index_table(&self) -> Option<(&Tensor, &Tensor)> {
        self.table.as_ref().map(|parts| (&parts.0, &parts.1))
    }

    /// Where it is addresses and the order goes shard by shard: the shard that holds all of its samples, and the shard
    /// after it, in samples as stored.
    pub fn shards(&self) -> Option<(&Range<u64>, Option<&Range<u64>>)> {
        self.shards.as_ref().map(|(shard, next)| (shard, next.as_ref()))
    }

    /// The runs of equal batches, in order; mostly one, or one for each batch where samples differ in size.
    pub fn runs(&self) -> &[ShapeRun] {
        &self.runs
    }

    /// The batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = Batch> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len).filter_map(|index| run.batch(index)))
    }
}

/// The two parts of a table of addresses.
fn tables(table: Table, bytes: &Bytes) -> Result<(Tensor, Tensor)> {
    let (shape, picks) = table.shape();
    let size = table.dtype().size();
    let tensor = |shape: &[usize], offset| {
        let compact = Layout::compact(shape, size);
        let compact = compact.ok_or(Error::BatchTooLarge { samples: shape[0] as u64, row: size })?;
        Tensor::new(bytes.clone(), table.dtype(), shape, compact.strides(), offset)
    };
    Ok((tensor(&shape, 0)?, tensor(&[picks], shape[0] * shape[1] * size)?))
}

impl ShapeRun {
    fn new(fields: &Fields, run: &RunLayout, bytes: &Bytes, has_fields: bool) -> Result<Self> {
        let tensor = |slot: &FieldLayout| {
            let size = slot.dtype.size();
            let compact = Layout::compact(&slot.shape, size).ok_or(Error::BatchTooLarge {
                samples: run.samples as u64,
                row: slot.shape[1..].iter().product::<usize>().saturating_mul(size),
            })?;
            let shape = [&[run.batches], slot.shape.as_slice()].concat();
            let strides = [&[slot.stride.cast_signed()], compact.strides()].concat();
            Tensor::new(bytes.clone(), slot.dtype, &shape, &strides, slot.offset)
        };
        let tensors = run.slots.iter().filter(|_| has_fields).map(tensor).collect::<Result<_>>()?;
        let (len, samples, longest) = (run.batches, run.samples, run.members.longest());
        let (names, space) = (Arc::clone(&fields.names), run.space.clone());
        Ok(Self { names, fields: tensors, len, samples, longest, space })
    }

    /// How many batches.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each field of all batches: `[batches, ..shape]`. Batches are compact and start at multiples of 64 bytes; there
    /// may be gaps between them.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }

    /// The size of the longest sample, where samples differ in size.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Samples of each batch.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The shape of the elements that are addressed in each batch: `[samples]`, or `[samples, ..extents]` where samples
    /// are padded, `[elements]` where they are concatenated, `[samples, seq_len + 1]` of a stream.
    pub fn space(&self) -> &[usize] {
        &self.space
    }

    /// Batch `index`, a view; none past the end.
    pub fn batch(&self, index: usize) -> Option<Batch> {
        let fields = self.fields.iter().map(|field| field.index(index)).collect::<Option<_>>()?;
        let (samples, longest) = (self.samples, self.longest);
        Some(Batch { names: Arc::clone(&self.names), fields, samples, longest })
    }
}

/// One batch: an array for each field, compact and 64-byte aligned.
///
/// A view of its block: as long as any batch of a block is held, so is the block's memory, unchanged.
#[derive(Debug, Clone)]
pub struct Batch {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
    samples: usize,
    longest: usize,
}

impl Batch {
    /// The names of the fields, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Tensor> {
        let place = self.names.iter().position(|other| other == name)?;
        self.fields.get(place)
    }

    /// The number of samples, or of parts of split samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Whether there are none; never, in a batch that a loader made.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The size of the longest sample, where samples differ in size: `max_seqlen` of a packed batch.
    pub fn longest(&self) -> usize {
        self.longest
    }
}
