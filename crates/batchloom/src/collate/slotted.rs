//! `Slotted`: the field of another form, with each sample put into a slot; and the mask and the lengths that describe
//! such a field.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::error::CollateCause;
use super::form::Padding;
use super::index::write;
use super::slot::runs;
use super::{Form, Members, Slot, SlotPlace, SlotWriter};
use crate::tensor::Layout;
use crate::{DType, Result, Tensor};

/// The field of another form, with each sample put into a slot: `[samples, ..slot]`.
#[derive(Debug)]
pub(crate) struct Slotted {
    name: String,
    inner: Arc<dyn Form>,
    writer: SlotWriter,
}

impl Slotted {
    /// The field `name` of `inner` in slots with padding `padding`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument), and the errors of the slot, if samples do not go into it.
    pub(crate) fn new(name: &str, inner: Arc<dyn Form>, slot: &Slot, padding: Vec<u8>) -> Result<Self> {
        let field = || name.to_owned();
        if inner.is_concatenated() {
            return Err(CollateCause::SlotOfConcatenated { field: field() }.into());
        }
        let sample = inner.sample();
        if matches!(slot, Slot::Same) && sample.contains(&None) {
            return Err(CollateCause::SlotOfShapes { field: field() }.into());
        }
        if let Some(dimension) = slot.left_to_differ(&sample) {
            return Err(CollateCause::SlotExtent { field: field(), dimension }.into());
        }
        // Extents that vary are those of some sample.
        let shape: Vec<usize> = sample.iter().map(|extent| extent.unwrap_or(1)).collect();
        slot.check_array(|| format!("field {name}"), inner.dtype(), &shape)?;
        let shape = slot.shape(name, std::iter::once(shape.as_slice()))?;
        let dtype = slot.dtype(inner.dtype());
        let name = name.to_owned();
        Ok(Self { name, inner, writer: SlotWriter { slot: slot.clone(), shape, dtype, padding } })
    }

    /// The shape of a slot. The slot of samples of one shape is known.
    ///
    /// # Errors
    /// [`ReadError::TooLong`](crate::error::ReadError::TooLong).
    fn try_slot(&self, members: &Members) -> Result<Vec<usize>> {
        if !self.inner.sample().contains(&None) {
            return Ok(self.writer.shape.clone());
        }
        let shapes: Vec<_> = (0..members.count).map(|member| self.extents(members, member)).collect();
        self.writer.slot.shape(&self.name, shapes.iter().map(Vec::as_slice))
    }

    /// The shape of a slot, or some shape for a batch that [`fill`](Form::fill) refuses.
    fn slot(&self, members: &Members) -> Vec<usize> {
        self.try_slot(members).unwrap_or_else(|_| self.writer.shape.clone())
    }

    /// The shape of a sample.
    fn extents(&self, members: &Members, member: usize) -> Vec<usize> {
        self.inner.shape(&members.keep_only(member)).split_off(1)
    }
}

impl Form for Slotted {
    fn dtype(&self) -> DType {
        self.writer.dtype
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], self.slot(members).as_slice()].concat()
    }

    fn sample(&self) -> Vec<Option<usize>> {
        let known = |extent: usize| Some(extent);
        let inner = self.inner.sample();
        let shape: Vec<Option<usize>> = self.writer.shape.iter().copied().map(known).collect();
        match self.writer.slot.grows() {
            // A slot of the largest extents has those that samples share.
            true => shape.into_iter().zip(inner).map(|(extent, inner)| inner.and(extent)).collect(),
            false => shape,
        }
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.writer.slot.pads().then_some(self)
    }

    fn is_data(&self) -> bool {
        true
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let shape = self.try_slot(members)?;
        let bytes = shape.iter().product::<usize>() * self.writer.dtype.size();
        for (slot, member) in target.chunks_exact_mut(bytes.max(1)).zip(range) {
            let one = members.keep_only(member);
            let extents = self.extents(members, member);
            let dtype = self.inner.dtype();
            let too_large = || CollateCause::BatchTooLarge { samples: 1, row: usize::MAX };
            let layout = Layout::compact(&extents, dtype.size()).ok_or_else(too_large)?;
            let mut values = vec![0; layout.elements() * dtype.size()];
            self.inner.fill(&one, 0..1, &mut values)?;
            let sample = Tensor::new(Bytes::from(values), dtype, &extents, layout.strides(), 0)?;
            let number = one.samples.first().copied().unwrap_or(0);
            let place = SlotPlace { epoch: one.epoch, ..SlotPlace::whole(number, 0) };
            self.writer.write(&sample, &place, &shape, slot)?;
        }
        Ok(())
    }
}

