//! Which samples share a batch.
//!
//! A [`Rule`] is what the user asked for. It is applied to one pool at a time, a run of the epoch's order: it is told
//! the sizes of the samples there and says which of them, by their places in the pool, make which batch. It knows neither
//! which sample stands at a place nor which rank takes a batch. One rule a file.

mod buckets;
mod budget;
mod fixed;
mod optimal;
mod oversize;
mod packing;
mod rule;
mod sizes;
mod sorted;

pub use buckets::LengthBuckets;
pub use budget::{Count, TokenBudget};
pub use fixed::FixedSize;
pub use optimal::{CostModel, CostOptimal};
pub use oversize::Oversize;
pub use packing::{PackedOversize, Packing};
pub(crate) use rule::PoolBatches;
pub use rule::Rule;
use rule::{POOL, index, place, positive};
pub use sizes::Sizes;
pub(crate) use sizes::{PoolSizes, Union, padded};
use sorted::Sorted;
