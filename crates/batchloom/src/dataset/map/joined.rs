//! `JoinedChunks`: the chunks of several datasets, one dataset after the other, each read by the source of its dataset.
//!
//! Promises:
//!
//! - One store holds the chunks of all, in the memory that all have together.
//! - A chunk that cannot be read is an error that names its dataset.

use std::sync::Arc;

use super::chunk_reader::{ChunkReader, ChunkSamples, ChunkSource};
use super::held_chunks::{ReadingHere, address_of};
use super::sample_facts::SampleFacts;
use super::source::SourceError;
use crate::Result;
use crate::batching::Sizes;
use crate::dataset::error::ConcatCause;
use crate::dataset::selection::Selection;
use crate::order::Chunks;
use crate::sync::ReadClock;

/// A source of chunks, and all of its chunks. A dataset may have some of the samples alone.
#[derive(Debug, Clone)]
pub(super) struct WholeChunks {
    pub(super) source: Arc<dyn ChunkSource>,
    /// The addresses of this source, and of those that it reads from.
    pub(super) sources: Arc<[usize]>,
    pub(super) chunks: Chunks,
}

impl WholeChunks {
    /// All chunks of one source.
    pub(super) fn new(source: impl ChunkSource, chunks: Chunks) -> Self {
        let source: Arc<dyn ChunkSource> = Arc::new(source);
        Self { sources: [address_of(&*source)].into(), source, chunks }
    }

    /// A reader of all chunks, with a store of its own.
    pub(super) fn reader(&self) -> ChunkReader {
        ChunkReader::new(Arc::clone(&self.source), self.chunks.clone(), Arc::clone(&self.sources))
    }
}

/// One of several datasets of chunks.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) whole: &'a WholeChunks,
    pub(super) selection: Option<&'a Selection>,
    pub(super) facts: &'a SampleFacts,
    pub(super) samples: u64,
}

/// The chunks of several datasets.
#[derive(Debug)]
struct JoinedChunks {
    sources: Vec<Arc<dyn ChunkSource>>,
    /// The number of chunks in each dataset and in all before it.
    ends: Vec<u64>,
}

impl ChunkSource for JoinedChunks {
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<ChunkSamples, SourceError> {
        let (dataset, own) = self.locate(chunk);
        let source = &*self.sources[dataset];
        let _reading = ReadingHere::begin(address_of(source));
        source.read(own, clock).map_err(|cause| FailedPart { dataset, cause }.into())
    }

    fn name_of(&self, chunk: u64) -> String {
        let (dataset, own) = self.locate(chunk);
        format!("dataset {dataset}: {}", self.sources[dataset].name_of(own))
    }
}

impl JoinedChunks {
    /// The dataset that has a chunk, and the number of the chunk there.
    fn locate(&self, chunk: u64) -> (usize, u64) {
        let dataset = self.ends.partition_point(|&end| end <= chunk);
        (dataset, chunk - dataset.checked_sub(1).map_or(0, |before| self.ends[before]))
    }
}

/// The failure of one of several datasets.
#[derive(Debug, thiserror::Error)]
#[error("dataset {dataset}: {cause}")]
pub struct FailedPart {
    /// The number of the dataset.
    pub dataset: usize,
    /// Its own error.
    #[source]
    pub cause: SourceError,
}

/// The chunks of all datasets.
pub(super) fn join_chunks(parts: &[Part<'_>]) -> WholeChunks {
    let ends = parts.iter().scan(0, |end, part| {
        *end += part.whole.chunks.len();
        Some(*end)
    });
    let sources = parts.iter().map(|part| Arc::clone(&part.whole.source)).collect();
    let chunks = Chunks::new(parts.iter().flat_map(|part| part.whole.chunks.sizes()));
    let joined = WholeChunks::new(JoinedChunks { sources, ends: ends.collect() }, chunks);
    let own = parts.iter().flat_map(|part| &*part.whole.sources).chain(&*joined.sources).copied();
    WholeChunks { sources: own.collect(), ..joined }
}

/// The facts about the samples of several datasets. `says_source` is true if batches hold the number of the dataset.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if datasets differ in it.
pub(super) fn join_facts(parts: &[Part<'_>], says_source: bool) -> Result<SampleFacts> {
    let first = parts[0].facts;
    for (dataset, Part { facts, .. }) in parts.iter().enumerate() {
        let differs = match () {
            () if facts.on_error != first.on_error => Some("on_error"),
            () if facts.sizes.is_some() != first.sizes.is_some() => Some("whether samples have sizes"),
            () if facts.variable != first.variable => {
                Some("the fields that are as long as sizes say, which columns= of a ChunkDataset names")
            }
            () => None,
        };
        if let Some(what) = differs {
            return Err(ConcatCause::Facts { dataset, what }.into());
        }
        if facts.sources.is_some() {
            return Err(ConcatCause::Sources { dataset }.into());
        }
    }
    let sizes: Option<Vec<Sizes>> = parts.iter().map(|part| part.facts.sizes.clone()).collect();
    let sum = |end: &mut u64, part: &Part<'_>| {
        *end = end.saturating_add(part.samples);
        Some(*end)
    };
    Ok(SampleFacts {
        sizes: sizes.map(|sizes| Sizes::join(&sizes)).transpose()?,
        sources: says_source.then(|| parts.iter().scan(0, sum).collect()),
        ..first.clone()
    })
}

/// The samples that were selected of the chunks of all datasets, if some were.
///
/// # Errors
/// As [`Selection::list`].
pub(super) fn join_selections(parts: &[Part<'_>]) -> Result<Option<Selection>> {
    if parts.iter().all(|part| part.selection.is_none()) {
        return Ok(None);
    }
    let (mut selected, mut before) = (Vec::new(), 0);
    for Part { whole, selection, .. } in parts {
        match selection {
            None => selected.extend(before..before + whole.chunks.samples()),
            Some(selection) => selected.extend(selection.iter().map(|sample| before + sample)),
        }
        before += whole.chunks.samples();
    }
    Selection::list(&selected, before).map(Some)
}
