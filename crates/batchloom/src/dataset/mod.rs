//! What a sample is. One kind of data a file.

mod groups;
mod sequences;
mod tensors;
mod tokens;
mod windows;

pub use groups::{GroupDataset, GroupDatasetBuilder, GroupLayout, GroupOversize, Groups};
pub(crate) use sequences::Field;
pub use sequences::{SequenceDataset, SequenceDatasetBuilder, Sequences};
pub use tensors::TensorDataset;
pub(crate) use tokens::{Passage, Pieces};
pub use tokens::{TokenDataset, TokenExtras, TokenMode};
pub use windows::{Anchor, Short, Weights, WindowCounts, WindowDataset, WindowShape};
pub(crate) use windows::{Span, Windows};

use crate::Tensor;
use crate::batching::Sizes;

/// Any kind of data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Dataset {
    /// Rows of one shape.
    Tensors(TensorDataset),
    /// Sequences of any length.
    Sequences(SequenceDataset),
    /// Stretches of time series.
    Windows(WindowDataset),
    /// Rows that belong together.
    Groups(GroupDataset),
    /// Pieces of a stream of tokens.
    Tokens(TokenDataset),
}

impl Dataset {
    /// The number of samples.
    pub fn len(&self) -> usize {
        match self {
            Self::Tensors(dataset) => dataset.len(),
            Self::Sequences(dataset) => dataset.len(),
            Self::Windows(dataset) => dataset.len(),
            Self::Groups(dataset) => dataset.len(),
            Self::Tokens(dataset) => dataset.len(),
        }
    }

    /// Whether batches are samples one after the other, whatever the rule.
    pub(crate) fn is_concatenated(&self) -> bool {
        matches!(self, Self::Groups(dataset) if dataset.is_concatenated())
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arrays that samples are taken from, by name.
    pub(crate) fn arrays(&self) -> Vec<(&str, &Tensor)> {
        fn named<'a>(
            names: &'a [String],
            arrays: impl Iterator<Item = &'a Tensor>,
        ) -> Vec<(&'a str, &'a Tensor)> {
            names.iter().map(String::as_str).zip(arrays).collect()
        }
        match self {
            Self::Tensors(dataset) => named(dataset.names(), dataset.fields().iter()),
            Self::Sequences(dataset) => named(dataset.names(), dataset.fields().iter().map(Field::values)),
            Self::Windows(dataset) => named(dataset.names(), dataset.spans().iter().map(|span| &span.values)),
            Self::Groups(dataset) => {
                let dataset = dataset.sequences();
                named(dataset.names(), dataset.fields().iter().map(Field::values))
            }
            Self::Tokens(dataset) => vec![("tokens", dataset.tokens())],
        }
    }

    /// What a plan has to know of the samples' sizes; none where they all count the same.
    pub fn sizes(&self) -> Option<Sizes> {
        match self {
            Self::Tensors(_) | Self::Windows(_) | Self::Tokens(_) => None,
            Self::Sequences(dataset) => Some(dataset.sizes().clone()),
            Self::Groups(dataset) => Some(dataset.sizes().clone()),
        }
    }
}

impl From<TensorDataset> for Dataset {
    fn from(dataset: TensorDataset) -> Self {
        Self::Tensors(dataset)
    }
}

impl From<SequenceDataset> for Dataset {
    fn from(dataset: SequenceDataset) -> Self {
        Self::Sequences(dataset)
    }
}

impl From<GroupDataset> for Dataset {
    fn from(dataset: GroupDataset) -> Self {
        Self::Groups(dataset)
    }
}

impl From<TokenDataset> for Dataset {
    fn from(dataset: TokenDataset) -> Self {
        Self::Tokens(dataset)
    }
}

impl From<WindowDataset> for Dataset {
    fn from(dataset: WindowDataset) -> Self {
        Self::Windows(dataset)
    }
}
