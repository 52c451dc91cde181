//! Fields as tensors: values, types, the memory that they lie in.

use batchloom::loader::Batch;
use batchloom::{DType, Loader, Tensor, TensorDataset};
use batchloom_burn::{Error, data, tensor};
use burn::tensor::{Bool, DType as BurnType, Device, Int, Tensor as BurnTensor};

fn batch(fields: impl IntoIterator<Item = (&'static str, Tensor)>) -> (Loader, Batch) {
    let loader = Loader::builder(TensorDataset::new(fields).unwrap()).batch_size(4).build().unwrap();
    let batch = loader.iter().next().unwrap().unwrap();
    (loader, batch)
}

#[test]
fn a_tensor_lies_in_the_block() {
    let x = Tensor::from_vec((0..64).map(|value| value as f32).collect(), &[8, 8]).unwrap();
    let (_loader, batch) = batch([("x", x)]);
    let block = batch.view::<f32>("x").unwrap().as_ptr().addr();
    let lent: BurnTensor<2> = tensor(&batch, "x", &Device::flex()).unwrap();
    let data = lent.clone().into_data();
    drop(lent);
    assert_eq!(data.as_slice::<f32>().unwrap(), batch.view::<f32>("x").unwrap());
    let direct = batchloom_burn::data(batch.field("x").unwrap()).unwrap();
    assert_eq!(direct.as_slice::<f32>().unwrap().as_ptr().addr(), block);
    let moved: BurnTensor<2> = BurnTensor::from_data(direct, &Device::flex());
    let back = moved.into_data();
    assert_eq!(back.as_slice::<f32>().unwrap().as_ptr().addr(), block, "without a copy, in and out");
}

#[test]
fn a_change_is_seen_by_no_other_batch() {
    let x = Tensor::from_vec(vec![1.0_f32; 64], &[8, 8]).unwrap();
    let (_loader, batch) = batch([("x", x)]);
    let lent: BurnTensor<2> = tensor(&batch, "x", &Device::flex()).unwrap();
    let changed = lent.mul_scalar(3.0).add_scalar(1.0).slice_fill(0..1, 9.0);
    assert_eq!(changed.into_data().as_slice::<f32>().unwrap()[63 - 32], 4.0);
    let direct: BurnTensor<2> = tensor(&batch, "x", &Device::flex()).unwrap();
    let _ = direct.slice_fill(0..1, 9.0);
    assert!(batch.view::<f32>("x").unwrap().iter().all(|&value| value == 1.0));
}

#[test]
fn every_type_keeps_its_values() {
    let bytes = |dtype: DType| Tensor::from_bytes(vec![1; 8 * dtype.size()].into(), dtype, &[8]).unwrap();
    for dtype in DType::ALL {
        let (_loader, batch) = batch([("x", bytes(dtype))]);
        let field = batch.field("x").unwrap();
        match data(field) {
            Ok(data) => assert_eq!(data.as_bytes(), &field.to_bytes().unwrap()[..], "{dtype}"),
            Err(error) => {
                assert_eq!(error, Error::Type { found: dtype });
                assert!(dtype.name().contains("float8") || dtype.name().contains("complex"), "{dtype}");
            }
        }
    }
}

#[test]
fn kinds_and_dimensions_are_checked() {
    let x = Tensor::from_vec(vec![0.5_f32; 16], &[8, 2]).unwrap();
    let y = Tensor::from((0..8_i64).collect::<Vec<_>>());
    let mask = Tensor::from(vec![true; 8]);
    let (_loader, batch) = batch([("x", x), ("y", y), ("mask", mask)]);
    let device = Device::flex();
    let mask: BurnTensor<1, Bool> = tensor(&batch, "mask", &device).unwrap();
    assert_eq!(mask.dims(), [4]);
    let y: BurnTensor<1, Int> = tensor(&batch, "y", &device).unwrap();
    assert_eq!(y.dtype(), BurnType::I64);
    let wrong = tensor::<1, burn::tensor::Float>(&batch, "y", &device).unwrap_err().to_string();
    assert_eq!(wrong, "y is int64; expected values for a tensor of kind Float");
    let wrong = tensor::<3, burn::tensor::Float>(&batch, "x", &device).unwrap_err().to_string();
    assert!(wrong.contains("x has shape [4, 2]; expected 3 dimensions"), "{wrong}");
    let wrong = tensor::<1, Int>(&batch, "z", &device).unwrap_err().to_string();
    assert!(wrong.contains('z') && wrong.contains("mask"), "{wrong}");
}

#[test]
fn bytes_that_are_no_bool_are_refused() {
    let mask = Tensor::from_bytes(vec![0, 1, 2, 1].into(), DType::Bool, &[4]).unwrap();
    let Err(Error::Engine(error)) = data(&mask) else { panic!("a byte that is no bool is taken") };
    assert_eq!(error.kind(), batchloom::Kind::Data);
    assert!(error.to_string().contains("byte 2 of an array of bool is 2"), "{error}");
}
