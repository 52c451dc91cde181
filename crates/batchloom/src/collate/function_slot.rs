//! `FunctionSlot`: slots that a function of the user fills.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::slot_place::SlotPlace;
use crate::error::{Cause, ReadError};
use crate::order::SampleRng;
use crate::{DType, Result, Tensor};

/// The error of a function, of any type.
pub type SlotError = Box<dyn std::error::Error + Send + Sync>;

/// A function that fills the slot of a sample. Closures are such functions.
pub trait FillSlot: Send + Sync {
    /// Fills the slot of a sample. The elements of the slot are padding until then. `place` has the number of the sample
    /// and a [generator](SlotPlace::generator) of random numbers for it.
    ///
    /// # Errors
    /// Any: the batch is then an error that names the sample.
    fn fill(&self, sample: &Tensor, place: &SlotPlace, slot: SlotMut<'_>) -> Result<(), SlotError>;
}

impl<F> FillSlot for F
where
    F: Fn(&Tensor, SlotMut<'_>) -> Result<(), SlotError> + Send + Sync,
{
    fn fill(&self, sample: &Tensor, _: &SlotPlace, slot: SlotMut<'_>) -> Result<(), SlotError> {
        self(sample, slot)
    }
}

/// A function that draws random numbers.
struct Drawing<F>(F);

impl<F> FillSlot for Drawing<F>
where
    F: Fn(&Tensor, SlotMut<'_>, &mut SampleRng) -> Result<(), SlotError> + Send + Sync,
{
    fn fill(&self, sample: &Tensor, place: &SlotPlace, slot: SlotMut<'_>) -> Result<(), SlotError> {
        (self.0)(sample, slot, &mut place.generator())
    }
}

/// The slot of a sample, to be filled.
#[derive(Debug)]
pub struct SlotMut<'a> {
    /// The type of an element.
    pub dtype: DType,
    /// The shape.
    pub shape: &'a [usize],
    /// The bytes of the elements, one after the other.
    pub bytes: &'a mut [u8],
}

/// Slots that a function fills.
///
/// ```
/// use batchloom::loader::{FunctionSlot, SlotMut};
/// use batchloom::{Loader, Tensor, TensorDataset};
///
/// let sums = |sample: &Tensor, slot: SlotMut<'_>| {
///     let sum: f32 = sample.as_slice::<f32>().unwrap_or_default().iter().sum();
///     slot.bytes.copy_from_slice(&sum.to_ne_bytes());
///     Ok(())
/// };
/// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let loader = Loader::builder(TensorDataset::new([("x", x)])?).collate("x", FunctionSlot::new(sums).shape([]));
/// let batch = loader.batch_size(2).build()?.iter().next().expect("a batch")?;
/// assert_eq!(batch.field("x").and_then(Tensor::as_slice::<f32>), Some(&[3.0, 7.0][..]));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct FunctionSlot {
    /// The shape of a slot, or `None` for the largest extents of the batch.
    pub(super) shape: Option<Vec<usize>>,
    /// The type of an element, or `None` for the type of samples.
    pub(super) dtype: Option<DType>,
    /// The name by which a process knows the function.
    name: String,
    #[serde(skip)]
    function: Option<Arc<dyn FillSlot>>,
}

impl FunctionSlot {
    /// Slots of the type of their samples and of the largest extents of the batch.
    pub fn new(function: impl FillSlot + 'static) -> Self {
        Self { shape: None, dtype: None, name: String::new(), function: Some(Arc::new(function)) }
    }

    /// Slots of a function that draws random numbers. They follow from the seed of the run, the epoch and the sample
    /// alone: all fields of a sample draw the same ones, so that an image and its mask are cut alike.
    ///
    /// ```
    /// use batchloom::dataset::SampleRng;
    /// use batchloom::loader::{FunctionSlot, SlotMut};
    /// use batchloom::{Loader, Tensor, TensorDataset};
    /// use rand::Rng;
    ///
    /// let noise = |_: &Tensor, slot: SlotMut<'_>, rng: &mut SampleRng| {
    ///     rng.fill_bytes(slot.bytes);
    ///     Ok(())
    /// };
    /// let dataset = TensorDataset::new([("x", Tensor::from_vec(vec![0_u8; 6], &[6])?)])?;
    /// let slot = FunctionSlot::with_rng(noise).shape([4]);
    /// let loader = Loader::builder(dataset).collate("x", slot).batch_size(2).build()?;
    /// let rows = |epoch: &[Tensor]| epoch.iter().flat_map(|x| x.bytes().to_vec()).collect::<Vec<u8>>();
    /// let epoch = || loader.iter().map(|batch| Ok(batch?.fields()[0].clone())).collect::<batchloom::Result<Vec<_>>>();
    /// let (first, second) = (epoch()?, epoch()?);
    /// assert_ne!(rows(&first), rows(&second));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn with_rng<F>(function: F) -> Self
    where
        F: Fn(&Tensor, SlotMut<'_>, &mut SampleRng) -> Result<(), SlotError> + Send + Sync + 'static,
    {
        Self::new(Drawing(function))
    }

    /// Sets the shape of slots.
    #[must_use]
    pub fn shape(self, shape: impl Into<Vec<usize>>) -> Self {
        Self { shape: Some(shape.into()), ..self }
    }

    /// Sets the type of the elements of slots.
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// The name by which a process knows the function.
    #[doc(hidden)]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same slots, filled by a function that was found by its name.
    #[doc(hidden)]
    #[must_use]
    pub fn with_function(self, function: impl FillSlot + 'static) -> Self {
        Self { function: Some(Arc::new(function)), ..self }
    }

    /// Fills the slot of a sample.
    ///
    /// # Errors
    /// [`ReadError::SlotFunction`].
    pub(super) fn fill(&self, sample: &Tensor, place: &SlotPlace, slot: SlotMut<'_>) -> Result<()> {
        let filled = match &self.function {
            Some(function) => function.fill(sample, place, slot),
            None => Err(format!("function {} is not known here", self.name).into()),
        };
        filled.map_err(|error| {
            ReadError::SlotFunction { sample: place.number, cause: Cause::from(error) }.into()
        })
    }
}

impl Debug for FunctionSlot {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { shape, dtype, .. } = self;
        formatter
            .debug_struct("FunctionSlot")
            .field("shape", shape)
            .field("dtype", dtype)
            .finish_non_exhaustive()
    }
}
