//! Micro-batches for samples in hand, such as the rollouts of one update: which rank takes which samples, in how many
//! forward and backward passes.
//!
//! [`MicroBatchPlanner`] is a pure function of lengths. Every rank calls it with the lengths of all samples and finds the
//! same [`MicroBatches`], or the same error, without communication. Promises, for every input:
//!
//! - no micro-batch exceeds `max_tokens` or `max_samples`, but a sample that is alone by the user's choice;
//! - all ranks have as many micro-batches, and none is empty: a rank that lacks a sample takes the cheapest one again, at
//!   weight 0;
//! - every sample is in one micro-batch at weight 1, or listed as dropped or left;
//! - costs are compared as integers and ties by number, so the answer is the same on each platform.
//!
//! The files, in the order of the work: `planner.rs` has the options and the whole; `rollouts.rs` has the samples, and
//! `problem.rs` makes `units.rs` of them, which a micro-batch takes whole, with the costs of `price.rs`; `choose.rs` finds how many micro-batches each
//! class needs, and the samples that are left where their number is given; `pack.rs` fills bins under the caps, aiming at
//! the `levels.rs`, `differencing.rs` divides without caps, `share.rs` gives groups and equal numbers to ranks, `refine.rs`
//! moves and swaps, `deal.rs` gives bins to ranks, `lists.rs` keeps members together; `bound.rs` is what no plan can beat, `result.rs` the answer.

mod bins;
mod bound;
mod choose;
mod deal;
mod differencing;
mod error;
mod levels;
mod lists;
mod options;
mod pack;
mod planner;
mod price;
mod problem;
mod refine;
mod result;
mod rollouts;
mod share;
mod tournament;
mod units;
mod variants;

pub use options::{MicroBatchOrder, OversizeSample, SyncEvery, Whole};
pub use planner::MicroBatchPlanner;
pub use result::MicroBatches;
pub use rollouts::Rollouts;
