//! `PadTo`: the lengths that batches are padded to, and the treatment of samples that are longer than all of them.
//!
//! A rule is given the sizes that samples have in a batch, so that budgets count what is delivered.

use serde::Serialize;

use super::error::BatchingCause;
use super::{Sizes, positive, round_up};
use crate::Result;
use crate::named::named;

/// Lengths that batches are padded to: each to the smallest that holds its samples.
///
/// ```
/// use batchloom::batching::{PadTo, Truncate};
///
/// let pad_to = PadTo::new([512, 64, 128])?.truncate(Truncate::Right);
/// assert_eq!(pad_to.lengths(), [64, 128, 512]);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PadTo {
    lengths: Vec<u32>,
    truncate: Truncate,
}

crate::brief::debug_in_brief!(PadTo, [truncate], [lengths]);

/// The treatment of a sample that is longer than all lengths that batches are padded to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Truncate {
    /// No plan is made, and the error names the sample.
    #[default]
    Error,
    /// The sample loses its first elements, which are counted.
    Left,
    /// The sample loses its last elements, which are counted.
    Right,
}

impl Truncate {
    /// The name: `"error"`, `"left"` or `"right"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

named!(Truncate, "truncate", {
    "error" => Error,
    "left" => Left,
    "right" => Right,
});

impl PadTo {
    /// Pads to `lengths`, in any order. Samples that are longer than all of them are an error.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no length, or one is 0.
    pub fn new(lengths: impl IntoIterator<Item = u32>) -> Result<Self> {
        let mut lengths =
            lengths.into_iter().map(|length| positive("pad_to", length)).collect::<Result<Vec<_>>>()?;
        if lengths.is_empty() {
            return Err(BatchingCause::NotPositive { option: "pad_to" }.into());
        }
        lengths.sort_unstable();
        lengths.dedup();
        Ok(Self { lengths, truncate: Truncate::Error })
    }

    /// Sets the treatment of samples that are longer than all lengths.
    #[must_use]
    pub fn truncate(self, truncate: Truncate) -> Self {
        Self { truncate, ..self }
    }

    /// The lengths, the smallest first.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// The treatment of samples that are longer than all lengths.
    pub fn truncation(&self) -> Truncate {
        self.truncate
    }

    /// The largest length.
    pub(crate) fn most(&self) -> u32 {
        self.lengths.last().copied().unwrap_or(u32::MAX)
    }

    /// The length that a batch is padded to, given the `size` of its longest sample in elements.
    pub(crate) fn length(&self, size: u32) -> u32 {
        let place = self.lengths.partition_point(|&length| length < size);
        self.lengths.get(place).copied().unwrap_or(self.most())
    }

    /// The first element that is taken of a sample, given that `taken` elements are taken.
    pub(crate) fn start(&self, size: u32, taken: u32) -> u32 {
        if self.truncate == Truncate::Left { size - taken } else { 0 }
    }

    /// The sizes that samples have in a batch, for a rule that counts padding or (`real`) does not.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the first sample that is longer than all lengths, unless such samples
    /// are truncated.
    pub(crate) fn sizes(&self, sizes: &Sizes, real: bool) -> Result<Sizes> {
        let (most, own) = (self.most(), sizes.as_slice());
        if let (Truncate::Error, Some(sample)) = (self.truncate, own.iter().position(|&size| size > most)) {
            return Err(BatchingCause::TooLong { sample: sample as u64, size: own[sample], most }.into());
        }
        let counted = |&size: &u32| if real { size.min(most) } else { self.length(size) };
        Ok(sizes.replaced(own.iter().map(counted).collect()))
    }
}

/// The way in which the longest sample of a batch decides how long all of them are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rounding<'a> {
    /// To a multiple of a number.
    Multiple(u32),
    /// To one of the lengths that are given.
    To(&'a PadTo),
}

impl Rounding<'_> {
    /// The length of a batch, given the `size` of its longest sample in elements.
    pub(crate) fn up(self, size: u32) -> u64 {
        match self {
            Self::Multiple(multiple_of) => round_up(size, multiple_of),
            Self::To(pad_to) => u64::from(pad_to.length(size)),
        }
    }
}
