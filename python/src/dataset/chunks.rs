//! Samples that Python reads a chunk at a time.

use std::fmt::Debug;

use batchloom::dataset::{
    ChunkCounts, ChunkField, ChunkSamples, ChunkSource, MapDataset, OnError, ReadClock, SampleStructure,
    SourceError,
};
use batchloom::order::Chunks;
use pyo3::prelude::*;

use super::visit::{add_sizes, visit_python};
use super::{Dataset, SequenceField};
use crate::batching::GivenSizes;
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::formats::FileChunks;

/// The fields of `ChunkCounts` in Python: see batchloom/dataset/map/chunk_reads.py.
pub(super) type CountsOfChunks = (u64, u64, u64, u64, u64);

/// The counts of chunks as Python has them.
pub(super) fn list_counts(counts: ChunkCounts) -> CountsOfChunks {
    (counts.read, counts.most_held, counts.most_bytes, counts.largest, counts.left_early)
}

/// Reads chunks with an object of Python: of batchloom/dataset/map/chunk_dataset.py.
struct PythonChunks(Py<PyAny>);

/// The structure of samples, and each of their fields.
type Fields<'py> = (Bound<'py, PyAny>, Vec<SequenceField<'py>>);

impl ChunkSource for PythonChunks {
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<ChunkSamples, SourceError> {
        visit_python(clock, |py| {
            let (structure, fields): Fields<'_> =
                self.0.bind(py).call_method1("read_chunk", (chunk,))?.extract()?;
            let names: Vec<String> = structure.getattr("names")?.extract()?;
            let nesting: String = structure.getattr("text")?.extract()?;
            let structure = SampleStructure { names: names.into(), nesting: nesting.into() };
            let field = |field| match field {
                SequenceField::Variable(lists) => ChunkField::Lists(lists.0.clone()),
                SequenceField::Fixed(rows) => ChunkField::Rows(rows.into()),
            };
            Ok(ChunkSamples::nested(structure, fields.into_iter().map(field).collect()))
        })
    }
}

impl Debug for PythonChunks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PythonChunks")
    }
}

/// The reader of chunks: of files, or an object of Python.
#[derive(FromPyObject)]
pub(super) enum ChunkObject {
    Files(FileChunks),
    Python(Py<PyAny>),
}

/// The chunks of some sizes, which are uint64.
pub(super) fn chunks_of_sizes(sizes: &Tensor) -> PyResult<Chunks> {
    let sizes = sizes.0.as_slice::<u64>();
    let sizes = sizes.ok_or_else(|| DataError::new_err("sizes are no compact array of uint64"))?;
    Ok(Chunks::new(sizes.iter().copied()))
}

/// A dataset of the samples of chunks that `reader` reads; `chunk_sizes` are uint64.
pub(super) fn in_chunks(
    reader: ChunkObject,
    chunk_sizes: &Tensor,
    lengths: Option<&GivenSizes<'_>>,
    variable: Option<Vec<String>>,
    skips: bool,
    chunks_open: Option<u64>,
    memory: Option<u64>,
) -> PyResult<Dataset> {
    let chunks = chunks_of_sizes(chunk_sizes)?;
    let mut dataset = match reader {
        ChunkObject::Python(object) => MapDataset::in_chunks(chunks, PythonChunks(object)),
        ChunkObject::Files(files) => MapDataset::in_chunks(chunks, files.into_source()),
    };
    if let Some(chunks_open) = chunks_open {
        dataset = dataset.chunks_open(chunks_open);
    }
    if let Some(memory) = memory {
        dataset = dataset.memory(memory);
    }
    if let Some(lengths) = lengths {
        dataset = add_sizes(dataset, lengths)?;
    }
    if let Some(variable) = variable {
        dataset = dataset.variable(variable);
    }
    let dataset = dataset.on_error(if skips { OnError::Skip } else { OnError::Raise });
    // Reading a chunk to learn its bytes may call Python, from this very thread.
    dataset.build().map(|dataset| Dataset(dataset.into())).map_err(|error| raise(&error))
}
