//! `ReadField`: one field of a batch of samples that were read on demand.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::form::Padding;
use super::labels::SampleTokens;
use super::{Form, Members, SlotPlace, SlotWriter};
use crate::{DType, Result, Tensor};

/// Samples that were read together and are in no batch yet, here or in another process.
pub trait ReadSamples: Debug + Send + Sync {
    /// Fills consecutive slots of field `field`.
    ///
    /// # Errors
    /// The slots of a process that holds the samples, or of a function that fills slots.
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

/// The field of a batch of read samples: `[samples, ..slot]`, or `[elements, ..inner]` of all samples.
#[derive(Debug, Clone)]
pub(crate) struct ReadField {
    pub(crate) parts: ReadParts,
    /// The place of the field in each sample.
    pub(crate) field: usize,
    pub(crate) writer: SlotWriter,
    pub(crate) concatenates: bool,
    /// True if members hold which elements are taken of each sample along its first dimension.
    pub(crate) is_variable: bool,
    /// The shape of the sample of each member, or `None` for one that could not be read.
    pub(crate) shapes: Arc<[Option<Vec<usize>>]>,
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

    fn sample(&self) -> Vec<Option<usize>> {
        let mut shape: Vec<_> = self.writer.shape.iter().copied().map(Some).collect();
        if let (true, Some(first)) = (self.is_variable, shape.first_mut()) {
            *first = None;
        }
        shape
    }

    fn padding(&self) -> Option<&dyn Padding> {
        let pads = !self.concatenates && (self.is_variable || self.writer.slot.pads());
        pads.then_some(self)
    }

    fn is_data(&self) -> bool {
        true
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
                number: members.samples[member],
                epoch: members.epoch,
                sample: self.shapes[member].as_ref().map(|_| member - held.start),
                part: self.is_variable.then(|| (members.start(member), members.length(member))),
            };
            let places: Vec<SlotPlace> = (first..end).map(place).collect();
            let bytes = self.start(members, first) - begin..self.start(members, end) - begin;
            samples.write(self.field, &places, &slots, &mut target[bytes])?;
        }
        Ok(())
    }
}

impl SampleTokens for ReadField {
    fn dtype(&self) -> DType {
        self.writer.dtype
    }

    fn has(&self, member: usize) -> bool {
        self.shapes[member].is_some()
    }

    fn copy(&self, members: &Members, member: usize, tokens: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slots = SlotTarget { writer: &self.writer, concatenates: true };
        for (held, samples) in self.parts.iter().filter(|(held, _)| held.contains(&member)) {
            let place = SlotPlace {
                number: members.samples[member],
                epoch: members.epoch,
                sample: Some(member - held.start),
                part: Some((tokens.start, tokens.len())),
            };
            samples.write(self.field, &[place], &slots, target)?;
        }
        Ok(())
    }
}

impl Padding for ReadField {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let Some(mut extents) = self.shapes[member].clone() else { return };
        if let (true, Some(first)) = (self.is_variable, extents.first_mut()) {
            *first = members.length(member);
        }
        let slot = self.slot(members);
        self.writer.slot.data(&extents, &slot, each);
    }
}

impl SlotTarget<'_> {
    /// Fills consecutive slots with arrays: zeros where there is no array.
    ///
    /// # Errors
    /// The errors of [`SlotWriter::write`].
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
                Some(array) => self.writer.write(array, place, &shape, slot)?,
                None => slot.fill(0),
            }
            target = rest;
        }
        Ok(())
    }
}

/// A field with slots of one known shape, which a reader fills while it reads: `[samples,
/// ..slot]`.
#[derive(Debug, Clone)]
pub(crate) struct DirectSlots {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Form for DirectSlots {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], self.shape.as_slice()].concat()
    }

    /// Leaves the slots to the reader.
    fn fill(&self, _: &Members, _: Range<usize>, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}
