//! Samples that Python makes on demand, in threads of the engine or in other processes.
//!
//! A thread of the engine enters Python once for several samples. What it borrowed there is let go of when some thread
//! is in Python again: to enter it for that alone would wait for whichever thread is in it.

use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchloom::DType;
use batchloom::dataset::{
    Held, MapDataset, OnError, ReadPart, ReadRequest, Reader, Refusal, Sample, SampleLayout, SampleStructure,
    SourceError, Stop, sample_key,
};
use batchloom::error::{Cause, Error, ReadError};
use batchloom::loader::{ReadSamples, Region, SlotPlace, SlotTarget};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use super::Dataset;
use super::slots::{SlotPlan, Slots};
use crate::batching::sizes;
use crate::dlpack::{Tensor, copied};
use crate::error::{DTypeError, LoaderError, raise};
use crate::interpreter::Visit;

/// The numbers that a generator for one sample starts from.
#[pyfunction]
#[pyo3(name = "sample_key")]
pub(crate) fn key_of_sample(seed: u64, epoch: u64, sample: u64) -> [u64; 2] {
    sample_key(seed, epoch, sample)
}

/// The sign that samples are of no use any more.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct StopSign(Stop);

#[pymethods]
impl StopSign {
    fn __bool__(&self) -> bool {
        self.0.is_set()
    }
}

/// Reads samples with an object of Python. It is documented in batchloom/dataset/sample_reader.py, and for other processes
/// in batchloom/dataset/sample_processes.py.
struct PythonReader {
    object: Arc<Py<PyAny>>,
    /// True if samples are made, and held, in other processes.
    remote: bool,
    /// True if a function makes whole batches of samples.
    whole: bool,
    /// The structure that was seen last, as an object of Python and of the engine.
    seen: Mutex<Option<(Py<PyAny>, SampleStructure)>>,
    /// The layout that was expected last, and the plan for its slots.
    planned: Mutex<Option<(SampleLayout, Py<SlotPlan>)>>,
    /// Samples that no batch needs any more.
    done: Arc<Mutex<Vec<Held>>>,
}

/// The structure of a sample, and its arrays.
type Arrays<'py> = (Bound<'py, PyAny>, Vec<PyRef<'py, Tensor>>);

/// The structure of a sample, and the types and shapes of its arrays.
type Layouts<'py> = (Bound<'py, PyAny>, Vec<(String, Vec<usize>)>);

impl PythonReader {
    /// Runs a function in Python, unless the interpreter ends.
    fn visit<T>(
        &self,
        request: &ReadRequest<'_>,
        read: impl FnOnce(Python<'_>) -> PyResult<T>,
    ) -> batchloom::Result<T> {
        let sample = request.samples.first().copied().unwrap_or(0);
        let failed =
            |cause: SourceError| Error::from(ReadError::Failed { sample, cause: Cause::from(cause) });
        let visit = Visit::begin();
        let visited = visit.and_then(|_visit| {
            Python::try_attach(|py| {
                // Letting go may let another thread into Python, which may ask for this lock: it is open by then.
                let done = mem::take(&mut *lock(&self.done));
                drop(done);
                read(py).map_err(|error| failed(Box::new(error)))
            })
        });
        visited.unwrap_or_else(|| Err(failed("the interpreter is ending".into())))
    }

    /// Reads samples here, one after the other.
    fn read_here(&self, py: Python<'_>, request: &ReadRequest<'_>) -> ReadPart {
        let (mut outcomes, mut samples) = (Vec::new(), Vec::new());
        let mut add = |found: PyResult<Bound<'_, PyAny>>| {
            let (outcome, fields) = match found.and_then(|found| self.sample(&found)) {
                Ok(sample) => (Ok(sample.layout()), sample.into_fields()),
                Err(error) => (Err(cause(error)), Vec::new()),
            };
            outcomes.push(outcome);
            samples.push(fields);
        };
        let object = self.object.bind(py);
        if self.whole {
            let stop = StopSign(request.stop.clone());
            add(object.call_method1("batch", (request.samples.to_vec(), request.seed, request.epoch, stop)));
        }
        for &number in request.samples.iter().filter(|_| !self.whole) {
            if request.stop.is_set() {
                break;
            }
            add(object.call1((number, request.seed, request.epoch)));
        }
        let samples = Arc::new(HeldHere { samples: Some(Held(samples)), done: Arc::clone(&self.done) });
        ReadPart { outcomes, samples }
    }

