//! The places of an array's elements in its memory: shape, byte strides, offset.

use super::error::TensorCause;
use crate::Result;

/// Shape, byte strides and byte offset of an array in a piece of memory.
///
/// Strides may be negative, zero or larger than the dimension that they step over, so that any view of NumPy or PyTorch
/// has a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
}

impl Layout {
    /// A layout with all elements of `size` bytes inside `bytes` bytes of memory.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an element would lie outside, or strides and shape differ in length.
    pub fn new(shape: &[usize], strides: &[isize], offset: usize, size: usize, bytes: usize) -> Result<Self> {
        let layout = Self { shape: shape.to_vec(), strides: strides.to_vec(), offset };
        let inside = shape.len() == strides.len()
            && match layout.extent(size) {
                Some((start, end)) => start >= 0 && usize::try_from(end).is_ok_and(|end| end <= bytes),
                None => false,
            };
        match inside {
            true => Ok(layout),
            false => {
                Err(TensorCause::Layout { shape: layout.shape, strides: layout.strides, offset, bytes }
                    .into())
            }
        }
    }

    /// The row-major layout without gaps, or `None` if it is larger than memory can be.
    pub fn compact(shape: &[usize], size: usize) -> Option<Self> {
        let mut strides = vec![0; shape.len()];
        let mut step = size;
        for (stride, &len) in strides.iter_mut().zip(shape).rev() {
            *stride = isize::try_from(step).ok()?;
            step = step.checked_mul(len.max(1))?;
        }
        isize::try_from(step).ok()?;
        Some(Self { shape: shape.to_vec(), strides, offset: 0 })
    }

    /// The layout of `len` elements of `size` bytes in one line.
    pub(super) fn line(len: usize, size: usize) -> Self {
        Self { shape: vec![len], strides: vec![size.cast_signed()], offset: 0 }
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The byte strides of the dimensions.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The byte offset of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the elements lie in row-major order without gaps.
    pub fn is_compact(&self, size: usize) -> bool {
        self.elements() == 0
            || Self::compact(&self.shape, size).is_some_and(|compact| {
                let dimensions = self.shape.iter().zip(&self.strides).zip(&compact.strides);
                dimensions.into_iter().all(|((&len, stride), expected)| len == 1 || stride == expected)
            })
    }

    /// The same layout from another offset on.
    pub(crate) fn starting_at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The layout of `[index]` along the first dimension.
    pub(crate) fn index(&self, index: usize) -> Option<Self> {
        let (&len, shape) = self.shape.split_first()?;
        let (&stride, strides) = self.strides.split_first()?;
        let offset = self.offset.checked_add_signed(stride.checked_mul(isize::try_from(index).ok()?)?)?;
        (index < len).then(|| Self { shape: shape.to_vec(), strides: strides.to_vec(), offset })
    }

    /// The layout of `[range]` along the first dimension.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> Option<Self> {
        self.narrow(0, range)
    }

    /// The layout of `range` of dimension `dim`.
    pub(super) fn narrow(&self, dim: usize, range: std::ops::Range<usize>) -> Option<Self> {
        let mut layout = self.clone();
        let (len, stride) = (layout.shape.get_mut(dim)?, *layout.strides.get(dim)?);
        if range.start > range.end || range.end > *len {
            return None;
        }
        *len = range.end - range.start;
        layout.offset =
            self.offset.checked_add_signed(stride.checked_mul(isize::try_from(range.start).ok()?)?)?;
        Some(layout)
    }

