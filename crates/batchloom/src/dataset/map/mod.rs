//! `MapDataset`: samples that are made when their batch is formed.
//!
//! A plan needs the number of samples, and their sizes where a rule looks at them; so the batches of an epoch are known
//! before anything is read. A block is one batch. Its samples are read first, by all threads; only then are its fields
//! known, and the block is laid out like any other.

mod chunk_memory;
mod chunk_reader;
mod chunk_store;
mod error;
mod held_chunks;
pub(super) mod in_chunks;
mod item_chunks;
mod joined;
mod next_tokens;
mod read_batch;
pub(super) mod reading;
mod sample_facts;
mod source;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

pub use crate::collate::{ChunkField, HeldRows};
pub use crate::sync::ReadClock;
pub use chunk_memory::{ChunkBytes, ChunkCounts};
pub use chunk_reader::{ChunkSamples, ChunkSource};
pub(crate) use in_chunks::InChunks;
use item_chunks::ItemReader;
pub use item_chunks::{ItemChunks, ItemSource, KeptItems};
pub use joined::FailedPart;
use joined::{Part, WholeChunks, join_chunks, join_facts, join_selections};
pub(crate) use reading::Banned;
pub(crate) use reading::BatchRead;
use reading::{Chosen, Local};
pub use reading::{
    ChunkHolder, FilledPart, Held, HeldLayout, Objects, OnError, ReadPart, ReadRequest, Reader, Refusal,
    SampleLayout, Skipped, Stop,
};
pub use source::{Sample, SampleRng, SampleStructure, Source, SourceError, sample_key};

use super::collated::{Collated, CollatedAhead};
use super::collation::{CollateOptions, Collation, Index, form_one};
use super::kind::{Content, ContentRequest, EpochKey, Kind, all_of};
use super::selection::Selection;
use crate::batching::error::BatchingCause;
use crate::batching::{FixedSize, Labels, Rule, Sizes};
use crate::collate::{DirectSlots, Form, HeldLists, HeldStack, Members, PadSlot, SampleTokens, Slot};
use crate::dataset::error::{ConcatCause, LabelsCause, SelectionCause};
use crate::order::Chunks;
use crate::{ChunkedTensor, Result, Tensor};
use error::MapCause;
use next_tokens::make_labels;
use read_batch::{ReadBatch, check_own_names, collate_whole, describing_fields};
use sample_facts::SampleFacts;

/// Samples that are made on demand by a [`Source`].
///
/// All samples have the same fields, types and shapes, unless
///
/// - the source gives sizes: fields with at least one dimension then are as long as the size of their sample, and batches
///   are padded or packed like sequences, with the same further fields; or
/// - the loader gives a field a [`Slot`](crate::loader::Slot).
///
/// ```
/// use batchloom::dataset::{MapDataset, Sample};
/// use batchloom::{Loader, Tensor};
///
/// let read = |sample: u64, _: &mut _| Ok(Sample::new([("x", Tensor::from_vec(vec![sample; 4], &[2, 2])?)]));
/// let loader = Loader::builder(MapDataset::new((100, read)).build()?).batch_size(8).shuffle(true).build()?;
/// for batch in &loader {
///     assert_eq!(batch?.fields()[0].shape()[1..], [2, 2]);
/// }
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MapDataset {
    reader: Arc<dyn Reader>,
    samples: u64,
    facts: SampleFacts,
    /// The chunks that samples are read in, and how many are mixed at a time, if these are read as a whole.
    in_chunks: Option<InChunks>,
    /// The samples that were selected from the reader's samples, if some were.
    selection: Option<Selection>,
    /// All chunks that samples are selected from, where the engine holds them.
    whole: Option<WholeChunks>,
}

/// The options of a [`MapDataset`].
#[derive(Clone)]
pub struct MapDatasetBuilder {
    reader: Arc<dyn Reader>,
    samples: u64,
    sizes: Option<Vec<u32>>,
    /// The names of these sizes, and sizes with other names.
    named_sizes: Vec<(String, Option<Vec<u32>>)>,
    variable: Option<Vec<String>>,
    on_error: OnError,
    in_chunks: Option<InChunks>,
    /// The bytes of memory for chunks.
    memory: Option<u64>,
    /// The chunks, where the engine holds them.
    whole: Option<WholeChunks>,
}

