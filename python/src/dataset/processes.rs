//! Requests to the processes that read samples, and their answers.
//!
//! A thread of the engine sends a request to a process without the interpreter: to wait for that takes as long as
//! several samples of a fast function. Python starts processes, sends them layouts and memory, and reports how they
//! ended: see batchloom/dataset/map/processes.py, and batchloom/dataset/map/worker.py for the other end. Promises:
//!
//! - A process has one request at a time. A thread that finds no process free starts one, until there are enough.
//! - A process that ended between two requests is started anew with the next, unless that is about samples it held.
//! - A wait ends when the process ends, and soon after the iteration has stopped, whatever the function does.
//! - A forked child starts new processes, and touches no lock that another thread may have held.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use batchloom::DType;
use batchloom::dataset::{SampleLayout, Stop};
use pyo3::prelude::*;

use crate::error::{LoaderError, SampleError};
use crate::interpreter::enter;

/// The time after which a wait looks whether the iteration has stopped, and whether the process is there.
const PATIENCE: Duration = Duration::from_millis(50);

/// The time that a function may go on when its samples are of no use any more.
const GRACE: Duration = Duration::from_secs(5);

/// The bytes before a message with its length, as `multiprocessing` counts them.
const HEADER: usize = 4;

/// The number that stands for no sample in a request, or no element.
pub(super) const ABSENT: u64 = u64::MAX;

/// The processes of one loader.
#[pyclass(frozen, module = "batchloom._native")]
pub(crate) struct Processes {
    /// Makes the object of Python that starts one.
    make: Py<PyAny>,
    count: usize,
    own: Own,
}

/// The processes that one process has started. A forked child starts new ones.
struct Own {
    process: u32,
    free: Mutex<Free>,
    returned: Condvar,
    /// The memory that processes may map: the size and the number of each segment, by address.
    segments: Mutex<BTreeMap<usize, (usize, u64)>>,
    forked: OnceLock<Box<Self>>,
}

/// Processes that are free, and the number of those that may be added.
struct Free {
    lines: Vec<Arc<Line>>,
    left: usize,
}

impl Own {
    fn new(count: usize) -> Self {
        let free = Mutex::new(Free { lines: Vec::new(), left: count });
        let (returned, segments) = (Condvar::new(), Mutex::default());
        Self { process: process::id(), free, returned, segments, forked: OnceLock::new() }
    }
}

#[pymethods]
impl Processes {
    #[new]
    fn new(make: Py<PyAny>, count: usize) -> Self {
        Self { make, count, own: Own::new(count) }
    }

    /// Notes memory that processes may map.
    fn add_segment(&self, number: u64, address: usize, size: usize) {
        lock(&self.own().segments).insert(address, (size, number));
    }

    /// Forgets memory that is gone.
    fn remove_segment(&self, number: u64, address: usize) {
        let mut segments = lock(&self.own().segments);
        if segments.get(&address).is_some_and(|&(_, known)| known == number) {
            segments.remove(&address);
        }
    }
}

impl Processes {
    fn own(&self) -> &Own {
        let mut own = &self.own;
        while own.process != process::id() {
            own = own.forked.get_or_init(|| Box::new(Own::new(self.count)));
        }
        own
    }

