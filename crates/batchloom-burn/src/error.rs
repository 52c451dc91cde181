//! The errors of this crate: from the engine, and from what Burn requires.

use batchloom::DType;

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of batches for Burn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] batchloom::Error),
    /// Burn has no such type of elements.
    #[error(
        "the values are {found}, which Burn has not; expected bool, an integer, or a float of 16 to 64 bits"
    )]
    Type {
        /// The type of the values.
        found: DType,
    },
    /// The values are of another kind than the tensor asked for.
    #[error("{name} is {found}; expected values for a tensor of kind {expected}")]
    Kind {
        /// The name of the field.
        name: String,
        /// The type of its values.
        found: DType,
        /// The kind of tensor: `Float`, `Int` or `Bool`.
        expected: &'static str,
    },
    /// The device does not compute with values of this type.
    #[error(
        "{name} is {found}, which {device} does not compute with; expected a type that it has: give the dataset such a field"
    )]
    Device {
        /// The name of the field.
        name: String,
        /// The type of its values.
        found: DType,
        /// The device.
        device: String,
    },
    /// The field has another number of dimensions than the tensor asked for.
    #[error("{name} has shape {found:?}; expected {expected} dimensions, the first of which counts samples")]
    Dimensions {
        /// The name of the field.
        name: String,
        /// The shape of the field.
        found: Vec<usize>,
        /// The number of dimensions of the tensor.
        expected: usize,
    },
    /// A slice is no part of a division by Burn, or may be one of several.
    #[error(
        "items {start}..{end} of {items} are {reason}; expected one of the equal parts that split_dataloader cuts, or \
         the parts that BatchLoader::split makes"
    )]
    Slice {
        /// The first item.
        start: usize,
        /// The item after the last one.
        end: usize,
        /// The number of items in all.
        items: usize,
        /// The reason, in words that follow "are".
        reason: &'static str,
    },
}
