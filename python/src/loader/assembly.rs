//! The assembly of batches: the arrays of each field, and the tuple or dict that holds those of a batch.
//!
//! Batches are put together only here, whatever makes their arrays: frameworks that view the memory of blocks, a
//! pipeline on a device, or slices of the data.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::dlpack::Tensor;
use crate::error::LoaderError;

/// Some runs of a block, one after the other.
pub(super) type Portion = Vec<ShapeRun>;

/// Consecutive batches of one shape.
#[derive(Debug)]
pub(super) struct ShapeRun {
    /// The array of each field, `[batches, ..]`.
    pub(super) fields: Vec<Tensor>,
    /// The size of the longest sample.
    pub(super) longest: usize,
}

/// The arrays of each field, one for each batch.
pub(super) type Columns = Vec<Vec<Py<PyAny>>>;

/// The maker of batches: a source of arrays, and a container for them.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) source: Source,
    pub(super) container: Container,
}

/// The source of the arrays of batches.
#[derive(Debug)]
pub(super) enum Source {
    /// Frameworks, which view the memory of blocks.
    Host(HostViews),
    /// Operations on a device.
    Device(Pipeline),
}

impl Assembly {
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.source {
            Source::Host(views) => views.fields.iter().try_for_each(|field| {
                visit.call(&field.many)?;
                visit.call(&field.one)
            }),
            Source::Device(pipeline) => {
                visit.call(&pipeline.start)?;
                visit.call(&pipeline.finish)?;
                visit.call(&pipeline.deliver)
            }
        }
    }
}

/// The functions that take a field of blocks as arrays of a framework. They are documented in batchloom/batch.py.
#[derive(Debug, FromPyObject)]
pub(super) struct FieldViews {
    /// A function that splits a tensor `[batches, ..]` into one array for each batch.
    many: Py<PyAny>,
    /// A function that takes the tensor of one batch.
    one: Py<PyAny>,
    /// True if `one` takes a DLPack capsule instead.
    takes_capsules: bool,
}

/// Batches whose arrays are views of blocks.
#[derive(Debug)]
pub(super) struct HostViews {
    pub(super) fields: Vec<FieldViews>,
    /// The place of the size of the longest sample among the keys of a batch, if batches hold it.
    pub(super) longest: Option<usize>,
}

impl HostViews {
    /// The columns of some runs.
    pub(super) fn columns(&self, py: Python<'_>, portion: &Portion) -> PyResult<Columns> {
        let mut columns: Columns = Vec::with_capacity(self.fields.len() + 1);
        for (place, field) in self.fields.iter().enumerate() {
            let mut column = Vec::new();
            for run in portion {
                let tensor = run.fields.get(place);
                let tensor =
                    tensor.ok_or_else(|| LoaderError::new_err("a batch has fewer fields than keys"))?;
                field.append(py, tensor, &mut column)?;
            }
            columns.push(column);
        }
        if let Some(place) = self.longest {
            columns.insert(place, longest(py, portion)?);
        }
        Ok(columns)
    }
}

impl FieldViews {
    /// Appends the arrays of some batches.
    fn append(&self, py: Python<'_>, tensor: &Tensor, column: &mut Vec<Py<PyAny>>) -> PyResult<()> {
        let Some(only) = tensor.0.index(0).filter(|_| tensor.0.shape().first() == Some(&1)) else {
            let arrays = self.many.call1(py, (Tensor(tensor.0.clone()),))?;
            column.extend(arrays.extract::<Vec<Py<PyAny>>>(py)?);
            return Ok(());
        };
        let only = Tensor(only);
        column.push(match self.takes_capsules {
            true => self.one.call1(py, (only.capsule(py)?,))?,
            false => self.one.call1(py, (only,))?,
        });
        Ok(())
    }
}

/// The size of the longest sample of each batch.
fn longest(py: Python<'_>, portion: &Portion) -> PyResult<Vec<Py<PyAny>>> {
    let mut column = Vec::new();
    for run in portion {
        let batches = run.fields.first().and_then(|tensor| tensor.0.shape().first().copied()).unwrap_or(0);
        let longest = run.longest.into_pyobject(py)?.into_any().unbind();
        column.extend((0..batches).map(|_| longest.clone_ref(py)));
    }
    Ok(column)
}

/// The functions that make batches of blocks on a device. They are documented in batchloom/device/pipeline.py.
#[derive(Debug, FromPyObject)]
pub(super) struct Pipeline {
    /// A function that begins with a block.
    pub(super) start: Py<PyAny>,
    /// A function that ends with it, and returns the columns of its batches.
    finish: Py<PyAny>,
    /// A function that makes a batch ready as it is handed over, if batches need that.
    pub(super) deliver: Option<Py<PyAny>>,
}

impl Pipeline {
    /// The columns of the block that was begun.
    pub(super) fn finish(&self, py: Python<'_>, begun: &Py<PyAny>) -> PyResult<Columns> {
        self.finish.call1(py, (begun,))?.extract(py)
    }
}

/// The type that holds the arrays of a batch.
#[derive(Debug)]
pub(super) enum Container {
    Tuple,
    /// A dict with these keys.
    Dict(Vec<Py<PyString>>),
}

impl From<Option<Vec<Py<PyString>>>> for Container {
    fn from(keys: Option<Vec<Py<PyString>>>) -> Self {
        keys.map_or(Self::Tuple, Self::Dict)
    }
}

impl Container {
    /// The batch of these arrays.
    pub(super) fn batch(&self, py: Python<'_>, arrays: Vec<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let Self::Dict(keys) = self else { return Ok(PyTuple::new(py, arrays)?.into_any().unbind()) };
        let batch = PyDict::new(py);
        for (key, array) in keys.iter().zip(arrays) {
            batch.set_item(key, array)?;
        }
        Ok(batch.into_any().unbind())
    }

    /// The batches of columns that are equally long.
    pub(super) fn batches(&self, py: Python<'_>, columns: Columns) -> PyResult<Vec<Py<PyAny>>> {
        let count = columns.first().map_or(0, Vec::len);
        if columns.iter().any(|column| column.len() != count) {
            return Err(LoaderError::new_err("fields of a block have different numbers of batches"));
        }
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        (0..count).map(|_| self.batch(py, columns.iter_mut().filter_map(Iterator::next).collect())).collect()
    }
}
