//! The laws of the design, one file a promise, in one binary.

mod batches;
mod determinism;
mod direction;
mod lifetime;
mod order;
mod plan;
mod resume;
mod threads;
