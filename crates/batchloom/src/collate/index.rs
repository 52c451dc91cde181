//! The samples that a batch holds, their lengths, and the marks of places that only fill up.

use std::ops::Range;
use std::sync::Arc;

use super::{Form, Members};
use crate::{DType, Result};

/// The index at a place that only fills up.
pub(crate) const FILLER: i64 = -1;

/// The sample numbers, -1 where a place only fills up: `[samples]`, int64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleIndex;

impl Form for SampleIndex {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn row_padding(&self) -> Vec<u8> {
        FILLER.to_ne_bytes().to_vec()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let sample =
            |member| if members.is_filler(member) { FILLER } else { members.samples[member].cast_signed() };
        write(range.map(sample), target);
        Ok(())
    }
}

/// The weight of each sample in a loss or a metric: 1, or 0 where a place only fills up, or its sample could not be read.
/// `[samples]`, float32. It holds true for each member that could not be read, and is empty if all could.
#[derive(Debug, Clone)]
pub(crate) struct Weight(pub(crate) Arc<[bool]>);

/// The number of the dataset that each sample is of, where several are put together: int64.
#[derive(Debug)]
pub(crate) struct SourceNumber {
    /// The number of the dataset of each source of data.
    pub(crate) datasets: Vec<i64>,
}

impl Form for SourceNumber {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn row_padding(&self) -> Vec<u8> {
        FILLER.to_ne_bytes().to_vec()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        write(range.map(|member| self.datasets[members.source(member)]), target);
        Ok(())
    }
}

/// The number of the dataset that each sample is of, where datasets are read one after the other: int64.
#[derive(Debug)]
pub(crate) struct SourceOfSample {
    /// The number of samples in each dataset and in all before it.
    pub(crate) ends: Arc<[u64]>,
}

impl Form for SourceOfSample {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn row_padding(&self) -> Vec<u8> {
        FILLER.to_ne_bytes().to_vec()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let source = |member: usize| {
            let sample = members.samples[member];
            self.ends.partition_point(|&end| end <= sample) as i64
        };
        write(range.map(source), target);
        Ok(())
    }
}

impl Form for Weight {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.count]
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        for (slot, member) in target.as_chunks_mut::<4>().0.iter_mut().zip(range) {
            let skipped = self.0.get(member).is_some_and(|&skipped| skipped);
            let weight: f32 = if skipped || members.is_filler(member) { 0.0 } else { 1.0 };
            *slot = weight.to_ne_bytes();
        }
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
