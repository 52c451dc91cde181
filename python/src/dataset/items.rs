//! Items that Python reads a chunk at a time, and makes samples of one by one.

use std::fmt::Debug;
use std::sync::Arc;

use batchloom::dataset::{ItemSource, KeptItems, ReadClock, SourceError};
use pyo3::prelude::*;

use super::chunks::{CountsOfChunks, chunks_of_sizes, list_counts};
use super::visit::visit_python;
use crate::dlpack::Tensor;
use crate::error::raise;

/// Reads chunks with an object of Python: of batchloom/dataset/map/item_chunks.py.
struct PythonItems(Py<PyAny>);

impl ItemSource for PythonItems {
    fn read(&self, chunk: u64, clock: &ReadClock) -> Result<(KeptItems, usize), SourceError> {
        visit_python(clock, |py| {
            let (items, bytes): (Py<PyAny>, usize) =
                self.0.bind(py).call_method1("hold_chunk", (chunk,))?.extract()?;
            Ok((Box::new(items) as KeptItems, bytes))
        })
    }

    fn measure(&self, chunk: u64) -> Result<usize, SourceError> {
        visit_python(&ReadClock::default(), |py| {
            self.0.bind(py).call_method1("measure_chunk", (chunk,))?.extract()
        })
    }
}

impl Debug for PythonItems {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PythonItems")
    }
}

/// The chunks that the items of all loaders of a dataset lie in.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct ItemChunks(pub(super) Arc<batchloom::dataset::ItemChunks>);

#[pymethods]
impl ItemChunks {
    /// Chunks of `chunk_sizes` items each, which are uint64, read by `object`.
    #[new]
    fn new(
        object: Py<PyAny>,
        chunk_sizes: &Tensor,
        chunks_open: Option<u64>,
        memory: Option<u64>,
        skips: bool,
    ) -> PyResult<Self> {
        let chunks = chunks_of_sizes(chunk_sizes)?;
        let items = batchloom::dataset::ItemChunks::new(chunks, PythonItems(object), chunks_open);
        let items = match memory {
            // Reading a chunk to learn its bytes calls Python, from this very thread.
            Some(memory) => items.memory(memory, skips).map_err(|error| raise(&error))?,
            None => items,
        };
        Ok(Self(Arc::new(items)))
    }

    /// The chunks of several datasets, one dataset after the other, read by `object`.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn joined(object: Py<PyAny>, parts: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let parts: Vec<&batchloom::dataset::ItemChunks> = parts.iter().map(|part| &*part.0).collect();
        let joined = batchloom::dataset::ItemChunks::join(&parts, PythonItems(object));
        joined.map(|items| Self(Arc::new(items))).map_err(|error| raise(&error))
    }

    /// The counts of chunks so far.
    fn chunk_counts(&self) -> CountsOfChunks {
        list_counts(self.0.counts())
    }

    /// The number of chunks that are mixed at a time, if that was chosen.
    fn chunks_open(&self) -> Option<u64> {
        self.0.chunks_open()
    }
}
