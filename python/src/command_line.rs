//! The program `batchloom` for the Python package: the same code as the crate's, with tables that pyarrow reads.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use anyhow::{Result, anyhow};
use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::ArrowArrayStreamReader;
use batchloom_cli::{Table, Tables};
use pyo3::prelude::*;

use crate::arrow::record_batches;
use crate::interpreter::detach;

/// Runs the program with its name and arguments; returns its exit code. `open` opens a Parquet or an Arrow file: see
/// batchloom/command_line.py.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>, open: Py<PyAny>) -> u8 {
    let run = || batchloom_cli::run(arguments, &Opened(open), &mut io::stdout().lock(), &mut io::stderr());
    detach(py, run)
}

/// Tables that a function of Python opens.
struct Opened(Py<PyAny>);

impl Tables for Opened {
    fn open(&self, path: &Path, columns: Option<&[String]>) -> Result<Table> {
        let open = |py: Python<'_>| -> PyResult<(ArrowArrayStreamReader, Option<u64>, Option<u64>)> {
            let opened = self.0.bind(py).call1((path, columns))?;
            let (reader, rows, chunks): (Bound<'_, PyAny>, _, _) = opened.extract()?;
            Ok((record_batches(&reader)?, rows, chunks))
        };
        let (reader, rows, chunks) =
            Python::attach(|py| open(py).map_err(|error| anyhow!("{}", error.value(py))))?;
        let schema = reader.schema();
        Ok(Table { schema, rows, chunks, batches: Box::new(reader.map(|batch| Ok(batch?))) })
    }
}
