//! The work on a block: laying it out, taking memory for it, and filling its pieces.
//!
//! A job is shared by all workers of an iteration. Progress is not part of it; the queue keeps that.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::block::Block;
use super::buffers::{Buffers, Loan};
use super::demand::{Demand, Direct, DirectTask, Extras, ReadTask, Reading, ToRead};
use super::error::LoaderCause;
use super::failure::Failure;
use super::fields::{Fields, run_epoch};
use super::held::PieceOfRun;
use super::index_table::{IndexTable, Table};
use super::layout::{BlockLayout, Limits, Piece, RunLayout};
use super::planned::PlannedBlock;
use crate::collate::{Form, Members, Taken};
use crate::dataset::{ReadPart, Stop};
use crate::tensor::buffer::{Region, SplitBuffer};
use crate::{Plan, Result, memory};

/// A function that a worker calls before each piece, with the number of its block, so that tests can delay or fail.
pub(super) type Probe = Arc<dyn Fn(u64) + Send + Sync>;

/// The work that all workers of an iterator share, without its progress.
pub(super) struct Job {
    pub(super) fields: Arc<Fields>,
    /// The maker of index tables, if blocks are index tables.
    pub(super) index_table: Option<IndexTable>,
    /// The reader of samples, if these are made on demand.
    pub(super) demand: Option<Arc<Demand>>,
    pub(super) plan: Plan,
    pub(super) rank: u32,
    /// The number of bytes that a block takes, approximately.
    pub(super) block_bytes: usize,
    pub(super) buffers: Arc<Buffers>,
    pub(super) probe: Option<Probe>,
}

/// The block to open next.
pub(super) enum NextBlock {
    /// A block that is laid out.
    LaidOut(LaidOut),
    /// A block that needs its samples read first.
    ToRead(ToRead),
}

/// A block that is laid out, and the work that fills it.
pub(super) struct LaidOut {
    pub(super) planned: Box<PlannedBlock>,
    pub(super) filling: Filling,
}

/// The way in which a block is filled.
pub(super) enum Filling {
    /// Forms fill all fields.
    Forms,
    /// Samples of one batch are read straight into their slots.
    Samples(Vec<DirectTask>),
    /// Forms fill all fields with samples in chunks.
    Held(Arc<Direct>),
}

impl From<PlannedBlock> for LaidOut {
    fn from(planned: PlannedBlock) -> Self {
        Self { planned: Box::new(planned), filling: Filling::Forms }
    }
}

/// A part of one block, and the memory that it fills.
pub(super) struct Task {
    pub(super) block: u64,
    part: BlockPart,
    regions: Vec<Region>,
}

/// The part of a block that one worker reads or fills at once.
enum BlockPart {
    /// Some samples to read.
    Read(ReadTask),
    /// Some samples to read into their slots.
    Direct(DirectTask),
    /// A piece of a run, with a region for each band of each field.
    Piece(Arc<Fields>, RunLayout, Piece),
    /// A piece of a run of samples in chunks.
    Held(Arc<Direct>, RunLayout, Piece),
    /// The index table of some runs, with one region.
    Table(Vec<RunLayout>, Table),
    /// A chunk that a later block needs.
    Chunk(u64),
}

impl Job {
    /// The block that begins with `step`, or `None` past the end. `first` is its first batch, if the block before it
    /// had planned that one already.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a batch is larger than this machine can address.
    pub(super) fn lay_out(&self, step: u64, first: Option<RunLayout>) -> Result<Option<NextBlock>> {
        if let Some(demand) = &self.demand {
            let held = demand.lay_out_held(&self.plan, self.rank, step, self.block_bytes, first)?;
            if let Some((layout, direct)) = held {
                let planned = Box::new(PlannedBlock::of(Arc::clone(&direct.fields), layout));
                return Ok(Some(NextBlock::LaidOut(LaidOut { planned, filling: Filling::Held(direct) })));
            }
            let to_read = demand.to_read(&self.fields, &self.plan, self.rank, step)?;
            let Some(to_read) = to_read else { return Ok(None) };
            let ahead = to_read.lay_out_ahead(&self.plan)?;
            return Ok(Some(match ahead {
                Some((planned, reads)) => {
                    NextBlock::LaidOut(LaidOut { planned, filling: Filling::Samples(reads) })
                }
                None => NextBlock::ToRead(to_read),
            }));
        }
        let limits = if self.index_table.is_some() { Limits::INDEXED } else { Limits::FORMED };
        let layout =
            BlockLayout::new(&self.fields, &self.plan, self.rank, step, self.block_bytes, limits, first)?;
        let Some(layout) = layout else { return Ok(None) };
        let table = self.index_table.as_ref().map(|index| index.table(&self.plan, self.rank, &layout.runs));
        let planned =
            PlannedBlock { table: table.transpose()?, ..PlannedBlock::of(Arc::clone(&self.fields), layout) };
        Ok(Some(NextBlock::LaidOut(planned.into())))
    }

