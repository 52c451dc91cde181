//! Checks of parameters that rules share.

use crate::{Error, Result};

/// Returns a parameter that has to be at least 1, and refuses 0.
pub(super) fn positive<T: Default + PartialEq>(name: &'static str, value: T) -> Result<T> {
    match value == T::default() {
        true => Err(Error::NotPositive { name }),
        false => Ok(value),
    }
}
