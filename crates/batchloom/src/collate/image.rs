//! The pixels of images that are resized, by the crate `batchloom-resize`.

use std::cell::RefCell;

use batchloom_resize::{Algorithm, Component, Image, Resizer};

use super::Channels;
use super::resize::{Extents, Filter, Resize};
use crate::DType;

thread_local! {
    static RESIZING: RefCell<Resizing> = RefCell::default();
}

/// The means to resize images in one thread: its memory serves one image after another.
#[derive(Default)]
struct Resizing {
    resizer: Resizer,
    /// An image that is not aligned as its type requires.
    aligned: Vec<u32>,
    /// An image that was resized and has its channels in another dimension than its slot.
    resized: Vec<u32>,
}

/// Resizes an image into a slot, or returns `None` if it is larger than any that can be.
pub(super) fn resize(
    to: &Resize,
    dtype: DType,
    extents: Extents,
    source: &[u8],
    slot: &mut [u8],
) -> Option<()> {
    RESIZING.with_borrow_mut(|resizing| resizing.write(to, dtype, extents, source, slot))
}

impl Resizing {
    fn write(
        &mut self,
        to: &Resize,
        dtype: DType,
        extents: Extents,
        source: &[u8],
        slot: &mut [u8],
    ) -> Option<()> {
        let Self { resizer, aligned, resized } = self;
        let source = match is_aligned(source, dtype) {
            true => source,
            false => {
                let aligned = bytes(aligned, source.len());
                aligned.copy_from_slice(source);
                aligned
            }
        };
        let moves_channels = extents.channels > 1 && to.channels != to.to;
        if !moves_channels && is_aligned(slot, dtype) {
            return planes(resizer, to, dtype, extents, source, slot);
        }
        let resized = bytes(resized, slot.len());
        planes(resizer, to, dtype, extents, source, resized)?;
        match (moves_channels, dtype.size()) {
            (false, _) => slot.copy_from_slice(resized),
            (true, 1) => move_channels::<1>(to.to, extents.channels, resized, slot),
            (true, _) => move_channels::<4>(to.to, extents.channels, resized, slot),
        }
        Some(())
    }
}

/// Returns true if bytes may be seen as elements of this type.
fn is_aligned(bytes: &[u8], dtype: DType) -> bool {
    bytes.as_ptr().addr().is_multiple_of(dtype.size())
}

/// The first bytes of memory that is as long as needed.
fn bytes(memory: &mut Vec<u32>, length: usize) -> &mut [u8] {
    memory.resize(memory.len().max(length.div_ceil(4)), 0);
    &mut bytemuck::cast_slice_mut(memory)[..length]
}

/// Resizes an image, or each channel of one that has them first.
fn planes(
    resizer: &mut Resizer,
    to: &Resize,
    dtype: DType,
    extents: Extents,
    source: &[u8],
    target: &mut [u8],
) -> Option<()> {
    let (planes, channels) = match to.channels {
        Channels::First => (extents.channels, 1),
        Channels::Last => (1, extents.channels),
    };
    let component = match dtype {
        DType::U8 => Component::U8,
        DType::F32 => Component::F32,
        _ => return None,
    };
    let targets = target.chunks_exact_mut(target.len() / planes);
    for (source, target) in source.chunks_exact(source.len() / planes).zip(targets) {
        let source = Image { width: extents.width, height: extents.height, bytes: source };
        let mut target = Image { width: to.width, height: to.height, bytes: target };
        resizer.resize(algorithm(to), (component, channels), &source, &mut target)?;
    }
    Some(())
}

fn algorithm(to: &Resize) -> Algorithm {
    let filter = match to.filter {
        Filter::Nearest => batchloom_resize::Filter::Nearest,
        Filter::Bilinear => batchloom_resize::Filter::Bilinear,
        Filter::Bicubic => batchloom_resize::Filter::Bicubic,
    };
    Algorithm { filter, antialias: to.antialias }
}

/// Copies the elements, of `SIZE` bytes, of an image to one that has its channels in the other dimension.
fn move_channels<const SIZE: usize>(to: Channels, channels: usize, source: &[u8], target: &mut [u8]) {
    let (source, _) = source.as_chunks::<SIZE>();
    let (target, _) = target.as_chunks_mut::<SIZE>();
    let pixels = source.len() / channels;
    match to {
        Channels::First => {
            for (channel, plane) in target.chunks_exact_mut(pixels).enumerate() {
                let pixels = source.chunks_exact(channels);
                plane.iter_mut().zip(pixels).for_each(|(value, pixel)| *value = pixel[channel]);
            }
        }
        Channels::Last => {
            for (channel, plane) in source.chunks_exact(pixels).enumerate() {
                let pixels = target.chunks_exact_mut(channels);
                pixels.zip(plane).for_each(|(pixel, value)| pixel[channel] = *value);
            }
        }
    }
}
