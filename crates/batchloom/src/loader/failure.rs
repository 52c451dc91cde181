//! `Failure`: the first batch of a block that cannot be formed.

use std::cmp::Ordering;

use crate::Error;

/// A batch of a block that cannot be formed.
pub(super) struct Failure {
    /// Its step; 0 if the whole block is the failure.
    pub(super) step: u64,
    /// The member that failed.
    pub(super) member: usize,
    pub(super) error: Error,
}

impl Failure {
    /// Returns true if this failure is in an earlier batch, or at an earlier member of the same batch.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        (self.step, self.member).cmp(&(other.step, other.member)) == Ordering::Less
    }
}
