//! Arrays in files of the format safetensors, taken over without a copy. Feature `safetensors`.

use bytes::Bytes;
use safetensors::{Dtype, SafeTensors};

use super::error::FileCause;
use super::{DType, Tensor};
use crate::{Error, Result};

impl Tensor {
    /// The arrays of a safetensors file by name, in the order in which they lie there. The file is given as its bytes:
    /// read, or a map of it that `Bytes::from_owner` holds. The memory is shared, not copied.
    ///
    /// ```
    /// use batchloom::{Tensor, TensorDataset};
    ///
    /// let header = br#"{"y":{"dtype":"I64","shape":[2],"data_offsets":[8,24]},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    /// let mut file = (header.len() as u64).to_le_bytes().to_vec();
    /// file.extend(header);
    /// file.extend([0.5_f32, 2.5].iter().flat_map(|value| value.to_le_bytes()));
    /// file.extend([7_i64, 9].iter().flat_map(|value| value.to_le_bytes()));
    ///
    /// let dataset = TensorDataset::new(Tensor::from_safetensors(file)?)?;
    /// assert_eq!(dataset.names(), ["x", "y"]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the bytes are no such file, or if an array is of a type that is not here,
    /// such as floats of four bits.
    pub fn from_safetensors(file: impl Into<Bytes>) -> Result<Vec<(String, Self)>> {
        let file = file.into();
        let archive = SafeTensors::deserialize(&file).map_err(|error| no_file(error.to_string()))?;
        let mut views = archive.tensors();
        views.sort_by(|(name, view), (other, next)| {
            (view.data().as_ptr(), name).cmp(&(next.data().as_ptr(), other))
        });
        let tensor = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            let dtype = view.dtype();
            let dtype = convert_dtype(dtype)
                .ok_or_else(|| no_file(format!("array {name} is of type {dtype:?}, which is not here")))?;
            let tensor = Self::from_bytes(file.slice_ref(view.data()), dtype, view.shape())?;
            Ok((name, tensor))
        };
        views.into_iter().map(tensor).collect()
    }
}

/// The type of the engine for one of the format.
fn convert_dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F8_E4M3 => DType::F8E4M3FN,
        Dtype::F8_E4M3FNUZ => DType::F8E4M3FNUZ,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F8_E5M2FNUZ => DType::F8E5M2FNUZ,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::C64 => DType::C64,
        _ => return None,
    })
}

fn no_file(reason: String) -> Error {
    FileCause::File { format: "safetensors", reason }.into()
}
