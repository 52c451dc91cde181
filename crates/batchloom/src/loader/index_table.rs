//! Addresses: where the samples of a block lie, in numbers, for data that this process cannot read or need not.
//!
//! Where data is in the memory of an accelerator, a block is no bytes of samples but a table that says which rows they
//! are; the accelerator's own framework makes batches of it. The table has a column for each member: a sample, or a
//! passage of a stream. What its rows mean depends on the kind of dataset:
//!
//! - Rows of one shape: the sample.
//! - Windows: the row that the window begins with, and the steps of zeros before it.
//! - Sequences and groups: the sample; its first element in the block; how many elements its slot has; where it ends in its
//!   batch; its number in its batch; what is taken of it in each dimension that varies; the extent of its slot in each;
//!   the row of values where it begins, for each variable field.
//! - Streams of tokens: the first row of the passage, or -1 for a separator; its first element in the block; how many it
//!   has; the place in its document that it begins with; the number of that document in its piece; whether a document
//!   begins with it.
//!
//! A passage of a piece goes on to the label of the piece's last token. In front of the members of each batch that is a
//! concatenation comes one more, without elements, so that where its members end are the boundaries of the batch.

use std::sync::Arc;

use super::fields::Fields;
use super::layout::RunLayout;
use crate::collate::{Members, Passages};
use crate::dataset::Dataset;
use crate::dataset::kind::Index;
use crate::tensor::Sequences;
use crate::tensor::buffer::Region;
use crate::{DType, Plan, Result};

/// What the addresses of a dataset's samples are.
#[derive(Debug)]
pub(super) struct IndexTable {
    fields: Arc<Fields>,
    /// The most rows of any array, and the number of samples: what the numbers have to hold.
    limit: usize,
}

/// The size of the table of one block, and of what comes with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    /// Rows of the table.
    rows: usize,
    /// Columns: the members.
    members: usize,
    /// For each element of the block, which one of its sample it is: where samples are thinned out.
    picks: usize,
    /// What numbers take.
    dtype: DType,
}

impl Table {
    /// Bytes of all numbers.
    pub(super) fn bytes(&self) -> usize {
        (self.rows * self.members + self.picks) * self.dtype.size()
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the table, and the length of the picks.
    pub(super) fn shape(&self) -> ([usize; 2], usize) {
        ([self.rows, self.members], self.picks)
    }
}

impl IndexTable {
    /// The index table of batches of `fields`, whose samples are taken from `dataset`.
    pub(super) fn new(dataset: &Dataset, fields: Arc<Fields>) -> Self {
        let arrays = dataset.kind().arrays();
        let rows = arrays.iter().filter_map(|(_, array)| array.shape().first()).max().copied().unwrap_or(0);
        Self { limit: rows.max(dataset.len()), fields }
    }

    fn rows(&self) -> usize {
        match self.fields.index() {
            Index::Rows => 1,
            Index::Windows(_) => 2,
            Index::Ragged { fields, dimensions, .. } => 5 + 2 * dimensions + fields.len(),
            Index::Stream { .. } => 6,
        }
    }

    /// The table for the batches of some runs.
    ///
    /// # Errors
    /// Those of [`Plan::indices`].
    pub(super) fn table(&self, plan: &Plan, rank: u32, runs: &[RunLayout]) -> Result<Table> {
        let (mut members, mut elements, mut picks) = (0, 0, false);
        for run in runs {
            members += self.members(plan, rank, run)?;
            elements += run.batches * run.space.iter().product::<usize>();
            picks |= !run.members.picks.is_empty();
        }
        // Labels lie one element further.
        let fits = i32::try_from(self.limit.max(elements + members)).is_ok();
        let dtype = if fits { DType::I32 } else { DType::I64 };
        Ok(Table { rows: self.rows(), members, picks: if picks { elements } else { 0 }, dtype })
    }

    /// How many members the batches of a run have.
    fn members(&self, plan: &Plan, rank: u32, run: &RunLayout) -> Result<usize> {
        Ok(match self.fields.index() {
            Index::Rows | Index::Windows(_) => run.batches * run.samples,
            Index::Ragged { packs, .. } => run.samples + usize::from(*packs),
            Index::Stream { pieces, documents } => {
                let mut passages = 0;
                for sample in samples(plan, rank, run)? {
                    pieces.passages(sample, *documents, &mut |_| passages += 1);
                }
                passages
            }
        })
    }

