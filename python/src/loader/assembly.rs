//! The assembly of batches: the arrays of each field, and the tuple or dict that holds the arrays of a batch.
//!
//! Batches are put together only here, whatever makes their arrays: frameworks that view the memory of blocks, a
//! pipeline on a device, or slices of the data.

use std::sync::Arc;

use batchloom::loader;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::block::{Block, tables};
use super::column::Column;
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
    /// The objects of samples by their tickets, in tables, if samples hold any.
    pub(super) objects: Arc<[Py<PyAny>]>,
}

/// The arrays of each field: a sequence of Python with one for each batch.
pub(super) type Columns = Vec<Py<PyAny>>;

/// The maker of batches.
#[derive(Debug)]
pub(super) enum Assembly {
    /// Frameworks, which view the memory of blocks.
    Host(Py<HostViews>),
    /// The same, for fields that are known with each block.
    Late(LateViews),
    /// Operations on a device, and the containers of their batches.
    Device(Pipeline, Container),
}

impl Assembly {
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Host(views) => visit.call(views),
            Self::Late(late) => {
                visit.call(&late.views)?;
                visit.call(&late.make)
            }
            Self::Device(pipeline, _) => {
                visit.call(&pipeline.start)?;
                visit.call(&pipeline.finish)?;
                visit.call(&pipeline.deliver)
            }
        }
    }
}

/// Views of the fields of the last block. Mostly they fit the next block too.
#[derive(Debug)]
pub(super) struct LateViews {
    /// A function that makes views, given the names and types of fields, and their nesting.
    make: Py<PyAny>,
    columns: Vec<(String, &'static str)>,
    nesting: String,
    pub(super) views: Option<Py<HostViews>>,
}

impl LateViews {
    /// Views that `make` makes.
    pub(super) fn new(make: Py<PyAny>) -> Self {
        Self { make, columns: Vec::new(), nesting: String::new(), views: None }
    }

