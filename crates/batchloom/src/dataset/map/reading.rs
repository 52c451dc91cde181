//! `Reader`: reads some samples of a batch at once, in this process or for another one.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::source::{Sample, SampleStructure, Source, generator};
use crate::collate::{ReadSamples, SlotPlace, SlotTarget};
use crate::error::Cause;
use crate::{DType, Result, Tensor};

/// The samples to read together, and the numbers that random augmentation depends on.
pub struct ReadRequest<'a> {
    /// The samples, in the order of their places in the batch.
    pub samples: &'a [u64],
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// Returns true once nobody waits for the samples any more.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// The result of reading: the layout of each sample, or the reason that it could not be read, and the samples.
#[derive(Debug)]
pub struct ReadPart {
    /// The outcome for each sample that was asked for. There are fewer if the iteration was stopped.
    pub outcomes: Vec<Result<SampleLayout, Cause>>,
    /// The samples that could be read, at the places of their outcomes.
    pub samples: Arc<dyn ReadSamples>,
}

/// The structure of a sample, and the type and shape of each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleLayout {
    /// The names of the fields, and their nesting.
    pub structure: SampleStructure,
    /// The type and the shape of each field.
    pub fields: Vec<(DType, Vec<usize>)>,
}

/// The samples of a batch that could not be read, with the reasons.
pub type Skipped = Vec<(u64, Cause)>;

/// The samples of a batch, read in parts.
#[derive(Debug)]
pub(crate) struct BatchRead {
    pub(crate) samples: Vec<u64>,
    /// The parts, and the members that each holds.
    pub(crate) parts: Vec<(Range<usize>, ReadPart)>,
    /// The sample that others are compared to, and its layout, unless this is the first batch.
    pub(crate) first: Option<(u64, SampleLayout)>,
}

/// The way in which samples of a dataset are read.
pub trait Reader: Debug + Send + Sync {
    /// Reads samples, one after the other.
    ///
    /// # Errors
    /// Failures of the machinery. A sample that cannot be read is an outcome.
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart>;
}

/// A source that the thread which asks for samples reads itself.
pub(super) struct Local<S>(pub(super) S);

impl<S: Source> Reader for Local<S> {
    fn read(&self, request: &ReadRequest<'_>) -> Result<ReadPart> {
        let (mut outcomes, mut samples) = (Vec::new(), Vec::new());
        for &number in request.samples {
            if (request.is_stopped)() {
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
        Ok(ReadPart { outcomes, samples: Arc::new(Held(samples)) })
    }
}

impl Debug for ReadRequest<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { samples, seed, epoch, .. } = self;
        write!(formatter, "ReadRequest(samples {samples:?} of epoch {epoch}, seed {seed})")
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
#[derive(Debug)]
pub struct Held(pub Vec<Vec<Tensor>>);

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
