//! Sequences of any length from Rust: the same texts padded to a token budget and packed without padding.
//!
//! `cargo run --example sequences`

use batchloom::batching::{Packing, Rule};
use batchloom::dataset::Sequences;
use batchloom::{Loader, Result, SequenceDataset, Tensor};

const TEXT: &str = include_str!("sequences.rs");

/// The lines of this file as bytes: values, and the end of each line.
fn dataset() -> Result<SequenceDataset> {
    let mut offsets = vec![0_i64];
    let bytes: Vec<u8> = TEXT
        .lines()
        .filter(|line| !line.is_empty())
        .flat_map(|line| {
            offsets.push(offsets.last().copied().unwrap_or(0) + line.len() as i64);
            line.bytes()
        })
        .collect();
    let len = bytes.len();
    let lines = Sequences::new("text", Tensor::from_vec(bytes, &[len])?, &offsets)?;
    SequenceDataset::new().variable("text", lines).build()
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<()> {
    // A rule reads from text, as on the command line.
    let padded: Rule = "token-budget:1024,multiple_of=8".parse()?;
    for rule in [padded, Packing::new(1024)?.into()] {
        let loader = Loader::builder(dataset()?).rule(rule.clone()).shuffle(true).seed(7).build()?;
        let mut shapes = Vec::new();
        for batch in &loader {
            shapes.push(batch?.field("text").map(Tensor::shape).unwrap_or_default().to_vec());
        }
        let stats = loader.upcoming().stats();
        println!("{rule}: {:.1}% padding, batches of {shapes:?}", stats.padding * 100.0);
    }
    Ok(())
}
