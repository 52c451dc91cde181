//! Parameters that rules share: their defaults and their checks.

use crate::{Error, Result};

/// The number of samples in a pool, unless the user sets it.
pub(super) const POOL: u64 = 1 << 14;

/// Returns a parameter that has to be at least 1, and refuses 0.
pub(super) fn positive<T: Default + PartialEq>(name: &'static str, value: T) -> Result<T> {
    match value == T::default() {
        true => Err(Error::NotPositive { name }),
        false => Ok(value),
    }
}
