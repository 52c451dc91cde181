#![doc = include_str!("../README.md")]

mod batch_loader;
#[cfg(feature = "train")]
mod checkpoint;
mod error;
mod iteration;
mod part;
mod tensors;

pub use batch_loader::BatchLoader;
#[cfg(feature = "train")]
pub use checkpoint::StateFile;
pub use error::{Error, Result};
pub use tensors::{data, tensor};
