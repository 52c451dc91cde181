//! An array: shared bytes with a dtype and a layout.

use bytes::Bytes;

use super::{DType, Element, Layout};
use crate::{Error, Result};

/// An array of any type and rank over shared memory. Cloning shares the memory, and no method copies elements.
///
/// ```
/// use batchloom::Tensor;
///
/// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(x.shape(), [2, 2]);
/// assert_eq!(x.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    bytes: Bytes,
    dtype: DType,
    layout: Layout,
}

impl std::fmt::Debug for Tensor {
    /// Writes the type and the shape, not the elements.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Tensor({}, {:?})", self.dtype, self.shape())
    }
}

impl Tensor {
    /// An array over `bytes`, with byte strides and the byte offset of its first element.
    ///
    /// # Errors
    /// [`Error::Layout`] if an element would lie outside `bytes`.
    pub fn new(
        bytes: Bytes,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
        offset: usize,
    ) -> Result<Self> {
        let layout = Layout::new(shape, strides, offset, dtype.size(), bytes.len())?;
        Ok(Self { bytes, dtype, layout })
    }

    /// The values of a vector as an array, without a copy.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shape holds another number of values.
    pub fn from_vec<T: Element + Send + Sync>(values: Vec<T>, shape: &[usize]) -> Result<Self> {
        let expected =
            shape.iter().try_fold(1, |product: usize, &len| product.checked_mul(len)).unwrap_or(usize::MAX);
        let layout = Layout::compact(shape, size_of::<T>()).filter(|_| expected == values.len());
        let layout = layout.ok_or(Error::Shape { values: values.len(), shape: shape.to_vec(), expected })?;
        Ok(Self { bytes: Bytes::from_owner(Values(values)), dtype: T::DTYPE, layout })
    }

    /// An array whose elements are in memory that this process cannot read, such as that of an accelerator. It has a
    /// type and a shape, but no bytes. Plans need no more; its blocks are [index
    /// tables](crate::loader::Block::index_table).
    ///
    /// # Errors
    /// [`Error::Layout`] if it is larger than memory can be.
    pub fn elsewhere(dtype: DType, shape: &[usize]) -> Result<Self> {
        let large = || Error::Layout { shape: shape.to_vec(), strides: Vec::new(), offset: 0, bytes: 0 };
        let layout = Layout::compact(shape, dtype.size()).ok_or_else(large)?;
        Ok(Self { bytes: Bytes::new(), dtype, layout })
    }

    /// Returns true if it has elements, and these are in memory that this process cannot read.
    pub fn is_elsewhere(&self) -> bool {
        self.bytes.is_empty() && self.layout.elements() > 0
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The byte strides of the dimensions.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The shape, byte strides and offset.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory that the elements lie in, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The values, if they lie in row-major order without gaps and `T` is their type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let size = self.dtype.size();
        if self.dtype != T::DTYPE || !self.layout.is_compact(size) {
            return None;
        }
        if self.layout.elements() == 0 {
            return Some(&[]);
        }
        let bytes = self.bytes.get(self.layout.offset()..)?.get(..self.layout.elements() * size)?;
        bytemuck::try_cast_slice(bytes).ok()
    }

    /// `self[index]` along the first dimension, sharing the memory. `None` past the end or for a scalar.
    pub fn index(&self, index: usize) -> Option<Self> {
        self.with_layout(self.layout.index(index)?)
    }

    /// `self[range]` along the first dimension, sharing the memory. `None` if it leaves the dimension.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Option<Self> {
        self.with_layout(self.layout.slice(range)?)
    }

    /// The same bytes read as another type, or `None` if the types differ in size.
    pub fn reinterpret(&self, dtype: DType) -> Option<Self> {
        (dtype.size() == self.dtype.size()).then(|| Self { dtype, ..self.clone() })
    }

    /// The same elements in another shape. `None` if they do not lie in row-major order without gaps, or the shape
    /// holds another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        let size = self.dtype.size();
        let layout = Layout::compact(shape, size)?.starting(self.layout.offset());
        (self.layout.is_compact(size) && layout.elements() == self.layout.elements())
            .then(|| Self { layout, ..self.clone() })
    }

    fn with_layout(&self, layout: Layout) -> Option<Self> {
        Some(Self { bytes: self.bytes.clone(), dtype: self.dtype, layout })
    }
}

/// A vector of elements as an owner of bytes.
struct Values<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Values<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
