//! Index tables: the places of the samples of a block, in numbers, for data that this process cannot read or need not.
//!
//! If data is in the memory of an accelerator, a block is not bytes of samples but a table of their rows; the
//! accelerator's own framework makes batches of it. The table has a column for each member: a sample, or a passage of a
//! stream. Its rows depend on the kind of dataset:
//!
//! - Rows of one shape: the sample.
//! - Windows: the row with which the window begins, and the number of rows of zeros before it. Then, for each place of
//!   each field with separate times, the row; -1 without one, and -2 less the nearest row where only that exists.
//! - Sequences and groups: the sample; its first element in the block; the number of elements of its slot; its end in
//!   its batch; its number in its batch; the extent that is taken of it in each dimension that varies; the extent of
//!   its slot in each; the row of values where it begins, for each variable field.
//! - Streams of tokens: the first row of the passage, or -1 for a separator, or -2 for padding; its first element in the block; its number
//!   of elements; the place in its document with which it begins; the number of that document in its piece; 1 if a
//!   document begins with it.
//!
//! A sample stands for its place in the data: its own number, unless samples were selected. If places of batches may
//! only fill up, the samples of all batches follow the table, -1 for such a place; for batches that are concatenations,
//! with one more before each of them, as in the table. So do the samples of sequences and groups that were selected.
//!
//! A passage of a piece includes the label of the piece's last token. Before the members of each batch that is a
//! concatenation comes one more, without elements, so that the ends of its members are the boundaries of the batch.

use std::sync::Arc;

use super::fields::Fields;
use super::layout::RunLayout;
use crate::collate::{FILLER, Members, PassageOf, Passages};
use crate::dataset::Dataset;
use crate::dataset::collation::Index;
use crate::tensor::Sequences;
use crate::tensor::buffer::Region;
use crate::{DType, Plan, Result};

/// The number of samples that one thread looks up at a time: some tenths of a millisecond.
const PART: usize = 8192;

/// The way in which the index table of a dataset is made.
#[derive(Debug)]
pub(super) struct IndexTable {
    fields: Arc<Fields>,
    /// The largest number that the table has to hold besides elements: the rows of any array, or the samples.
    limit: usize,
}

/// The size of the index table of one block, and of its picks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    /// The number of rows of the table.
    rows: usize,
    /// The number of columns, one for each member.
    members: usize,
    /// The number of picks: the elements of the block if samples are subsampled, 0 otherwise.
    picks: usize,
    /// The number of samples that are listed, -1 where one only fills up: none unless batches are marked, or samples
    /// were selected.
    index: usize,
    /// The type of the numbers.
    dtype: DType,
}

impl Table {
    /// The number of bytes of all numbers.
    pub(super) fn bytes(&self) -> usize {
        (self.rows * self.members + self.picks + self.index) * self.dtype.size()
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the table, the number of picks, and the number of samples listed.
    pub(super) fn shape(&self) -> ([usize; 2], usize, usize) {
        ([self.rows, self.members], self.picks, self.index)
    }
}

impl IndexTable {
    /// The index table of batches of `fields`, with samples from `dataset`.
    pub(super) fn new(dataset: &Dataset, fields: Arc<Fields>) -> Self {
        let arrays = dataset.kind().arrays();
        let rows = arrays.iter().filter_map(|(_, array)| array.shape().first()).max().copied().unwrap_or(0);
        Self { limit: rows.max(dataset.len()), fields }
    }

    fn rows(&self) -> usize {
        match self.fields.index() {
            Index::Rows => 1,
            Index::Windows { finders, .. } => 2 + finders.iter().map(|finder| finder.count()).sum::<usize>(),
            Index::Ragged { fields, dimensions, .. } => 5 + 2 * dimensions + fields.len(),
            Index::Stream { .. } => 6,
        }
    }

    /// The table for the batches of some runs.
    ///
    /// # Errors
    /// The errors of [`Plan::indices`].
    pub(super) fn table(&self, plan: &Plan, rank: u32, runs: &[RunLayout]) -> Result<Table> {
        let (mut members, mut elements, mut picks, mut index) = (0, 0, false, 0);
        for run in runs {
            members += self.members(plan, rank, run)?;
            elements += run.batches * run.space.iter().product::<usize>();
            picks |= !run.members.picks.is_empty();
            index += if self.lists() { run.batches * (run.samples + self.leads()) } else { 0 };
        }
        // Labels lie one element further.
        let fits = i32::try_from(self.limit.max(elements + members)).is_ok();
        let dtype = if fits { DType::I32 } else { DType::I64 };
        Ok(Table { rows: self.rows(), members, picks: if picks { elements } else { 0 }, index, dtype })
    }

    /// Returns true if samples are listed after the table.
    fn lists(&self) -> bool {
        let ragged = matches!(self.fields.index(), Index::Ragged { .. });
        let counted = matches!(self.fields.index(), Index::Windows { lists: true, .. });
        self.fields.is_marked() || counted || (ragged && !self.fields.located().is_plain())
    }

    /// The number of members before the first sample of a batch.
    fn leads(&self) -> usize {
        usize::from(matches!(self.fields.index(), Index::Ragged { packs: true, .. }))
    }

