//! Batches as tensors of candle: a linear model by gradient descent, and the price of the one copy that candle makes.
//!
//! `cargo run --release --manifest-path examples/candle/Cargo.toml`
//!
//! candle owns the memory of its tensors, so the values of a batch are copied once. Everything else is the same: order,
//! resume, ranks.

use std::error::Error;
use std::time::{Duration, Instant};

use batchloom::loader::Batch;
use batchloom::{Loader, TensorDataset};
use candle_core::{Device, Tensor, Var};

const ROWS: usize = 100_000;
const COLUMNS: usize = 256;

/// Rows, and a target that is the sum of the first ten columns.
fn dataset() -> batchloom::Result<TensorDataset> {
    let value = |place: usize| ((place / COLUMNS * 31 + place % COLUMNS * 17) % 101) as f32 / 50.0 - 1.0;
    let x: Vec<f32> = (0..ROWS * COLUMNS).map(value).collect();
    let y: Vec<f32> = x.chunks(COLUMNS).map(|row| row[..10].iter().sum()).collect();
    TensorDataset::new([("x", batchloom::Tensor::from_vec(x, &[ROWS, COLUMNS])?), ("y", y.into())])
}

/// Copies a field of a batch into a tensor of candle.
fn tensor(batch: &Batch, name: &str) -> Result<Tensor, Box<dyn Error>> {
    let field = batch.field(name).ok_or("no such field")?;
    Ok(Tensor::from_slice(field.try_as_slice::<f32>()?, field.shape(), &Device::Cpu)?)
}

/// The time of an epoch in which `body` sees each batch.
fn epoch(
    loader: &Loader,
    mut body: impl FnMut(&Batch) -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    for batch in loader {
        body(&batch?)?;
    }
    Ok(begun.elapsed())
}

fn main() -> Result<(), Box<dyn Error>> {
    let loader = Loader::builder(dataset()?).batch_size(64).shuffle(true).seed(7).build()?;

    let weights = Var::zeros(COLUMNS, candle_core::DType::F32, &Device::Cpu)?;
    for number in 0..3 {
        let mut loss = 0.0;
        epoch(&loader, |batch| {
            let (x, y) = (tensor(batch, "x")?, tensor(batch, "y")?);
            let wrong = (x.matmul(&weights.unsqueeze(1)?)?.squeeze(1)? - y)?.sqr()?;
            let gradients = (wrong.mean(0)? * 0.5)?.backward()?;
            let gradient = gradients.get(&weights).ok_or("no gradient")?;
            weights.set(&(weights.as_tensor() - gradient * 0.02)?)?;
            loss += wrong.sum_all()?.to_scalar::<f32>()?;
            Ok(())
        })?;
        println!("epoch {number}: mean square error {:.4}", loss / ROWS as f32);
    }

    // The medians of five epochs in turn: batches alone, and copied.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        times[0].push(epoch(&loader, |_| Ok(()))?);
        times[1].push(epoch(&loader, |batch| tensor(batch, "x").map(drop))?);
    }
    for (what, mut times) in ["batches alone", "as tensors of candle"].into_iter().zip(times) {
        times.sort();
        println!("an epoch of {ROWS} rows of {} bytes, {what}: {:.1?}", COLUMNS * 4, times[2]);
    }
    Ok(())
}
