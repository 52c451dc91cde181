//! The laws of batches in Burn, on the backend flex.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's values are small, and a panic is how it fails"
)]

mod common;
mod devices;
mod epochs;
mod killed;
mod tensors;
