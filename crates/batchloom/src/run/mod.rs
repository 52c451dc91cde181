//! The place in a run: the epoch under way, the batches of it that were handed over, and the state to go on from.
//!
//! A [`Plan`](crate::Plan) is the batches of one epoch, for ever. A [`Run`] goes from epoch to epoch. A
//! [`Loader`](crate::Loader) holds one; programs with their own readers hold one without a loader.

mod error;
mod iteration;
mod metrics;
mod progress;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod run;

pub use iteration::Iteration;
pub use metrics::Metrics;
pub(crate) use progress::Progress;
pub use run::Run;
