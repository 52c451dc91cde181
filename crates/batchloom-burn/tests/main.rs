//! The laws of batches in Burn, on the backend flex.

mod common;
mod devices;
mod epochs;
mod killed;
mod tensors;