    /// Writes the table of some runs.
    ///
    /// # Errors
    /// Those of [`Plan::fill`].
    pub(super) fn fill(
        &self,
        plan: &Plan,
        rank: u32,
        runs: &[RunLayout],
        table: Table,
        target: &mut Region,
    ) -> Result<()> {
        let mut writer = Writer { table, target, member: 0, element: 0 };
        for run in runs {
            match self.fields.index() {
                Index::Rows => samples(plan, rank, run)?.into_iter().for_each(|it| writer.add([number(it)])),
                Index::Windows(windows) => {
                    for sample in samples(plan, rank, run)? {
                        let place = windows.place(sample);
                        writer.add([index(place.row), index(place.missing)]);
                    }
                }
                Index::Ragged { fields, packs, .. } => writer.ragged(fields, *packs, &run.members),
                Index::Stream { pieces, documents } => {
                    for sample in samples(plan, rank, run)? {
                        writer.piece(&**pieces, *documents, sample);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The samples of all batches of a run.
fn samples(plan: &Plan, rank: u32, run: &RunLayout) -> Result<Vec<u64>> {
    let mut samples = vec![0; run.batches * run.samples];
    plan.fill(run.step, rank, 0, &mut samples)?;
    Ok(samples)
}

/// Writes the table member by member.
struct Writer<'a> {
    table: Table,
    target: &'a mut Region,
    /// Members and elements written.
    member: usize,
    element: usize,
}

impl Writer<'_> {
    /// The next member.
    fn add(&mut self, numbers: impl IntoIterator<Item = i64>) {
        for (row, number) in numbers.into_iter().enumerate() {
            self.write(row * self.table.members + self.member, number);
        }
        self.member += 1;
    }

    fn write(&mut self, place: usize, number: i64) {
        match self.table.dtype {
            DType::I32 => {
                // The table is of this type because all numbers fit.
                let number = i32::try_from(number).unwrap_or(i32::MAX);
                self.target.as_chunks_mut::<4>().0[place] = number.to_ne_bytes();
            }
            _ => self.target.as_chunks_mut::<8>().0[place] = number.to_ne_bytes(),
        }
    }

    /// The members of a batch whose samples differ in size.
    fn ragged(&mut self, fields: &[Sequences], packs: bool, members: &Members) {
        let none = vec![0; 2 * members.union.len() + fields.len()];
        if packs {
            // Whose sample is any of the batch, so that it can be looked up like the others.
            let sample = members.samples.first().map_or(0, |&sample| number(sample));
            self.add([sample, index(self.element), 0, 0, 0].into_iter().chain(none));
        }
        for member in 0..members.count {
            let slot = if packs { members.length(member) } else { members.union.iter().product() };
            let end = if packs { index(members.ends[member + 1]) } else { 0 };
            let sample = number(members.samples[member]);
            let head = [sample, index(self.element), index(slot), end, index(member)];
            let taken = members.extents(member).iter().map(|&extent| i64::from(extent));
            let most = members.union.iter().map(|&most| index(most));
            let first = |field: &Sequences| field.start(members.sample(member)) + members.start(member);
            let starts = fields.iter().map(|field| index(first(field)));
            self.add(head.into_iter().chain(taken).chain(most).chain(starts));
            self.pick(members, member);
            self.element += slot;
        }
    }

    /// Which elements of its sample a member takes, where some sample of the block is thinned out.
    fn pick(&mut self, members: &Members, member: usize) {
        if self.table.picks == 0 {
            return;
        }
        let start = self.table.rows * self.table.members + self.element;
        for step in 0..members.length(member) {
            let pick = members.picks.get(members.ends[member] + step);
            self.write(start + step, pick.map_or(index(step), |&pick| i64::from(pick)));
        }
    }

    /// The passages of a piece.
    fn piece(&mut self, pieces: &dyn Passages, documents: bool, sample: u64) {
        let (mut place, mut document) = (0, -1);
        pieces.passages(sample, documents, &mut |passage| {
            place = if passage.goes_on { place } else { 0 };
            document += i64::from(!passage.goes_on);
            let row = passage.tokens.as_ref().map_or(-1, |tokens| index(tokens.start));
            let length = passage.len();
            let begins = i64::from(passage.begins);
            self.add([row, index(self.element), index(length), place, document, begins]);
            place += index(length);
            self.element += length;
        });
    }
}

fn index(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

fn number(sample: u64) -> i64 {
    sample.cast_signed()
}
