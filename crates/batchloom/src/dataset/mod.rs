//! A sample, by kind of data: one kind a file, and `kind.rs` has the questions that each of them answers.

#[cfg(feature = "arrow")]
mod arrow;
pub(crate) mod collated;
pub(crate) mod collation;
mod concatenated;
mod counts;
pub(crate) mod error;
mod groups;
mod in_rows;
mod index_offsets;
pub(crate) mod kind;
mod label_counts;
mod located;
mod map;
mod masked;
mod parts;
mod selected;
mod selection;
mod sequences;
mod tensors;
mod text_ids;
mod tokens;
mod windows;

use std::ops::Range;
use std::sync::Arc;

pub use crate::collate::WindowSteps;
#[cfg(feature = "arrow")]
pub use arrow::{arrow_lists, arrow_rows};
use collation::CollateOptions;
use concatenated::Concatenated;
pub use counts::{GroupCounts, SequenceCounts, TokenCounts};
pub use groups::{GroupDataset, GroupDatasetBuilder, GroupLayout, GroupOversize, Groups};
use kind::Kind;
pub(crate) use located::Located;
pub(crate) use map::Banned;
pub(crate) use map::{BatchRead, InChunks};
pub use map::{
    ChunkBytes, ChunkCounts, ChunkField, ChunkHolder, ChunkSamples, ChunkSource, FailedPart, FilledPart,
    Held, HeldLayout, HeldRows, ItemChunks, ItemSource, KeptItems, MapDataset, MapDatasetBuilder, Objects,
    OnError, ReadClock, ReadPart, ReadRequest, Reader, Refusal, Sample, SampleLayout, SampleRng,
    SampleStructure, Skipped, Source, SourceError, Stop, sample_key,
};
pub use parts::{ETT_HOUR, ETT_MINUTE, PartEnd, borders, tslib_ends};
use selected::Selected;
pub use selection::Selection;
pub use sequences::{SequenceDataset, SequenceDatasetBuilder, SizeOf};
pub use tensors::{TensorDataset, TensorField};
pub use text_ids::TextIds;
pub use tokens::{Tail, TokenDataset, TokenExtras, TokenMode};
pub use windows::{
    Anchor, Backtest, BacktestShape, Match, Missing, MissingRow, SampledBy, Short, Tick, Timed, WindowCounts,
    WindowDataset, WindowShape,
};

use crate::batching::error::BatchingCause;
use crate::batching::{Rule, Sizes};
use crate::tensor::error::TensorCause;
pub use crate::tensor::{Sequences, SparseLayout, SparseRows};
use crate::{DType, Result, Tensor};
use error::SelectionCause;

/// Any kind of data, behind one door. Cheap to clone: arrays are shared.
///
/// ```
/// use batchloom::{Tensor, TensorDataset};
/// use batchloom::dataset::Dataset;
///
/// let x = Tensor::from_vec((0..12_i64).collect(), &[4, 3])?;
/// let dataset = Dataset::from(TensorDataset::new([("x", x)])?);
/// let sample = dataset.sample(2)?;
/// assert_eq!((sample[0].0.as_str(), sample[0].1.as_slice::<i64>()), ("x", Some(&[6, 7, 8][..])));
/// assert_eq!(dataset.rows(1..3)?, [("x", 1..3)]);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataset(Arc<dyn Kind>);

macro_rules! kinds {
    ($($kind:ident),*) => {
        $(impl From<$kind> for Dataset {
            fn from(dataset: $kind) -> Self {
                Self(Arc::new(dataset))
            }
        })*
    };
}

kinds!(TensorDataset, SequenceDataset, WindowDataset, GroupDataset, TokenDataset, MapDataset);

impl Dataset {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sizes of the samples, which a plan needs, or `None` if all samples count the same.
    pub fn sizes(&self) -> Option<Sizes> {
        self.0.sizes()
    }

