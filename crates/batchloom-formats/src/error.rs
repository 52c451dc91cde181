//! `FormatError`: a file that cannot be read, and why.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of reading a file.
pub type Result<T> = std::result::Result<T, FormatError>;

/// The kind of a [`FormatError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// A column or an option does not fit the files.
    Argument,
    /// The file is damaged, changed since it was opened, or holds values that make no samples.
    Data,
    /// A column has a type that makes no tensor.
    Type,
    /// The file is sound, and another reader is needed for it.
    Unsupported,
    /// The operating system cannot read the file.
    Io,
}

/// A file that cannot be read: what was found, what was expected, and where.
///
/// ```
/// use batchloom_formats::{FormatErrorKind, ParquetFiles};
///
/// let error = ParquetFiles::open(["missing.parquet"]).expect_err("no such file");
/// assert_eq!(error.kind(), FormatErrorKind::Io);
/// assert!(error.to_string().starts_with("missing.parquet: "));
/// ```
#[derive(Debug, Clone)]
pub struct FormatError {
    kind: FormatErrorKind,
    file: PathBuf,
    column: Option<String>,
    reason: String,
}

impl FormatError {
    pub(crate) fn new(kind: FormatErrorKind, file: &Path, reason: impl Into<String>) -> Self {
        Self { kind, file: file.to_owned(), column: None, reason: reason.into() }
    }

    pub(crate) fn data(file: &Path, reason: impl Into<String>) -> Self {
        Self::new(FormatErrorKind::Data, file, reason)
    }

    pub(crate) fn io(file: &Path, error: &io::Error) -> Self {
        Self::new(FormatErrorKind::Io, file, error.to_string())
    }

    /// The same error, about a column.
    pub(crate) fn of_column(self, column: &str) -> Self {
        Self { column: Some(column.to_owned()), ..self }
    }

    /// The same error, with the place in the file before its reason.
    pub(crate) fn at(self, place: &str) -> Self {
        Self { reason: format!("{place}: {}", self.reason), ..self }
    }

    /// The kind of the error.
    pub fn kind(&self) -> FormatErrorKind {
        self.kind
    }

    /// The file at fault.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The column at fault, if it is one.
    pub fn column(&self) -> Option<&str> {
        self.column.as_deref()
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.file.display())?;
        if let Some(column) = &self.column {
            write!(formatter, "column {column}: ")?;
        }
        formatter.write_str(&self.reason)
    }
}

impl std::error::Error for FormatError {}
