//! The samples that an epoch draws, if they are not all of them once.
//!
//! An epoch is a sequence of draws, and [`order`](crate::order) computes the sample at each place of a permutation.
//! Here a sample may be drawn several times, or never: because samples have weights, because an epoch has another
//! length than the data, or because several sources of data are mixed. Promises:
//!
//! - Draws are a pure function of seed, epoch and weights, and can be asked for at any position.
//! - The positions of a sample can be asked for as well.
//! - But for mixtures by tokens or labels, which list the draws of an epoch once, nothing grows with their number.

mod chunk_slots;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named for")]
mod draws;
mod error;
mod history;
mod measured;
mod mix;
mod mixed;
mod per_class;
mod source_window;
mod stream;
mod stretch;
mod turns;
mod weighted;
mod weights;
mod wheel;

pub(crate) use chunk_slots::OpenedChunk;
pub(crate) use draws::Draws;
pub use history::{History, WrittenWeights};
pub use mix::{Exhausted, Mix};
pub(crate) use mixed::Mixed;
pub(crate) use per_class::PerClass;
pub use source_window::SourceWindow;
pub(crate) use stream::Stream;
pub(crate) use weighted::Weighted;
pub use weights::Weights;
