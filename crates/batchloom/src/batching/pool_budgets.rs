//! `PoolBudgets`: the sizes of the samples of a pool by several budgets.

use std::ops::Range;

/// The facts about one budget that a rule decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetFacts {
    /// The largest sum of the sizes of a batch.
    pub(crate) limit: u64,
    /// True if its sizes are those that samples are sorted by, and cut by where they are cut.
    pub(crate) is_primary: bool,
    /// True if batches pad the field that has these sizes, unless they are concatenations.
    pub(crate) is_padded: bool,
}

/// The sizes of the samples of a pool by each budget.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolBudgets<'a> {
    /// The budgets, in the order of their names.
    pub(crate) facts: &'a [BudgetFacts],
    /// The sizes of each sample by each budget, sample after sample.
    pub(crate) rows: &'a [u32],
}

impl<'a> PoolBudgets<'a> {
    /// The sizes of one sample, by each budget.
    pub(super) fn row(&self, place: usize) -> &'a [u32] {
        &self.rows[place * self.facts.len()..(place + 1) * self.facts.len()]
    }

    /// The sizes of each sample.
    pub(super) fn each(&self) -> impl ExactSizeIterator<Item = &'a [u32]> {
        self.rows.chunks_exact(self.facts.len())
    }

    /// The sizes that samples are sorted by, if a budget counts them.
    pub(crate) fn primary(self) -> Option<Vec<u32>> {
        let column = self.facts.iter().position(|facts| facts.is_primary)?;
        Some(self.each().map(|row| row[column]).collect())
    }

    /// Returns true if a sample of these sizes exceeds no budget alone.
    pub(super) fn fits(&self, row: &[u32]) -> bool {
        self.facts.iter().zip(row).all(|(facts, &size)| u64::from(size) <= facts.limit)
    }

    /// The samples of a part of the pool.
    pub(crate) fn part(self, range: &Range<usize>) -> Self {
        let columns = self.facts.len();
        Self { rows: &self.rows[range.start * columns..range.end * columns], ..self }
    }

    /// The sizes of the samples at some places.
    pub(super) fn gather(&self, places: &[u32]) -> Vec<u32> {
        places.iter().flat_map(|&place| self.row(super::to_index(place))).copied().collect()
    }
}
