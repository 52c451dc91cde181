//! Samples that differ in size: the dataset, and the builder to which its fields are added.

mod builder;
mod dataset;
mod field;
mod lengths;
mod size_of;

pub use builder::SequenceDatasetBuilder;
pub use dataset::SequenceDataset;
pub use size_of::SizeOf;
