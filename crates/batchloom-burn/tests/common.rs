//! A dataset whose samples are their numbers, and what tests ask of loaders.

use std::sync::Arc;

use batchloom::{Loader, Tensor, TensorDataset};
use batchloom_burn::{BatchLoader, tensor};
use burn::data::dataloader::DataLoader;
use burn::tensor::{Device, Int, Tensor as BurnTensor};

/// Batches of the numbers of samples.
pub(crate) type Numbers = BurnTensor<1, Int>;

/// A loader of the engine over so many samples.
pub(crate) fn engine(samples: i64, batch_size: u64, threads: usize) -> Arc<Loader> {
    let x = Tensor::from((0..samples).collect::<Vec<_>>());
    let builder = Loader::builder(TensorDataset::new([("x", x)]).unwrap());
    Arc::new(builder.batch_size(batch_size).shuffle(true).seed(7).num_threads(threads).build().unwrap())
}

/// The same as one of Burn.
pub(crate) fn fed(loader: &Arc<Loader>) -> BatchLoader<Numbers> {
    BatchLoader::new(Arc::clone(loader), Device::flex(), |batch, device| tensor(batch, "x", device))
}

/// The batches of the next epoch.
pub(crate) fn epoch(loader: &dyn DataLoader<Numbers>) -> Vec<Vec<i64>> {
    loader.iter().map(|batch| numbers(batch.unwrap())).collect()
}

/// The numbers of a batch.
pub(crate) fn numbers(batch: Numbers) -> Vec<i64> {
    batch.into_data().try_into_vec::<i64>().unwrap()
}
