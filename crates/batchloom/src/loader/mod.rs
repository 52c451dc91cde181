//! Batches from a plan and a dataset: blocks, threads, delivery.
//!
//! The only folder that owns threads. It moves bytes and decides nothing: which samples, in which order, is the plan's
//! business, and how a row is copied is the form's. The protocol between the threads is in `README.md` beside this file.

mod block;
mod blocks;
mod buffers;
mod builder;
mod cursor;
mod fields;
mod index_table;
mod job;
mod layout;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod loader;
mod queue;
mod steps;
mod worker;

pub use block::{Batch, Block, ShapeRun};
pub use blocks::{Batches, Blocks, Polled};
pub use builder::LoaderBuilder;
pub use loader::Loader;
pub use steps::Steps;

pub use crate::collate::PadSide;
pub use crate::tensor::buffer::Memory;
