//! Arrays of the crate `ndarray`: taken over, whatever their layout, and lent. Feature `ndarray`.

use bytes::Bytes;
use ndarray::{Array, ArrayView, Axis, Dimension, IxDyn, ShapeBuilder};

use super::error::ArrayCause;
use super::tensor::Values;
use super::{Element, Tensor};
use crate::{Error, Result};

impl<T: Element, D: Dimension> TryFrom<Array<T, D>> for Tensor {
    type Error = Error;

    /// The same elements in the same memory, whatever the layout of the array: one that was transposed or sliced has the
    /// same strides here.
    ///
    /// ```
    /// use batchloom::Tensor;
    /// use ndarray::Array2;
    ///
    /// let columns = Array2::from_shape_vec((2, 3), vec![1, 2, 3, 4, 5, 6])?.reversed_axes();
    /// let tensor = Tensor::try_from(columns)?;
    /// assert_eq!((tensor.shape(), tensor.strides()), (&[3, 2][..], &[4, 12][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if strides in bytes are larger than memory can be.
    fn try_from(array: Array<T, D>) -> Result<Self> {
        let size = size_of::<T>();
        let shape = array.shape().to_vec();
        let strides = array.strides().iter().map(|stride| stride.saturating_mul(size.cast_signed()));
        let strides: Vec<isize> = strides.collect();
        let (values, first) = array.into_raw_vec_and_offset();
        let offset = first.unwrap_or(0).saturating_mul(size);
        Self::new(Bytes::from_owner(Values(values)), T::DTYPE, &shape, &strides, offset)
    }
}

impl Tensor {
    /// A view of the elements as an array of `ndarray`, whatever their layout. `D` is `Ix2` for a matrix, or `IxDyn` for any
    /// number of dimensions.
    ///
    /// ```
    /// use batchloom::Tensor;
    /// use ndarray::Ix2;
    ///
    /// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.as_array::<f32, Ix2>()?.column(1).to_vec(), [2.0, 4.0]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if `D` has another number of dimensions;
    /// [`Kind::Type`](crate::Kind::Type) and [`Kind::Data`](crate::Kind::Data) as [`try_as_slice`](Self::try_as_slice)
    /// has them, bytes between the elements included, and if strides are no multiples of the size of an element.
    pub fn as_array<T: Element, D: Dimension>(&self) -> Result<ArrayView<'_, T, D>> {
        self.require_type(T::DTYPE)?;
        let size = size_of::<T>();
        let (shape, strides) = (self.shape(), self.strides());
        let whole = |stride: &isize| stride.unsigned_abs().is_multiple_of(size);
        let is_empty = shape.contains(&0);
        if !is_empty && !strides.iter().zip(shape).all(|(stride, &len)| len == 1 || whole(stride)) {
            return Err(self.gaps());
        }
        let extent = self.layout().extent(size).filter(|_| !is_empty).unwrap_or((0, 0));
        let byte = |place: isize| usize::try_from(place).unwrap_or(0);
        let values = self.values_of::<T>(byte(extent.0)..byte(extent.1))?;
        // Views begin at their first element in memory and go up from there; those that go down are turned round.
        let steps: Vec<usize> = match is_empty {
            true => vec![0; shape.len()],
            false => strides.iter().map(|stride| stride.unsigned_abs() / size).collect(),
        };
        let view = ArrayView::from_shape(IxDyn(shape).strides(IxDyn(&steps)), values);
        let mut view = view.map_err(|_| self.gaps())?;
        for (axis, (stride, len)) in strides.iter().zip(shape).enumerate() {
            if *stride < 0 && *len > 1 {
                view.invert_axis(Axis(axis));
            }
        }
        let expected = D::NDIM.unwrap_or(shape.len());
        view.into_dimensionality::<D>()
            .map_err(|_| ArrayCause::ArrayRank { shape: shape.to_vec(), expected }.into())
    }
}
