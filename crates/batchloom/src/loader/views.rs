//! One iteration over batches that are views of the data wherever possible.
//!
//! Promises: values, shapes, order and states equal those in [`Loader::iter`](super::Loader::iter); a batch that
//! cannot be a view is gathered when it is asked for. It owns no thread.

use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

use super::block::Batch;
use super::epochs::Epochs;
use super::steps::Steps;
use crate::tensor::Tensor;
use crate::{DType, Result};

/// The batches of one epoch, on one rank, as [`Loader::views`](super::Loader::views) makes them. After an error it
/// ends.
#[derive(Debug)]
pub struct Views {
    epochs: Arc<Epochs>,
    steps: Steps,
    names: Arc<[String]>,
    dtypes: Vec<DType>,
    is_ended: bool,
}

impl Views {
    pub(super) fn new(epochs: Arc<Epochs>) -> Self {
        let names = Arc::clone(epochs.fields.names());
        let dtypes = epochs.fields.forms().iter().map(|form| form.dtype()).collect();
        Self { steps: Steps::new(Arc::clone(&epochs)), epochs, names, dtypes, is_ended: false }
    }

    fn batch(&self) -> Result<Option<Batch>> {
        if self.steps.left()? == 0 {
            self.steps.end();
            return Ok(None);
        }
        let batch = match self.steps.run(0)?.and_then(|samples| self.view(samples)) {
            Some(batch) => Some(batch),
            None => self.steps.form()?.batches().next(),
        };
        self.steps.advance();
        Ok(batch)
    }

    /// These samples as a batch without a copy, if that has all the fields that a batch has, with the values of the
    /// data.
    fn view(&self, samples: Range<u64>) -> Option<Batch> {
        if self.epochs.collate.changes_values() {
            return None;
        }
        let count = usize::try_from(samples.end - samples.start).ok()?;
        let fields = self.epochs.dataset.kind().view(samples)?;
        let expected = self.names.iter().map(String::as_str).zip(self.dtypes.iter().copied());
        let present = fields.iter().map(|(name, field)| (*name, field.dtype()));
        if !expected.eq(present) || fields.iter().any(|(_, field)| field.is_elsewhere()) {
            return None;
        }
        let fields: Vec<Tensor> = fields.into_iter().map(|(_, field)| field).collect();
        Some(Batch::of_views(Arc::clone(&self.names), fields, count))
    }
}

impl Iterator for Views {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.is_ended {
            return None;
        }
        let batch = self.batch().transpose();
        self.is_ended = !matches!(batch, Some(Ok(_)));
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = if self.is_ended { 0 } else { self.steps.left().unwrap_or(1) };
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Views {}

impl FusedIterator for Views {}
