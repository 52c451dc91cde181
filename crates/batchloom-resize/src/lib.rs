//! Resizes images, by the kernels of `fast_image_resize`.
//!
//! The kernels are generic over the type of a pixel, and compiled where they are called. This crate calls them for the
//! eight types that batches have, and is compiled once: the engine `batchloom` calls the compiled ones.
//!
//! Promise: a resized image is a function of the image and of the options alone, whatever was resized before.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels;
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions};

/// The type of the numbers in a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// A byte.
    U8,
    /// A float of 32 bits.
    F32,
}

/// The pixel of a resized image: a weighted mean of pixels of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// Weights that fall with the distance in a line.
    Bilinear,
    /// Weights of the cubic spline of Catmull and Rom.
    Bicubic,
}

/// A filter, and its width where an image becomes smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    /// The filter.
    pub filter: Filter,
    /// True if the filter becomes so wide that all pixels of a larger image have a share in the smaller one.
    pub antialias: bool,
}

/// An image: rows of pixels, from the top.
#[derive(Debug)]
pub struct Image<Bytes> {
    /// The number of pixels in a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The pixels, aligned as their components.
    pub bytes: Bytes,
}

/// Resizes images one after another: its memory serves all of them.
#[derive(Debug, Default)]
pub struct Resizer(fast_image_resize::Resizer);

impl Resizer {
    /// Resizes an image with `channels` components in a pixel, from one to four. Returns `None`, and leaves the target
    /// undefined, if there are more channels, an extent exceeds 32 bits, or the bytes are too few or not aligned.
    pub fn resize(
        &mut self,
        algorithm: Algorithm,
        (component, channels): (Component, usize),
        source: &Image<&[u8]>,
        target: &mut Image<&mut [u8]>,
    ) -> Option<()> {
        let options = ResizeOptions::new().resize_alg(name(algorithm)).use_alpha(false);
        // Types of pixels that are not named here are not compiled.
        let resize = match (component, channels) {
            (Component::U8, 1) => Self::resize_pixels::<pixels::U8>,
            (Component::U8, 2) => Self::resize_pixels::<pixels::U8x2>,
            (Component::U8, 3) => Self::resize_pixels::<pixels::U8x3>,
            (Component::U8, 4) => Self::resize_pixels::<pixels::U8x4>,
            (Component::F32, 1) => Self::resize_pixels::<pixels::F32>,
            (Component::F32, 2) => Self::resize_pixels::<pixels::F32x2>,
            (Component::F32, 3) => Self::resize_pixels::<pixels::F32x3>,
            (Component::F32, 4) => Self::resize_pixels::<pixels::F32x4>,
            _ => return None,
        };
        resize(self, &options, source, target)
    }

    fn resize_pixels<P: PixelTrait>(
        &mut self,
        options: &ResizeOptions,
        source: &Image<&[u8]>,
        target: &mut Image<&mut [u8]>,
    ) -> Option<()> {
        let extents = |width, height| Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?));
        let (width, height) = extents(source.width, source.height)?;
        let source = TypedImageRef::<P>::from_buffer(width, height, source.bytes).ok()?;
        let (width, height) = extents(target.width, target.height)?;
        let mut target = TypedImage::<P>::from_buffer(width, height, target.bytes).ok()?;
        self.0.resize_typed(&source, &mut target, options).ok()
    }
}

/// The name that `fast_image_resize` gives an algorithm.
fn name(algorithm: Algorithm) -> ResizeAlg {
    let filter = match algorithm.filter {
        Filter::Nearest => return ResizeAlg::Nearest,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
    };
    match algorithm.antialias {
        true => ResizeAlg::Convolution(filter),
        false => ResizeAlg::Interpolation(filter),
    }
}
