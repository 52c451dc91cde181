//! `Reader`: reads some samples of a batch at once, in this process or for another one.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::chunk_memory::{ChunkBytes, ChunkCounts};
use super::source::{Sample, SampleStructure, Source, generator};
use crate::collate::{HeldRows, ReadSamples, SlotPlace, SlotTarget, SlotWriter};
use crate::dataset::Selection;
use crate::error::{Cause, ReadError};
use crate::sync::ReadClock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tensor::buffer::Region;
use crate::{DType, Result, Tensor};

/// The samples to read together, and the numbers that random augmentation depends on.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// The samples, in the order of their places in the batch.
    pub samples: &'a [u64],
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// Tells that the samples are of no use any more.
    pub stop: &'a Stop,
    /// Takes the time that was spent, from readers that count it.
    pub clock: &'a ReadClock,
}

/// The sign of an iteration that has stopped, shared by its threads.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Gives the sign.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the sign was given.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The result of reading: the layout of each sample, or the reason that it could not be read, and the samples.
pub struct ReadPart {
    /// The outcome for each sample that was asked for. There are fewer if the iteration was stopped.
    pub outcomes: Vec<Result<SampleLayout, Cause>>,
    /// The samples that could be read, at the places of their outcomes.
    pub samples: Arc<dyn ReadSamples>,
    /// The objects that samples hold beside arrays, if they hold any.
    pub objects: Option<Objects>,
}

crate::brief::debug_in_brief!(ReadPart, [samples], [outcomes]);

/// Objects that samples hold beside arrays, such as texts: they travel with the block to its consumer, which knows their
/// type, and the engine never looks at them.
#[derive(Clone)]
pub struct Objects(Arc<dyn Any + Send + Sync>);

impl Objects {
    /// The objects of some samples.
    pub fn new(objects: impl Any + Send + Sync) -> Self {
        Self(Arc::new(objects))
    }

    /// The objects, or `None` if they are of another type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl Debug for Objects {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Objects")
    }
}

/// The result of reading samples into their slots.
#[derive(Debug)]
pub struct FilledPart {
    /// The outcome for each sample that was asked for. There are fewer if the iteration was stopped.
    pub outcomes: Vec<Result<(), Refusal>>,
    /// The objects that samples hold beside arrays, if they hold any.
    pub objects: Option<Objects>,
}

/// The structure of a sample, and the type and shape of each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleLayout {
    /// The names of the fields, and their nesting.
    pub structure: SampleStructure,
    /// The type and the shape of each field.
    pub fields: Vec<(DType, Vec<usize>)>,
}

/// The treatment of a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The batch is an error.
    #[default]
    Raise,
    /// The sample is zeros, and its `weight` in the batch is 0: no other sample moves.
    Skip,
}

/// The reason that a banned sample is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Banned;

impl std::fmt::Display for Banned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("it is banned")
    }
}

impl std::error::Error for Banned {}

impl Banned {
    /// Returns true if a sample was not read because it is banned.
    pub(crate) fn is(cause: &Cause) -> bool {
        cause.get().is::<Self>()
    }
}

impl From<Banned> for Cause {
    fn from(banned: Banned) -> Self {
        Self::from(Box::<dyn std::error::Error + Send + Sync>::from(banned))
    }
}

/// The samples of a part that were read; the rest was left alone.
#[derive(Debug)]
struct Spread {
    samples: Arc<dyn ReadSamples>,
    /// The number, among those that were read, of each sample of the part.
    places: Vec<Option<usize>>,
}

impl ReadSamples for Spread {
    fn write(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        let read = |place: &SlotPlace| SlotPlace {
            sample: place.sample.and_then(|sample| self.places[sample]),
            ..*place
        };
        let places: Vec<SlotPlace> = places.iter().map(read).collect();
        self.samples.write(field, &places, slots, target)
    }
}

