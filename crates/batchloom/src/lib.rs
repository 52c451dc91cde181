#![doc = "temp"]
pub mod cut;
pub mod deal;
pub mod error;
pub mod order;
pub mod plan;
pub use error::{Error, Kind, Result};
pub use plan::Plan;
