//! Samples that Python makes on demand, in threads of the engine or in other processes.
//!
//! A thread of the engine enters Python once for several samples. What it borrowed there is freed when some thread
//! is in Python again: to enter it for that alone would wait for whichever thread is in it.

use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchloom::DType;
use batchloom::dataset::{
    FilledPart, Held, MapDataset, Objects, OnError, ReadPart, ReadRequest, Reader, Refusal, Sample,
    SampleLayout, SampleStructure, SourceError, Stop, sample_key,
};
use batchloom::error::{Cause, Error, ReadError};
use batchloom::loader::{ReadSamples, Region, SlotPlace, SlotTarget};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Dataset;
use super::items::ItemChunks;
use super::processes::{ABSENT, Line, MemoryPlace, Processes, Request};
use super::slots::{SlotPlan, Slots};
use super::visit::{add_sizes, visit_python};
use crate::batching::GivenSizes;
use crate::dlpack::{Tensor, take_over};
use crate::error::{DTypeError, LoaderError, raise};
use crate::interpreter::enter;

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

/// Reads samples with an object of Python: of batchloom/dataset/map/reader.py, or for other processes, of
/// batchloom/dataset/map/processes.py.
struct PythonReader {
    object: Arc<Py<PyAny>>,
    /// The processes that make samples, and hold them; `None` if they are made here.
    processes: Option<Arc<Py<Processes>>>,
    /// True if a function makes whole batches of samples.
    whole: bool,
    /// True if items are read many at a time.
    together: bool,
    /// The structure that was seen last, as an object of Python and of the engine.
    seen: Mutex<Option<(Py<PyAny>, SampleStructure)>>,
    /// The layout that was expected last, and the plan for its slots.
    planned: Mutex<Option<(SampleLayout, Py<SlotPlan>)>>,
    /// Samples that no batch needs any more.
    done: Arc<Mutex<Vec<Held>>>,
}

/// The structure of a sample, and its arrays.
type Arrays<'py> = (Bound<'py, PyAny>, Vec<PyRef<'py, Tensor>>);

/// The outcome for each sample, if not all are as they should be, and the objects of samples by their tickets.
type Outcomes<'py> = (Option<Vec<Bound<'py, PyAny>>>, Option<Py<PyAny>>);

/// The structure of a sample, and the types and shapes of its arrays.
type Layouts<'py> = (Bound<'py, PyAny>, Vec<(String, Vec<usize>)>);

impl PythonReader {
    /// Runs a function in Python, unless the interpreter ends.
    fn visit<T>(
        &self,
        request: &ReadRequest<'_>,
        read: impl FnOnce(Python<'_>) -> PyResult<T>,
    ) -> batchloom::Result<T> {
        let visited = visit_python(request.clock, |py| {
            // Letting go may let another thread into Python, which may ask for this lock: it is open by then.
            let done = mem::take(&mut *lock(&self.done));
            drop(done);
            read(py)
        });
        visited.map_err(|cause| reading_error(request, cause))
    }

    /// Reads samples here, one after the other.
    fn read_here(&self, py: Python<'_>, request: &ReadRequest<'_>) -> ReadPart {
        let (mut outcomes, mut samples) = (Vec::new(), Vec::new());
        let mut add = |sample: PyResult<Bound<'_, PyAny>>| {
            let (outcome, fields) = match sample.and_then(|sample| self.sample(&sample)) {
                Ok(sample) => (Ok(sample.layout()), sample.into_fields()),
                Err(error) => (Err(cause(error)), Vec::new()),
            };
            outcomes.push(outcome);
            samples.push(fields);
        };
        let stop = StopSign(request.stop.clone());
        let arguments = (request.samples.to_vec(), request.seed, request.epoch, stop);
        let answer = self.object.bind(py).call_method1("attempt", arguments);
        let objects = match answer.and_then(|answer| answer.extract::<Outcomes<'_>>()) {
            Ok((each, objects)) => {
                for each in each.unwrap_or_default() {
                    let is_error = each.cast::<PyBaseException>().is_ok();
                    add(if is_error { Err(PyErr::from_value(each)) } else { Ok(each) });
                }
                objects.map(Objects::new)
            }
            Err(error) => {
                add(Err(error));
                None
            }
        };
        let samples = Arc::new(HeldHere { samples: Some(Held(samples)), done: Arc::clone(&self.done) });
        ReadPart { outcomes, samples, objects }
    }

