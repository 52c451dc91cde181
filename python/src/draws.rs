//! The samples that an epoch draws, from Python and back.

use batchloom::draws::{History, Mix, SourceWindow, Weights, WrittenWeights};
use batchloom::order::Chunks;
use batchloom::plan::PlanOptions;
use pyo3::prelude::*;

use crate::batching::{parse, sizes};
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::memory::collect;

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

/// The samples of each source, and the weights over a run as plain values.
type Sources = (Vec<u64>, Vec<WrittenWeights>);

/// Draws written down: their number; the units of weights, as int64; sources and their weights, the end of an epoch,
/// the measure; the samples in the order of sources, as uint32; the names of sources; and their windows over chunks.
type Written = (
    Option<u64>,
    Option<Tensor>,
    Option<Sources>,
    &'static str,
    Option<(String, Tensor)>,
    Option<Tensor>,
    Option<Vec<String>>,
    Option<Windows>,
);

/// The sizes of the chunks of each source, and how many are mixed at a time; `None` for a source without chunks.
type Windows = Vec<Option<(Vec<u64>, u64)>>;

#[pymethods]
impl Draws {
    /// `num_samples` draws, by weights in an array of float64, or in passes.
    #[staticmethod]
    fn weighted(py: Python<'_>, num_samples: Option<u64>, weights: Option<&Tensor>) -> PyResult<Self> {
        let weights = match weights {
            None => None,
            Some(weights) => {
                let weights = weights.0.as_slice::<f64>();
                let weights =
                    weights.ok_or_else(|| DataError::new_err("weights are no compact array of float64"))?;
                Some(detach(py, || Weights::new(weights)).map_err(|error| raise(&error))?)
            }
        };
        Ok(Self { num_samples, weights, mix: None })
    }

    /// Draws from sources of `counts` samples by `weights`, and by new weights from some amounts on.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "arguments of one constructor")]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from lists of Python")]
    fn mixed(
        py: Python<'_>,
        counts: Vec<u64>,
        weights: Vec<f64>,
        schedule: Vec<(u64, Vec<f64>)>,
        when_exhausted: &str,
        num_samples: Option<u64>,
        measure: Option<Measure<'_>>,
        names: Vec<String>,
    ) -> PyResult<Self> {
        let mix = Mix::new(&counts, &weights)
            .and_then(|mix| mix.named(&names))
            .and_then(|mix| mix.schedule(&schedule));
        let mix = mix.map_err(|error| raise(&error))?.when_exhausted(parse(when_exhausted)?);
        Ok(Self { num_samples, weights: None, mix: Some(apply_measure(py, mix, measure)?) })
    }

    /// Equally many draws of each class; an array of int64 has the class of each sample.
    #[staticmethod]
    fn balanced(py: Python<'_>, classes: &Tensor, num_samples: Option<u64>) -> PyResult<Self> {
        let classes = classes.0.as_slice::<i64>();
        let classes = classes.ok_or_else(|| DataError::new_err("classes are no compact array of int64"))?;
        let mix = detach(py, || Mix::balanced(classes)).map_err(|error| raise(&error))?;
        Ok(Self { num_samples, weights: None, mix: Some(mix) })
    }

