//! Arrays in several chunks, as Python makes them.

use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::raise;

/// Arrays one after the other, as one array. It is documented in batchloom/arrays/chunked.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct ChunkedTensor(pub(crate) batchloom::ChunkedTensor);

/// The array of a field, in one piece of memory or in several.
#[derive(FromPyObject)]
pub(crate) enum FieldArray<'py> {
    Whole(PyRef<'py, Tensor>),
    Chunked(PyRef<'py, ChunkedTensor>),
}

impl From<FieldArray<'_>> for batchloom::ChunkedTensor {
    fn from(array: FieldArray<'_>) -> Self {
        match array {
            FieldArray::Whole(array) => array.0.clone().into(),
            FieldArray::Chunked(array) => array.0.clone(),
        }
    }
}

#[pymethods]
impl ChunkedTensor {
    /// The rows of `chunks`; `field` names them in errors.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a list of Python")]
    fn new(field: &str, chunks: Vec<PyRef<'_, Tensor>>) -> PyResult<Self> {
        let chunks = chunks.iter().map(|chunk| chunk.0.clone());
        batchloom::ChunkedTensor::new(field, chunks).map(Self).map_err(|error| raise(&error))
    }

    /// The lengths of the dimensions, over all chunks.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The name of the element's type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// Returns true if a dimension of a chunk runs backwards in memory.
    #[getter]
    fn is_backward(&self) -> bool {
        self.0.chunks().any(|chunk| chunk.strides().iter().any(|&stride| stride < 0))
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.shape().iter().product::<usize>().saturating_mul(self.0.dtype().size())
    }

    /// The chunks, in order.
    #[getter]
    fn chunks(&self) -> Vec<Tensor> {
        self.0.chunks().cloned().map(Tensor).collect()
    }

    /// The length of the first dimension.
    fn __len__(&self) -> usize {
        self.0.shape().first().copied().unwrap_or(0)
    }
}
