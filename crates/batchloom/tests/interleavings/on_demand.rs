//! Samples on demand: batches in their place, of one layout and of several; errors in the place of their batch, with
//! nothing behind them that waits; nothing read after the end.

use std::sync::Arc;
use std::time::Duration;

use super::super::{LoaderBuilder, Polled};
use super::{ROW, Reached, explore, planned, samples_of, settings, with};
use crate::batching::LengthBuckets;
use crate::dataset::{MapDataset, OnError, Sample, Source, SourceError};
use crate::error::ReadError;
use crate::{Loader, Tensor};

/// Rows of 8 values that are all the number of the sample, one of which may fail; or as many of these rows as its size
/// says, so that a batch is laid out once its samples are read.
#[derive(Clone, Default)]
struct Rows {
    samples: u64,
    fails: Option<u64>,
    are_sequences: bool,
    /// The number of samples that were read, if that is to be known.
    read: Option<Arc<Reached>>,
}

impl Source for Rows {
    fn len(&self) -> u64 {
        self.samples
    }

    fn size(&self, _: u64) -> Option<u32> {
        self.are_sequences.then_some(1)
    }

    fn read(&self, sample: u64, _: &mut rand::rngs::ChaCha8Rng) -> Result<Sample, SourceError> {
        // The sample takes time, in which others go on.
        shuttle::thread::yield_now();
        self.read.iter().for_each(|read| read.add());
        if self.fails == Some(sample) {
            return Err(format!("no sample {sample}").into());
        }
        let shape = if self.are_sequences { vec![1, ROW] } else { vec![ROW] };
        Ok(Sample::new([("x", Tensor::from_vec(vec![sample; ROW], &shape)?)]))
    }
}

fn builder(rows: Rows, on_error: OnError) -> LoaderBuilder {
    let are_sequences = rows.are_sequences;
    let loader = Loader::builder(MapDataset::new(rows).on_error(on_error).build().unwrap()).shuffle(true);
    if are_sequences { loader.rule(LengthBuckets::new(2).unwrap()) } else { loader.batch_size(2) }
}

/// The settings, for samples of one layout and for others.
fn cases() -> impl Iterator<Item = ((usize, Option<usize>), bool)> {
    settings(1..4).flat_map(|setting| [false, true].map(|are_sequences| (setting, are_sequences)))
}

/// All batches arrive in the order of the plan.
#[test]
fn every_batch_arrives_in_its_place() {
    explore(cases(), |(setting, are_sequences)| {
        let rows = Rows { samples: 8, are_sequences, ..Rows::default() };
        let loader = with(setting, builder(rows, OnError::Raise)).build().unwrap();
        for epoch in 0..2 {
            let blocks: Vec<_> = loader.blocks().map(|block| samples_of(&block.unwrap())).collect();
            assert_eq!(blocks, planned(&loader, epoch));
        }
    });
}

/// As many batches as may wait are read though their consumer looked just once and is busy elsewhere.
#[test]
fn batches_are_read_without_their_consumer() {
    explore(cases(), |((threads, prefetch), are_sequences)| {
        let read = Arc::new(Reached::default());
        let rows = Rows { samples: 10, are_sequences, read: Some(Arc::clone(&read)), ..Rows::default() };
        let loader = with((threads, prefetch), builder(rows, OnError::Raise)).build().unwrap();
        let mut blocks = loader.blocks();
        assert!(matches!(blocks.poll(Duration::ZERO).unwrap(), Polled::Block(_) | Polled::Pending));
        // Of two samples each, beside the batch that is asked for.
        read.wait(2 * (prefetch.unwrap_or(2) + 1));
    });
}

/// An error comes in the place of its batch, after all batches before it, and again if it is asked for again; the
/// iteration then ends as others do, and the next one is whole up to its own error.
#[test]
fn errors_come_in_their_place() {
    explore(cases(), |(setting, are_sequences)| {
        for fails in [0, 5] {
            let rows = Rows { samples: 8, fails: Some(fails), are_sequences, ..Rows::default() };
            let loader = with(setting, builder(rows, OnError::Raise)).build().unwrap();
            for epoch in 0..2 {
                loader.set_epoch(epoch);
                let mut blocks = loader.blocks();
                for expected in planned(&loader, epoch) {
                    match blocks.next().unwrap() {
                        Ok(block) => assert_eq!(samples_of(&block), expected),
                        Err(error) if matches!(error.reading(), Some(ReadError::Failed { .. })) => {
                            assert_eq!(error.sample(), Some(fails));
                            assert!(expected.contains(&fails));
                            assert!(blocks.next().unwrap().is_err());
                            break;
                        }
                        Err(error) => unreachable!("{error}"),
                    }
                }
            }
        }
    });
}

/// Samples that are left out hold up no batch, a first one either.
#[test]
fn samples_that_are_left_out_hold_up_nothing() {
    explore(cases(), |(setting, are_sequences)| {
        let rows = Rows { samples: 6, fails: Some(3), are_sequences, ..Rows::default() };
        let loader = with(setting, builder(rows, OnError::Skip)).build().unwrap();
        let (plan, mut skipped) = (planned(&loader, 0), 0);
        let blocks: Vec<_> = loader.blocks().map(|block| block.unwrap()).collect();
        assert_eq!(blocks.len(), plan.len());
        for (block, expected) in blocks.iter().zip(plan) {
            skipped += block.skipped().len();
            let expected: Vec<_> =
                expected.iter().map(|&sample| if sample == 3 { 0 } else { sample }).collect();
            assert_eq!(samples_of(block), expected);
        }
        assert_eq!(skipped, 1);
    });
}

/// An iteration may be abandoned while samples are read.
#[test]
fn iterations_end_while_samples_are_read() {
    explore(cases(), |(setting, are_sequences)| {
        let rows = Rows { samples: 8, are_sequences, ..Rows::default() };
        let loader = with(setting, builder(rows, OnError::Raise)).build().unwrap();
        let mut blocks = loader.blocks();
        for _ in 0..2 {
            let polled = blocks.poll(Duration::ZERO).unwrap();
            assert!(matches!(polled, Polled::Block(_) | Polled::Pending));
        }
        drop(loader);
        drop(blocks);
    });
}