    /// The number of threads that read chunks early while there are blocks to fill.
    pub(super) fn threads_that_read_early(&self) -> usize {
        self.demand.as_ref().map_or(0, |demand| demand.threads.saturating_sub(1))
    }

    /// Returns true if memory holds the chunks of the block that begins at `step` beside the chunks of open blocks from
    /// `first` on.
    pub(super) fn fits(&self, step: u64, first: u64) -> bool {
        self.demand.as_ref().is_none_or(|demand| demand.fits(&self.plan, self.rank, step, first))
    }

    /// Returns true if a thread that works on a block would wait for a chunk which another thread reads, while there is room
    /// to read one more.
    pub(super) fn has_time_for_more(&self, block: u64) -> bool {
        self.demand.as_ref().is_some_and(|demand| demand.has_time_for_more(block))
    }

    /// The tasks of reading the chunks that blocks from `block` on need next, which begins at `step`. Blocks before `first`
    /// need no further chunk.
    pub(super) fn read_early(&self, block: u64, step: u64, first: u64) -> Vec<Task> {
        let next = |demand: &Arc<Demand>| demand.next_chunks(&self.plan, self.rank, step, block, first);
        let chunks = self.demand.as_ref().map(next);
        let task = |chunk| Task { block, part: BlockPart::Chunk(chunk), regions: Vec::new() };
        chunks.unwrap_or_default().into_iter().map(task).collect()
    }

    /// The block to open, laid out, after this thread has read its samples if these are made on demand.
    ///
    /// # Errors
    /// Errors of the samples.
    pub(super) fn read(&self, next: NextBlock) -> Result<LaidOut> {
        let to_read = match next {
            NextBlock::LaidOut(laid_out) => return Ok(laid_out),
            NextBlock::ToRead(to_read) => to_read,
        };
        let tasks = to_read.tasks();
        let mut reading = Reading::new(to_read);
        for task in tasks {
            let part = task.read(&self.plan, &Stop::default())?;
            reading.add(task.range, part);
        }
        reading.lay_out(&self.plan, &Stop::default()).map(LaidOut::from)
    }

    /// Makes the block that begins with `step`, on this thread. `None` past the end.
    ///
    /// # Errors
    /// The errors of layouts, memory, samples and forms.
    pub(super) fn form(&self, step: u64) -> Result<Option<Block>> {
        let Some(next) = self.lay_out(step, None)? else { return Ok(None) };
        let opened = self.open(step, self.read(next)?)?;
        let mut indices = Vec::new();
        for task in opened.tasks {
            self.run(task, &mut indices, &Stop::default()).map_err(|failure| failure.error)?;
        }
        let buffer = opened.whole.join().ok_or_else(|| LoaderCause::Worker {
            block: step,
            message: "a delivered batch is still being written".to_owned(),
        })?;
        let bytes = Bytes::from_owner(Loan::new(buffer, self.buffers.deliver()));
        Block::new(&opened.planned, &bytes).map(Some)
    }

