//! One epoch by steps, for batches that are views of the data.

use std::sync::{Mutex, MutexGuard, TryLockError};

use batchloom::loader;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyString};

use super::assembly::Container;
use super::batches::in_use;
use crate::dataset::windows::Windows;
use crate::dlpack::Tensor;
use crate::error::{LoaderError, raise};
use crate::interpreter::detach;

/// The number of batches after which memory maps are looked at.
const RELEASED: u64 = 64;

/// The most batches that are sliced together.
const SLICED: usize = 32;

/// A batch that is one view of series: the row with which its first window begins, the number of its windows, and the rows
/// from one window to the next.
type View = (usize, u64, usize);

/// The steps of one epoch of windows. They are documented in batchloom/delivery/window_views.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Steps {
    pub(super) steps: loader::Steps,
    pub(super) windows: Py<Windows>,
}

#[pymethods]
impl Steps {
    /// The number of steps left.
    fn left(&self) -> PyResult<u64> {
        self.steps.left().map_err(|error| raise(&error))
    }

    /// The view that is the batch `ahead` steps after the next one. `None` if it is not one view of the series, or some
    /// of its samples only fill up.
    fn view(&self, ahead: u64) -> PyResult<Option<View>> {
        let Some(run) = self.steps.run(ahead).map_err(|error| raise(&error))? else { return Ok(None) };
        let (windows, samples) = (self.windows.get(), run.end - run.start);
        let view = |row, every: usize| (row, samples, windows.stride() * every);
        let Some((rows, pieces)) = self.steps.continued_rows().map_err(|error| raise(&error))? else {
            return Ok(windows.row(run.start, run.end)?.map(|row| view(row, 1)));
        };
        // The pieces of a batch are neighbours by number, and lie a row apart.
        if run.is_empty() || run.start / rows != (run.end - 1) / rows {
            return Ok(None);
        }
        let first = run.start % rows * pieces + run.start / rows;
        Ok(windows.row(first, first + 1)?.map(|row| view(row, usize::try_from(pieces).unwrap_or(usize::MAX))))
    }

    /// The samples of the next batch, as int64, -1 where a place only fills up.
    fn index(&self) -> PyResult<Tensor> {
        let index = self.steps.index().map_err(|error| raise(&error))?;
        let len = index.len();
        batchloom::Tensor::from_vec(index, &[len]).map(Tensor).map_err(|error| raise(&error))
    }

    /// The samples of the next batch, as int64.
    fn indices(&self) -> PyResult<Tensor> {
        Tensor::of_indices(&self.steps.indices().map_err(|error| raise(&error))?)
    }

    /// Makes the next batch now, with a tensor for each field.
    fn form(&self, py: Python<'_>) -> PyResult<Vec<Tensor>> {
        let block = detach(py, || self.steps.form()).map_err(|error| raise(&error))?;
        let batch = block
            .batches()
            .next()
            .ok_or_else(|| LoaderError::new_err("a batch was formed and is not there"))?;
        Ok(batch.fields().iter().cloned().map(Tensor).collect())
    }
}

/// The batches of one epoch that Python makes. One thread at a time takes from it; a second one gets an error.
///
/// A batch is counted here, after it is made and with no call of Python in between, so that an interrupt loses no
/// batch.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct StepIterator {
    steps: Py<Steps>,
    container: Container,
    /// The maker of batches, or `None` once the iteration has ended.
    callables: Mutex<Option<Callables>>,
}

#[derive(Debug)]
struct Callables {
    /// A function to call before the epoch begins, until it has been.
    begin: Option<Py<PyAny>>,
    /// A function that makes the arrays of the next batch, from the view that it is, if it is one.
    make: Py<PyAny>,
    /// The arrays of all rows, of which the arrays of a batch that is one view are slices, if they are no more than that.
    templates: Templates,
    /// A function to call now and then, that lets go of what memory maps have read.
    release: Py<PyAny>,
    /// The number of batches made.
    made: u64,
    /// A function that makes a batch ready as it is handed over, if batches need that.
    deliver: Option<Py<PyAny>>,
}

impl Callables {
    /// The arrays of the next batch, given the view that it is, if it is one.
    fn arrays(&mut self, py: Python<'_>, view: Option<View>, steps: &Steps) -> PyResult<Vec<Py<PyAny>>> {
        self.made += 1;
        if self.made.is_multiple_of(RELEASED) {
            self.release.call0(py)?;
        }
        if let Some(view) = view
            && let Some(arrays) = self.templates.slice(py, view, steps)?
        {
            return Ok(arrays);
        }
        self.make.call1(py, (view,))?.extract(py)
    }
}

/// Arrays with the windows of all rows, which are made when the first batch is sliced from them.
///
/// A framework slices many batches at once in about half the time. So where two batches followed each other, the batches
/// that follow them at the same distance are sliced together.
#[derive(Debug)]
struct Templates {
    /// A function that makes them, each with a function that slices several batches. `None` without templates.
    make: Option<Py<PyAny>>,
    made: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// The last batch that was sliced.
    last: Option<View>,
    ahead: Ahead,
}

/// Batches that were sliced together.
#[derive(Debug, Default)]
struct Ahead {
    /// The batches of each template.
    batches: Vec<Py<PyAny>>,
    /// The first of them that was not handed over, and the number of all.
    next: usize,
    count: usize,
    /// The view of the next one, and the rows from one batch to the next.
    view: View,
    distance: usize,
}

