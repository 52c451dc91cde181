//! Datasets, as Python makes them.

mod chunks;
pub(crate) mod groups;
pub(crate) mod items;
pub(crate) mod map;
pub(crate) mod part_end;
pub(crate) mod processes;
pub(crate) mod selection;
pub(crate) mod slots;
pub(crate) mod tokens;
mod visit;
pub(crate) mod windows;

use batchloom::dataset::{
    Dataset as EngineDataset, Sequences as EngineSequences, SizeOf, SparseLayout,
    SparseRows as EngineSparseRows, TensorField,
};
use batchloom::{SequenceDataset, TensorDataset};
use pyo3::prelude::*;

use self::chunks::{CountsOfChunks, list_counts};
use self::processes::Processes;
use self::selection::Selection;
use crate::batching::{GivenSizes, Rule, parse, sizes, write_columns};
use crate::chunked::FieldArray;
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::labels::counts_to_python;
use crate::memory::collect;

/// Data of any kind. It is documented in batchloom/dataset/base.py and batchloom/dataset/sequences.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Dataset(pub(crate) EngineDataset);

/// One variable field.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Sequences(EngineSequences);

/// One sparse field. It is documented in batchloom/dataset/sparse_rows.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct SparseRows(EngineSparseRows);

/// One field of a dataset of rows.
#[derive(FromPyObject)]
pub(crate) enum RowField<'py> {
    Dense(FieldArray<'py>),
    Sparse(PyRef<'py, SparseRows>),
}

impl From<RowField<'_>> for TensorField {
    fn from(field: RowField<'_>) -> Self {
        match field {
            RowField::Dense(array) => Self::Dense(array.into()),
            RowField::Sparse(rows) => rows.0.clone().into(),
        }
    }
}

/// One field of a dataset of sequences.
#[derive(FromPyObject)]
pub(crate) enum SequenceField<'py> {
    Variable(PyRef<'py, Sequences>),
    Fixed(FieldArray<'py>),
}

/// Sizes with a name: an array of uint32, or the field that has these lengths.
#[derive(FromPyObject)]
pub(crate) enum SizesOrField<'py> {
    Sizes(PyRef<'py, Tensor>),
    Field(String),
}

#[pymethods]
impl Sequences {
    /// Samples; sample `k` is `values[offsets[k]:offsets[k + 1]]`; offsets are int64. With `is_guessed`, nothing tells that
    /// samples vary in their first dimension.
    #[staticmethod]
    fn from_offsets(
        field: &str,
        values: FieldArray<'_>,
        offsets: &Tensor,
        is_guessed: bool,
    ) -> PyResult<Self> {
        let offsets = offsets.0.as_slice::<i64>();
        let offsets = offsets.ok_or_else(|| DataError::new_err("offsets are no compact array of int64"))?;
        let sequences = EngineSequences::new(field, values, offsets);
        sequences.map(|sequences| Self(sequences.guessed(is_guessed))).map_err(|error| raise(&error))
    }

    /// Samples of shapes `[samples, rank]`, uint32, one after the other in flat values, which vary in dimension `dim`, or in
    /// those in which they differ.
    #[staticmethod]
    fn from_shapes(field: &str, values: &Tensor, shapes: &Tensor, dim: Option<usize>) -> PyResult<Self> {
        let rank = shapes.0.shape().get(1).copied().unwrap_or(0);
        let shapes = sizes(shapes)?;
        let sequences = match dim {
            Some(dim) => EngineSequences::along(field, &values.0, shapes, rank, dim),
            None => EngineSequences::with_shapes(field, &values.0, shapes, rank),
        };
        sequences.map(Self).map_err(|error| raise(&error))
    }

    /// The dimensions in which samples vary.
    #[getter]
    fn varying(&self) -> Vec<usize> {
        self.0.varying().to_vec()
    }

    /// The leading extents that all samples share, `None` for those in which they differ.
    #[getter]
    fn frame(&self) -> Vec<Option<u32>> {
        self.0.frame()
    }

    /// The shape of all values, `[rows, ..]`.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.values().shape().to_vec()
    }
}

