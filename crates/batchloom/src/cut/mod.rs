//! Which samples share a batch: a rule, and the cut that it makes of an order.
//!
//! A rule is what the user asked for; a [`Cut`] is that rule applied to a number of samples. A cut knows sizes and
//! positions in the order, neither which sample stands at a position nor which rank takes a batch. One rule a file.

mod fixed;

use std::ops::Range;

pub use fixed::FixedSize;
use serde::Serialize;

/// How samples share a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Rule {
    /// Equal numbers of samples, in order.
    FixedSize(FixedSize),
}

impl From<FixedSize> for Rule {
    fn from(rule: FixedSize) -> Self {
        Self::FixedSize(rule)
    }
}

/// The batches that a rule makes of `samples` positions, numbered from 0.
#[derive(Debug, Clone)]
pub struct Cut {
    rule: Rule,
    samples: u64,
    drop_last: bool,
}

impl Cut {
    /// The cut of `samples` positions by `rule`; `drop_last` leaves out what does not fill a batch.
    pub fn new(rule: Rule, samples: u64, drop_last: bool) -> Self {
        Self { rule, samples, drop_last }
    }

    /// How many batches there are.
    pub fn batches(&self) -> u64 {
        match &self.rule {
            Rule::FixedSize(rule) => rule.batches(self.samples, self.drop_last),
        }
    }

    /// The positions that `batch` holds.
    pub fn positions(&self, batch: u64) -> Range<u64> {
        match &self.rule {
            Rule::FixedSize(rule) => rule.positions(batch, self.samples),
        }
    }

    /// The batch that holds `position`, or none where the rule drops it.
    pub fn batch_of(&self, position: u64) -> Option<u64> {
        let batch = match &self.rule {
            Rule::FixedSize(rule) => rule.batch_of(position),
        };
        (batch < self.batches()).then_some(batch)
    }

    /// Samples in the first `batches` batches.
    pub fn samples_before(&self, batches: u64) -> u64 {
        match batches {
            0 => 0,
            batches => self.positions(batches - 1).end,
        }
    }
}
