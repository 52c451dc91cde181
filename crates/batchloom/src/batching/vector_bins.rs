//! Bins with several limits, filled one after the other.
//!
//! Best fit by one limit makes bins of samples of one kind: full of text and without images, or the other way round. So
//! each bin takes its part of every kind. The kind of a sample is the budget that it takes the largest share from, large
//! samples apart. The bins that are left to make are at least the largest sum of shares that is left: the bound of
//! linear programming. A bin takes that part of each kind, in the order of the pool, and then the largest samples that
//! fit what is free, the budget that binds first.
//!
//! Shares are integers, so bins are the same on every platform. O(n) for n samples: a bin looks at a bounded number of
//! samples in vain.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::pool_budgets::PoolBudgets;
use super::shelf::{Entry, LEVELS, Shelf};
use super::{to_index, to_place};

/// The share of a whole bin, as a power of two.
const UNIT_BITS: u32 = 28;
const UNIT: i64 = 1 << UNIT_BITS;

/// The part of a bin above which a sample is large, and by which a bin may exceed its part of a kind.
const LARGE: i64 = 4;

/// The most samples in a bin: a share of one element is not 0.
const MOST_SAMPLES: u32 = 1 << UNIT_BITS;

/// The samples that fill up a bin at most, and those that are looked at in vain for each.
const FILLING: usize = 16;
const LOOKS: usize = 16;

/// The bin of each sample of a pool. None exceeds a limit alone, and no limit exceeds 2^28. A bin holds at most
/// `max_samples`. Samples come in the order of the pool, or (`decreasing`) from the largest to the smallest.
pub(super) fn fill_bins(pool: PoolBudgets<'_>, max_samples: Option<u32>, decreasing: bool) -> Vec<u32> {
    let items = Items::new(pool, max_samples);
    let mut filling = Filling::new(&items, decreasing);
    while filling.left > 0 {
        filling.fill_next();
    }
    filling.finish()
}

/// Samples, and the limits of a bin.
struct Items<'a> {
    limits: Vec<u32>,
    /// The share of each limit that one element takes.
    scales: Vec<u64>,
    /// The sizes of each sample by each limit, sample after sample.
    sizes: Cow<'a, [u32]>,
    /// For each sample: twice the limit that it takes the largest share from, and one more if it is large; and this share.
    kinds: Vec<u8>,
    largest: Vec<u32>,
}

impl<'a> Items<'a> {
    fn new(pool: PoolBudgets<'a>, max_samples: Option<u32>) -> Self {
        let mut limits: Vec<u32> =
            pool.facts.iter().map(|facts| u32::try_from(facts.limit).unwrap_or(u32::MAX)).collect();
        let sizes = match max_samples {
            None => Cow::Borrowed(pool.rows),
            // A limit of samples is a budget that each takes one from.
            Some(most) => {
                limits.push(most.min(MOST_SAMPLES));
                pool.each().flat_map(|row| row.iter().copied().chain([1])).collect()
            }
        };
        let scales: Vec<u64> =
            limits.iter().map(|&limit| (1 << (UNIT_BITS + 32)) / u64::from(limit)).collect();
        let samples = sizes.len() / limits.len();
        let (mut kinds, mut largest) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
        for row in sizes.chunks_exact(limits.len()) {
            let (mut most, mut of) = (0, 0);
            for (limit, (&size, &scale)) in (0_u8..).zip(row.iter().zip(&scales)) {
                let share = share(size, scale);
                if share > most {
                    (most, of) = (share, limit);
                }
            }
            kinds.push(2 * of + u8::from(i64::from(most) > UNIT / LARGE));
            largest.push(most);
        }
        Self { limits, scales, sizes, kinds, largest }
    }

    fn len(&self) -> usize {
        self.kinds.len()
    }

    fn sizes(&self, item: usize) -> &[u32] {
        &self.sizes[item * self.limits.len()..(item + 1) * self.limits.len()]
    }

    /// The samples of each kind, in the order in which bins take them, large ones from the largest to the smallest. Samples
    /// without any size are of no kind.
    fn list_kinds(&self, decreasing: bool) -> Vec<Vec<u32>> {
        let mut lists = vec![Vec::new(); 2 * self.limits.len()];
        for (item, (&kind, &largest)) in (0..).zip(self.kinds.iter().zip(&self.largest)) {
            if largest > 0 {
                lists[usize::from(kind)].push(item);
            }
        }
        for (kind, list) in lists.iter_mut().enumerate() {
            if decreasing || kind % 2 == 1 {
                let key = |&item: &u32| u64::from(!self.largest[to_index(item)]) << 32 | u64::from(item);
                let mut keys: Vec<u64> = list.iter().map(key).collect();
                keys.sort_unstable();
                list.iter_mut().zip(keys).for_each(|(item, key)| *item = low(key));
            }
        }
        lists
    }
}

