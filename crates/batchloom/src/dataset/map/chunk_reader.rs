//! `ChunkReader`: samples that are read a chunk at a time.
//!
//! Promises:
//!
//! - Samples are copied straight from the chunk that holds them to their place in a batch.
//! - The samples of a chunk that cannot be read are refused, each with the reason; the next iteration reads it again.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::chunk_memory::{ChunkBytes, ChunkCounts, ChunkMemory};
use super::held_chunks::{HeldChunks, ReadingHere, address_of};
use super::reading::{
    ChunkHolder, FilledPart, Held, HeldLayout, ReadPart, ReadRequest, Reader, Refusal, SampleLayout,
};
use super::source::{SampleStructure, SourceError};
use crate::collate::{ChunkField, HeldChunk, HeldRows};
use crate::error::{Cause, ReadError};
use crate::order::Chunks;
use crate::sync::ReadClock;
use crate::tensor::buffer::Region;
use crate::{Result, Tensor};

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

    /// The name of a chunk in errors.
    fn name_of(&self, chunk: u64) -> String {
        format!("chunk {chunk}")
    }
}

/// The samples of a chunk: a field for each part of a sample.
#[derive(Debug, Clone)]
pub struct ChunkSamples {
    structure: SampleStructure,
    fields: Vec<ChunkField>,
    /// The layout of all samples, unless there are lists, which differ in length.
    shared: Option<SampleLayout>,
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

    /// Returns true if all samples share this layout.
    fn all_fit(&self, expected: &HeldLayout) -> bool {
        self.shared.as_ref().is_some_and(|layout| *layout == expected.layout)
    }

    /// Returns true if a sample has a layout, but for the first extents of fields that vary.
    fn fits(&self, sample: usize, expected: &HeldLayout) -> bool {
        let fields = self.fields.iter().zip(&expected.layout.fields).zip(&expected.variable);
        self.structure == expected.layout.structure
            && self.fields.len() == expected.layout.fields.len()
            && fields
                .into_iter()
                .all(|((field, (dtype, shape)), &variable)| field.has_layout(sample, *dtype, shape, variable))
    }

    /// The layout of a sample.
    fn layout(&self, sample: usize) -> SampleLayout {
        let fields = self.fields.iter().map(|field| field.layout(sample)).collect();
        SampleLayout { structure: self.structure.clone(), fields }
    }

    /// The number of bytes of all samples.
    fn bytes(&self) -> ChunkBytes {
        let sum = |mut sum: ChunkBytes, field: &ChunkField| {
            let bytes = match field {
                ChunkField::Rows(_) => &mut sum.rows,
                ChunkField::Lists(_) => &mut sum.lists,
            };
            *bytes = bytes.saturating_add(field.bytes() as u64);
            sum
        };
        self.fields.iter().fold(ChunkBytes::default(), sum)
    }

    /// Refuses a chunk with another number of samples in a field than its size.
    fn require_samples(&self, chunk: &str, expected: u64) -> Result<(), SourceError> {
        for (name, field) in self.structure.names.iter().zip(&self.fields) {
            let found = field.len().map_or_else(|| "one value".to_owned(), |found| found.to_string());
            if field.len().map(|found| found as u64) != Some(expected) {
                let text = format!(
                    "{chunk} has {found} samples in field {name}; expected {expected}, as its size says"
                );
                return Err(text.into());
            }
        }
        Ok(())
    }
}

impl HeldChunk for ChunkSamples {
    fn fields(&self) -> &[ChunkField] {
        &self.fields
    }
}

/// A reader of samples that reads whole chunks.
pub(super) struct ChunkReader {
    source: Arc<dyn ChunkSource>,
    held: HeldChunks<ChunkSamples>,
}

impl ChunkReader {
    /// Reads `chunks` from a source; `sources` are its address and the addresses of sources that it reads from.
    pub(super) fn new(source: Arc<dyn ChunkSource>, chunks: Chunks, sources: Arc<[usize]>) -> Self {
        Self { source, held: HeldChunks::new(chunks, sources) }
    }

    /// A chunk, read now if it is not held; `None` if the iteration has stopped.
    fn chunk(&self, chunk: u64, request: &ReadRequest<'_>) -> Option<Result<Arc<ChunkSamples>, Cause>> {
        self.held.hold(chunk, request.stop, |range| self.read_chunk(chunk, range, request.clock))
    }

    /// Reads a chunk of samples with some numbers, and counts its bytes.
    fn read_chunk(
        &self,
        chunk: u64,
        numbers: Range<u64>,
        clock: &ReadClock,
    ) -> Result<(ChunkSamples, usize), SourceError> {
        let _reading = ReadingHere::begin(address_of(&*self.source));
        let samples = self.source.read(chunk, clock)?;
        samples.require_samples(&self.source.name_of(chunk), numbers.end - numbers.start)?;
        let bytes = index(samples.bytes().sum());
        Ok((samples, bytes))
    }

    /// The chunk of a sample, and its row there.
    fn locate(&self, sample: u64) -> (u64, usize) {
        let chunk = self.held.chunks.chunk_of(sample);
        (chunk, index(sample - self.held.chunks.range(chunk).start))
    }

