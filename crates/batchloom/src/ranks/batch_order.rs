//! The order in which the batches of one pool are dealt.
//!
//! A rule makes batches from the longest samples of a pool to the shortest. Dealt like that, losses would follow
//! length, so the batches of a pool are permuted when samples are shuffled. With `balance`, batches of similar cost
//! stay together, `world_size` at a time, so that no rank waits for another within a step; if batches have a key, those
//! of one key do. The order then depends on the world, and on the worlds that came earlier in the epoch.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Uneven;
use crate::order::{Key, Permutation};

/// The batches of one pool, and their place in the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchOrder<'a> {
    /// The number of the pool's first batch.
    pub(crate) first: u64,
    /// The cost of each batch, as a number that orders them, or its key.
    pub(crate) costs: &'a [u64],
    /// The key of the shuffle, or `None` if batches stay as the rule made them.
    pub(crate) key: Option<&'a Key>,
    /// The batch that has to be the first, or in the first step, if there is one.
    pub(crate) largest: Option<u32>,
}

/// A batch in the order of dealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealt {
    /// The batch, in the order in which the rule made them.
    pub(crate) batch: u32,
    /// True if the batch is dealt elsewhere too, and fills a step here.
    pub(crate) fills: bool,
}

impl From<u32> for Dealt {
    fn from(batch: u32) -> Self {
        Self { batch, fills: false }
    }
}

impl BatchOrder<'_> {
    /// The batches in the order of dealing.
    pub(crate) fn mix(&self) -> Vec<u32> {
        let mut batches = permute(self.costs.len(), self.key);
        if let Some(place) = self.find_largest(&batches) {
            batches.swap(0, place);
        }
        batches
    }

    /// The batches in the order of dealing, such that the batches of a step cost about the same. `worlds` lists the
    /// parts of the epoch as (world size, batches taken), the present part last.
    pub(crate) fn balance(&self, worlds: &[(u32, u64)]) -> Vec<u32> {
        let end = self.first + self.costs.len() as u64;
        let (mut left, mut dealt) = (self.mix(), Vec::new());
        let mut from = 0_u64;
        for &(world_size, batches) in worlds {
            let to = from.saturating_add(batches);
            let start = from.max(self.first);
            if start < to.min(end) {
                let world_size = u64::from(world_size);
                let open = (world_size - (start - from) % world_size) % world_size;
                left = self.group_by_cost(left, length(open), length(world_size), dealt.is_empty());
                let later = left.split_off(length(to.min(end) - start));
                dealt.append(&mut left);
                left = later;
            }
            from = to;
        }
        dealt.append(&mut left);
        dealt
    }

    /// The batches in the order of dealing, such that the batches of a step have one key, in place of the cost. With
    /// `drop_last`, a step that the batches of its key do not fill is left out; otherwise batches of the key fill it.
    pub(crate) fn order_by_key(&self, worlds: &[(u32, u64)], drop_last: bool, uneven: Uneven) -> Vec<Dealt> {
        let (mixed, mut dealt) = (self.mix(), Vec::new());
        let mut is_dealt = vec![false; mixed.len()];
        for &(world_size, batches) in worlds {
            let left = mixed.iter().copied().filter(|&batch| !is_dealt[length(u64::from(batch))]);
            let mut steps = self.steps_of_one_key(left, length(u64::from(world_size)), drop_last, uneven);
            steps.truncate(length(batches));
            steps.iter().for_each(|step| is_dealt[length(u64::from(step.batch))] |= !step.fills);
            dealt.append(&mut steps);
        }
        dealt
    }

    /// Groups of `world_size` batches that cost about the same, in random order, after `open` batches that complete a
    /// step begun in the previous pool. The batches that fill no group are those that cost least.
    fn group_by_cost(&self, mut batches: Vec<u32>, open: usize, world_size: usize, first: bool) -> Vec<u32> {
        batches.sort_by_key(|&batch| Reverse(self.cost(batch)));
        let open = open.min(batches.len());
        let groups = (batches.len() - open) / world_size;
        let begins = first && self.first == 0;
        let largest = self.find_largest(&batches).filter(|_| begins && groups > 0);
        // The largest batch need not cost much, but has to be in a group.
        let largest = largest.map(|place| {
            let last = place.min(groups * world_size - 1);
            batches.swap(place, last);
            last / world_size
        });
        let small = batches.split_off(groups * world_size);
        let (head, tail) = small.split_at(open);
        let mut order = permute(groups, self.key);
        let place = order.iter().position(|&group| largest == Some(length(u64::from(group))));
        place.into_iter().for_each(|place| order.swap(0, place));
        let body =
            order.iter().flat_map(|&group| &batches[length(u64::from(group)) * world_size..][..world_size]);
        head.iter().chain(body).chain(tail).copied().collect()
    }

    /// Steps of `world_size` batches of one key, in random order. A step that lacks some is filled by the first batches
    /// of its key; if they only fill up, by its own last one, which needs no other data.
    fn steps_of_one_key(
        &self,
        batches: impl Iterator<Item = u32>,
        world_size: usize,
        drop_last: bool,
        uneven: Uneven,
    ) -> Vec<Dealt> {
        let mut by_key: BTreeMap<u64, Vec<Dealt>> = BTreeMap::new();
        batches.for_each(|batch| by_key.entry(self.cost(batch)).or_default().push(batch.into()));
        for batches in by_key.values_mut() {
            let count = batches.len();
            if drop_last {
                batches.truncate(count - count % world_size);
                continue;
            }
            for place in count..count.next_multiple_of(world_size) {
                let filling = if uneven == Uneven::Mask { count - 1 } else { (place - count) % count };
                batches.push(Dealt { fills: true, ..batches[filling] });
            }
        }
        let steps: Vec<&[Dealt]> = by_key.values().flat_map(|batches| batches.chunks(world_size)).collect();
        let order = permute(steps.len(), self.key);
        order.iter().flat_map(|&step| steps[length(u64::from(step))]).copied().collect()
    }

    /// The place of the batch that has to be first, if there is one.
    pub(super) fn find_largest(&self, batches: &[u32]) -> Option<usize> {
        let largest = self.largest?;
        batches.iter().position(|&batch| batch == largest)
    }

    fn cost(&self, batch: u32) -> u64 {
        self.costs[length(u64::from(batch))]
    }
}

/// The numbers below `count`, shuffled if there is a key.
fn permute(count: usize, key: Option<&Key>) -> Vec<u32> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match key {
        None => (0..count).collect(),
        Some(key) => {
            let mut numbers = vec![0; length(u64::from(count))];
            Permutation::new(u64::from(count), key).fill(0, &mut numbers);
            numbers.into_iter().map(|number| u32::try_from(number).unwrap_or(u32::MAX)).collect()
        }
    }
}

/// A number of batches of one pool, as an index.
fn length(batches: u64) -> usize {
    usize::try_from(batches).unwrap_or(usize::MAX)
}
