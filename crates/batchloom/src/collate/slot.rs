//! `Slot`: the way from a sample of any shape to its place in a batch.
//!
//! A field of samples that are read on demand, or differ in shape, has a slot of one shape for each sample of a batch.
//! A [`Slot`] computes that shape from the shapes of the samples; a [`SlotWriter`] then fills slots, one sample at a
//! time and without knowing the rest, so that threads and processes share the work.

use std::ops::Range;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::function_slot::{FunctionSlot, SlotMut};
use super::pad::{PadSide, repeat};
use super::resize::Resize;
use super::slot_place::SlotPlace;
use crate::error::ReadError;
use crate::order::SampleRng;
use crate::tensor::step_from;
use crate::{DType, Result, Tensor};

/// The way from a sample to its slot in a batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Slot {
    /// Samples have one shape, and so does the slot.
    #[default]
    Same,
    /// Samples are padded to the largest extent of the batch in each dimension.
    Pad(Pad),
    /// Samples are cut, or padded, to a shape.
    Crop(Crop),
    /// Samples are images, which are resized.
    Resize(Resize),
    /// A function fills the slot of each sample.
    Function(FunctionSlot),
}

/// Padding to the largest extents of a batch, or to given lengths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pad {
    /// The lengths that the first dimension is padded to: the smallest that holds the samples of a batch. A longer
    /// sample is an error. Empty for the largest extent of the batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<usize>,
    /// The numbers that padded extents are multiples of, for the leading dimensions.
    pub multiple_of: Vec<usize>,
    /// The side on which padding goes.
    pub side: PadSide,
}

impl Default for Pad {
    fn default() -> Self {
        Self { to: Vec::new(), multiple_of: Vec::new(), side: PadSide::Right }
    }
}

/// A shape that samples are cut or padded to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crop {
    /// The extent of the slot in each leading dimension; further dimensions stay as they are.
    pub shape: Vec<usize>,
    /// The part of a larger sample that is kept.
    pub keep: Keep,
}

impl Crop {
    /// The extents of a sample in the dimensions that stay as they are.
    fn further_extents<'a>(&self, sample: &'a [usize]) -> &'a [usize] {
        sample.get(self.shape.len()..).unwrap_or(&[])
    }
}

/// The part of a sample that is kept where it is larger than its slot. Where it is smaller, it lies at the same place
/// of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Keep {
    /// The first elements.
    Start,
    /// The elements in the middle.
    #[default]
    Center,
    /// The last elements.
    End,
    /// Elements that begin at a random place, another in each epoch. A smaller sample lies at the start of its slot.
    Random,
}

impl Keep {
    /// The place where `inner` elements begin among `outer` ones. Random places are drawn for each sample.
    fn offset(self, outer: usize, inner: usize) -> usize {
        let spare = outer.saturating_sub(inner);
        match self {
            Self::Start | Self::Random => 0,
            Self::Center => spare / 2,
            Self::End => spare,
        }
    }
}

impl From<PadSide> for Keep {
    /// The place of the data, with padding on `side`.
    fn from(side: PadSide) -> Self {
        match side {
            PadSide::Right => Self::Start,
            PadSide::Left => Self::End,
        }
    }
}

impl From<FunctionSlot> for Slot {
    fn from(slot: FunctionSlot) -> Self {
        Self::Function(slot)
    }
}

impl Slot {
    /// The slot that a text stands for, as a front end writes it, or `None` if the text is unknown.
    #[doc(hidden)]
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns true if elements of a slot may be padding.
    pub(crate) fn pads(&self) -> bool {
        matches!(self, Self::Pad(_) | Self::Crop(_))
    }

    /// The type of the elements of a slot, given the type of samples.
    pub(crate) fn dtype(&self, dtype: DType) -> DType {
        match self {
            Self::Function(function) => function.dtype.unwrap_or(dtype),
            _ => dtype,
        }
    }

    /// Refuses, in words, a slot that cannot be filled with any sample.
    pub(crate) fn check(&self, field: &str) -> Result<()> {
        match self {
            Self::Resize(resize) => resize.check(field),
            _ => Ok(()),
        }
    }

    /// Refuses an array, named in words, that does not go into a slot because of its type or extents.
    ///
    /// # Errors
    /// [`ReadError::Image`].
    pub(crate) fn check_array(
        &self,
        array: impl FnOnce() -> String,
        dtype: DType,
        shape: &[usize],
    ) -> Result<()> {
        match self {
            Self::Resize(resize) => resize.check_image(array, dtype, shape),
            _ => Ok(()),
        }
    }

