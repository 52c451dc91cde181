//! Which rank takes which batch at which step. Knows batches by number and cost only.

mod batch_order;
mod deal;

pub(crate) use batch_order::BatchOrder;
pub use deal::{Deal, MOST_RANKS, Uneven};
