//! `Loss`: the mean over labels or samples that a loss is, and the number that it is divided by.

use crate::named::named;

/// A loss over the labels of an update of the optimizer, from the negative logarithm of each label's probability or
/// another term for each label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The mean over all labels.
    TokenMean,
    /// The mean over samples of the mean over the labels of a sample.
    SequenceMean,
    /// The mean over samples of the sum over the labels of a sample.
    SequenceSum,
}

named!(Loss, "loss", {
    "token-mean" => TokenMean,
    "sequence-mean" => SequenceMean,
    "sequence-sum" => SequenceSum,
});

impl Loss {
    /// The name of the loss.
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenMean => "token-mean",
            Self::SequenceMean => "sequence-mean",
            Self::SequenceSum => "sequence-sum",
        }
    }

    /// Returns true if the labels of a sample share the weight of the sample.
    pub(crate) fn is_shared_in_samples(self) -> bool {
        self == Self::SequenceMean
    }

    /// The number that the loss is divided by, of so much: labels, or samples with a label. It is 1 where there are
    /// none, so that a sum over nothing is 0.
    pub(crate) fn denominator(self, labels: u64, sequences: u64) -> u64 {
        let counted = match self {
            Self::TokenMean => labels,
            Self::SequenceMean | Self::SequenceSum => sequences,
        };
        counted.max(1)
    }
}