    /// Returns true if samples of these shapes may share a batch.
    pub(crate) fn takes_both(&self, one: &[usize], other: &[usize]) -> bool {
        match self {
            Self::Same => one == other,
            Self::Function(FunctionSlot { shape: Some(_), .. }) => true,
            Self::Pad(_) | Self::Function(_) => one.len() == other.len(),
            Self::Crop(crop) => {
                one.len() == other.len() && crop.further_extents(one) == crop.further_extents(other)
            }
            Self::Resize(resize) => one.len() == other.len() && resize.same_channels(one, other),
        }
    }

    /// The shape of a slot, given the shapes of the samples of its batch, all with the number of dimensions of the
    /// first.
    ///
    /// # Errors
    /// [`ReadError::SlotRank`] if samples have fewer dimensions than the slot, and [`ReadError::TooLong`] if one is
    /// longer than the slot may be.
    pub(crate) fn shape<'a>(
        &self,
        field: &str,
        mut shapes: impl Iterator<Item = &'a [usize]>,
    ) -> Result<Vec<usize>> {
        let first = shapes.next().unwrap_or(&[]).to_vec();
        match self {
            Self::Same => Ok(first),
            Self::Function(FunctionSlot { shape: Some(shape), .. }) => Ok(shape.clone()),
            Self::Function(_) => Ok(largest_extents(first, shapes)),
            Self::Pad(pad) => {
                let mut most = largest_extents(first, shapes);
                let grains = most.iter_mut().zip(&pad.multiple_of);
                grains.for_each(|(most, &grain)| *most = most.next_multiple_of(grain.max(1)));
                if let (Some(first), Some(longest)) = (most.first_mut(), pad.to.iter().max()) {
                    let length = pad.to.iter().filter(|&length| length >= first).min();
                    let (extent, expected) = (*first, *longest);
                    let too_long = || ReadError::TooLong { field: field.to_owned(), found: extent, expected };
                    *first = *length.ok_or_else(too_long)?;
                }
                Ok(most)
            }
            Self::Crop(crop) => {
                let (dimensions, expected) = (first.len(), crop.shape.len());
                if dimensions < expected {
                    return Err(
                        ReadError::SlotRank { field: field.to_owned(), found: dimensions, expected }.into()
                    );
                }
                Ok([&crop.shape[..], &first[expected..]].concat())
            }
            Self::Resize(resize) => Ok(resize.shape(&first)),
        }
    }

    /// The shape of a slot, given the shape `sample` of one sample, if it is the same in every batch.
    pub(crate) fn fixed_shape(&self, sample: &[usize]) -> Option<Vec<usize>> {
        match self {
            Self::Pad(_) | Self::Function(FunctionSlot { shape: None, .. }) => None,
            _ => self.shape("", std::iter::once(sample)).ok(),
        }
    }

    /// The elements of a sample of these extents that go into a slot, and the elements of the slot, in each dimension.
    fn boxes(&self, extents: &[usize], slot: &[usize]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let keep = self.keep();
        let pair = |(&extent, &wanted): (&usize, &usize)| {
            let taken = extent.min(wanted);
            let (source, target) = (keep.offset(extent, taken), keep.offset(wanted, taken));
            (source..source + taken, target..target + taken)
        };
        extents.iter().zip(slot).map(pair).unzip()
    }

    /// The elements of a slot that are data along one dimension of samples, and the elements of the slot along it;
    /// `None` where a function decides.
    pub(super) fn data_along(
        &self,
        dimension: usize,
        extents: &[usize],
        slot: &[usize],
    ) -> Option<(Range<usize>, usize)> {
        match self {
            Self::Function(FunctionSlot { shape: Some(_), .. }) => None,
            Self::Resize(resize) => resize.extent_along(dimension).map(|extent| (0..extent, extent)),
            _ => {
                let data = self.boxes(extents, slot).1;
                Some((data.get(dimension)?.clone(), *slot.get(dimension)?))
            }
        }
    }

    /// The first dimension of samples that a slot leaves as it is although they differ in it, if there is one.
    pub(super) fn left_to_differ(&self, sample: &[Option<usize>]) -> Option<usize> {
        let Self::Crop(crop) = self else { return None };
        (crop.shape.len()..sample.len()).find(|&dimension| sample[dimension].is_none())
    }

    /// Returns true if a slot has the largest extents of its batch.
    pub(super) fn grows(&self) -> bool {
        matches!(self, Self::Pad(_) | Self::Function(FunctionSlot { shape: None, .. }))
    }

    /// Visits the elements of a slot that are data, run by run.
    pub(super) fn data(&self, extents: &[usize], slot: &[usize], each: &mut dyn FnMut(Range<usize>)) {
        runs(&self.boxes(extents, slot).1, slot, 0, each);
    }

    /// The place of a sample where its extents differ from the extents of its slot.
    fn keep(&self) -> Keep {
        match self {
            Self::Same | Self::Resize(_) | Self::Function(_) => Keep::Start,
            Self::Pad(pad) => pad.side.into(),
            Self::Crop(crop) => crop.keep,
        }
    }
}

