//! How the bytes of samples become the bytes of batches. Knows sources and slots, neither seeds nor threads.

mod stack;

pub(crate) use stack::{Slots, stack};