crate::brief::debug_in_brief!(MapDatasetBuilder, [reader, samples, variable, on_error], [sizes]);

impl MapDataset {
    /// The options of a dataset over a source. The size of each sample is asked for, and no data is read.
    #[expect(clippy::new_ret_no_self, reason = "a dataset has options")]
    pub fn new(source: impl Source) -> MapDatasetBuilder {
        let samples = source.len();
        let sizes = (0..samples).map(|sample| source.size(sample)).collect::<Option<Vec<_>>>();
        let sizes = sizes.filter(|sizes| !sizes.is_empty());
        MapDatasetBuilder { sizes, ..Self::with_reader(Arc::new(Local(source)), samples) }
    }

    /// The options of a dataset of samples that a front end reads.
    #[doc(hidden)]
    pub fn with_reader(reader: Arc<dyn Reader>, samples: u64) -> MapDatasetBuilder {
        MapDatasetBuilder {
            reader,
            samples,
            sizes: None,
            named_sizes: Vec::new(),
            variable: None,
            on_error: OnError::Raise,
            in_chunks: None,
            memory: None,
            whole: None,
        }
    }

    /// The options of a dataset of samples that are read a chunk at a time. Loaders mix samples in a window over
    /// [chunks](crate::plan::PlanBuilder::chunks), and hold the chunks that batches need.
    pub fn in_chunks(chunks: Chunks, source: impl ChunkSource) -> MapDatasetBuilder {
        let (samples, in_chunks) = (chunks.samples(), InChunks::new(chunks.clone(), None));
        let whole = WholeChunks::new(source, chunks);
        let builder = Self::with_reader(Arc::new(whole.reader()), samples);
        MapDatasetBuilder { in_chunks: Some(in_chunks), whole: Some(whole), ..builder }
    }

    /// The samples of several datasets that are read a chunk at a time, one dataset after the other. `says_source` is true
    /// if batches hold the number of the dataset of each sample.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the engine does not hold the chunks of a dataset, or if datasets differ
    /// in what is known of samples.
    pub(super) fn join(datasets: &[Arc<dyn Kind>], says_source: bool) -> Result<Self> {
        let (mut parts, mut in_chunks) = (Vec::new(), Vec::new());
        for (dataset, kind) in datasets.iter().enumerate() {
            let own: Option<Vec<&Self>> = all_of(&[&**kind]);
            let own = own.and_then(|own| own.first().copied());
            let (part, chunks) = own.and_then(Self::as_part).ok_or(ConcatCause::NotInChunks { dataset })?;
            parts.push(part);
            in_chunks.push(chunks);
        }
        let (facts, in_chunks) = (join_facts(&parts, says_source)?, InChunks::join(&in_chunks)?);
        let (whole, selection) = (join_chunks(&parts), join_selections(&parts)?);
        let mut reader: Arc<dyn Reader> = Arc::new(whole.reader());
        if let Some((bytes, largest)) = in_chunks.memory() {
            reader.limit_memory(bytes, largest);
        }
        if let Some(selection) = &selection {
            reader = Arc::new(Chosen::new(reader, selection.clone()));
        }
        let samples = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.samples));
        Ok(Self { reader, samples, facts, in_chunks: Some(in_chunks), selection, whole: Some(whole) })
    }

    /// The samples as a part of several datasets, and their chunks, if the engine holds these.
    fn as_part(&self) -> Option<(Part<'_>, &InChunks)> {
        let (selection, facts, samples) = (self.selection.as_ref(), &self.facts, self.samples);
        Some((Part { whole: self.whole.as_ref()?, selection, facts, samples }, self.in_chunks.as_ref()?))
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        usize::try_from(self.samples).unwrap_or(usize::MAX)
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }
}

