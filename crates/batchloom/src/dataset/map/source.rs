//! `Source`: samples that are made when their batch is formed, by code of one's own.

use std::fmt::Debug;
use std::sync::Arc;

use crate::Tensor;
pub use crate::order::SampleRng;
use crate::order::{Purpose, RunEpoch};

/// Any error of a source.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Samples that are made on demand: read from files, decoded, computed.
///
/// Threads of the loader call [`read`](Self::read) when the batch of a sample is formed, and not before. The result
/// should depend on the sample and the generator alone; then so do batches, whatever the number of threads.
///
/// A closure is a source together with the number of its samples:
///
/// ```
/// use batchloom::dataset::{MapDataset, Sample};
/// use batchloom::{Loader, Tensor};
///
/// let squares = |sample: u64, _: &mut _| Ok(Sample::new([("x", Tensor::from_vec(vec![sample * sample], &[])?)]));
/// let loader = Loader::builder(MapDataset::new((100, squares)).build()?).batch_size(10).build()?;
/// let batch = loader.iter().next().ok_or("no batch")??;
/// assert_eq!(batch.field("x").and_then(|x| x.as_slice::<u64>()).map(|x| x[3]), Some(9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: Send + Sync + 'static {
    /// The number of samples.
    fn len(&self) -> u64;

    /// Returns true if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of a sample, for rules that sort, count and budget by it, or `None` if all samples count the same. It
    /// is asked for every sample once, when the dataset is made, and should read no data.
    fn size(&self, _sample: u64) -> Option<u32> {
        None
    }

    /// Makes a sample. `rng` yields numbers that depend on the seed of the run, the epoch and the sample alone, so that
    /// augmentation is the same after a resume, and for any number of threads and ranks.
    ///
    /// # Errors
    /// Any error; the consumer gets it with the number of the sample.
    fn read(&self, sample: u64, rng: &mut SampleRng) -> Result<Sample, SourceError>;
}

impl<F> Source for (u64, F)
where
    F: Fn(u64, &mut SampleRng) -> Result<Sample, SourceError> + Send + Sync + 'static,
{
    fn len(&self) -> u64 {
        self.0
    }

    fn read(&self, sample: u64, rng: &mut SampleRng) -> Result<Sample, SourceError> {
        self.1(sample, rng)
    }
}

/// One sample: an array for each field.
#[derive(Debug, Clone)]
pub struct Sample {
    pub(super) structure: SampleStructure,
    pub(super) fields: Vec<Tensor>,
}

/// The names of a sample's fields, and the way in which a front end nests them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleStructure {
    /// The names of the fields, in order.
    pub names: Arc<[String]>,
    /// The nesting of the fields, in the words of a front end. Samples of one dataset have one nesting.
    pub nesting: Arc<str>,
}

impl Sample {
    /// A sample of named fields. A scalar field has the shape `[]`.
    pub fn new<N: Into<String>>(fields: impl IntoIterator<Item = (N, Tensor)>) -> Self {
        let (names, fields): (Vec<String>, Vec<Tensor>) =
            fields.into_iter().map(|(name, tensor)| (name.into(), tensor)).unzip();
        Self { structure: SampleStructure { names: names.into(), nesting: "".into() }, fields }
    }

    /// The fields, in order.
    pub fn into_fields(self) -> Vec<Tensor> {
        self.fields
    }

    /// A sample with fields that are nested in a way that a front end knows.
    #[doc(hidden)]
    pub fn nested(structure: SampleStructure, fields: Vec<Tensor>) -> Self {
        Self { structure, fields }
    }
}

/// The numbers that a front end's generator for a sample starts from, in an epoch of a run: the first two of the
/// [generator](Source::read) of this crate.
pub fn sample_key(seed: u64, epoch: u64, sample: u64) -> [u64; 2] {
    RunEpoch { seed, epoch }.key_numbers(Purpose::Sample { number: sample })
}

/// The generator for a sample in an epoch of a run.
pub(super) fn generator(seed: u64, epoch: u64, sample: u64) -> SampleRng {
    RunEpoch { seed, epoch }.generator(Purpose::Sample { number: sample })
}

impl std::fmt::Display for SampleStructure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.nesting.is_empty() {
            true => write!(formatter, "({})", self.names.join(", ")),
            false => formatter.write_str(&self.nesting),
        }
    }
}
