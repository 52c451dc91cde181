//! The laws of the design, one file a promise, in one binary.

mod order;
mod plan;
mod resume;
