//! The plan: the steps of one epoch, in integers only.
//!
//! It puts [`order`](crate::order), [`batching`](crate::batching) and [`ranks`](crate::ranks) together. A plan is a
//! pure function of (samples, their sizes, rule, shuffle, seed, epoch, world) and of the earlier parts of the epoch. It
//! never touches data.

mod banned;
mod bans;
mod budget_stats;
mod builder;
mod chunk_pools;
mod chunk_reads;
mod chunk_stats;
mod conflicts;
#[cfg(feature = "report")]
mod dealt;
mod epoch;
pub(crate) mod error;
mod fill;
mod full_pools;
mod label_sums;
mod loss_denominator;
mod mates;
mod measure;
pub(crate) mod options;
mod parts;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod plan;
mod pool;
mod pool_memory;
mod recipe;
mod restore_order;
mod runs;
mod state;
mod stats;
mod step;
mod step_spread;
mod survey;
mod update;

pub use bans::{Ban, Banned};
pub use budget_stats::{BudgetFill, BudgetStats};
pub use builder::PlanBuilder;
pub(crate) use chunk_reads::SlotsAhead;
pub use chunk_stats::ChunkStats;
pub(crate) use chunk_stats::ChunksNeeded;
pub use options::PlanOptions;
pub use parts::Parts;
pub use plan::Plan;
pub use restore_order::restore_order;
pub use state::{STATE_VERSION, State};
pub use stats::Stats;
pub use step::{Place, Step};
