//! A stream of tokens from Rust: documents in a random order, cut into pieces, on two ranks, resumed on one.
//!
//! `cargo run --example tokens`

use batchloom::{Loader, Result, Tensor, TokenDataset};

fn loader(rank: u32, world_size: u32) -> Result<Loader> {
    let tokens = Tensor::from_vec((0..50_000_u16).collect(), &[50_000])?;
    let documents: Vec<i64> = (0..=100).map(|document| document * 500).collect();
    let dataset = TokenDataset::new(tokens, 256)?.documents(&Tensor::from_vec(documents, &[101])?)?;
    let loader = Loader::builder(dataset).batch_size(8).shuffle(true).shuffle_documents(true);
    loader.rank(rank, world_size).build()
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<()> {
    let two = [loader(0, 2)?, loader(1, 2)?];
    for loader in &two {
        for batch in loader.iter().take(3) {
            let batch = batch?;
            println!("{:?} of shape {:?}", batch.names(), batch.fields()[0].shape());
        }
    }
    let one = loader(0, 1)?;
    one.load(&two[0].state())?;
    println!("{} steps taken by two ranks, {} left for one", two[0].state().batches / 2, one.remaining());
    Ok(())
}
