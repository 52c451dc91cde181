//! Blocks: consecutive batches of one rank, formed together in one allocation.
//!
//! A block is a few runs of batches of equal size. In memory a run is one array for each field, `[batches, samples, ..]`,
//! whose batches each start at a multiple of 64 bytes, so that every framework takes them as they are. The pieces of a
//! block are disjoint parts of its memory that workers fill independently.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::tensor::{Layout, Rows};
use crate::{DType, Error, Plan, Result, Tensor, TensorDataset};

/// Every batch starts at a multiple of this.
const ALIGN: usize = 64;

/// A piece holds about this many bytes, so that it and what is read for it fit a core's cache,
const PIECE_BYTES: usize = 512 * 1024;

/// and at most this many samples, so that their numbers do.
const PIECE_SAMPLES: usize = 8192;

/// A block holds at most this many batches.
const MOST_BATCHES: usize = 1 << 16;

/// What is known of a dataset's fields before any batch: enough to lay out blocks.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) names: Arc<[String]>,
    /// How to walk the rows of each field, and where they are.
    pub(super) sources: Vec<(Rows, Bytes)>,
    /// The type and shape of a row.
    kinds: Vec<(DType, Vec<usize>)>,
}

impl Fields {
    pub(super) fn new(dataset: &TensorDataset) -> Self {
        let kinds =
            dataset.fields().iter().map(|field| (field.dtype(), field.shape()[1..].to_vec())).collect();
        let bytes = dataset.fields().iter().map(|field| field.bytes().clone());
        let sources = dataset.rows().into_iter().zip(bytes).collect();
        Self { names: dataset.names().into(), sources, kinds }
    }

    /// Bytes of one sample over all fields.
    fn row_bytes(&self) -> usize {
        self.sources.iter().map(|(rows, _)| rows.bytes()).sum()
    }

    /// Bytes of a batch of `samples` samples over all fields, gaps included; an error where it cannot be addressed.
    fn batch_bytes(&self, samples: u64) -> Result<usize> {
        let row = self.sources.iter().map(|(rows, _)| rows.bytes()).max().unwrap_or(0);
        let batch = || {
            let samples = usize::try_from(samples).ok()?;
            let strides = self.sources.iter().map(|(rows, _)| batch_stride(rows.bytes(), samples));
            strides.sum::<Option<usize>>().filter(|bytes| isize::try_from(*bytes).is_ok())
        };
        batch().ok_or(Error::BatchTooLarge { samples, row })
    }

    /// How many steps a block of about `bytes` bytes takes, at least one, and how many bytes they really take.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`].
    pub(super) fn block_size(&self, plan: &Plan, rank: u32, bytes: usize) -> Result<(u64, usize)> {
        let steps = plan.steps_of(rank);
        if steps == 0 {
            return Ok((1, 0));
        }
        let batch = self.batch_bytes(plan.batch_len(0, rank)?)?;
        let count = (bytes / batch.max(1)).clamp(1, MOST_BATCHES);
        Ok(((count as u64).min(steps), batch.saturating_mul(count)))
    }
}

/// Bytes from one batch to the next, or none where that many cannot be addressed.
fn batch_stride(row: usize, samples: usize) -> Option<usize> {
    row.checked_mul(samples)?.checked_next_multiple_of(ALIGN)
}

/// The layout of one block.
#[derive(Debug)]
pub(super) struct BlockLayout {
    pub(super) runs: Vec<RunLayout>,
    pub(super) bytes: usize,
}

/// The layout of consecutive batches of equal size.
#[derive(Debug, Clone)]
pub(super) struct RunLayout {
    /// The step of the first batch.
    pub(super) step: u64,
    /// How many batches.
    pub(super) batches: usize,
    /// Samples in each.
    pub(super) samples: usize,
    /// For each field, where its array starts and the bytes from one batch to the next.
    pub(super) slots: Vec<(usize, usize)>,
}

impl BlockLayout {
    /// The layout of the batches that `rank` takes in `steps`.
    pub(super) fn new(fields: &Fields, plan: &Plan, rank: u32, steps: Range<u64>) -> Result<Self> {
        let mut layout = Self { runs: Vec::new(), bytes: 0 };
        for step in steps {
            let samples = length(plan.batch_len(step, rank)?);
            match layout.runs.last_mut().filter(|run| run.samples == samples) {
                Some(run) => run.batches += 1,
                None => layout.runs.push(RunLayout { step, batches: 1, samples, slots: Vec::new() }),
            }
        }
        for run in &mut layout.runs {
            for (rows, _) in &fields.sources {
                let stride = batch_stride(rows.bytes(), run.samples).unwrap_or(usize::MAX);
                run.slots.push((layout.bytes, stride));
                layout.bytes = layout.bytes.saturating_add(stride.saturating_mul(run.batches));
            }
        }
        Ok(layout)
    }

