//! What a sample is. One kind of data a file.

mod tensors;

pub use tensors::TensorDataset;
