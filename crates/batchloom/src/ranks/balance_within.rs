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
    /// Ranks wait least at each step.
    Update,
    /// As [`Update`](Self::Update), for ranks that wait once an update: the sums of their costs are about the same.
    #[serde(rename = "update_sum")]
    UpdateSum,
}

impl BalanceWithin {
    /// The name of this choice in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Update => "update",
            Self::UpdateSum => "update_sum",
        }
    }

    pub(crate) fn is_window(&self) -> bool {
        *self == Self::Window
    }

    /// Returns true if ranks wait once an update, and not at each step.
    pub(crate) fn waits_once(self) -> bool {
        self == Self::UpdateSum
    }
}

named!(BalanceWithin, "balance_within", {
    "window" => Window,
    "update" => Update,
    "update_sum" => UpdateSum,
});
