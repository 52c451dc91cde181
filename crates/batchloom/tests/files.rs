//! Arrays of files: every type and order comes in as it was written, without a copy; no damage is more than an error.

use batchloom::tensor::Element;
use batchloom::{DType, Error, Kind, Tensor};
use bytes::Bytes;
use npyz::{AutoSerialize, Order, WriterBuilder};
use proptest::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::errors::is;

/// The file that a crate of another author writes of an array, whose values are given in the order of the file.
fn npy<T: AutoSerialize + Copy>(values: &[T], shape: &[usize], order: Order) -> Vec<u8> {
    let shape: Vec<u64> = shape.iter().map(|&len| len as u64).collect();
    let mut file = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().shape(&shape).order(order).writer(&mut file);
    let mut writer = options.begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
    file
}

fn comes_back<T: AutoSerialize + Element + PartialEq + std::fmt::Debug + Copy>(values: &[T]) {
    let file = Bytes::from(npy(values, &[values.len()], Order::C));
    let tensor = Tensor::from_npy(file.clone()).unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (T::DTYPE, &[values.len()][..]));
    assert_eq!(tensor.to_bytes().unwrap(), bytes_of(values));
    let end = tensor.bytes().as_ptr_range().end;
    assert_eq!(end, file.as_ptr_range().end, "the memory of the file");
}

fn bytes_of<T: Element>(values: &[T]) -> Bytes {
    Tensor::from_vec(values.to_vec(), &[values.len()]).unwrap().to_bytes().unwrap()
}

#[test]
fn arrays_of_every_type_come_in() {
    comes_back(&[true, false, true]);
    comes_back(&[1_u8, 255]);
    comes_back(&[1_u16, u16::MAX]);
    comes_back(&[1_u32, u32::MAX]);
    comes_back(&[1_u64, u64::MAX]);
    comes_back(&[-1_i8, 127]);
    comes_back(&[-1_i16, i16::MIN]);
    comes_back(&[-1_i32, i32::MIN]);
    comes_back(&[-1_i64, i64::MIN]);
    comes_back(&[0.5_f32, f32::NAN, -0.0]);
    comes_back(&[0.5_f64, f64::INFINITY]);
    comes_back::<f32>(&[]);
}

/// A file of version 1 with such a header, and so many bytes after it.
fn written(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(vec![1; bytes]);
    file
}

#[test]
fn headers_of_other_hands_are_read() {
    for (descr, dtype) in [
        ("<f2", DType::F16),
        ("<c8", DType::C64),
        ("<c16", DType::C128),
        ("=f4", DType::F32),
        ("|i1", DType::I8),
        ("|b1", DType::Bool),
    ] {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2, 3), }}   \n");
        let tensor = Tensor::from_npy(written(&header, 6 * dtype.size())).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &[2, 3][..]));
    }
    for header in [
        "{\"shape\":(4L,),\"descr\":\"|u1\",\"fortran_order\":True}",
        "{'shape': (4), 'fortran_order' : False , 'descr':'|u1',}\n",
        "{'shape': (2,2,), 'fortran_order': True, 'descr': '|u1'}",
    ] {
        assert_eq!(Tensor::from_npy(written(header, 4)).unwrap().layout().elements(), 4, "{header}");
    }
    let scalar = "{'descr': '|u1', 'fortran_order': False, 'shape': (), }";
    assert!(Tensor::from_npy(written(scalar, 1)).unwrap().shape().is_empty());
}

