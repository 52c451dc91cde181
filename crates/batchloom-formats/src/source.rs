//! `FileSource`: samples of files, a chunk at a time, as front ends and the engine read them.

use std::fmt::{self, Debug, Display, Formatter};

use batchloom::DType;
use batchloom::dataset::{ChunkField, ChunkSamples, ChunkSource, ReadClock, SampleStructure, SourceError};
use batchloom::order::Chunks;

use crate::error::Result;

/// The type of a field, as it is known before a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldType {
    /// The type of the elements.
    pub dtype: DType,
    /// The elements of a sample.
    pub elements: SampleElements,
}

/// The elements that each sample has of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleElements {
    /// A number.
    One,
    /// A row of this many.
    Row(usize),
    /// A list of any length.
    List,
}

impl Display for FieldType {
    fn fmt(&self, text: &mut Formatter<'_>) -> fmt::Result {
        match self.elements {
            SampleElements::One => write!(text, "{}", self.dtype),
            SampleElements::Row(extent) => write!(text, "rows of {extent} {}", self.dtype),
            SampleElements::List => write!(text, "lists of {}", self.dtype),
        }
    }
}

/// Samples of files that are read a chunk at a time.
pub trait FileSource: Debug + Send + Sync + 'static {
    /// The chunks: the number of samples of each.
    fn chunks(&self) -> Chunks;

    /// The length of the lists of each sample; `None` if no field has lists that differ in length.
    fn lengths(&self) -> Option<&[u32]>;

    /// The names of the fields.
    fn names(&self) -> &[String];

    /// The types of the fields, in the order of their names.
    fn types(&self) -> Vec<FieldType>;

    /// Reads the fields of a chunk, in the order of their names.
    ///
    /// # Errors
    /// The file is damaged or was changed, or a sample has no value; the error names file, column and row.
    fn read_chunk(&self, chunk: u64) -> Result<Vec<ChunkField>>;
}

/// The samples of files as the engine asks for them.
#[derive(Debug)]
pub struct FileChunks<S> {
    source: S,
    structure: SampleStructure,
}

impl<S: FileSource> FileChunks<S> {
    /// The samples of a source, with fields by name.
    pub fn new(source: S) -> Self {
        let structure = SampleStructure { names: source.names().into(), nesting: "".into() };
        Self::nested(source, structure)
    }

    /// The samples of a source, nested in a way that a front end knows.
    #[doc(hidden)]
    pub fn nested(source: S, structure: SampleStructure) -> Self {
        Self { source, structure }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }
}

impl<S: FileSource> ChunkSource for FileChunks<S> {
    fn read(&self, chunk: u64, _: &ReadClock) -> std::result::Result<ChunkSamples, SourceError> {
        Ok(ChunkSamples::nested(self.structure.clone(), self.source.read_chunk(chunk)?))
    }
}

impl<S: FileSource + ?Sized> FileSource for std::sync::Arc<S> {
    fn chunks(&self) -> Chunks {
        (**self).chunks()
    }

    fn lengths(&self) -> Option<&[u32]> {
        (**self).lengths()
    }

    fn names(&self) -> &[String] {
        (**self).names()
    }

    fn types(&self) -> Vec<FieldType> {
        (**self).types()
    }

    fn read_chunk(&self, chunk: u64) -> Result<Vec<ChunkField>> {
        (**self).read_chunk(chunk)
    }
}