impl ReadPart {
    /// The part that has these samples, with the samples where `banned` is true banned.
    pub(crate) fn insert_banned(self, banned: &[bool]) -> Self {
        let Self { outcomes, samples, objects } = self;
        let mut read = outcomes.into_iter().enumerate().peekable();
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for &is_banned in banned {
            let (outcome, place) = match read.next_if(|_| !is_banned) {
                Some((place, outcome)) => (outcome, Some(place)),
                None if is_banned => (Err(Banned.into()), None),
                // The iteration has stopped.
                None => break,
            };
            all.push(outcome);
            places.push(place);
        }
        Self { outcomes: all, samples: Arc::new(Spread { samples, places }), objects }
    }
}

/// The samples of a batch that could not be read, with the reasons.
pub type Skipped = Vec<(u64, Cause)>;

/// The samples of a batch, read in parts.
#[derive(Debug)]
pub(crate) struct BatchRead {
    pub(crate) samples: Vec<u64>,
    /// The parts, and the members that each holds.
    pub(crate) parts: Vec<(Range<usize>, ReadPart)>,
    /// The sample that later samples are compared to, and its layout, unless this is the first batch.
    pub(crate) first: Option<(u64, SampleLayout)>,
}

/// The way in which samples of a dataset are read.
pub trait Reader: Debug + Send + Sync {
    /// Reads samples, one after the other.
    ///
    /// # Errors
    /// Failures of the machinery. A sample that cannot be read is an outcome.
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart>;

    /// Returns true if a batch is read in one part and made of it as a whole: the only outcome is then the layout of
    /// the batch, and fields of any shape are its own.
    fn makes_batches(&self) -> bool {
        false
    }

    /// Returns true if samples that are read by one call cost less than samples that several calls read: a thread then
    /// reads as much of a batch at once as it can.
    fn reads_together(&self) -> bool {
        false
    }

    /// The same reader, if it holds chunks of samples.
    fn chunk_holder(&self) -> Option<&dyn ChunkHolder> {
        None
    }

    /// The bytes of a chunk, which is read for it, for readers of whole chunks.
    ///
    /// # Errors
    /// The error of its first sample, if it cannot be read.
    fn measure_chunk(&self, _chunk: u64) -> Result<ChunkBytes> {
        Ok(ChunkBytes::default())
    }

    /// Sets the bytes of memory for chunks, of which the largest has `largest` bytes, for readers of whole chunks.
    fn limit_memory(&self, _bytes: u64, _largest: u64) {}

    /// Begins an iteration that needs at most `most` chunks at a time, for readers of whole chunks, and returns its number.
    fn begin_iteration(&self, _most: usize) -> u64 {
        0
    }

    /// Ends an iteration: its chunks leave.
    fn end_iteration(&self, _iteration: u64) {}

    /// Notes the chunks that an iteration will need, each with the last time at which it needs it, the earliest time at
    /// which an open block of it begins, and the chunks that its open blocks need. Times are of the clock of the plan's
    /// draws.
    fn note_chunks(&self, _iteration: u64, _opened: (u64, Vec<u64>), _chunks: &[(u64, u64)]) {}

    /// Reads a chunk that an iteration will need, unless some thread has read it since.
    fn read_early(&self, _chunk: u64, _clock: &ReadClock) {}

    /// Returns true if another thread reads one of the chunks that a thread needs, while there is room for one more chunk.
    fn has_time_for_more(&self, _needed: &[u64]) -> bool {
        false
    }

    /// Returns true if this thread is reading a chunk with this reader. An iteration over its samples that begins here would
    /// wait for that chunk for ever.
    fn is_reading_here(&self) -> bool {
        false
    }

    /// The counts of a reader of whole chunks so far.
    fn chunk_counts(&self) -> Option<ChunkCounts> {
        None
    }

