//! Files that are read a chunk at a time. They are documented in batchloom/formats.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use batchloom::DType;
use batchloom::dataset::SampleStructure;
use batchloom_formats::json_lines::{JsonLines as Lines, JsonWord, line_places as find_lines};
use batchloom_formats::parquet::{ColumnLayout, FieldColumns, Null};
use batchloom_formats::{
    FileChunks as Chunks, FileSource, FormatError, FormatErrorKind, ParquetFiles as Files, ParquetIndex,
    ParquetSource,
};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::error::{ArgumentError, DTypeError, DataError, UnsupportedFileError, raise};
use crate::interpreter::detach;
use crate::memory::collect;

/// The exception for an error of a file.
pub(crate) fn raise_format(error: &FormatError) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        FormatErrorKind::Argument => ArgumentError::new_err(message),
        FormatErrorKind::Type => DTypeError::new_err(message),
        FormatErrorKind::Unsupported => UnsupportedFileError::new_err(message),
        FormatErrorKind::Io => PyOSError::new_err(message),
        _ => DataError::new_err(message),
    }
}

/// Parquet files with their footers.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct ParquetFiles(Files);

/// A column: its name, the word for its samples, the type and the number of their elements where these are fixed, and the
/// reason why the column makes no tensor.
type Column = (String, &'static str, Option<&'static str>, Option<usize>, Option<String>);

/// A field: its name, its columns, true if they are joined, and the bytes of an
/// element in place of nulls, or no bytes for lists without elements in place of lists that are null.
type FieldOfColumns = (String, Vec<String>, bool, Option<Vec<u8>>);

#[pymethods]
impl ParquetFiles {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Self> {
        detach(py, || Files::open(paths)).map(Self).map_err(|error| raise_format(&error))
    }

    /// The columns.
    fn columns(&self) -> Vec<Column> {
        let describe = |layout: ColumnLayout| match layout {
            ColumnLayout::Scalar(dtype) => ("number", dtype, None),
            ColumnLayout::Fixed(dtype, extent) => ("fixed", dtype, Some(extent)),
            ColumnLayout::List(dtype) => ("list", dtype, None),
            ColumnLayout::Text => ("text", DType::U8, None),
            _ => ("binary", DType::U8, None),
        };
        let column = |column: &batchloom_formats::parquet::ColumnInfo| match &column.layout {
            Ok(layout) => {
                let (word, dtype, extent) = describe(*layout);
                (column.name.clone(), word, Some(dtype.name()), extent, None)
            }
            Err(reason) => (column.name.clone(), "other", None, None, Some(reason.clone())),
        };
        self.0.columns().iter().map(column).collect()
    }

    /// The number of rows of each file.
    fn rows(&self) -> Vec<u64> {
        self.0.rows().collect()
    }

    /// Refuses files with other columns than the first one.
    fn require_same_columns(&self) -> PyResult<()> {
        self.0.require_same_columns().map_err(|error| raise_format(&error))
    }

    /// Returns true if all values of a column are one whole number, by the footers.
    fn is_always(&self, column: &str, value: i64) -> bool {
        self.0.is_always(column, value)
    }

    /// Finds the pages of the columns of some fields, and the lengths of lists. If `as_rows` is true, lists of one column
    /// have to have one length, and are rows. `progress` gets the numbers of row groups: done, and
    /// in all.
    #[expect(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn open(
        &self,
        py: Python<'_>,
        fields: Vec<FieldOfColumns>,
        as_rows: bool,
        cache: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<FileChunks> {
        let fields: Vec<FieldColumns> = fields
            .into_iter()
            .map(|(name, columns, are_joined, null)| {
                let null =
                    null.map(|null| if null.is_empty() { Null::EmptyList } else { Null::Element(null) });
                FieldColumns { name, columns, are_joined, null }
            })
            .collect();
        // An index is one for all orders in which columns are asked for.
        let mut columns: Vec<(&String, &Option<Null>)> = Vec::new();
        for field in &fields {
            columns.extend(field.columns.iter().map(|column| (column, &field.null)));
        }
        columns.sort_by_key(|column| column.0);
        columns.dedup_by_key(|column| column.0);
        let names: Vec<String> = columns.iter().map(|column| column.0.clone()).collect();
        let nulls: Vec<Option<Null>> = columns.iter().map(|column| column.1.clone()).collect();
        let watch = Watch::new(progress);
        let source = detach(py, || {
            let report = |done, all| watch.report(done, all);
            let index = ParquetIndex::make(&self.0, &names, &nulls, cache.as_deref(), &report)?;
            let source = ParquetSource::new(self.0.clone(), index, &fields)?;
            if as_rows { source.as_rows() } else { Ok(source) }
        });
        watch.finish()?;
        source.map(FileChunks::new).map_err(|error| raise_format(&error))
    }
}

/// The progress of a look at files, for a function of Python. Ctrl-C ends the look.
struct Watch {
    progress: Option<Py<PyAny>>,
    /// The exception that ended it.
    failed: Mutex<Option<PyErr>>,
}