impl Templates {
    /// The slices for a batch that is one view, the next one of `steps`. `None` if there are no templates.
    fn slice(&mut self, py: Python<'_>, view: View, steps: &Steps) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let Some(make) = &self.make else { return Ok(None) };
        if self.made.is_empty() {
            self.made = make.call0(py)?.extract(py)?;
        }
        if self.ahead.count == self.ahead.next
            && let Some(distance) = self.last.and_then(|last| distance(last, view))
        {
            self.slice_ahead(py, view, distance, steps)?;
        }
        self.last = Some(view);
        if let Some(arrays) = self.ahead.take(py, view)? {
            return Ok(Some(arrays));
        }
        let (row, samples, stride) = view;
        let end = row + usize::try_from(samples)?.saturating_sub(1) * stride + 1;
        let range = PySlice::new(py, row.cast_signed(), end.cast_signed(), stride.cast_signed());
        let slice = |(template, _): &(Py<PyAny>, _)| template.bind(py).get_item(&range).map(Bound::unbind);
        self.made.iter().map(slice).collect::<PyResult<_>>().map(Some)
    }

    /// Slices the batches that follow each other at a distance, from the next one of `steps` on.
    fn slice_ahead(&mut self, py: Python<'_>, view: View, rows: usize, steps: &Steps) -> PyResult<()> {
        let (mut count, mut last) = (1, view);
        let most = SLICED.min(usize::try_from(steps.left()?).unwrap_or(SLICED));
        while count < most {
            let Some(next) = steps.view(count as u64)? else { break };
            if distance(last, next) != Some(rows) {
                break;
            }
            (count, last) = (count + 1, next);
        }
        let places = (view.0, view.1, view.2, rows, count);
        let slices = |(template, slices): &(Py<PyAny>, Py<PyAny>)| slices.call1(py, (template, places));
        let batches = self.made.iter().map(slices).collect::<PyResult<_>>()?;
        self.ahead = Ahead { batches, next: 0, count, view, distance: rows };
        Ok(())
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.make)?;
        self.ahead.batches.iter().try_for_each(|batches| visit.call(batches))?;
        self.made.iter().try_for_each(|(template, slices)| {
            visit.call(template)?;
            visit.call(slices)
        })
    }
}

impl Ahead {
    /// The arrays of a batch, if it is the next one that was sliced.
    fn take(&mut self, py: Python<'_>, view: View) -> PyResult<Option<Vec<Py<PyAny>>>> {
        if self.next == self.count || view != self.view {
            return Ok(None);
        }
        let batch = |batches: &Py<PyAny>| batches.bind(py).get_item(self.next).map(Bound::unbind);
        let arrays = self.batches.iter().map(batch).collect::<PyResult<_>>()?;
        self.next += 1;
        self.view.0 += self.distance;
        Ok(Some(arrays))
    }
}

/// The rows from one batch to a later one, if they are alike in all else.
fn distance((row, samples, stride): View, (later, later_samples, later_stride): View) -> Option<usize> {
    ((samples, stride) == (later_samples, later_stride)).then(|| later.checked_sub(row)).flatten()
}

#[pymethods]
impl StepIterator {
    #[new]
    fn new(
        steps: Py<Steps>,
        begin: Py<PyAny>,
        make: Py<PyAny>,
        templates: Option<Py<PyAny>>,
        release: Py<PyAny>,
        keys: Option<Vec<Py<PyString>>>,
        deliver: Option<Py<PyAny>>,
    ) -> Self {
        let templates = Templates { make: templates, made: Vec::new(), last: None, ahead: Ahead::default() };
        let callables = Callables { begin: Some(begin), make, templates, release, made: 0, deliver };
        Self { steps, container: keys.into(), callables: Mutex::new(Some(callables)) }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let (mut guard, steps) = (self.lock()?, self.steps.get());
        let Some(callables) = guard.as_mut() else { return Ok(None) };
        if let Some(begin) = &callables.begin {
            begin.call0(py)?;
            detach(py, || steps.steps.left()).map_err(|error| raise(&error))?;
            callables.begin = None;
        }
        if steps.left()? == 0 {
            *guard = None;
            steps.steps.end();
            return Ok(None);
        }
        let mut batch = self.container.batch(py, callables.arrays(py, steps.view(0)?, steps)?)?;
        if let Some(deliver) = &callables.deliver {
            batch = deliver.call1(py, (batch,))?;
        }
        steps.steps.advance();
        Ok(Some(batch))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator of a DataLoader does not pickle. Save the loader's state_dict() and load it where the run is \
             to go on",
        ))
    }

    /// Ends the iteration. The iterator yields no more; batches that were handed over stay valid.
    fn close(&self) -> PyResult<()> {
        *self.lock()? = None;
        self.steps.get().steps.close();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // An iterator from which a thread is taking a batch is not garbage.
        let Ok(callables) = self.callables.try_lock() else { return Ok(()) };
        let Some(callables) = callables.as_ref() else { return Ok(()) };
        visit.call(&callables.begin)?;
        visit.call(&callables.make)?;
        callables.templates.visit(&visit)?;
        visit.call(&callables.release)?;
        visit.call(&callables.deliver)
    }

    fn __clear__(&self) {
        if let Ok(mut callables) = self.callables.try_lock() {
            *callables = None;
        }
    }
}

impl StepIterator {
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<Callables>>> {
        match self.callables.try_lock() {
            Ok(callables) => Ok(callables),
            Err(TryLockError::Poisoned(callables)) => Ok(callables.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_use()),
        }
    }
}
