//! Memory that is asked for before it is used.
//!
//! The collections of the standard library end the process if they cannot grow. Work that needs memory in proportion to
//! the data reserves that memory here first, so that its lack is an error. What other threads take in between can
//! still be missing.

use std::collections::TryReserveError;
use std::hint::black_box;

use crate::error::causes;
use crate::{Error, Result};

causes! {
    /// The cause of errors about memory.
    enum MemoryCause {
        #[error(
            "could not allocate {bytes} bytes: {reason}; expected as much free memory: raise the limit of the process or \
             container (ulimit -v), or take smaller batches, a smaller prefetch or less data at once"
        )]
        Memory { bytes: usize, reason: String } is Memory,
    }
}

impl Error {
    /// The error of [`Kind::Memory`](crate::Kind::Memory) for bytes that could not be allocated, and the reason that
    /// the system gave. It is for functions that allocate memory for a loader.
    pub fn out_of_memory(bytes: usize, reason: String) -> Self {
        MemoryCause::Memory { bytes, reason }.into()
    }
}

/// Checks that a number of bytes can be had now. This takes a microsecond, and touches no byte.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory).
pub(crate) fn require(bytes: usize) -> Result<()> {
    drop(black_box(reserve::<u8>(bytes)?));
    Ok(())
}

/// Checks that `count` elements of `each` bytes can be had now.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory).
pub(crate) fn require_each(count: usize, each: usize) -> Result<()> {
    require(count.saturating_mul(each))
}

/// Appends elements to a vector.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory), and the vector is as before.
pub(crate) fn append<T: Copy>(target: &mut Vec<T>, elements: &[T]) -> Result<()> {
    grow(target, elements.len())?;
    target.extend_from_slice(elements);
    Ok(())
}

/// Makes room for a number of elements, and for more of them later.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory).
pub(crate) fn grow<T>(target: &mut Vec<T>, more: usize) -> Result<()> {
    target.try_reserve(more).map_err(|error| lack::<T>(target.len().saturating_add(more), &error))
}

/// An empty vector with room for `count` elements.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory).
pub(crate) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|error| lack::<T>(count, &error))?;
    Ok(room)
}

/// The error for elements that there is no memory for.
fn lack<T>(count: usize, error: &TryReserveError) -> Error {
    Error::out_of_memory(count.saturating_mul(size_of::<T>()), error.to_string())
}
