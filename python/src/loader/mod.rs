//! Loaders: `loader` begins epochs, `batches` iterates over batches of blocks, `steps` over batches that are views of
//! the data, `assembly` puts batches together of a `column` for each field, batches on a device are made of a `block`, and
//! `placement` decides about the way there.

mod allocation;
mod assembly;
mod batches;
mod block;
mod column;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod loader;
mod placement;
mod steps;

pub(crate) use assembly::HostViews;
pub(crate) use batches::{Batches, forked};
pub(crate) use block::Block;
pub(crate) use column::Column;
pub(crate) use loader::Loader;
pub(crate) use placement::PlacementRequest;
pub(crate) use steps::{StepIterator, Steps};
