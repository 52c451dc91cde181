//! Samples that Python makes, whatever reads them: visits of the interpreter, which are timed, and the sizes of samples.

use batchloom::dataset::{MapDatasetBuilder, ReadClock, SourceError};
use pyo3::prelude::*;

use crate::batching::{GivenSizes, sizes};
use crate::interpreter::{Arrival, Visit};

/// Runs a function in Python, unless the interpreter ends, and counts the time.
pub(super) fn visit_python<T>(
    clock: &ReadClock,
    run: impl FnOnce(Python<'_>) -> PyResult<T>,
) -> Result<T, SourceError> {
    let visited = Visit::begin().and_then(|_visit| {
        let arrival = Arrival::now();
        Python::try_attach(|py| {
            let stay = arrival.enter(py);
            let output = run(py).map_err(|error| Box::new(error) as SourceError);
            let (spent, waited) = stay.leave(py);
            clock.count(spent, waited);
            output
        })
    });
    visited.unwrap_or_else(|| Err("the interpreter is ending".into()))
}

/// The options of a dataset whose samples have these sizes.
pub(super) fn add_sizes(
    dataset: MapDatasetBuilder,
    (first, columns): &GivenSizes<'_>,
) -> PyResult<MapDatasetBuilder> {
    let mut dataset = dataset.sizes(sizes(first)?.to_vec());
    for (name, values, _) in columns {
        dataset = match values {
            Some(values) => dataset.named_sizes(name, sizes(values)?.to_vec()),
            None => dataset.size_name(name),
        };
    }
    Ok(dataset)
}