    /// Lets another process read samples, which holds them.
    fn read_there(
        &self,
        processes: &Arc<Py<Processes>>,
        request: &ReadRequest<'_>,
    ) -> batchloom::Result<ReadPart> {
        let line = processes.get().lend();
        let write = |message: &mut Request<'_>| {
            message.kind(b'R').numbers(&[request.seed, request.epoch]).numbers(request.samples);
            Ok(())
        };
        let answer = processes.get().ask(&line, Some(request.stop), None, write);
        let answer = answer.map_err(|error| reading_error(request, Box::new(error)))?;
        self.visit(request, |py| {
            let (part, (outcomes, objects)): (u64, Outcomes<'_>) =
                self.answer(py, &answer.bytes)?.extract()?;
            let outcome = |object: Bound<'_, PyAny>| match object.cast::<PyBaseException>() {
                Ok(error) => Ok(Err(cause(PyErr::from_value(error.clone().into_any())))),
                Err(_) => self.layout(&object).map(Ok),
            };
            let outcomes = outcomes.unwrap_or_default();
            let outcomes = outcomes.into_iter().map(outcome).collect::<PyResult<_>>()?;
            let (object, processes) = (Arc::clone(&self.object), Arc::clone(processes));
            let samples =
                HeldThere { object, processes, starts: answer.starts, line: Arc::clone(&line), part };
            let objects = objects.map(Objects::new);
            Ok(ReadPart { outcomes, samples: Arc::new(samples), objects })
        })
    }

    /// The object that an answer of a process stands for.
    fn answer<'py>(&self, py: Python<'py>, answer: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.object.bind(py).call_method1("answer", (PyBytes::new(py, answer),))
    }

    fn sample(&self, object: &Bound<'_, PyAny>) -> PyResult<Sample> {
        let (structure, fields): Arrays<'_> = object.extract()?;
        let fields = fields.iter().map(|field| field.0.clone()).collect();
        Ok(Sample::nested(self.structure(&structure)?, fields))
    }

    fn layout(&self, object: &Bound<'_, PyAny>) -> PyResult<SampleLayout> {
        let (structure, fields): Layouts<'_> = object.extract()?;
        let field = |(name, shape): (String, Vec<usize>)| {
            let dtype = DType::named(&name);
            let unknown = || DTypeError::new_err(format!("{name} is no element type"));
            Ok((dtype.ok_or_else(unknown)?, shape))
        };
        let fields = fields.into_iter().map(field).collect::<PyResult<_>>()?;
        Ok(SampleLayout { structure: self.structure(&structure)?, fields })
    }

    /// The structure that an object of Python stands for: mostly the last structure seen.
    fn structure(&self, object: &Bound<'_, PyAny>) -> PyResult<SampleStructure> {
        if let Some((last, structure)) = &*lock(&self.seen)
            && last.is(object)
        {
            return Ok(structure.clone());
        }
        let names: Vec<String> = object.getattr("names")?.extract()?;
        let nesting: String = object.getattr("text")?.extract()?;
        let structure = SampleStructure { names: names.into(), nesting: nesting.into() };
        let before = lock(&self.seen).replace((object.clone().unbind(), structure.clone()));
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

    /// Reads samples into their slots, here.
    fn fill_here(
        &self,
        py: Python<'_>,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        memory: &mut Vec<Region>,
    ) -> PyResult<FilledPart> {
        let plan = self.plan(py, expected)?;
        let stop = StopSign(request.stop.clone());
        let slots = Py::new(py, Slots::of_regions(plan, mem::take(memory)))?;
        let (nesting, numbers) = (&*expected.structure.nesting, request.samples.to_vec());
        let arguments = (slots.clone_ref(py), nesting, numbers, request.seed, request.epoch, stop);
        let answer = self.object.bind(py).call_method1("fill", arguments);
        *memory = slots.get().take();
        self.filled(request, answer?.extract()?)
    }

    /// Lets another process read samples into their slots. That all are there is known without the interpreter.
    fn fill_there(
        &self,
        processes: &Processes,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        memory: &[Region],
    ) -> batchloom::Result<FilledPart> {
        let places: Option<Vec<_>> = memory.iter().map(|region| processes.place(region)).collect();
        let places = places.ok_or_else(|| {
            reading_error(
                request,
                "a block lies in no memory that processes share; please report this".into(),
            )
        })?;
        let write = |message: &mut Request<'_>| {
            message.kind(b'F').layout(expected)?;
            message.numbers(&[request.seed, request.epoch, places.len() as u64]);
            places.iter().try_for_each(|&place| message.place(place))?;
            message.numbers(request.samples);
            Ok(())
        };
        let answer = processes.ask(&processes.lend(), Some(request.stop), None, write);
        match answer.map_err(|error| reading_error(request, Box::new(error)))? {
            answer if answer.bytes.is_empty() => Ok(all_there(request)),
            answer => {
                self.visit(request, |py| self.filled(request, self.answer(py, &answer.bytes)?.extract()?))
            }
        }
    }

    /// The part that an answer of Python stands for: each outcome is `None`, an error, or the layout of another kind of
    /// sample.
    fn filled(&self, request: &ReadRequest<'_>, (each, objects): Outcomes<'_>) -> PyResult<FilledPart> {
        let outcome = |object: Bound<'_, PyAny>| {
            Ok(match object.cast::<PyBaseException>() {
                _ if object.is_none() => Ok(()),
                Ok(error) => Err(Refusal::Failed(cause(PyErr::from_value(error.clone().into_any())))),
                Err(_) => Err(Refusal::Differs(self.layout(&object)?)),
            })
        };
        let filled = all_there(request);
        let outcomes = match each {
            Some(each) => each.into_iter().map(outcome).collect::<PyResult<_>>()?,
            None => filled.outcomes,
        };
        Ok(FilledPart { outcomes, objects: objects.map(Objects::new) })
    }
}

