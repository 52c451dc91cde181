//! Batches from a plan and a dataset: blocks, threads, delivery.
//!
//! This is the only folder that owns threads. It moves bytes and decides nothing: the plan decides which samples come
//! in which order, and the form how a row is copied. The protocol between the threads is in `README.md` beside this
//! file.

mod block;
mod blocks;
mod buffers;
mod builder;
mod demand;
mod epochs;
mod error;
mod failure;
mod fields;
mod held;
mod index_table;
#[cfg(all(test, shuttle))]
#[path = "../../tests/interleavings/mod.rs"]
mod interleavings;
mod job;
mod layout;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod loader;
mod placement;
mod planned;
mod queue;
mod read_ahead;
mod replay;
mod signal;
mod steps;
mod views;
mod worker;
mod workers;

pub use block::{Batch, Block, ShapeRun};
pub use blocks::{Batches, Blocks, Polled, require_process};
pub use builder::LoaderBuilder;
pub use loader::Loader;
pub use placement::{Limit, LimitSource, Placement, PlacementMode, PlacementRequest, Residency};
pub use steps::Steps;
pub use views::Views;

pub use crate::collate::{
    Channels, Crop, DocumentMask, FieldConversion, FillSlot, Filter, FunctionSlot, Keep, MaskKind, PadSide,
    PadSlot, ReadSamples, Resize, Scalar, Slot, SlotError, SlotMut, SlotPlace, SlotTarget, SlotWriter,
};
pub use crate::run::Metrics;
pub use crate::tensor::buffer::{Memory, Region};
