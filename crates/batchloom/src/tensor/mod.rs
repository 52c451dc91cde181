//! Type-erased arrays: bytes, a dtype and a layout.
//!
//! The engine moves bytes and knows shapes; the meaning of the numbers is the framework's business. Memory is shared
//! and counted ([`bytes::Bytes`]), whatever owns it: a vector, a memory map, a NumPy array, or a block of the engine.

#[cfg(feature = "ndarray")]
mod arrays;
pub(crate) mod buffer;
mod chunked;
mod dtype;
pub(crate) mod error;
mod layout;
mod mapped_file;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "safetensors")]
mod safetensors;
mod sequences;
mod sparse_rows;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod tensor;

pub use chunked::ChunkedTensor;
pub(crate) use chunked::{DenseChunks, Place};
pub use dtype::{DType, Element};
pub use layout::Layout;
pub(crate) use layout::{Rows, step_from};
pub(crate) use mapped_file::MappedFile;
#[cfg(feature = "npy")]
pub use npy::NpyHeader;
pub use sequences::Sequences;
pub(crate) use sparse_rows::{Column, is_ascending};
pub use sparse_rows::{SparseLayout, SparseRows};
pub use tensor::Tensor;
