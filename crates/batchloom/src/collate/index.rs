//! The samples that a batch holds, and their lengths.

use std::ops::Range;

use super::{Form, Members};
use crate::{DType, Result};

/// The sample numbers: `[samples]`, int64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index;

impl Form for Index {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write(members.samples[range].iter().map(|&sample| sample.cast_signed()), target);
        Ok(())
    }
}

/// The extents of each sample: `[samples]`, or `[samples, dimensions]`; int64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths;

impl Form for Lengths {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        match members.union.len() {
            0 | 1 => vec![members.count],
            dimensions => vec![members.count, dimensions],
        }
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write(range.flat_map(|member| members.extents(member)).map(|&extent| i64::from(extent)), target);
        Ok(())
    }
}

/// Writes numbers one after the other.
pub(super) fn write(numbers: impl Iterator<Item = i64>, target: &mut [u8]) {
    for (slot, number) in target.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *slot = number.to_ne_bytes();
    }
}
