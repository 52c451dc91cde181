//! Arrow lists come in as they are: any offsets, slices and chunks, shared where they can be; nulls are refused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, LargeListArray, ListArray, StringArray,
};
use arrow_schema::{DataType, Field};
use batchloom::dataset::{Sequences, arrow_lists};
use batchloom::{DType, Kind, SequenceDataset};
use proptest::prelude::*;

use crate::errors::{is, refused};

fn list(lists: &[Vec<i64>]) -> ArrayRef {
    let lists = lists.iter().map(|list| Some(list.iter().copied().map(Some)));
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

fn large_list(lists: &[Vec<i64>]) -> ArrayRef {
    let lists = lists.iter().map(|list| Some(list.iter().copied().map(Some)));
    Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

/// The lists as the engine has them.
fn read(chunks: &[ArrayRef]) -> Vec<Vec<i64>> {
    let (values, offsets) = arrow_lists("x", chunks).unwrap();
    let values: Vec<i64> =
        values.chunks().flat_map(|chunk| chunk.as_slice::<i64>().unwrap().to_vec()).collect();
    offsets.windows(2).map(|ends| values[ends[0] as usize..ends[1] as usize].to_vec()).collect()
}

proptest! {
    #[test]
    fn arrow_lists_are_what_they_were(
        lists in prop::collection::vec(prop::collection::vec(any::<i64>(), 0..6), 1..20),
        cut in any::<prop::sample::Index>(),
        (start, end) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        large in any::<bool>(),
    ) {
        let make = if large { large_list } else { list };
        let (first, second) = lists.split_at(cut.index(lists.len()));
        prop_assert_eq!(&read(&[make(&lists)]), &lists);
        prop_assert_eq!(&read(&[make(first), make(second)]), &lists);
        let (start, end) = (start.index(lists.len()), end.index(lists.len() + 1));
        let (start, end) = (start.min(end), start.max(end));
        prop_assert_eq!(&read(&[make(&lists).slice(start, end - start)]), &lists[start..end]);
    }

    #[test]
    fn arrow_nulls_are_named(
        lists in prop::collection::vec(prop::option::of(prop::collection::vec(prop::option::of(0_i64..9), 0..4)), 1..9),
        start in any::<prop::sample::Index>(),
    ) {
        let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists.clone()));
        let start = start.index(lists.len());
        let (array, lists) = (array.slice(start, lists.len() - start), &lists[start..]);
        let null = lists.iter().position(Option::is_none);
        let inner = lists.iter().position(|list| list.iter().flatten().any(Option::is_none));
        match (arrow_lists("x", &[array]), null.or(inner)) {
            (Ok(_), expected) => prop_assert_eq!(expected, None),
            (Err(error), expected) => {
                prop_assert!(is(&error, Kind::Data, &["field x", "null"]), "{error}");
                prop_assert_eq!(error.sample(), expected.map(|sample| sample as u64));
            }
        }
    }
}

#[test]
fn arrow_values_of_one_chunk_are_shared() {
    let array = list(&[vec![1, 2], vec![3]]);
    let (values, _) = arrow_lists("x", &[Arc::clone(&array)]).unwrap();
    let memory = array.as_list::<i32>().values().as_primitive::<Int64Type>().values().as_ptr();
    assert_eq!(values.as_slice::<i64>().unwrap().as_ptr(), memory);
}

#[test]
fn arrow_chunks_are_shared() {
    let arrays = [list(&[vec![1, 2], vec![3]]), list(&[vec![4]])];
    let (values, offsets) = arrow_lists("x", &arrays).unwrap();
    assert_eq!((values.shape(), offsets), (&[4][..], vec![0, 2, 3, 4]));
    for (array, chunk) in arrays.iter().zip(values.chunks()) {
        let memory = array.as_list::<i32>().values().as_primitive::<Int64Type>().values().as_ptr();
        assert_eq!(chunk.as_slice::<i64>().unwrap().as_ptr(), memory);
    }
}

#[test]
fn arrow_lists_of_fixed_size() {
    let inner = |value| Some(vec![Some(value), Some(value + 1)]);
    let pairs =
        FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([inner(0), inner(10), inner(20)], 2);
    let (values, offsets) = arrow_lists("x", &[Arc::new(pairs.clone())]).unwrap();
    assert_eq!((values.shape(), offsets), (&[6][..], vec![0, 2, 4, 6]));
    // Lists of pairs: a value is a pair.
    let field = Arc::new(Field::new("item", pairs.data_type().clone(), true));
    let ends = arrow_buffer::OffsetBuffer::new(vec![0, 1, 3].into());
    let lists = ListArray::new(field, ends, Arc::new(pairs), None);
    let (values, offsets) = arrow_lists("x", &[Arc::new(lists)]).unwrap();
    assert_eq!((values.shape(), offsets), (&[3, 2][..], vec![0, 1, 3]));
    assert_eq!(values.as_slice::<i32>(), Some(&[0, 1, 10, 11, 20, 21][..]));
}

#[test]
fn arrow_chunks_of_several_kinds_are_joined() {
    let (lists, more) = ([vec![1, 2], vec![]], [vec![3], vec![4, 5]]);
    let sliced = list(&[vec![9, 9, 9], lists[0].clone(), lists[1].clone(), vec![9]]).slice(1, 2);
    let chunks = [sliced, large_list(&more), list(&[])];
    assert_eq!(read(&chunks), [&lists[..], &more].concat());
    let other: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]));
    let error = arrow_lists("x", &[list(&lists), other]).unwrap_err();
    assert!(is(&error, Kind::Data, &["field x", "chunk 1", "Int32", "Int64"]), "{error}");
    let null = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), None]);
    assert_eq!(arrow_lists("x", &[list(&lists), Arc::new(null)]).unwrap_err().sample(), Some(3));
}

#[test]
fn arrow_booleans_are_bytes() {
    let values = BooleanArray::from(vec![true, false, true, true]);
    let field = Arc::new(Field::new("item", DataType::Boolean, true));
    let lists =
        ListArray::new(field, arrow_buffer::OffsetBuffer::new(vec![0, 1, 4].into()), Arc::new(values), None);
    let (values, _) = arrow_lists("x", &[Arc::new(lists)]).unwrap();
    assert_eq!(
        (values.dtype(), values.as_tensor().unwrap().bytes().as_ref()),
        (DType::Bool, &[1, 0, 1, 1][..])
    );
}

#[test]
fn arrow_lists_are_sequences() {
    let lists = [vec![1.0], vec![2.0, 3.0]].map(|list| Some(list.into_iter().map(Some)));
    let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(lists));
    let sequences = Sequences::from_arrow("x", &[array]).unwrap();
    let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
    assert_eq!(dataset.sizes().as_slice(), [1, 2]);
}

#[test]
fn arrow_arrays_of_other_types_are_refused() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let field = Arc::new(Field::new("item", DataType::Utf8, true));
    let ends = arrow_buffer::OffsetBuffer::new(vec![0, 1].into());
    let lists: ArrayRef = Arc::new(ListArray::new(field, ends, Arc::clone(&texts), None));
    for array in [Arc::clone(&texts), numbers, lists] {
        refused(arrow_lists("x", &[array]), Kind::Type, &["field x", "expected lists of numbers"]);
    }
    refused(arrow_lists("x", &[]), Kind::Data, &["no samples"]);
    let mixed = arrow_lists("x", &[list(&[vec![1]]), texts]);
    refused(mixed, Kind::Data, &["field x", "chunk 1", "Utf8"]);
}