    /// Takes memory for a block and lists its pieces.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(super) fn open(&self, block: u64, LaidOut { planned, filling }: LaidOut) -> Result<Opened> {
        // Memory comes first: without memory for the block, there may be none for the list of its pieces.
        let buffer = self.buffers.take(planned.memory())?;
        if let (Some(table), Some(index_table)) = (planned.table, &self.index_table) {
            let parts = index_table.parts(&planned.layout.runs, table);
            let ends = parts.iter().scan(0, |end, (_, part)| {
                *end += part.bytes();
                Some(*end)
            });
            let cuts: Vec<usize> = std::iter::once(0).chain(ends).collect();
            let (whole, regions) = buffer.split(&cuts);
            let task = |((runs, table), region)| Task {
                block,
                part: BlockPart::Table(runs, table),
                regions: vec![region],
            };
            let tasks = parts.into_iter().zip(regions).map(task).collect();
            return Ok(Opened { planned, whole, tasks });
        }
        let layout = &planned.layout;
        let pieces = match &filling {
            Filling::Samples(reads) => {
                vec![reads.iter().map(|read| Piece { batches: 0..1, rows: read.range() }).collect()]
            }
            Filling::Forms | Filling::Held(_) => layout.pieces(),
        };
        let (whole, regions) = buffer.split(&layout.cuts(&planned.fields, &pieces));
        let mut regions = regions.into_iter();
        // A task takes its piece of every field.
        let none = |pieces: &Vec<Piece>| pieces.iter().map(|_| Vec::new()).collect();
        let mut taken: Vec<Vec<Vec<Region>>> = pieces.iter().map(none).collect();
        for (run, field) in layout.arrays() {
            for _ in 0..planned.fields.forms()[field].bands() {
                taken[run].iter_mut().zip(&mut regions).for_each(|(taken, region)| taken.push(region));
            }
        }
        let held = match filling {
            Filling::Samples(reads) => {
                let task = |(read, regions)| Task { block, part: BlockPart::Direct(read), regions };
                let tasks = reads.into_iter().zip(taken.into_iter().flatten()).map(task).collect();
                return Ok(Opened { planned, whole, tasks });
            }
            Filling::Held(direct) => Some(direct),
            Filling::Forms => None,
        };
        let mut tasks = Vec::new();
        for ((run, pieces), taken) in layout.runs.iter().zip(pieces).zip(taken) {
            let part = |piece| match &held {
                Some(direct) => BlockPart::Held(Arc::clone(direct), run.clone(), piece),
                None => BlockPart::Piece(Arc::clone(&planned.fields), run.clone(), piece),
            };
            let task = |(piece, regions)| Task { block, part: part(piece), regions };
            tasks.extend(pieces.into_iter().zip(taken).map(task));
        }
        Ok(Opened { planned, whole, tasks })
    }

    /// Reads or fills one part.
    ///
    /// # Errors
    /// The errors of forms and readers, with the first batch and member that they concern.
    pub(super) fn run(&self, task: Task, indices: &mut Vec<u64>, stop: &Stop) -> Result<Done, Failure> {
        if let Some(probe) = &self.probe {
            probe(task.block);
        }
        let Task { part, regions, .. } = task;
        let (step, member) = part.first();
        let filled = |()| Done::Filled(Extras::default());
        let done = match (part, &self.index_table) {
            (BlockPart::Read(task), _) => {
                task.read(&self.plan, stop).map(|part| Done::Read(task.range, part))
            }
            (BlockPart::Direct(task), _) => {
                let filled = task.run(&self.plan, regions, stop).map(Done::Filled);
                return filled.map_err(|(member, error)| Failure { step, member, error });
            }
            (BlockPart::Held(direct, run, piece), _) => {
                return self.fill_held(&direct, &run, &piece, regions, indices, stop).map(filled);
            }
            (BlockPart::Table(runs, table), Some(index_table)) => {
                let mut regions = regions.into_iter();
                regions
                    .try_for_each(|mut region| {
                        index_table.fill(&self.plan, self.rank, &runs, table, &mut region)
                    })
                    .map(filled)
            }
            (BlockPart::Piece(fields, run, piece), _) if run.members.are_listed() => {
                let bands =
                    fields.forms().iter().flat_map(|form| (0..form.bands()).map(move |band| (form, band)));
                bands
                    .zip(regions)
                    .try_for_each(|((form, band), mut region)| {
                        form.fill_band(&run.members, piece.rows.clone(), band, &mut region)?;
                        clear_banned(&**form, &run.members, &piece.rows, &mut region);
                        Ok(())
                    })
                    .map(filled)
            }
            (BlockPart::Piece(_, run, piece), _) => {
                self.fill_uniform(&run, &piece, regions, indices).map(filled)
            }
            (BlockPart::Table(..), None) => Ok(filled(())),
            (BlockPart::Chunk(chunk), _) => {
                let demand = self.demand.iter().filter(|_| !stop.is_set());
                demand.for_each(|demand| demand.reader.read_early(chunk, &demand.clock));
                Ok(Done::Early)
            }
        };
        done.map_err(|error| Failure { step, member, error })
    }

    /// Fills one piece with samples in chunks.
    fn fill_held(
        &self,
        direct: &Direct,
        run: &RunLayout,
        piece: &Piece,
        regions: Vec<Region>,
        indices: &mut Vec<u64>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let Some(demand) = &self.demand else { return Ok(()) };
        if run.members.are_listed() {
            indices.clear();
            indices.extend_from_slice(&run.members.samples[piece.rows.clone()]);
        } else {
            let step = run.step + piece.batches.start as u64;
            let failed = |error| Failure { step, member: piece.rows.start, error };
            self.number(run, piece, indices).map_err(failed)?;
        }
        let taken = Taken { epoch: run_epoch(&self.plan), ..Taken::as_stored(indices) };
        demand.fill_held(direct, &self.plan, &PieceOfRun { run, piece, taken }, regions, stop)
    }

    /// Writes the numbers of the samples of a piece to `indices`, batch by batch.
    fn number(&self, run: &RunLayout, piece: &Piece, indices: &mut Vec<u64>) -> Result<()> {
        let count = piece.batches.len() * piece.rows.len();
        memory::grow(indices, count.saturating_sub(indices.len()))?;
        indices.resize(count, 0);
        let step = run.step + piece.batches.start as u64;
        self.plan.fill(step, self.rank, piece.rows.start as u64, indices)
    }

    /// Fills one piece of batches of samples of one size. The plan gives their numbers here and now.
    fn fill_uniform(
        &self,
        run: &RunLayout,
        piece: &Piece,
        regions: Vec<Region>,
        indices: &mut Vec<u64>,
    ) -> Result<()> {
        self.number(run, piece, indices)?;
        let places = self.fields.located().places(indices);
        let taken = Taken { epoch: run_epoch(&self.plan), ..places.of(indices) };
        for ((form, mut region), slot) in self.fields.forms().iter().zip(regions).zip(&run.slots) {
            let slots = piece.slots(run, slot, region.len());
            form.gather(taken, &mut region, slots)?;
        }
        Ok(())
    }
}