/// Tells data from padding in a field with slots, along the dimensions in which samples vary.
#[derive(Debug)]
pub(crate) struct SlottedMask(pub(crate) Described);

/// The extents of the data in the slots of a field, along the dimensions in which samples vary: `[samples]`, or
/// `[samples, dimensions]`; int64.
#[derive(Debug)]
pub(crate) struct SlottedLengths(pub(crate) Described);

/// A field with slots, as its mask and its lengths describe it.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    field: Arc<Slotted>,
    /// The dimensions in which samples vary.
    dimensions: Vec<usize>,
}

impl Described {
    /// A field whose samples vary in these dimensions, or `None` if its slot hides which elements are data.
    pub(crate) fn new(field: &Arc<Slotted>, dimensions: &[usize]) -> Option<Self> {
        let (shape, slot) = (&field.writer.shape, &field.writer.slot);
        let is_known = dimensions.iter().all(|&dimension| slot.data_along(dimension, shape, shape).is_some());
        is_known.then(|| Self { field: Arc::clone(field), dimensions: dimensions.to_vec() })
    }

    /// The data of a member in a slot of shape `slot` along each dimension, and the extent of the slot.
    fn data_along<'a>(
        &'a self,
        members: &Members,
        member: usize,
        slot: &'a [usize],
    ) -> impl Iterator<Item = (Range<usize>, usize)> + 'a {
        let extents = self.field.extents(members, member);
        self.dimensions
            .iter()
            .filter_map(move |&dimension| self.field.writer.slot.data_along(dimension, &extents, slot))
    }

    /// The extents of a slot along each dimension.
    fn slot(&self, members: &Members) -> Vec<usize> {
        let slot = self.field.slot(members);
        self.data_along(members, 0, &slot).map(|(_, extent)| extent).collect()
    }
}

impl Form for SlottedMask {
    fn dtype(&self) -> DType {
        DType::Bool
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        [&[members.count], self.0.slot(members).as_slice()].concat()
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let whole = self.0.field.slot(members);
        let slot = self.0.slot(members);
        let elements: usize = slot.iter().product();
        target.fill(0);
        for (member, target) in range.zip(target.chunks_exact_mut(elements.max(1))) {
            let data: Vec<_> = self.0.data_along(members, member, &whole).map(|(data, _)| data).collect();
            runs(&data, &slot, 0, &mut |run| target[run].fill(1));
        }
        Ok(())
    }
}

impl Form for SlottedLengths {
    fn dtype(&self) -> DType {
        DType::I64
    }

    fn shape(&self, members: &Members) -> Vec<usize> {
        match self.0.dimensions.len() {
            0 | 1 => vec![members.count],
            dimensions => vec![members.count, dimensions],
        }
    }

    fn fill(&self, members: &Members, range: Range<usize>, target: &mut [u8]) -> Result<()> {
        let slot = self.0.field.slot(members);
        let extents = |member| self.0.data_along(members, member, &slot).map(|(data, _)| data.len() as i64);
        write(range.flat_map(extents).collect::<Vec<_>>().into_iter(), target);
        Ok(())
    }
}

impl Padding for Slotted {
    fn data(&self, members: &Members, member: usize, each: &mut dyn FnMut(Range<usize>)) {
        let slot = self.slot(members);
        self.writer.slot.data(&self.extents(members, member), &slot, each);
    }
}
