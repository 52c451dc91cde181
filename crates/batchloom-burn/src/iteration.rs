//! One iteration: the batches of an epoch as inputs of a model, with their progress.

use std::sync::Arc;

use batchloom::loader::{Batch, Batches};
use burn_core::data::dataloader::{DataLoaderIterator, Progress};
use burn_core::data::dataset::DatasetError;
use burn_core::tensor::Device;

use crate::{Error, Result};

/// A function that makes the input of a model of a batch, on a device.
pub(crate) type MakeInput<O> = Arc<dyn Fn(&Batch, &Device) -> Result<O> + Send + Sync>;

/// The batches of one epoch. An error is the last item.
pub(crate) struct Iteration<'a, O> {
    batches: Remaining,
    /// The steps of the whole epoch, and its items.
    steps: u64,
    items: usize,
    make: &'a MakeInput<O>,
    device: &'a Device,
}

/// The batches that are left to yield.
enum Remaining {
    Batches(Batches),
    Refused(Error),
    Ended,
}

impl<'a, O> Iteration<'a, O> {
    /// The batches that are left of an epoch of `steps` steps, or the reason why there are no batches.
    pub(crate) fn new(
        batches: Result<Batches>,
        steps: u64,
        items: usize,
        make: &'a MakeInput<O>,
        device: &'a Device,
    ) -> Self {
        let batches = batches.map_or_else(Remaining::Refused, Remaining::Batches);
        Self { batches, steps, items, make, device }
    }

    /// The input that the next batch makes.
    fn next_input(&mut self) -> Option<Result<O>> {
        match &mut self.batches {
            Remaining::Batches(batches) => {
                let batch = batches.next()?.map_err(Error::from);
                Some(batch.and_then(|batch| (self.make)(&batch, self.device)))
            }
            Remaining::Refused(error) => Some(Err(error.clone())),
            Remaining::Ended => None,
        }
    }
}

impl<O> Iterator for Iteration<'_, O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let input = self.next_input();
        if !matches!(input, Some(Ok(_))) {
            self.batches = Remaining::Ended;
        }
        input.map(|input| input.map_err(DatasetError::new))
    }
}

impl<O> DataLoaderIterator<O> for Iteration<'_, O> {
    /// The items of the steps that were taken, on average: all of them after the last step, and never before.
    fn progress(&self) -> Progress {
        let left = match &self.batches {
            Remaining::Batches(batches) => batches.len() as u64,
            Remaining::Refused(_) | Remaining::Ended => 0,
        };
        let taken = u128::from(self.steps.saturating_sub(left));
        let items = self.items as u128 * taken / u128::from(self.steps.max(1));
        let processed = usize::try_from(items).unwrap_or(self.items);
        Progress::new(processed, self.items, Some("items".to_owned()))
    }
}
