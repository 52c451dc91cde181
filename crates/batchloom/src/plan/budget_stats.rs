//! `BudgetStats`: how full the batches of a plan are by each of several budgets.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::parts::Parts;
use super::recipe::Recipe;
use crate::batching::Budgeted;

/// The contents of batches by several budgets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BudgetStats {
    /// The budgets, in the order of their names.
    #[serde(serialize_with = "as_map")]
    pub budgets: Vec<BudgetFill>,
    /// The budget that batches fill most.
    pub binding: String,
    /// The share of that budget that batches fill.
    pub binding_fill: f64,
    /// The number of batches that the same samples need at least, whatever shares a batch: the bound of linear
    /// programming, the largest sum of sizes by its budget, rounded up. Padding does not count.
    pub lp_bound: u64,
}

/// The contents of batches by one budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BudgetFill {
    /// The name of the budget.
    #[serde(skip)]
    pub name: String,
    /// The sizes of the samples delivered, with padding where the budget counts it.
    pub sum: u64,
    /// The share of the budgets of all batches that the sum is.
    pub fill: f64,
}

fn as_map<S: Serializer>(budgets: &[BudgetFill], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(budgets.len()))?;
    budgets.iter().try_for_each(|budget| map.serialize_entry(&budget.name, budget))?;
    map.end()
}

/// Sums of the sizes of batches by each budget.
#[derive(Default)]
pub(super) struct BudgetSums {
    /// The sizes as budgets count them, and without padding.
    counted: Vec<u64>,
    real: Vec<u64>,
}

impl BudgetSums {
    /// Adds a batch: all of its places, and those that hold data.
    pub(super) fn add(&mut self, recipe: &Recipe, places: &Parts, data: &Parts) {
        let Some(budgeted) = &recipe.budgeted else { return };
        let pads = !recipe.packs() && !recipe.options.rule.counts_real();
        let facts = budgeted.facts();
        self.counted.resize(facts.len(), 0);
        self.real.resize(facts.len(), 0);
        for (place, facts) in facts.iter().enumerate() {
            let sizes = |parts: &Parts| sizes_by(budgeted, parts, place);
            let real: u64 = sizes(data).into_iter().map(u64::from).sum();
            self.real[place] += real;
            self.counted[place] += match pads && facts.is_padded {
                false => real,
                true => {
                    let longest = sizes(places).into_iter().max().unwrap_or(0);
                    let longest = match facts.is_primary {
                        true => recipe.rounding().up(longest),
                        false => {
                            u64::from(longest).next_multiple_of(recipe.options.rule.multiple_of().into())
                        }
                    };
                    longest.saturating_mul(places.samples.len() as u64)
                }
            };
        }
    }

    /// The statistics of `batches`.
    pub(super) fn finish(self, recipe: &Recipe, batches: u64) -> Option<BudgetStats> {
        let budgets = recipe.budgeted.as_ref()?.budgets();
        let fill = |((name, limit), &sum): ((&str, u64), &u64)| {
            let room = limit as f64 * batches as f64;
            let fill = if room > 0.0 { sum as f64 / room } else { 0.0 };
            BudgetFill { name: name.to_owned(), sum, fill }
        };
        let lp_bound = budgets.iter().zip(&self.real).map(|((_, limit), sum)| sum.div_ceil(limit)).max();
        let budgets: Vec<BudgetFill> = budgets.iter().zip(&self.counted).map(fill).collect();
        let first_fullest = budgets.iter().rev().max_by(|a, b| a.fill.total_cmp(&b.fill));
        let (binding, binding_fill) =
            first_fullest.map_or_else(Default::default, |budget| (budget.name.clone(), budget.fill));
        Some(BudgetStats { budgets, binding, binding_fill, lp_bound: lp_bound.unwrap_or(0) })
    }
}

/// The size of each part by the budget in place `place`.
fn sizes_by(budgeted: &Budgeted, parts: &Parts, place: usize) -> Vec<u32> {
    match budgeted.facts()[place].is_primary {
        true => parts.sizes.clone(),
        false => parts.samples.iter().map(|&sample| budgeted.row(sample)[place]).collect(),
    }
}