/// The share of a limit that a size is, given the share of one element.
fn share(size: u32, scale: u64) -> u32 {
    ((u64::from(size) * scale) >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of a key")]
fn low(key: u64) -> u32 {
    key as u32
}

/// The level of a share on a shelf.
fn level(share: i64) -> u32 {
    u32::try_from((share * i64::from(LEVELS)) >> UNIT_BITS).unwrap_or(0).min(LEVELS - 1)
}

/// Bins that are being filled, one after the other.
struct Filling<'a> {
    items: &'a Items<'a>,
    /// The bin of each sample, or `u32::MAX`.
    bin_of: Vec<u32>,
    bins: u32,
    /// The number of samples that have sizes and are in no bin, the shares that they take of each limit, and the shares of
    /// each kind.
    left: usize,
    left_of_limit: Vec<i64>,
    left_of_kind: Vec<i64>,
    /// The samples of each kind, and the place of the first that may be in no bin.
    lists: Vec<Vec<u32>>,
    heads: Vec<usize>,
    /// The samples by the largest of their shares, for each limit.
    shelves: Vec<Shelf>,
    next: Vec<u32>,
    /// Of the bin that is being filled: what is free, and the shares that it is to take.
    free: Vec<u32>,
    wanted_of_limit: Vec<i64>,
    wanted_of_kind: Vec<i64>,
    /// The kinds that the bin may take more from, and the limits in the order of what is left.
    is_open: Vec<bool>,
    limits: Vec<usize>,
}

impl<'a> Filling<'a> {
    fn new(items: &'a Items<'a>, decreasing: bool) -> Self {
        let limits = items.limits.len();
        let lists = items.list_kinds(decreasing);
        let mut left_of_limit = vec![0; limits];
        for sizes in items.sizes.chunks_exact(limits) {
            let shares = sizes.iter().zip(&items.scales).map(|(&size, &scale)| share(size, scale));
            left_of_limit.iter_mut().zip(shares).for_each(|(left, share)| *left += i64::from(share));
        }
        let sum = |list: &Vec<u32>| list.iter().map(|&item| i64::from(items.largest[to_index(item)])).sum();
        let left_of_kind: Vec<i64> = lists.iter().map(sum).collect();
        let mut shelves: Vec<Shelf> = (0..limits).map(|_| Shelf::new()).collect();
        let mut next = vec![0; items.len()];
        // The first of a level is the first of the order.
        for list in lists.iter().rev() {
            for &item in list.iter().rev() {
                let place = to_index(item);
                let shelf = &mut shelves[usize::from(items.kinds[place] / 2)];
                shelf.put(level(items.largest[place].into()), item, &mut next);
            }
        }
        Self {
            items,
            bin_of: vec![u32::MAX; items.len()],
            bins: 0,
            left: lists.iter().map(Vec::len).sum(),
            left_of_limit,
            left_of_kind,
            heads: vec![0; lists.len()],
            is_open: vec![true; lists.len()],
            limits: (0..limits).collect(),
            lists,
            shelves,
            next,
            free: Vec::new(),
            wanted_of_limit: Vec::new(),
            wanted_of_kind: Vec::new(),
        }
    }

    /// Fills the next bin.
    fn fill_next(&mut self) {
        let before = self.left;
        self.free.clone_from(&self.items.limits);
        self.set_wanted();
        self.take_wanted();
        self.fill_up();
        if self.left == before {
            // No sample fits an empty bin: the first one has this bin alone.
            let first = (0..self.lists.len()).find_map(|kind| self.first_of(kind));
            first.into_iter().for_each(|item| self.take(item));
        }
        self.bins += 1;
    }

    /// Sets the shares that the bin is to take: what is left, divided by the bins that this fills at least.
    fn set_wanted(&mut self) {
        let bins = self.left_of_limit.iter().copied().max().unwrap_or(0).max(UNIT);
        let part = |left: &i64| match left.checked_mul(UNIT) {
            Some(units) => units / bins,
            None => i64::try_from((i128::from(*left) << UNIT_BITS) / i128::from(bins)).unwrap_or(i64::MAX),
        };
        self.wanted_of_limit.clear();
        self.wanted_of_limit.extend(self.left_of_limit.iter().map(part));
        self.wanted_of_kind.clear();
        self.wanted_of_kind.extend(self.left_of_kind.iter().map(part));
    }

    /// Takes samples of the kind that the bin lacks most, until it has its part of each to half a sample.
    fn take_wanted(&mut self) {
        self.is_open.fill(true);
        while let Some((kind, lacking)) = self.find_lacking() {
            let chosen = self.first_of(kind).filter(|&item| {
                lacking * 2 >= i64::from(self.items.largest[to_index(item)]) && self.fits(item)
            });
            match chosen {
                Some(item) => self.take(item),
                None => self.is_open[kind] = false,
            }
        }
    }

    /// The open kind that the bin lacks most, and the share that it lacks.
    fn find_lacking(&self) -> Option<(usize, i64)> {
        let (mut most, mut found) = (0, None);
        for (kind, (&is_open, &of_kind)) in self.is_open.iter().zip(&self.wanted_of_kind).enumerate() {
            let wanted = self.wanted_of_limit[kind / 2].min(of_kind.saturating_add(UNIT / LARGE));
            if is_open && wanted > most {
                (most, found) = (wanted, Some(kind));
            }
        }
        found.map(|kind| (kind, most))
    }

    /// Takes the largest samples that fit what is free, beginning with the budget that most is left of.
    fn fill_up(&mut self) {
        let mut limits = std::mem::take(&mut self.limits);
        limits.sort_by_key(|&limit| Reverse(self.left_of_limit[limit]));
        let (mut place, mut taken) = (0, 0);
        while let Some(&limit) = limits.get(place).filter(|_| taken < FILLING) {
            match self.find_largest(limit) {
                Some(item) => {
                    self.take(item);
                    taken += 1;
                }
                // What did not fit does not fit afterwards, when less is free.
                None => place += 1,
            }
        }
        self.limits = limits;
    }

    /// The largest sample of the kinds of a limit that fits what is free, if it is among the first that are looked at.
    fn find_largest(&mut self, limit: usize) -> Option<u32> {
        let highest = level(share(self.free[limit], self.items.scales[limit]).into());
        let (mut entry, mut looks) = (self.shelves[limit].highest(highest), 0);
        while let Some(Entry { number, .. }) = entry {
            if self.bin_of[to_index(number)] != u32::MAX {
                entry = self.shelves[limit].take(entry?, &mut self.next);
                continue;
            }
            if self.fits(number) {
                return Some(number);
            }
            looks += 1;
            if looks == LOOKS {
                break;
            }
            entry = self.shelves[limit].after(entry?, &self.next);
        }
        None
    }

    /// The first sample of a kind that is in no bin.
    fn first_of(&mut self, kind: usize) -> Option<u32> {
        let (list, head) = (&self.lists[kind], &mut self.heads[kind]);
        while self.bin_of[to_index(*list.get(*head)?)] != u32::MAX {
            *head += 1;
        }
        Some(list[*head])
    }

    /// Returns true if a sample fits what is free.
    fn fits(&self, item: u32) -> bool {
        self.items.sizes(to_index(item)).iter().zip(&self.free).all(|(size, free)| size <= free)
    }

    /// Puts a sample into the bin.
    fn take(&mut self, item: u32) {
        let item = to_index(item);
        self.bin_of[item] = self.bins;
        self.left -= 1;
        for (limit, (&size, &scale)) in self.items.sizes(item).iter().zip(&self.items.scales).enumerate() {
            let share = i64::from(share(size, scale));
            self.free[limit] = self.free[limit].saturating_sub(size);
            self.left_of_limit[limit] -= share;
            self.wanted_of_limit[limit] -= share;
        }
        let kind = usize::from(self.items.kinds[item]);
        self.left_of_kind[kind] -= i64::from(self.items.largest[item]);
        self.wanted_of_kind[kind] -= i64::from(self.items.largest[item]);
    }

    /// The bins. Samples without any size are dealt to all of them, as they take no room.
    fn finish(mut self) -> Vec<u32> {
        let bins = to_index(self.bins.max(1));
        let without = self.bin_of.iter_mut().filter(|bin| **bin == u32::MAX);
        without.enumerate().for_each(|(place, bin)| *bin = to_place(place % bins));
        self.bin_of
    }
}