impl MapDatasetBuilder {
    /// Sets the size of each sample, for sources that do not know it.
    #[must_use]
    pub fn sizes(mut self, sizes: Vec<u32>) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Gives these sizes a name, for [`Budgets`](crate::batching::Budgets).
    #[must_use]
    pub fn size_name(mut self, name: impl Into<String>) -> Self {
        self.named_sizes.push((name.into(), None));
        self
    }

    /// Adds further sizes with a name, where there are [`sizes`](Self::sizes): patches beside tokens.
    #[must_use]
    pub fn named_sizes(mut self, name: impl Into<String>, sizes: Vec<u32>) -> Self {
        self.named_sizes.push((name.into(), Some(sizes)));
        self
    }

    /// Names the fields that are as long as the size of their sample. Default: all with at least one dimension, if
    /// there are sizes.
    #[must_use]
    pub fn variable<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.variable = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the treatment of samples that cannot be read. Default: the batch is an error.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the number of chunks whose samples are mixed at a time, for samples that are read a chunk at a time. Default:
    /// the default of plans.
    #[must_use]
    pub fn chunks_open(mut self, chunks_open: u64) -> Self {
        self.in_chunks = self.in_chunks.map(|in_chunks| InChunks { open: Some(chunks_open), ..in_chunks });
        self
    }

    /// Sets the chunks of the items that the reader makes samples of. Loaders mix samples in a window over them, and the
    /// chunks that batches need are held while their samples are made.
    #[doc(hidden)]
    #[must_use]
    pub fn of_items(mut self, items: Arc<ItemChunks>) -> Self {
        (self.in_chunks, self.whole) = (Some(items.in_chunks()), None);
        self.reader = Arc::new(ItemReader { samples: self.reader, items });
        self
    }

    /// Sets the bytes of memory for chunks, for samples that are read a chunk at a time, in place of
    /// [`chunks_open`](Self::chunks_open): as many chunks are mixed as there is memory for, beside those that are read
    /// early. The largest chunk, by the sizes of its samples, is read once to learn its bytes. Iterations that run side by
    /// side have as much memory each. A batch that needs more chunks at a time than memory holds gets them nevertheless.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if memory holds fewer than 5 chunks;
    /// [`Kind::Data`](crate::Kind::Data) if there is not one size for each sample.
    pub fn build(self) -> Result<MapDataset> {
        let Self { reader, samples, sizes, named_sizes, variable, on_error, in_chunks, memory, whole } = self;
        if let Some(count) = sizes.as_ref().map(|sizes| sizes.len() as u64).filter(|&count| count != samples)
        {
            return Err(BatchingCause::SizesLength { found: count, samples }.into());
        }
        let in_chunks = match (in_chunks, memory) {
            (Some(chunks), Some(bytes)) => {
                let skipped = on_error == OnError::Skip;
                let measure = |chunk| reader.measure_chunk(chunk);
                let (chunks, memory) = chunks.with_memory(bytes, sizes.as_deref(), measure, skipped)?;
                reader.limit_memory(memory.bytes, memory.largest);
                Some(chunks)
            }
            (in_chunks, _) => in_chunks,
        };
        let named = |sizes: Vec<u32>| {
            named_sizes.into_iter().try_fold(Sizes::new(sizes), |sizes, (name, given)| match given {
                None => sizes.named(name),
                Some(given) => sizes.with(name, given),
            })
        };
        let facts = SampleFacts { sizes: sizes.map(named).transpose()?, variable, on_error, sources: None };
        Ok(MapDataset { reader, samples, facts, in_chunks, selection: None, whole })
    }
}

