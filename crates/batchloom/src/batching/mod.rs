//! Rules for which samples share a batch. One rule a file.
//!
//! A [`Rule`] is the user's choice. It is applied to one pool at a time, a run of the epoch's order: it is given the
//! sizes of the samples there and divides them, by their places in the pool, into batches. It knows neither the sample
//! at a place nor the rank that takes a batch.
//!
//! A new rule is a file that answers the questions of `pool_rule.rs` and implements the spelling of `spelling.rs`, a
//! line in the list of `rule.rs`, and its line among the exports here.

mod bins;
mod budget_parts;
mod budgeted;
mod budgets;
mod cost;
mod cost_model;
mod cost_optimal;
mod disjoint;
pub(crate) mod error;
mod even_bins;
mod fixed_size;
mod grouping;
mod keys;
mod labels;
mod length_buckets;
mod listed;
mod loss;
mod mixed;
mod named_sizes;
mod oversize;
mod packing;
mod pad_to;
mod parameters;
mod pool;
mod pool_batches;
mod pool_budgets;
mod pool_rule;
mod rests;
mod rows;
mod rule;
mod shelf;
mod sizes;
mod sorted;
mod sorting;
mod spelling;
mod surplus;
mod token_budget;
mod transformer;
mod vector_bins;

pub(crate) use budgeted::Budgeted;
pub use budgets::Budgets;
pub(crate) use cost::BatchShape;
pub use cost::Cost;
pub use cost_model::{CostModel, Fit, Measurement};
pub use cost_optimal::CostOptimal;
pub use fixed_size::FixedSize;
pub(crate) use grouping::{Grouped, Grouping};
pub use keys::Keys;
pub use labels::{LabelCounts, Labels};
pub(crate) use labels::{SampleLabels, pieces};
pub use length_buckets::LengthBuckets;
pub use listed::Listed;
pub use loss::Loss;
use mixed::mix_places;
pub use oversize::Oversize;
pub use packing::{PackedOversize, Packing, PackingOrder};
pub(crate) use pad_to::Rounding;
pub use pad_to::{PadTo, Truncate};
use parameters::positive;
pub use pool::Pool;
pub(crate) use pool::PoolBounds;
pub(crate) use pool_batches::PoolBatches;
use pool_batches::{to_index, to_place};
pub(crate) use pool_budgets::PoolBudgets;
pub use rests::Rests;
pub use rows::RowShape;
pub use rule::Rule;
pub use sizes::Sizes;
pub(crate) use sizes::{PoolSizes, Union, round_up};
use sorted::Sorted;
pub use surplus::Surplus;
pub use token_budget::{Count, TokenBudget};
pub use transformer::Transformer;
