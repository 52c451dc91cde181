//! Threads: started at iteration, joined on drop, never in the way of an end or of a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batchloom::{Error, Loader, Tensor, TensorDataset};

fn builder() -> batchloom::loader::LoaderBuilder {
    let x = Tensor::from_vec((0..4000_u64).collect(), &[4000]).unwrap();
    Loader::builder(TensorDataset::new([("x", x)]).unwrap()).batch_size(10).block_bytes(800).num_threads(3)
}

/// At any step, abandoning an iteration ends the workers at once.
#[test]
fn an_abandoned_iterator_joins_its_workers() {
    let working = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&working);
    let loader = builder().probe(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(300));
    });
    let loader = loader.build().unwrap();
    for taken in [0, 1, 2, 50, 399, 400] {
        let begun = Instant::now();
        let batches = loader.iter().unwrap().take(taken).count();
        assert_eq!(batches, taken);
        let after = working.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(working.load(Ordering::SeqCst), after, "a worker outlived its iterator");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_failing_worker_is_reported_and_ends_the_iteration() {
    let loader = builder().probe(|block| assert!(block != 7, "seven")).build().unwrap();
    let mut batches = loader.iter().unwrap();
    let failure = batches.find_map(Result::err).unwrap();
    assert_eq!(failure, Error::Worker { block: 7, message: "seven".into() });
    assert!(batches.next().is_none());
    // The loader itself is unharmed: the next epoch fails at the same block, not earlier.
    let before = loader.iter().unwrap().take_while(Result::is_ok).count();
    assert!(before <= 70);
}

#[test]
fn the_state_counts_what_was_taken_not_what_was_formed() {
    let loader = builder().shuffle(true).build().unwrap();
    let mut batches = loader.iter().unwrap();
    for taken in 0..=400 {
        assert_eq!(loader.state(), loader.plan(0).state(taken));
        assert_eq!(batches.next().is_some(), taken < 400);
    }
    assert_eq!(loader.state(), loader.plan(1).state(0));
}

/// Resume through the loader: at every step, the rest is exactly what was left.
#[test]
fn a_loaded_state_continues() {
    let values = |batch: batchloom::Result<batchloom::loader::Batch>| {
        batch.unwrap().fields()[0].as_slice::<u64>().unwrap().to_vec()
    };
    let loader = builder().shuffle(true).seed(5).build().unwrap();
    let whole: Vec<Vec<Vec<u64>>> = (0..3).map(|_| loader.into_iter().map(values).collect()).collect();
    for epoch in 0..3 {
        for step in (0..=400).step_by(57).chain([399, 400]) {
            let fresh = builder().shuffle(true).seed(1).build().unwrap();
            fresh.load(&loader.plan(epoch as u64).state(step as u64)).unwrap();
            assert_eq!(fresh.len(), 400 - step as u64);
            fresh.set_epoch(epoch as u64);
            assert_eq!(fresh.into_iter().map(values).collect::<Vec<_>>(), whole[epoch][step..]);
            if epoch < 2 {
                assert_eq!(fresh.into_iter().map(values).collect::<Vec<_>>(), whole[epoch + 1]);
            }
        }
    }
}

#[test]
fn closing_is_not_finishing() {
    let loader = builder().shuffle(true).build().unwrap();
    let mut blocks = loader.blocks().unwrap();
    let block = blocks.next().unwrap().unwrap();
    block.batches().for_each(|_| blocks.advance());
    blocks.close();
    assert!(blocks.next().is_none());
    assert_eq!(loader.state(), loader.plan(0).state(block.batches().count() as u64));
    // Nor is an iteration finished when its blocks were all taken, but not their batches.
    let blocks: Vec<_> = loader.blocks().unwrap().collect();
    assert_eq!(blocks.iter().map(|block| block.as_ref().unwrap().batches().count()).sum::<usize>(), 400);
    assert_eq!(loader.state(), loader.plan(1).state(0));
}

#[test]
fn len_is_that_of_the_iteration_under_way() {
    let loader = builder().build().unwrap();
    loader.load(&loader.plan(3).state(150)).unwrap();
    assert_eq!(loader.len(), 250);
    let mut batches = loader.iter().unwrap();
    batches.next();
    assert_eq!(loader.len(), 250);
    drop(batches);
    assert_eq!(loader.len(), 400);
    assert_eq!(loader.upcoming().epoch(), 4);
}
