//! Arrays in several chunks: batches are those of one array with the same rows, whatever chunks hold which rows.

use batchloom::batching::{FixedSize, LengthBuckets, Packing, Rule, TokenBudget};
use batchloom::dataset::{
    Dataset, GroupLayout, Groups, Sequences, Tail, TokenExtras, TokenMode, WindowShape,
};
use batchloom::{
    ChunkedTensor, GroupDataset, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset,
    WindowDataset,
};
use proptest::prelude::*;

use crate::errors::is;

/// An array of `rows` rows of `width` numbers in every second column of its memory, if `gaps`, and otherwise compact.
fn array(first: usize, rows: usize, width: usize, gaps: bool) -> Tensor {
    let step = if gaps { 2 } else { 1 };
    let columns = width * step;
    let value = |place: usize| ((first + place / columns) * 1000 + place % columns / step) as i32;
    let values = (0..rows * columns).map(value).collect();
    let whole = Tensor::from_vec(values, &[rows, width, step]).unwrap();
    whole.narrow(2, 0..1).unwrap()
}

/// The rows of [`array`] in chunks of these lengths, of which some have gaps.
fn chunked(lengths: &[usize], width: usize) -> ChunkedTensor {
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    let chunks = lengths.iter().zip(ends).enumerate();
    let chunks = chunks.map(|(k, (&length, end))| array(end - length, length, width, k % 3 == 1));
    ChunkedTensor::new("x", chunks).unwrap()
}

/// The same array with rows that are read from a file, where its memory begins after `before` bytes.
#[cfg(unix)]
fn in_file(array: &Tensor, before: usize) -> Tensor {
    static FILES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("batchloom-in-file-{}-{number}", std::process::id()));
    std::fs::write(&path, [&vec![0xA5; before], array.bytes().as_ref()].concat()).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap(); // it is there as long as it is open
    array.clone().with_file(file.into(), path, before as u64)
}

/// The same array, where some of its chunks are read from files.
#[cfg(unix)]
fn in_files(array: &ChunkedTensor, reads: &[bool]) -> ChunkedTensor {
    let chunks = array.chunks().zip(reads.iter().cycle()).enumerate();
    let chunks = chunks.map(|(k, (chunk, &reads))| if reads { in_file(chunk, 7 * k) } else { chunk.clone() });
    ChunkedTensor::new("x", chunks).unwrap()
}

/// Numbers from 0, in chunks of these lengths.
fn numbers(lengths: &[usize]) -> ChunkedTensor {
    let mut from = 0_u16;
    let chunks = lengths.iter().map(|&length| {
        let values: Vec<u16> = (from..from + length as u16).collect();
        from += length as u16;
        Tensor::from(values)
    });
    ChunkedTensor::new("tokens", chunks).unwrap()
}

/// The same kind of data over an array: in chunks, or whole.
fn dataset(kind: usize, rows: usize, x: ChunkedTensor, tokens: ChunkedTensor) -> Dataset {
    let groups = Groups::of(&(0..rows as i64).map(|row| row * 7 % 5).collect::<Vec<_>>()).unwrap();
    let offsets: Vec<i64> = (0..rows as i64).step_by(3).chain([rows as i64]).collect();
    let samples = offsets.len() - 1;
    match kind {
        0 => TensorDataset::new([("x", x), ("y", tokens)]).unwrap().into(),
        1 => {
            let fixed = tokens.slice(0..samples).unwrap();
            let dataset = SequenceDataset::new()
                .variable("x", Sequences::new("x", x, &offsets).unwrap())
                .variable("ids", Sequences::new("ids", tokens, &offsets).unwrap())
                .fixed("y", fixed);
            dataset.build().unwrap().into()
        }
        2 => {
            let builder = GroupDataset::new(groups).rows("x", x).unwrap().rows("y", tokens).unwrap();
            builder.layout(GroupLayout::Padded).build().unwrap().into()
        }
        3 => {
            let windows = WindowDataset::new(&[0, rows], WindowShape::new(4).horizon(2)).unwrap();
            windows.input("x", x.clone()).unwrap().target("y", x).unwrap().into()
        }
        _ => {
            let extras = TokenExtras::default().position_ids(true).segment_ids(true).resets(true);
            let documents = Tensor::from_vec(offsets.clone(), &[offsets.len()]).unwrap();
            let dataset = TokenDataset::new(tokens, 4).unwrap().documents(&documents).unwrap();
            let dataset = dataset.extras(extras);
            let dataset = if kind == 4 { dataset } else { dataset.separator(-1) };
            dataset.mode(if kind == 6 { TokenMode::Continuous } else { TokenMode::Chunk }).into()
        }
    }
}

