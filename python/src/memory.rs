//! Lists that grow with the data: a lack of memory is an error.

use std::hint::black_box;

use batchloom::Error;
use pyo3::prelude::*;

use crate::error::raise;

/// A list of the items of an iterator of known length.
///
/// # Errors
/// The exception for [`Error::out_of_memory`].
pub(crate) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> PyResult<Vec<T>> {
    let mut list = reserve(items.len())?;
    list.extend(items);
    Ok(list)
}

/// Checks that there is memory for `count` elements of a type, for a call that does not check.
///
/// # Errors
/// The exception for [`Error::out_of_memory`].
pub(crate) fn require<T>(count: usize) -> PyResult<()> {
    drop(black_box(reserve::<T>(count)?));
    Ok(())
}

/// An empty list with room for `count` elements.
fn reserve<T>(count: usize) -> PyResult<Vec<T>> {
    let mut list = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    let failed = |reason: String| raise(&Error::out_of_memory(bytes, reason));
    list.try_reserve_exact(count).map_err(|error| failed(error.to_string()))?;
    Ok(list)
}
