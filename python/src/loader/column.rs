//! One field of consecutive batches, on its way to a framework.

use std::iter::repeat_n;

use batchloom::tensor::Layout;
use pyo3::prelude::*;

use crate::dlpack::Tensor;

/// One field of consecutive batches. It is documented in batchloom/collate/schema.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Column {
    /// An array `[batches, ..]` for each run of batches of one shape.
    runs: Vec<batchloom::Tensor>,
    /// The samples of all batches, if they lie one after the other, and the number of samples of each batch.
    joined: Option<(batchloom::Tensor, Vec<usize>)>,
}

#[pymethods]
impl Column {
    /// The name of the elements' type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.runs.first().map_or("", |run| run.dtype().name())
    }

    /// The number of batches.
    fn __len__(&self) -> usize {
        self.runs.iter().filter_map(|run| run.shape().first()).sum()
    }

    /// The tensor `[batches, ..]` of each run.
    #[getter]
    fn runs(&self) -> Vec<Tensor> {
        self.runs.iter().cloned().map(Tensor).collect()
    }

    /// A capsule of the samples of all batches, one after the other, and the number of samples of each batch. `None` if
    /// there is space between them.
    fn split(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, Vec<usize>)>> {
        let Some((samples, lengths)) = &self.joined else { return Ok(None) };
        Ok(Some((Tensor(samples.clone()).capsule(py)?, lengths.clone())))
    }
}

impl Column {
    pub(super) fn new(runs: Vec<batchloom::Tensor>) -> Self {
        Self { joined: join_runs(&runs), runs }
    }

    /// Returns true if a framework can take all batches at once.
    pub(super) fn is_whole(&self) -> bool {
        self.runs.len() == 1 || self.joined.is_some()
    }
}

/// The samples of runs that lie one after the other in one memory, and the number of samples of each batch.
fn join_runs(runs: &[batchloom::Tensor]) -> Option<(batchloom::Tensor, Vec<usize>)> {
    let first = runs.first()?;
    let (dtype, size, inner) = (first.dtype(), first.dtype().size(), first.shape().get(2..)?);
    let mut lengths = Vec::new();
    let mut end = first.layout().offset();
    for run in runs {
        let &[batches, samples, ref shape @ ..] = run.shape() else { return None };
        let follows = run.bytes().as_ptr() == first.bytes().as_ptr() && run.layout().offset() == end;
        if !follows || run.dtype() != dtype || shape != inner || !run.layout().is_compact(size) {
            return None;
        }
        end += run.layout().elements() * size;
        lengths.extend(repeat_n(samples, batches));
    }
    let shape = [&[lengths.iter().sum()], inner].concat();
    let layout = Layout::compact(&shape, size)?;
    let offset = first.layout().offset();
    let samples = batchloom::Tensor::new(first.bytes().clone(), dtype, &shape, layout.strides(), offset);
    Some((samples.ok()?, lengths))
}
