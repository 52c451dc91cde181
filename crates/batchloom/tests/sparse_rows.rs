//! Sparse rows are what a loop over their entries makes of them, in both layouts, and wrong ones name their row.

use batchloom::dataset::{SparseLayout, SparseRows, TensorField};
use batchloom::{DType, Kind, Loader, Tensor, TensorDataset};
use proptest::prelude::*;

use crate::errors::is;

/// Rows of columns and values, with columns in any order and any number of times.
type Entries = Vec<Vec<(i32, f32)>>;

fn entries(width: i32) -> impl Strategy<Value = Entries> {
    let row = prop::collection::vec((0..width, (-9..9_i8).prop_map(f32::from)), 0..12);
    prop::collection::vec(row, 1..40)
}

fn cases() -> impl Strategy<Value = (usize, Entries)> {
    (1..9_i32).prop_flat_map(|width| (Just(width as usize), entries(width)))
}

fn rows(entries: &Entries, width: usize, wide: bool) -> SparseRows {
    let count = entries.iter().map(Vec::len).sum();
    let ends = entries.iter().scan(0, |end, row| {
        *end += row.len() as i64;
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    let columns: Vec<i32> = entries.iter().flatten().map(|(column, _)| *column).collect();
    let values = entries.iter().flatten().map(|(_, value)| *value).collect();
    let (offsets, columns) = match wide {
        true => (
            Tensor::from_vec(offsets, &[entries.len() + 1]).unwrap(),
            Tensor::from_vec(columns.into_iter().map(i64::from).collect(), &[count]).unwrap(),
        ),
        false => (
            Tensor::from_vec(offsets.iter().map(|&end| end as i32).collect(), &[entries.len() + 1]).unwrap(),
            Tensor::from_vec(columns, &[count]).unwrap(),
        ),
    };
    SparseRows::new("x", offsets, columns, Tensor::from_vec(values, &[count]).unwrap(), width).unwrap()
}

fn integers(field: &Tensor) -> Vec<i64> {
    let narrow = || field.as_slice::<i32>().unwrap().iter().map(|&number| i64::from(number)).collect();
    field.as_slice::<i64>().map_or_else(narrow, <[i64]>::to_vec)
}

fn integer_array(numbers: Vec<i64>) -> Tensor {
    let count = numbers.len();
    Tensor::from_vec(numbers, &[count]).unwrap()
}

proptest! {
    // law: L9
    #[test]
    fn dense_rows_are_sums((width, entries) in cases(), wide in any::<bool>(), size in 1..20_u64, threads in 1..4_usize) {
        let rows = rows(&entries, width, wide).layout(SparseLayout::Dense);
        let loader = Loader::builder(TensorDataset::new([("x", rows)]).unwrap()).batch_size(size).shuffle(true).num_threads(threads).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in loader.iter().enumerate() {
            let samples = plan.indices(step as u64, 0).unwrap();
            let mut expected = vec![0.0; samples.len() * width];
            for (place, &sample) in samples.iter().enumerate() {
                for (column, value) in &entries[sample as usize] {
                    expected[place * width + *column as usize] += value;
                }
            }
            let batch = batch.unwrap();
            let x = batch.field("x").unwrap();
            prop_assert_eq!(x.shape(), [samples.len(), width]);
            prop_assert_eq!(x.as_slice::<f32>().unwrap(), expected);
        }
    }

    // law: L9
    #[test]
    fn compressed_rows_follow_each_other((width, entries) in cases(), wide in any::<bool>(), size in 1..20_u64, threads in 1..4_usize) {
        let numbers = Tensor::from_vec((0..entries.len() as i64).collect(), &[entries.len()]).unwrap();
        let fields = [("x", TensorField::from(rows(&entries, width, wide))), ("row", numbers.into())];
        let loader = Loader::builder(TensorDataset::new(fields).unwrap()).batch_size(size).shuffle(true).num_threads(threads).build().unwrap();
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let taken: Vec<_> = batch.field("row").unwrap().as_slice::<i64>().unwrap().iter().map(|&row| &entries[row as usize]).collect();
            let ends = taken.iter().scan(0, |end, row| {
                *end += row.len() as i64;
                Some(*end)
            });
            prop_assert_eq!(integers(batch.field("x.crow_indices").unwrap()), std::iter::once(0).chain(ends).collect::<Vec<_>>());
            let columns: Vec<_> = taken.iter().flat_map(|row| row.iter().map(|(column, _)| i64::from(*column))).collect();
            prop_assert_eq!(integers(batch.field("x.col_indices").unwrap()), columns);
            let values: Vec<_> = taken.iter().flat_map(|row| row.iter().map(|(_, value)| *value)).collect();
            prop_assert_eq!(batch.field("x.values").unwrap().as_slice::<f32>().unwrap(), values);
        }
    }

    #[test]
    fn a_column_outside_names_its_row((width, mut entries) in cases(), place in any::<prop::sample::Index>(), column in prop_oneof![-9..0_i32, 20..30], dense in any::<bool>()) {
        let row = place.index(entries.len());
        entries[row].push((column, 1.0));
        let layout = if dense { SparseLayout::Dense } else { SparseLayout::Csr };
        let rows = rows(&entries, width, false).layout(layout);
        let (at, within) = (format!("row {row} has an entry in column {column}"), format!("column < {width}"));
        let expected = rows.check().unwrap_err();
        prop_assert!(is(&expected, Kind::Data, &["field x", &at, &within]), "{expected}");
        let loader = Loader::builder(TensorDataset::new([("x", rows)]).unwrap()).batch_size(3).build().unwrap();
        let errors: Vec<_> = loader.iter().filter_map(Result::err).collect();
        prop_assert_eq!(errors, [expected]);
    }
}

#[test]
fn repeats_are_known() {
    assert!(rows(&vec![vec![(1, 1.0), (0, 2.0)], vec![(1, 1.0), (1, 2.0)]], 2, true).check().unwrap());
    assert!(!rows(&vec![vec![(1, 1.0), (0, 2.0)], vec![(1, 1.0)]], 2, true).check().unwrap());
}

#[test]
fn a_column_twice_in_a_type_that_is_not_added() {
    let values = Tensor::from_vec(vec![1_u16, 2], &[2]).unwrap().reinterpret(DType::BF16).unwrap();
    let array = integer_array;
    let rows = SparseRows::new("x", array(vec![0, 0, 2]), array(vec![1, 1]), values, 3).unwrap();
    let expected = rows.check().unwrap_err();
    let words = ["field x", "row 1 holds column 1 twice", "bfloat16"];
    assert!(is(&expected, Kind::Data, &words), "{expected}");
    let dataset = TensorDataset::new([("x", rows.layout(SparseLayout::Dense))]).unwrap();
    let loader = Loader::builder(dataset).batch_size(2).build().unwrap();
    assert_eq!(loader.iter().next().unwrap().unwrap_err(), expected);
}

#[test]
fn arrays_that_make_no_rows() {
    let array = integer_array;
    let made =
        |offsets, columns, values| SparseRows::new("x", offsets, columns, values, 3).map(|_| ()).unwrap_err();
    let values = || array(vec![1, 2]);
    let floats = Tensor::from_vec(vec![0.0_f32, 1.0], &[2]).unwrap();
    let error = made(array(vec![0, 2]), floats, values());
    assert!(is(&error, Kind::Type, &["field x", "its columns are float32"]), "{error}");
    let matrix = Tensor::from_vec(vec![0_i64, 1], &[2, 1]).unwrap();
    let error = made(array(vec![0, 2]), values(), matrix);
    assert!(is(&error, Kind::Data, &["field x", "shape [2, 1]", "compact"]), "{error}");
    let error = made(array(vec![0, 1]), array(vec![0]), values());
    assert!(is(&error, Kind::Data, &["field x has 2 values but 1 columns"]), "{error}");
    for (offsets, row) in [(vec![0, 2, 1], 1), (vec![-1, 2], 0), (vec![0, 1, 3], 1), (vec![], 0)] {
        let error = made(array(offsets), array(vec![0, 1]), values());
        assert!(is(&error, Kind::Data, &["field x", &format!("sample {row} ends at")]), "{error}");
        assert_eq!(error.sample(), Some(row));
    }
}
