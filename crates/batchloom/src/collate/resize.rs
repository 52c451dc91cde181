//! `Resize`: images of any size to slots of one size.

use serde::{Deserialize, Serialize};

use super::Channels;
use super::error::CollateCause;
use crate::error::ReadError;
use crate::{DType, Result};

/// A size that images are resized to, and the way there.
///
/// Images are of uint8 or float32. Their shape is `[height, width]`, or has 1 to 4 channels besides. Each channel is
/// resized by itself: a fourth one is no opacity. Takes the feature `image` of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// The height of images in a batch.
    pub height: usize,
    /// The width of images in a batch.
    pub width: usize,
    /// The way from pixels to those of another size.
    pub filter: Filter,
    /// True for a filter that grows with the scale, so that all pixels count where images become smaller.
    pub antialias: bool,
    /// The dimension of channels in samples.
    pub channels: Channels,
    /// The dimension of channels in batches.
    pub to: Channels,
}

/// The way from pixels to those of another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// The mean of neighbours, weighted by their distance.
    #[default]
    Bilinear,
    /// A cubic curve through more neighbours (with a = -0.5): sharper, and it may go beyond the values of the image.
    Bicubic,
}

/// The extents of an image.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "image"), expect(dead_code, reason = "only the feature reads pixels"))]
pub(super) struct Extents {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Resize {
    /// The size `[height, width]`, with antialiased bilinear filtering and channels last.
    pub fn new(height: usize, width: usize) -> Self {
        let (filter, channels) = (Filter::Bilinear, Channels::Last);
        Self { height, width, filter, antialias: true, channels, to: channels }
    }

    /// The extent of images in a batch along a dimension of samples, or `None` for channels.
    pub(super) fn extent_along(&self, dimension: usize) -> Option<usize> {
        let first = usize::from(self.channels == Channels::First);
        match dimension.checked_sub(first)? {
            0 => Some(self.height),
            1 => Some(self.width),
            _ => None,
        }
    }

    /// Refuses a size without pixels, and any where the crate is built without the means to resize.
    pub(super) fn check(&self, field: &str) -> Result<()> {
        let field = field.to_owned();
        if self.height == 0 || self.width == 0 {
            let (height, width) = (self.height, self.width);
            return Err(CollateCause::ResizePixels { field, height, width }.into());
        }
        if cfg!(not(feature = "image")) {
            return Err(CollateCause::ResizeFeature { field }.into());
        }
        Ok(())
    }

    /// Refuses an array that is no image, named in words.
    ///
    /// # Errors
    /// [`ReadError::Image`].
    pub(super) fn check_image(
        &self,
        array: impl FnOnce() -> String,
        dtype: DType,
        shape: &[usize],
    ) -> Result<()> {
        match self.extents(dtype, shape) {
            Some(_) => Ok(()),
            None => Err(self.no_image(array(), dtype, shape)),
        }
    }

    /// The error for an array, named in words, that is no image.
    pub(super) fn no_image(&self, name: String, dtype: DType, shape: &[usize]) -> crate::Error {
        let expected = match self.channels {
            Channels::First => "[channels, height, width]",
            Channels::Last => "[height, width, channels]",
        };
        ReadError::Image { name, found: dtype, shape: shape.to_vec(), expected }.into()
    }

    /// The extents of an image of this type and shape, or `None` if they are no image.
    pub(super) fn extents(&self, dtype: DType, shape: &[usize]) -> Option<Extents> {
        let (height, width, channels) = match *shape {
            [height, width] => (height, width, 1),
            [height, width, channels] if self.channels == Channels::Last => (height, width, channels),
            [channels, height, width] => (height, width, channels),
            _ => return None,
        };
        let fits = matches!(dtype, DType::U8 | DType::F32) && (1..=4).contains(&channels);
        (fits && height > 0 && width > 0).then_some(Extents { height, width, channels })
    }

    /// Returns true if images of these shapes, with equal numbers of dimensions, have equal numbers of channels.
    pub(super) fn same_channels(&self, one: &[usize], other: &[usize]) -> bool {
        match self.channels {
            Channels::First => one.len() != 3 || one[0] == other[0],
            Channels::Last => one.get(2) == other.get(2),
        }
    }

    /// The shape of the slots of images of this shape.
    pub(super) fn shape(&self, image: &[usize]) -> Vec<usize> {
        let channels = match self.channels {
            Channels::First => image.first(),
            Channels::Last => image.last(),
        };
        let size = [self.height, self.width];
        match (channels.filter(|_| image.len() == 3), self.to) {
            (None, _) => size.to_vec(),
            (Some(&channels), Channels::First) => vec![channels, size[0], size[1]],
            (Some(&channels), Channels::Last) => vec![size[0], size[1], channels],
        }
    }
}
