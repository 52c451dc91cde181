//! `ChunkReader`: samples that are read a chunk at a time, and the store of the chunks that are held.
//!
//! Promises:
//!
//! - A chunk that is held is not read again, and a chunk that is being read is read once: threads that need it wait.
//! - No more chunks are held or being read than the limit, which follows from the plan; the chunk that was used the
//!   longest time ago leaves first.
//! - The samples of a chunk that cannot be read are refused, each with the reason; the next request reads it again.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use super::in_chunks::ChunkCounts;
use super::reading::{FilledPart, Held, ReadPart, ReadRequest, Reader, Refusal, SampleLayout, Stop};
use super::source::{SampleStructure, SourceError};
use crate::collate::copy_rows;
use crate::error::Cause;
use crate::order::Chunks;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, ReadClock, process};
use crate::tensor::buffer::Region;
use crate::tensor::{ChunkedTensor, Sequences};
use crate::{DType, Result, Tensor, memory};

/// Samples that are read a chunk at a time: from files of chunks, a database, or a format of row groups.
///
/// ```
/// use batchloom::dataset::{ChunkField, ChunkSamples, ChunkSource, MapDataset, ReadClock, SourceError};
/// use batchloom::order::Chunks;
/// use batchloom::Loader;
///
/// #[derive(Debug)]
/// struct Squares;
///
/// impl ChunkSource for Squares {
///     fn read(&self, chunk: u64, _: &ReadClock) -> Result<ChunkSamples, SourceError> {
///         let squares = (100 * chunk..100 * chunk + 100).map(|sample| sample * sample);
///         Ok(ChunkSamples::new([("x", ChunkField::from(squares.collect::<Vec<u64>>()))]))
///     }
/// }
///
/// let dataset = MapDataset::in_chunks(Chunks::new([100; 50]), Squares).chunks_open(8).build()?;
/// let loader = Loader::builder(dataset).batch_size(64).shuffle(true).build()?;
/// assert_eq!(loader.iter().next().expect("a batch")?.fields()[0].shape(), [64]);
/// # Ok::<(), batchloom::Error>(())
/// ```
pub trait ChunkSource: Debug + Send + Sync + 'static {
    /// Reads all samples of a chunk, in the order in which they are stored. Threads call this for
    /// several chunks at a time, each chunk once while it is held.
    ///
    /// # Errors
    /// Any error; batches with samples of the chunk get it.
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<ChunkSamples, SourceError>;
}

/// The samples of a chunk: a field for each part of a sample.
#[derive(Debug, Clone)]
pub struct ChunkSamples {
    structure: SampleStructure,
    fields: Vec<ChunkField>,
    /// The layout of all samples, unless there are lists, whose lengths differ.
    shared: Option<SampleLayout>,
}

/// One field of the samples of a chunk.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChunkField {
    /// A row for each sample.
    Rows(ChunkedTensor),
    /// An array for each sample, of any length.
    Lists(Sequences),
}

impl<R: Into<ChunkedTensor>> From<R> for ChunkField {
    fn from(rows: R) -> Self {
        Self::Rows(rows.into())
    }
}

impl ChunkField {
    /// The number of samples, or `None` for a scalar.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Rows(rows) => rows.shape().first().copied(),
            Self::Lists(lists) => Some(lists.len()),
        }
    }

    fn values(&self) -> &ChunkedTensor {
        match self {
            Self::Rows(rows) => rows,
            Self::Lists(lists) => lists.values(),
        }
    }

    /// The type and the shape of a sample.
    fn layout(&self, sample: usize) -> (DType, Vec<usize>) {
        let inner = &self.values().shape()[1..];
        let shape = match self {
            Self::Rows(_) => inner.to_vec(),
            Self::Lists(lists) => {
                let extents = lists.extents(sample).iter().map(|&extent| index(extent.into()));
                extents.chain(inner.iter().copied()).collect()
            }
        };
        (self.values().dtype(), shape)
    }

    /// Writes a sample into its slot, which is as large.
    fn write(&self, sample: usize, slot: &mut [u8]) {
        let rows = match self {
            Self::Rows(_) => sample..sample + 1,
            Self::Lists(lists) => lists.rows_of(sample..sample + 1),
        };
        copy_rows(self.values(), rows.start, rows.len(), slot);
    }

    /// A copy of a sample: it does not keep the memory of the chunk.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    fn copy(&self, sample: usize) -> Result<Tensor> {
        let (dtype, shape) = self.layout(sample);
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let mut copy = memory::reserve(bytes)?;
        copy.resize(bytes, 0);
        self.write(sample, &mut copy);
        Tensor::from_bytes(copy.into(), dtype, &shape)
    }
}