/// The part with all samples in their slots, which hold no objects.
fn all_there(request: &ReadRequest<'_>) -> FilledPart {
    FilledPart { outcomes: request.samples.iter().map(|_| Ok(())).collect(), objects: None }
}

/// The error for a failure that no one sample is to blame for.
fn reading_error(request: &ReadRequest<'_>, cause: SourceError) -> Error {
    let sample = request.samples.first().copied().unwrap_or(0);
    ReadError::Failed { sample, cause: Cause::from(cause) }.into()
}

impl Reader for PythonReader {
    fn read(&self, request: &ReadRequest<'_>) -> batchloom::Result<ReadPart> {
        match &self.processes {
            Some(processes) => self.read_there(processes, request),
            None => self.visit(request, |py| Ok(self.read_here(py, request))),
        }
    }

    fn makes_batches(&self) -> bool {
        self.whole
    }

    fn reads_together(&self) -> bool {
        self.together
    }

    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> batchloom::Result<FilledPart> {
        match &self.processes {
            Some(processes) => self.fill_there(processes.get(), request, expected, slots),
            None => self.visit(request, |py| self.fill_here(py, request, expected, slots)),
        }
    }
}

impl Debug for PythonReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PythonReader")
            .field("remote", &self.processes.is_some())
            .finish_non_exhaustive()
    }
}

