//! Errors of samples that are made on demand.

use std::sync::Arc;

use super::kind::Kind;
use crate::DType;

/// The error of a source, shared.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    /// The error.
    pub fn get(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Cause {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self(error.into())
    }
}

impl PartialEq for Cause {
    /// Returns true if both are the same occurrence of an error.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cause {}

impl std::fmt::Display for Cause {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The reason that samples which are made on demand cannot be batched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A sample could not be made.
    #[error("sample {sample} could not be read: {cause}")]
    Failed {
        /// The number of the sample.
        sample: u64,
        /// The error of its source.
        cause: Cause,
    },
    /// No sample of a batch could be made, so that its fields are not known.
    #[error(
        "no sample of a batch could be read, so that its fields are unknown; the first of them, sample {sample}: {cause}"
    )]
    NoneRead {
        /// The number of the first sample of the batch.
        sample: u64,
        /// The error of its source.
        cause: Cause,
    },
    /// The function of a slot failed.
    #[error("sample {sample} could not be put into its slot: {cause}")]
    SlotFunction {
        /// The number of the sample.
        sample: u64,
        /// The error of the function.
        cause: Cause,
    },
    /// A sample has other fields than the first one.
    #[error(
        "sample {sample} is {found}; sample {first} was {expected}: expected one structure for all samples{}",
        hint_of_objects(.found, .expected)
    )]
    Structure {
        /// The number of the sample.
        sample: u64,
        /// Its fields.
        found: String,
        /// The number of the sample to which it is compared.
        first: u64,
        /// The fields of that one.
        expected: String,
    },
    /// A field of a sample has another type or shape than that of the first sample.
    #[error(
        "field {field} of sample {sample} is {}; in sample {first} it was {}: expected {}",
        array(*.found, .shape), array(*.expected, .expected_shape),
        of_one_layout((*.found, .shape), (*.expected, .expected_shape))
    )]
    Layout {
        /// The name of the field.
        field: String,
        /// The number of the sample.
        sample: u64,
        /// The type and the shape of its field.
        found: DType,
        /// The shape of its field.
        shape: Vec<usize>,
        /// The number of the sample to which it is compared.
        first: u64,
        /// The type of the field of that one.
        expected: DType,
        /// The shape of the field of that one.
        expected_shape: Vec<usize>,
    },
    /// A field has another length than the sample's size says.
    #[error(
        "field {field} of sample {sample} has the shape {shape:?}, but the size of the sample is {size}; expected \
         sizes to be the lengths of variable fields (leave a field of other lengths out of columns, or give it a \
         slot)"
    )]
    Size {
        /// The name of the field.
        field: String,
        /// The number of the sample.
        sample: u64,
        /// The shape of its field.
        shape: Vec<usize>,
        /// The size of the sample.
        size: u32,
    },
    /// A rule concatenates samples, and no field of theirs varies in length.
    #[error(
        "{rule} concatenates samples, and no field of sample {sample} varies in length; expected sizes, and a field \
         whose length is the size"
    )]
    NothingToPack {
        /// The name of the rule.
        rule: &'static str,
        /// The number of a sample.
        sample: u64,
    },
    /// An option names a field that samples do not have.
    #[error("{option} names the field {field}, which samples do not have: they have {names}")]
    UnknownField {
        /// The name of the option.
        option: &'static str,
        /// The name that it has.
        field: String,
        /// The names of the fields of a sample.
        names: String,
    },
    /// A slot has more dimensions than the samples that go into it.
    #[error(
        "field {field} has {found} dimensions, and its slot has {expected}; expected a slot of at most {found}"
    )]
    SlotRank {
        /// The name of the field.
        field: String,
        /// The number of dimensions of a sample.
        found: usize,
        /// The number of dimensions of the slot.
        expected: usize,
    },
    /// A sample is longer than every length that its field is padded to.
    #[error(
        "a sample of field {field} has {found} elements, and the field is padded to {expected} at most; expected a longer \
         pad_to, or a slot that cuts samples: Crop"
    )]
    TooLong {
        /// The name of the field.
        field: String,
        /// The largest extent of a sample of the batch in its first dimension.
        found: usize,
        /// The longest length that the field is padded to.
        expected: usize,
    },
    /// An array that is to be resized is no image.
    #[error(
        "{name} is {}, and its slot resizes images; expected uint8 or float32 of the shape [height, width] or \
         {expected}, with 1 to 4 channels and no extent of 0",
        array(*.found, .shape)
    )]
    Image {
        /// The array, in words.
        name: String,
        /// The type of the array.
        found: DType,
        /// Its shape.
        shape: Vec<usize>,
        /// The shape of images with channels.
        expected: &'static str,
    },
    /// A function that fills a slot failed, or a process that does.
    #[error("the slot of field {field} could not be filled: {cause}")]
    Slot {
        /// The place of the field.
        field: usize,
        /// The error.
        cause: Cause,
    },
    /// A process that reads samples ended.
    #[error("a process that reads samples ended while it read sample {sample}: {reason}")]
    ProcessEnded {
        /// The sample that it was reading, or the first of several.
        sample: u64,
        /// The reason, as far as it is known.
        reason: String,
    },
}

