//! Memory that is asked for before it is used.
//!
//! The collections of the standard library end the process if they cannot grow. Work that needs memory in proportion to
//! the data reserves that memory here first, so that its lack is an error. What other threads take in between can
//! still be missing.

use std::collections::TryReserveError;
use std::hint::black_box;

use crate::{Error, Result};

/// Checks that a number of bytes can be had now. This takes a microsecond, and touches no byte.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn require(bytes: usize) -> Result<()> {
    drop(black_box(reserve::<u8>(bytes)?));
    Ok(())
}

/// Checks that `count` elements of `each` bytes can be had now.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn require_each(count: usize, each: usize) -> Result<()> {
    require(count.saturating_mul(each))
}

/// Appends elements to a vector.
///
/// # Errors
/// [`Error::Memory`], and the vector is as before.
pub(crate) fn append<T: Copy>(target: &mut Vec<T>, elements: &[T]) -> Result<()> {
    grow(target, elements.len())?;
    target.extend_from_slice(elements);
    Ok(())
}

/// Makes room for a number of elements, and for more of them later.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn grow<T>(target: &mut Vec<T>, more: usize) -> Result<()> {
    target.try_reserve(more).map_err(|error| lack::<T>(target.len().saturating_add(more), &error))
}

/// An empty vector with room for `count` elements.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|error| lack::<T>(count, &error))?;
    Ok(room)
}

/// The error for elements that there is no memory for.
fn lack<T>(count: usize, error: &TryReserveError) -> Error {
    Error::Memory { bytes: count.saturating_mul(size_of::<T>()), reason: error.to_string() }
}
