//! `owners`: the number of the sample that each element of a concatenation is of.

use std::ops::Range;

use super::index::write;
use super::{Form, Members};
use crate::{DType, Result};

/// The number, in the batch, of each element's sample, from 0: `[elements]`, int64. Models of graphs take it as `batch`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners;

impl Form for Owners {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        vec![members.elements()]
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        members.ends[member] * size_of::<i64>()
    }

    fn is_concatenated(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let mut rest = target;
        for member in range {
            let (part, later) = rest.split_at_mut(members.length(member) * size_of::<i64>());
            write(std::iter::repeat(member.cast_signed() as i64), part);
            rest = later;
        }
        Ok(())
    }
}
