//! Data goes in from slices, vectors and bytes and comes back out; what cannot be read says why.

use batchloom::dataset::Sequences;
use batchloom::tensor::Element;
use batchloom::{DType, Kind, Loader, SequenceDataset, Tensor, TensorDataset};
use bytes::Bytes;
use proptest::prelude::*;

use crate::errors::{is, refused};

/// An array of up to three dimensions whose element `k`, in row-major order, is `k`.
fn counted(shape: &[usize]) -> Tensor {
    Tensor::from_vec((0..shape.iter().product::<usize>() as i64).collect(), shape).unwrap()
}

/// The elements in row-major order, found by their indices alone.
fn elements(tensor: &Tensor) -> Vec<i64> {
    match tensor.shape() {
        [] => tensor.try_as_slice::<i64>().unwrap().to_vec(),
        [len, ..] => (0..*len).flat_map(|index| elements(&tensor.index(index).unwrap())).collect(),
    }
}

/// The element at `place` of a row-major array of such a shape.
fn number(shape: &[usize], place: &[usize]) -> i64 {
    shape.iter().zip(place).fold(0, |number, (&len, &index)| number * len as i64 + index as i64)
}

/// All places of an array, in row-major order.
fn places(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |places, &len| {
        let longer = |place: Vec<usize>| (0..len).map(move |index| [place.clone(), vec![index]].concat());
        places.into_iter().flat_map(longer).collect()
    })
}

fn round_trips<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    let tensor = Tensor::from(values.to_vec());
    assert_eq!((tensor.dtype(), tensor.shape()), (T::DTYPE, &[values.len()][..]));
    assert_eq!(tensor.try_as_slice::<T>().unwrap(), values);
    assert_eq!(Tensor::from(values).as_slice::<T>(), Some(values));
    let again = Tensor::from_bytes(tensor.bytes().clone(), T::DTYPE, &[values.len()]).unwrap();
    assert_eq!(again.as_slice::<T>(), Some(values));
}

