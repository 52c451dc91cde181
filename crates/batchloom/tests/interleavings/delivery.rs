//! Delivery: every batch in its place, no more of them ahead than promised, and no more memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::super::Polled;
use super::{Reached, builder, delivered, explore, planned, samples_of, settings, with};

/// All batches of two epochs arrive in the order of the plan, from blocks of one piece and of several.
#[test]
fn every_batch_arrives_in_its_place() {
    let cases = settings(1..4).flat_map(|setting| [2, 4].map(|size| (setting, size)));
    explore(cases, |(setting, size)| {
        let loader = with(setting, builder(4, size)).build().unwrap();
        for epoch in 0..2 {
            assert_eq!(delivered(loader.iter()), planned(&loader, epoch));
        }
    });
}

/// A consumer that looks whether a block is there, is interrupted, and looks ahead, gets all blocks in order.
#[test]
fn looking_takes_nothing_away() {
    explore(settings(1..4), |setting| {
        let loader = with(setting, builder(3, 4)).build().unwrap();
        let (mut blocks, mut delivered_samples) = (loader.blocks(), Vec::new());
        loop {
            // A time limit that is over ends a call as one that comes to its end does.
            let polled = match blocks.poll(Duration::ZERO).unwrap() {
                Polled::Pending => blocks.poll(Duration::MAX / 4).unwrap(),
                polled => polled,
            };
            match polled {
                Polled::Block(block) => delivered_samples.push(samples_of(&block)),
                Polled::Pending => {}
                Polled::End => break,
            }
            delivered_samples.extend(blocks.ahead().map(|block| samples_of(&block)));
        }
        assert_eq!(delivered_samples, planned(&loader, 0));
    });
}

/// No block is filled further ahead than `prefetch`; with 0, none unless it is asked for.
#[test]
fn no_more_blocks_wait_than_promised() {
    explore(settings(1..4), |(threads, prefetch)| {
        let (taken, asking) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (taken_so_far, is_asking) = (Arc::clone(&taken), Arc::clone(&asking));
        // Of large blocks nothing is made ahead while their consumer has two: here they are small.
        let loader = with((threads, prefetch), builder(5, 4)).probe(move |block| {
            let ahead = block - taken_so_far.load(Ordering::SeqCst);
            let most = prefetch.unwrap_or(2).max(1) as u64;
            assert!(ahead < most, "{ahead} blocks wait before block {block}");
            assert!(
                prefetch != Some(0) || is_asking.load(Ordering::SeqCst),
                "block {block} was not asked for"
            );
        });
        let loader = loader.build().unwrap();
        let mut blocks = loader.blocks();
        for expected in planned(&loader, 0) {
            asking.store(true, Ordering::SeqCst);
            let block = blocks.next().unwrap().unwrap();
            asking.store(false, Ordering::SeqCst);
            taken.fetch_add(1, Ordering::SeqCst);
            assert_eq!(samples_of(&block), expected);
            // Others may go on here, as in the step of a loop.
            shuttle::thread::yield_now();
        }
        assert!(blocks.next().is_none());
        let most = prefetch.unwrap_or(2).max(1) * 256;
        assert!(loader.metrics().most_queued_bytes <= most);
    });
}

/// As many blocks as may wait are filled though their consumer looked just once and is busy elsewhere.
#[test]
fn blocks_are_filled_without_their_consumer() {
    explore(settings(1..4), |(threads, prefetch)| {
        let filled = Arc::new(Reached::default());
        let counted = Arc::clone(&filled);
        let loader = with((threads, prefetch), builder(5, 4)).probe(move |_| counted.add()).build().unwrap();
        let mut blocks = loader.blocks();
        assert!(matches!(blocks.poll(Duration::ZERO).unwrap(), Polled::Block(_) | Polled::Pending));
        // Of two pieces each.
        filled.wait(2 * prefetch.unwrap_or(2).max(1));
    });
}

/// Of large batches, one is made beyond those that the consumer holds, or none is without `prefetch`, whenever it lets go
/// of them. So much memory is allocated, once.
#[test]
fn large_batches_take_the_memory_of_those_before() {
    let cases =
        [(Some(0), 0, 1), (Some(0), 1, 2), (Some(0), 2, 3), (Some(1), 1, 2), (None, 0, 2), (None, 2, 3)];
    let cases = [1, 3].into_iter().flat_map(|threads| cases.map(|case| (threads, case)));
    explore(cases, |(threads, (prefetch, held, expected))| {
        let allocated = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&allocated);
        // Such a batch is larger than a block of the usual size.
        let loader = with((threads, prefetch), builder(5, 8).block_bytes(64)).memory(64, move |bytes| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(vec![0_u8; bytes])
        });
        let loader = loader.build().unwrap();
        let mut kept = VecDeque::new();
        for (block, expected) in loader.blocks().zip(planned(&loader, 0)) {
            let block = block.unwrap();
            assert_eq!(samples_of(&block), expected);
            kept.push_back(block);
            while kept.len() > held {
                shuttle::thread::yield_now();
                kept.pop_front();
            }
        }
        let allocations = allocated.load(Ordering::SeqCst);
        assert!(allocations <= expected, "{allocations} allocations, not {expected}");
    });
}

/// Batches may be kept, or let go of by another thread at any time: those that are kept stay as they were.
#[test]
fn batches_may_be_kept_and_dropped_anywhere() {
    explore(settings(1..4), |setting| {
        let loader = with(setting, builder(5, 8)).build().unwrap();
        let expected = planned(&loader, 0);
        let (mut kept, mut droppers) = (Vec::new(), Vec::new());
        for (place, block) in loader.blocks().enumerate() {
            let block = block.unwrap();
            if place % 2 == 0 {
                kept.push((place, block));
            } else {
                droppers.push(shuttle::thread::spawn(move || drop(block)));
            }
        }
        for (place, block) in kept {
            assert_eq!(samples_of(&block), expected[place]);
        }
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
}