    /// Lets another process read samples, which holds them.
    fn read_there(&self, py: Python<'_>, request: &ReadRequest<'_>) -> PyResult<ReadPart> {
        let stop = StopSign(request.stop.clone());
        let arguments = (request.samples.to_vec(), request.seed, request.epoch, stop);
        let read = self.object.bind(py).call_method1("read", arguments)?;
        let (handle, found): (Py<PyAny>, Vec<Bound<'_, PyAny>>) = read.extract()?;
        let outcome = |found: Bound<'_, PyAny>| match found.cast::<PyBaseException>() {
            Ok(error) => Ok(Err(cause(PyErr::from_value(error.clone().into_any())))),
            Err(_) => self.layout(&found).map(Ok),
        };
        let outcomes = found.into_iter().map(outcome).collect::<PyResult<_>>()?;
        let samples = Arc::new(HeldThere { object: Arc::clone(&self.object), handle });
        Ok(ReadPart { outcomes, samples })
    }

    fn sample(&self, found: &Bound<'_, PyAny>) -> PyResult<Sample> {
        let (structure, fields): Arrays<'_> = found.extract()?;
        let fields = fields.iter().map(|field| field.0.clone()).collect();
        Ok(Sample::nested(self.structure(&structure)?, fields))
    }

    fn layout(&self, found: &Bound<'_, PyAny>) -> PyResult<SampleLayout> {
        let (structure, fields): Layouts<'_> = found.extract()?;
        let field = |(name, shape): (String, Vec<usize>)| {
            let dtype = DType::named(&name);
            let unknown = || DTypeError::new_err(format!("{name} is no element type"));
            Ok((dtype.ok_or_else(unknown)?, shape))
        };
        let fields = fields.into_iter().map(field).collect::<PyResult<_>>()?;
        Ok(SampleLayout { structure: self.structure(&structure)?, fields })
    }

    /// The structure that an object of Python stands for: mostly the one that was seen last.
    fn structure(&self, found: &Bound<'_, PyAny>) -> PyResult<SampleStructure> {
        if let Some((last, structure)) = &*lock(&self.seen)
            && last.is(found)
        {
            return Ok(structure.clone());
        }
        let names: Vec<String> = found.getattr("names")?.extract()?;
        let nesting: String = found.getattr("text")?.extract()?;
        let structure = SampleStructure { names: names.into(), nesting: nesting.into() };
        let before = lock(&self.seen).replace((found.clone().unbind(), structure.clone()));
        drop(before);
        Ok(structure)
    }

    /// The plan for the slots of samples of a layout.
    fn plan(&self, py: Python<'_>, expected: &SampleLayout) -> PyResult<Py<SlotPlan>> {
        if let Some((known, plan)) = &*lock(&self.planned)
            && known == expected
        {
            return Ok(plan.clone_ref(py));
        }
        let structure = self.object.bind(py).call_method1("structure", (&*expected.structure.nesting,))?;
        let plan = SlotPlan::of(py, &structure, expected)?;
        let before = lock(&self.planned).replace((expected.clone(), plan.clone_ref(py)));
        drop(before);
        Ok(plan)
    }

    /// Reads samples into their slots.
    fn fill(
        &self,
        py: Python<'_>,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        memory: &mut Vec<Region>,
    ) -> PyResult<Vec<Result<(), Refusal>>> {
        let plan = self.plan(py, expected)?;
        let stop = StopSign(request.stop.clone());
        let numbers = request.samples.to_vec();
        let object = self.object.bind(py);
        let found: Option<Vec<Bound<'_, PyAny>>> = if self.remote {
            let places: Vec<_> =
                memory.iter().map(|region| (region.as_ptr() as usize, region.len())).collect();
            let nesting = &*expected.structure.nesting;
            let arguments =
                (plan.get().fields(), nesting, numbers, request.seed, request.epoch, places, stop);
            object.call_method1("fill", arguments)?.extract()?
        } else {
            let slots = Py::new(py, Slots::own(plan, mem::take(memory)))?;
            let nesting = &*expected.structure.nesting;
            let arguments = (slots.clone_ref(py), nesting, numbers, request.seed, request.epoch, stop);
            let found = object.call_method1("fill", arguments);
            *memory = slots.get().take();
            found?.extract()?
        };
        let outcome = |found: Bound<'_, PyAny>| {
            Ok(match found.cast::<PyBaseException>() {
                _ if found.is_none() => Ok(()),
                Ok(error) => Err(Refusal::Failed(cause(PyErr::from_value(error.clone().into_any())))),
                Err(_) => Err(Refusal::Differs(self.layout(&found)?)),
            })
        };
        found.map_or_else(
            || Ok(request.samples.iter().map(|_| Ok(())).collect()),
            |found| found.into_iter().map(outcome).collect(),
        )
    }
}