/// Clears the parts of banned members in one band of a field of those in `rows`.
fn clear_banned(form: &dyn Form, members: &Members, rows: &Range<usize>, target: &mut [u8]) {
    let first = form.start(members, rows.start);
    for member in rows.clone().filter(|&member| form.is_data() && members.is_banned(member)) {
        let part = form.start(members, member) - first..form.end(members, member) - first;
        target[part].fill(0);
    }
}

/// The result of a task.
pub(super) enum Done {
    /// A part of the block is filled.
    Filled(Extras),
    /// Some members are read.
    Read(Range<usize>, ReadPart),
    /// A chunk is read that a later block needs.
    Early,
}

impl BlockPart {
    /// The step and the member that it begins with. Only blocks of samples in chunks are cut before a step: consumers take
    /// the arrays of others as a whole.
    fn first(&self) -> (u64, usize) {
        match self {
            Self::Read(task) => (0, task.range.start),
            Self::Direct(task) => (0, task.range().start),
            Self::Piece(_, _, piece) => (0, piece.rows.start),
            Self::Held(_, run, piece) => (run.step + piece.batches.start as u64, piece.rows.start),
            Self::Table(..) | Self::Chunk(_) => (0, 0),
        }
    }
}

/// A block that was just opened.
pub(super) struct Opened {
    pub(super) planned: Box<PlannedBlock>,
    pub(super) whole: SplitBuffer,
    pub(super) tasks: Vec<Task>,
}

impl Task {
    /// The task of reading some samples of block `block`.
    pub(super) fn read(block: u64, task: ReadTask) -> Self {
        Self { block, part: BlockPart::Read(task), regions: Vec::new() }
    }
}
