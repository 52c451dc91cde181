//! Lifetime (L11): a batch stays valid and unchanged as long as anyone holds it. Lazy (L12): no source is read before
//! its block is filled. Memory: bytes in flight are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchloom::batching::PadTo;
use batchloom::dataset::Sequences;
use batchloom::loader::{Batch, Polled};
use batchloom::{Loader, SequenceDataset, Tensor, TensorDataset};

const ROWS: usize = 4000;

fn dataset() -> TensorDataset {
    let x = Tensor::from_vec((0..ROWS as u64 * 4).collect::<Vec<u64>>(), &[ROWS, 4]).unwrap();
    TensorDataset::new([("x", x)]).unwrap()
}

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

/// A loader fills no block further ahead than `prefetch`, whatever time it is given.
#[test]
fn nothing_is_read_before_its_block_is_due() {
    for prefetch in [1, 2, 5] {
        let furthest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&furthest);
        let loader = Loader::builder(dataset())
            .batch_size(10)
            .num_threads(3)
            .prefetch(prefetch)
            .block_bytes(3200)
            .probe(move |block| {
                seen.fetch_max(block, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        assert_eq!(furthest.load(Ordering::SeqCst), 0);
        let mut blocks = loader.blocks();
        for delivered in 1..10 {
            let polled = blocks.poll(Duration::from_secs(10)).unwrap();
            assert!(matches!(polled, Polled::Block(_)));
            std::thread::sleep(Duration::from_millis(10));
            let ahead = furthest.load(Ordering::SeqCst) + 1 - delivered;
            assert!(ahead <= prefetch as u64, "{ahead} blocks ahead of {delivered}, prefetch {prefetch}");
        }
    }
}

/// One large batch is made ahead of the one in use, mostly in the memory of the one before. Three are there if a loop takes
/// more than a moment to let go of that. A consumer that keeps all batches gets them all.
#[test]
fn large_batches_are_made_one_ahead() {
    let values = Tensor::from_vec((0..8).collect::<Vec<u8>>(), &[8]).unwrap();
    let sequences = Sequences::new("x", values, &(0..9).collect::<Vec<i64>>()).unwrap();
    let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
    let allocated = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&allocated);
    let loader = Loader::builder(dataset)
        .batch_size(1)
        .num_threads(2)
        .pad_to(PadTo::new([33 << 20]).unwrap())
        .memory(64, move |bytes| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(vec![0; bytes])
        })
        .build()
        .unwrap();
    let firsts = |batch: &batchloom::Result<Batch>| {
        batch.as_ref().unwrap().field("x").unwrap().as_slice::<u8>().unwrap()[0]
    };
    let mut held = None;
    for (number, batch) in (0..).zip(loader.iter()) {
        held = Some(batch);
        assert_eq!(held.as_ref().map(firsts), Some(number));
    }
    drop(held);
    assert!((1..=3).contains(&allocated.load(Ordering::SeqCst)));
    let kept: Vec<_> = loader.iter().collect();
    assert!(kept.iter().map(firsts).eq(0..8));
}