    /// Calls `each` with each chunk that some samples are of, and the places of these samples in the request with their
    /// rows in the chunk. Returns false if the iteration has stopped. One chunk is in use at a time.
    fn visit(
        &self,
        request: &ReadRequest<'_>,
        mut each: impl FnMut(Result<&ChunkSamples, &Cause>, &[(usize, usize)]) -> Result<()>,
    ) -> Result<bool> {
        let located = request.samples.iter().enumerate().map(|(place, &sample)| {
            let (chunk, row) = self.locate(sample);
            (chunk, place, row)
        });
        let mut located: Vec<_> = located.collect();
        located.sort_unstable();
        let _in_use = self.held.store.enter();
        for run in located.chunk_by(|one, other| one.0 == other.0) {
            let Some(read) = self.chunk(run[0].0, request) else { return Ok(false) };
            let rows: Vec<_> = run.iter().map(|&(_, place, row)| (place, row)).collect();
            each(read.as_deref(), &rows)?;
            // A thread that waits for room may have it once this chunk is not in use.
            drop(read);
            self.held.store.wake();
        }
        Ok(true)
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
                            chunk.fields.iter().map(|field| field.to_tensor(row)).collect::<Result<_>>()?;
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
                    let failed = || Some(Err(Refusal::Failed(cause.clone())));
                    rows.iter().for_each(|&(place, _)| outcomes[place] = failed());
                    return Ok(());
                }
            };
            for &(place, row) in rows {
                if !chunk.has_layout(row, expected) {
                    outcomes[place] = Some(Err(Refusal::Differs(chunk.layout(row))));
                    continue;
                }
                for ((field, slots), (dtype, shape)) in
                    chunk.fields.iter().zip(slots.iter_mut()).zip(&expected.fields)
                {
                    let bytes = shape.iter().product::<usize>() * dtype.size();
                    field.copy(row, &mut slots[place * bytes..(place + 1) * bytes]);
                }
                outcomes[place] = Some(Ok(()));
            }
            Ok(())
        })?;
        // Of an iteration that has stopped, no sample is used.
        let outcomes = if is_whole { outcomes.into_iter().flatten().collect() } else { Vec::new() };
        Ok(FilledPart { outcomes, objects: None })
    }

    fn chunk_holder(&self) -> Option<&dyn ChunkHolder> {
        Some(self)
    }

    fn measure_chunk(&self, chunk: u64) -> Result<ChunkBytes> {
        let range = self.held.chunks.range(chunk);
        let failed = |cause| ReadError::Failed { sample: range.start, cause: Cause::from(cause) };
        let (samples, _) = self.read_chunk(chunk, range.clone(), &ReadClock::default()).map_err(failed)?;
        Ok(samples.bytes())
    }

    fn limit_memory(&self, bytes: u64, largest: u64) {
        self.held.store.limit_memory(ChunkMemory { bytes, largest });
    }

    fn begin_iteration(&self, most: usize) -> u64 {
        self.held.store.begin_iteration(most)
    }

    fn end_iteration(&self, iteration: u64) {
        self.held.store.end_iteration(iteration);
    }

    fn note_chunks(&self, iteration: u64, opened: (u64, Vec<u64>), chunks: &[(u64, u64)]) {
        self.held.store.note(iteration, opened, chunks);
    }

    fn read_early(&self, chunk: u64, clock: &ReadClock) {
        self.held.read_early(chunk, |range| self.read_chunk(chunk, range, clock));
    }

    fn has_time_for_more(&self, needed: &[u64]) -> bool {
        self.held.store.has_time_for_more(needed)
    }

    fn is_reading_here(&self) -> bool {
        self.held.is_reading_here()
    }

    fn chunk_counts(&self) -> Option<ChunkCounts> {
        Some(self.held.store.counts())
    }
}

impl ChunkHolder for ChunkReader {
    fn hold_rows(
        &self,
        request: &ReadRequest<'_>,
        expected: &HeldLayout,
    ) -> Option<Result<HeldRows, (usize, Refusal)>> {
        let in_use = self.held.store.enter();
        // There are as many chunks as a window has, so a list is searched sooner than a table.
        let (mut numbers, mut chunks, mut all_fit) =
            (Vec::new(), Vec::<Arc<ChunkSamples>>::new(), Vec::new());
        let mut rows = Vec::with_capacity(request.samples.len());
        for (place, &sample) in request.samples.iter().enumerate() {
            let (chunk, row) = self.locate(sample);
            let held = numbers.iter().position(|&number| number == chunk).unwrap_or(numbers.len());
            if held == numbers.len() {
                match self.chunk(chunk, request)? {
                    Ok(samples) => {
                        all_fit.push(samples.all_fit(expected));
                        chunks.push(samples);
                        numbers.push(chunk);
                    }
                    Err(cause) => return Some(Err((place, Refusal::Failed(cause)))),
                }
            }
            if !all_fit[held] && !chunks[held].fits(row, expected) {
                return Some(Err((place, Refusal::Differs(chunks[held].layout(row)))));
            }
            rows.push((held, row));
        }
        let chunks = chunks.into_iter().map(|samples| samples as Arc<dyn HeldChunk>).collect();
        Some(Ok(HeldRows::new(chunks, rows, in_use)))
    }
}

impl Debug for ChunkReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChunkReader").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A number of something in memory as an index. If a chunk has more rows than memory, its arrays end before.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
