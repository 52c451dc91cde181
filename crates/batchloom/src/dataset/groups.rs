//! `GroupDataset`: rows that belong together, such as all rows of one query, are one sample.
//!
//! A group is never divided between batches, and its rows keep their order unless they are shuffled. The rows of a group may lie anywhere; the
//! dataset then keeps the place of each row, not a copy of it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::TextIds;
use super::collation::{CollateOptions, Collation};
use super::error::DatasetCause;
use super::kind::{EpochKey, Kind};
use super::sequences::{SequenceDataset, SequenceDatasetBuilder};
use crate::batching::error::BatchingCause;
use crate::batching::{Rule, Sizes};
use crate::collate::{Form, Mask, Offsets};
use crate::named::named;
use crate::tensor::Sequences;
use crate::tensor::error::TensorCause;
use crate::{ChunkedTensor, Result, memory};

/// The rows of each group. Groups are numbered in the order of their first appearance.
#[derive(Clone)]
pub struct Groups {
    offsets: Vec<i64>,
    /// The row at each place, if groups do not lie one after the other.
    order: Option<Arc<[u64]>>,
}

crate::brief::debug_in_brief!(Groups, [], [offsets, order]);

impl Groups {
    /// The groups of rows with these ids. This takes one pass; each change of id costs a look-up, unless ids are
    /// sorted.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are no rows; [`Kind::Memory`](crate::Kind::Memory).
    pub fn of(ids: &[i64]) -> Result<Self> {
        if ids.is_empty() {
            return Err(BatchingCause::NoSamples.into());
        }
        let changes = ids.windows(2).filter(|pair| pair[0] != pair[1]).count();
        memory::require_each(changes + 1, RUN_BYTES)?;
        let runs = runs(ids);
        let groups = runs.iter().map(|&(group, _)| group + 1).max().unwrap_or(0);
        let ends = runs.iter().skip(1).map(|&(_, row)| row).chain([ids.len()]);
        let mut lengths = vec![0_usize; groups];
        runs.iter().zip(ends.clone()).for_each(|(&(group, row), end)| lengths[group] += end - row);
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0_usize, |end, length| {
            *end += length;
            Some(end.cast_signed() as i64)
        }));
        let moves = runs.len() > groups;
        if moves {
            memory::require_each(ids.len(), 2 * size_of::<u64>())?;
        }
        let order = moves.then(|| {
            let mut order = vec![0; ids.len()];
            let mut next: Vec<i64> = offsets.clone();
            for (&(group, row), end) in runs.iter().zip(ends) {
                for row in row..end {
                    order[usize::try_from(next[group]).unwrap_or(usize::MAX)] = row as u64;
                    next[group] += 1;
                }
            }
            order.into()
        });
        Ok(Self { offsets, order })
    }

    /// The groups of rows with these texts. One pass; [`TextIds`] maps texts to groups.
    ///
    /// ```
    /// use batchloom::dataset::Groups;
    ///
    /// let groups = Groups::of_text(["rose", "lily", "rose"])?;
    /// assert_eq!(groups.offsets(), [0, 2, 3]);
    /// assert_eq!(groups.order(), Some(&[0, 2, 1][..]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if there are no rows; [`Kind::Memory`](crate::Kind::Memory).
    pub fn of_text<'a, T: AsRef<[u8]> + ?Sized + 'a>(texts: impl IntoIterator<Item = &'a T>) -> Result<Self> {
        Self::of(TextIds::new(texts)?.codes())
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns true if there are no groups, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.last().map_or(0, |&end| usize::try_from(end).unwrap_or(usize::MAX))
    }

    /// The first place of each group, and the number of rows: group `k` is at the places `offsets[k]..offsets[k + 1]`.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// The row at each place, or `None` if row `k` is at place `k`.
    pub fn order(&self) -> Option<&[u64]> {
        self.order.as_deref()
    }
}

/// The most bytes that a row takes at which ids change: as the start of a run, in the table of ids, and as the start of
/// a group, while lists of them grow.
const RUN_BYTES: usize = 160;

/// The rows at which ids change: the group that begins or continues, by the order of first appearance, and the row.
fn runs(ids: &[i64]) -> Vec<(usize, usize)> {
    let changes = ids.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]).map(|(row, _)| row + 1);
    let starts: Vec<usize> = [0].into_iter().chain(changes).collect();
    let rises = |pair: &[usize]| ids[pair[0]] < ids[pair[1]];
    if starts.windows(2).all(rises) {
        return starts.into_iter().enumerate().collect();
    }
    let mut numbers = HashMap::new();
    let number = |row: usize| {
        let next = numbers.len();
        (*numbers.entry(ids[row]).or_insert(next), row)
    };
    starts.into_iter().map(number).collect()
}

/// The layout of a batch of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupLayout {
    /// Rows of one group after the other: `[rows, ..]`.
    #[default]
    Concatenated,
    /// Each group padded to the longest of the batch: `[groups, rows, ..]`, and `mask`.
    Padded,
}

named!(GroupLayout, "layout", {
    "concatenated" => Concatenated,
    "padded" => Padded,
});

/// The treatment of a group that has more rows than allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupOversize {
    /// No dataset is made, and the error names the group.
    #[default]
    Error,
    /// The first rows are taken.
    Truncate,
    /// Random rows are taken, in order, and new ones in each epoch: a function of seed, epoch and group.
    Subsample,
}

named!(GroupOversize, "oversize", {
    "error" => Error,
    "truncate" => Truncate,
    "subsample" => Subsample,
});