fn rule(kind: usize, number: usize) -> Rule {
    match (kind, number) {
        (1 | 2, 1) => LengthBuckets::new(3).unwrap().into(),
        (1 | 2, 2) => TokenBudget::new(600).unwrap().into(),
        (1, 3) => Packing::new(17).unwrap().into(),
        _ => FixedSize::new(3).unwrap().into(),
    }
}

/// A field of a batch: its name, its shape and its bytes.
type Field = (String, Vec<usize>, Vec<u8>);

/// The fields of each batch.
fn epoch(dataset: Dataset, rule: Rule, shuffles: bool) -> Vec<Vec<Field>> {
    let builder = Loader::builder(dataset).rule(rule).drop_last(false).num_threads(2);
    let builder = if shuffles { builder.shuffle(true) } else { builder };
    let field = |(name, field): (&String, &Tensor)| {
        (name.clone(), field.shape().to_vec(), field.to_bytes().unwrap().to_vec())
    };
    let batches = builder.build().unwrap().iter().map(|batch| {
        let batch = batch.unwrap();
        batch.names().iter().zip(batch.fields()).map(field).collect()
    });
    batches.collect()
}

/// Bytes that a file does not have are an error of the batch, which names the file and the place.
#[cfg(unix)]
#[test]
fn a_file_that_ends_early_is_an_error() {
    let map = Tensor::from_vec(vec![1_i64; 16 * 32], &[16, 32]).unwrap();
    let path = std::env::temp_dir().join(format!("batchloom-short-{}", std::process::id()));
    std::fs::write(&path, [1_u8; 12 * 256]).unwrap();
    let file = std::sync::Arc::new(std::fs::File::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let x = map.with_file(file, path.clone(), 0);
    let chunks = ChunkedTensor::new("x", [x.clone(), x.clone()]).unwrap();
    let offsets: Vec<i64> = (0..=16).collect();
    let lists = SequenceDataset::new().variable("x", Sequences::new("x", x.clone(), &offsets).unwrap());
    let tokens = TokenDataset::new(x.reshape(&[512]).unwrap(), 32).unwrap();
    let datasets: [Dataset; 4] = [
        TensorDataset::new([("x", x)]).unwrap().into(),
        TensorDataset::new([("x", chunks)]).unwrap().into(),
        lists.build().unwrap().into(),
        tokens.into(),
    ];
    for dataset in datasets {
        let loader = Loader::builder(dataset).rule(FixedSize::new(4).unwrap()).build().unwrap();
        assert!(loader.iter().take_while(Result::is_ok).count() < 4);
        let error = loader.iter().find_map(Result::err).unwrap();
        assert!(is(&error, Kind::Data, &[&path.display().to_string(), "cannot be read"]), "{error}");
    }
}

proptest! {
    /// L2 and L3 for arrays in chunks: no batch tells where a chunk ends.
    #[test]
    fn chunks_are_one_array(
        lengths in prop::collection::vec(0_usize..12, 1..30),
        other in prop::collection::vec(1_usize..9, 1..5),
        kind in 0_usize..7,
        number in 0_usize..4,
        shuffles in any::<bool>(),
    ) {
        let rows: usize = lengths.iter().sum();
        prop_assume!(rows >= 14);
        // Fields of one dataset lie in other chunks.
        let tokens: Vec<usize> = other.iter().cycle().scan(rows, |left, &length| {
            let taken = length.min(*left);
            *left -= taken;
            (taken > 0).then_some(taken)
        }).collect();
        let found = dataset(kind, rows, chunked(&lengths, 3), numbers(&tokens));
        let expected = dataset(kind, rows, array(0, rows, 3, false).into(), numbers(&[rows]));
        let rule = rule(kind, number);
        let shuffles = shuffles && kind != 6;
        prop_assert_eq!(found.sample(0).unwrap().len(), expected.sample(0).unwrap().len());
        prop_assert_eq!(epoch(found, rule.clone(), shuffles), epoch(expected, rule, shuffles));
    }

    /// L3 for arrays in maps of files: no batch tells whether rows were read from a file or copied from its map.
    #[cfg(unix)]
    #[test]
    fn rows_of_files_are_rows_of_maps(
        lengths in prop::collection::vec(0_usize..12, 1..12),
        width in prop::sample::select(vec![1_usize, 3, 40, 64, 80]),
        reads in prop::collection::vec(any::<bool>(), 1..4),
        kind in 0_usize..7,
        number in 0_usize..4,
        shuffles in any::<bool>(),
    ) {
        let rows: usize = lengths.iter().sum();
        prop_assume!(rows >= 14);
        let (x, tokens) = (chunked(&lengths, width), numbers(&[rows / 2, rows - rows / 2]));
        let found = dataset(kind, rows, in_files(&x, &reads), in_files(&tokens, &reads));
        let shuffles = shuffles && kind != 6;
        let rule = rule(kind, number);
        prop_assert_eq!(epoch(found, rule.clone(), shuffles), epoch(dataset(kind, rows, x, tokens), rule, shuffles));
    }

    /// L3 for pieces of tokens that are read at once for inputs and labels, of one dataset and of two.
    #[cfg(unix)]
    #[test]
    fn pieces_of_files_are_pieces_of_maps(
        lengths in prop::collection::vec(0_usize..900, 1..5),
        seq_len in prop::sample::select(vec![20_usize, 127, 128, 129, 300]),
        reads in prop::collection::vec(any::<bool>(), 1..4),
        (has_documents, has_separator, joins) in any::<(bool, bool, bool)>(),
        (number, batch, shuffles) in (0_usize..64, 1_u64..6, any::<bool>()),
        tail in prop::sample::select(vec![Tail::Drop, Tail::Pad, Tail::Short]),
    ) {
        let rows: usize = lengths.iter().sum();
        prop_assume!(rows > 2 * seq_len);
        // A short last piece has no pieces after it.
        let joins = joins && tail != Tail::Short;
        let dataset = |tokens: ChunkedTensor| -> Dataset {
            let ends: Vec<i64> = (0..rows as i64).step_by(50 + number).chain([rows as i64]).collect();
            let documents = Tensor::from_vec(ends.clone(), &[ends.len()]).unwrap();
            let dataset = TokenDataset::new(tokens, seq_len).unwrap().tail(tail);
            let dataset = if has_documents { dataset.documents(&documents).unwrap() } else { dataset };
            if has_documents && has_separator { dataset.separator(-1) } else { dataset }.into()
        };
        let tokens = numbers(&lengths);
        let [found, expected] = [in_files(&tokens, &reads), tokens].map(|tokens| match joins {
            true => Dataset::concat([dataset(tokens.clone()), dataset(tokens)]).unwrap(),
            false => dataset(tokens),
        });
        let rule: Rule = FixedSize::new(batch).unwrap().into();
        prop_assert_eq!(epoch(found, rule.clone(), shuffles), epoch(expected, rule, shuffles));
    }

    /// Datasets put together give the batches of one dataset with their samples.
    #[test]
    fn concatenated_datasets_are_one_dataset(
        lengths in prop::collection::vec(1_usize..12, 1..20),
        kind in 0_usize..2,
        number in 0_usize..4,
        shuffles in any::<bool>(),
    ) {
        let rows: usize = lengths.iter().map(|length| 3 * length).sum();
        let ids = numbers(&[rows]);
        let mut first = 0;
        let parts = lengths.iter().map(|length| {
            let part = ids.slice(first..first + 3 * length).unwrap();
            let x = array(first, 3 * length, 3, false);
            first += 3 * length;
            dataset(kind, 3 * length, x.into(), part)
        });
        let found = Dataset::concat(parts).unwrap();
        let x = array(0, rows, 3, false);
        let expected = dataset(kind, rows, x.into(), ids);
        // The fixed field of sequences holds the first tokens of each part.
        let without_fixed = |mut batches: Vec<Vec<Field>>| {
            batches.iter_mut().for_each(|batch| batch.retain(|(name, ..)| kind == 0 || name != "y"));
            batches
        };
        let epoch = |dataset| without_fixed(epoch(dataset, rule(kind, number), shuffles));
        prop_assert_eq!(epoch(found), epoch(expected));
    }

    /// A slice of a chunked array holds the rows that a slice of the whole array holds.
    #[test]
    fn slices_of_chunks_are_slices_of_the_array(
        lengths in prop::collection::vec(0_usize..9, 1..20),
        (start, end) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let rows: usize = lengths.iter().sum();
        let (start, end) = (start.index(rows + 1), end.index(rows + 1));
        let (start, end) = (start.min(end), start.max(end));
        let part = numbers(&lengths).slice(start..end).unwrap();
        let values: Vec<u16> =
            part.chunks().flat_map(|chunk| chunk.as_slice::<u16>().unwrap().to_vec()).collect();
        prop_assert_eq!(values, (start as u16..end as u16).collect::<Vec<_>>());
        prop_assert_eq!(part.shape(), [end - start]);
        prop_assert!(numbers(&lengths).slice(start..rows + 1).is_none());
    }
}

#[test]
fn chunks_without_rows_are_an_array_without_rows() {
    let empty = || Tensor::from(Vec::<i64>::new());
    let values = ChunkedTensor::new("x", [empty(), empty()]).unwrap();
    assert_eq!((values.shape(), values.chunks().count()), (&[0][..], 1));
    let x = Sequences::new("x", values, &[0, 0, 0]).unwrap();
    for rule in [FixedSize::new(2).unwrap().into(), Rule::from(Packing::new(4).unwrap())] {
        let dataset = SequenceDataset::new().variable("x", x.clone()).build().unwrap();
        assert_eq!(epoch(dataset.into(), rule, false).len(), 1);
    }
}

#[test]
fn chunks_of_several_kinds_are_refused() {
    let floats = || Tensor::from(vec![1.0_f32]);
    let error = ChunkedTensor::new("x", [floats(), Tensor::from(vec![1_i64])]).unwrap_err();
    assert!(is(&error, Kind::Type, &["field x", "chunk 1", "int64", "float32"]), "{error}");
    let pairs = Tensor::from_vec(vec![1.0_f32, 2.0], &[1, 2]).unwrap();
    let error = ChunkedTensor::new("x", [floats(), floats(), pairs]).unwrap_err();
    assert!(is(&error, Kind::Data, &["field x", "chunk 2", "[2]", "[]"]), "{error}");
    let error = ChunkedTensor::new("x", []).unwrap_err();
    assert!(is(&error, Kind::Data, &["field x", "no chunk"]), "{error}");
    let scalar = Tensor::from_vec(vec![1.0_f32], &[]).unwrap();
    let error = ChunkedTensor::new("x", [scalar]).unwrap_err();
    assert!(is(&error, Kind::Data, &["field x", "scalar"]), "{error}");
    let elsewhere = Tensor::elsewhere(batchloom::DType::F32, &[3]).unwrap();
    let error = ChunkedTensor::new("x", [floats(), elsewhere]).unwrap_err();
    assert!(is(&error, Kind::Data, &["field x", "cannot read"]), "{error}");
}
