//! Samples that are read a chunk at a time: batches of the same samples in memory, few chunks held, each read once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use batchloom::dataset::{
    ChunkField, ChunkSamples, ChunkSource, Dataset, MapDataset, ReadClock, Selection, SourceError,
};
use batchloom::order::Chunks;
use batchloom::{Kind, Loader, TensorDataset};
use proptest::prelude::*;

use crate::errors::is;

/// Chunks of numbers, which counts the chunks that are read; `broken` cannot be read.
#[derive(Debug, Clone)]
struct Numbers {
    chunks: Chunks,
    read: Arc<AtomicU64>,
    broken: Option<u64>,
}

impl Numbers {
    fn new(sizes: &[u64]) -> Self {
        Self { chunks: Chunks::new(sizes.iter().copied()), read: Arc::default(), broken: None }
    }

    fn dataset(&self, open: u64) -> Dataset {
        MapDataset::in_chunks(self.chunks.clone(), self.clone()).chunks_open(open).build().unwrap().into()
    }
}

impl ChunkSource for Numbers {
    fn read(&self, chunk: u64, _: &ReadClock) -> Result<ChunkSamples, SourceError> {
        if self.broken == Some(chunk) {
            return Err("the disk is gone".into());
        }
        self.read.fetch_add(1, Ordering::Relaxed);
        let numbers: Vec<u64> = self.chunks.range(chunk).collect();
        Ok(ChunkSamples::new([("x", ChunkField::from(numbers))]))
    }
}

/// The numbers in each batch of an epoch.
fn epoch(loader: &Loader) -> Vec<Vec<u64>> {
    loader.iter().map(|batch| batch.unwrap().view::<u64>("x").unwrap().to_vec()).collect()
}

proptest! {
    /// Chunks of any sizes give the batches of the plan, for any number of threads; each chunk is read once in an epoch,
    /// and few are held.
    #[test]
    fn chunks_give_the_batches_of_the_plan(
        sizes in prop::collection::vec(0_u64..20, 1..15).prop_filter("samples", |sizes| sizes.iter().sum::<u64>() > 0),
        open in 1_u64..6,
        batch_size in 1_u64..9,
        threads in 1_usize..4,
        shuffles in any::<bool>(),
    ) {
        let source = Numbers::new(&sizes);
        let dataset = source.dataset(open);
        let loader = Loader::builder(dataset.clone()).batch_size(batch_size).shuffle(shuffles);
        let loader = loader.drop_last(false).num_threads(threads).prefetch(2).build().unwrap();
        for number in 0..2 {
            let plan = loader.plan(number);
            let batches = epoch(&loader);
            prop_assert_eq!(batches.len() as u64, plan.steps());
            for (step, batch) in (0..).zip(&batches) {
                prop_assert_eq!(batch, &plan.indices(step, 0).unwrap());
            }
            let mut all: Vec<u64> = batches.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..source.chunks.samples()).collect::<Vec<_>>());
        }
        let read = source.read.load(Ordering::Relaxed);
        let with_samples = sizes.iter().filter(|&&size| size > 0).count() as u64;
        // No chunk is held between epochs.
        prop_assert_eq!(read, 2 * with_samples);
        let counts = dataset.chunk_counts().unwrap();
        prop_assert_eq!(counts.read, read);
        prop_assert!(counts.most_held <= sizes.len() as u64 + threads as u64);
    }

    /// Selected samples are read from their chunks, in the order of a plan over what is selected of each.
    #[test]
    fn selected_samples_are_read_from_their_chunks(
        sizes in prop::collection::vec(1_u64..9, 1..9),
        picks in prop::collection::btree_set(0_u64..60, 1..20),
    ) {
        let source = Numbers::new(&sizes);
        let picks: Vec<u64> = picks.into_iter().filter(|&pick| pick < source.chunks.samples()).collect();
        prop_assume!(!picks.is_empty());
        let selection = Selection::list(&picks, source.chunks.samples()).unwrap();
        let part = source.dataset(2).select(&selection).unwrap();
        let loader = Loader::builder(part).batch_size(3).shuffle(true).build().unwrap();
        let mut found = epoch(&loader).concat();
        found.sort_unstable();
        prop_assert_eq!(found, picks);
    }
}

#[test]
fn a_chunk_that_cannot_be_read_is_the_error_of_its_batch() {
    let source = Numbers { broken: Some(1), ..Numbers::new(&[10, 10, 10]) };
    let loader = Loader::builder(source.dataset(1)).batch_size(10).build().unwrap();
    let mut batches = loader.iter();
    assert!(batches.next().unwrap().is_ok());
    let error = batches.next().unwrap().unwrap_err();
    assert!(is(&error, Kind::Data, &["the disk is gone"]), "{error}");
    assert_eq!(error.sample(), Some(10));
}

#[test]
fn what_does_not_go_with_chunks_is_refused() {
    let dataset = || Numbers::new(&[4, 4]).dataset(2);
    let error = Loader::builder(dataset()).batch_size(2).shuffle(true).shard_size(4).build().unwrap_err();
    assert!(is(&error, Kind::Argument, &["shard_size", "chunks"]), "{error}");
    let selection = Selection::list(&[5, 3], 8).unwrap();
    let error = dataset().select(&selection).unwrap_err();
    assert!(is(&error, Kind::Argument, &["sample 3", "sample 5", "order"]), "{error}");
    // Rows in memory have no chunks.
    let rows = Dataset::from(TensorDataset::new([("x", vec![1_u64, 2])]).unwrap());
    assert!(rows.chunk_counts().is_none());
}