impl ChunkSamples {
    /// Samples of named fields.
    pub fn new<N: Into<String>>(fields: impl IntoIterator<Item = (N, ChunkField)>) -> Self {
        let (names, fields): (Vec<String>, Vec<ChunkField>) =
            fields.into_iter().map(|(name, field)| (name.into(), field)).unzip();
        Self::nested(SampleStructure { names: names.into(), nesting: "".into() }, fields)
    }

    /// Samples with fields that are nested in a way that a front end knows.
    #[doc(hidden)]
    pub fn nested(structure: SampleStructure, fields: Vec<ChunkField>) -> Self {
        let mut samples = Self { structure, fields, shared: None };
        let are_rows =
            samples.fields.iter().all(|field| matches!(field, ChunkField::Rows(_)) && field.len().is_some());
        samples.shared = are_rows.then(|| samples.layout(0));
        samples
    }

    /// Returns true if a sample has a layout.
    fn has_layout(&self, sample: usize, expected: &SampleLayout) -> bool {
        self.shared.as_ref().map_or_else(|| self.layout(sample) == *expected, |layout| layout == expected)
    }

    /// The layout of a sample.
    fn layout(&self, sample: usize) -> SampleLayout {
        let fields = self.fields.iter().map(|field| field.layout(sample)).collect();
        SampleLayout { structure: self.structure.clone(), fields }
    }

    /// Refuses a chunk whose fields hold another number of samples.
    fn require_samples(&self, chunk: u64, expected: u64) -> Result<(), SourceError> {
        for (name, field) in self.structure.names.iter().zip(&self.fields) {
            let found = field.len().map_or_else(|| "one value".to_owned(), |found| found.to_string());
            if field.len().map(|found| found as u64) != Some(expected) {
                let text = format!(
                    "chunk {chunk} has {found} samples in field {name}; expected {expected}, as its size says"
                );
                return Err(text.into());
            }
        }
        Ok(())
    }
}

/// A chunk in the store.
enum Slot {
    /// Some thread reads it.
    Reading,
    /// It is held, and was used last at this time.
    Held(Arc<ChunkSamples>, u64),
}

/// The chunks that are held.
#[derive(Default)]
struct Store {
    slots: HashMap<u64, Slot>,
    /// The number of times that a chunk was used.
    time: u64,
    /// The most chunks to hold.
    limit: usize,
    /// The number of chunks that were read, and the most that were held or being read at once.
    counts: ChunkCounts,
}

/// A reader of samples that reads whole chunks.
pub(super) struct ChunkReader {
    source: Box<dyn ChunkSource>,
    chunks: Chunks,
    held: Holding,
}

/// The chunks that one process holds. A process that was forked has a store of its own: threads that held the lock of
/// this one, or were reading a chunk, are not there.
struct Holding {
    process: u32,
    store: Mutex<Store>,
    changed: Condvar,
    /// The number of threads that wait.
    waiting: AtomicUsize,
    /// The chunks of a process that was forked from this one.
    forked: OnceLock<Box<Self>>,
}

