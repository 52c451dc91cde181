//! Samples that are read a chunk at a time: batches in their place, each chunk read by one thread, and no thread that waits
//! for ever, neither for a chunk that another thread reads nor for room.

use std::sync::Arc;

use super::{ROW, Reached, delivered, explore, planned, settings, with};
use crate::batching::LengthBuckets;
use crate::dataset::{ChunkField, ChunkSamples, ChunkSource, MapDataset, ReadClock, SourceError};
use crate::error::ReadError;
use crate::loader::LoaderBuilder;
use crate::order::Chunks;
use crate::{Loader, Tensor};

/// Chunks of rows of 8 values that are all the number of the row. One chunk may fail.
#[derive(Debug, Clone)]
struct Rows {
    chunks: Chunks,
    fails: Option<u64>,
    read: Arc<Reached>,
}

impl Rows {
    fn new(chunks: u64, rows: u64, fails: Option<u64>) -> Self {
        Self { chunks: Chunks::new((0..chunks).map(|_| rows)), fails, read: Arc::default() }
    }

    fn builder(&self, sorts: bool) -> LoaderBuilder {
        let dataset = MapDataset::in_chunks(self.chunks.clone(), self.clone()).chunks_open(2);
        let sizes = || vec![8; usize::try_from(self.chunks.samples()).unwrap()];
        let dataset = if sorts { dataset.sizes(sizes()) } else { dataset };
        let loader = Loader::builder(dataset.build().unwrap()).shuffle(true);
        if sorts { loader.rule(LengthBuckets::new(2).unwrap()) } else { loader.batch_size(2) }
    }
}

impl ChunkSource for Rows {
    fn read(&self, chunk: u64, _: &ReadClock) -> Result<ChunkSamples, SourceError> {
        // The chunk takes time, in which other threads go on.
        shuttle::thread::yield_now();
        self.read.add();
        if self.fails == Some(chunk) {
            return Err(format!("no chunk {chunk}").into());
        }
        let rows = self.chunks.range(chunk);
        let x = rows.clone().flat_map(|row| [row; ROW]).collect();
        let x = Tensor::from_vec(x, &[usize::try_from(rows.end - rows.start)?, ROW])?;
        Ok(ChunkSamples::new([("x", ChunkField::from(x))]))
    }
}

/// All batches arrive in the order of the plan, and of ten chunks at most two are read again.
#[test]
fn every_batch_arrives_in_its_place() {
    let cases = || settings(1..4).flat_map(|setting| [false, true].map(|sorts| (setting, sorts)));
    explore(cases(), |(setting, sorts)| {
        let rows = Rows::new(5, 4, None);
        let loader = with(setting, rows.builder(sorts)).build().unwrap();
        for epoch in 0..2 {
            assert_eq!(delivered(loader.iter()), planned(&loader, epoch));
        }
        assert!((10..=12).contains(&rows.read.count()), "{} chunks were read", rows.read.count());
    });
}

/// The error of a chunk is the error of the first batch that needs it, whichever thread read the chunk.
#[test]
fn errors_come_in_their_place() {
    explore(settings(1..4), |setting| {
        let rows = Rows::new(4, 3, Some(2));
        let loader = with(setting, rows.builder(false)).build().unwrap();
        let mut batches = loader.iter();
        for expected in planned(&loader, 0) {
            match batches.next().unwrap() {
                Ok(batch) => assert_eq!(super::samples(&batch), expected),
                Err(error) if matches!(error.reading(), Some(ReadError::Failed { .. })) => {
                    assert!(expected.iter().any(|row| rows.chunks.chunk_of(*row) == 2), "{expected:?}");
                    break;
                }
                Err(error) => unreachable!("{error}"),
            }
        }
    });
}
