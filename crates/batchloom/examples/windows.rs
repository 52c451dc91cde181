//! Windows of a time series from Rust: at random, gathered; in order, as views that copy nothing.
//!
//! `cargo run --example windows`

use batchloom::dataset::WindowShape;
use batchloom::{Loader, Result, Tensor, WindowDataset};

const STEPS: usize = 2000;

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<()> {
    let series: Vec<f32> = (0..STEPS).map(|step| (step as f32 / 24.0).sin()).collect();
    let series = Tensor::from_vec(series, &[STEPS, 1])?;
    let shape = WindowShape::new(96).horizon(24);
    let dataset = WindowDataset::new(&[0, STEPS], shape)?.input("x", series.clone())?.target("y", series)?;
    println!("{} windows of a series of {STEPS} steps", dataset.len());

    // The forecast that repeats the last day, on every window once.
    let loader = Loader::builder(dataset.clone()).batch_size(64).shuffle(true).build()?;
    let (mut error, mut count) = (0.0, 0);
    for batch in &loader {
        let batch = batch?;
        let values = |name| batch.field(name).and_then(|field| field.as_slice::<f32>()).unwrap_or_default();
        for (x, y) in values("x").chunks(96).zip(values("y").chunks(24)) {
            error += x[72..].iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f32>();
            count += y.len();
        }
    }
    println!("mean squared error of repeating a day: {:.4}", error / count as f32);

    let views = dataset.view(0, 64).unwrap_or_default();
    println!("64 neighbours as a view: shape {:?}, strides {:?}", views[0].shape(), views[0].strides());
    Ok(())
}
