//! `WholeField`: a field of a batch that was made as a whole, of any shape.

use std::ops::Range;
use std::sync::Arc;

use super::{Form, Members, ReadSamples, SlotPlace, SlotTarget, SlotWriter};
use crate::{DType, Result};

/// The field of a batch that was made as a whole: copied with the first member.
#[derive(Debug, Clone)]
pub(crate) struct WholeField {
    /// The batch, held as if it were a sample.
    pub(crate) batch: Arc<dyn ReadSamples>,
    /// The place of the field in it.
    pub(crate) field: usize,
    pub(crate) writer: SlotWriter,
}

impl Form for WholeField {
    fn dtype(&self) -> DType {
        self.writer.dtype
    }

    fn shape(&self, _: &Members) -> Vec<usize> {
        self.writer.shape.clone()
    }

    fn start(&self, _: &Members, member: usize) -> usize {
        if member == 0 { 0 } else { self.writer.bytes() }
    }

    fn sample(&self) -> Vec<Option<usize>> {
        self.writer.shape.iter().map(|_| None).collect()
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        if range.start > 0 {
            return Ok(());
        }
        let place = SlotPlace::whole(members.samples.first().copied().unwrap_or(0), 0);
        let slots = SlotTarget { writer: &self.writer, concatenates: false };
        self.batch.write(self.field, &[place], &slots, target)
    }
}
