//! The iterator over the batches of an epoch.
//!
//! It takes a block from the engine without the interpreter lock, looks for Ctrl-C while it waits, lets the framework
//! split the block into batches a portion at a time, and hands them over one by one: the only work left for each batch
//! is to take the next element of a list. If batches are made on a device, a pipeline begins with the next block while
//! batches of this one are in use.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;
use std::vec::IntoIter;

use batchloom::loader::require_process;
use batchloom::loader::{Block, Blocks, Polled};
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::assembly::{Assembly, LateViews, Pipeline, Portion, ShapeRun};
use super::block::{Block as PyBlock, columns, tables};
use crate::dlpack::Tensor;
use crate::error::{DataError, LoaderError, raise};
use crate::interpreter::{self, detach};

/// The time after which a wait looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

/// The number of batches made of a block at once: enough to spread the cost of a call, few enough to stay in the cache.
const PORTION: usize = 64;

/// The number of times that this process was forked since the module was loaded.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Notes that the process was forked. Python calls it in the child.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    interpreter::forget();
}

/// The batches of one epoch, which begins with the first. One thread at a time takes from it; a second one gets an
/// error.
#[pyclass(frozen, weakref, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Batches {
    inner: Mutex<Inner>,
    /// The generation and the number of the process in which the epoch began.
    began: OnceLock<(u64, u32)>,
}

#[derive(Debug)]
struct Inner {
    /// The blocks, or `None` once the iteration has ended.
    blocks: Option<Blocks>,
    /// The parts of the current block that are not batches yet.
    portions: VecDeque<Portion>,
    /// The next block, if a pipeline has to begin with it, and the result of the pipeline's beginning.
    pending: Option<Block>,
    begun: Option<Py<PyAny>>,
    ready: IntoIter<Py<PyAny>>,
    /// A function to call before the epoch begins, until it has been.
    begin: Option<Py<PyAny>>,
    /// The maker of batches, and the function that checks the data before each block. `None` once collected.
    callables: Option<(Assembly, Py<PyAny>)>,
    skipped: Skipped,
}

/// The samples that could not be read and were left out, with the reasons, of all epochs of a loader.
pub(super) type Skipped = Arc<Mutex<Vec<(u64, String)>>>;

pub(super) fn lock(skipped: &Skipped) -> MutexGuard<'_, Vec<(u64, String)>> {
    skipped.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Batches {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.began.get() {
            Some(&(generation, process)) if generation != GENERATION.load(Ordering::Relaxed) => {
                self.next_in_child(process)
            }
            Some(_) => self.lock()?.next(py),
            None => {
                let mut inner = self.lock()?;
                let batch = inner.next(py);
                if inner.begin.is_none() {
                    self.began.get_or_init(|| (GENERATION.load(Ordering::Relaxed), process::id()));
                }
                batch
            }
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator of a DataLoader does not pickle: it owns threads of its process. Save the loader's state_dict() \
             and load it where the run is to go on",
        ))
    }

    /// Stops the workers and waits for them. The iterator yields no more; batches that were handed over stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.lock()?.close(py);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // An iterator from which a thread is taking a batch is not garbage.
        let Ok(inner) = self.inner.try_lock() else { return Ok(()) };
        if let Some((assembly, check)) = &inner.callables {
            assembly.visit(&visit)?;
            visit.call(check)?;
        }
        visit.call(&inner.begin)?;
        visit.call(&inner.begun)?;
        inner.ready.as_slice().iter().try_for_each(|batch| visit.call(batch))
    }

    fn __clear__(&self) {
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.ready = IntoIter::default();
            inner.begun = None;
            inner.begin = None;
            inner.callables = None;
        }
    }
}

