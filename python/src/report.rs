//! Rules side by side, as Python shows them. They are documented in batchloom/batching/compare.py.

use batchloom::batching::{CostModel, Rule as EngineRule};
use batchloom::report::{Budget, Comparison as EngineComparison, Histogram, Page};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batching::{GivenSizes, Rule, read_sizes};
use crate::error::raise;
use crate::interpreter::detach;
use crate::plan::dict_of;

/// Rules side by side.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Comparison {
    comparison: EngineComparison,
    histogram: Histogram,
}

/// A rule as text, its statistics, the time of an epoch by the cost model, the share of it that ranks wait, the same share
/// with balance, its work, and the seconds to plan it.
type Compared<'py> = (String, Bound<'py, PyDict>, Option<f64>, f64, Option<f64>, f64, f64);

/// Compares rules on sizes, or the usual rules.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "extracted from Python")]
pub(crate) fn compare(
    py: Python<'_>,
    sizes: GivenSizes<'_>,
    rules: Option<Vec<PyRef<'_, Rule>>>,
    world_size: u32,
    max_tokens: Option<u64>,
    cost: Option<(f64, f64, f64)>,
) -> PyResult<Comparison> {
    let sizes = read_sizes(&sizes)?;
    let rules: Option<Vec<EngineRule>> = rules.map(|rules| rules.iter().map(|rule| rule.0.clone()).collect());
    let compared = || {
        let cost = cost.map(|(fixed, token, pair)| CostModel::new(fixed, token, pair)).transpose()?;
        let rules = match rules {
            Some(rules) => rules,
            None => {
                EngineComparison::usual_rules(&sizes, max_tokens.map_or(Budget::Usual, Budget::Tokens), cost)?
            }
        };
        let comparison = EngineComparison::new(&sizes, &rules, world_size, cost, |_| ())?;
        Ok(Comparison { comparison, histogram: Histogram::new(sizes.as_slice()) })
    };
    detach(py, compared).map_err(|error| raise(&error))
}

#[pymethods]
impl Comparison {
    /// The rules in the order in which they were given.
    fn rules<'py>(&self, py: Python<'py>) -> PyResult<Vec<Compared<'py>>> {
        let rules = self.comparison.rules.iter().map(|entry| {
            let stats = dict_of(py, &entry.stats)?;
            Ok((
                entry.rule.to_string(),
                stats,
                entry.time,
                entry.waiting,
                entry.balanced,
                entry.work(),
                entry.planned.as_secs_f64(),
            ))
        });
        rules.collect()
    }

    /// The place of the best rule.
    fn best(&self) -> usize {
        self.comparison.best
    }

    /// The best rule and the reason.
    fn verdict(&self) -> String {
        self.comparison.verdict()
    }

    /// The table as text.
    fn text(&self) -> String {
        self.comparison.to_string()
    }

    /// The table as HTML.
    fn html(&self) -> String {
        self.comparison.html()
    }

    /// A page with the lengths and the rules, as HTML.
    fn page(&self, title: &str) -> String {
        Page::new(title).histogram(&self.histogram).comparison(&self.comparison).html()
    }
}
