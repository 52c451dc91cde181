//! `Survey`: what is known of an epoch once all of its pools have been looked at.
//!
//! Pools do not depend on each other, so several threads look at them. What they find is the same for any number of
//! threads. A thread that the system refuses is one fewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{panic, thread};

use super::pool::{BatchedPool, length};

/// The numbers of batches, by which batches are found in pools.
#[derive(Debug)]
pub(super) struct Survey {
    /// The number of batches before each pool, in the order of dealing, and the number of all batches.
    pub(super) before: Vec<u64>,
    /// The pool that is dealt first, in exchange with pool 0.
    pub(super) first: u64,
    /// All pools, if they take little memory; otherwise none, and a pool is made again when one of its batches is needed.
    pub(super) kept: Vec<Arc<BatchedPool>>,
}

/// Facts that a look at a pool finds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) batches: u64,
    /// The elements of its largest batch, with padding; 0 if it does not matter which is the largest.
    pub(super) largest: u64,
}

impl Survey {
    /// Looks at the pools with a number of threads. The first of the pools with the largest batch is dealt first.
    pub(super) fn new(pools: u64, threads: usize, look: impl Fn(u64) -> Look + Sync) -> Self {
        let mut looks = look_at_all(pools, threads, &look);
        let mut first = 0;
        for (pool, look) in looks.iter().enumerate() {
            first = if look.largest > looks[first].largest { pool } else { first };
        }
        if first > 0 {
            looks.swap(0, first);
        }
        let mut before = vec![0];
        before.extend(looks.iter().scan(0, |sum, look| {
            *sum += look.batches;
            Some(*sum)
        }));
        Self { before, first: first as u64, kept: Vec::new() }
    }
}

/// Looks at each pool once. Threads take the next pool when they are done with one.
fn look_at_all(pools: u64, threads: usize, look: &(impl Fn(u64) -> Look + Sync)) -> Vec<Look> {
    let next = AtomicU64::new(0);
    let look_at_some = || {
        let mut found = Vec::new();
        loop {
            let pool = next.fetch_add(1, Ordering::Relaxed);
            if pool >= pools {
                return found;
            }
            found.push((pool, look(pool)));
        }
    };
    let mut looks = vec![Look::default(); length(pools)];
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, look_at_some).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut found = look_at_some();
        for helper in helpers {
            found.extend(helper.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked)));
        }
        found.into_iter().for_each(|(pool, look)| looks[length(pool)] = look);
    });
    looks
}
