//! Arrays of any shape, strides and offset: those that are let in can be gathered, and lie in their memory.
#![no_main]

use arbitrary::Arbitrary;
use batchloom::dataset::{Groups, Sequences, WindowShape};
use batchloom::{
    DType, GroupDataset, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    bytes: u16,
    dtype: u8,
    shape: Vec<u16>,
    large: Option<u64>,
    strides: Vec<i16>,
    offset: u16,
    batch_size: u8,
    shuffle: bool,
    offsets: Vec<i64>,
    window: (u8, u8, u8),
}

fn epoch(builder: batchloom::loader::LoaderBuilder, input: &Input) {
    let builder = builder.batch_size(u64::from(input.batch_size)).shuffle(input.shuffle).num_threads(1);
    let Ok(loader) = builder.build() else { return };
    for batch in loader.iter().take(3).chain(loader.views().take(3)) {
        let Ok(batch) = batch else { return };
        batch
            .fields()
            .iter()
            .filter(|field| field.layout().elements() < 1 << 16)
            .for_each(|field| drop(field.to_bytes()));
    }
}

fuzz_target!(|input: Input| {
    let dtype = DType::ALL[usize::from(input.dtype) % DType::ALL.len()];
    let mut shape: Vec<usize> = input.shape.iter().take(4).map(|&len| usize::from(len)).collect();
    if let (Some(large), Some(last)) = (input.large, shape.last_mut()) {
        *last = large as usize;
    }
    let strides: Vec<isize> = input.strides.iter().take(4).map(|&stride| stride.into()).collect();
    let memory: Vec<u8> = (0..input.bytes).map(|byte| byte as u8).collect();
    let Ok(tensor) = Tensor::new(memory.into(), dtype, &shape, &strides, input.offset.into()) else { return };
    if tensor.shape().iter().skip(1).fold(1_usize, |row, &len| row.saturating_mul(len)) > 1 << 12 {
        return;
    }
    if let Ok(dataset) = TensorDataset::new([("x", tensor.clone())]) {
        epoch(Loader::builder(dataset), &input);
    }
    if let Ok(sequences) = Sequences::new("x", tensor.clone(), &input.offsets)
        && let Ok(dataset) = SequenceDataset::new().variable("x", sequences).build()
    {
        epoch(Loader::builder(dataset), &input);
    }
    let rows: Vec<usize> = input.offsets.iter().map(|&offset| offset as usize).collect();
    let (steps, horizon, stride) = input.window;
    let shape = WindowShape::new(steps.into()).horizon(horizon.into()).stride(stride.into());
    if let Ok(dataset) =
        WindowDataset::new(&rows, shape).and_then(|dataset| dataset.input("x", tensor.clone()))
    {
        epoch(Loader::builder(dataset), &input);
    }
    if let Ok(groups) = Groups::of(&input.offsets)
        && let Ok(dataset) =
            GroupDataset::new(groups).rows("x", tensor.clone()).and_then(|dataset| dataset.build())
    {
        epoch(Loader::builder(dataset), &input);
    }
    if let Ok(dataset) = TokenDataset::new(tensor, usize::from(steps)) {
        epoch(Loader::builder(dataset), &input);
    }
});
