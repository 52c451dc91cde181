//! Which rank takes which batch at which step. Knows batches by number and cost only.

mod arrange;
mod steps;

pub(crate) use arrange::Arrange;
pub use steps::{Deal, MOST_RANKS, Uneven};
