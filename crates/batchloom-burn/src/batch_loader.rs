//! A loader of the engine as a data loader of Burn.
//!
//! Promises: each iteration is the next epoch, and all loaders that `to_device` makes of one count epochs together; the
//! parts for several devices are ranks, with equal numbers of steps. A part begins with the epoch that begins next when
//! it is made, and then counts its epochs.

use std::fmt;
use std::sync::Arc;

use batchloom::Loader;
use batchloom::loader::Batch;
use burn_core::data::dataloader::{DataLoader, DataLoaderIterator};
use burn_core::tensor::Device;

use crate::iteration::{Iteration, MakeInput};
use crate::part::part_of;
use crate::{Error, Result};

/// A loader of the engine that Burn reads: for `SupervisedTraining`, or a loop of your own.
///
/// ```
/// use std::sync::Arc;
///
/// use batchloom::{Loader, Tensor, TensorDataset};
/// use batchloom_burn::{BatchLoader, tensor};
/// use burn::data::dataloader::DataLoader;
/// use burn::tensor::{Device, Int, Tensor as BurnTensor};
///
/// struct Rows {
///     x: BurnTensor<2>,
///     y: BurnTensor<1, Int>,
/// }
///
/// let x = Tensor::from_vec((0..1_000).map(|value| value as f32).collect(), &[250, 4])?;
/// let y = Tensor::from((0..250_i64).collect::<Vec<_>>());
/// let dataset = TensorDataset::new([("x", x), ("y", y)])?;
/// let loader = Loader::builder(dataset).batch_size(32).shuffle(true).seed(7).build()?;
/// let loader = BatchLoader::new(loader, Device::flex(), |batch, device| {
///     Ok(Rows { x: tensor(batch, "x", device)?, y: tensor(batch, "y", device)? })
/// });
///
/// let mut rows = 0;
/// for batch in loader.iter() {
///     let Rows { x, y } = batch?;
///     assert_eq!(x.dims()[0], y.dims()[0]);
///     rows += x.dims()[0];
/// }
/// assert_eq!(rows, loader.num_items());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BatchLoader<O> {
    part: LoaderPart,
    make: MakeInput<O>,
    device: Device,
}

/// The part of the batches that a loader yields.
#[derive(Clone)]
enum LoaderPart {
    /// All batches, or the batches of the rank that the engine's loader serves.
    Whole(Arc<Loader>),
    /// Those for one of several devices.
    Device(Arc<Loader>),
    /// It is no part. Burn's trait has no way to report it before the first batch.
    Refused(Error),
}

impl<O: 'static> BatchLoader<O> {
    /// The batches of `loader`; `make` makes the input of a model of each, on the device that it is given:
    /// `device`, until Burn moves the loader to other devices.
    ///
    /// The loader may serve one rank of several processes. Devices then divide what that rank takes.
    pub fn new(
        loader: impl Into<Arc<Loader>>,
        device: Device,
        make: impl Fn(&Batch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        Self { part: LoaderPart::Whole(loader.into()), make: Arc::new(make), device }
    }

    /// The loader of the engine, which knows epoch, state and plan.
    ///
    /// # Errors
    /// [`Error::Slice`] if this is a slice that is no part.
    pub fn loader(&self) -> Result<&Arc<Loader>> {
        match &self.part {
            LoaderPart::Whole(loader) | LoaderPart::Device(loader) => Ok(loader),
            LoaderPart::Refused(error) => Err(error.clone()),
        }
    }

    /// A loader for each device, with equal numbers of steps. The batches that are left over at the end of an epoch are
    /// dealt by [`Uneven`](batchloom::ranks::Uneven): by default, some are repeated.
    ///
    /// Burn's `split_dataloader` leads to the same parts, by way of `slice`, unless the items are no more than the
    /// cube of the devices.
    ///
    /// # Errors
    /// Those of [`Loader::on_rank`], and [`Error::Slice`] if this is a part already.
    pub fn split(&self, devices: &[Device]) -> Result<Vec<Arc<dyn DataLoader<O>>>> {
        let part = |(rank, device): (usize, &Device)| {
            let part = LoaderPart::Device(self.on_device(rank, devices.len())?);
            Ok(Arc::new(Self { part, make: Arc::clone(&self.make), device: device.clone() })
                as Arc<dyn DataLoader<O>>)
        };
        devices.iter().enumerate().map(part).collect()
    }

    /// The loader for device `index` of `devices`.
    fn on_device(&self, index: usize, devices: usize) -> Result<Arc<Loader>> {
        let loader = match &self.part {
            LoaderPart::Whole(loader) => loader,
            LoaderPart::Refused(error) => return Err(error.clone()),
            LoaderPart::Device(_) => {
                let items = self.num_items();
                return Err(Error::Slice { start: index, end: index, items, reason: "those of a part" });
            }
        };
        let [index, devices] = [index, devices].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        // The loader refuses more ranks than there may be.
        let world = loader.world_size().saturating_mul(devices);
        let first = loader.rank().saturating_mul(world / loader.world_size());
        Ok(Arc::new(loader.on_rank(first.saturating_add(index), world)?))
    }

    /// The part that items `start..end` are.
    fn part_of_items(&self, start: usize, end: usize) -> Result<LoaderPart> {
        let items = self.num_items();
        Ok(match part_of(start, end, items)? {
            (0, 1) => self.part.clone(),
            (rank, count) => LoaderPart::Device(self.on_device(rank as usize, count as usize)?),
        })
    }
}

impl<O: 'static> DataLoader<O> for BatchLoader<O> {
    /// The batches of the next epoch, or what is left of one, if a state was loaded.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let batches = self.loader().map(|loader| loader.iter()).map_err(|error| error.clone());
        let steps =
            self.loader().map_or(0, |loader| loader.plan(loader.upcoming().epoch()).steps_of(loader.rank()));
        Box::new(Iteration::new(batches, steps, self.num_items(), &self.make, &self.device))
    }

    /// The samples that an epoch draws, or the share of them of a rank or a part, rounded up.
    fn num_items(&self) -> usize {
        self.loader().map_or(0, |loader| {
            let plan = loader.upcoming();
            usize::try_from(plan.draws().div_ceil(plan.world_size().into())).unwrap_or(usize::MAX)
        })
    }

    /// The same loader with its batches on `device`: epochs are counted together.
    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(Self { part: self.part.clone(), make: Arc::clone(&self.make), device: device.clone() })
    }

    /// The part of one of several devices, from the items that Burn divides. A slice that is no part yields its error
    /// in place of the first batch.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let part = self.part_of_items(start, end).unwrap_or_else(LoaderPart::Refused);
        Arc::new(Self { part, make: Arc::clone(&self.make), device: self.device.clone() })
    }
}

impl<O> fmt::Debug for BatchLoader<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part: &dyn fmt::Debug = match &self.part {
            LoaderPart::Whole(loader) | LoaderPart::Device(loader) => loader,
            LoaderPart::Refused(error) => error,
        };
        formatter.debug_struct("BatchLoader").field("part", part).field("device", &self.device).finish()
    }
}