    /// The number of members of the batches of a run.
    fn members(&self, plan: &Plan, rank: u32, run: &RunLayout) -> Result<usize> {
        Ok(match self.fields.index() {
            Index::Rows | Index::Windows { .. } => run.batches * run.samples,
            Index::Ragged { .. } => run.samples + self.leads(),
            Index::Stream { pieces, documents } => {
                let mut passages = 0;
                let len = pieces.batch_len(&run.members);
                for sample in samples(plan, rank, run)? {
                    pieces.passages(sample, len, *documents, &mut |_| passages += 1);
                }
                passages
            }
        })
    }

    /// The parts of a table that different threads may fill, in order: of rows of one shape some batches each, of other
    /// data all runs.
    pub(super) fn parts(&self, runs: &[RunLayout], table: Table) -> Vec<(Vec<RunLayout>, Table)> {
        if !matches!(self.fields.index(), Index::Rows) || table.index > 0 {
            return vec![(runs.to_vec(), table)];
        }
        let mut parts = Vec::new();
        for run in runs {
            let most = (PART / run.samples.max(1)).max(1);
            for start in (0..run.batches).step_by(most) {
                let batches = most.min(run.batches - start);
                let part = RunLayout { step: run.step + start as u64, batches, ..run.clone() };
                parts.push((vec![part], Table { members: batches * run.samples, ..table }));
            }
        }
        parts
    }

    /// Writes the table of some runs.
    ///
    /// # Errors
    /// The errors of [`Plan::fill`].
    pub(super) fn fill(
        &self,
        plan: &Plan,
        rank: u32,
        runs: &[RunLayout],
        table: Table,
        target: &mut Region,
    ) -> Result<()> {
        let listed = table.rows * table.members + table.picks;
        let mut writer = Writer { table, target, member: 0, element: 0, listed };
        for run in runs {
            match self.fields.index() {
                Index::Rows => {
                    let samples = samples(plan, rank, run)?;
                    let places = self.fields.located().places(&samples);
                    places.of(&samples).rows.iter().for_each(|&row| writer.add([number(row)]));
                }
                Index::Windows { places, finders, .. } => {
                    let mut found = Vec::new();
                    for sample in samples(plan, rank, run)? {
                        let (place, mut numbers) = (places.place(sample), Vec::new());
                        for finder in finders {
                            finder.find(sample, &mut found);
                            numbers.extend(found.iter().map(|found| found.number()));
                        }
                        let place = [index(place.row), index(place.missing)];
                        writer.add(place.into_iter().chain(numbers));
                    }
                }
                Index::Ragged { fields, packs, .. } => writer.write_ragged(fields, *packs, &run.members),
                Index::Stream { pieces, documents } => {
                    let len = pieces.batch_len(&run.members);
                    for sample in samples(plan, rank, run)? {
                        writer.piece(&**pieces, len, *documents, sample);
                    }
                }
            }
            if self.lists() {
                let listed = if self.fields.is_ragged() {
                    run.members.samples.clone()
                } else {
                    samples(plan, rank, run)?
                };
                writer.list(&listed, run, self.leads());
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

/// A writer of the table, member by member.
struct Writer<'a> {
    table: Table,
    target: &'a mut Region,
    /// The number of members and elements written.
    member: usize,
    element: usize,
    /// The place of the next sample that is listed.
    listed: usize,
}

impl Writer<'_> {
    /// Writes the next member.
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

    /// Writes the members of a batch of samples that differ in size.
    fn write_ragged(&mut self, fields: &[Sequences], packs: bool, members: &Members) {
        let none = vec![0; 2 * members.union.len() + fields.len()];
        if packs {
            // It names any sample of the batch, so that it can be looked up like the others.
            let sample = members.samples.first().map_or(0, |_| index(members.row(0)));
            self.add([sample, index(self.element), 0, 0, 0].into_iter().chain(none));
        }
        for member in 0..members.count {
            let slot = if packs { members.length(member) } else { members.union.iter().product() };
            let end = if packs { index(members.ends[member + 1]) } else { 0 };
            let sample = index(members.row(member));
            let head = [sample, index(self.element), index(slot), end, index(member)];
            let taken = members.extents(member).iter().map(|&extent| i64::from(extent));
            let most = members.union.iter().map(|&most| index(most));
            let first = |field: &Sequences| field.start(members.row(member)) + members.start(member);
            let starts = fields.iter().map(|field| index(first(field)));
            self.add(head.into_iter().chain(taken).chain(most).chain(starts));
            self.pick(members, member);
            self.element += slot;
        }
    }

    /// Writes the elements that a member takes of its sample, if some sample of the block is subsampled.
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

    /// Lists the samples of the batches of a run.
    fn list(&mut self, samples: &[u64], run: &RunLayout, leads: usize) {
        for batch in samples.chunks(run.samples.max(1)) {
            // What comes before the samples is no filler.
            let lead = batch.first().map(|&sample| number(sample));
            let marked =
                |(place, &sample)| if run.members.is_filler(place) { FILLER } else { number(sample) };
            let numbers = lead.into_iter().take(leads).chain(batch.iter().enumerate().map(marked));
            for number in numbers {
                self.write(self.listed, number);
                self.listed += 1;
            }
        }
    }

    /// Writes the passages of a piece.
    fn piece(&mut self, pieces: &dyn Passages, len: usize, documents: bool, sample: u64) {
        let (mut place, mut document) = (0, -1);
        pieces.passages(sample, len, documents, &mut |passage| {
            place = if passage.goes_on { place } else { 0 };
            document += i64::from(!passage.goes_on);
            let row = match &passage.of {
                PassageOf::Stored(tokens) => index(tokens.start),
                PassageOf::Separator => -1,
                PassageOf::Padding(_) => -2,
            };
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