#[test]
fn wrong_files_say_what_they_are() {
    let header =
        |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}");
    for (file, facts) in [
        (Vec::new(), "x93NUMPY"),
        (b"PK\x03\x04".to_vec(), "x93NUMPY"),
        (b"\x93NUMPY\x01".to_vec(), "7 bytes"),
        (b"\x93NUMPY\x01\x00\xff\x00{".to_vec(), "within the header"),
        (b"\x93NUMPY\x09\x00\x00\x00".to_vec(), "version 9"),
        (written(&header("'>f4'", "(2,)"), 8), ">f4; expected bools"),
        (written(&header("'<M8[ns]'", "(1,)"), 8), "<M8[ns]"),
        (written(&header("[('a', '<f4')]", "(1,)"), 4), "('a', '<f4')"),
        (written(&header("'|O'", "(1,)"), 4), "|O"),
        (written(&header("'<f4'", "(2,)"), 7), "float32 of shape [2], and 7 bytes follow"),
        (written(&header("'<f4'", "(2,)"), 9), "9 bytes"),
        (written(&header("'<f4'", "(-2,)"), 8), "(-2,)"),
        (written(&header("'<f4'", "(9223372036854775807, 4)"), 8), "9223372036854775807"),
        (written(&header("'<f4'", "(99999999999999999999,)"), 8), "expected descr"),
        (written("{'descr': '<f4', 'shape': (2,)}", 8), "fortran_order"),
        (written("[]", 8), "[]"),
    ] {
        let error = Tensor::from_npy(file).unwrap_err();
        assert_eq!(error.kind(), Kind::Data);
        assert!(error.to_string().contains(facts), "{error}; expected {facts}");
    }
}

fn stored(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let view = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    safetensors::serialize([("x", view)], None).unwrap()
}

#[test]
fn arrays_of_safetensors_come_in() {
    for dtype in DType::ALL {
        let name = format!("{dtype:?}");
        let stored_as = match dtype {
            DType::Bool => Dtype::BOOL,
            DType::F8E4M3FN => Dtype::F8_E4M3,
            DType::F8E4M3FNUZ => Dtype::F8_E4M3FNUZ,
            DType::F8E5M2 => Dtype::F8_E5M2,
            DType::F8E5M2FNUZ => Dtype::F8_E5M2FNUZ,
            DType::C128 => continue,
            _ => serde_json::from_value(name.clone().into()).unwrap(),
        };
        let bytes: Vec<u8> = (0..6 * dtype.size()).map(|byte| byte as u8 % 2).collect();
        let file = Bytes::from(stored(stored_as, &[3, 2], &bytes));
        let arrays = Tensor::from_safetensors(file.clone()).unwrap();
        let [(name, tensor)] = &arrays[..] else { panic!("{} arrays", arrays.len()) };
        assert_eq!((&name[..], tensor.dtype(), tensor.shape()), ("x", dtype, &[3, 2][..]));
        assert_eq!(tensor.to_bytes().unwrap(), bytes);
        assert_eq!(tensor.bytes().as_ptr_range().end, file.as_ptr_range().end, "the memory of the file");
    }
    let error = Tensor::from_safetensors(stored(Dtype::F8_E8M0, &[4], &[1; 4])).unwrap_err();
    assert!(error.to_string().contains("x is of type F8_E8M0"), "{error}");
}

proptest! {
    #[test]
    fn both_orders_have_the_same_elements(shape in prop::collection::vec(0_usize..5, 0..5)) {
        let count = shape.iter().product::<usize>();
        let values: Vec<i32> = (0..count as i32).collect();
        let rows = Tensor::from_npy(npy(&values, &shape, Order::C)).unwrap();
        prop_assert_eq!(rows.try_as_slice::<i32>().unwrap(), &values[..]);
        let columns = Tensor::from_npy(npy(&values, &shape, Order::Fortran)).unwrap();
        prop_assert_eq!(columns.shape(), &shape[..]);
        let back: Vec<usize> = (0..shape.len()).rev().collect();
        let turned = columns.permute(&back).unwrap();
        prop_assert_eq!(turned.try_as_slice::<i32>().unwrap(), &values[..]);
    }

    #[test]
    fn no_damage_is_more_than_an_error(
        cut in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let x = npy(&[1_i32, 2, 3, 4, 5, 6], &[2, 3], Order::Fortran);
        let y = stored(Dtype::F32, &[2, 2], &[0; 16]);
        for mut file in [x, y] {
            for (place, byte) in &places {
                let place = place.index(file.len());
                file[place] = *byte;
            }
            let end = cut.index(2 * file.len()).min(file.len());
            file.truncate(end);
            let file = Bytes::from(file);
            let named = |format: &'static str| {
                move |error: &Error| is(error, Kind::Data, &[&format!("the bytes are no {format} file of arrays")])
            };
            prop_assert!(Tensor::from_npy(file.clone()).as_ref().err().is_none_or(named(".npy")));
            prop_assert!(Tensor::from_safetensors(file).as_ref().err().is_none_or(named("safetensors")));
        }
    }
}