impl ReadError {
    /// The kind of the error.
    pub fn kind(&self) -> Kind {
        match self {
            Self::UnknownField { .. } => Kind::Argument,
            _ => Kind::Data,
        }
    }

    /// The number of the sample, or of the first of several.
    pub fn sample(&self) -> Option<u64> {
        match self {
            Self::Failed { sample, .. }
            | Self::NoneRead { sample, .. }
            | Self::SlotFunction { sample, .. }
            | Self::Structure { sample, .. }
            | Self::Layout { sample, .. }
            | Self::Size { sample, .. }
            | Self::NothingToPack { sample, .. }
            | Self::ProcessEnded { sample, .. } => Some(*sample),
            Self::UnknownField { .. }
            | Self::SlotRank { .. }
            | Self::TooLong { .. }
            | Self::Image { .. }
            | Self::Slot { .. } => None,
        }
    }

    /// The name of the field.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Layout { field, .. }
            | Self::Size { field, .. }
            | Self::UnknownField { field, .. }
            | Self::SlotRank { field, .. }
            | Self::TooLong { field, .. } => Some(field),
            _ => None,
        }
    }

    /// The name of the argument that is at fault.
    pub fn option(&self) -> Option<&str> {
        match self {
            Self::UnknownField { option, .. } => Some(option),
            Self::TooLong { .. } => Some("pad_to"),
            _ => None,
        }
    }

    /// The error of the user's function, or of the process that called it.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Failed { cause, .. }
            | Self::NoneRead { cause, .. }
            | Self::SlotFunction { cause, .. }
            | Self::Slot { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// The words for samples of which one alone holds an object.
fn hint_of_objects(found: &str, expected: &str) -> &'static str {
    match found.contains("object") == expected.contains("object") {
        true => "",
        false => " (a list without numbers is an object: make it an array)",
    }
}

/// An array in words: its type and shape.
fn array(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype}{shape:?}")
}

/// The words for what is expected of two arrays that differ.
fn of_one_layout(found: (DType, &[usize]), expected: (DType, &[usize])) -> String {
    if found.0 != expected.0 {
        // The types of numbers of Python; other types were chosen.
        let are_plain = matches!((found.0, expected.0), (DType::I64, DType::F64) | (DType::F64, DType::I64));
        let remedy = if are_plain && found.1.is_empty() && expected.1.is_empty() {
            ": a dtype for the field makes its numbers floats"
        } else {
            ""
        };
        return format!("one type for all samples{remedy}");
    }
    let what = if found.1.len() == expected.1.len() { "shape" } else { "number of dimensions" };
    let images = if found.1.len().max(expected.1.len()) == 3 {
        "; images also need one number of channels, as convert(\"RGB\") makes it"
    } else {
        ""
    };
    format!(
        "one type and {what} for all samples (samples of several shapes need sizes, or a slot for the field, such as Pad or \
         Resize{images})"
    )
}
