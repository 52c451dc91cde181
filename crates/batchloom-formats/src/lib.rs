#![doc = include_str!("../README.md")]

mod buffers;
mod error;
mod file;
mod guard;
pub mod json_lines;
mod kept_index;
mod open;
mod parallel;
pub mod parquet;
mod source;

pub use error::{FormatError, FormatErrorKind, Result};
#[doc(hidden)]
pub use guard::{catch_panic, silence_panics};
pub use json_lines::JsonLines;
pub use kept_index::BESIDE;
pub use open::{OpenFiles, open};
pub use parallel::Progress;
pub use parquet::{ParquetFiles, ParquetIndex, ParquetSource};
pub use source::{FieldType, FileChunks, FileSource, SampleElements};
