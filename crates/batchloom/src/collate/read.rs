//! `ReadField`: one field of a batch whose samples were read on demand.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::{Form, Members, SlotPlace, SlotWriter};
use crate::{DType, Result, Tensor};

/// Samples that were read together and are in no batch yet, here or in another process.
pub trait ReadSamples: Debug + Send + Sync {
    /// Fills consecutive slots of field `field`.
    ///
    /// # Errors
    /// Those of a process that holds the samples, or of a function that fills slots.
    fn write(
        &self,
        field: usize,
        places: &[SlotPlace],
        slots: &SlotTarget<'_>,
        target: &mut [u8],
    ) -> Result<()>;
}

/// The slots that samples are written to.
#[derive(Debug, Clone, Copy)]
pub struct SlotTarget<'a> {
    /// The maker of slots.
    pub writer: &'a SlotWriter,
    /// True if slots are as long as the part of the sample that they take.
    pub concatenates: bool,
}

/// The samples of a batch, in the parts in which they were read: the members of each, and the samples.
pub(crate) type ReadParts = Arc<[(Range<usize>, Arc<dyn ReadSamples>)]>;

/// The field of a batch whose samples were read: `[samples, ..slot]`, or `[elements, ..inner]` of all samples.
#[derive(Debug, Clone)]
pub(crate) struct ReadField {
    pub(crate) parts: ReadParts,
    /// The place of the field in each sample.
    pub(crate) field: usize,
    pub(crate) writer: SlotWriter,
    pub(crate) concatenates: bool,
    /// True if members say which elements are taken of each sample along its first dimension.
    pub(crate) is_variable: bool,
    /// True for each member that could not be read. Empty if all could.
    pub(crate) skipped: Arc<[bool]>,
}

impl ReadField {
    /// The shape of a slot. Samples that vary in length are padded to the longest.
    fn slot(&self, members: &Members) -> Vec<usize> {
        let mut shape = self.writer.shape.clone();
        if let (true, Some(first), Some(&most)) = (self.is_variable, shape.first_mut(), members.union.first())
        {
            *first = most;
        }
        shape
    }
}

impl Form for ReadField {
    fn dtype(&self) -> DType {
        self.writer.dtype
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        let slot = self.slot(members);
        match self.concatenates {
            true => [&[members.elements()], &slot[1..]].concat(),
            false => [&[members.count], slot.as_slice()].concat(),
        }
    }

    fn start(&self, members: &Members, member: usize) -> usize {
        let slot = self.slot(members);
        let (before, inner) = match self.concatenates {
            true => (members.ends[member], &slot[1..]),
            false => (member, &slot[..]),
        };
        before * inner.iter().product::<usize>() * self.writer.dtype.size()
    }

    fn is_concatenated(&self) -> bool {
        self.concatenates
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let begin = self.start(members, range.start);
        let writer = SlotWriter { shape: self.slot(members), ..self.writer.clone() };
        let slots = SlotTarget { writer: &writer, concatenates: self.concatenates };
        for (held, samples) in self.parts.iter() {
            let (first, end) = (held.start.max(range.start), held.end.min(range.end));
            if first >= end {
                continue;
            }
            let place = |member: usize| SlotPlace {
                sample: (!self.skipped.get(member).is_some_and(|&skipped| skipped))
                    .then(|| member - held.start),
                part: self.is_variable.then(|| (members.start(member), members.length(member))),
            };
            let places: Vec<SlotPlace> = (first..end).map(place).collect();
            let bytes = self.start(members, first) - begin..self.start(members, end) - begin;
            samples.write(self.field, &places, &slots, &mut target[bytes])?;
        }
        Ok(())
    }
}

impl SlotTarget<'_> {
    /// Fills consecutive slots with arrays: zeros where there is none.
    ///
    /// # Errors
    /// Those of a function that fills slots.
    pub fn fill<'a>(
        &self,
        places: &[SlotPlace],
        mut target: &mut [u8],
        array: impl Fn(usize) -> Option<&'a Tensor>,
    ) -> Result<()> {
        for place in places {
            let shape = self.writer.shape_of(place, self.concatenates);
            let bytes = shape.iter().product::<usize>() * self.writer.dtype.size();
            let (slot, rest) = target.split_at_mut(bytes);
            match place.sample.and_then(&array) {
                Some(array) => self.writer.write(array, place.part, &shape, slot),
                None => slot.fill(0),
            }
            target = rest;
        }
        Ok(())
    }
}
