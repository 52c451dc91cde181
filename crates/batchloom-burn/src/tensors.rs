//! The fields of a batch as Burn's tensors.
//!
//! Promises: values equal the batch and keep their type. On the backend flex a tensor lies
//! in the memory of the block, without a copy; the block goes back to its loader when the last tensor in it is gone. A
//! tensor that is changed is copied by Burn first, so that no other batch sees it.

use batchloom::loader::Batch;
use batchloom::{DType, Tensor};
use burn_core::tensor::kind::{Basic, Kind};
use burn_core::tensor::{
    AllocationProperty, BoolStore, Bytes, DType as BurnType, Device, Tensor as BurnTensor,
    TensorCreationOptions, TensorData,
};

use crate::{Error, Result};

/// A field of a batch as a tensor on `device`, of `D` dimensions; the first counts samples.
///
/// It keeps the type of its values, which is not converted, as that might lose some. `uint8` and other integers make a
/// tensor of kind `Int`, floats one of kind `Float`. Burn's metrics compare labels with numbers of the device's own
/// type of integers, so labels are best of that type: `i32` on flex.
///
/// ```
/// use batchloom::{Loader, Tensor, TensorDataset};
/// use batchloom_burn::tensor;
/// use burn::tensor::{Device, Int, Tensor as BurnTensor};
///
/// let x = Tensor::from_vec(vec![0.0_f32; 12], &[4, 3])?;
/// let y = Tensor::from(vec![0_i64, 1, 2, 3]);
/// let loader = Loader::builder(TensorDataset::new([("x", x), ("y", y)])?).batch_size(2).build()?;
/// let batch = loader.iter().next().expect("a batch")?;
/// let x: BurnTensor<2> = tensor(&batch, "x", &Device::flex())?;
/// let y: BurnTensor<1, Int> = tensor(&batch, "y", &Device::flex())?;
/// assert_eq!((x.dims(), y.dims()), ([2, 3], [2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Dimensions`], [`Error::Kind`], and [`Error::Device`] if the device does not compute with values of this type;
/// the errors of [`data`]; and the errors of [`Batch::known_field`].
pub fn tensor<const D: usize, K: Basic>(
    batch: &Batch,
    name: &str,
    device: &Device,
) -> Result<BurnTensor<D, K>> {
    let field = batch.known_field(name)?;
    if field.shape().len() != D {
        let (name, shape) = (name.to_owned(), field.shape().to_vec());
        return Err(Error::Dimensions { name, found: shape, expected: D });
    }
    let dtype = dtype_of(field.dtype())?;
    if kind_of(dtype) != K::KIND {
        let name = name.to_owned();
        return Err(Error::Kind { name, found: field.dtype(), expected: K::name() });
    }
    if !device.supports_dtype(dtype) {
        return Err(Error::Device {
            name: name.to_owned(),
            found: field.dtype(),
            device: format!("{device:?}"),
        });
    }
    let options = TensorCreationOptions::new(device.clone()).with_dtype(dtype);
    Ok(BurnTensor::from_data(data(field)?, options))
}

/// The values of a tensor of the engine as Burn's data, in the same memory.
///
/// # Errors
/// [`Error::Type`] if Burn has no such type: complex numbers and floats of 8 bits; and [`Error::Engine`] if the values do not
/// lie in row-major order without gaps, as the values of a loader's batches do.
pub fn data(tensor: &Tensor) -> Result<TensorData> {
    let dtype = dtype_of(tensor.dtype())?;
    if tensor.dtype() == DType::Bool {
        // Burn takes each byte for a bool.
        tensor.try_as_slice::<bool>()?;
    }
    let bytes = Bytes::from_shared(tensor.to_bytes()?, AllocationProperty::Native);
    Ok(TensorData::from_bytes(bytes, tensor.shape(), dtype))
}

/// The type of Burn with the same values and the same bytes.
fn dtype_of(dtype: DType) -> Result<BurnType> {
    Ok(match dtype {
        DType::Bool => BurnType::Bool(BoolStore::Native),
        DType::U8 => BurnType::U8,
        DType::U16 => BurnType::U16,
        DType::U32 => BurnType::U32,
        DType::U64 => BurnType::U64,
        DType::I8 => BurnType::I8,
        DType::I16 => BurnType::I16,
        DType::I32 => BurnType::I32,
        DType::I64 => BurnType::I64,
        DType::F16 => BurnType::F16,
        DType::BF16 => BurnType::BF16,
        DType::F32 => BurnType::F32,
        DType::F64 => BurnType::F64,
        other => return Err(Error::Type { found: other }),
    })
}

/// The kind of tensor that holds values of a type.
fn kind_of(dtype: BurnType) -> Kind {
    match dtype {
        BurnType::Bool(_) => Kind::Bool,
        dtype if dtype.is_float() => Kind::Float,
        _ => Kind::Int,
    }
}
