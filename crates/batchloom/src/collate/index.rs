//! Which samples a batch holds, and how long they are.

use std::ops::Range;

use super::Members;

/// The sample numbers of some members, as int64.
pub(super) fn samples(members: &Members, range: Range<usize>, target: &mut [u8]) {
    write(members.samples[range].iter().map(|&sample| sample.cast_signed()), target);
}

/// The extents of some members, as int64.
pub(super) fn lengths(members: &Members, range: Range<usize>, target: &mut [u8]) {
    write(range.flat_map(|member| members.extents(member)).map(|&extent| i64::from(extent)), target);
}

/// Writes numbers one after the other.
pub(super) fn write(numbers: impl Iterator<Item = i64>, target: &mut [u8]) {
    for (slot, number) in target.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *slot = number.to_ne_bytes();
    }
}
