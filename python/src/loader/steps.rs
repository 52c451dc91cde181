//! One epoch by steps, for batches that are views of the data.

use std::sync::{Mutex, MutexGuard, TryLockError};

use batchloom::loader;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::batches::in_use;
use crate::dlpack::Tensor;
use crate::error::{LoaderError, raise};
use crate::plan::numbers;

/// The steps of one epoch. Written about in batchloom/delivery/window_views.py.
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
}

/// The batches of one epoch that Python makes. One thread at a time takes from it; another is told so.
///
/// A batch is counted here, after it is made and with nothing of Python in between, so that an interrupt loses none.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct StepIterator {
    steps: Py<Steps>,
    /// What makes the next batch; none once the iteration has ended.
    make: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl StepIterator {
    #[new]
    fn new(steps: Py<Steps>, make: Py<PyAny>) -> Self {
        Self { steps, make: Mutex::new(Some(make)) }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let (mut guard, steps) = (self.lock()?, &self.steps.get().0);
        let Some(make) = guard.as_ref() else { return Ok(None) };
        if steps.left() == 0 {
            *guard = None;
            steps.end();
            return Ok(None);
        }
        let batch = make.call0(py)?;
        steps.advance();
        Ok(Some(batch))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator of a DataLoader does not pickle. Save the loader's state_dict() and load it where the run is \
             to go on",
        ))
    }

    /// Ends the iteration. Nothing comes any more; batches that were handed over stay valid.
    fn close(&self) -> PyResult<()> {
        *self.lock()? = None;
        self.steps.get().0.close();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Who is taking a batch right now is not garbage.
        let Ok(make) = self.make.try_lock() else { return Ok(()) };
        make.as_ref().map_or(Ok(()), |make| visit.call(make))
    }

    fn __clear__(&self) {
        if let Ok(mut make) = self.make.try_lock() {
            *make = None;
        }
    }
}

impl StepIterator {
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<Py<PyAny>>>> {
        match self.make.try_lock() {
            Ok(make) => Ok(make),
            Err(TryLockError::Poisoned(make)) => Ok(make.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_use()),
        }
    }
}
