//! Pure (L2): thread count, timing and block size never change a byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use batchloom::{Loader, Tensor, TensorDataset};

const ROWS: u64 = 5000;

fn loader(threads: usize, block_bytes: usize, prefetch: usize, delays: u64) -> Loader {
    let x = Tensor::from_vec((0..ROWS * 3).collect::<Vec<u64>>(), &[ROWS as usize, 3]).unwrap();
    let y = Tensor::from_vec((0..ROWS as u32).collect::<Vec<u32>>(), &[ROWS as usize]).unwrap();
    let calls = AtomicU64::new(delays);
    let delay = move |block: u64| {
        if delays > 0 {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros((call ^ block).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55));
        }
    };
    Loader::builder(TensorDataset::new([("x", x), ("y", y)]).unwrap())
        .batch_size(7)
        .shuffle(true)
        .seed(3)
        .num_threads(threads)
        .block_bytes(block_bytes)
        .prefetch(prefetch)
        .probe(delay)
        .build()
        .unwrap()
}

fn epoch(loader: &Loader) -> Vec<(Vec<u64>, Vec<u32>)> {
    let read = |batch: batchloom::Result<batchloom::loader::Batch>| {
        let batch = batch.unwrap();
        let x = batch.field("x").unwrap().as_slice::<u64>().unwrap().to_vec();
        (x, batch.field("y").unwrap().as_slice::<u32>().unwrap().to_vec())
    };
    loader.into_iter().map(read).collect()
}

// law: L2
#[test]
fn threads_delays_and_block_sizes_never_show() {
    let reference = loader(1, 1 << 20, 2, 0);
    let expected: Vec<_> = (0..2).map(|_| epoch(&reference)).collect();
    for threads in [1, 2, 7] {
        for (block_bytes, prefetch) in [(1, 1), (2000, 3), (2000, 0), (50_000, 1)] {
            for delays in [0, 1, 999] {
                let loader = loader(threads, block_bytes, prefetch, delays);
                for expected in &expected[..if block_bytes == 1 { 1 } else { 2 }] {
                    assert!(
                        epoch(&loader) == *expected,
                        "{threads} threads, blocks of {block_bytes}, {delays}"
                    );
                }
            }
        }
    }
}

/// Two iterators of one loader run side by side, each in its own epoch.
#[test]
fn iterators_do_not_disturb_each_other() {
    let reference = loader(2, 4000, 2, 0);
    let (first, second) = (epoch(&reference), epoch(&reference));
    let loader = loader(2, 4000, 2, 5);
    let (mut a, mut b) = (loader.iter(), loader.iter());
    for (first, second) in first.iter().zip(&second) {
        let x = a.next().unwrap().unwrap();
        assert_eq!(x.fields()[0].as_slice::<u64>().unwrap(), first.0);
        let y = b.next().unwrap().unwrap();
        assert_eq!(y.fields()[0].as_slice::<u64>().unwrap(), second.0);
    }
}