    /// Returns one sample, field by field, as a batch holds it but without the first dimension and without padding.
    /// Fields that only describe a batch (mask, lengths, boundaries, index) are left out. A group that is longer than
    /// its `max_rows` is whole here.
    ///
    /// This collates a batch of one, which costs one copy of the sample.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such sample; [`Kind::Data`](crate::Kind::Data) if arrays are
    /// in memory that this process cannot read.
    pub fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        let samples = self.len() as u64;
        if sample >= samples {
            return Err(BatchingCause::SampleRange { sample, samples }.into());
        }
        self.require_readable()?;
        self.0.sample(sample)
    }

    /// The name and the element type of each field that batches of `rule` take from samples, as they are stored.
    ///
    /// # Errors
    /// Errors that say which rule does not go with this kind of data.
    pub fn fields(&self, rule: &Rule) -> Result<Vec<(String, DType)>> {
        let collation = self.0.collation(rule, &CollateOptions::default(), (0, 0))?;
        let dtypes = collation.forms.iter().map(|form| form.dtype());
        Ok(collation.names.iter().cloned().zip(dtypes).take(collation.own).collect())
    }

    /// The names of the fields of batches of `rule` that are not taken from samples, but describe the batch.
    ///
    /// # Errors
    /// Errors that say which rule does not go with this kind of data.
    #[doc(hidden)]
    pub fn describing_fields(&self, rule: &Rule) -> Result<Vec<String>> {
        let collation = self.0.collation(rule, &CollateOptions::default(), (0, 0))?;
        Ok(collation.names[collation.own..].to_vec())
    }

    /// Returns the same data with only some of its samples, numbered anew. Data is not copied. Of a
    /// [`TokenDataset`], documents are selected, not pieces.
    ///
    /// ```
    /// use batchloom::dataset::{Dataset, Selection};
    /// use batchloom::{Tensor, TensorDataset};
    ///
    /// let x = Tensor::from_vec((0..6_i64).collect(), &[6])?;
    /// let dataset = Dataset::from(TensorDataset::new([("x", x)])?);
    /// let even = dataset.select(&Selection::list(&[0, 2, 4], 6)?)?;
    /// assert_eq!(even.sample(1)?[0].1.as_slice::<i64>(), Some(&[2][..]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the selection is one of another number of samples;
    /// [`Kind::Argument`](crate::Kind::Argument) if the kind of data has no such selections.
    pub fn select(&self, selection: &Selection) -> Result<Self> {
        let selected = self.0.select(selection);
        let plain = || {
            let (samples, expected) = (selection.samples(), self.len() as u64);
            match samples == expected {
                true => Ok(Self(Arc::new(Selected::new(Arc::clone(&self.0), selection.clone())?))),
                false => Err(SelectionCause::Samples { found: samples, expected }.into()),
            }
        };
        selected.map_or_else(plain, |selected| selected.map(Self))
    }

    /// Puts datasets of one kind together: the samples of the first, then those of the second, and so on. Data is not
    /// copied. Batches may hold samples of several of them.
    ///
    /// ```
    /// use batchloom::dataset::Dataset;
    /// use batchloom::{Tensor, TensorDataset};
    ///
    /// let rows = |values: Vec<i64>| {
    ///     let len = values.len();
    ///     Tensor::from_vec(values, &[len]).and_then(|x| TensorDataset::new([("x", x)])).map(Dataset::from)
    /// };
    /// let both = Dataset::concat([rows(vec![1, 2])?, rows(vec![3])?])?;
    /// assert_eq!(both.sample(2)?[0].1.as_slice::<i64>(), Some(&[3][..]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are no datasets, if their fields differ in name, type or
    /// shape, or if samples are made on demand, but for [chunks](MapDataset::in_chunks): one [`Source`] may read all of them.
    pub fn concat(parts: impl IntoIterator<Item = Self>) -> Result<Self> {
        Self::join(parts, false)
    }

    /// Puts datasets together like [`concat`](Self::concat), for a [`Mix`](crate::draws::Mix) of them. Batches hold
    /// another field, `source`, int64: the number of the dataset that each sample is of.
    ///
    /// # Errors
    /// As [`concat`](Self::concat), and if a field is named `source`.
    pub fn sources(parts: impl IntoIterator<Item = Self>) -> Result<Self> {
        Self::join(parts, true)
    }

    fn join(parts: impl IntoIterator<Item = Self>, says_source: bool) -> Result<Self> {
        let parts: Vec<Arc<dyn Kind>> = parts.into_iter().map(|part| part.0).collect();
        Ok(match parts.iter().any(|part| part.in_chunks().is_some()) {
            true => Self(Arc::new(MapDataset::join(&parts, says_source)?)),
            false => Self(Arc::new(Concatenated::new(parts, says_source)?)),
        })
    }

    /// The rows of each array that the samples `samples` are taken from, by the name of its field: the smallest range
    /// that holds all of them. This is for data that moves elsewhere part by part.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if the range does not lie in the dataset.
    #[doc(hidden)]
    pub fn rows(&self, samples: Range<u64>) -> Result<Vec<(&str, Range<usize>)>> {
        let within = usize::try_from(samples.start).ok().zip(usize::try_from(samples.end).ok());
        let Some((start, end)) = within.filter(|(start, end)| start <= end && *end <= self.len()) else {
            let (sample, samples) = (samples.end.max(samples.start), self.len() as u64);
            return Err(BatchingCause::SampleRange { sample, samples }.into());
        };
        Ok(self.names().zip(self.0.rows(start..end)).collect())
    }

    /// The most rows of each array that any `samples` neighbouring samples need, by the name of its field. Never fewer
    /// than [`rows`](Self::rows) says of any of them; more if rows of groups lie scattered, or if windows repeat.
    #[doc(hidden)]
    pub fn most_rows(&self, samples: u64) -> Vec<(&str, usize)> {
        let samples = usize::try_from(samples).unwrap_or(usize::MAX).min(self.len());
        self.names().zip(self.0.most_rows(samples)).collect()
    }

    /// The chunks that were read so far, if samples are read a chunk at a time.
    pub fn chunk_counts(&self) -> Option<ChunkCounts> {
        self.0.reader()?.chunk_counts()
    }

    /// The number of chunks whose samples are mixed at a time, if samples are read a chunk at a time and it was chosen.
    pub fn chunks_open(&self) -> Option<u64> {
        self.0.in_chunks()?.open
    }

    pub(crate) fn kind(&self) -> &dyn Kind {
        &*self.0
    }

    /// Refuses arrays that this process cannot read.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an array is in memory that this process cannot read.
    pub(crate) fn require_readable(&self) -> Result<()> {
        match self.0.arrays().iter().find(|(_, array)| array.is_elsewhere()) {
            Some((name, _)) => Err(TensorCause::Elsewhere { field: (*name).to_owned() }.into()),
            None => Ok(()),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.arrays().into_iter().map(|(name, _)| name)
    }
}
