//! Bins with about the same sum of squares of sizes.
//!
//! Attention costs the sum of the squares of the lengths of a bin, all else the sum of the lengths. Full bins are equal
//! in the latter, so they cost the same if they are equal in the former: no price of either has to be known.
//!
//! Samples above an eighth of a bin decide its squares. The longest first, each is put into the bin that will have the
//! least squares once small samples have filled it. All other samples come in the order that is given, by best fit. Keys are
//! integers and ties are bins by number, so the bins are the same on every platform.
//!
//! Promise: bins are about as full as by best fit alone, or are not made. Where lengths are coarse, nothing is small
//! enough to fill what is left beside large samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::bins::Bins;
use super::{Sorted, to_index, to_place};

/// The part of a bin above which a sample is large.
pub(super) const LARGE: u32 = 8;

/// The bins without room that are tried for a large sample, before best fit finds it one.
const TRIES: usize = 4;

/// The part of a bin that is to be full, and the part of the bins that there may be more, in thousandths.
const HOPED: u128 = 999;
const MORE: u128 = 4;

/// The number of bins up to which one bin more is much.
const FEW: u128 = 128;

/// Bins of about the same sum of squares.
pub(super) struct EvenBins {
    /// The bin of each sample.
    pub(super) of: Vec<u32>,
    /// The number of bins.
    pub(super) count: usize,
    /// True if one bin more is a small part of all.
    pub(super) are_many: bool,
}

/// Bins for the samples of `order`, in which samples above an eighth of `capacity` come first, the longest in front.
/// `None` if this takes many more bins than their elements fill, or one bin.
pub(super) fn fill_evenly(order: &Sorted, capacity: u32, most: u32) -> Option<EvenBins> {
    let total: u128 = order.sizes.iter().map(|&size| u128::from(size)).sum();
    if total <= u128::from(capacity) {
        return None;
    }
    let bins = (total * 1000).div_ceil(u128::from(capacity) * HOPED);
    let large = order.sizes.partition_point(|&size| size > capacity / LARGE);
    let mut begun = Begun::new(usize::try_from(bins).ok()?, capacity, most);
    let small_squares = small_squares(&order.sizes[large..]);
    let chosen: Vec<Option<u32>> =
        order.sizes[..large].iter().map(|&size| begun.put(size, small_squares)).collect();
    // Large samples without a bin come before those that are small.
    let waiting = (0..large).filter(|&place| chosen[place].is_none());
    let rest: Vec<usize> = waiting.chain(large..order.sizes.len()).collect();
    let sizes: Vec<u32> = rest.iter().map(|&place| order.sizes[place]).collect();
    let mut filled = Bins::begun(begun.free, begun.held, capacity, most);
    filled.put(&sizes);
    let count = filled.count_used();
    if count as u128 * 1000 > bins * (1000 + MORE) {
        return None;
    }
    let mut of: Vec<u32> = chosen.into_iter().map(Option::unwrap_or_default).collect();
    of.resize(order.sizes.len(), 0);
    rest.into_iter().zip(filled.of).for_each(|(place, bin)| of[place] = bin);
    Some(EvenBins { of: number_used(of), count, are_many: bins > FEW })
}

/// The squares that small samples bring for each element: the sum of the squares of their sizes over the sum of these.
fn small_squares(sizes: &[u32]) -> i64 {
    let tokens: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    let squares: u128 = sizes.iter().map(|&size| u128::from(size).pow(2)).sum();
    squares.checked_div(tokens).and_then(|share| i64::try_from(share).ok()).unwrap_or(0)
}

/// The same bins, numbered in the order of their first samples.
fn number_used(mut of: Vec<u32>) -> Vec<u32> {
    let bins = of.iter().max().map_or(0, |&bin| to_index(bin) + 1);
    let (mut numbers, mut used) = (vec![u32::MAX; bins], 0);
    for bin in &mut of {
        let number = &mut numbers[to_index(*bin)];
        if *number == u32::MAX {
            (*number, used) = (used, used + 1);
        }
        *bin = *number;
    }
    of
}

/// Bins that large samples are put into.
struct Begun {
    free: Vec<u32>,
    held: Vec<u32>,
    /// The sum of the squares in each bin.
    squares: Vec<i64>,
    /// The bins that may take another large sample: first the one that will have the least squares.
    by_squares: BinaryHeap<Reverse<(i64, u32)>>,
    /// The bins that were tried for a sample.
    tried: Vec<Reverse<(i64, u32)>>,
    capacity: u32,
    most: u32,
}

impl Begun {
    /// Empty bins.
    fn new(bins: usize, capacity: u32, most: u32) -> Self {
        let by_squares = (0..to_place(bins)).map(|bin| Reverse((0, bin))).collect();
        let (free, held, squares) = (vec![capacity; bins], vec![0; bins], vec![0; bins]);
        Self { free, held, squares, by_squares, tried: Vec::with_capacity(TRIES), capacity, most }
    }

    /// Puts a large sample into the bin that will have the least squares, and returns the bin. `None` if the first bins have
    /// no room.
    fn put(&mut self, size: u32, small_squares: i64) -> Option<u32> {
        let chosen = loop {
            let Some(first) = self.by_squares.peek_mut() else { break None };
            let bin = to_index(first.0.1);
            if self.free[bin] >= size && self.held[bin] < self.most {
                break Some((first, bin));
            }
            let first = PeekMut::pop(first);
            // A bin that is too full for every large sample is not tried again.
            if self.free[bin] > self.capacity / LARGE && self.held[bin] < self.most {
                self.tried.push(first);
            }
            if self.tried.len() == TRIES {
                break None;
            }
        };
        let bin = chosen.map(|(mut first, bin)| {
            self.free[bin] -= size;
            self.held[bin] += 1;
            // Bins of more than 2^31 elements may have as many squares as can be counted: then they are alike.
            let square = i64::from(size).saturating_mul(size.into());
            self.squares[bin] = self.squares[bin].saturating_add(square);
            let filled = small_squares.saturating_mul(i64::from(self.capacity - self.free[bin]));
            first.0.0 = self.squares[bin].saturating_sub(filled);
            to_place(bin)
        });
        self.by_squares.extend(self.tried.drain(..));
        bin
    }
}
