//! `Budgeted`: the sizes of all samples by the budgets of a rule.
//!
//! Names are looked up once, when a plan is made. From then on, the sizes of a sample by all budgets lie side by side,
//! so that a pool takes one look at memory for each of its samples.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::BatchingCause;
use super::pool_budgets::{BudgetFacts, PoolBudgets};
use super::{Budgets, Sizes};
use crate::{Result, memory};

/// The sizes of all samples by each budget of a rule, in the order of the names.
#[derive(Clone)]
pub(crate) struct Budgeted {
    budgets: Budgets,
    facts: Arc<[BudgetFacts]>,
    rows: Arc<[u32]>,
    digest: u128,
}

crate::brief::debug_in_brief!(Budgeted, [budgets, facts], [rows]);

impl Budgeted {
    /// Looks up the sizes of each budget.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if samples have no sizes of a name; [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn new(budgets: &Budgets, sizes: &Sizes) -> Result<Self> {
        let (samples, columns) = (sizes.as_slice().len(), budgets.len());
        memory::require_each(samples, 2 * columns * size_of::<u32>())?;
        let (mut rows, mut facts) = (vec![0_u32; samples * columns], Vec::new());
        let mut digests: Vec<u128> = Vec::new();
        for (column, (name, limit)) in budgets.iter().enumerate() {
            let Some(named) = sizes.find(name) else {
                let known = sizes.names().map(|name| format!("{name:?}")).collect::<Vec<_>>();
                return Err(BatchingCause::NoSizesOfBudget { name: name.to_owned(), known }.into());
            };
            let values = named.values(sizes.as_slice());
            for (row, &value) in rows.chunks_exact_mut(columns).zip(values) {
                row[column] = value;
            }
            let is_primary = named.values.is_none();
            let of_values = if is_primary { 0 } else { xxh3_128(bytemuck::cast_slice(values)) };
            digests.extend([xxh3_128(name.as_bytes()), u128::from(named.is_padded), of_values]);
            facts.push(BudgetFacts { limit, is_primary, is_padded: named.is_padded });
        }
        let digest = xxh3_128(bytemuck::cast_slice(&digests));
        Ok(Self { budgets: budgets.clone(), facts: facts.into(), rows: rows.into(), digest })
    }

    /// The names and the limits.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The facts about each budget.
    pub(crate) fn facts(&self) -> &[BudgetFacts] {
        &self.facts
    }

    /// The bytes that the sizes of a sample take.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.facts.len() * size_of::<u32>()
    }

    /// The sizes of one sample by each budget.
    pub(crate) fn row(&self, sample: u64) -> &[u32] {
        let (sample, columns) = (usize::try_from(sample).unwrap_or(usize::MAX), self.facts.len());
        &self.rows[sample * columns..(sample + 1) * columns]
    }

    /// All samples, in stored order.
    pub(crate) fn stored(&self) -> PoolBudgets<'_> {
        PoolBudgets { facts: &self.facts, rows: &self.rows }
    }

    /// The sizes of some samples, one sample after the other.
    pub(crate) fn gather(&self, samples: &[u64]) -> Vec<u32> {
        let mut rows = Vec::with_capacity(samples.len() * self.facts.len());
        samples.iter().for_each(|&sample| rows.extend_from_slice(self.row(sample)));
        rows
    }

    /// A pool of samples with these sizes.
    pub(crate) fn pool<'a>(&'a self, rows: &'a [u32]) -> PoolBudgets<'a> {
        PoolBudgets { facts: &self.facts, rows }
    }

    /// Checks that no sample exceeds a budget alone, but for those that are cut where `cuts` is true. `counted` is what a
    /// budget counts of a size.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the first such sample.
    pub(super) fn check(&self, cuts: bool, counted: impl Fn(&BudgetFacts, u32) -> u64) -> Result<()> {
        let columns = self.facts.len();
        let is_over = |facts: &BudgetFacts, size: u32| {
            !(cuts && facts.is_primary) && counted(facts, size) > facts.limit
        };
        let over = self.rows.chunks_exact(columns).enumerate().find_map(|(sample, row)| {
            self.facts.iter().zip(row).position(|(facts, &size)| is_over(facts, size)).map(|at| (sample, at))
        });
        let Some((sample, column)) = over else { return Ok(()) };
        let (name, limit) = self.budgets.iter().nth(column).unwrap_or_default();
        Err(BatchingCause::OverBudget {
            sample: sample as u64,
            budget: name.to_owned(),
            size: self.row(sample as u64)[column],
            counted: counted(&self.facts[column], self.row(sample as u64)[column]),
            limit,
            cuts,
        }
        .into())
    }
}

impl Serialize for Budgeted {
    /// Writes a digest, for fingerprints: names and limits are part of the rule.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.digest))
    }
}

/// The number of samples of mean size that fill a budget; `None` if samples have no sizes of a name, or if these are 0.
pub(super) fn samples_that_fill(budgets: &Budgets, sizes: &Sizes) -> Option<u64> {
    let fill = |(name, limit): (&str, u64)| {
        let total: u64 = sizes.find(name)?.values(sizes.as_slice()).iter().map(|&size| u64::from(size)).sum();
        let fill = (u128::from(limit) * u128::from(sizes.len())).div_ceil(u128::from(total.max(1)));
        Some(u64::try_from(fill).unwrap_or(u64::MAX))
    };
    budgets.iter().filter_map(fill).min()
}
