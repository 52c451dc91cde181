//! Threads: started at the first iteration, parked between epochs, never in the way of an end or of a failure.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use batchloom::loader::{Batch, LoaderBuilder};
use batchloom::plan::State;
use batchloom::{Kind, Loader, Tensor, TensorDataset};

use crate::errors::{is, refused};

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
        let batches = loader.iter().take(taken).count();
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
        assert_eq!(loader.iter().take(taken).count(), taken);
        assert_eq!(loader.iter().count(), 400);
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
            assert_eq!(loader.iter().count(), 400);
        }
        assert_eq!(*seen.lock().unwrap(), HashSet::from([thread::current().id()]));
        // What is left of an epoch may be as little.
        let loader = watched(builder().num_threads(threads), &seen);
        loader.load(&loader.plan(0).state(395)).unwrap();
        assert_eq!(loader.iter().count(), 5);
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
    let mut under_way: Vec<_> = (0..4).map(|_| loader.iter()).collect();
    let mut all: Vec<Vec<_>> = under_way.iter_mut().map(|it| vec![values(it.next().unwrap())]).collect();
    drop(loader);
    for (values_of_one, mut batches) in all.iter_mut().zip(under_way).skip(1) {
        values_of_one.extend(batches.by_ref().map(values));
    }
    assert_eq!(all[1..], expected[1..]);
    assert_eq!(all[0], expected[0][..1]);
}

/// A plan's state as a loader gives it, which counts the steps of its run too, and has digests of it.
fn counted(state: State, saved: &State, steps: u64) -> State {
    let (digest, digest_before) = (saved.digest.clone(), saved.digest_before.clone());
    assert_eq!(digest.is_some(), steps > 0);
    State { steps: Some(steps).filter(|&steps| steps > 0), digest, digest_before, ..state }
}

fn values(batch: batchloom::Result<Batch>) -> Vec<u64> {
    batch.unwrap().fields()[0].as_slice::<u64>().unwrap().to_vec()
}

#[test]
fn a_failing_worker_is_reported_and_ends_the_iteration() {
    let loader = builder().probe(|block| assert!(block != 7, "seven")).build().unwrap();
    let mut batches = loader.iter();
    let failure = batches.find_map(Result::err).unwrap();
    assert!(is(&failure, Kind::Runtime, &["a worker failed while forming block 7: seven"]), "{failure}");
    assert!(batches.next().is_none());
    // The loader itself is unharmed: the next epoch fails at the same block, not earlier.
    let before = loader.iter().take_while(Result::is_ok).count();
    assert!(before <= 70);
}

#[test]
fn the_state_counts_what_was_taken_not_what_was_formed() {
    let loader = builder().shuffle(true).build().unwrap();
    let mut batches = loader.iter();
    for taken in 0..=400 {
        assert_eq!(loader.state(), counted(loader.plan(0).state(taken), &loader.state(), taken));
        assert_eq!(batches.next().is_some(), taken < 400);
    }
    assert_eq!(loader.state(), counted(loader.plan(1).state(0), &loader.state(), 400));
}

/// Resume through the loader: at every step, the rest is exactly what was left, whether its epoch is set too or not, and
/// whoever asked for an iterator before.
// law: L4, L10
#[test]
fn a_loaded_state_continues() {
    let loader = builder().shuffle(true).seed(5).build().unwrap();
    let whole: Vec<Vec<Vec<u64>>> = (0..4).map(|_| loader.into_iter().map(values).collect()).collect();
    for epoch in 0..3 {
        for step in (0..=400).step_by(57).chain([399, 400]) {
            let fresh = builder().shuffle(true).seed(1).build().unwrap();
            fresh.load(&loader.plan(epoch as u64).state(step as u64)).unwrap();
            let (epoch, step) = if step < 400 { (epoch, step) } else { (epoch + 1, 0) };
            assert_eq!(
                (fresh.epoch(), fresh.len(), fresh.remaining()),
                (epoch as u64, 400, 400 - step as u64)
            );
            drop(fresh.iter());
            fresh.set_epoch(epoch as u64);
            let unused = fresh.iter();
            assert_eq!(fresh.into_iter().map(values).collect::<Vec<_>>(), whole[epoch][step..]);
            if epoch < 3 {
                assert_eq!(unused.map(values).collect::<Vec<_>>(), whole[epoch + 1]);
            }
        }
    }
}

