//! Errors, as facts with values.
//!
//! There is one type for the crate. A message gives what was found, what was expected and what to change, and names options
//! in words that hold in Rust and in Python. [`Error::kind`] sorts errors into the few kinds that a caller treats
//! differently; the Python package has an exception class for each. The facts that a program may want are behind accessors.
//!
//! The causes lie beside the code that raises them, in the file `error.rs` of each folder, and this module knows none. The
//! errors of samples that are made on demand are the exception: callers tell them apart, to find what their own function
//! raised.

mod causes;
mod kind;
mod reading;

use std::fmt;

pub(crate) use causes::{causes, fact};
pub use kind::Kind;
pub use reading::{Cause, ReadError};

/// The result of fallible functions in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: its kind, a message with values, and facts.
///
/// ```
/// use batchloom::{Kind, Plan};
///
/// let error = Plan::builder(10).batch_size(0).build().unwrap_err();
/// assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("batch_size")));
/// assert_eq!(error.to_string(), "batch_size is 0; expected at least 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Raised>);

/// The contents of an error. A function of the user may raise an object whose text takes a lock, so it is asked for when it
/// is shown, and not before.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Raised {
    Told { kind: Kind, text: String, facts: Facts },
    Reading(ReadError),
}

/// The values of an error that programs may want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The number of a sample.
    pub(crate) sample: Option<u64>,
    /// The name of a field.
    pub(crate) field: Option<String>,
    /// The name of the argument at fault.
    pub(crate) option: Option<&'static str>,
}

impl Facts {
    pub(crate) fn none() -> Self {
        Self { sample: None, field: None, option: None }
    }
}

impl Error {
    pub(crate) fn new(kind: Kind, text: String, facts: Facts) -> Self {
        Self(Box::new(Raised::Told { kind, text, facts }))
    }

    /// The kind of this error.
    pub fn kind(&self) -> Kind {
        match &*self.0 {
            Raised::Told { kind, .. } => *kind,
            Raised::Reading(error) => error.kind(),
        }
    }

    /// The number of the sample that cannot be batched, or the first of them, if there is such a sample.
    pub fn sample(&self) -> Option<u64> {
        match &*self.0 {
            Raised::Told { facts, .. } => facts.sample,
            Raised::Reading(error) => error.sample(),
        }
    }

    /// The name of the field that is at fault, if one is.
    pub fn field(&self) -> Option<&str> {
        match &*self.0 {
            Raised::Told { facts, .. } => facts.field.as_deref(),
            Raised::Reading(error) => error.field(),
        }
    }

    /// The name of the argument that is at fault, if one is.
    pub fn option(&self) -> Option<&str> {
        match &*self.0 {
            Raised::Told { facts, .. } => facts.option,
            Raised::Reading(error) => error.option(),
        }
    }

    /// The error as one of samples that are made on demand, if it is one.
    pub fn reading(&self) -> Option<&ReadError> {
        match &*self.0 {
            Raised::Told { .. } => None,
            Raised::Reading(error) => Some(error),
        }
    }

    /// The same error, with the part of the data that it is about before its message.
    pub(crate) fn in_part(mut self, part: &str) -> Self {
        if let Raised::Told { text, .. } = &mut *self.0 {
            *text = format!("part {part}: {text}");
        }
        self
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Self(Box::new(Raised::Reading(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Raised::Told { text, .. } => formatter.write_str(text),
            Raised::Reading(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Error {
    /// The error of the function that makes samples, if it failed.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reading()?.cause().map(|cause| cause.get() as _)
    }
}
