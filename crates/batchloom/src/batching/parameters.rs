//! Checks of parameters that rules share.

use super::error::BatchingCause;
use crate::Result;

/// Returns a parameter that has to be at least 1, and refuses 0.
pub(super) fn positive<T: Default + PartialEq>(option: &'static str, value: T) -> Result<T> {
    match value == T::default() {
        true => Err(BatchingCause::NotPositive { option }.into()),
        false => Ok(value),
    }
}
