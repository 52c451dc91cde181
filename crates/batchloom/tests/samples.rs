//! A sample that is looked up is what a batch of one holds, and the rows that samples need are those that they are
//! taken from: for every kind of data.

use batchloom::dataset::{
    Dataset, GroupLayout, GroupOversize, Groups, SampledBy, Sequences, Short, SparseRows, TensorField,
    TokenExtras, WindowShape,
};
use batchloom::{
    GroupDataset, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset,
};
use proptest::prelude::*;

use crate::errors::refused;

/// Row numbers, so that values say which row they are: `[rows, 2]`.
fn numbers(rows: usize) -> Tensor {
    let numbers = (0..rows as i64).flat_map(|row| [row, row]).collect();
    Tensor::from_vec(numbers, &[rows, 2]).unwrap()
}

fn tensors() -> impl Strategy<Value = Dataset> {
    (1..40_usize)
        .prop_map(|rows| TensorDataset::new([("x", numbers(rows)), ("y", numbers(rows))]).unwrap().into())
}

fn sparse() -> impl Strategy<Value = Dataset> {
    prop::collection::vec(0..5_i64, 1..30).prop_map(|sizes| {
        let offsets = sums(&sizes);
        let entries = offsets[sizes.len()];
        let offsets = Tensor::from_vec(offsets, &[sizes.len() + 1]).unwrap();
        let columns =
            Tensor::from_vec((0..entries as i32).map(|entry| entry % 5).collect(), &[entries as usize]);
        let values = Tensor::from_vec((0..entries).collect(), &[entries as usize]).unwrap();
        let rows = SparseRows::new("x", offsets, columns.unwrap(), values, 5).unwrap();
        TensorDataset::new([("x", TensorField::from(rows)), ("z", numbers(sizes.len()).into())])
            .unwrap()
            .into()
    })
}

fn sequences() -> impl Strategy<Value = Dataset> {
    prop::collection::vec(0..9_i64, 1..20).prop_map(|sizes| {
        let offsets: Vec<i64> = sums(&sizes);
        let values = numbers(usize::try_from(offsets[sizes.len()]).unwrap());
        let x = Sequences::new("x", values, &offsets).unwrap();
        let dataset = SequenceDataset::new().variable("x", x).fixed("y", numbers(sizes.len()));
        dataset.build().unwrap().into()
    })
}

fn groups() -> impl Strategy<Value = Dataset> {
    (prop::collection::vec(0..6_i64, 1..30), any::<bool>(), any::<bool>()).prop_map(|(ids, padded, short)| {
        let layout = if padded { GroupLayout::Padded } else { GroupLayout::Concatenated };
        let dataset = GroupDataset::new(Groups::of(&ids).unwrap()).rows("x", numbers(ids.len())).unwrap();
        let dataset = dataset.layout(layout);
        let dataset = if short { dataset.max_rows(2, GroupOversize::Truncate) } else { dataset };
        dataset.build().unwrap().into()
    })
}

fn windows() -> impl Strategy<Value = Dataset> {
    let lengths = prop::collection::vec(0..20_usize, 1..6);
    (lengths, 1..6_usize, 0..4_usize, 1..4_usize, any::<bool>())
        .prop_filter("a window at all", |(lengths, ..)| lengths.iter().any(|&length| length > 0))
        .prop_map(|(lengths, input_len, horizon, stride, series)| {
            let offsets = lengths.iter().fold(vec![0], |mut offsets, length| {
                offsets.push(offsets[offsets.len() - 1] + length);
                offsets
            });
            let sampled_by = if series { SampledBy::Series } else { SampledBy::Windows };
            let shape = WindowShape::new(input_len).horizon(horizon).stride(stride);
            let shape = shape.sampled_by(sampled_by).short(Short::Pad);
            let values = numbers(offsets[lengths.len()]);
            let dataset = WindowDataset::new(&offsets, shape).unwrap().input("x", values.clone()).unwrap();
            dataset.target("y", values).unwrap().mask().unwrap().into()
        })
}

fn tokens() -> impl Strategy<Value = Dataset> {
    (prop::collection::vec(0..9_i64, 1..12), 1..5_usize, any::<bool>())
        .prop_map(|(sizes, seq_len, separated)| {
            let offsets = sums(&sizes);
            let count = usize::try_from(offsets[sizes.len()]).unwrap() + 9;
            let offsets =
                Tensor::from_vec([offsets, vec![count as i64]].concat(), &[sizes.len() + 2]).unwrap();
            let tokens = Tensor::from_vec((0..count as i64).collect(), &[count]).unwrap();
            let dataset = TokenDataset::new(tokens, seq_len).unwrap().documents(&offsets).unwrap();
            let dataset = if separated { dataset.separator(-1) } else { dataset };
            dataset.extras(TokenExtras::default().position_ids(true))
        })
        .prop_map(Dataset::from)
}