    /// Reads samples of an expected layout, straight into their slots: `slots` has the memory of all of them for each
    /// field, and has it again afterwards. The slots of samples that were not read hold anything.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> Result<FilledPart> {
        let ReadPart { outcomes, samples, objects } = self.read(request)?;
        let place = |(sample, number): (usize, &u64)| SlotPlace::whole(*number, sample);
        let places: Vec<_> = request.samples[..outcomes.len()]
            .iter()
            .enumerate()
            .map(|(sample, number)| place((sample, number)))
            .collect();
        let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| expected.checked(outcome)).collect();
        let fits = |place: &&SlotPlace| place.sample.is_some_and(|sample| outcomes[sample].is_ok());
        let places: Vec<SlotPlace> = places.iter().filter(fits).copied().collect();
        for (field, ((dtype, shape), slots)) in expected.fields.iter().zip(slots).enumerate() {
            let writer = SlotWriter::same(*dtype, shape.clone());
            let target = SlotTarget { writer: &writer, concatenates: false };
            let bytes = writer.bytes();
            for place in &places {
                let start = place.sample.unwrap_or(0) * bytes;
                samples.write(field, &[*place], &target, &mut slots[start..start + bytes])?;
            }
        }
        Ok(FilledPart { outcomes, objects })
    }
}

/// The way to samples in chunks: they stay where they are until batches are filled, several at once.
pub trait ChunkHolder: Reader {
    /// Finds samples in their chunks, which are read where they are not held. The error is the place of the first sample
    /// that is not there, or that has another layout, and the reason. `None` if the iteration was stopped.
    fn hold_rows(
        &self,
        request: &ReadRequest<'_>,
        expected: &HeldLayout,
    ) -> Option<Result<HeldRows, (usize, Refusal)>>;
}

/// The layout of samples in chunks.
#[derive(Debug, Clone)]
pub struct HeldLayout {
    /// The layout of each sample, but for the first extents of fields that vary.
    pub(crate) layout: SampleLayout,
    /// True for each field that is as long as the size of its sample.
    pub(crate) variable: Vec<bool>,
}

/// The reason that a sample was not read into its slot.
#[derive(Debug)]
pub enum Refusal {
    /// It could not be read.
    Failed(Cause),
    /// It has another layout.
    Differs(SampleLayout),
}

impl SampleLayout {
    /// The error for a sample with another `layout` than this one, which sample `first` has.
    pub(crate) fn layout_error(&self, first: u64, layout: &Self, sample: u64) -> ReadError {
        if layout.structure != self.structure {
            let (structure, expected) = (layout.structure.to_string(), self.structure.to_string());
            return ReadError::Structure { sample, found: structure, first, expected };
        }
        let mut fields = self.fields.iter().zip(&layout.fields).zip(self.structure.names.iter());
        let different = fields.find(|((expected, field), _)| expected != field);
        match different {
            Some((((expected, expected_shape), (dtype, shape)), field)) => ReadError::Layout {
                field: field.clone(),
                sample,
                found: *dtype,
                shape: shape.clone(),
                first,
                expected: *expected,
                expected_shape: expected_shape.clone(),
            },
            None => ReadError::Structure { sample, found: String::new(), first, expected: String::new() },
        }
    }

    /// The outcome for a sample that should have this layout.
    pub fn checked(&self, outcome: Result<Self, Cause>) -> Result<(), Refusal> {
        match outcome {
            Err(cause) => Err(Refusal::Failed(cause)),
            Ok(layout) if layout != *self => Err(Refusal::Differs(layout)),
            Ok(_) => Ok(()),
        }
    }
}

impl std::fmt::Display for SampleLayout {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dtypes: Vec<_> = self.fields.iter().map(|(dtype, _)| dtype.name()).collect();
        write!(formatter, "{} of {}", self.structure, dtypes.join(", "))
    }
}

/// A source that is read by the thread that needs the samples.
pub(super) struct Local<S>(pub(super) S);