/// The largest extent of several shapes in each dimension.
fn largest_extents<'a>(mut most: Vec<usize>, shapes: impl Iterator<Item = &'a [usize]>) -> Vec<usize> {
    for shape in shapes {
        most.iter_mut().zip(shape).for_each(|(most, &extent)| *most = extent.max(*most));
    }
    most
}

/// Visits the elements of a box in a slot, run by run; the slot begins with element `start`.
pub(super) fn runs(
    within: &[Range<usize>],
    slot: &[usize],
    start: usize,
    each: &mut dyn FnMut(Range<usize>),
) {
    let (Some((range, rest)), Some((_, inner))) = (within.split_first(), slot.split_first()) else {
        return each(start..start + 1);
    };
    let part: usize = inner.iter().product();
    match rest.iter().zip(inner).all(|(range, &extent)| *range == (0..extent)) {
        true => each(start + range.start * part..start + range.end * part),
        false => range.clone().for_each(|place| runs(rest, inner, start + place * part, each)),
    }
}

/// The maker of the slots of one field in one batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SlotWriter {
    /// The way from a sample to its slot.
    pub slot: Slot,
    /// The shape of a slot. For concatenated samples, each [`SlotPlace`] has the first extent.
    pub shape: Vec<usize>,
    /// The type of an element.
    pub dtype: DType,
    /// The bytes of one element of padding.
    pub padding: Vec<u8>,
}

impl SlotWriter {
    /// The maker of slots that have the type and the shape of their samples.
    pub(crate) fn same(dtype: DType, shape: Vec<usize>) -> Self {
        Self { slot: Slot::Same, shape, dtype, padding: vec![0; dtype.size()] }
    }

    /// The maker of slots as text, for another process.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The maker of slots that a text stands for, or `None` if the text is of another version.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The number of bytes of a slot.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// The shape of the slot of a part of a sample that is concatenated with more samples, or of any sample.
    pub fn shape_of(&self, place: &SlotPlace, concatenates: bool) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let (true, Some((_, taken)), Some(first)) = (concatenates, place.part, shape.first_mut()) {
            *first = taken;
        }
        shape
    }

    /// Fills a slot of the shape `shape` with a sample.
    ///
    /// # Errors
    /// [`ReadError::Image`] if it is no image and the slot is for one, and [`ReadError::SlotFunction`].
    pub fn write(&self, sample: &Tensor, place: &SlotPlace, shape: &[usize], slot: &mut [u8]) -> Result<()> {
        match &self.slot {
            Slot::Resize(resize) => self.resize(resize, sample, slot),
            Slot::Function(function) => {
                repeat(&self.padding, slot);
                function.fill(sample, place, SlotMut { dtype: self.dtype, shape, bytes: slot })
            }
            _ => {
                self.copy(sample, place, shape, slot);
                Ok(())
            }
        }
    }

    /// Fills a slot with an image that is resized.
    #[cfg(feature = "image")]
    fn resize(&self, resize: &Resize, sample: &Tensor, slot: &mut [u8]) -> Result<()> {
        let (dtype, shape) = (sample.dtype(), sample.shape());
        let refused = || resize.no_image("an array".to_owned(), dtype, shape);
        let extents = resize.extents(dtype, shape).ok_or_else(refused)?;
        let (start, bytes) = (sample.layout().offset(), sample.layout().elements() * dtype.size());
        let mut compact = Vec::new();
        let source = match sample.layout().is_compact(dtype.size()) {
            true => &sample.bytes()[start..start + bytes],
            false => {
                compact.resize(bytes, 0);
                let whole = SlotPlace::whole(0, 0);
                Self::same(dtype, shape.to_vec()).copy(sample, &whole, shape, &mut compact);
                &compact
            }
        };
        super::image::resize(resize, dtype, extents, source, slot).ok_or_else(refused)
    }

    /// Refuses every image, as loaders do when they are built.
    #[cfg(not(feature = "image"))]
    fn resize(&self, resize: &Resize, sample: &Tensor, _: &mut [u8]) -> Result<()> {
        Err(resize.no_image("an array".to_owned(), sample.dtype(), sample.shape()))
    }

    /// Copies a sample into a slot of the shape `shape`.
    fn copy(&self, sample: &Tensor, place: &SlotPlace, shape: &[usize], slot: &mut [u8]) {
        let part = place.part;
        let size = self.dtype.size();
        let (mut extents, mut skipped) = (sample.shape().to_vec(), 0);
        if let (Some((start, taken)), Some(extent)) = (part, extents.first_mut()) {
            (*extent, skipped) = (taken, start);
        }
        if slot.is_empty() {
            return;
        }
        if extents == shape && part.is_none() && sample.layout().is_compact(size) {
            let start = sample.layout().offset();
            return slot.copy_from_slice(&sample.bytes()[start..start + slot.len()]);
        }
        if extents != shape {
            repeat(&self.padding, slot);
        }
        if extents.contains(&0) {
            return;
        }
        let (mut from, into) = self.slot.boxes(&extents, shape);
        if self.slot.keep() == Keep::Random {
            move_randomly(&mut from, &extents, place.generator());
        }
        if let Some(first) = from.first_mut() {
            *first = first.start + skipped..first.end + skipped;
        }
        let copy = BoxCopy { source: sample.bytes(), strides: sample.strides(), shape, size };
        copy.run(&from, &into, sample.layout().offset(), slot);
    }
}