#[pymethods]
impl SparseRows {
    #[new]
    fn new(
        field: &str,
        offsets: &Tensor,
        columns: &Tensor,
        values: &Tensor,
        width: usize,
        layout: &str,
    ) -> PyResult<Self> {
        let layout = parse(layout)?;
        let rows =
            EngineSparseRows::new(field, offsets.0.clone(), columns.0.clone(), values.0.clone(), width);
        rows.map(|rows| Self(rows.layout(layout))).map_err(|error| raise(&error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Checks the columns of all rows. True if a row holds a column twice.
    fn check(&self, py: Python<'_>) -> PyResult<bool> {
        detach(py, || self.0.check()).map_err(|error| raise(&error))
    }

    /// One row with all columns.
    fn row(&self, row: u64) -> PyResult<Tensor> {
        let dense = self.0.clone().layout(SparseLayout::Dense);
        let dataset = TensorDataset::new([(self.0.name(), dense)]).map(EngineDataset::from);
        let mut fields = dataset.and_then(|dataset| dataset.sample(row)).map_err(|error| raise(&error))?;
        Ok(Tensor(fields.remove(0).1))
    }
}

#[pymethods]
impl Dataset {
    /// Rows of one shape.
    #[staticmethod]
    fn tensors(fields: Vec<(String, RowField<'_>)>) -> PyResult<Self> {
        let fields = fields.into_iter().map(|(name, field)| (name, TensorField::from(field)));
        TensorDataset::new(fields).map(|dataset| Self(dataset.into())).map_err(|error| raise(&error))
    }

    /// Sequences of any length, and the fields that belong to each.
    #[staticmethod]
    fn sequences(
        fields: Vec<(String, SequenceField<'_>)>,
        own: Option<&Tensor>,
        named: Vec<(String, SizesOrField<'_>)>,
        own_lengths: Vec<(String, Vec<String>)>,
        size_of: &str,
        concatenated: bool,
    ) -> PyResult<Self> {
        let mut dataset = SequenceDataset::new().size_of(SizeOf::from(size_of));
        for (name, fields) in own_lengths {
            dataset = dataset.shared_lengths(name, fields);
        }
        if concatenated {
            dataset = dataset.concatenated();
        }
        for (name, field) in fields {
            dataset = match field {
                SequenceField::Variable(sequences) => dataset.variable(name, sequences.0.clone()),
                SequenceField::Fixed(rows) => dataset.fixed(name, rows),
            };
        }
        if let Some(own) = own {
            dataset = dataset.sizes(collect(sizes(own)?.iter().copied())?);
        }
        for (name, given) in named {
            dataset = match given {
                SizesOrField::Sizes(given) => {
                    dataset.named_sizes(name, collect(sizes(&given)?.iter().copied())?)
                }
                SizesOrField::Field(field) => dataset.named_lengths(name, field),
            };
        }
        dataset.build().map(|dataset| Self(dataset.into())).map_err(|error| raise(&error))
    }

    /// Samples that an object of Python makes on demand, in threads of the engine or (`remote`) in processes: see
    /// batchloom/dataset/map/map_dataset.py.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, clippy::too_many_arguments, reason = "extracted from Python")]
    fn on_demand(
        reader: Py<PyAny>,
        processes: Option<Py<Processes>>,
        whole: bool,
        together: bool,
        samples: u64,
        sizes: Option<GivenSizes<'_>>,
        variable: Option<Vec<String>>,
        skips: bool,
        chunks: Option<PyRef<'_, items::ItemChunks>>,
    ) -> PyResult<Self> {
        let chunks = chunks.as_deref();
        map::on_demand(reader, processes, whole, together, samples, sizes.as_ref(), variable, skips, chunks)
    }

    /// Samples that an object of Python reads a chunk at a time: see batchloom/dataset/map/chunk_dataset.py.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn in_chunks(
        reader: chunks::ChunkObject,
        chunk_sizes: &Tensor,
        lengths: Option<GivenSizes<'_>>,
        variable: Option<Vec<String>>,
        skips: bool,
        chunks_open: Option<u64>,
        memory: Option<u64>,
    ) -> PyResult<Self> {
        chunks::in_chunks(reader, chunk_sizes, lengths.as_ref(), variable, skips, chunks_open, memory)
    }

    /// The counts of chunks so far.
    fn chunk_counts(&self) -> CountsOfChunks {
        list_counts(self.0.chunk_counts().unwrap_or_default())
    }

    /// The number of chunks that are mixed at a time, if that was chosen.
    fn chunks_open(&self) -> Option<u64> {
        self.0.chunks_open()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The samples of several datasets, one after the other. With `sources`, batches hold the dataset of each sample.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn concat(parts: Vec<PyRef<'_, Self>>, sources: bool) -> PyResult<Self> {
        let parts = parts.iter().map(|part| part.0.clone());
        let joined = if sources { EngineDataset::sources(parts) } else { EngineDataset::concat(parts) };
        joined.map(Self).map_err(|error| raise(&error))
    }

    /// Some of the samples.
    fn select(&self, selection: &Selection) -> PyResult<Self> {
        self.0.select(&selection.0).map(Self).map_err(|error| raise(&error))
    }

    /// The arrays of one sample, by the names of their fields.
    fn sample(&self, sample: u64) -> PyResult<Vec<(String, Tensor)>> {
        let fields = self.0.sample(sample).map_err(|error| raise(&error))?;
        Ok(fields.into_iter().map(|(name, field)| (name, Tensor(field))).collect())
    }

    /// The name and the element type of each field that batches of a rule take from samples.
    fn fields(&self, rule: &Rule) -> PyResult<Vec<(String, &'static str)>> {
        let fields = self.0.fields(&rule.0).map_err(|error| raise(&error))?;
        Ok(fields.into_iter().map(|(name, dtype)| (name, dtype.name())).collect())
    }

    /// The names of the fields of batches of a rule that describe the batch.
    fn describing_fields(&self, rule: &Rule) -> PyResult<Vec<String>> {
        self.0.describing_fields(&rule.0).map_err(|error| raise(&error))
    }

    /// The size of each sample, as uint32. `None` if samples do not differ in size.
    fn sizes(&self) -> PyResult<Option<Tensor>> {
        let Some(sizes) = self.0.sizes() else { return Ok(None) };
        Tensor::of_numbers(sizes.as_slice()).map(Some)
    }

    /// The sizes with names.
    fn named_sizes(&self) -> PyResult<Vec<(String, Option<Tensor>, bool)>> {
        self.0.sizes().as_ref().map_or_else(|| Ok(Vec::new()), write_columns)
    }

    /// The labels of each sample that losses do not ignore, as uint32, and the number of elements of a piece if the
    /// rule truncates or splits samples.
    fn count_labels(
        &self,
        py: Python<'_>,
        field: &str,
        rule: &Rule,
        next_tokens: bool,
    ) -> PyResult<(Tensor, Option<u32>)> {
        let count = || self.0.count_labels(field, &rule.0, next_tokens);
        counts_to_python(&detach(py, count).map_err(|error| raise(&error))?)
    }

    /// The rows of each array that the samples from `first` to `end` are taken from: the first one, and the one after
    /// the last.
    fn rows(&self, first: u64, end: u64) -> PyResult<Vec<(usize, usize)>> {
        let rows = self.0.rows(first..end).map_err(|error| raise(&error))?;
        Ok(rows.into_iter().map(|(_, rows)| (rows.start, rows.end)).collect())
    }

    /// The most rows of each array that a number of neighbouring samples need.
    fn most_rows(&self, samples: u64) -> Vec<usize> {
        self.0.most_rows(samples).into_iter().map(|(_, rows)| rows).collect()
    }
}