    /// True if these are views of blocks with such fields.
    pub(super) fn fits(&self, columns: &[(String, &'static str)], nesting: &str) -> bool {
        self.views.is_some() && self.columns == columns && self.nesting == nesting
    }

    /// The views of blocks with other fields.
    pub(super) fn remake(
        &self,
        py: Python<'_>,
        columns: Vec<(String, &'static str)>,
        nesting: &str,
    ) -> PyResult<Self> {
        let views = Some(self.make.call1(py, (columns.clone(), nesting))?.extract(py)?);
        Ok(Self { make: self.make.clone_ref(py), columns, nesting: nesting.to_owned(), views })
    }
}

/// The functions that take a field of blocks as arrays of a framework. They are documented in
/// batchloom/collate/schema.py.
#[derive(Debug, FromPyObject)]
pub(super) struct FieldViews {
    /// A function that splits a column into one array for each batch.
    many: Py<PyAny>,
    /// A function that takes the tensor of one batch.
    one: Py<PyAny>,
    /// True if `one` takes a DLPack capsule instead.
    takes_capsules: bool,
}

/// A function that makes one array of several neighbouring fields of a batch. It is documented in
/// batchloom/collate/schema.py.
#[derive(Debug, FromPyObject)]
pub(super) struct Join {
    /// The place of the first field, counted after earlier fields are joined.
    place: usize,
    /// The number of fields.
    fields: usize,
    /// The function.
    make: Py<PyAny>,
}

/// Batches of arrays that are views of blocks. It is documented in batchloom/delivery/host.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct HostViews {
    fields: Vec<FieldViews>,
    container: Container,
    joins: Vec<Join>,
    /// The place of the size of the longest sample among the keys of a batch, if batches hold it.
    longest: Option<usize>,
    objects: ObjectViews,
}

/// The fields that hold objects. It is documented in batchloom/collate/objects.py.
#[derive(Debug, FromPyObject)]
pub(super) struct ObjectViews {
    /// The places of the fields.
    places: Vec<usize>,
    /// A function that returns the objects of a field, given tables, the number of the field among `places`, and the
    /// tickets of samples.
    find: Py<PyAny>,
}

impl ObjectViews {
    /// Puts objects in the place of the tickets of a batch.
    fn replace(&self, py: Python<'_>, tables: &[Py<PyAny>], arrays: &mut [Py<PyAny>]) -> PyResult<()> {
        for (number, &place) in self.places.iter().enumerate() {
            let tables = PyTuple::new(py, tables)?;
            arrays[place] = self.find.call1(py, (tables, number, &arrays[place]))?;
        }
        Ok(())
    }
}

#[pymethods]
impl HostViews {
    #[new]
    #[pyo3(signature = (fields, keys, joins, longest, objects, build=None))]
    fn new(
        fields: Vec<FieldViews>,
        keys: Option<Vec<Py<PyString>>>,
        joins: Vec<Join>,
        longest: Option<usize>,
        objects: ObjectViews,
        build: Option<Py<PyAny>>,
    ) -> Self {
        let container = build.map_or_else(|| keys.into(), Container::Built);
        Self { fields, container, joins, longest, objects }
    }

    /// The only batch of a block.
    fn batch(&self, py: Python<'_>, block: &Block) -> PyResult<Py<PyAny>> {
        let objects = tables(py, &block.0);
        let run = |run: &loader::ShapeRun| ShapeRun {
            fields: run.fields().iter().cloned().map(Tensor).collect(),
            longest: run.longest(),
            objects: Arc::clone(&objects),
        };
        let batches = self.batches(py, &block.0.runs().iter().map(run).collect())?;
        let only = batches.into_iter().next();
        only.ok_or_else(|| LoaderError::new_err("a batch was formed and is not there"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.joins.iter().try_for_each(|join| visit.call(&join.make))?;
        visit.call(&self.objects.find)?;
        if let Container::Built(build) = &self.container {
            visit.call(build)?;
        }
        self.fields.iter().try_for_each(|field| {
            visit.call(&field.many)?;
            visit.call(&field.one)
        })
    }
}

impl HostViews {
    /// The batches of some runs.
    pub(super) fn batches(&self, py: Python<'_>, portion: &Portion) -> PyResult<Vec<Py<PyAny>>> {
        if let [run] = portion.as_slice()
            && let Some(arrays) = self.only(py, run)?
        {
            return Ok(vec![self.container.batch(py, arrays)?]);
        }
        self.container.batches(py, self.columns(py, portion)?)
    }

    /// The arrays of the only batch of a run. `None` if there are more.
    fn only(&self, py: Python<'_>, run: &ShapeRun) -> PyResult<Option<Vec<Py<PyAny>>>> {
        if run.fields.first().is_none_or(Tensor::is_many) {
            return Ok(None);
        }
        let mut arrays = Vec::with_capacity(self.fields.len() + 1);
        for (field, tensor) in self.fields.iter().zip(&run.fields) {
            field.append(py, tensor, &mut arrays)?;
        }
        self.objects.replace(py, &run.objects, &mut arrays)?;
        for join in &self.joins {
            let parts: Vec<_> = arrays.drain(join.place..join.place + join.fields).collect();
            arrays.insert(join.place, join.make.call1(py, PyTuple::new(py, parts)?)?);
        }
        if let Some(place) = self.longest {
            arrays.insert(place, run.longest.into_pyobject(py)?.into_any().unbind());
        }
        Ok(Some(arrays))
    }

    /// The columns of some runs.
    fn columns(&self, py: Python<'_>, portion: &Portion) -> PyResult<Columns> {
        let column = |(place, field): (usize, &FieldViews)| {
            let tensors = || portion.iter().filter_map(|run| run.fields.get(place));
            // Mostly a framework takes all batches at once, and its column is what it makes of them.
            if tensors().any(Tensor::is_many) {
                let whole = Column::new(tensors().map(|tensor| tensor.0.clone()).collect());
                if whole.is_whole() {
                    return field.many.call1(py, (whole,));
                }
            }
            let mut column = Vec::new();
            for tensor in tensors() {
                field.append(py, tensor, &mut column)?;
            }
            Ok(PyList::new(py, column)?.into_any().unbind())
        };
        let mut columns = self.fields.iter().enumerate().map(column).collect::<PyResult<Columns>>()?;
        for join in &self.joins {
            let map = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "map"))?;
            let mut arguments = vec![join.make.clone_ref(py)];
            arguments.extend(columns.drain(join.place..join.place + join.fields));
            let joined = PyList::empty(py);
            for array in map.call1(PyTuple::new(py, arguments)?)?.try_iter()? {
                joined.append(array?)?;
            }
            columns.insert(join.place, joined.into_any().unbind());
        }
        if let Some(place) = self.longest {
            columns.insert(place, PyList::new(py, longest(py, portion)?)?.into_any().unbind());
        }
        Ok(columns)
    }
}

impl FieldViews {
    /// Appends the arrays of a run.
    fn append(&self, py: Python<'_>, run: &Tensor, column: &mut Vec<Py<PyAny>>) -> PyResult<()> {
        let Some(only) = run.0.index(0).filter(|_| !run.is_many()) else {
            let run = Column::new(vec![run.0.clone()]);
            column.extend(self.many.call1(py, (run,))?.extract::<Vec<Py<PyAny>>>(py)?);
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

impl Tensor {
    /// True if this is the array of several batches.
    fn is_many(&self) -> bool {
        self.0.shape().first().is_some_and(|&batches| batches > 1)
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
    /// The result of a function of the arrays.
    Built(Py<PyAny>),
}

impl From<Option<Vec<Py<PyString>>>> for Container {
    fn from(keys: Option<Vec<Py<PyString>>>) -> Self {
        keys.map_or(Self::Tuple, Self::Dict)
    }
}

impl Container {
    /// The batch of these arrays.
    pub(super) fn batch(&self, py: Python<'_>, arrays: Vec<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let keys = match self {
            Self::Tuple => return Ok(PyTuple::new(py, arrays)?.into_any().unbind()),
            Self::Built(build) => return build.call1(py, (PyTuple::new(py, arrays)?,)),
            Self::Dict(keys) => keys,
        };
        let batch = PyDict::new(py);
        for (key, array) in keys.iter().zip(arrays) {
            batch.set_item(key, array)?;
        }
        Ok(batch.into_any().unbind())
    }

    /// The batches of columns that are equally long.
    pub(super) fn batches(&self, py: Python<'_>, columns: Columns) -> PyResult<Vec<Py<PyAny>>> {
        let lengths = columns.iter().map(|column| column.bind(py).len()).collect::<PyResult<Vec<_>>>()?;
        let count = lengths.first().copied().unwrap_or(0);
        if lengths.iter().any(|&length| length != count) {
            return Err(LoaderError::new_err("fields of a block have different numbers of batches"));
        }
        let Self::Dict(keys) = self else {
            // Python's own `zip` makes a tuple in less time than a call from here to there takes.
            let zip = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "zip"))?;
            let tuples = zip.call1(PyTuple::new(py, columns)?)?.try_iter()?;
            return match self {
                Self::Built(build) => tuples.map(|arrays| build.call1(py, (arrays?,))).collect(),
                _ => tuples.map(|batch| Ok(batch?.unbind())).collect(),
            };
        };
        let batches: Vec<_> = (0..count).map(|_| PyDict::new(py)).collect();
        for (key, column) in keys.iter().zip(&columns) {
            for (batch, array) in batches.iter().zip(column.bind(py).try_iter()?) {
                batch.set_item(key, array?)?;
            }
        }
        Ok(batches.into_iter().map(|batch| batch.into_any().unbind()).collect())
    }
}