    /// The pieces of each run; none where rows have no width.
    pub(super) fn pieces(&self, fields: &Fields) -> Vec<Vec<Piece>> {
        match fields.row_bytes() {
            0 => self.runs.iter().map(|_| Vec::new()).collect(),
            row => {
                let most = (PIECE_BYTES / row).clamp(1, PIECE_SAMPLES);
                self.runs.iter().map(|run| run.pieces(most)).collect()
            }
        }
    }

    /// Where to cut the block's memory into the regions of `pieces`: for each run, for each field, for each piece.
    pub(super) fn cuts(&self, fields: &Fields, pieces: &[Vec<Piece>]) -> Vec<usize> {
        let mut cuts = Vec::new();
        for (run, pieces) in self.runs.iter().zip(pieces) {
            for ((offset, stride), (rows, _)) in run.slots.iter().zip(&fields.sources) {
                let start =
                    |piece: &Piece| offset + piece.batches.start * stride + piece.rows.start * rows.bytes();
                cuts.extend(pieces.iter().map(start));
            }
        }
        cuts.push(self.bytes);
        cuts
    }
}

impl RunLayout {
    /// Pieces of at most `most` samples: several whole batches, or part of one.
    fn pieces(&self, most: usize) -> Vec<Piece> {
        let whole = most / self.samples.max(1);
        match whole {
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

/// Consecutive batches of one rank in one allocation, formed and ready.
#[derive(Debug, Clone)]
pub struct Block {
    runs: Vec<Run>,
}

/// Consecutive batches of equal size, field by field.
#[derive(Debug, Clone)]
pub struct Run {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
    len: usize,
}

impl Block {
    pub(super) fn new(fields: &Fields, layout: &BlockLayout, bytes: &Bytes) -> Result<Self> {
        let runs = layout.runs.iter().map(|run| Run::new(fields, run, bytes));
        Ok(Self { runs: runs.collect::<Result<_>>()? })
    }

    /// The runs of equal batches, in order; mostly one.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = Batch> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len).filter_map(|index| run.batch(index)))
    }
}

impl Run {
    fn new(fields: &Fields, run: &RunLayout, bytes: &Bytes) -> Result<Self> {
        let tensor = |((dtype, row), &(offset, stride)): (&(DType, Vec<usize>), &(usize, usize))| {
            let shape = [&[run.batches, run.samples], row.as_slice()].concat();
            let compact = Layout::compact(&shape[1..], dtype.size()).ok_or(Error::BatchTooLarge {
                samples: run.samples as u64,
                row: row.iter().product::<usize>().saturating_mul(dtype.size()),
            })?;
            let strides = [&[stride.cast_signed()], compact.strides()].concat();
            Tensor::new(bytes.clone(), *dtype, &shape, &strides, offset)
        };
        let tensors = fields.kinds.iter().zip(&run.slots).map(tensor).collect::<Result<_>>()?;
        Ok(Self { names: Arc::clone(&fields.names), fields: tensors, len: run.batches })
    }

    /// How many batches.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each field of all batches: `[batches, samples, ..row]`. Batches are compact and start at multiples of 64 bytes;
    /// there may be gaps between them.
    pub fn fields(&self) -> &[Tensor] {
        &self.fields
    }

    /// Batch `index`, a view; none past the end.
    pub fn batch(&self, index: usize) -> Option<Batch> {
        let fields = self.fields.iter().map(|field| field.index(index)).collect::<Option<_>>()?;
        Some(Batch { names: Arc::clone(&self.names), fields })
    }
}

/// One batch: for each field an array `[samples, ..row]`, compact and 64-byte aligned.
///
/// A view of its block: as long as any batch of a block is held, so is the block's memory, unchanged.
#[derive(Debug, Clone)]
pub struct Batch {
    names: Arc<[String]>,
    fields: Vec<Tensor>,
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

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.fields.first().and_then(|field| field.shape().first().copied()).unwrap_or(0)
    }

    /// Whether there are none; never, in a batch that a loader made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A number of samples that fit in memory.
fn length(samples: u64) -> usize {
    usize::try_from(samples).unwrap_or(usize::MAX)
}
