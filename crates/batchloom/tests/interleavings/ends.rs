//! Ends: of iterations, of loaders, of workers, of a parent's threads in a forked child. None waits for ever, and what
//! begins afterwards is whole.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{mem, panic};

use shuttle::thread;

use super::super::Polled;
use super::super::buffers::Buffers;
use super::schedules::{in_child, is_forked};
use super::{builder, delivered, explore, planned, samples_of, settings, with};
use crate::{Kind, Loader};

/// An iteration may be closed at any point, with its blocks in hand or not, and the loader may go before it.
#[test]
fn iterations_end_wherever_they_are_closed() {
    let cases = settings(1..4).flat_map(|setting| [0, 1, 3].map(|taken| (setting, taken)));
    explore(cases, |(setting, taken)| {
        let loader = with(setting, builder(4, 8)).build().unwrap();
        let expected = planned(&loader, 0);
        let mut blocks = loader.blocks();
        let kept: Vec<_> = blocks.by_ref().take(taken).map(|block| block.unwrap()).collect();
        // The call begins the epoch, and workers with it, and is over before its block is there.
        let polled = blocks.poll(Duration::ZERO).unwrap();
        assert!(matches!(polled, Polled::Block(_) | Polled::Pending));
        if taken == 1 {
            drop(loader);
            blocks.close();
            assert!(blocks.next().is_none());
        } else {
            drop(blocks);
            drop(loader);
        }
        assert_eq!(kept.iter().map(samples_of).collect::<Vec<_>>(), expected[..taken]);
    });
}

/// After an interrupt, the iteration goes on where it was; if it is abandoned, the next one is whole.
#[test]
fn iterations_after_an_interrupt_are_whole() {
    let cases = settings(1..3).flat_map(|setting| [false, true].map(|goes_on| (setting, goes_on)));
    explore(cases, |(setting, goes_on)| {
        let loader = with(setting, builder(3, 4)).build().unwrap();
        let mut blocks = loader.blocks();
        let mut taken = Vec::new();
        for _ in 0..3 {
            if let Polled::Block(block) = blocks.poll(Duration::ZERO).unwrap() {
                taken.push(samples_of(&block));
                blocks.advance();
            }
        }
        let epoch = u64::from(!taken.is_empty());
        if goes_on {
            taken.extend(blocks.by_ref().map(|block| samples_of(&block.unwrap())));
            assert_eq!(taken, planned(&loader, 0));
            assert!(blocks.next().is_none());
        }
        drop(blocks);
        // An epoch of which nothing was taken begins again.
        let epoch = if goes_on { 1 } else { epoch };
        assert_eq!(delivered(loader.iter()), planned(&loader, epoch));
    });
}

/// A panic in a worker or in the consumer is an error of the iteration; the next one has the same workers.
#[test]
fn a_panic_ends_its_iteration_alone() {
    explore(settings(1..4), |setting| {
        let panics = Arc::new(Mutex::new(true));
        let once = Arc::clone(&panics);
        let loader = with(setting, builder(3, 4)).probe(move |block| {
            if block == 1 && mem::take(&mut *once.lock().unwrap()) {
                // As a panic does, but for the hook, by which shuttle would report a failure.
                panic::resume_unwind(Box::new("one"));
            }
        });
        let loader = loader.build().unwrap();
        let batches: Vec<_> = loader.iter().collect();
        let failure = batches.iter().find_map(|batch| batch.as_ref().err());
        let said = "a worker failed while forming block 1: one; please report this";
        assert_eq!(
            failure.map(|error| (error.kind(), error.to_string())),
            Some((Kind::Runtime, said.into()))
        );
        drop(batches);
        loader.set_epoch(1);
        assert_eq!(delivered(loader.iter()), planned(&loader, 1));
    });
}

/// Workers start with the first iteration that calls them, and serve those after it; they end with the loader, as the
/// end of each schedule shows.
#[test]
fn workers_live_as_long_as_their_loader() {
    explore(settings(1..4), |setting| {
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let noted = Arc::clone(&seen);
        let loader = with(setting, builder(2, 4)).probe(move |_| {
            noted.lock().unwrap().insert(usize::from(thread::current().id()));
        });
        let loader = loader.build().unwrap();
        for epoch in 0..3 {
            assert_eq!(delivered(loader.iter().take(2 - epoch)).len(), 2 - epoch);
        }
        let mut seen = seen.lock().unwrap().clone();
        seen.remove(&usize::from(thread::current().id()));
        assert!(seen.len() <= setting.0.saturating_sub(1).max(1), "{seen:?}");
    });
}

/// Two iterations of one loader at a time, in one thread or in two, do not wait for each other; each is an epoch, and may
/// outlive the loader.
#[test]
fn two_iterations_at_a_time() {
    explore(settings(1..4), |setting| {
        let loader = with(setting, builder(3, 4)).build().unwrap();
        let expected = [planned(&loader, 0), planned(&loader, 1)];
        let (mut first, mut second) = (loader.iter(), loader.iter());
        let mut both = [delivered(first.by_ref().take(1)), delivered(second.by_ref().take(1))];
        drop(loader);
        both[1].extend(delivered(second));
        both[0].extend(delivered(first));
        assert_eq!(both, expected);
    });
    // They share the memory of their loader, whose large blocks they keep to the end.
    explore(settings(1..3), |setting| {
        let loader = Arc::new(with(setting, builder(3, 8)).build().unwrap());
        let expected = [planned(&loader, 0), planned(&loader, 1)];
        let other = Arc::clone(&loader);
        let thread = thread::spawn(move || other.iter().collect::<Vec<_>>());
        let here: Vec<_> = loader.iter().collect();
        drop(loader);
        let both = [here, thread.join().unwrap()].map(|batches| delivered(batches.into_iter()));
        assert!(both == expected || [&both[1], &both[0]] == [&expected[0], &expected[1]]);
    });
}

/// The buffers that a loader has now.
fn pool(loader: &Loader) -> Arc<Buffers> {
    Arc::clone(&loader.0.buffers.lock().unwrap())
}

/// In a forked child, an iteration of the parent is an error and waits for nothing, blocks of the parent are freed, and
/// the loader begins anew, with workers and buffers of its own. The parent goes on where it was.
#[test]
fn a_forked_child_begins_anew() {
    explore(settings(1..4), |setting| {
        let loader: Loader = with(setting, builder(3, 4)).build().unwrap();
        let (mut open, mut closed) = (loader.blocks(), loader.blocks());
        let mut taken = vec![samples_of(&open.next().unwrap().unwrap())];
        let held = closed.next().unwrap().unwrap();
        closed.advance();
        let (workers, buffers) = (loader.0.workers(), pool(&loader));
        in_child(|| {
            assert!(is_forked(&open.poll(Duration::MAX / 4).unwrap_err()));
            drop(held);
            closed.close();
            assert_eq!(delivered(loader.iter()), planned(&loader, 2));
            assert!(!Arc::ptr_eq(&loader.0.workers(), &workers));
            assert!(!Arc::ptr_eq(&pool(&loader), &buffers));
        });
        taken.extend(open.by_ref().map(|block| samples_of(&block.unwrap())));
        assert_eq!(taken, planned(&loader, 0));
        drop((open, closed, workers));
        // Child and parent share their memory here, so this loader is now the child's.
        in_child(|| drop(loader));
    });
}
