//! The distribution of batches to ranks and steps.
//!
//! This module knows batches only by number and cost.

mod batch_order;
mod deal;
mod error;
mod launched;

pub(crate) use batch_order::{BatchOrder, Dealt};
pub use deal::{Deal, MOST_RANKS, Uneven};
pub use launched::{launched, launched_by};