proptest! {
    #[test]
    fn unfolded_elements_are_those_at_their_places(
        shape in prop::collection::vec(0_usize..7, 1..4),
        dim in 0_usize..3,
        (len, step) in (0_usize..5, 0_usize..5),
        turned in any::<bool>(),
    ) {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let tensor = if turned { counted(&shape).permute(&order).unwrap() } else { counted(&shape) };
        let unfolded = tensor.unfold(dim, len, step);
        let shape = tensor.shape().to_vec();
        let fits = dim < shape.len() && len <= shape[dim] && step > 0;
        prop_assert_eq!(unfolded.is_some(), fits);
        if let Some(unfolded) = unfolded {
            let pieces = (0..).map(|piece| piece * step).take_while(|start| start + len <= shape[dim]).count();
            let mut expected = shape.clone();
            expected[dim] = pieces;
            expected.push(len);
            prop_assert_eq!(unfolded.shape(), expected.as_slice());
            let whole = elements(&tensor);
            let at = |place: &[usize]| {
                let (inside, place) = place.split_last().unwrap();
                let mut stored = place.to_vec();
                stored[dim] = place[dim] * step + inside;
                whole[stored.iter().zip(&shape).fold(0, |flat, (&index, &len)| flat * len + index)]
            };
            let expected: Vec<_> = places(&expected).iter().map(|place| at(place)).collect();
            prop_assert_eq!(elements(&unfolded), expected);
        }
    }

    #[test]
    fn values_come_back(numbers in prop::collection::vec(any::<i64>(), 0..40)) {
        round_trips(&numbers);
        round_trips(&numbers.iter().map(|number| number % 2 == 0).collect::<Vec<bool>>());
        round_trips(&numbers.iter().map(|&number| number as f32).collect::<Vec<_>>());
        round_trips(&numbers.iter().map(|&number| number as u8).collect::<Vec<_>>());
        #[cfg(feature = "half")]
        {
            round_trips(&numbers.iter().map(|&it| half::f16::from_f64(it as f64)).collect::<Vec<_>>());
            round_trips(&numbers.iter().map(|&it| half::bf16::from_f64(it as f64)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn narrowed_and_permuted_elements_are_those_at_their_places(
        shape in prop::collection::vec(0_usize..5, 1..4),
        dim in 0_usize..3,
        cut in (0_usize..5, 0_usize..5),
        order in Just(vec![0, 1, 2]).prop_shuffle(),
    ) {
        let tensor = counted(&shape);
        let order: Vec<usize> = order.into_iter().filter(|&dim| dim < shape.len()).collect();
        let permuted = tensor.permute(&order).unwrap();
        let turned: Vec<usize> = order.iter().map(|&dim| shape[dim]).collect();
        prop_assert_eq!(permuted.shape(), turned.as_slice());
        let expected = places(&turned).into_iter().map(|place| {
            let mut stored = vec![0; shape.len()];
            order.iter().zip(&place).for_each(|(&dim, &index)| stored[dim] = index);
            number(&shape, &stored)
        });
        prop_assert_eq!(elements(&permuted), expected.collect::<Vec<_>>());

        let narrowed = tensor.narrow(dim, cut.0..cut.1);
        let fits = dim < shape.len() && cut.0 <= cut.1 && cut.1 <= shape[dim];
        prop_assert_eq!(narrowed.is_some(), fits);
        if let Some(narrowed) = narrowed {
            let within = |place: &Vec<usize>| (cut.0..cut.1).contains(&place[dim]);
            let expected = places(&shape).into_iter().filter(within).map(|place| number(&shape, &place));
            prop_assert_eq!(elements(&narrowed), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn slices_become_sequences(samples in prop::collection::vec(prop::collection::vec(any::<i32>(), 0..6), 0..9)) {
        let of = Sequences::of("ids", &samples).unwrap();
        let lent: Vec<&[i32]> = samples.iter().map(Vec::as_slice).collect();
        let each = [
            Sequences::try_from(samples.as_slice()).unwrap(),
            Sequences::try_from(lent.as_slice()).unwrap(),
            Sequences::try_from(samples.clone()).unwrap(),
            Sequences::of("ids", lent.iter()).unwrap(),
        ];
        let flat = samples.concat();
        prop_assert_eq!(of.values().as_slice::<i32>(), Some(flat.as_slice()));
        for sequences in each {
            prop_assert_eq!(sequences.len(), samples.len());
            prop_assert_eq!(sequences.values().as_slice::<i32>(), of.values().as_slice::<i32>());
        }
        if !samples.is_empty() {
            let dataset = SequenceDataset::new().slices("ids", &samples).unwrap().build().unwrap();
            let lengths: Vec<u32> = samples.iter().map(|sample| sample.len() as u32).collect();
            prop_assert_eq!(dataset.sizes().as_slice(), lengths.as_slice());
        }
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn arrays_of_any_layout_go_in_and_come_out(
        shape in prop::collection::vec(1_usize..5, 0..4),
        order in Just(vec![0, 1, 2]).prop_shuffle(),
        turned in prop::collection::vec(any::<bool>(), 3),
        steps in prop::collection::vec(1_isize..3, 3),
    ) {
        use ndarray::{Array, Axis, IxDyn, Slice};
        let order: Vec<usize> = order.into_iter().filter(|&dim| dim < shape.len()).collect();
        let values: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        let mut array = Array::from_shape_vec(IxDyn(&shape), values).unwrap().permuted_axes(IxDyn(&order));
        for dim in 0..shape.len() {
            if turned[dim] {
                array.invert_axis(Axis(dim));
            }
            array.slice_axis_inplace(Axis(dim), Slice::new(0, None, steps[dim]));
        }
        let address = array.as_ptr().addr();
        let expected: Vec<i64> = array.iter().copied().collect();
        let tensor = Tensor::try_from(array.clone()).unwrap();
        prop_assert_eq!(&elements(&tensor), &expected);
        let view = tensor.as_array::<i64, IxDyn>().unwrap();
        prop_assert_eq!(view.shape(), array.shape());
        prop_assert_eq!(view.iter().copied().collect::<Vec<_>>(), expected);
        let moved = Tensor::try_from(array).unwrap();
        prop_assert_eq!(moved.as_array::<i64, IxDyn>().unwrap().as_ptr().addr(), address);
    }
}

#[test]
fn errors_say_which_of_the_causes_it_is() {
    let tensor = counted(&[2, 3]);
    let error = tensor.try_as_slice::<f64>().unwrap_err();
    assert!(is(&error, Kind::Type, &["int64", "float64"]), "{error}");
    let columns = tensor.permute(&[1, 0]).unwrap();
    let gaps = ["int64", "shape [3, 2]", "byte strides [8, 24]", "without gaps"];
    refused(columns.try_as_slice::<i64>(), Kind::Data, &gaps);
    assert_eq!(columns.as_slice::<i64>(), None);
    let shifted = Tensor::new(counted(&[3]).bytes().clone(), DType::I64, &[1], &[8], 4).unwrap();
    refused(shifted.try_as_slice::<i64>(), Kind::Data, &["int64", "4 bytes past a multiple of 8"]);
    let wrong = Tensor::from(vec![0_u8, 1, 7]).reinterpret(DType::Bool).unwrap();
    refused(wrong.try_as_slice::<bool>(), Kind::Data, &["byte 2 of an array of bool is 7"]);
    let elsewhere = Tensor::elsewhere(DType::F32, &[2]).unwrap();
    let unreadable = ["float32", "shape [2]", "this process cannot read"];
    refused(elsewhere.try_as_slice::<f32>(), Kind::Data, &unreadable);
    let few = Tensor::from_bytes(Bytes::from_static(&[0; 7]), DType::F32, &[2]);
    refused(few, Kind::Data, &["7 bytes", "shape [2] of float32", "takes 8"]);
    assert_eq!(tensor.permute(&[0, 0]).map(|_| ()), None);
    assert_eq!(tensor.permute(&[0]).map(|_| ()), None);
    #[cfg(feature = "ndarray")]
    {
        let rank = ["shape [2, 3]", "2 dimensions; expected 1"];
        refused(tensor.as_array::<i64, ndarray::Ix1>(), Kind::Argument, &rank);
        let records = Bytes::from_owner(vec![0_u8; 40]);
        let records = Tensor::new(records, DType::I32, &[4], &[10], 0).unwrap();
        refused(records.as_array::<i32, ndarray::Ix1>(), Kind::Data, &["byte strides [10]", "without gaps"]);
        let none = counted(&[0, 3]);
        assert_eq!(none.as_array::<i64, ndarray::Ix2>().unwrap().shape(), [0, 3]);
    }
}

#[test]
fn batches_are_read_by_name_and_taken_apart() {
    let sequences = SequenceDataset::new().slices("ids", [vec![1_i64], vec![2, 3]]).unwrap().build().unwrap();
    let batch = Loader::builder(sequences).batch_size(2).build().unwrap().iter().next().unwrap().unwrap();
    assert_eq!(batch.view::<i64>("ids").unwrap(), [1, 0, 2, 3]);
    assert_eq!(batch.view::<bool>("attention_mask").unwrap(), [true, false, true, true]);
    let error = batch.view::<i64>("id").unwrap_err();
    let known: Vec<String> = batch.names().to_vec();
    assert!(
        is(&error, Kind::Argument, &["no field id", &known.join(", "), "ids, attention_mask"]),
        "{error}"
    );
    refused(batch.view::<i32>("ids"), Kind::Type, &["int64", "int32"]);
    let fields = batch.into_fields();
    assert_eq!(fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), known);
    assert_eq!(fields[0].1.as_slice::<i64>(), Some(&[1, 0, 2, 3][..]));
}

#[test]
fn rows_of_vectors_are_a_dataset() {
    let dataset = TensorDataset::new([("x", vec![1.0_f32, 2.0]), ("y", vec![3.0, 4.0])]).unwrap();
    assert_eq!((dataset.len(), dataset.names().len()), (2, 2));
}
