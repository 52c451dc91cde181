//! Parquet: pages decoded straight into the memory of a chunk.
//!
//! Levels are looked at as runs and plain values are copied, so that lists cost what their bytes cost. A file that needs
//! more than that, by its types or encodings, is refused as unsupported before anything is read, and another reader can
//! take it.

mod chunks;
mod columns;
mod decode;
mod decompress;
mod fields;
mod files;
mod header;
mod index;
mod levels;
mod pages;
mod scan;
mod source;
mod values;

pub use columns::{ColumnInfo, ColumnLayout};
pub use fields::Null;
pub use files::ParquetFiles;
pub use index::ParquetIndex;
pub use source::{FieldColumns, ParquetSource};