    /// The layout with the dimensions in another order, each once.
    pub(super) fn permute(&self, order: &[usize]) -> Option<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        let listed = sorted.iter().copied().eq(0..self.shape.len());
        let (shape, strides) = order
            .iter()
            .map(|&dim| Some((*self.shape.get(dim)?, *self.strides.get(dim)?)))
            .collect::<Option<(Vec<_>, Vec<_>)>>()?;
        listed.then_some(Self { shape, strides, offset: self.offset })
    }

    /// The layout of the pieces of `len` elements that begin at every `step`-th element of dimension `dim`: their
    /// number takes its place, and their elements are a new last dimension.
    pub(super) fn unfold(&self, dim: usize, len: usize, step: usize) -> Option<Self> {
        let mut layout = self.clone();
        let (total, stride) = (layout.shape.get_mut(dim)?, *layout.strides.get(dim)?);
        let pieces = total.checked_sub(len)?.checked_div(step)? + 1;
        *total = pieces;
        layout.strides[dim] = extent(stride, if pieces == 1 { 1 } else { step })?;
        layout.shape.push(len);
        layout.strides.push(stride);
        Some(layout)
    }

    /// The bytes that the elements lie in, from the first to past the last, or `None` if their offsets overflow.
    pub(super) fn extent(&self, size: usize) -> Option<(isize, isize)> {
        let offset = isize::try_from(self.offset).ok()?;
        let (mut start, mut end) = (offset, offset);
        if self.shape.contains(&0) {
            return Some((start, end));
        }
        for (&len, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = stride.checked_mul(isize::try_from(len - 1).ok()?)?;
            match reach < 0 {
                true => start = start.checked_add(reach)?,
                false => end = end.checked_add(reach)?,
            }
        }
        Some((start, end.checked_add(isize::try_from(size).ok()?)?))
    }

    /// The rows along the first dimension, as runs of bytes.
    pub(crate) fn rows(&self, size: usize) -> Option<Rows> {
        let (_, shape) = self.shape.split_first()?;
        let (&stride, strides) = self.strides.split_first()?;
        let mut rows = Rows { offset: self.offset, stride, contiguous: size, steps: Vec::new() };
        for (&len, &stride) in shape.iter().zip(strides).rev() {
            rows.enclose(len, stride);
        }
        Some(rows)
    }
}

/// The rows of an array, each as equal runs of neighbouring bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    /// The byte offset of row 0.
    pub(crate) offset: usize,
    /// The bytes from one row to the next.
    pub(crate) stride: isize,
    /// The number of bytes that lie together.
    pub(crate) contiguous: usize,
    /// The (count, byte stride) of the runs in a row, outermost first. Empty if a row is one run.
    pub(crate) steps: Vec<(usize, isize)>,
}

impl Rows {
    /// Adds a dimension outside the present ones. It lengthens the run, or the outermost step, if it continues them.
    fn enclose(&mut self, len: usize, stride: isize) {
        if len == 1 {
            return;
        }
        let continues = |extent: usize| isize::try_from(extent).is_ok_and(|extent| extent == stride);
        match self.steps.first_mut() {
            None if continues(self.contiguous) || len == 0 => self.contiguous *= len,
            Some((count, inner)) if extent(*inner, *count) == Some(stride) => *count *= len,
            _ => self.steps.insert(0, (len, stride)),
        }
    }

    /// The number of bytes of one row.
    pub(crate) fn bytes(&self) -> usize {
        self.contiguous * self.steps.iter().map(|(count, _)| count).product::<usize>()
    }

    /// Returns true if the rows lie one after the other, without gaps.
    pub(crate) fn are_dense(&self) -> bool {
        self.steps.is_empty() && isize::try_from(self.bytes()) == Ok(self.stride)
    }

    /// The byte offset of row `row`, which is not checked.
    #[inline(always)]
    pub(crate) fn start(&self, row: usize) -> usize {
        step_from(self.offset, self.stride, row)
    }
}

/// `start + stride * count`, for a place that a layout was checked to hold: for any other, a bounds check fails later.
#[inline(always)]
pub(crate) fn step_from(start: usize, stride: isize, count: usize) -> usize {
    start.wrapping_add_signed(stride.wrapping_mul(count.cast_signed()))
}

/// `stride * count`, or `None` if it overflows.
fn extent(stride: isize, count: usize) -> Option<isize> {
    stride.checked_mul(isize::try_from(count).ok()?)
}