impl Batches {
    pub(super) fn new(
        blocks: Blocks,
        assembly: Assembly,
        begin: Py<PyAny>,
        check: Py<PyAny>,
        skipped: Skipped,
    ) -> Self {
        let (portions, ready) = (VecDeque::new(), IntoIter::default());
        let (blocks, begin, callables) = (Some(blocks), Some(begin), Some((assembly, check)));
        let inner = Inner { blocks, portions, pending: None, begun: None, ready, begin, callables, skipped };
        Self { inner: Mutex::new(inner), began: OnceLock::new() }
    }

    /// Raises in a forked child: the rest of this iterator is in another process, unless it had ended. Its lock may
    /// have been held there at the fork.
    fn next_in_child<T>(&self, started: u32) -> PyResult<Option<T>> {
        match self.inner.try_lock() {
            Ok(inner) if inner.blocks.is_none() => Ok(None),
            _ => require_process(started).map(|()| None).map_err(|error| raise(&error)),
        }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(inner)) => Ok(inner.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_use()),
        }
    }
}

/// The error for a thread that takes from an iterator while another one does.
pub(super) fn in_use() -> PyErr {
    LoaderError::new_err(
        "this iterator is in use: another thread, or a call that this one interrupted, is taking a batch from it; give \
         each thread an iterator of its own, or a lock",
    )
}

impl Inner {
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // A batch that is ready is handed over without a call of Python.
        if self.pipeline().is_none()
            && let Some(batch) = self.ready.next()
        {
            self.advance();
            return Ok(Some(batch));
        }
        interpreter::hold(py, || self.make(py))
    }

    /// Makes the next batches, and hands over the first.
    fn make(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            self.look_ahead(py)?;
            if let Some(batch) = self.deliver(py)? {
                self.advance();
                return Ok(Some(batch));
            }
            if !self.cut(py)? && !self.refill(py)? {
                return Ok(None);
            }
        }
    }

    /// Notes that a batch is handed over.
    fn advance(&self) {
        if let Some(blocks) = &self.blocks {
            blocks.advance();
        }
    }

    /// The next batch that is ready.
    fn deliver(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let deliver = self.pipeline().and_then(|pipeline| pipeline.deliver.as_ref());
        match (deliver, self.ready.as_slice().first()) {
            // Python may raise; the batch is then still there to be asked for.
            (Some(deliver), Some(batch)) => {
                let delivered = deliver.call1(py, (batch,))?;
                self.ready.next();
                Ok(Some(delivered))
            }
            _ => Ok(self.ready.next()),
        }
    }

    /// Makes batches of the next portion. Returns false at the end. Python may raise in the middle, for example
    /// at Ctrl-C; the portion is then still there.
    fn cut(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some((assembly, _)) = &self.callables else { return Ok(false) };
        match assembly {
            Assembly::Device(pipeline, container) => {
                let Some(begun) = &self.begun else { return Ok(false) };
                let columns = pipeline.finish(py, begun)?;
                self.ready = container.batches(py, columns)?.into_iter();
                self.begun = None;
            }
            Assembly::Host(views) | Assembly::Late(LateViews { views: Some(views), .. }) => {
                let Some(portion) = self.portions.front() else { return Ok(false) };
                self.ready = views.get().batches(py, portion)?.into_iter();
                self.portions.pop_front();
            }
            // There was no block yet.
            Assembly::Late(_) => return Ok(false),
        }
        Ok(true)
    }

    /// The pipeline of a device, if batches are made on one.
    fn pipeline(&self) -> Option<&Pipeline> {
        match &self.callables {
            Some((Assembly::Device(pipeline, _), _)) => Some(pipeline),
            _ => None,
        }
    }

    /// Lets a pipeline begin with the next block, if that is ready and no other was begun.
    fn look_ahead(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.begun.is_some() || self.pipeline().is_none() {
            return Ok(());
        }
        if self.pending.is_none() {
            // The interpreter's lock is released, because a worker may wait for it to allocate memory.
            self.pending = self.blocks.as_mut().and_then(|blocks| detach(py, || blocks.ahead()));
        }
        if self.pending.is_some() {
            self.check(py)?;
        }
        if let (Some(block), Some(pipeline)) = (&self.pending, self.pipeline()) {
            self.begun = Some(pipeline.start.call1(py, (PyBlock(block.clone()),))?);
            self.pending = None;
        }
        Ok(())
    }

    /// Takes the next block. Returns false at the end.
    fn refill(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(block) = self.wait(py)? else {
            self.close(py);
            return Ok(false);
        };
        lock(&self.skipped)
            .extend(block.skipped().iter().map(|(sample, cause)| (*sample, cause.to_string())));
        match &self.callables {
            Some((Assembly::Device(..), _)) => self.pending = Some(block),
            Some((Assembly::Late(late), check)) => {
                let (columns, nesting) = (columns(&block), block.nesting());
                if !late.fits(&columns, nesting) {
                    let late = late.remake(py, columns, nesting)?;
                    self.callables = Some((Assembly::Late(late), check.clone_ref(py)));
                }
                self.portions = portions(py, &block);
            }
            _ => self.portions = portions(py, &block),
        }
        Ok(true)
    }

    /// Waits for the next block, looking for Ctrl-C now and then. An exception of Python, such as Ctrl-C, changes
    /// nothing here; an error of the engine ends the iteration and its threads.
    fn wait(&mut self, py: Python<'_>) -> PyResult<Option<Block>> {
        if self.blocks.is_some() {
            self.check(py)?;
            if let Some(begin) = &self.begin {
                begin.call0(py)?;
                self.begin = None;
            }
        }
        while let Some(blocks) = self.blocks.as_mut() {
            match detach(py, || blocks.poll(PATIENCE)) {
                Ok(Polled::Block(block)) => return Ok(Some(block)),
                Ok(Polled::Pending) => py.check_signals()?,
                Ok(Polled::End) => break,
                Err(error) => {
                    self.close(py);
                    return Err(raise(&error));
                }
            }
        }
        Ok(None)
    }

    /// Checks the data. If it is not as it was, the iteration ends.
    fn check(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some((_, check)) = &self.callables else { return Ok(()) };
        let checked = check.call0(py);
        if checked.as_ref().is_err_and(|error| error.is_instance_of::<DataError>(py)) {
            self.close(py);
        }
        checked.map(drop)
    }

    fn close(&mut self, py: Python<'_>) {
        self.ready = IntoIter::default();
        self.portions.clear();
        (self.pending, self.begun, self.begin) = (None, None, None);
        if let Some(mut blocks) = self.blocks.take() {
            detach(py, || blocks.close());
        }
        // The maker of batches may hold memory of a device.
        self.callables = None;
    }
}

