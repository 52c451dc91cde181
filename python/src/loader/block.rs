//! Blocks, for pipelines that make batches of them elsewhere than in the memory of this process.

use std::sync::Arc;

use batchloom::DType;
use batchloom::dataset::Objects;
use batchloom::loader;
use batchloom::tensor::Layout;
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::raise;

/// Consecutive batches in one allocation. It is documented in batchloom/device/pipeline.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Block(pub(crate) loader::Block);

/// The shape, strides and offset of an array, in elements.
type FieldLayout = (Vec<usize>, Vec<isize>, usize);

/// The number of batches, the samples of each, the shape of the elements that an index table numbers in each, and the
/// size of the longest sample.
type RunNumbers = (usize, usize, Vec<usize>, usize);

/// The first sample of a shard, and the one after its last.
type Shard = (u64, u64);

#[pymethods]
impl Block {
    /// The memory of the whole block, as bytes.
    #[getter]
    fn memory(&self) -> PyResult<Tensor> {
        let bytes = self.0.bytes();
        batchloom::Tensor::new(bytes.clone(), DType::U8, &[bytes.len()], &[1], 0)
            .map(Tensor)
            .map_err(|error| raise(&error))
    }

    /// The name and the element type of each field.
    #[getter]
    fn columns(&self) -> Vec<(String, &'static str)> {
        columns(&self.0)
    }

    /// The nesting of samples that are made on demand.
    #[getter]
    fn nesting(&self) -> &str {
        self.0.nesting()
    }

    /// The objects that samples hold, by ticket, in tables.
    #[getter]
    fn objects(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        tables(py, &self.0).iter().map(|table| table.clone_ref(py)).collect()
    }

    /// The runs of batches of one shape.
    #[getter]
    fn runs(&self) -> Vec<RunNumbers> {
        let run = |run: &loader::ShapeRun| (run.len(), run.samples(), run.space().to_vec(), run.longest());
        self.0.runs().iter().map(run).collect()
    }

    /// The place of each field of each run in the memory of the block: `[batches, ..shape]`.
    #[getter]
    fn layouts(&self) -> Vec<Vec<FieldLayout>> {
        let layout = |field: &batchloom::Tensor| {
            let (layout, size): (&Layout, _) = (field.layout(), field.dtype().size());
            let strides = layout.strides().iter().map(|stride| stride / size.cast_signed());
            (layout.shape().to_vec(), strides.collect(), layout.offset() / size)
        };
        self.0.runs().iter().map(|run| run.fields().iter().map(layout).collect()).collect()
    }

    /// The samples of the block's shard, and of the next one, as first and end. `None` unless the order goes shard by
    /// shard.
    #[getter]
    fn shards(&self) -> Option<(Shard, Option<Shard>)> {
        let pair = |shard: &std::ops::Range<u64>| (shard.start, shard.end);
        self.0.shards().map(|(shard, next)| (pair(shard), next.map(pair)))
    }

    /// The samples of all batches of an index table, -1 where a place only fills up; empty unless batches are masked. `None`
    /// if the block holds samples.
    #[getter]
    fn index(&self) -> Option<Tensor> {
        self.0.index().cloned().map(Tensor)
    }

    /// The index table, and the picks: the number of each element within its sample. `None` if the block holds samples.
    #[getter]
    fn index_table(&self) -> Option<(Tensor, Tensor)> {
        self.0.index_table().map(|(table, picks)| (Tensor(table.clone()), Tensor(picks.clone())))
    }
}

/// The name and the element type of each field of a block.
pub(super) fn columns(block: &loader::Block) -> Vec<(String, &'static str)> {
    let types = |run: &loader::ShapeRun| {
        let dtypes = run.fields().iter().map(|field| field.dtype().name());
        run.names().iter().cloned().zip(dtypes).collect()
    };
    block.runs().first().map(types).unwrap_or_default()
}

/// The tables of the objects that the samples of a block hold.
pub(super) fn tables(py: Python<'_>, block: &loader::Block) -> Arc<[Py<PyAny>]> {
    let table = |objects: &Objects| objects.get::<Py<PyAny>>().map(|table| table.clone_ref(py));
    block.objects().iter().filter_map(table).collect()
}