impl Kind for MapDataset {
    fn len(&self) -> usize {
        self.len()
    }

    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)> {
        Vec::new()
    }

    fn sizes(&self) -> Option<Sizes> {
        self.facts.sizes.clone()
    }

    fn makes_labels(&self) -> bool {
        self.facts.sizes.is_some() && !self.reader.makes_batches()
    }

    fn labels(&self, options: &CollateOptions) -> Option<Labels> {
        options.labels.as_ref().filter(|_| self.makes_labels()).map(|_| Labels::Next)
    }

    /// The facts about samples; fields are known once samples were read.
    fn collation(&self, _: &Rule, options: &CollateOptions, _: EpochKey) -> Result<Collation> {
        if let Some(field) = options.labels.as_ref().filter(|field| has_slot(options, field)) {
            return Err(LabelsCause::Slot { field: field.clone() }.into());
        }
        let named = self.facts.variable.iter().flatten();
        let mut slotted = named.filter(|name| has_slot(options, name));
        if let Some(field) = slotted.next() {
            return Err(MapCause::SlotOfColumn { field: field.clone() }.into());
        }
        Ok(Collation { ragged: self.facts.ragged(), ..Collation::new(Vec::new(), Index::Rows)? })
    }

    fn select(&self, selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        let in_chunks = match self.in_chunks.as_ref().map(|it| it.select(selection)).transpose() {
            Ok(in_chunks) => in_chunks,
            Err(error) => return Some(Err(error)),
        };
        let chosen = Chosen::new(Arc::clone(&self.reader), selection.clone());
        let outer = self.selection.as_ref();
        let text = outer.map_or_else(|| Ok(selection.clone()), |outer| selection.within(outer));
        let sizes = || self.facts.sizes.as_ref().map(|sizes| sizes.gather(selection.iter())).transpose();
        let selected = |(text, sizes)| Self {
            reader: Arc::new(chosen),
            samples: selection.len(),
            facts: SampleFacts { sizes, sources: self.facts.select_sources(selection), ..self.facts.clone() },
            in_chunks,
            selection: Some(text),
            whole: self.whole.clone(),
        };
        let (samples, expected) = (selection.samples(), self.samples);
        Some(match samples == expected {
            true => text
                .and_then(|text| Ok((text, sizes()?)))
                .map(|text| Arc::new(selected(text)) as Arc<dyn Kind>),
            false => Err(SelectionCause::Samples { found: samples, expected }.into()),
        })
    }

    fn content(&self, _: &ContentRequest) -> Result<Option<Content>> {
        let selected = self.selection.as_ref();
        Ok(selected.map(|selected| Content {
            text: format!("select {}", selected.text()),
            rows: None,
            tail: 0,
        }))
    }

    fn rows(&self, _: Range<usize>) -> Vec<Range<usize>> {
        Vec::new()
    }

    fn most_rows(&self, _: usize) -> Vec<usize> {
        Vec::new()
    }

    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let (stop, clock) = (Stop::default(), ReadClock::default());
        let request = ReadRequest { samples: &[sample], seed: 0, epoch: 0, stop: &stop, clock: &clock };
        let read = BatchRead {
            samples: vec![sample],
            parts: vec![(0..1, self.reader.read(&request)?)],
            first: None,
        };
        let plain = Self { facts: SampleFacts::default(), ..self.clone() };
        let collated = plain.collate(&FixedSize::new(1)?.into(), &CollateOptions::default(), read)?;
        let members = Members { samples: vec![sample], ..Members::of_count(1, 0) };
        let fields = collated.collation.names.iter().zip(&collated.collation.forms);
        fields.map(|(name, form)| Ok((name.clone(), form_one(&**form, &members)?))).collect()
    }

    fn in_chunks(&self) -> Option<&InChunks> {
        self.in_chunks.as_ref()
    }

    fn reader(&self) -> Option<&Arc<dyn Reader>> {
        Some(&self.reader)
    }

    fn collate(&self, rule: &Rule, options: &CollateOptions, read: BatchRead) -> Result<Collated> {
        if self.reader.makes_batches() {
            return collate_whole(&self.facts, options, read);
        }
        ReadBatch::new(&self.facts, read)?.collate(&self.facts, rule, options)
    }

    fn collate_ahead(
        &self,
        rule: &Rule,
        options: &CollateOptions,
        expected: &SampleLayout,
    ) -> Result<Option<CollatedAhead>> {
        if self.reader.makes_batches() {
            return Ok(None);
        }
        if self.reader.chunk_holder().is_some() && options.slots.is_empty() && !self.skips() {
            return self.collate_held(rule, options, expected).map(Some);
        }
        let mut fields: Vec<(String, Arc<dyn Form>)> = Vec::new();
        let mut as_read = true;
        for (name, (dtype, shape)) in expected.structure.names.iter().zip(&expected.fields) {
            let slot = options.slots.iter().find(|(field, _)| field == name);
            let slot = slot.map_or(&Slot::Same, |(_, slot)| slot);
            let Some(fixed) =
                slot.fixed_shape(shape).filter(|_| !self.facts.is_variable(options, name, shape))
            else {
                return Ok(None);
            };
            let stored = slot.dtype(*dtype);
            let set = options.fields.iter().find(|(field, _)| field == name);
            let dtype = set.map_or(stored, |(_, options)| options.target(stored));
            let changes = set.is_some_and(|(_, options)| options.changes(stored));
            as_read &= matches!(slot, Slot::Same) && !changes;
            fields.push((name.clone(), Arc::new(DirectSlots { dtype, shape: fixed })));
        }
        let own = fields.len();
        let described = describing_fields(&self.facts, rule, options, false, None);
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let collation =
            Collation { own, ragged: self.facts.ragged(), ..Collation::new(fields, Index::Rows)? };
        let marks = self.skips().then(Arc::default);
        // The types of fields are those in batches.
        let options = CollateOptions { fields: Vec::new(), ..options.clone() };
        let collated = Collated { collation, options, marks, skipped: Vec::new(), first: None };
        Ok(Some(CollatedAhead { collated, as_read, held: None }))
    }

    fn skips(&self) -> bool {
        self.facts.skips()
    }
}

