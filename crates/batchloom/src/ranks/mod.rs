//! The distribution of batches to ranks and steps.
//!
//! This module knows batches only by number and cost.

mod balance_within;
mod batch_order;
mod deal;
mod error;
mod launched;
mod update_order;
mod update_sums;

pub use balance_within::BalanceWithin;
pub(crate) use batch_order::{BatchOrder, Dealt};
pub use deal::{Deal, MOST_RANKS, Uneven};
pub use launched::{launched, launched_by};
pub(crate) use update_order::Updates;