/// Another epoch than that of a loaded state begins at its start, and so does the same one once it has begun.
#[test]
fn a_place_is_kept_for_its_own_epoch() {
    let loader = builder().shuffle(true).build().unwrap();
    let state = loader.plan(3).state(150);
    for (epoch, left) in [(2, 400), (3, 250), (4, 400)] {
        loader.load(&state).unwrap();
        loader.set_epoch(epoch);
        assert_eq!((loader.epoch(), loader.len(), loader.remaining()), (epoch, 400, left));
    }
    loader.load(&state).unwrap();
    assert_eq!(loader.iter().take(1).count(), 1);
    loader.set_epoch(3);
    assert_eq!(loader.remaining(), 400);
}

/// An iterator spends its epoch with its first batch: whoever asks for one and takes nothing changes nothing.
// law: L7
#[test]
fn an_iterator_begins_with_its_first_batch() {
    let working = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&working);
    let loader = builder().shuffle(true).probe(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
    });
    let loader = loader.build().unwrap();
    let (mut first, mut second, mut third) = (loader.iter(), loader.blocks(), loader.steps());
    drop((loader.iter(), loader.blocks(), loader.steps()));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(working.load(Ordering::SeqCst), 0, "an iterator worked before its first batch was asked for");
    assert_eq!((loader.epoch(), loader.state()), (0, loader.plan(0).state(0)));
    // They begin in the order in which they are asked.
    let begins = |epoch| loader.plan(epoch).indices(0, 0).unwrap();
    assert_eq!(third.indices().unwrap(), begins(0));
    assert!(!second.is_begun() && loader.epoch() == 0);
    assert_eq!(second.next().unwrap().unwrap().batches().next().map(Ok).map(values).unwrap(), begins(1));
    assert_eq!(first.next().map(values).unwrap(), begins(2));
    assert_eq!((loader.epoch(), loader.remaining()), (2, 399));
    third = loader.steps();
    drop(third);
    assert_eq!(loader.epoch(), 2);
}

/// An epoch whose iterator was closed before its first batch has not been spent.
#[test]
fn an_epoch_without_a_batch_begins_again() {
    let loader = builder().shuffle(true).probe(|block| assert!(block != 0, "zero")).build().unwrap();
    loader.load(&loader.plan(2).state(7)).unwrap();
    for _ in 0..3 {
        assert!(loader.iter().next().unwrap().is_err());
        assert_eq!((loader.epoch(), loader.remaining()), (2, 393));
    }
}

#[test]
fn closing_is_not_finishing() {
    let loader = builder().shuffle(true).build().unwrap();
    let mut blocks = loader.blocks();
    let block = blocks.next().unwrap().unwrap();
    block.batches().for_each(|_| blocks.advance());
    blocks.close();
    assert!(blocks.next().is_none());
    let taken = block.batches().count() as u64;
    assert_eq!(loader.state(), counted(loader.plan(0).state(taken), &loader.state(), taken));
    // Nor is an iteration finished when its blocks were all taken, but not their batches.
    let blocks: Vec<_> = loader.blocks().collect();
    assert_eq!(blocks.iter().map(|block| block.as_ref().unwrap().batches().count()).sum::<usize>(), 400);
    assert_eq!(loader.state(), counted(loader.plan(1).state(0), &loader.state(), taken));
}

/// L10: the length is that of an epoch, whatever was taken of it; what remains is what comes.
// law: L10
#[test]
fn len_is_that_of_an_epoch_and_remaining_what_is_left() {
    let loader = builder().build().unwrap();
    loader.load(&loader.plan(3).state(150)).unwrap();
    assert_eq!((loader.len(), loader.remaining(), loader.epoch()), (400, 250, 3));
    let mut batches = loader.iter();
    for left in (0..250).rev() {
        batches.next();
        assert_eq!((loader.len(), loader.remaining(), loader.epoch()), (400, left, 3));
    }
    assert!(batches.next().is_none());
    assert_eq!((loader.len(), loader.remaining(), loader.epoch()), (400, 400, 4));
    assert_eq!(loader.iter().take(3).count(), 3);
    assert_eq!((loader.len(), loader.remaining(), loader.epoch()), (400, 400, 5));
    assert_eq!(loader.upcoming().epoch(), 5);
}