impl Reader for PythonReader {
    fn read(&self, request: &ReadRequest<'_>) -> batchloom::Result<ReadPart> {
        self.visit(request, |py| match self.remote {
            true => self.read_there(py, request),
            false => Ok(self.read_here(py, request)),
        })
    }

    fn makes_batches(&self) -> bool {
        self.whole
    }

    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> batchloom::Result<Vec<Result<(), Refusal>>> {
        self.visit(request, |py| self.fill(py, request, expected, slots))
    }
}

impl Debug for PythonReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PythonReader").field("remote", &self.remote).finish_non_exhaustive()
    }
}

fn cause(error: PyErr) -> Cause {
    Cause::from(Box::new(error) as SourceError)
}

/// Samples whose memory is Python's.
#[derive(Debug)]
struct HeldHere {
    samples: Option<Held>,
    done: Arc<Mutex<Vec<Held>>>,
}

impl ReadSamples for HeldHere {
    fn write(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> batchloom::Result<()> {
        self.samples.iter().try_for_each(|samples| samples.write(field, places, slots, target))
    }
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        lock(&self.done).extend(self.samples.take());
    }
}

/// Samples that another process holds.
struct HeldThere {
    object: Arc<Py<PyAny>>,
    /// Lets the process forget them when it is gone.
    handle: Py<PyAny>,
}

impl Debug for HeldThere {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HeldThere")
    }
}

impl ReadSamples for HeldThere {
    fn write(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> batchloom::Result<()> {
        if target.is_empty() {
            return Ok(());
        }
        let writer = slots.writer.to_text();
        let places: Vec<_> = places.iter().map(|place| (place.number, place.sample, place.part)).collect();
        let memory = (target.as_mut_ptr() as usize, target.len());
        let write = |py: Python<'_>| -> PyResult<()> {
            let arguments = (&self.handle, field, places, writer, slots.concatenates, memory);
            let written = self.object.bind(py).call_method1("write", arguments)?;
            let length = target.len();
            if !written.is_none() && !copied(py, &written, DType::U8, &[length], target) {
                return Err(LoaderError::new_err(
                    "a process wrote slots of another size; please report this",
                ));
            }
            Ok(())
        };
        let failed = |cause: SourceError| Error::from(ReadError::Slot { field, cause: Cause::from(cause) });
        let visit = Visit::begin();
        let written = visit
            .and_then(|_visit| Python::try_attach(|py| write(py).map_err(|error| failed(Box::new(error)))));
        written.unwrap_or_else(|| Err(failed("the interpreter is ending".into())))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A dataset of `samples` samples that `object` makes, in threads of the engine or in other processes.
pub(super) fn on_demand(
    object: Py<PyAny>,
    remote: bool,
    whole: bool,
    samples: u64,
    own_sizes: Option<&Tensor>,
    variable: Option<Vec<String>>,
    skips: bool,
) -> PyResult<Dataset> {
    let (seen, planned) = (Mutex::default(), Mutex::default());
    let reader =
        PythonReader { object: Arc::new(object), remote, whole, seen, planned, done: Arc::default() };
    let mut dataset = MapDataset::with_reader(Arc::new(reader), samples);
    if let Some(own) = own_sizes {
        dataset = dataset.sizes(sizes(own)?.to_vec());
    }
    if let Some(variable) = variable {
        dataset = dataset.variable(variable);
    }
    let dataset = dataset.on_error(if skips { OnError::Skip } else { OnError::Raise });
    dataset.build().map(|dataset| Dataset(dataset.into())).map_err(|error| raise(&error))
}