impl Holding {
    fn new() -> Self {
        Self {
            process: process::id(),
            store: Mutex::new(Store { limit: 1, ..Store::default() }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            forked: OnceLock::new(),
        }
    }

    /// The chunks that this process holds.
    fn here(&self) -> &Self {
        match self.process == process::id() {
            true => self,
            false => self.forked.get_or_init(|| Box::new(Self::new())).here(),
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for a chunk, or for room. One that begins to wait just now wakes by itself soon.
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_all();
        }
    }
}

/// The end of a wait for a chunk.
enum Awaited {
    /// It is held.
    Held(Arc<ChunkSamples>),
    /// The thread is to read it.
    Turn,
    /// The iteration has stopped.
    Stopped,
}

/// The time after which a thread that waits for a chunk looks whether the iteration has stopped.
const PATIENCE: Duration = Duration::from_millis(50);

impl ChunkReader {
    pub(super) fn new(source: Box<dyn ChunkSource>, chunks: Chunks) -> Self {
        Self { source, chunks, held: Holding::new() }
    }

    /// A chunk, read now if it is not held; `None` if the iteration has stopped.
    fn chunk(&self, chunk: u64, request: &ReadRequest<'_>) -> Option<Result<Arc<ChunkSamples>, Cause>> {
        match self.await_chunk(chunk, request.stop) {
            Awaited::Held(samples) => return Some(Ok(samples)),
            Awaited::Stopped => return None,
            Awaited::Turn => {}
        }
        // If reading panics, the chunk is not left as one that some thread reads.
        let held = self.held.here();
        let turn = Turn { held, chunk };
        let range = self.chunks.range(chunk);
        let read = self.source.read(chunk, request.clock).and_then(|samples| {
            samples.require_samples(chunk, range.end - range.start)?;
            Ok(Arc::new(samples))
        });
        if let Ok(samples) = &read {
            let mut store = held.store();
            store.time += 1;
            store.counts.read += 1;
            let time = store.time;
            store.slots.insert(chunk, Slot::Held(Arc::clone(samples), time));
        }
        drop(turn);
        Some(read.map_err(Cause::from))
    }

