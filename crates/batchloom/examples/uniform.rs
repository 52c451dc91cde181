//! Uniform samples from Rust: a loader over two fields, its plan, and a resume in mid-epoch on another number of ranks.
//!
//! `cargo run --release --example uniform`

use std::time::Instant;

use batchloom::{Loader, Result, Tensor, TensorDataset};

const ROWS: usize = 200_000;
const COLUMNS: usize = 64;

fn dataset() -> Result<TensorDataset> {
    let x = Tensor::from_vec((0..ROWS * COLUMNS).map(|number| number as f32).collect(), &[ROWS, COLUMNS])?;
    let y = Tensor::from_vec((0..ROWS as u64).collect(), &[ROWS])?;
    TensorDataset::new([("x", x), ("y", y)])
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<()> {
    let loader = Loader::builder(dataset()?).batch_size(64).shuffle(true).seed(7).build()?;
    let plan = loader.upcoming();
    println!("{} steps, fingerprint {}", plan.steps(), plan.fingerprint());
    println!("sample 12345 comes at {:?}", plan.places(12_345)?);

    for epoch in 0..3 {
        let (begun, mut sum) = (Instant::now(), 0);
        for batch in &loader {
            let batch = batch?;
            sum += batch.field("y").and_then(|y| y.as_slice::<u64>()).into_iter().flatten().sum::<u64>();
        }
        assert_eq!(sum, (ROWS as u64 - 1) * ROWS as u64 / 2, "every sample once");
        println!("epoch {epoch}: {ROWS} rows of {} bytes in {:.1?}", COLUMNS * 4, begun.elapsed());
    }

    // Stop in mid-epoch, and let three ranks share what one left.
    let taken = loader.iter().take(1000).count() as u64;
    let state = loader.state();
    println!("stopped after {taken} batches: {state:?}");
    let mut left = 0;
    for rank in 0..3 {
        let loader =
            Loader::builder(dataset()?).batch_size(64).shuffle(true).seed(7).rank(rank, 3).build()?;
        loader.load(&state)?;
        left += loader.remaining();
        println!("rank {rank} of 3 goes on with {} batches", loader.remaining());
    }
    println!("{} batches in all, {} of them repeated", taken + left, taken + left - plan.steps());
    Ok(())
}
