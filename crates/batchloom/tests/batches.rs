//! Batches hold every field of the samples that the plan names, at the same places (L9), for every layout that a
//! source can have, as many as `len` says (L10), compact and aligned.

use batchloom::loader::Batch;
use batchloom::{DType, Kind, Loader, Tensor, TensorDataset};
use bytes::Bytes;
use proptest::prelude::*;

use crate::errors::refused;

/// A field whose rows can be computed: byte `k` of row `r` is a function of both.
#[derive(Debug, Clone)]
struct Source {
    dtype: DType,
    rows: usize,
    inner: Vec<usize>,
    /// The dimensions that are stored backwards, and how many times wider than needed each stride is.
    flipped: Vec<bool>,
    spread: Vec<usize>,
    /// True where the first dimension varies fastest in memory.
    transposed: bool,
}

impl Source {
    fn shape(&self) -> Vec<usize> {
        [&[self.rows], self.inner.as_slice()].concat()
    }

    /// The array, in memory that holds noise between its elements.
    fn tensor(&self) -> Tensor {
        let (shape, size) = (self.shape(), self.dtype.size());
        let mut dimensions: Vec<usize> = (0..shape.len()).rev().collect();
        if self.transposed {
            dimensions.reverse();
        }
        let (mut strides, mut step) = (vec![0_isize; shape.len()], size);
        for dimension in dimensions {
            step *= self.spread[dimension];
            strides[dimension] = step.cast_signed();
            step *= shape[dimension].max(1);
        }
        let mut offset = 0;
        for (dimension, stride) in strides.iter_mut().enumerate() {
            if self.flipped[dimension] && shape[dimension] > 0 {
                offset += (shape[dimension] - 1) * stride.unsigned_abs();
                *stride = -*stride;
            }
        }
        let mut memory = vec![0xEE_u8; step + 8];
        for (number, element) in elements(&shape).enumerate() {
            let at = element
                .iter()
                .zip(&strides)
                .fold(offset, |at, (index, stride)| at.wrapping_add_signed(stride * index.cast_signed()));
            memory[at..at + size].copy_from_slice(&value(number, size));
        }
        Tensor::new(Bytes::from(memory), self.dtype, &shape, &strides, offset).unwrap()
    }

    /// The bytes of one row in row-major order, by definition.
    fn row(&self, row: u64) -> Vec<u8> {
        let width: usize = self.inner.iter().product();
        let first = usize::try_from(row).unwrap() * width;
        (first..first + width).flat_map(|number| value(number, self.dtype.size())).collect()
    }
}

/// The bytes of element `number`.
fn value(number: usize, size: usize) -> Vec<u8> {
    (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().into_iter().cycle().take(size).collect()
}

/// All indices of an array in row-major order.
fn elements(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..shape.iter().product()).map(|number: usize| {
        let mut left = number;
        let mut index: Vec<usize> = shape.iter().rev().map(|&len| (left % len, left /= len).0).collect();
        index.reverse();
        index
    })
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let field = (
        prop::sample::select(DType::ALL.to_vec()),
        prop::collection::vec(0_usize..5, 0..3),
        prop::collection::vec((any::<bool>(), 1_usize..3), 3),
        any::<bool>(),
    );
    (1_usize..80, prop::collection::vec(field, 1..4)).prop_map(|(rows, fields)| {
        let source = |(dtype, inner, choices, transposed): (_, _, Vec<(bool, usize)>, _)| {
            let (flipped, spread) = choices.into_iter().unzip();
            Source { dtype, rows, inner, flipped, spread, transposed }
        };
        fields.into_iter().map(source).collect()
    })
}

/// The bytes of a field of a batch, which must be compact and aligned.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let size = tensor.dtype().size();
    assert!(tensor.layout().is_compact(size), "{:?}", tensor.layout());
    let start = tensor.layout().offset();
    let bytes = &tensor.bytes()[start..start + tensor.layout().elements() * size];
    assert!(bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(64), "not aligned");
    bytes.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    // law: L9, L10
    #[test]
    fn hold_the_samples_of_the_plan(
        sources in sources(),
        batch_size in 1_u64..20,
        block_bytes in prop_oneof![Just(1), Just(300), Just(5000), Just(1 << 20)],
        shuffle: bool,
        drop_last: bool,
        seed: u64,
        world_size in 1_u32..4,
    ) {
        let names = ["first", "second", "third"];
        let fields = names.iter().zip(&sources).map(|(name, source)| (*name, source.tensor()));
        let dataset = TensorDataset::new(fields).unwrap();
        for rank in 0..world_size {
            let loader = Loader::builder(dataset.clone())
                .batch_size(batch_size)
                .shuffle(shuffle)
                .drop_last(drop_last)
                .seed(seed)
                .rank(rank, world_size)
                .num_threads(2)
                .block_bytes(block_bytes)
                .build();
            let Ok(loader) = loader else { continue };
            for epoch in 0..2 {
                let plan = loader.plan(epoch);
                let expected = loader.len();
                let batches: Vec<Batch> = loader.iter().map(Result::unwrap).collect();
                prop_assert_eq!(batches.len() as u64, expected);
                for (step, batch) in (0..).zip(&batches) {
                    let samples = plan.indices(step, rank).unwrap();
                    prop_assert_eq!(batch.len(), samples.len());
                    for (field, source) in batch.fields().iter().zip(&sources) {
                        let rows: Vec<u8> = samples.iter().flat_map(|sample| source.row(*sample)).collect();
                        prop_assert_eq!(field.dtype(), source.dtype);
                        prop_assert_eq!(&field.shape()[1..], source.inner.as_slice());
                        prop_assert_eq!(bytes_of(field), rows);
                    }
                }
            }
        }
    }

    /// Batches larger than a piece and than a block, of widths that are no power of two.
    #[test]
    fn large_batches_and_odd_widths(width in 1_usize..700, batch_size in 1_u64..1500, seed: u64) {
        let rows = 1500;
        let values: Vec<u32> = (0..rows * width as u32).collect();
        let x = Tensor::from_vec(values, &[rows as usize, width]).unwrap();
        let loader = Loader::builder(TensorDataset::new([("x", x)]).unwrap());
        let loader = loader.batch_size(batch_size).shuffle(true).seed(seed).num_threads(2).block_bytes(1 << 18).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in (0..).zip(&loader) {
            let batch = batch.unwrap();
            let x = batch.field("x").unwrap().as_slice::<u32>().unwrap();
            for (row, sample) in x.chunks(width).zip(plan.indices(step, 0).unwrap()) {
                let first = u32::try_from(sample).unwrap() * width as u32;
                prop_assert!(row.iter().copied().eq(first..first + width as u32));
            }
        }
    }
}