fn datasets() -> impl Strategy<Value = Dataset> {
    prop_oneof![tensors(), sparse(), sequences(), groups(), windows(), tokens()]
}

fn sums(sizes: &[i64]) -> Vec<i64> {
    sizes.iter().fold(vec![0], |mut sums, size| {
        sums.push(sums[sums.len() - 1] + size);
        sums
    })
}

/// All elements of an array, one after the other, whatever their type.
fn elements(tensor: &Tensor) -> Vec<u8> {
    let size = tensor.dtype().size();
    let start = tensor.layout().offset();
    tensor.bytes()[start..start + tensor.shape().iter().product::<usize>() * size].to_vec()
}

/// The rows that the values of a sample name: they are row numbers.
fn named(tensor: &Tensor) -> Vec<usize> {
    let values = tensor.as_slice::<i64>().unwrap_or(&[]);
    values.iter().filter_map(|&value| usize::try_from(value).ok()).collect()
}

proptest! {
    #[test]
    fn a_sample_is_a_batch_of_one(dataset in datasets()) {
        let loader = Loader::builder(dataset.clone()).batch_size(1).build().unwrap();
        for (number, batch) in loader.iter().enumerate() {
            let batch = batch.unwrap();
            for (name, value) in dataset.sample(number as u64).unwrap() {
                let field = batch.field(&name).unwrap();
                let whole = value.shape().len() < field.shape().len();
                let shape = if whole { &field.shape()[1..] } else { field.shape() };
                // A group that batches cut short is looked up whole: its first rows are those of the batch.
                let (own, expected) = (elements(&value), elements(field));
                prop_assert!(own.starts_with(&expected) || dataset.sizes().is_none(), "{name}");
                prop_assert!(value.shape()[1..] == shape[1..] || shape.is_empty());
                if dataset.sizes().is_none() {
                    prop_assert_eq!(own, expected);
                }
            }
        }
        let samples = dataset.len() as u64;
        let words = [format!("sample {samples}"), format!("sample < {samples}")];
        refused(dataset.sample(samples), Kind::Range, &words.each_ref().map(String::as_str));
    }

    #[test]
    fn rows_hold_what_samples_are_taken_from(dataset in datasets(), a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
        let place = |share: f64| (share * (dataset.len() + 1) as f64) as u64;
        let (start, end) = (place(a).min(place(b)), place(a).max(place(b)));
        let rows = dataset.rows(start..end).unwrap();
        for ((_, rows), (_, most)) in rows.iter().zip(dataset.most_rows(end - start)) {
            prop_assert!(rows.len() <= most || start == end, "{rows:?} are more than {most}");
        }
        for sample in start..end {
            for (name, value) in dataset.sample(sample).unwrap() {
                // What is no array of its own counts along, and tokens and labels come from one array.
                let array = rows.iter().find(|(array, _)| *array == name || *array == "tokens");
                let Some((_, rows)) = array.filter(|_| name != "position_ids") else { continue };
                let zeros = name == "x" || name == "y";
                for row in named(&value) {
                    prop_assert!(rows.contains(&row) || (zeros && row == 0), "{name}: row {row} is not in {rows:?}");
                }
            }
        }
        prop_assert!(dataset.rows(end..dataset.len() as u64 + 1).is_err());
    }
}

#[test]
fn most_rows_of_windows_are_those_of_some() {
    for lengths in [vec![5, 9, 3, 12], vec![30], vec![4, 4, 4], vec![1, 20, 1]] {
        let offsets: Vec<usize> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            }))
            .collect();
        for (input_len, stride) in [(3, 1), (2, 3), (5, 2), (1, 2)] {
            let sampled_by = if stride == 2 { SampledBy::Series } else { SampledBy::Windows };
            let shape = WindowShape::new(input_len).stride(stride).sampled_by(sampled_by).short(Short::Pad);
            let dataset = WindowDataset::new(&offsets, shape).unwrap();
            let dataset = Dataset::from(dataset.input("x", numbers(offsets[lengths.len()])).unwrap());
            let samples = dataset.len() as u64;
            for count in 1..=samples {
                let rows = |start| dataset.rows(start..start + count).unwrap()[0].1.len();
                let most = (0..=samples - count).map(rows).max().unwrap();
                assert_eq!(dataset.most_rows(count)[0].1, most, "{lengths:?} {input_len} {stride} {count}");
            }
        }
    }
}

#[test]
fn a_sample_of_data_elsewhere_is_refused() {
    let x = Tensor::elsewhere(batchloom::DType::F32, &[4, 2]).unwrap();
    let dataset = Dataset::from(TensorDataset::new([("x", x)]).unwrap());
    refused(dataset.sample(0), Kind::Data, &["field x is in memory that this process cannot read"]);
    assert_eq!(dataset.rows(1..3).unwrap(), [("x", 1..3)]);
}
