//! The user's decision about samples that are larger than a batch may be.

use serde::Serialize;

use super::{PoolBatches, Sorted};
use crate::named::named;

/// The treatment of a sample that alone exceeds the budget of a rule that pads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Oversize {
    /// No plan is made, and the error names the sample.
    #[default]
    Error,
    /// The sample is a batch alone. Only such batches exceed the budget.
    Alone,
    /// The sample is left out, and counted.
    Drop,
    /// The sample is truncated to the length that fits, and the elements that this costs are counted.
    Truncate,
}

named!(Oversize, "oversize", {
    "error" => Error,
    "alone" => Alone,
    "drop" => Drop,
    "truncate" => Truncate,
});

impl Oversize {
    /// The largest number of elements of a sample that a batch takes, if larger samples are truncated to `most`.
    pub(super) fn limit(self, most: u64) -> Option<u32> {
        (self == Self::Truncate).then(|| u32::try_from(most).ok()).flatten()
    }

    /// Divides sorted samples of one variable dimension into batches, where those above `most` do not fit. `partition`
    /// returns the ends of batches of samples that fit.
    pub(super) fn cut(
        self,
        mut sorted: Sorted,
        most: u64,
        partition: impl Fn(&[u32]) -> Vec<u32>,
    ) -> PoolBatches {
        let over = sorted.sizes.partition_point(|&size| u64::from(size) > most);
        let mut ends: Vec<u32> = Vec::new();
        match self {
            Self::Alone | Self::Error => ends.extend(1..=super::to_place(over)),
            Self::Drop => drop((sorted.places.drain(..over), sorted.sizes.drain(..over))),
            Self::Truncate => sorted.sizes[..over].fill(u32::try_from(most).unwrap_or(u32::MAX)),
        }
        let alone = ends.len();
        let rest = partition(&sorted.sizes[alone..]);
        ends.extend(rest.into_iter().map(|end| end + super::to_place(alone)));
        PoolBatches { places: sorted.places, ends, ..PoolBatches::default() }
    }
}