/// Every width that has its own copy, by value.
#[test]
fn every_narrow_width() {
    for width in (1..=130).chain([255, 256, 511, 512, 513, 4095, 4096, 5000]) {
        let rows = 97;
        let values: Vec<u8> =
            (0..rows * width).map(|number| (number / width * 7 + number % width) as u8).collect();
        let x = Tensor::from_vec(values, &[rows, width]).unwrap();
        let loader = Loader::builder(TensorDataset::new([("x", x)]).unwrap());
        let loader = loader.batch_size(10).shuffle(true).num_threads(1).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in (0..).zip(&loader) {
            let batch = batch.unwrap();
            let x = batch.field("x").unwrap().as_slice::<u8>().unwrap();
            for (row, sample) in x.chunks(width).zip(plan.indices(step, 0).unwrap()) {
                let expected = (0..width).map(|column| (sample as usize * 7 + column) as u8);
                assert!(row.iter().copied().eq(expected), "width {width}");
            }
        }
    }
}

#[test]
fn datasets_without_rows_or_width() {
    let empty = Tensor::from_vec(Vec::<f32>::new(), &[0, 3]).unwrap();
    let dataset = TensorDataset::new([("x", empty)]).unwrap();
    assert!(dataset.is_empty());
    refused(Loader::builder(dataset).build(), Kind::Data, &["the dataset has no samples"]);
    let flat = Tensor::from_vec(Vec::<f32>::new(), &[5, 0]).unwrap();
    let loader = Loader::builder(TensorDataset::new([("x", flat)]).unwrap()).batch_size(2).build().unwrap();
    let shapes: Vec<_> = loader.iter().map(|batch| batch.unwrap().fields()[0].shape().to_vec()).collect();
    assert_eq!(shapes, [[2, 0], [2, 0], [1, 0]]);
}

#[test]
fn bad_datasets_are_named() {
    let values = |rows| Tensor::from_vec(vec![0_u8; rows], &[rows]).unwrap();
    let scalar = Tensor::from_vec(vec![0_u8], &[]).unwrap();
    let dataset = |fields: Vec<(&str, Tensor)>| TensorDataset::new(fields);
    refused(dataset(vec![]), Kind::Data, &["the dataset has no fields"]);
    refused(dataset(vec![("x", scalar)]), Kind::Data, &["field x is a scalar"]);
    refused(dataset(vec![("x", values(1)), ("x", values(1))]), Kind::Data, &["field `x` is given twice"]);
    let different = ["field y has 3 rows", "field x has 4"];
    refused(dataset(vec![("x", values(4)), ("y", values(3))]), Kind::Data, &different);
    let loader = || Loader::builder(TensorDataset::new([("x", values(4))]).unwrap());
    refused(loader().num_threads(0).build(), Kind::Argument, &["num_threads is 0"]);
    refused(loader().rank(2, 2).build(), Kind::Argument, &["rank is 2", "world of 2"]);
    let wide = Tensor::new(Bytes::from(vec![0; 8]), DType::U64, &[1 << 40, 1 << 40], &[0, 0], 0).unwrap();
    let wide = Loader::builder(TensorDataset::new([("x", wide)]).unwrap()).batch_size(1 << 20);
    let words = ["a batch of 1048576 samples", "8796093022208 bytes"];
    refused(wide.build(), Kind::Argument, &words);
}

#[test]
fn a_layout_outside_its_memory_is_refused() {
    let tensor = |shape: &[usize], strides: &[isize], offset| {
        Tensor::new(Bytes::from(vec![0; 100]), DType::F32, shape, strides, offset)
    };
    assert!(tensor(&[5, 5], &[20, 4], 0).is_ok());
    assert!(tensor(&[5, 5], &[-20, 4], 80).is_ok());
    for (shape, strides, offset) in [
        (&[26][..], &[4][..], 0),
        (&[5, 5], &[20, 4], 4),
        (&[5, 5], &[-20, 4], 76),
        (&[2, 2], &[4], 0),
        (&[usize::MAX, 2], &[4, 4], 0),
        (&[2], &[isize::MIN], 0),
        (&[1], &[4], usize::MAX),
    ] {
        let words =
            [format!("shape {shape:?}"), format!("byte strides {strides:?}"), format!("offset {offset}")];
        refused(tensor(shape, strides, offset), Kind::Data, &words.each_ref().map(String::as_str));
    }
}
