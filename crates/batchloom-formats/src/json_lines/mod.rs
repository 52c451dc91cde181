//! Lines of JSON: numbers and lists of numbers, parsed straight into the memory of a chunk.
//!
//! A chunk is a run of whole lines of about a megabyte. One look at the files finds the chunks, the types and the lengths of
//! lists; blank lines hold no sample.

mod lines;
mod parser;
mod scan;
mod source;

pub use lines::line_places;
pub use source::{JsonColumn, JsonLines, JsonLinesSource, JsonWord};
