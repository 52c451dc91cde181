//! Batches as arrays of the crate `ndarray`: a linear model by gradient descent on views, and the price of a copy instead.
//!
//! `cargo run --release --features ndarray --example ndarray`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::{Duration, Instant};

use batchloom::loader::Batch;
use batchloom::{Loader, Tensor, TensorDataset};
use ndarray::{Array1, Array2, Ix1, Ix2};

const ROWS: usize = 100_000;
const COLUMNS: usize = 256;

/// Rows, and a target that is the sum of the first ten columns.
fn dataset() -> Result<TensorDataset, Box<dyn Error>> {
    let x = Array2::from_shape_fn((ROWS, COLUMNS), |(row, column)| {
        ((row * 31 + column * 17) % 101) as f32 / 50.0 - 1.0
    });
    let y: Array1<f32> = x.rows().into_iter().map(|row| row.iter().take(10).sum()).collect();
    Ok(TensorDataset::new([("x", Tensor::try_from(x)?), ("y", Tensor::try_from(y)?)])?)
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

    let mut weights = Array1::<f32>::zeros(COLUMNS);
    for number in 0..3 {
        let mut loss = 0.0;
        epoch(&loader, |batch| {
            let x = batch.field("x").ok_or("no field x")?.as_array::<f32, Ix2>()?;
            let y = batch.field("y").ok_or("no field y")?.as_array::<f32, Ix1>()?;
            let wrong = x.dot(&weights) - y;
            weights.scaled_add(-0.02 / y.len() as f32, &x.t().dot(&wrong));
            loss += wrong.pow2().sum();
            Ok(())
        })?;
        println!("epoch {number}: mean square error {:.4}", loss / ROWS as f32);
    }

    // The medians of five epochs in turn: batches alone, as views, and as copies.
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut seen = 0;
    for _ in 0..5 {
        times[0].push(epoch(&loader, |_| Ok(()))?);
        times[1].push(epoch(&loader, |batch| {
            seen += batch.field("x").ok_or("no field x")?.as_array::<f32, Ix2>()?.len();
            Ok(())
        })?);
        times[2].push(epoch(&loader, |batch| {
            seen += batch.field("x").ok_or("no field x")?.as_array::<f32, Ix2>()?.to_owned().len();
            Ok(())
        })?);
    }
    for (what, mut times) in ["batches alone", "as views", "copied"].into_iter().zip(times) {
        times.sort();
        println!("an epoch of {ROWS} rows of {} bytes, {what}: {:.1?}", COLUMNS * 4, times[2]);
    }
    assert_eq!(seen, 10 * ROWS * COLUMNS);
    Ok(())
}
