//! One epoch by steps, for batches that are views of the data.

use batchloom::loader;
use pyo3::prelude::*;

use crate::error::{LoaderError, raise};
use crate::exchange::Tensor;
use crate::plan::numbers;

/// The steps of one epoch. Written about in batchloom/views.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Steps(pub(crate) loader::Steps);

#[pymethods]
impl Steps {
    /// How many are left.
    fn left(&self) -> u64 {
        self.0.left()
    }

    /// The samples of the batch `ahead` steps after the next one, as start and end; none where they are no neighbours.
    fn run(&self, ahead: u64) -> PyResult<Option<(u64, u64)>> {
        let run = self.0.run(ahead).map_err(|error| raise(&error))?;
        Ok(run.map(|run| (run.start, run.end)))
    }

    /// The samples of the next batch, as int64.
    fn indices(&self) -> PyResult<Tensor> {
        numbers(&self.0.indices().map_err(|error| raise(&error))?)
    }

    /// The next batch, formed now: a tensor a field.
    fn form(&self, py: Python<'_>) -> PyResult<Vec<Tensor>> {
        let block = py.detach(|| self.0.form()).map_err(|error| raise(&error))?;
        let batch = block
            .batches()
            .next()
            .ok_or_else(|| LoaderError::new_err("a batch was formed and is not there"))?;
        Ok(batch.fields().iter().cloned().map(Tensor).collect())
    }

    /// Counts the next batch as handed over.
    fn advance(&self) {
        self.0.advance();
    }

    /// Says that there is no more.
    fn end(&self) {
        self.0.end();
    }

    /// Says that nobody takes batches any more.
    fn close(&self) {
        self.0.close();
    }
}
