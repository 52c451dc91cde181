//! Groups from Rust: whole queries of a ranking set, however many rows each has.
//!
//! `cargo run --example groups`

use batchloom::batching::TokenBudget;
use batchloom::dataset::{GroupLayout, Groups};
use batchloom::{GroupDataset, Loader, Result, Tensor};

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<()> {
    // Query q has q % 5 + 1 documents, whose relevance is their number.
    let sizes = [1, 2, 3, 4, 5].into_iter().cycle();
    let queries: Vec<i64> = (0..200).zip(sizes).flat_map(|(query, size)| vec![query; size]).collect();
    let rows = queries.len();
    let relevance: Vec<f32> = queries.iter().map(|query| *query as f32).collect();
    let features = Tensor::from_vec(relevance.clone(), &[rows, 1])?;
    let dataset = GroupDataset::new(Groups::of(&queries)?)
        .rows("features", features)?
        .rows("relevance", Tensor::from_vec(relevance, &[rows])?)?
        .layout(GroupLayout::Padded)
        .build()?;

    // Batches of at most 64 documents with padding: queries are never divided.
    let loader = Loader::builder(dataset).rule(TokenBudget::new(64)?).shuffle(true).build()?;
    let mut queries = 0;
    for batch in &loader {
        let batch = batch?;
        let shape = batch.field("features").map(Tensor::shape).unwrap_or_default();
        queries += shape[0];
    }
    println!("{queries} queries of {rows} documents in {} batches", loader.len());
    Ok(())
}
