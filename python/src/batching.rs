//! The rules, which Python makes from their text, or from lists.

use batchloom::Error;
use batchloom::batching::{
    Cost, CostModel, Listed, Measurement, PadTo, Rule as EngineRule, Sizes, Transformer,
};
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::{ArgumentError, DataError, raise};
use crate::memory::{collect, require};

/// The rule that decides which samples share a batch. It is documented in batchloom/batching/rules.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Rule(pub(crate) EngineRule);

#[pymethods]
impl Rule {
    /// The rule that a text spells.
    #[staticmethod]
    fn of_text(text: &str) -> PyResult<Self> {
        wrap(text.parse::<EngineRule>())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// Batches of `samples`; batch `k` ends before position `ends[k]`: arrays of uint32.
    #[staticmethod]
    fn listed(samples: &Tensor, ends: &Tensor) -> PyResult<Self> {
        wrap(Listed::new(sizes(samples)?, sizes(ends)?))
    }

    /// A name for batches that are given, and the number of samples in each, if only the last may hold fewer.
    fn listed_facts(&self) -> PyResult<(String, Option<u64>)> {
        self.lists().map(|lists| (lists.digest(), lists.batch_size()))
    }
}

impl Rule {
    /// The lists, if batches are given.
    pub(crate) fn lists(&self) -> PyResult<Listed> {
        let formed = || ArgumentError::new_err("the rule makes batches; expected lists of samples");
        self.0.listed().cloned().ok_or_else(formed)
    }
}

fn wrap<R: Into<EngineRule>>(rule: batchloom::Result<R>) -> PyResult<Rule> {
    rule.map(|rule| Rule(rule.into())).map_err(|error| raise(&error))
}

/// Coefficients of a cost model: of a batch, of an element, of a pair of elements.
pub(crate) type Coefficients = (f64, f64, f64);

/// The cost by a model with these coefficients; elements without them.
pub(crate) fn read_cost(given: Option<Coefficients>) -> PyResult<Cost> {
    let model = given.map(|(fixed, token, pair)| CostModel::new(fixed, token, pair)).transpose();
    let model = model.map_err(|error| raise(&error))?;
    Ok(model.map_or(Cost::Elements, Cost::Model))
}

/// The coefficients of the model by which a cost is counted, if there is one.
pub(crate) fn write_cost(cost: &Cost) -> Option<Coefficients> {
    match cost {
        Cost::Model(model) => Some((model.fixed(), model.per_token(), model.per_pair())),
        _ => None,
    }
}

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

/// The least seconds that several runs of each shape took, samples and length; `timed` runs one once and returns them.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "extracted from a sequence of Python")]
pub(crate) fn measure(shapes: Vec<(u64, u64)>, timed: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    let measured =
        Measurement::of_shapes(&shapes, |samples, length| timed.call1((samples, length))?.extract());
    Ok(measured?.into_iter().map(|measurement| measurement.seconds).collect())
}

/// The shapes that are measured by default.
#[pyfunction]
pub(crate) fn calibration_shapes() -> Vec<(u64, u64)> {
    CostModel::shapes()
}

/// The cost of an element, and of a pair of elements, of a transformer: its operations. It is documented at
/// `CostModel.of` in batchloom/batching/cost_model.py.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the shape of a transformer has as many numbers")]
pub(crate) fn transformer_cost(
    hidden_size: u64,
    layers: u64,
    intermediate_size: Option<u64>,
    gated: bool,
    heads: (u64, u64),
    head_dim: Option<u64>,
    experts_per_token: u64,
    vocab_size: u64,
    causal: bool,
) -> PyResult<(f64, f64)> {
    let shape = || {
        let shape = Transformer::new(hidden_size, layers)?.heads(heads.0, heads.1)?;
        let shape = intermediate_size.map_or(Ok(shape), |size| shape.intermediate_size(size))?;
        let shape = head_dim.map_or(Ok(shape), |head_dim| shape.head_dim(head_dim))?;
        shape.experts_per_token(experts_per_token)
    };
    let shape: Transformer = shape().map_err(|error| raise(&error))?;
    let cost = CostModel::of(&shape.gated(gated).vocab_size(vocab_size).causal(causal));
    Ok((cost.per_token(), cost.per_pair()))
}

/// The policy with this name.
pub(crate) fn parse<T: std::str::FromStr<Err = Error>>(name: &str) -> PyResult<T> {
    name.parse().map_err(|error| raise(&error))
}

/// The lengths that batches are padded to, and the treatment of samples that are longer.
pub(crate) fn read_pad_to(given: Option<(Vec<u32>, String)>) -> PyResult<Option<PadTo>> {
    let Some((lengths, truncate)) = given else { return Ok(None) };
    let pad_to = PadTo::new(lengths).map_err(|error| raise(&error))?;
    Ok(Some(pad_to.truncate(parse(&truncate)?)))
}

/// Sizes from an array of uint32.
pub(crate) fn sizes(sizes: &Tensor) -> PyResult<&[u32]> {
    sizes.0.as_slice::<u32>().ok_or_else(|| DataError::new_err("sizes are not a compact array of uint32"))
}

/// Sizes of samples with names: arrays of uint32, or `None` for the sizes that rules sort by; and whether batches pad
/// what they count.
pub(crate) type SizeColumns<'py> = Vec<(String, Option<PyRef<'py, Tensor>>, bool)>;

/// The sizes that rules sort by, as an array of uint32, and those with names.
pub(crate) type GivenSizes<'py> = (PyRef<'py, Tensor>, SizeColumns<'py>);

/// Sizes of samples as Python reads them: see [`GivenSizes`].
pub(crate) type WrittenSizes = (Tensor, Vec<(String, Option<Tensor>, bool)>);

/// The sizes with names of a dataset or a plan, for Python.
pub(crate) fn write_columns(sizes: &Sizes) -> PyResult<Vec<(String, Option<Tensor>, bool)>> {
    let column = |(name, values, is_padded): (&str, Option<&[u32]>, bool)| {
        Ok((name.to_owned(), values.map(Tensor::of_numbers).transpose()?, is_padded))
    };
    sizes.columns().map(column).collect()
}

/// Sizes of samples, for a plan.
pub(crate) fn read_sizes(given: &GivenSizes<'_>) -> PyResult<Sizes> {
    let (first, columns) = given;
    let mut named = read_first(first)?;
    for (name, values, is_padded) in columns {
        let values = values.as_ref().map(|values| collect(sizes(values)?.iter().copied())).transpose()?;
        let added = match values {
            None => named.named(name),
            Some(values) if *is_padded => named.with_lengths(name, values),
            Some(values) => named.with(name, values),
        };
        named = added.map_err(|error| raise(&error))?;
    }
    Ok(named)
}

/// The sizes that rules sort by.
fn read_first(given: &Tensor) -> PyResult<Sizes> {
    match given.0.shape() {
        &[_, dimensions] => Sizes::with_extents(collect(sizes(given)?.iter().copied())?, dimensions),
        _ => {
            let given = sizes(given)?;
            require::<u32>(given.len())?;
            Ok(Sizes::new(given))
        }
    }
    .map_err(|error| raise(&error))
}
