//! The pixels of images that are resized, by the crate `fast_image_resize`.

use std::cell::RefCell;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels;
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

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
    let size = |height: usize, width: usize| Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?));
    let (from, to_size) = (size(extents.height, extents.width)?, size(to.height, to.width)?);
    let options = ResizeOptions::new().resize_alg(algorithm(to)).use_alpha(false);
    // Types of pixels that are not named here are not compiled.
    let plane = match (dtype, channels) {
        (DType::U8, 1) => plane::<pixels::U8>,
        (DType::U8, 2) => plane::<pixels::U8x2>,
        (DType::U8, 3) => plane::<pixels::U8x3>,
        (DType::U8, 4) => plane::<pixels::U8x4>,
        (DType::F32, 1) => plane::<pixels::F32>,
        (DType::F32, 2) => plane::<pixels::F32x2>,
        (DType::F32, 3) => plane::<pixels::F32x3>,
        (DType::F32, 4) => plane::<pixels::F32x4>,
        _ => return None,
    };
    let targets = target.chunks_exact_mut(target.len() / planes);
    for (source, target) in source.chunks_exact(source.len() / planes).zip(targets) {
        plane(resizer, &options, (from, source), (to_size, target))?;
    }
    Some(())
}

/// The width and the height of an image, and its bytes.
type Plane<T> = ((u32, u32), T);

/// Resizes an image of one type of pixels.
fn plane<P: PixelTrait>(
    resizer: &mut Resizer,
    options: &ResizeOptions,
    ((width, height), source): Plane<&[u8]>,
    ((to_width, to_height), target): Plane<&mut [u8]>,
) -> Option<()> {
    let source = TypedImageRef::<P>::from_buffer(width, height, source).ok()?;
    let mut target = TypedImage::<P>::from_buffer(to_width, to_height, target).ok()?;
    resizer.resize_typed(&source, &mut target, options).ok()
}

fn algorithm(to: &Resize) -> ResizeAlg {
    let filter = match to.filter {
        Filter::Nearest => return ResizeAlg::Nearest,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
    };
    match to.antialias {
        true => ResizeAlg::Convolution(filter),
        false => ResizeAlg::Interpolation(filter),
    }
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
