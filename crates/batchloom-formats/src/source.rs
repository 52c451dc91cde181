//! `FileSource`: samples of files, a chunk at a time, as front ends and the engine read them.

use std::fmt::Debug;

use batchloom::dataset::{ChunkField, ChunkSamples, ChunkSource, ReadClock, SampleStructure, SourceError};
use batchloom::order::Chunks;

use crate::error::Result;

/// Samples of files that are read a chunk at a time.
pub trait FileSource: Debug + Send + Sync + 'static {
    /// The chunks: the number of samples of each.
    fn chunks(&self) -> Chunks;

    /// The length of the lists of each sample; `None` if no field has lists that differ in length.
    fn lengths(&self) -> Option<&[u32]>;

    /// The names of the fields.
    fn names(&self) -> &[String];

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

    fn read_chunk(&self, chunk: u64) -> Result<Vec<ChunkField>> {
        (**self).read_chunk(chunk)
    }
}
