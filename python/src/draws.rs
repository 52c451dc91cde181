//! The samples that an epoch draws, from Python and back.

use batchloom::draws::{Mix, Weights};
use batchloom::loader::LoaderBuilder;
use batchloom::plan::PlanBuilder;
use pyo3::prelude::*;

use crate::batching::{parse, sizes};
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};

/// The samples of an epoch, where it is not every sample once: by weights, in another number, or from several sources.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    num_samples: Option<u64>,
    weights: Option<Weights>,
    mix: Option<Mix>,
}

/// A measure of turns: its name, and its size for each sample, as uint32.
type Measure<'py> = (String, PyRef<'py, Tensor>);

/// Draws written down: their number; the units of weights, as int64; samples and weight of each source, the end of an
/// epoch, the measure, and the samples in the order of sources, as uint32.
type Written = (
    Option<u64>,
    Option<Tensor>,
    Option<Vec<(u64, u32)>>,
    &'static str,
    Option<(String, Tensor)>,
    Option<Tensor>,
);

#[pymethods]
impl Draws {
    /// As many draws as `num_samples` says, by weights in an array of float64, or in passes.
    #[staticmethod]
    fn weighted(py: Python<'_>, num_samples: Option<u64>, weights: Option<&Tensor>) -> PyResult<Self> {
        let weights = match weights {
            None => None,
            Some(weights) => {
                let weights = weights.0.as_slice::<f64>();
                let weights =
                    weights.ok_or_else(|| DataError::new_err("weights are no compact array of float64"))?;
                Some(py.detach(|| Weights::new(weights)).map_err(|error| raise(&error))?)
            }
        };
        Ok(Self { num_samples, weights, mix: None })
    }

    /// Draws from sources of `counts` samples by `weights`.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from lists of Python")]
    fn mixed(
        py: Python<'_>,
        counts: Vec<u64>,
        weights: Vec<f64>,
        when_exhausted: &str,
        num_samples: Option<u64>,
        measure: Option<Measure<'_>>,
    ) -> PyResult<Self> {
        let mix = Mix::new(&counts, &weights).map_err(|error| raise(&error))?;
        let mut mix = mix.when_exhausted(parse(when_exhausted)?);
        if let Some((by, sizes_of)) = measure {
            let sizes = sizes(&sizes_of)?.to_vec();
            mix = py.detach(|| mix.measured(&by, sizes)).map_err(|error| raise(&error))?;
        }
        Ok(Self { num_samples, weights: None, mix: Some(mix) })
    }

    /// As many draws of each class, of which an array of int64 tells that of each sample.
    #[staticmethod]
    fn balanced(py: Python<'_>, classes: &Tensor, num_samples: Option<u64>) -> PyResult<Self> {
        let classes = classes.0.as_slice::<i64>();
        let classes = classes.ok_or_else(|| DataError::new_err("classes are no compact array of int64"))?;
        let mix = py.detach(|| Mix::balanced(classes)).map_err(|error| raise(&error))?;
        Ok(Self { num_samples: num_samples.or(Some(classes.len() as u64)), weights: None, mix: Some(mix) })
    }

    /// Draws that were written down.
    #[staticmethod]
    fn restored(
        py: Python<'_>,
        num_samples: Option<u64>,
        units: Option<&Tensor>,
        sources: Option<Vec<(u64, u32)>>,
        when_exhausted: &str,
        measure: Option<Measure<'_>>,
        members: Option<&Tensor>,
    ) -> PyResult<Self> {
        let Some(sources) = sources else {
            let no_units = || DataError::new_err("units are no compact array of int64");
            let units = units.map(|units| units.0.as_slice::<i64>().ok_or_else(no_units)).transpose()?;
            let units = units.map(|units| units.iter().map(|unit| unit.cast_unsigned()).collect());
            let weights = units.map(Weights::of_units).transpose().map_err(|error| raise(&error))?;
            return Ok(Self { num_samples, weights, mix: None });
        };
        let (counts, weights) = sources.into_iter().map(|(count, weight)| (count, f64::from(weight))).unzip();
        let mut found = Self::mixed(py, counts, weights, when_exhausted, num_samples, measure)?;
        if let Some(members) = members {
            let members = sizes(members)?.to_vec();
            let mix = found.mix.map(|mix| mix.with_members(members)).transpose();
            found.mix = mix.map_err(|error| raise(&error))?;
        }
        Ok(found)
    }

    /// The arguments of [`restored`](Self::restored).
    fn written(&self) -> PyResult<Written> {
        let narrow = |values: &[u32]| {
            let tensor = batchloom::Tensor::from_vec(values.to_vec(), &[values.len()]);
            tensor.map(Tensor).map_err(|error| raise(&error))
        };
        let units = self.weights.as_ref().map(|weights| Tensor::of_indices(weights.units())).transpose()?;
        let Some(mix) = &self.mix else {
            return Ok((self.num_samples, units, None, "stop", None, None));
        };
        let (exhausted, measure, members) = mix.parts();
        let measure =
            measure.map(|(by, sizes)| narrow(sizes).map(|sizes| (by.to_owned(), sizes))).transpose()?;
        let members = members.map(narrow).transpose()?;
        Ok((self.num_samples, units, Some(mix.sources()), exhausted.name(), measure, members))
    }
}

impl Draws {
    /// The draws of a plan, or `None` if an epoch is every sample once.
    pub(crate) fn of(plan: &batchloom::Plan) -> Option<Self> {
        let (num_samples, weights, mix) = (plan.num_samples(), plan.weights().cloned(), plan.mix().cloned());
        (num_samples.is_some() || weights.is_some() || mix.is_some()).then_some(Self {
            num_samples,
            weights,
            mix,
        })
    }

    pub(crate) fn planned(&self, builder: PlanBuilder) -> PlanBuilder {
        let Self { num_samples, weights, mix } = self.clone();
        builder.num_samples(num_samples).weights(weights).mix(mix)
    }

    pub(crate) fn loaded(&self, builder: LoaderBuilder) -> LoaderBuilder {
        let Self { num_samples, weights, mix } = self.clone();
        builder.num_samples(num_samples).weights(weights).mix(mix)
    }
}
