//! `BalanceWithin`: the batches among which those of a step are chosen, where ranks are balanced.

use serde::{Deserialize, Serialize};

use crate::named::named;

/// The batches among which those of a step are chosen, where steps hold batches of similar cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BalanceWithin {
    /// The batches of a window of pools: ranks wait least, and steps follow size more or less.
    #[default]
    Window,
    /// The batches of an update of the optimizer, which are random: ranks wait more, and updates hold random samples.
    Update,
}

impl BalanceWithin {
    /// The name of this choice in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Update => "update",
        }
    }

    pub(crate) fn is_window(&self) -> bool {
        *self == Self::Window
    }
}

named!(BalanceWithin, "balance_within", {
    "window" => Window,
    "update" => Update,
});
