//! Small epochs in every order of their threads that has at most one or two preemptions.

use std::time::Duration;

use super::schedules::{in_child, is_forked};
use super::{builder, delivered, exhaust_preemptions, planned, samples_of, settings, with};

/// Every batch arrives in its place, with one preemption and with two.
#[test]
fn every_batch_arrives_in_its_place() {
    exhaust_preemptions(settings(1..3), 1, |setting| {
        let loader = with(setting, builder(3, 4)).build().unwrap();
        assert_eq!(delivered(loader.iter()), planned(&loader, 0));
    });
    exhaust_preemptions([(1, Some(0)), (1, Some(1)), (2, Some(1))], 2, |setting| {
        let loader = with(setting, builder(2, 2)).build().unwrap();
        assert_eq!(delivered(loader.iter()), planned(&loader, 0));
    });
}

/// An iteration that is left ends, wherever its workers are, and so does its loader.
#[test]
fn iterations_end_wherever_they_are_closed() {
    let cases = settings(1..3).flat_map(|setting| [false, true].map(|waits| (setting, waits)));
    exhaust_preemptions(cases, 1, |(setting, waits)| {
        let loader = with(setting, builder(3, 8)).build().unwrap();
        let mut blocks = loader.blocks();
        // The call begins the epoch, and workers with it.
        drop(blocks.poll(if waits { Duration::MAX / 4 } else { Duration::ZERO }).unwrap());
        drop(loader);
        drop(blocks);
    });
}

/// A forked child waits for no thread of its parent, and for no lock that one held at the fork, wherever they were.
#[test]
fn a_forked_child_waits_for_no_thread_of_its_parent() {
    exhaust_preemptions(settings(1..3), 1, |setting| {
        let loader = with(setting, builder(3, 8)).build().unwrap();
        let mut blocks = loader.blocks();
        let first = blocks.next().unwrap().unwrap();
        blocks.advance();
        assert_eq!(samples_of(&first), planned(&loader, 0)[0]);
        in_child(|| {
            assert!(is_forked(&blocks.poll(Duration::MAX / 4).unwrap_err()));
            drop(first);
            assert_eq!(delivered(loader.iter()), planned(&loader, 1));
            blocks.close();
        });
        drop(blocks);
        // Child and parent share their memory here, so this loader is now the child's.
        in_child(|| drop(loader));
    });
}
