#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! Data goes one way, and the modules are its stages:
//!
//! ```text
//!             order          batching       ranks            collate            delivery
//! dataset ──▶ which sample ─▶ which samples ─▶ which batch, ─▶ bytes of several ─▶ batches are views
//! (sizes)     is drawn when   share a batch    which rank,     batches at once,    sliced out of the block
//!                                              which step      one block
//! ```
//!
//! - [`Plan`] ([`order`], [`batching`], [`ranks`], [`plan`]): integers only, no data. Any step of any epoch in O(1)
//!   time and memory; equal steps for every rank; exact resume with any number of ranks.
//! - [`MicroBatchPlanner`](micro_batches::MicroBatchPlanner) ([`micro_batches`]): samples in hand, divided among ranks and
//!   into micro-batches by the true cost.
//! - [`Run`] ([`run`]): the place in a run, from epoch to epoch, and its state.
//! - [`Loader`] ([`tensor`], [`dataset`], [`loader`]): moves bytes and decides nothing. It has its own threads and
//!   bounded memory, and recycles blocks when the last batch that views them is gone.
//!
//! # Compared with common designs
//!
//! | | here | a shuffled index list | a pool of loader processes |
//! |---|---|---|---|
//! | memory of an epoch's order | 200 bytes | 8 bytes a sample | 8 bytes a sample |
//! | first batch of a billion samples | microseconds | tens of seconds | tens of seconds |
//! | resume in mid-epoch | O(1), any world size | replay | replay |
//! | steps of each rank | equal, known beforehand | as the sampler pads | as the sampler pads |
//! | work for each sample | one row copy | one row copy | a call, a pickle, a copy, a stack |
//!
//! # Panics
//!
//! Functions that work like indexing panic on an index that is out of range, as slices do, and document it. Other input
//! of a user never causes a panic; it is an error.

pub mod batching;
mod brief;
mod collate;
mod cores;
pub mod dataset;
pub mod draws;
pub mod error;
pub mod loader;
mod memory;
pub mod micro_batches;
mod named;
pub mod order;
pub mod plan;
pub mod ranks;
#[cfg(feature = "report")]
pub mod report;
pub mod run;
mod sync;
pub mod tensor;

pub use dataset::{GroupDataset, MapDataset, SequenceDataset, TensorDataset, TokenDataset, WindowDataset};
pub use error::{Error, Kind, Result};
pub use loader::Loader;
pub use plan::Plan;
pub use run::Run;
pub use tensor::{ChunkedTensor, DType, Tensor};

/// The guide from Rust; its code is tested with this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
