//! `BudgetParts`: what packs take of samples that have several sizes.
//!
//! Where samples are cut, what is cut are their elements. The other sizes of a sample stay, and count for each of its
//! parts: each holds what belongs to the whole sample.

use super::pool_budgets::PoolBudgets;
use super::{PoolBatches, to_index};

/// Samples of a pool, whole or in parts.
#[derive(Debug, Default)]
pub(super) struct BudgetParts {
    /// For each part: the place of its sample, its first element, and the number of its elements.
    places: Vec<u32>,
    starts: Vec<u32>,
    pub(super) lengths: Vec<u32>,
    /// The sizes of each part by each budget.
    rows: Vec<u32>,
}

impl BudgetParts {
    /// Parts of samples of these lengths. A sample that exceeds a budget is left out if `drops`, and otherwise cut to the
    /// elements that fit: all of them are in some part if `splits`.
    pub(super) fn cut(lengths: &[u32], budgets: PoolBudgets<'_>, splits: bool, drops: bool) -> Self {
        let facts = budgets.facts;
        let limit = facts.iter().filter(|facts| facts.is_primary).map(|facts| facts.limit).min();
        let most = limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX);
        let mut parts = Self::default();
        for (place, (row, &length)) in (0..).zip(budgets.each().zip(lengths)) {
            if drops && !budgets.fits(row) {
                continue;
            }
            let end = if splits { length.max(1) } else { 1 };
            for start in (0..end).step_by(to_index(most)) {
                let taken = (length - start).min(most);
                parts.places.push(place);
                parts.starts.push(start);
                parts.lengths.push(taken);
                let sizes = facts.iter().zip(row);
                parts.rows.extend(sizes.map(|(facts, &size)| if facts.is_primary { taken } else { size }));
            }
        }
        parts
    }

    /// The sizes of the parts by each budget.
    pub(super) fn budgets<'a>(&'a self, pool: PoolBudgets<'a>) -> PoolBudgets<'a> {
        PoolBudgets { rows: &self.rows, ..pool }
    }

    /// Batches of the parts in an order, which end in the places `ends`.
    pub(super) fn lay_out(&self, order: &[u32], ends: Vec<u32>) -> PoolBatches {
        let of_order = |values: &[u32]| order.iter().map(|&part| values[to_index(part)]).collect();
        let starts =
            if self.starts.iter().any(|&start| start > 0) { of_order(&self.starts) } else { Vec::new() };
        PoolBatches { places: of_order(&self.places), starts, ends, ..PoolBatches::default() }
    }
}
