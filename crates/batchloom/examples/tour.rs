//! A tour of the engine: rows, sequences, windows, groups, tokens, a resume on other ranks, and a plan for four.
//!
//! `cargo run --release --example tour`
#![expect(clippy::print_stdout, reason = "an example shows something")]

use batchloom::batching::{Sizes, TokenBudget};
use batchloom::dataset::{GroupLayout, Groups, WindowShape};
use batchloom::{
    GroupDataset, Loader, Plan, Result, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset,
};

/// Rows of two fields, each once an epoch.
fn rows() -> Result<()> {
    let x = Tensor::from_vec((0..10_000).map(|number| number as f32).collect(), &[1_000, 10])?;
    let dataset = TensorDataset::new([("x", x), ("y", Tensor::from((0..1_000_i64).collect::<Vec<_>>()))])?;
    let loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(7).build()?;
    let mut sum = 0;
    for batch in &loader {
        sum += batch?.view::<i64>("y")?.iter().sum::<i64>();
    }
    println!("rows: {} batches, labels add up to {sum}", loader.len());
    Ok(())
}

/// Texts of any length, with texts of about the same length in a batch.
fn sequences() -> Result<()> {
    let texts: Vec<Vec<i32>> = (0..1_000).map(|number| vec![0; number * 7 % 300 + 1]).collect();
    let dataset = SequenceDataset::new().slices("ids", &texts)?.build()?;
    let loader =
        Loader::builder(dataset).rule(TokenBudget::new(4_096)?).shuffle(true).pad_value("ids", -1).build()?;
    let stats = loader.upcoming().stats();
    println!("sequences: {} batches, {:.1} % padding", loader.len(), 100.0 * stats.padding);
    if let Some(batch) = loader.iter().next() {
        println!("  the first: {:?}", batch?);
    }
    Ok(())
}

/// Forecasts of 24 steps from 96, as views of the series.
fn windows() -> Result<()> {
    let series = Tensor::from((0..2_000).map(|step| (step as f32 / 24.0).sin()).collect::<Vec<_>>());
    let shape = WindowShape::new(96).horizon(24);
    let dataset = WindowDataset::new(&[0, 2_000], shape)?.input("x", series.clone())?.target("y", series)?;
    println!("windows: {}, of which 64 are {:?}", dataset.len(), dataset.view(0, 64));
    Ok(())
}

/// Queries with all of their documents in one batch.
fn groups() -> Result<()> {
    let queries: Vec<i64> =
        (0..200).zip((1..=5).cycle()).flat_map(|(query, size)| vec![query; size]).collect();
    let features = Tensor::from(queries.iter().map(|&query| query as f32).collect::<Vec<_>>());
    let dataset = GroupDataset::new(Groups::of(&queries)?).rows("features", features)?;
    let dataset = dataset.layout(GroupLayout::Padded).build()?;
    let loader = Loader::builder(dataset).rule(TokenBudget::new(64)?).shuffle(true).build()?;
    println!("groups: {} documents in {} batches", queries.len(), loader.len());
    Ok(())
}

/// Pieces of a token stream on two ranks, which one goes on with.
fn tokens_and_resume() -> Result<()> {
    let dataset = TokenDataset::new(Tensor::from((0..50_000_u16).collect::<Vec<_>>()), 256)?;
    let loader = |rank, world_size| {
        Loader::builder(dataset.clone()).batch_size(8).shuffle(true).rank(rank, world_size).build()
    };
    let (first, second, alone) = (loader(0, 2)?, loader(1, 2)?, loader(0, 1)?);
    let taken = first.iter().take(3).count() + second.iter().take(3).count();
    alone.load(&first.state())?;
    println!("tokens: {taken} batches taken by two ranks, {} left for one", alone.remaining());
    Ok(())
}

/// Steps of four ranks, known without data.
fn plan() -> Result<()> {
    let lengths = Sizes::new((0..10_000).map(|number| number * 7_919 % 512 + 1).collect::<Vec<u32>>());
    let plan = Plan::builder(10_000)
        .sizes(lengths)
        .rule(TokenBudget::new(8_192)?)
        .shuffle(true)
        .world_size(4)
        .build()?;
    println!(
        "plan: {} steps for each of four ranks; sample 12 comes at {:?}",
        plan.steps(),
        plan.places(12)?
    );
    for rank in 0..4 {
        println!("  rank {rank} begins with {:?}", &plan.indices(0, rank)?[..5]);
    }
    Ok(())
}

fn main() -> Result<()> {
    rows()?;
    sequences()?;
    windows()?;
    groups()?;
    tokens_and_resume()?;
    plan()
}