    /// A process that has no request, once there is one.
    pub(super) fn lend(&self) -> LentLine<'_> {
        let own = self.own();
        let mut free = lock(&own.free);
        let line = loop {
            if let Some(line) = free.lines.pop() {
                break line;
            }
            if free.left > 0 {
                free.left -= 1;
                break Arc::default();
            }
            free = own.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        };
        LentLine { line, own }
    }

    /// The place of some memory, if it lies in a segment.
    pub(super) fn place(&self, memory: &[u8]) -> Option<MemoryPlace> {
        let address = memory.as_ptr() as usize;
        let segments = lock(&self.own().segments);
        let (start, &(size, segment)) = segments.range(..=address).next_back()?;
        let offset = address - start;
        (offset < size).then_some(MemoryPlace { segment, offset: offset as u64, bytes: memory.len() as u64 })
    }

    /// Asks a process. To be called without the interpreter's lock, which the thread that has the process may wait for.
    ///
    /// `write` writes the request. `starts` is the number of times that the process had been started when it read
    /// samples that the request is about.
    ///
    /// # Errors
    /// The process ended, which names the sample that it read; or it could not be started.
    pub(super) fn ask(
        &self,
        line: &Line,
        stop: Option<&Stop>,
        starts: Option<u64>,
        write: impl Fn(&mut Request<'_>) -> PyResult<()>,
    ) -> PyResult<Answer> {
        let mut state = lock(&line.state);
        let is_gone = |then: u64| then != state.starts || state.connection.is_none();
        if let Some(end) = state.end.as_ref().filter(|_| starts.is_some_and(is_gone)) {
            return Err(end.raise());
        }
        loop {
            let is_new = state.connection.is_none();
            if is_new {
                state.connection = Some(Connection::start(&self.make)?);
                state.starts += 1;
            }
            let LineState { connection: Some(connection), starts: started, .. } = &mut *state else {
                return Err(LoaderError::new_err("a process was not started; please report this"));
            };
            let mut request = Request { connection, kind: 0, numbers: Vec::new(), text: String::new() };
            request.list(&line.take_done(*started));
            write(&mut request)?;
            let message = request.message();
            if let Ok(bytes) = connection.exchange(&message, stop) {
                return Ok(Answer { bytes, starts: *started });
            }
            let is_patient = stop.is_none_or(|stop| !stop.is_set());
            let ended = enter(|py| connection.object.bind(py).call_method1("end", (is_patient,))?.extract());
            state.connection = None;
            let end: End = ended.map(|(message, sample)| End { message, sample })?;
            // A process that was killed in a pause between two requests is to blame for nothing, and holds nothing that
            // this request is about: another one answers it.
            let was_at_rest = end.sample < 0 && !is_new && starts.is_none() && is_patient;
            let end = state.end.insert(end);
            if !was_at_rest {
                return Err(end.raise());
            }
        }
    }
}

/// The answer of a process: without bytes if all went well.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// The number of times that the process had been started.
    pub(super) starts: u64,
}

/// A process, lent to one thread.
pub(super) struct LentLine<'a> {
    line: Arc<Line>,
    own: &'a Own,
}

impl Deref for LentLine<'_> {
    type Target = Arc<Line>;

    fn deref(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for LentLine<'_> {
    fn drop(&mut self) {
        lock(&self.own.free).lines.push(Arc::clone(&self.line));
        self.own.returned.notify_one();
    }
}

/// A process, which is started anew if it ends.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<LineState>,
    /// The requests with samples that it need not hold any more: how many times it had been started, and the number
    /// there.
    done: Mutex<Vec<(u64, u64)>>,
}

#[derive(Default)]
struct LineState {
    connection: Option<Connection>,
    /// The number of times that the process was started.
    starts: u64,
    /// The latest end, if there was one.
    end: Option<End>,
}

impl Line {
    /// Lets the process forget the samples of a request.
    pub(super) fn forget(&self, starts: u64, request: u64) {
        lock(&self.done).push((starts, request));
    }

    fn take_done(&self, starts: u64) -> Vec<u64> {
        let done = mem::take(&mut *lock(&self.done));
        done.into_iter().filter(|&(then, _)| then == starts).map(|(_, request)| request).collect()
    }
}

/// The end of a process: a message, and the sample that it read. An exception would hold what its traceback sees.
struct End {
    message: String,
    sample: i64,
}

impl End {
    fn raise(&self) -> PyErr {
        SampleError::new_err((self.message.clone(), self.sample))
    }
}

/// A process that runs.
struct Connection {
    stream: UnixStream,
    /// Introduces layouts and memory, and ends the process.
    object: Py<PyAny>,
    /// The segments and the layouts that the process knows.
    segments: HashSet<u64>,
    layouts: Vec<SampleLayout>,
}

impl Connection {
    fn start(make: &Py<PyAny>) -> PyResult<Self> {
        let (stream, other) = UnixStream::pair()?;
        let object = enter(|py| make.call1(py, (stream.as_raw_fd(), other.into_raw_fd())))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, object, segments: HashSet::new(), layouts: Vec::new() })
    }

    /// Sends a message, and waits for the answer.
    fn exchange(&self, message: &[u8], stop: Option<&Stop>) -> io::Result<Vec<u8>> {
        let mut wait = Wait { object: &self.object, stop, called_off: None, has_ended: false };
        self.send(message, &mut wait)?;
        let mut header = [0; HEADER];
        self.receive(&mut header, &mut wait)?;
        let length = usize::try_from(i32::from_be_bytes(header));
        let mut answer = vec![0; length.map_err(|_| io::Error::from(ErrorKind::InvalidData))?];
        self.receive(&mut answer, &mut wait)?;
        Ok(answer)
    }

    /// Sends a message without an answer. If the process has ended, the next request fails.
    fn tell(&self, message: &[u8]) {
        let _ended = self.send(
            message,
            &mut Wait { object: &self.object, stop: None, called_off: None, has_ended: false },
        );
    }

    fn send(&self, message: &[u8], wait: &mut Wait<'_>) -> io::Result<()> {
        let length = i32::try_from(message.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
        let message = [&length.to_be_bytes(), message].concat();
        let mut sent = 0;
        while sent < message.len() {
            sent += wait.transfer(|| (&self.stream).write(&message[sent..]))?;
        }
        Ok(())
    }

    fn receive(&self, bytes: &mut [u8], wait: &mut Wait<'_>) -> io::Result<()> {
        let mut there = 0;
        while there < bytes.len() {
            there += wait.transfer(|| (&self.stream).read(&mut bytes[there..]))?;
        }
        Ok(())
    }
}