impl Watch {
    fn new(progress: Option<Py<PyAny>>) -> Self {
        Self { progress, failed: Mutex::new(None) }
    }

    /// Reports how much is done; returns false if the look ends here.
    fn report(&self, done: usize, all: usize) -> bool {
        Python::attach(|py| {
            let called = match &self.progress {
                Some(progress) => progress.call1(py, (done, all)).map(drop),
                None => Ok(()),
            };
            let Err(error) = called.and_then(|()| py.check_signals()) else { return true };
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            false
        })
    }

    /// Raises the exception that ended the look, if one did.
    fn finish(self) -> PyResult<()> {
        match self.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Files of lines of JSON.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct JsonLines(Lines);

#[pymethods]
impl JsonLines {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Self> {
        detach(py, || Lines::open(paths)).map(Self).map_err(|error| raise_format(&error))
    }

    /// The keys of the first line, and the word for the value of each.
    fn columns(&self) -> Vec<(String, &'static str)> {
        let word = |word| match word {
            JsonWord::Number => "number",
            JsonWord::List => "list",
            JsonWord::Text => "text",
            JsonWord::Null => "null",
            JsonWord::Other => "other",
        };
        self.0.columns().iter().map(|column| (column.name.clone(), word(column.word))).collect()
    }

    /// The path of the file and the row there of the first sample with an element of a key that is not 1, or `None`.
    #[expect(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn find_other_than_one(
        &self,
        py: Python<'_>,
        key: String,
        cache: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<(PathBuf, u64)>> {
        let watch = Watch::new(progress);
        let found = detach(py, || {
            let report = |done, all| watch.report(done, all);
            let found = self.0.find_other_than_one(&key, cache.as_deref(), &report)?;
            Ok(found.map(|(path, row)| (path.to_owned(), row)))
        });
        watch.finish()?;
        found.map_err(|error| raise_format(&error))
    }

    /// The samples of some keys, each a field of the name in its place, with a number in place of nulls if there is one.
    #[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn open(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        keys: Vec<String>,
        nulls: Vec<Option<f64>>,
        as_rows: bool,
        cache: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<FileChunks> {
        let watch = Watch::new(progress);
        let source = detach(py, || {
            let report = |done, all| watch.report(done, all);
            self.0.source(&names, &keys, &nulls, as_rows, cache.as_deref(), &report)
        });
        watch.finish()?;
        source.map(FileChunks::new).map_err(|error| raise_format(&error))
    }
}

/// The first byte of each line of a file that is not blank, and its bytes: `[lines, 2]` of uint64.
#[pyfunction]
pub(crate) fn line_places(py: Python<'_>, path: PathBuf) -> PyResult<Tensor> {
    let places = detach(py, || find_lines(path)).map_err(|error| raise_format(&error))?;
    let shape = [places.len(), 2];
    batchloom::Tensor::from_vec(places.into_flattened(), &shape).map(Tensor).map_err(|error| raise(&error))
}

/// Samples of files that are read a chunk at a time.
#[pyclass(frozen, from_py_object, module = "batchloom._native")]
#[derive(Debug, Clone)]
pub(crate) struct FileChunks {
    source: Arc<dyn FileSource>,
    structure: SampleStructure,
}

impl FileChunks {
    fn new(source: impl FileSource) -> Self {
        let structure = SampleStructure { names: source.names().into(), nesting: "".into() };
        Self { source: Arc::new(source), structure }
    }

    /// The chunks as the engine reads them.
    pub(crate) fn into_source(self) -> Chunks<Arc<dyn FileSource>> {
        Chunks::nested(self.source, self.structure)
    }
}

#[pymethods]
impl FileChunks {
    /// The same chunks, whose samples hold the fields in their order in a structure that Python knows by a text.
    fn nested(&self, nesting: &str) -> Self {
        let structure = SampleStructure { nesting: nesting.into(), ..self.structure.clone() };
        Self { structure, ..self.clone() }
    }

    /// The name of each field, and its type in words.
    fn types(&self) -> Vec<(String, String)> {
        let types = self.source.types().into_iter().map(|each| each.to_string());
        self.source.names().iter().cloned().zip(types).collect()
    }

    /// The number of samples of each chunk, uint64.
    fn sizes(&self) -> PyResult<Tensor> {
        let chunks = self.source.chunks();
        let sizes = (0..usize::try_from(chunks.len()).unwrap_or(0)).map(|chunk| {
            let range = chunks.range(chunk as u64);
            range.end - range.start
        });
        Ok(Tensor(collect(sizes)?.into()))
    }

    /// The length of the lists of each sample, uint32; `None` without lists that differ in length.
    fn lengths(&self) -> PyResult<Option<Tensor>> {
        let lengths = self.source.lengths().map(|lengths| collect(lengths.iter().copied()));
        Ok(lengths.transpose()?.map(|lengths| Tensor(lengths.into())))
    }
}
