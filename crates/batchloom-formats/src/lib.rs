#![doc = include_str!("../README.md")]

mod error;
mod file;
mod guard;
pub mod parquet;
mod source;

pub use error::{FormatError, FormatErrorKind, Result};
pub use parquet::{ParquetFiles, ParquetIndex, ParquetSource};
pub use source::{FileChunks, FileSource};