/// A wait for a process.
struct Wait<'a> {
    object: &'a Py<PyAny>,
    stop: Option<&'a Stop>,
    called_off: Option<Instant>,
    has_ended: bool,
}

impl Wait<'_> {
    /// Sends or receives some bytes.
    ///
    /// # Errors
    /// The process has ended, or does not stop.
    fn transfer(&mut self, mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match step() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.look()?
                }
                done => return done,
            }
        }
    }

    /// Looks whether the iteration has stopped, and whether the process is there.
    fn look(&mut self) -> io::Result<()> {
        if self.stop.is_some_and(Stop::is_set) {
            let since = *self.called_off.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        // What it sent before it ended is taken first.
        if self.has_ended {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let is_called_off = self.called_off.is_some();
        let is_alive = enter(|py| self.object.bind(py).call_method1("look", (is_called_off,))?.extract());
        self.has_ended = !is_alive.map_err(io::Error::other)?;
        Ok(())
    }
}

/// Some memory in a segment.
#[derive(Clone, Copy)]
pub(super) struct MemoryPlace {
    segment: u64,
    offset: u64,
    bytes: u64,
}

/// A request that is being written: its kind, numbers, and text.
pub(super) struct Request<'a> {
    connection: &'a mut Connection,
    kind: u8,
    numbers: Vec<u64>,
    text: String,
}

impl Request<'_> {
    /// Says which kind of request this is: a letter, as batchloom/dataset/map/worker.py lists them.
    pub(super) fn kind(&mut self, kind: u8) -> &mut Self {
        self.kind = kind;
        self
    }

    /// Adds numbers.
    pub(super) fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        self.numbers.extend_from_slice(numbers);
        self
    }

    /// Adds numbers, and before them, how many these are.
    fn list(&mut self, numbers: &[u64]) {
        self.numbers(&[numbers.len() as u64]).numbers(numbers);
    }

    /// Adds text.
    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds the place of some memory, with a description for the process the first time.
    pub(super) fn place(&mut self, place: MemoryPlace) -> PyResult<()> {
        let Connection { segments, object, .. } = &mut *self.connection;
        if !segments.contains(&place.segment) {
            let arguments = (place.segment,);
            let gone: Vec<u64> =
                enter(|py| object.bind(py).call_method1("introduce_segment", arguments)?.extract())?;
            segments.retain(|segment| !gone.contains(segment));
            segments.insert(place.segment);
        }
        self.numbers(&[place.segment, place.offset, place.bytes]);
        Ok(())
    }

    /// Adds the number of a layout, with a description for the process the first time.
    pub(super) fn layout(&mut self, layout: &SampleLayout) -> PyResult<()> {
        let Connection { layouts, object, .. } = &*self.connection;
        let known = layouts.iter().position(|known| known == layout);
        let number = known.unwrap_or(layouts.len());
        if known.is_none() {
            let field = |(dtype, shape): &(DType, Vec<usize>)| (dtype.name(), shape.clone());
            let fields: Vec<_> = layout.fields.iter().map(field).collect();
            let arguments = (number, &*layout.structure.nesting, fields);
            let message: Vec<u8> =
                enter(|py| object.bind(py).call_method1("layout_message", arguments)?.extract())?;
            // A layout of many arrays is a long message, for which a busy process takes longer than a write waits.
            self.connection.tell(&message);
            self.connection.layouts.push(layout.clone());
        }
        self.numbers(&[number as u64]);
        Ok(())
    }

    /// The bytes of the request: the kind, the number of numbers, the numbers, and the text.
    fn message(&self) -> Vec<u8> {
        let numbers = [self.numbers.len() as u64].into_iter().chain(self.numbers.iter().copied());
        let numbers = numbers.flat_map(u64::to_ne_bytes);
        [self.kind].into_iter().chain(numbers).chain(self.text.bytes()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