    /// Waits until a chunk is held, until this thread is to read it, or until the iteration has stopped.
    fn await_chunk(&self, chunk: u64, stop: &Stop) -> Awaited {
        // Chunks may lie in memory of a front end, which has locks of its own: they leave when no lock is held here.
        let (mut left, here) = (Vec::new(), self.held.here());
        let mut store = here.store();
        loop {
            if stop.is_set() {
                return Awaited::Stopped;
            }
            store.time += 1;
            let time = store.time;
            if let Some(Slot::Held(samples, used)) = store.slots.get_mut(&chunk) {
                *used = time;
                return Awaited::Held(Arc::clone(samples));
            }
            if !store.slots.contains_key(&chunk) && store.make_room(&mut left) {
                store.slots.insert(chunk, Slot::Reading);
                let held = store.slots.len() as u64;
                store.counts.most_held = store.counts.most_held.max(held);
                return Awaited::Turn;
            }
            here.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = here.changed.wait_timeout(store, PATIENCE);
            store = waited.unwrap_or_else(PoisonError::into_inner).0;
            here.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Calls `each` with each chunk that some samples are of, and the places of these samples in the request with their
    /// rows in the chunk. Returns false if the iteration has stopped.
    fn visit(
        &self,
        request: &ReadRequest<'_>,
        mut each: impl FnMut(Result<&ChunkSamples, &Cause>, &[(usize, usize)]) -> Result<()>,
    ) -> Result<bool> {
        let locate = |(place, &sample): (usize, &u64)| {
            let chunk = self.chunks.chunk_of(sample);
            (chunk, place, index(sample - self.chunks.range(chunk).start))
        };
        let mut located: Vec<_> = request.samples.iter().enumerate().map(locate).collect();
        located.sort_unstable();
        for run in located.chunk_by(|one, other| one.0 == other.0) {
            let Some(read) = self.chunk(run[0].0, request) else { return Ok(false) };
            let rows: Vec<_> = run.iter().map(|&(_, place, row)| (place, row)).collect();
            each(read.as_deref(), &rows)?;
            // A thread that waits for room may have it once this chunk is not in use.
            drop(read);
            self.held.here().wake();
        }
        Ok(true)
    }
}

/// The turn of a thread to read a chunk.
struct Turn<'a> {
    held: &'a Holding,
    chunk: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut store = self.held.store();
        if matches!(store.slots.get(&self.chunk), Some(Slot::Reading)) {
            store.slots.remove(&self.chunk);
        }
        drop(store);
        self.held.wake();
    }
}

impl Store {
    /// Makes room for one chunk: the chunk that was used the longest time ago goes to `left`. False if all that are held
    /// are in use.
    fn make_room(&mut self, left: &mut Vec<Slot>) -> bool {
        while self.slots.len() >= self.limit.max(1) {
            let unused = self.slots.iter().filter_map(|(&chunk, slot)| match slot {
                Slot::Held(samples, used) if Arc::strong_count(samples) == 1 => Some((*used, chunk)),
                Slot::Held(..) | Slot::Reading => None,
            });
            let Some((_, chunk)) = unused.min() else { return false };
            left.extend(self.slots.remove(&chunk));
        }
        true
    }
}

impl Reader for ChunkReader {
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart> {
        let mut outcomes: Vec<_> = request.samples.iter().map(|_| None).collect();
        let mut fields: Vec<Vec<Tensor>> = request.samples.iter().map(|_| Vec::new()).collect();
        let is_whole = self.visit(request, |chunk, rows| {
            for &(place, row) in rows {
                outcomes[place] = Some(match chunk {
                    Ok(chunk) => {
                        fields[place] =
                            chunk.fields.iter().map(|field| field.copy(row)).collect::<Result<_>>()?;
                        Ok(chunk.layout(row))
                    }
                    Err(cause) => Err(cause.clone()),
                });
            }
            Ok(())
        })?;
        // Of an iteration that has stopped, no sample is used.
        let outcomes = if is_whole { outcomes.into_iter().flatten().collect() } else { Vec::new() };
        Ok(ReadPart { outcomes, samples: Arc::new(Held(fields)), objects: None })
    }

    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> Result<FilledPart> {
        let mut outcomes: Vec<_> = request.samples.iter().map(|_| None).collect();
        let is_whole = self.visit(request, |chunk, rows| {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(cause) => {
                    rows.iter()
                        .for_each(|&(place, _)| outcomes[place] = Some(Err(Refusal::Failed(cause.clone()))));
                    return Ok(());
                }
            };
            let all_fit = chunk.shared.as_ref().is_some_and(|layout| layout == expected);
            for &(place, row) in rows {
                if !all_fit && !chunk.has_layout(row, expected) {
                    outcomes[place] = Some(Err(Refusal::Differs(chunk.layout(row))));
                    continue;
                }
                for ((field, slots), (dtype, shape)) in
                    chunk.fields.iter().zip(slots.iter_mut()).zip(&expected.fields)
                {
                    let bytes = shape.iter().product::<usize>() * dtype.size();
                    field.write(row, &mut slots[place * bytes..(place + 1) * bytes]);
                }
                outcomes[place] = Some(Ok(()));
            }
            Ok(())
        })?;
        let outcomes = if is_whole { outcomes.into_iter().flatten().collect() } else { Vec::new() };
        Ok(FilledPart { outcomes, objects: None })
    }

    fn hold_chunks(&self, most: usize) {
        let held = self.held.here();
        held.store().limit = most;
        held.wake();
    }

    fn chunk_counts(&self) -> Option<ChunkCounts> {
        Some(self.held.here().store().counts)
    }
}

impl Debug for ChunkReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChunkReader").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A row as an index. If a chunk has more rows than memory, its arrays end before.
fn index(row: u64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}