/// Groups of rows, each a sample.
///
/// ```
/// use batchloom::dataset::Groups;
/// use batchloom::{GroupDataset, Tensor};
///
/// let groups = Groups::of(&[7, 7, 3, 7])?; // rows 0, 1 and 3; row 2
/// let x = Tensor::from_vec((0..4_i64).collect(), &[4])?;
/// let dataset = GroupDataset::new(groups).rows("x", x)?.build()?;
/// assert_eq!(dataset.len(), 2);
/// assert_eq!(dataset.sizes().as_slice(), [3, 1]);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GroupDataset {
    groups: Groups,
    sequences: SequenceDataset,
    layout: GroupLayout,
    offsets: bool,
}

/// The fields and options of a [`GroupDataset`].
#[derive(Debug, Clone)]
pub struct GroupDatasetBuilder {
    groups: Groups,
    fields: SequenceDatasetBuilder,
    layout: GroupLayout,
    max_rows: Option<(u32, GroupOversize)>,
    shuffles_rows: bool,
    offsets: bool,
}

impl GroupDatasetBuilder {
    /// Adds a field with one value for each row.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is a scalar, or if it does not have as many rows as there are ids.
    pub fn rows(mut self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Result<Self> {
        let (name, values) = (name.into(), values.into());
        let rows = *values.shape().first().ok_or_else(|| TensorCause::ScalarField { field: name.clone() })?;
        if rows != self.groups.rows() {
            let expected = self.groups.rows();
            return Err(DatasetCause::RowsOfIds { field: name, found: rows, expected }.into());
        }
        let sequences = Sequences::new(&name, values, &self.groups.offsets)?;
        self.fields = self.fields.variable(name, sequences.with_order(self.groups.order.clone()));
        Ok(self)
    }

    /// Adds a field with one row for each group.
    #[must_use]
    pub fn fixed(self, name: impl Into<String>, values: impl Into<ChunkedTensor>) -> Self {
        Self { fields: self.fields.fixed(name, values), ..self }
    }

    /// Sets the layout of batches. Default: concatenated.
    #[must_use]
    pub fn layout(self, layout: GroupLayout) -> Self {
        Self { layout, ..self }
    }

    /// Sets the largest number of rows that a batch takes of a group, and what happens to groups with more. Default:
    /// all rows.
    #[must_use]
    pub fn max_rows(self, max_rows: u32, oversize: GroupOversize) -> Self {
        Self { max_rows: Some((max_rows, oversize)), ..self }
    }

    /// Puts the rows of each group that a batch takes into another order in each epoch: a function of seed, epoch and
    /// group. Default: rows keep their order.
    #[must_use]
    pub fn shuffle_rows(self) -> Self {
        Self { shuffles_rows: true, ..self }
    }

    /// Adds `offsets` to concatenated batches: the first row of each group, and the number of rows.
    #[must_use]
    pub fn offsets(self) -> Self {
        Self { offsets: true, ..self }
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if a group has more rows than it may; and those of a
    /// [`SequenceDatasetBuilder`].
    pub fn build(self) -> Result<GroupDataset> {
        let Self { groups, fields, layout, max_rows, shuffles_rows, offsets } = self;
        let mut sequences = fields.build()?;
        if let Some((max_rows, oversize)) = max_rows {
            let sizes = sequences.sizes().as_slice();
            let group = sizes.iter().position(|&rows| rows > max_rows);
            if let (GroupOversize::Error, Some(group)) = (oversize, group) {
                return Err(
                    DatasetCause::GroupTooLong { group: group as u64, rows: sizes[group], max_rows }.into()
                );
            }
            sequences = sequences.at_most(max_rows, oversize == GroupOversize::Subsample);
        }
        if shuffles_rows {
            sequences = sequences.with_shuffled_elements();
        }
        Ok(GroupDataset { groups, sequences, layout, offsets })
    }
}

impl GroupDataset {
    /// The builder of a dataset of groups, to which fields are added one by one.
    #[expect(clippy::new_ret_no_self, reason = "a dataset without fields is none")]
    pub fn new(groups: Groups) -> GroupDatasetBuilder {
        let (fields, layout) = (SequenceDataset::new(), GroupLayout::default());
        GroupDatasetBuilder { groups, fields, layout, max_rows: None, shuffles_rows: false, offsets: false }
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns true if there are no groups, which never happens.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The number of rows that batches take of each group; plans sort, count and budget by it.
    pub fn sizes(&self) -> &Sizes {
        self.sequences.sizes()
    }
}

impl Kind for GroupDataset {
    fn len(&self) -> usize {
        self.groups.len()
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        self.sequences.arrays()
    }

    fn sizes(&self) -> Option<Sizes> {
        Some(self.sequences.sizes().clone())
    }

    fn is_concatenated(&self) -> bool {
        self.layout == GroupLayout::Concatenated
    }

    fn collation(&self, rule: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        let packs = self.is_concatenated();
        if rule.splits() {
            return Err(DatasetCause::SplitGroups { rule: rule.name() }.into());
        }
        if rule.packs() && !packs {
            return Err(DatasetCause::PackedGroups.into());
        }
        let described: Option<(&str, Arc<dyn Form>)> = match packs {
            true if self.offsets => Some(("offsets", Arc::new(Offsets))),
            true => None,
            false => Some(("mask", Arc::new(Mask(options.pad_side)))),
        };
        self.sequences.collate(packs, options, described)
    }

    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>> {
        Kind::rows(&self.sequences, samples)
    }

    fn most_rows(&self, samples: usize) -> Vec<usize> {
        self.sequences.most_rows(samples)
    }
}
