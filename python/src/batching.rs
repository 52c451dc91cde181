//! The rules, as Python makes them.

use batchloom::Error;
use batchloom::batching::{
    CostModel, CostOptimal, FixedSize, LengthBuckets, Listed, Measurement, Packing, PadTo, Pool,
    Rule as EngineRule, Sizes, TokenBudget,
};
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::{ArgumentError, DataError, raise};
use crate::memory::{collected, require};

/// The rule by which samples share a batch. It is documented in batchloom/batching/rules.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Rule(pub(crate) EngineRule);

#[pymethods]
impl Rule {
    /// The rule that a text spells.
    #[staticmethod]
    fn of_text(text: &str) -> PyResult<Self> {
        made(text.parse::<EngineRule>())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    #[staticmethod]
    fn fixed(batch_size: u64) -> PyResult<Self> {
        made(FixedSize::new(batch_size))
    }

    #[staticmethod]
    fn buckets(batch_size: u64, pool: Option<GivenPool>, multiple_of: u32) -> PyResult<Self> {
        let pool = sized(pool)?;
        made(LengthBuckets::new(batch_size).and_then(|rule| rule.pool(pool)?.multiple_of(multiple_of)))
    }

    #[staticmethod]
    fn budget(
        max_tokens: u64,
        count: &str,
        max_length_spread: Option<u32>,
        max_samples: Option<u64>,
        multiple_of: u32,
        oversize: &str,
        pool: Option<GivenPool>,
    ) -> PyResult<Self> {
        let (count, oversize, pool) = (parse(count)?, parse(oversize)?, sized(pool)?);
        made(TokenBudget::new(max_tokens).and_then(|rule| {
            let rule = rule.count(count).oversize(oversize).multiple_of(multiple_of)?.pool(pool)?;
            let rule = max_length_spread.map_or(rule, |spread| rule.max_length_spread(spread));
            max_samples.map_or(Ok(rule), |samples| rule.max_samples(samples))
        }))
    }

    #[staticmethod]
    fn optimal(
        cost: (f64, f64, f64),
        max_tokens: Option<u64>,
        max_samples: Option<u64>,
        multiple_of: u32,
        oversize: &str,
        pool: Option<GivenPool>,
    ) -> PyResult<Self> {
        let (oversize, pool) = (parse(oversize)?, sized(pool)?);
        made(CostModel::new(cost.0, cost.1, cost.2).and_then(|cost| {
            let rule = CostOptimal::new(cost).oversize(oversize).multiple_of(multiple_of)?.pool(pool)?;
            let rule = max_tokens.map_or(Ok(rule), |tokens| rule.max_tokens(tokens))?;
            max_samples.map_or(Ok(rule), |samples| rule.max_samples(samples))
        }))
    }

    #[staticmethod]
    fn packing(
        max_tokens: u64,
        max_samples: Option<u32>,
        oversize: &str,
        pool: Option<GivenPool>,
        order: &str,
    ) -> PyResult<Self> {
        let (oversize, order, pool) = (parse(oversize)?, parse(order)?, sized(pool)?);
        made(Packing::new(max_tokens).and_then(|rule| {
            let rule = rule.oversize(oversize).order(order).pool(pool)?;
            max_samples.map_or(Ok(rule), |samples| rule.max_samples(samples))
        }))
    }

    /// Batches of `samples`, each of which ends where `ends` says: arrays of uint32.
    #[staticmethod]
    fn listed(samples: &Tensor, ends: &Tensor) -> PyResult<Self> {
        made(Listed::new(sizes(samples)?, sizes(ends)?))
    }

    /// A name for batches that are given, and the number of samples in each of them, if all hold as many but the last.
    fn listed_facts(&self) -> PyResult<(String, Option<u64>)> {
        self.lists().map(|lists| (lists.digest(), lists.batch_size()))
    }
}

impl Rule {
    /// The lists, if batches are given.
    pub(crate) fn lists(&self) -> PyResult<Listed> {
        match &self.0 {
            EngineRule::Listed(lists) => Ok(lists.clone()),
            _ => Err(ArgumentError::new_err("the rule forms batches; expected lists of samples")),
        }
    }
}

/// The size of a pool as Python gives it.
#[derive(FromPyObject)]
enum GivenPool {
    Number(u64),
    Name(String),
}

/// The size of a pool; the default one for `None`.
fn sized(pool: Option<GivenPool>) -> PyResult<Pool> {
    match pool {
        None => Ok(Pool::Auto),
        Some(GivenPool::Number(count)) => Ok(Pool::Of(count)),
        Some(GivenPool::Name(name)) => parse(&name),
    }
}

fn made<R: Into<EngineRule>>(rule: batchloom::Result<R>) -> PyResult<Rule> {
    rule.map(|rule| Rule(rule.into())).map_err(|error| raise(&error))
}

/// Coefficients of a cost model: of a batch, of an element, of a pair of elements.
type Coefficients = (f64, f64, f64);

/// Checks that measurements of these shapes, samples and length, determine a cost model.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "extracted from a sequence of Python")]
pub(crate) fn check_shapes(shapes: Vec<(u64, u64)>) -> PyResult<()> {
    CostModel::check_shapes(&shapes).map_err(|error| raise(&error))
}

/// Fits a cost model to the seconds that batches took: its coefficients, the median and the largest relative error.
#[pyfunction]
pub(crate) fn fit_cost(shapes: Vec<(u64, u64)>, seconds: Vec<f64>) -> PyResult<(Coefficients, f64, f64)> {
    let measurements: Vec<_> = shapes
        .into_iter()
        .zip(seconds)
        .map(|((samples, length), seconds)| Measurement { samples, length, seconds })
        .collect();
    let fit = CostModel::fit(&measurements).map_err(|error| raise(&error))?;
    Ok(((fit.model.fixed(), fit.model.per_token(), fit.model.per_pair()), fit.error, fit.worst))
}

/// The median of the seconds that several runs took; `timed` runs once and returns them.
#[pyfunction]
pub(crate) fn measure(samples: u64, length: u64, timed: &Bound<'_, PyAny>) -> PyResult<f64> {
    Measurement::of(samples, length, || timed.call0()?.extract()).map(|found| found.seconds)
}

/// The shapes that are measured unless others are given.
#[pyfunction]
pub(crate) fn calibration_shapes() -> Vec<(u64, u64)> {
    CostModel::shapes()
}

/// The policy with this name.
pub(crate) fn parse<T: std::str::FromStr<Err = Error>>(name: &str) -> PyResult<T> {
    name.parse().map_err(|error| raise(&error))
}

/// The lengths that batches are padded to, and the treatment of samples that are longer.
pub(crate) fn padded_to(given: Option<(Vec<u32>, String)>) -> PyResult<Option<PadTo>> {
    let Some((lengths, truncate)) = given else { return Ok(None) };
    let pad_to = PadTo::new(lengths).map_err(|error| raise(&error))?;
    Ok(Some(pad_to.truncate(parse(&truncate)?)))
}

/// Sizes from an array of uint32.
pub(crate) fn sizes(sizes: &Tensor) -> PyResult<&[u32]> {
    sizes.0.as_slice::<u32>().ok_or_else(|| DataError::new_err("sizes are not a compact array of uint32"))
}

/// The sizes of an array of uint32, if one is given, for a plan.
pub(crate) fn known(given: Option<&Tensor>) -> PyResult<Option<Sizes>> {
    let Some(given) = given else { return Ok(None) };
    match given.0.shape() {
        &[_, dimensions] => Sizes::with_extents(collected(sizes(given)?.iter().copied())?, dimensions),
        _ => {
            let given = sizes(given)?;
            require::<u32>(given.len())?;
            Ok(Sizes::new(given))
        }
    }
    .map(Some)
    .map_err(|error| raise(&error))
}
