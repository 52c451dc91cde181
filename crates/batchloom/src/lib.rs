#![doc = "temp"]
pub mod cut;
pub mod dataset;
pub mod deal;
pub mod error;
mod form;
pub mod loader;
pub mod order;
pub mod plan;
pub mod tensor;
pub use dataset::TensorDataset;
pub use error::{Error, Kind, Result};
pub use loader::Loader;
pub use plan::Plan;
pub use tensor::{DType, Tensor};
