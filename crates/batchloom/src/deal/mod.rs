//! Which rank takes which batch at which step. Knows batches by number only.

mod steps;

pub use steps::{Deal, MOST_RANKS, Uneven};