fn cause(error: PyErr) -> Cause {
    Cause::from(Box::new(error) as SourceError)
}

/// Samples in memory of Python.
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

/// Samples that another process holds, until this is gone.
struct HeldThere {
    object: Arc<Py<PyAny>>,
    processes: Arc<Py<Processes>>,
    line: Arc<Line>,
    /// The number of times that the process had been started when it read them.
    starts: u64,
    part: u64,
}

impl HeldThere {
    /// Lets the process that holds samples write one field of them into memory that it maps.
    fn write_there(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: MemoryPlace,
    ) -> PyResult<()> {
        let write = |message: &mut Request<'_>| {
            message.kind(b'W').numbers(&[self.part, field as u64, slots.concatenates.into()]);
            message.place(target)?;
            for place in places {
                let sample = place.sample.map_or(ABSENT, |sample| sample as u64);
                let (start, count) = place.part.unwrap_or((usize::MAX, 0));
                message.numbers(&[place.number, sample, start as u64, count as u64]);
            }
            message.text(&slots.writer.to_text());
            Ok(())
        };
        let answer = self.processes.get().ask(&self.line, None, Some(self.starts), write)?;
        if answer.bytes.is_empty() {
            return Ok(());
        }
        enter(|py| {
            let arguments = (PyBytes::new(py, &answer.bytes),);
            self.object.bind(py).call_method1("answer", arguments).map(drop)
        })
    }

    /// Writes one field into memory of this process alone.
    fn write_here(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> PyResult<()> {
        let object = &self.object;
        let lend =
            |py: Python<'_>| take_over(object.bind(py).call_method1("allocate", (target.len(),))?.as_any());
        let mut shared = enter(lend)?;
        let place = self.processes.get().place(shared.as_mut());
        let place = place.ok_or_else(|| LoaderError::new_err("memory was not noted; please report this"))?;
        self.write_there(field, places, slots, place)?;
        target.copy_from_slice(shared.as_mut());
        Ok(())
    }
}

impl Drop for HeldThere {
    fn drop(&mut self) {
        self.line.forget(self.starts, self.part);
    }
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
        let written = match self.processes.get().place(target) {
            Some(place) => self.write_there(field, places, slots, place),
            // What is converted afterwards is written to memory of a thread, which processes do not share.
            None => self.write_here(field, places, slots, target),
        };
        let failed =
            |error: PyErr| ReadError::Slot { field, cause: Cause::from(Box::new(error) as SourceError) };
        Ok(written.map_err(failed)?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A dataset of `samples` samples that `object` makes, in threads of the engine, or in `processes`, of items that may lie
/// in `chunks`.
#[expect(clippy::too_many_arguments, reason = "as Python passes them")]
pub(super) fn on_demand(
    object: Py<PyAny>,
    processes: Option<Py<Processes>>,
    whole: bool,
    together: bool,
    samples: u64,
    own_sizes: Option<&GivenSizes<'_>>,
    variable: Option<Vec<String>>,
    skips: bool,
    chunks: Option<&ItemChunks>,
) -> PyResult<Dataset> {
    let (seen, planned) = (Mutex::default(), Mutex::default());
    let reader = PythonReader {
        object: Arc::new(object),
        processes: processes.map(Arc::new),
        whole,
        together,
        seen,
        planned,
        done: Arc::default(),
    };
    let mut dataset = MapDataset::with_reader(Arc::new(reader), samples);
    if let Some(chunks) = chunks {
        dataset = dataset.of_items(Arc::clone(&chunks.0));
    }
    if let Some(own) = own_sizes {
        dataset = add_sizes(dataset, own)?;
    }
    if let Some(variable) = variable {
        dataset = dataset.variable(variable);
    }
    let dataset = dataset.on_error(if skips { OnError::Skip } else { OnError::Raise });
    dataset.build().map(|dataset| Dataset(dataset.into())).map_err(|error| raise(&error))
}
