//! The numbers of samples and elements in each kind of data, and of those that an epoch leaves out.

use std::iter;

use super::error::SelectionCause;
use super::{GroupDataset, Groups, Selection, SequenceDataset, TokenDataset};
use crate::Result;

/// The sequences of a [`SequenceDataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceCounts {
    /// The number of samples.
    pub samples: u64,
    /// The sum of all sizes: elements, unless sizes are the user's own.
    pub tokens: u64,
    /// The smallest size.
    pub shortest: u32,
    /// The largest size.
    pub longest: u32,
}

/// The groups of a [`GroupDataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupCounts {
    /// The number of groups.
    pub groups: u64,
    /// The number of rows of all groups.
    pub rows: u64,
    /// The number of rows of the longest group.
    pub longest: u64,
    /// The number of groups with more rows than a batch takes of one.
    pub longer: u64,
    /// The number of rows that an epoch leaves out of them.
    pub left_out: u64,
}

/// The tokens of a [`TokenDataset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCounts {
    /// The number of tokens of all documents.
    pub tokens: u64,
    /// The number of documents.
    pub documents: u64,
    /// The number of tokens that are put between documents.
    pub separators: u64,
    /// The number of pieces of an epoch.
    pub samples: u64,
    /// The number of tokens that are inputs, each once in an epoch.
    pub inputs: u64,
    /// The number of tokens and separators left over: the last one, which has no next token, and with
    /// [`Tail::Drop`](super::Tail::Drop) those that are too few for a full piece with its labels.
    pub tail: u64,
    /// The number of places of pieces after the ends of rows, which hold no token. Of a shorter piece beside longer ones,
    /// batches may pad more.
    pub padding: u64,
}

impl SequenceDataset {
    /// Counts the sequences and their elements.
    ///
    /// ```
    /// use batchloom::dataset::Sequences;
    /// use batchloom::{SequenceDataset, Tensor};
    ///
    /// let values = Tensor::from_vec(vec![1_i64, 2, 3, 4], &[4])?;
    /// let dataset = SequenceDataset::new().variable("x", Sequences::new("x", values, &[0, 3, 4])?).build()?;
    /// let counts = dataset.counts();
    /// assert_eq!((counts.samples, counts.tokens, counts.shortest, counts.longest), (2, 4, 1, 3));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn counts(&self) -> SequenceCounts {
        let sizes = self.sizes().as_slice();
        SequenceCounts {
            samples: self.sizes().len(),
            tokens: self.sizes().total(),
            shortest: sizes.iter().copied().min().unwrap_or(0),
            longest: sizes.iter().copied().max().unwrap_or(0),
        }
    }
}

impl GroupDataset {
    /// Counts the groups and their rows, and those that `max_rows` leaves out.
    ///
    /// ```
    /// use batchloom::dataset::{GroupOversize, Groups};
    /// use batchloom::{GroupDataset, Tensor};
    ///
    /// let x = Tensor::from_vec((0..4_i64).collect(), &[4])?;
    /// let dataset = GroupDataset::new(Groups::of(&[7, 7, 3, 7])?).rows("x", x)?;
    /// let counts = dataset.max_rows(2, GroupOversize::Truncate).build()?.counts();
    /// assert_eq!((counts.groups, counts.longest, counts.longer, counts.left_out), (2, 3, 1, 1));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn counts(&self) -> GroupCounts {
        group_counts(self.groups(), 0..self.groups().len(), self.sizes().as_slice().iter().copied())
    }
}

impl Groups {
    /// Counts the groups and their rows, and those that are left out if a batch takes at most `max_rows` of each.
    pub fn counts(&self, max_rows: Option<u32>) -> GroupCounts {
        group_counts(self, 0..self.len(), iter::repeat(max_rows.unwrap_or(u32::MAX)))
    }

    /// Counts selected groups in the same way.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the selection is one of another number of groups.
    pub fn counts_of(&self, selection: &Selection, max_rows: Option<u32>) -> Result<GroupCounts> {
        let (groups, expected) = (selection.samples(), self.len() as u64);
        if groups != expected {
            return Err(SelectionCause::Samples { found: groups, expected }.into());
        }
        let numbers = selection.iter().map(|group| usize::try_from(group).unwrap_or(usize::MAX));
        Ok(group_counts(self, numbers, iter::repeat(max_rows.unwrap_or(u32::MAX))))
    }
}

/// Counts some groups, given their numbers and the number of rows that batches take of each.
fn group_counts(
    groups: &Groups,
    numbers: impl ExactSizeIterator<Item = usize>,
    taken: impl Iterator<Item = u32>,
) -> GroupCounts {
    let mut counts =
        GroupCounts { groups: numbers.len() as u64, rows: 0, longest: 0, longer: 0, left_out: 0 };
    for (group, taken) in numbers.zip(taken) {
        let ends = &groups.offsets()[group..group + 2];
        let rows = ends[1].abs_diff(ends[0]);
        let left_out = rows.saturating_sub(u64::from(taken));
        counts.rows += rows;
        counts.longest = counts.longest.max(rows);
        counts.longer += u64::from(left_out > 0);
        counts.left_out += left_out;
    }
    counts
}

impl TokenDataset {
    /// Counts the tokens of the stream, and those that an epoch leaves out. A stream that continues from batch to batch
    /// is divided into `rows` rows: the batch size times the number of ranks. Otherwise `rows` does not matter.
    ///
    /// ```
    /// use batchloom::{Tensor, TokenDataset};
    ///
    /// let dataset = TokenDataset::new(Tensor::from_vec((0..100_i64).collect(), &[100])?, 8)?;
    /// let counts = dataset.counts(1);
    /// assert_eq!((counts.samples, counts.inputs, counts.tail), (12, 96, 4));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn counts(&self, rows: u64) -> TokenCounts {
        let rows = if self.is_continuous() { rows.max(1) } else { 1 };
        let (stream, tokens) = (self.stream_len(), self.token_count());
        let samples = self.steps(rows) * rows;
        let padding = self.padding(rows);
        let inputs = self.inputs(rows);
        TokenCounts {
            tokens,
            documents: self.document_count(),
            separators: stream - tokens,
            samples,
            inputs,
            tail: stream - inputs,
            padding,
        }
    }
}
