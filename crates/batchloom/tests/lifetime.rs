//! Lifetime (L11): a batch stays valid and unchanged as long as anyone holds it. Lazy (L12): no source is read before
//! its block is filled. Memory: bytes in flight are bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchloom::batching::PadTo;
use batchloom::dataset::Sequences;
use batchloom::loader::{Batch, LoaderBuilder};
use batchloom::{Loader, SequenceDataset, Tensor, TensorDataset};

const ROWS: usize = 4000;

fn dataset() -> TensorDataset {
    let x = Tensor::from_vec((0..ROWS as u64 * 4).collect::<Vec<u64>>(), &[ROWS, 4]).unwrap();
    TensorDataset::new([("x", x)]).unwrap()
}

// law: L11
#[test]
fn batches_outlive_everything() {
    let loader =
        Loader::builder(dataset()).batch_size(9).shuffle(true).num_threads(2).block_bytes(3000).poison(true);
    let loader = loader.build().unwrap();
    let plans: Vec<_> = (0..3).map(|epoch| loader.plan(epoch)).collect();
    let epochs: Vec<Vec<_>> = (0..3).map(|_| loader.iter().map(Result::unwrap).collect()).collect();
    drop(loader);
    for (plan, batches) in plans.iter().zip(&epochs) {
        for (step, batch) in (0..).zip(batches) {
            let x = batch.fields()[0].as_slice::<u64>().unwrap();
            for (row, sample) in x.chunks(4).zip(plan.indices(step, 0).unwrap()) {
                assert!(row.iter().copied().eq(sample * 4..sample * 4 + 4));
            }
        }
    }
}

/// One batch of every few is kept while the blocks of the others are poisoned and used again.
// law: L11
#[test]
fn a_kept_batch_keeps_its_block() {
    let loader = Loader::builder(dataset())
        .batch_size(9)
        .num_threads(2)
        .block_bytes(2000)
        .poison(true)
        .build()
        .unwrap();
    let mut kept = Vec::new();
    for epoch in 0..5 {
        for (step, batch) in loader.iter().enumerate() {
            if (step + epoch) % 37 == 0 {
                kept.push((step, batch.unwrap()));
            }
        }
    }
    for (step, batch) in kept {
        let x = batch.fields()[0].as_slice::<u64>().unwrap();
        assert!(x.iter().copied().eq(step as u64 * 36..step as u64 * 36 + x.len() as u64));
    }
}

/// A loader fills no block further ahead than `prefetch`, whatever time it is given; with 0, none before it is asked for.
// law: L12
#[test]
fn nothing_is_read_before_its_block_is_due() {
    for (prefetch, threads) in [(0, 1), (0, 3), (1, 3), (2, 3), (5, 3)] {
        let furthest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&furthest);
        let loader = Loader::builder(dataset())
            .batch_size(10)
            .num_threads(threads)
            .prefetch(prefetch)
            .block_bytes(3200)
            .probe(move |block| {
                seen.fetch_max(block + 1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        assert_eq!(furthest.load(Ordering::SeqCst), 0);
        let mut blocks = loader.blocks();
        for delivered in 1..10 {
            let block = blocks.next();
            assert!(matches!(block, Some(Ok(_))));
            std::thread::sleep(Duration::from_millis(10));
            let ahead = furthest.load(Ordering::SeqCst) - delivered;
            assert!(ahead <= prefetch as u64, "{ahead} blocks ahead of {delivered}, prefetch {prefetch}");
            // To look ahead is not to ask.
            assert!(prefetch > 0 || blocks.ahead().is_none());
        }
    }
}

/// The number of allocations that are there, and the most that were there at once.
#[derive(Default)]
struct Allocations {
    now: AtomicU64,
    most: AtomicU64,
}

/// Memory that is counted as long as it is there.
struct Counted(Vec<u8>, Arc<Allocations>);

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Batches of 33 MiB, of samples 0 to 7, and the allocations that are made for them.
fn large_batches(threads: usize, prefetch: Option<usize>) -> (Loader, Arc<Allocations>) {
    let values = Tensor::from_vec((0..8).collect::<Vec<u8>>(), &[8]).unwrap();
    let sequences = Sequences::new("x", values, &(0..9).collect::<Vec<i64>>()).unwrap();
    let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
    let allocated = Arc::new(Allocations::default());
    let counted = Arc::clone(&allocated);
    let loader = Loader::builder(dataset)
        .batch_size(1)
        .num_threads(threads)
        .pad_to(PadTo::new([33 << 20]).unwrap())
        .memory(64, move |bytes| {
            let now = counted.now.fetch_add(1, Ordering::SeqCst) + 1;
            counted.most.fetch_max(now, Ordering::SeqCst);
            Ok(Counted(vec![0; bytes], Arc::clone(&counted)))
        });
    let loader = prefetch.into_iter().fold(loader, LoaderBuilder::prefetch).build().unwrap();
    (loader, allocated)
}

fn first(batch: &Batch) -> u8 {
    batch.field("x").unwrap().as_slice::<u8>().unwrap()[0]
}

/// Of large batches, one is made beyond those that the consumer holds, or none is without `prefetch`, whenever it lets go
/// of them: in a loop that holds one at a time, that holds one as it asks for the next, or that lets go of it late.
#[test]
fn large_batches_take_the_memory_of_those_before() {
    for threads in [1, 3] {
        for (prefetch, held, late, expected) in [
            (Some(0), 0, 0, 1),
            (Some(0), 1, 20, 2),
            (Some(0), 3, 0, 4),
            (Some(1), 1, 20, 2),
            (None, 0, 20, 2),
            (None, 1, 20, 2),
            (None, 2, 20, 3),
        ] {
            let (loader, allocated) = large_batches(threads, prefetch);
            for _ in 0..2 {
                let mut kept = VecDeque::new();
                for (number, batch) in (0..).zip(loader.iter()) {
                    kept.push_back(batch.unwrap());
                    assert_eq!(kept.back().map(first), Some(number));
                    std::thread::sleep(Duration::from_millis(late));
                    while kept.len() > held {
                        kept.pop_front();
                    }
                }
            }
            let allocations = allocated.most.load(Ordering::SeqCst);
            assert!(
                allocations <= expected,
                "{allocations}, not {expected}: {held} held, {prefetch:?}, {threads} threads"
            );
        }
    }
}

/// A consumer that keeps all batches gets them all.
// law: L11
#[test]
fn large_batches_may_be_kept() {
    for prefetch in [None, Some(0), Some(3)] {
        let (loader, _) = large_batches(2, prefetch);
        let kept: Vec<_> = loader.iter().map(Result::unwrap).collect();
        assert!(kept.iter().map(first).eq(0..8));
    }
}
