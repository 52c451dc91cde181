//! Samples that are made on demand: which a block needs, reading them in parts, and laying the block out once they are
//! read.
//!
//! A block is one batch, so `prefetch` counts batches. Its samples are read in parts, by all threads. Nothing is read
//! for a block that may not be opened yet, and nothing after the iteration has stopped.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::fields::Fields;
use super::layout::BlockLayout;
use super::planned::PlannedBlock;
use crate::collate::Members;
use crate::dataset::kind::CollateOptions;
use crate::dataset::{BatchRead, Dataset, ReadPart, ReadRequest, Reader, SampleLayout};
use crate::{Plan, Result};

/// The number of parts that a batch is read in, for each thread: with several, a slow sample holds up fewer others.
const PARTS: usize = 4;

/// The samples of a dataset that are made on demand, in one iteration.
pub(super) struct Demand {
    pub(super) dataset: Dataset,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) collate: CollateOptions,
    pub(super) threads: usize,
    /// The first sample of the iteration, and its layout, to which others are compared.
    pub(super) first: Mutex<Option<(u64, SampleLayout)>>,
}

/// A block whose samples are not read yet.
pub(super) struct ToRead {
    demand: Arc<Demand>,
    /// The step of its batch.
    pub(super) step: u64,
    pub(super) members: Arc<Members>,
}

/// A block whose samples are being read.
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
    /// Those of [`Plan::parts`].
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
}

impl ToRead {
    /// The parts in which the samples are read.
    pub(super) fn tasks(&self) -> impl Iterator<Item = ReadTask> + use<> {
        let (demand, members) = (Arc::clone(&self.demand), Arc::clone(&self.members));
        let part = members.count.div_ceil(demand.threads * PARTS).max(1);
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
    pub(super) fn read(&self, plan: &Plan, is_stopped: &(dyn Fn() -> bool + Sync)) -> Result<ReadPart> {
        let samples = &self.members.samples[self.range.clone()];
        self.demand.reader.read(&ReadRequest { samples, seed: plan.seed(), epoch: plan.epoch(), is_stopped })
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

    /// The layout of the block, whose samples are all read. Blocks come here in order.
    ///
    /// # Errors
    /// Errors that say which sample does not fit the others, or could not be read.
    pub(super) fn lay_out(self, plan: &Plan) -> Result<Box<PlannedBlock>> {
        let Self { to_read: ToRead { demand, step, members }, mut parts, .. } = self;
        parts.sort_unstable_by_key(|(range, _)| range.start);
        let mut first = demand.first.lock().unwrap_or_else(PoisonError::into_inner);
        let read = BatchRead { samples: members.samples.clone(), parts, first: first.clone() };
        let mut collated = demand.dataset.kind().collate(plan.rule(), &demand.collate, read)?;
        if first.is_none() {
            *first = collated.first.take();
        }
        let skipped = mem::take(&mut collated.skipped);
        let fields = Arc::new(Fields::of_batch(collated, plan, &demand.collate)?);
        let layout = BlockLayout::of_one(&fields, step, members)?;
        Ok(Box::new(PlannedBlock { fields, layout, table: None, skipped }))
    }
}