/// A loader serves other ranks from an epoch's start, and from the middle of one that was loaded: they share its rest.
// law: L5
#[test]
fn other_ranks_are_served_from_the_next_epoch_on() {
    let build = |rank, world_size| builder().shuffle(true).rank(rank, world_size).build().unwrap();
    let all = |loader: &Loader| loader.into_iter().map(values).collect::<Vec<_>>();
    for rank in 0..3 {
        let (loader, other) = (build(0, 1), build(rank, 3));
        // Before the first epoch, after whole ones, and in a loaded one, begun or not.
        for epoch in 0..3 {
            loader.set_rank(rank, 3).unwrap();
            assert_eq!((loader.rank(), loader.world_size(), loader.len()), (rank, 3, other.len()));
            other.set_epoch(epoch);
            assert_eq!(all(&loader), all(&other));
            loader.set_rank(0, 1).unwrap();
            assert_eq!((loader.epoch(), loader.len()), (epoch + 1, 400));
        }
        let state = loader.plan(7).state(100);
        loader.load(&state).unwrap();
        other.load(&state).unwrap();
        loader.set_rank(rank, 3).unwrap();
        assert_eq!((loader.epoch(), loader.remaining()), (7, 100));
        assert_eq!(all(&loader), all(&other));
    }
}

/// In the middle of an epoch, other ranks are refused: nothing says which batches they had.
// law: L5
#[test]
fn other_ranks_are_refused_in_mid_epoch() {
    let loader = builder().build().unwrap();
    let mut batches = loader.iter();
    for taken in 0..=400 {
        let middle = (1..400).contains(&taken);
        assert_eq!(loader.is_mid_epoch(), middle);
        if middle {
            let (of, taken) =
                ("of epoch 0 were handed over to rank 0 of 1", format!("{taken} of 400 batches"));
            refused(loader.set_rank(1, 4), Kind::Runtime, &[of, &taken, "now this is rank 1 of 4"]);
        }
        loader.set_rank(0, 1).unwrap();
        batches.next();
    }
    // Each way out that the message names: the same epoch, the next one, and the state.
    for epoch in [1, 2] {
        assert_eq!(loader.iter().take(5).count(), 5);
        assert!(loader.set_rank(1, 4).is_err());
        loader.set_epoch(epoch);
        loader.set_rank(1, 4).unwrap();
        assert_eq!((loader.epoch(), loader.remaining()), (epoch, 100));
        loader.set_rank(0, 1).unwrap();
        loader.set_epoch(1);
    }
    assert_eq!(loader.iter().take(40).count(), 40);
    loader.load(&loader.state()).unwrap();
    loader.set_rank(1, 4).unwrap();
    assert_eq!(loader.remaining(), 90);
}

#[test]
fn ranks_that_cannot_be_served_change_nothing() {
    let loader = builder().batch_size(2000).drop_last(true).build().unwrap();
    refused(loader.set_rank(2, 2), Kind::Argument, &["rank is 2", "world of 2"]);
    refused(loader.set_rank(0, 0), Kind::Argument, &["world_size is 0"]);
    refused(loader.set_rank(0, 3), Kind::Argument, &["drop_last leaves no step", "3 ranks"]);
    assert_eq!((loader.rank(), loader.world_size(), loader.len()), (0, 1, 2));
}

/// The digest of a run is the same however it was interrupted, and another one if anything of it was other.
#[test]
fn digests_are_those_of_runs() {
    let built = |seed| builder().shuffle(true).seed(seed).build().unwrap();
    let after = |loader: &Loader, steps: usize| {
        let mut left = steps;
        while left > 0 {
            left -= loader.into_iter().take(left).count();
        }
        loader.state()
    };
    assert_eq!(built(5).state().digest, None);
    let whole: Vec<_> = (1..1000).step_by(37).map(|steps| (steps, after(&built(5), steps))).collect();
    let mut different = HashSet::new();
    for (steps, expected) in &whole {
        assert!(different.insert(expected.digest.clone()));
        assert_ne!(after(&built(6), *steps).digest, expected.digest);
        for stop in [1, steps / 2, 399, 400, 401].into_iter().filter(|stop| stop < steps && *stop > 0) {
            let state = after(&built(5), stop);
            let text = serde_json::to_string(&state).unwrap();
            let resumed = built(1);
            resumed.load(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(resumed.state(), state);
            // Asking for an iterator, or for the epoch that is next anyway, changes nothing.
            drop(resumed.iter());
            resumed.set_epoch(resumed.epoch());
            assert_eq!(after(&resumed, steps - stop), *expected, "{stop} of {steps}");
        }
    }
    // An epoch that was left early, or repeated, is part of the run.
    let (early, again) = (built(5), built(5));
    after(&early, 10);
    early.set_epoch(1);
    after(&early, 390);
    after(&again, 400);
    again.set_epoch(0);
    let straight = after(&built(5), 400);
    assert_ne!(early.state().digest, straight.digest);
    assert_ne!(again.state().digest, straight.digest);
}
