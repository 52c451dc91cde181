//! `Kind`: the questions that every kind of data answers, and what a plan is told of its answers.
//!
//! A plan needs the sizes of a kind, a loader the forms that collate its samples, and a device the rows that it
//! needs. All differences between kinds are in their own files; the other stages know no kind by name.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::collated::{Collated, CollatedAhead};
use super::collation::{CollateOptions, Collation};
use super::map::in_chunks::InChunks;
use super::map::reading::{BatchRead, Reader, SampleLayout};
use super::selection::Selection;
use crate::batching::{FixedSize, Labels, Rule, Sizes};
use crate::order::Shuffle;
use crate::{ChunkedTensor, Result, Tensor};

/// The answers of one kind of data to the other stages.
pub(crate) trait Kind: Any + Debug + Send + Sync {
    /// The number of samples.
    fn len(&self) -> usize;

    /// The arrays that samples are taken from, by the name of their field.
    fn arrays(&self) -> Vec<(&str, &ChunkedTensor)>;

    /// The fields of batches of `rule`, and the forms that make them, for the epoch of `epoch`.
    ///
    /// # Errors
    /// An error that names the option or the rule that does not fit this kind.
    fn collation(&self, rule: &Rule, options: &CollateOptions, epoch: EpochKey) -> Result<Collation>;

    /// The rows of each of [`arrays`](Self::arrays) that the samples `samples` are taken from: the smallest range that
    /// holds all of them.
    fn rows(&self, samples: Range<usize>) -> Vec<Range<usize>>;

    /// The most rows of each array that any `samples` neighbouring samples need.
    fn most_rows(&self, samples: usize) -> Vec<usize>;

    /// Collates one sample as a batch of one, and returns its fields without their first dimension.
    ///
    /// # Errors
    /// The errors of collation, and [`Kind::Memory`](crate::Kind::Memory).
    fn sample(&self, sample: u64) -> Result<Vec<(String, Tensor)>> {
        self.collation(&FixedSize::new(1)?.into(), &CollateOptions::default(), (0, 0))?.sample(sample)
    }

    /// The sizes of the samples, or `None` if all samples count the same.
    fn sizes(&self) -> Option<Sizes> {
        None
    }

    /// Returns true if batches are concatenations, whatever the rule.
    fn is_concatenated(&self) -> bool {
        false
    }

    /// The labels of batches, if the loader makes them.
    fn labels(&self, _options: &CollateOptions) -> Option<Labels> {
        None
    }

    /// Returns true if a field can be named for labels, its next tokens.
    fn makes_labels(&self) -> bool {
        false
    }

    /// Returns true if there are documents that an epoch can shuffle.
    fn has_documents(&self) -> bool {
        false
    }

    /// Returns true if forms differ between epochs.
    fn changes_with_epoch(&self, _options: &CollateOptions) -> bool {
        false
    }

    /// The reader of samples that are made on demand, or `None` if samples are taken from arrays.
    fn reader(&self) -> Option<&Arc<dyn Reader>> {
        None
    }

    /// The chunks that samples are read in, if they are read a chunk at a time.
    fn in_chunks(&self) -> Option<&InChunks> {
        None
    }

    /// The fields of a batch of read samples, for kinds with a [`reader`](Self::reader).
    ///
    /// # Errors
    /// An error that names the sample that does not fit the rest, or could not be read.
    fn collate(&self, rule: &Rule, options: &CollateOptions, _read: BatchRead) -> Result<Collated> {
        let collation = self.collation(rule, options, (0, 0))?;
        Ok(Collated { collation, options: options.clone(), marks: None, skipped: Vec::new(), first: None })
    }

    /// The fields of batches of samples with an expected layout, or `None` if batches can be laid out only after
    /// reading.
    ///
    /// # Errors
    /// As [`collate`](Self::collate).
    fn collate_ahead(
        &self,
        _rule: &Rule,
        _options: &CollateOptions,
        _expected: &SampleLayout,
    ) -> Result<Option<CollatedAhead>> {
        Ok(None)
    }

    /// The fields of a batch of neighbours as views of the data, or `None` if they cannot be such.
    fn view(&self, _samples: Range<u64>) -> Option<Vec<(&str, Tensor)>> {
        None
    }

    /// Returns true if samples that cannot be read are left out.
    fn skips(&self) -> bool {
        false
    }

    /// The same kind of data with only these samples, or `None` if they can be looked up by their numbers.
    fn select(&self, _selection: &Selection) -> Option<Result<Arc<dyn Kind>>> {
        None
    }

    /// The samples of this data and of others, one after the other, over arrays in several chunks; `None` if that is not
    /// one piece of data of this kind.
    ///
    /// # Errors
    /// As [`ChunkedTensor::concat`].
    fn concat(&self, _others: &[&dyn Kind]) -> Result<Option<Arc<dyn Kind>>> {
        Ok(None)
    }

    /// The facts that a plan needs besides numbers and sizes of samples.
    ///
    /// # Errors
    /// An error that names the option of the plan that does not fit this kind.
    fn content(&self, _request: &ContentRequest) -> Result<Option<Content>> {
        Ok(None)
    }
}

/// Other data, if all of it is of the kind `K`.
pub(super) fn all_of<'a, K: Kind>(others: &[&'a dyn Kind]) -> Option<Vec<&'a K>> {
    let of_kind = |&other: &&'a dyn Kind| (other as &'a dyn Any).downcast_ref();
    others.iter().map(of_kind).collect()
}

/// The seed and the number of an epoch, for kinds that draw at random.
pub(crate) type EpochKey = (u64, u64);

/// The options of a plan that a kind may depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentRequest {
    /// The number of samples of a step over all ranks; `None` if batches differ in number.
    pub(crate) samples_in_step: Option<u64>,
    /// The order of samples.
    pub(crate) shuffle: Shuffle,
    /// True if the documents of a stream are shuffled.
    pub(crate) shuffles_documents: bool,
}

/// The facts of a kind that belong to a plan.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// A text for the fingerprint.
    pub(crate) text: String,
    /// The rows of a stream that continue from batch to batch, and the number of pieces of each: as many samples as
    /// both multiplied.
    pub(crate) rows: Option<(u64, u64)>,
    /// The number of elements of a stream that are in no sample.
    pub(crate) tail: u64,
}
