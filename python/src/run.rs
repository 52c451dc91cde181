//! The place in a run, for samplers; their batches are lists of samples.

use std::sync::{Mutex, MutexGuard, PoisonError};

use batchloom::run;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raise;
use crate::interpreter::detach;
use crate::plan::Plan;
use crate::state::{read_state, write_state};

/// The place in a run, on one rank. It is documented in crates/batchloom/src/run/run.rs.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Run(Mutex<batchloom::Run>);

#[pymethods]
impl Run {
    /// The run that begins with a plan, on the rank of that plan.
    #[new]
    fn new(plan: &Plan) -> PyResult<Self> {
        let run = batchloom::Run::new(plan.plan.clone(), plan.rank);
        run.map(|run| Self(Mutex::new(run))).map_err(|error| raise(&error))
    }

    /// The plan of an epoch, or of the one that begins next.
    fn plan(&self, epoch: Option<u64>) -> Plan {
        let run = lock(&self.0);
        let plan = epoch.map_or_else(|| run.upcoming(), |epoch| run.plan(epoch));
        Plan { plan, rank: run.rank() }
    }

    /// The plan of the epoch under way, or else of the one that begins next.
    fn current(&self) -> Plan {
        let run = lock(&self.0);
        Plan { plan: run.current(), rank: run.rank() }
    }

    /// Returns true if the next iteration is the rest of an epoch.
    #[getter]
    fn is_rest(&self) -> bool {
        lock(&self.0).is_rest()
    }

    /// The number of batches that the latest iteration has handed over.
    #[getter]
    fn handed_over(&self) -> u64 {
        lock(&self.0).handed_over()
    }

    fn set_epoch(&self, epoch: u64) {
        lock(&self.0).set_epoch(epoch);
    }

    /// Serves another rank from the next epoch on.
    fn serve(&self, py: Python<'_>, rank: u32, world_size: u32) -> PyResult<()> {
        detach(py, || lock(&self.0).serve(rank, world_size)).map_err(|error| raise(&error))
    }

    /// Begins the next epoch.
    fn begin(&self, py: Python<'_>) -> PyResult<Iteration> {
        let begin = || {
            let mut run = lock(&self.0);
            run.upcoming().require_memory().map(|()| run.begin())
        };
        let iteration = detach(py, begin).map_err(|error| raise(&error))?;
        Ok(Iteration(Mutex::new(iteration)))
    }

    /// The state of the run, or of the run after only some batches of the latest iteration.
    #[pyo3(signature = (batches=None))]
    fn state<'py>(&self, py: Python<'py>, batches: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
        let state = || {
            let run = lock(&self.0);
            batches.map_or_else(|| Ok(run.state()), |batches| run.state_after(batches))
        };
        write_state(py, &detach(py, state).map_err(|error| raise(&error))?)
    }

    /// Continues where a state was taken.
    fn load(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let (py, state) = (state.py(), read_state(state)?);
        detach(py, || lock(&self.0).load(&state)).map_err(|error| raise(&error))
    }
}

/// The batches of one epoch, as lists of samples, each counted as it is handed over.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Iteration(Mutex<run::Iteration>);

#[pymethods]
impl Iteration {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<u64>>> {
        detach(py, || lock(&self.0).next()).transpose().map_err(|error| raise(&error))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