    /// Draws that were written down.
    #[staticmethod]
    #[pyo3(signature = (num_samples, units, sources, when_exhausted, measure, members, names, windows=None))]
    #[expect(clippy::too_many_arguments, reason = "arguments of one constructor")]
    fn restored(
        py: Python<'_>,
        num_samples: Option<u64>,
        units: Option<&Tensor>,
        sources: Option<Sources>,
        when_exhausted: &str,
        measure: Option<Measure<'_>>,
        members: Option<&Tensor>,
        names: Option<Vec<String>>,
        windows: Option<Windows>,
    ) -> PyResult<Self> {
        let Some(sources) = sources else {
            let no_units = || DataError::new_err("units are no compact array of int64");
            let units = units.map(|units| units.0.as_slice::<i64>().ok_or_else(no_units)).transpose()?;
            let unsigned = |units: &[i64]| collect(units.iter().map(|unit| unit.cast_unsigned()));
            let units = units.map(unsigned).transpose()?;
            let weights = units.map(Weights::of_units).transpose().map_err(|error| raise(&error))?;
            return Ok(Self { num_samples, weights, mix: None });
        };
        let (counts, weights) = sources;
        let history = History::try_from(weights).map_err(DataError::new_err)?;
        let members = members.map(|members| sizes(members).map(<[u32]>::to_vec)).transpose()?;
        let restored = || {
            // Any weights do until their history is set.
            let some: Vec<f64> = counts.iter().map(|&count| f64::from(u8::from(count > 0))).collect();
            let mix = Mix::new(&counts, &some)?.with_history(history)?;
            let mix = names.map_or(Ok(mix.clone()), |names| mix.named(&names))?;
            let mix = members.map_or(Ok(mix.clone()), |members| mix.with_members(members))?;
            windows.map_or(Ok(mix.clone()), |windows| mix.in_chunks(read_windows(windows)))
        };
        let mix = restored().map_err(|error| raise(&error))?.when_exhausted(parse(when_exhausted)?);
        Ok(Self { num_samples, weights: None, mix: Some(apply_measure(py, mix, measure)?) })
    }

    /// The arguments of [`restored`](Self::restored).
    fn written(&self) -> PyResult<Written> {
        let units = self.weights.as_ref().map(|weights| Tensor::of_indices(weights.units())).transpose()?;
        let Some(mix) = &self.mix else {
            return Ok((self.num_samples, units, None, "stop", None, None, None, None));
        };
        let (exhausted, measure, members) = mix.parts();
        let measure = measure
            .map(|(by, sizes)| Tensor::of_numbers(sizes).map(|sizes| (by.to_owned(), sizes)))
            .transpose()?;
        let members = members.map(Tensor::of_numbers).transpose()?;
        Ok((
            self.num_samples,
            units,
            Some((mix.counts(), mix.history().clone().into())),
            exhausted.name(),
            measure,
            members,
            mix.names().map(<[String]>::to_vec),
            mix.windows().map(write_windows),
        ))
    }
}

/// The windows of sources as plain values.
fn write_windows(windows: &[Option<SourceWindow>]) -> Windows {
    let write = |window: &SourceWindow| (window.chunks.sizes().collect(), window.open);
    windows.iter().map(|window| window.as_ref().map(write)).collect()
}

/// The windows of sources that were written down.
fn read_windows(windows: Windows) -> Vec<Option<SourceWindow>> {
    let read = |(sizes, open): (Vec<u64>, u64)| SourceWindow { chunks: Chunks::new(sizes), open };
    windows.into_iter().map(|window| window.map(read)).collect()
}

/// Sources that take turns by a measure, if there is one.
fn apply_measure(py: Python<'_>, mix: Mix, measure: Option<Measure<'_>>) -> PyResult<Mix> {
    let Some((by, sizes_of)) = measure else { return Ok(mix) };
    let sizes = collect(sizes(&sizes_of)?.iter().copied())?;
    detach(py, || mix.measured(&by, sizes)).map_err(|error| raise(&error))
}

impl Draws {
    /// The draws of a plan, or `None` if an epoch is every sample once.
    pub(crate) fn of(options: &PlanOptions) -> Option<Self> {
        let PlanOptions { num_samples, weights, mix, .. } = options;
        let is_any = num_samples.is_some() || weights.is_some() || mix.is_some();
        is_any.then(|| Self { num_samples: *num_samples, weights: weights.clone(), mix: mix.clone() })
    }

    /// Sets the draws among the options of a plan.
    pub(crate) fn set(&self, options: &mut PlanOptions) {
        let Self { num_samples, weights, mix } = self.clone();
        (options.num_samples, options.weights, options.mix) = (num_samples, weights, mix);
    }
}
