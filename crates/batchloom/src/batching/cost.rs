//! `Cost`: the cost of a batch, for comparing batches.
//!
//! The rule [`CostOptimal`](super::CostOptimal), the order of batches with `balance`, and the share of time that ranks
//! wait ask one value. Without a model, a batch costs its elements, padding counted.

use std::fmt;

use serde::Serialize;

use super::CostModel;

/// The cost of a batch: its elements, or the answer of a model.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::batching::{Cost, CostModel, LengthBuckets, Sizes};
///
/// // A batch costs 1 for each element, and as much again for 1024 pairs of elements of a sample.
/// let cost = Cost::from(CostModel::new(0.0, 1.0, 1.0 / 1024.0)?);
/// assert_eq!(cost.of_padded(2, 1024), 4096.0);
/// assert_eq!(Cost::Elements.of_padded(2, 1024), 2048.0);
///
/// let sizes = Sizes::new((1..=1000).collect::<Vec<u32>>());
/// let plan = Plan::builder(1000).sizes(sizes).rule(LengthBuckets::new(10)?).shuffle(true);
/// let plan = plan.world_size(4).balance(true).cost(cost).build()?;
/// assert!(plan.stats().imbalance < 0.1);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Cost {
    /// The number of elements, padding counted.
    #[default]
    Elements,
    /// The cost by a model, in its unit.
    Model(CostModel),
}

impl From<CostModel> for Cost {
    fn from(model: CostModel) -> Self {
        Self::Model(model)
    }
}

/// Writes `tokens`, or the coefficients of the model.
impl fmt::Display for Cost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements => formatter.pad("tokens"),
            Self::Model(model) => model.fmt(formatter),
        }
    }
}

/// The shape of a batch, on which its cost depends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BatchShape<'a> {
    /// `samples` samples, each padded to `length` elements.
    Padded { samples: u64, length: u64 },
    /// Samples of these sizes, one after the other.
    Packed(&'a [u32]),
}

impl BatchShape<'_> {
    /// The number of elements, padding counted.
    fn elements(&self) -> u64 {
        match self {
            Self::Padded { samples, length } => length.saturating_mul(*samples),
            Self::Packed(sizes) => sizes.iter().map(|&size| u64::from(size)).sum(),
        }
    }
}

impl Cost {
    /// The cost of a batch of `samples` samples padded to `length`.
    pub fn of_padded(&self, samples: u64, length: u64) -> f64 {
        self.of(BatchShape::Padded { samples, length })
    }

    /// The cost of any batch, whatever it contains.
    pub(crate) fn fixed(&self) -> f64 {
        match self {
            Self::Elements => 0.0,
            Self::Model(model) => model.fixed(),
        }
    }

    /// The cost that one sample padded to `length` adds.
    pub(crate) fn price(&self, length: u64) -> f64 {
        match self {
            Self::Elements => length as f64,
            Self::Model(model) => model.price(length),
        }
    }

    /// The cost of a batch.
    pub(crate) fn of(&self, batch: BatchShape<'_>) -> f64 {
        match (self, batch) {
            (Self::Elements, batch) => batch.elements() as f64,
            (Self::Model(model), BatchShape::Padded { samples, length }) => model.cost(samples, length),
            (Self::Model(model), BatchShape::Packed(sizes)) => {
                let squares = sizes.iter().map(|&size| u128::from(size).pow(2)).sum();
                model.packed_cost(sizes.iter().map(|&size| u64::from(size)).sum(), squares)
            }
        }
    }

    /// A number that orders batches as their costs do. Numbers of elements are exact, however large.
    pub(crate) fn rank(&self, batch: BatchShape<'_>) -> u64 {
        match self {
            Self::Elements => batch.elements(),
            // The bits of floats that are not negative are in the order of the floats.
            Self::Model(_) => self.of(batch).to_bits(),
        }
    }
}