impl Drop for Inner {
    /// Waits for the workers, as `close` does, and lets other threads run meanwhile. An interpreter that has waited for
    /// them in vain ends without them.
    fn drop(&mut self) {
        let Some(mut blocks) = self.blocks.take() else { return };
        if interpreter::is_left_behind() {
            let _left_behind = ManuallyDrop::new(blocks);
            return;
        }
        if Python::try_attach(|py| detach(py, || blocks.close())).is_none() {
            blocks.close();
        }
    }
}

/// Divides a block into portions of at most [`PORTION`] batches.
fn portions(py: Python<'_>, block: &Block) -> VecDeque<Portion> {
    let objects = tables(py, block);
    let mut portions = VecDeque::from([Portion::new()]);
    let mut room = PORTION;
    for run in block.runs() {
        let mut start = 0;
        while start < run.len() {
            if room == 0 {
                portions.push_back(Portion::new());
                room = PORTION;
            }
            let range = start..(start + room).min(run.len());
            start = range.end;
            room -= range.len();
            let slices = run.fields().iter().filter_map(|field| field.slice(range.clone()));
            let run = ShapeRun {
                fields: slices.map(Tensor).collect(),
                longest: run.longest(),
                objects: Arc::clone(&objects),
            };
            if let Some(portion) = portions.back_mut() {
                portion.push(run);
            }
        }
    }
    portions.retain(|portion| !portion.is_empty());
    portions
}