impl<S: Source> Reader for Local<S> {
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart> {
        let (mut outcomes, mut samples) = (Vec::new(), Vec::new());
        for &number in request.samples {
            if request.stop.is_set() {
                break;
            }
            let mut rng = generator(request.seed, request.epoch, number);
            let (outcome, sample) = match self.0.read(number, &mut rng) {
                Ok(sample) => (Ok(sample.layout()), Some(sample)),
                Err(error) => (Err(Cause::from(error)), None),
            };
            outcomes.push(outcome);
            samples.push(sample.map(|sample| sample.fields).unwrap_or_default());
        }
        Ok(ReadPart { outcomes, samples: Arc::new(Held(samples)), objects: None })
    }
}

/// Some of the samples of another reader, numbered anew. Their generators follow the numbers of that reader
/// them.
#[derive(Debug)]
pub(super) struct Chosen {
    whole: Arc<dyn Reader>,
    selection: Selection,
}

impl Chosen {
    pub(super) fn new(whole: Arc<dyn Reader>, selection: Selection) -> Self {
        Self { whole, selection }
    }

    /// Calls `read` with the request as the other reader numbers samples.
    fn ask_whole<T>(&self, request: &ReadRequest<'_>, read: impl FnOnce(&ReadRequest<'_>) -> T) -> T {
        let mut samples = request.samples.to_vec();
        self.selection.map(&mut samples);
        read(&ReadRequest { samples: &samples, ..*request })
    }
}

impl Reader for Chosen {
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart> {
        self.ask_whole(request, |request| self.whole.read(request))
    }

    fn makes_batches(&self) -> bool {
        self.whole.makes_batches()
    }

    fn reads_together(&self) -> bool {
        self.whole.reads_together()
    }

    fn chunk_holder(&self) -> Option<&dyn ChunkHolder> {
        self.whole.chunk_holder().map(|_| self as &dyn ChunkHolder)
    }

    fn begin_iteration(&self, most: usize) -> u64 {
        self.whole.begin_iteration(most)
    }

    fn end_iteration(&self, iteration: u64) {
        self.whole.end_iteration(iteration);
    }

    fn note_chunks(&self, iteration: u64, opened: (u64, Vec<u64>), chunks: &[(u64, u64)]) {
        self.whole.note_chunks(iteration, opened, chunks);
    }

    fn read_early(&self, chunk: u64, clock: &ReadClock) {
        self.whole.read_early(chunk, clock);
    }

    fn has_time_for_more(&self, needed: &[u64]) -> bool {
        self.whole.has_time_for_more(needed)
    }

    fn is_reading_here(&self) -> bool {
        self.whole.is_reading_here()
    }

    fn chunk_counts(&self) -> Option<ChunkCounts> {
        self.whole.chunk_counts()
    }

    fn read_into(
        &self,
        request: &ReadRequest<'_>,
        expected: &SampleLayout,
        slots: &mut Vec<Region>,
    ) -> Result<FilledPart> {
        self.ask_whole(request, |request| self.whole.read_into(request, expected, slots))
    }
}

impl ChunkHolder for Chosen {
    fn hold_rows(
        &self,
        request: &ReadRequest<'_>,
        expected: &HeldLayout,
    ) -> Option<Result<HeldRows, (usize, Refusal)>> {
        let holder = self.whole.chunk_holder()?;
        self.ask_whole(request, |request| holder.hold_rows(request, expected))
    }
}

impl<S> Debug for Local<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Local")
    }
}

impl Sample {
    /// The structure, and the type and shape of each field.
    pub fn layout(&self) -> SampleLayout {
        let fields = self.fields.iter().map(|field| (field.dtype(), field.shape().to_vec())).collect();
        SampleLayout { structure: self.structure.clone(), fields }
    }
}

/// Samples that this process holds: the fields of each.
pub struct Held(pub Vec<Vec<Tensor>>);

impl Debug for Held {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Held").field(&crate::brief::Brief(&self.0)).finish()
    }
}

impl ReadSamples for Held {
    fn write(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        slots.fill(places, target, |sample| self.0.get(sample)?.get(field))
    }
}
