//! Threads: started at the first iteration, parked between epochs, never in the way of an end or of a failure.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use batchloom::loader::{Batch, LoaderBuilder};
use batchloom::{Error, Loader, Tensor, TensorDataset};

fn builder() -> LoaderBuilder {
    let x = Tensor::from_vec((0..4000_u64).collect(), &[4000]).unwrap();
    Loader::builder(TensorDataset::new([("x", x)]).unwrap()).batch_size(10).block_bytes(800).num_threads(3)
}

/// At any step, abandoning an iteration makes the workers leave it at once.
#[test]
fn an_abandoned_iterator_waits_for_its_workers() {
    let working = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&working);
    let loader = builder().probe(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(300));
    });
    let loader = loader.build().unwrap();
    for taken in [0, 1, 2, 50, 399, 400] {
        let begun = Instant::now();
        let batches = loader.iter().unwrap().take(taken).count();
        assert_eq!(batches, taken);
        let after = working.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(3));
        assert_eq!(working.load(Ordering::SeqCst), after, "a worker outlived its iterator");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

/// A loader that notes which threads fill pieces, and takes its time for each.
fn watched(builder: LoaderBuilder, seen: &Arc<Mutex<HashSet<ThreadId>>>) -> Loader {
    let seen = Arc::clone(seen);
    let noting = builder.probe(move |_| {
        seen.lock().unwrap().insert(thread::current().id());
        thread::sleep(Duration::from_micros(50));
    });
    noting.build().unwrap()
}

/// Iterations that end or are abandoned leave their threads to the next ones.
#[test]
fn workers_start_once_and_serve_every_epoch() {
    let seen = Arc::default();
    let loader = watched(builder(), &seen);
    for taken in (0..400).step_by(30) {
        assert_eq!(loader.iter().unwrap().take(taken).count(), taken);
        assert_eq!(loader.iter().unwrap().count(), 400);
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.remove(&thread::current().id());
    assert!((1..=2).contains(&seen.len()), "{seen:?}");
}

/// A block that is small and the last one is not worth a worker, however many threads there are.
#[test]
fn an_epoch_of_one_small_block_is_formed_by_its_consumer() {
    for threads in [1, 3] {
        let seen = Arc::default();
        let loader = watched(builder().block_bytes(1 << 20).num_threads(threads), &seen);
        for _ in 0..5 {
            assert_eq!(loader.iter().unwrap().count(), 400);
        }
        assert_eq!(*seen.lock().unwrap(), HashSet::from([thread::current().id()]));
        // What is left of an epoch may be as little.
        let loader = watched(builder().num_threads(threads), &seen);
        loader.load(&loader.plan(0).state(395)).unwrap();
        assert_eq!(loader.iter().unwrap().count(), 5);
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}

/// Several epochs under way at once, some of them never ended: each has workers, and outlives the loader.
#[test]
fn iterations_at_once_do_not_wait_for_each_other() {
    let loader = builder().shuffle(true).num_threads(1).build().unwrap();
    let expected: Vec<Vec<_>> = (0..4)
        .map(|epoch| (0..400).map(|step| loader.plan(epoch).indices(step, 0).unwrap()).collect())
        .collect();
    let mut under_way: Vec<_> = (0..4).map(|_| loader.iter().unwrap()).collect();
    let mut found: Vec<Vec<_>> = under_way.iter_mut().map(|it| vec![values(it.next().unwrap())]).collect();
    drop(loader);
    for (found, mut batches) in found.iter_mut().zip(under_way).skip(1) {
        found.extend(batches.by_ref().map(values));
    }
    assert_eq!(found[1..], expected[1..]);
    assert_eq!(found[0], expected[0][..1]);
}

fn values(batch: batchloom::Result<Batch>) -> Vec<u64> {
    batch.unwrap().fields()[0].as_slice::<u64>().unwrap().to_vec()
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