/// Moves a box to a random place in a sample. Each dimension draws a number, whether it is cut or not.
fn move_randomly(cut: &mut [Range<usize>], extents: &[usize], mut rng: SampleRng) {
    for (range, &extent) in cut.iter_mut().zip(extents) {
        let spare = extent - range.len();
        let start = random_below(spare + 1, &mut rng);
        *range = start..start + range.len();
    }
}

/// A random number below `end`.
fn random_below(end: usize, rng: &mut SampleRng) -> usize {
    let product = u128::from(rng.next_u64()) * end as u128;
    usize::try_from(product >> 64).unwrap_or(0)
}

/// The copy of a box of elements, dimension by dimension.
struct BoxCopy<'a> {
    source: &'a [u8],
    /// The byte strides of the source in all dimensions, and the shape of the slot.
    strides: &'a [isize],
    shape: &'a [usize],
    size: usize,
}

impl BoxCopy<'_> {
    /// Copies the elements `from`, beginning at byte `start` of the source, to the elements `into` of a slot.
    fn run(&self, from: &[Range<usize>], into: &[Range<usize>], start: usize, slot: &mut [u8]) {
        let dimension = self.shape.len() - from.len();
        let Some(((source, from), (target, into))) = from.split_first().zip(into.split_first()) else {
            return slot[..self.size].copy_from_slice(&self.source[start..start + self.size]);
        };
        let stride = self.strides[dimension];
        let part = self.shape[dimension + 1..].iter().product::<usize>() * self.size;
        let slot = &mut slot[target.start * part..target.end * part];
        if from.is_empty() && stride == self.size.cast_signed() {
            let start = step_from(start, stride, source.start);
            return slot.copy_from_slice(&self.source[start..start + slot.len()]);
        }
        if from.is_empty() {
            let first = step_from(start, stride, source.start);
            return match self.size {
                1 => copy_line::<1>(self.source, first, stride, slot),
                2 => copy_line::<2>(self.source, first, stride, slot),
                4 => copy_line::<4>(self.source, first, stride, slot),
                8 => copy_line::<8>(self.source, first, stride, slot),
                _ => copy_line::<16>(self.source, first, stride, slot),
            };
        }
        let places = source.clone().zip(slot.chunks_exact_mut(part.max(1)));
        if let ([inner], [target]) = (from, into)
            && self.strides[dimension + 1] == self.size.cast_signed()
        {
            // Short runs, as the channels of pixels that are mirrored.
            let (skipped, taken) = (inner.start * self.size, inner.len() * self.size);
            let into = target.start * self.size..target.start * self.size + taken;
            return places.for_each(|(index, slot)| {
                let start = step_from(start, stride, index) + skipped;
                slot[into.clone()].copy_from_slice(&self.source[start..start + taken]);
            });
        }
        for (index, slot) in places {
            self.run(from, into, step_from(start, stride, index), slot);
        }
    }
}

/// Copies elements of `SIZE` bytes that lie `stride` bytes apart, as in a transposed image.
fn copy_line<const SIZE: usize>(source: &[u8], first: usize, stride: isize, line: &mut [u8]) {
    let mut start = first;
    for element in line.as_chunks_mut::<SIZE>().0 {
        // All of a sample lies in its source.
        if let Some(bytes) = source.get(start..).and_then(<[u8]>::first_chunk) {
            *element = *bytes;
        }
        start = step_from(start, stride, 1);
    }
}