impl MapDataset {
    /// The fields of batches of samples that are copied from the chunks that hold them.
    ///
    /// # Errors
    /// As [`ReadBatch::collate`].
    fn collate_held(
        &self,
        rule: &Rule,
        options: &CollateOptions,
        expected: &SampleLayout,
    ) -> Result<CollatedAhead> {
        let names = &expected.structure.names;
        let dtypes: Vec<_> = expected.fields.iter().map(|(dtype, _)| *dtype).collect();
        let options = options.with_types(names, &dtypes)?;
        let (mut fields, mut variable) = (Vec::<(String, Arc<dyn Form>)>::new(), Vec::new());
        let mut tokens = None;
        for (field, (name, (dtype, shape))) in names.iter().zip(&expected.fields).enumerate() {
            let (dtype, is_variable) = (*dtype, self.facts.is_variable(&options, name, shape));
            let form: Arc<dyn Form> = match is_variable {
                false => Arc::new(HeldStack { field, dtype, shape: shape.clone() }),
                true => {
                    let lists = Arc::new(HeldLists {
                        field,
                        dtype,
                        inner: shape[1..].to_vec(),
                        concatenates: rule.packs(),
                        side: options.pad_side,
                        value: options.slot_padding(name, &Slot::Pad(PadSlot::default()), dtype)?,
                    });
                    if options.labels.as_ref() == Some(name) {
                        tokens = Some(Arc::clone(&lists) as Arc<dyn SampleTokens>);
                    }
                    lists
                }
            };
            fields.push((name.clone(), form));
            variable.push(is_variable);
        }
        let own = fields.len();
        let labels = make_labels(&options, rule, expected, tokens)?;
        let described = describing_fields(&self.facts, rule, &options, variable.contains(&true), labels);
        check_own_names(&fields, &described)?;
        fields.extend(described.into_iter().map(|(name, form)| (name.to_owned(), form)));
        let collation =
            Collation { own, ragged: self.facts.ragged(), ..Collation::new(fields, Index::Rows)? };
        let collated = Collated { collation, options, marks: None, skipped: Vec::new(), first: None };
        Ok(CollatedAhead { collated, as_read: false, held: Some(variable) })
    }
}

/// Returns true if a field goes into a slot.
fn has_slot(options: &CollateOptions, field: &str) -> bool {
    options.slots.iter().any(|(name, _)| name == field)
}
