//! `Grouping`: restricts which samples may share a batch: samples with one key alone, or samples with
//! different keys.
//!
//! Promise: samples with one key each are placed if any plan places them; what is promised of samples with several keys
//! is in `disjoint.rs`.
//!
//! All samples of an epoch are looked at together, so that no more batches are short than have to be: an epoch costs 8
//! bytes a sample, and O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::disjoint::{Conflicts, share_no_key};
use super::error::BatchingCause;
use super::keys::{Keys, count_by_key};
use super::pool::PoolBounds;
use super::sizes::PoolSizes;
use super::surplus::{Surplus, choose_samples};
use super::{PoolBatches, PoolBudgets, Rule, Sizes, to_index, to_place};
use crate::{Result, memory};

/// The bytes of a batch of samples with several keys, which a sample may fill alone, and the bytes of each of its keys.
const BATCH_BYTES: usize = 64;
const KEY_BYTES: usize = 32;

/// The bytes that a sample takes while the samples that are kept are chosen.
const CHOICE_BYTES: usize = 24;

/// The samples that may share a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Samples with one key.
    Homogeneous(Keys),
    /// Samples that share no key, and the treatment of those that no batch has room for.
    Distinct(Keys, Surplus),
}

/// The samples of a pool, and what a rule is told of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grouped<'a> {
    pub(crate) samples: &'a [u64],
    pub(crate) pool: PoolSizes<'a>,
    /// The sizes of all samples of the dataset, if they have some.
    pub(crate) counted: Option<&'a Sizes>,
    pub(crate) shuffled: bool,
    pub(crate) drop_last: bool,
}

impl Grouping {
    /// The keys of samples.
    fn keys(&self) -> &Keys {
        match self {
            Self::Homogeneous(keys) | Self::Distinct(keys, _) => keys,
        }
    }

    /// The bytes that a sample takes while it is put into a batch, beside the bytes that a sample with one key takes.
    pub(crate) fn further_bytes(&self) -> usize {
        match self {
            Self::Homogeneous(_) => 0,
            Self::Distinct(keys, surplus) => {
                let columns = keys.columns();
                let several = if columns > 1 { BATCH_BYTES + KEY_BYTES * columns } else { 0 };
                several + if surplus.is_error() { 0 } else { CHOICE_BYTES + size_of::<u32>() * columns }
            }
        }
    }

    /// Returns true if samples of one key share a batch.
    pub(crate) fn is_homogeneous(&self) -> bool {
        matches!(self, Self::Homogeneous(_))
    }

    /// Returns true if the keys decide how many batches an epoch has.
    pub(crate) fn counts_batches(&self) -> bool {
        !matches!(self, Self::Distinct(_, Surplus::Error))
    }

    /// The key of a sample that has one.
    pub(crate) fn key(&self, sample: u64) -> u32 {
        self.keys().of(sample)[0]
    }

    /// Cuts all samples of an epoch.
    pub(crate) fn cut(&self, rule: &Rule, grouped: Grouped<'_>) -> PoolBatches {
        let batch_size = rule.batch_size().map_or(1, |size| usize::try_from(size).unwrap_or(usize::MAX));
        match self {
            Self::Homogeneous(keys) => one_key_each(keys, rule, grouped),
            Self::Distinct(keys, Surplus::Error) => no_key_twice(keys, batch_size, grouped.samples),
            Self::Distinct(keys, Surplus::Drop) => {
                let chosen = choose_samples(keys, batch_size, grouped.samples, grouped.drop_last);
                let samples: Vec<u64> =
                    chosen.iter().map(|&place| grouped.samples[to_index(place)]).collect();
                let mut batches = PoolBatches::default();
                batches.append(&no_key_twice(keys, batch_size, &samples), &chosen);
                if grouped.drop_last && batches.ends.last().is_some_and(|&end| !is_multiple(end, batch_size))
                {
                    batches.drop_last();
                }
                batches
            }
        }
    }

    /// Checks that batches of different keys can be made of `kept` samples, in batches of `batch_size`, whichever the
    /// order. Where samples may be left out, they always can.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a key is too frequent for that;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn check(&self, batch_size: u64, kept: u64) -> Result<()> {
        let Self::Distinct(keys, Surplus::Error) = self else { return Ok(()) };
        memory::require_each(keys.count_numbers(), size_of::<u64>() + size_of::<(u32, u64)>())?;
        match keys.columns() {
            1 => check_one_each(keys, batch_size, kept),
            _ => check_several(keys, batch_size, kept),
        }
    }
}

/// Checks that each key has room, where each sample has one.
///
/// Numbers of keys fit numbers of places if the `t` most frequent keys fit the places that as many keys can take,
/// for each `t` (Gale 1957, Ryser 1957).
fn check_one_each(keys: &Keys, batch_size: u64, kept: u64) -> Result<()> {
    let counts = count_by_key(keys.rows());
    let mut frequent: Vec<(u32, u64)> = (0..).zip(counts).collect();
    frequent.sort_unstable_by_key(|&(key, count)| (Reverse(count), key));
    let (full, rest) = (kept / batch_size, kept % batch_size);
    let mut sum = 0;
    for (places, &(key, count)) in (1_u64..).zip(&frequent) {
        sum += count;
        let room = places.min(batch_size) * full + places.min(rest);
        // Where some samples are dropped, these are other ones in each epoch.
        let fits = if kept < keys.samples() as u64 { count <= full } else { sum <= room };
        if !fits {
            return Err(too_frequent(keys, key, count, batch_size, kept));
        }
    }
    Ok(())
}

/// Checks that samples with several keys have room, whichever the order.
fn check_several(keys: &Keys, batch_size: u64, kept: u64) -> Result<()> {
    let counts = count_by_key(keys.rows());
    let most = (0_u32..).zip(&counts).max_by_key(|&(key, count)| (count, Reverse(key)));
    if let Some((key, &count)) = most.filter(|&(_, &count)| count > kept.div_ceil(batch_size)) {
        return Err(too_frequent(keys, key, count, batch_size, kept));
    }
    let conflicts = Conflicts::count(keys.rows(), counts, batch_size);
    if conflicts.fit(batch_size, kept / batch_size) {
        return Ok(());
    }
    let (sample, times, batches) = (conflicts.sample, conflicts.most, kept / batch_size);
    Err(BatchingCause::TooManyConflicts { sample, times, batches, batch_size }.into())
}

/// The error of a key that has more samples than there are places, and the first of its samples.
fn too_frequent(keys: &Keys, key: u32, count: u64, batch_size: u64, kept: u64) -> crate::Error {
    let sample = keys.rows().position(|row| row.contains(&key)).unwrap_or(0) as u64;
    let batches = kept.div_ceil(batch_size);
    BatchingCause::TooFrequent { sample, count, batches, batch_size }.into()
}

/// Returns true if a number of samples fills batches.
fn is_multiple(samples: u32, batch_size: usize) -> bool {
    to_index(samples).is_multiple_of(batch_size)
}

/// Batches of samples that share no key.
fn no_key_twice(keys: &Keys, batch_size: usize, samples: &[u64]) -> PoolBatches {
    match keys.columns() {
        1 => different_keys(keys, batch_size, samples),
        _ => share_no_key(keys, batch_size, samples),
    }
}

/// The places of each key, in their order, and their ends; keys in ascending order.
fn by_key(keys: &Keys, samples: &[u64]) -> (Vec<u32>, Vec<usize>) {
    let keys: Vec<u32> = samples.iter().map(|&sample| keys.of(sample)[0]).collect();
    let mut ends: Vec<usize> = count_by_key(keys.chunks(1))
        .iter()
        .scan(0, |end, &count| {
            *end += usize::try_from(count).unwrap_or(usize::MAX);
            Some(*end)
        })
        .collect();
    // Each end moves to its start as places are put in front of it, the last ones first.
    let mut places = vec![0; samples.len()];
    for (place, &key) in keys.iter().enumerate().rev() {
        let next = &mut ends[to_index(key)];
        *next -= 1;
        places[*next] = to_place(place);
    }
    ends.push(samples.len());
    ends.dedup();
    (places, ends.split_off(1))
}

/// The places of each key.
fn groups<'a>(places: &'a [u32], ends: &'a [usize]) -> impl Iterator<Item = &'a [u32]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, &end)| &places[start..end])
}

/// Batches of one key each. The rule cuts the batches of a key from separate pools.
fn one_key_each(keys: &Keys, rule: &Rule, grouped: Grouped<'_>) -> PoolBatches {
    let mut pool_batches = PoolBatches::default();
    let (places, ends) = by_key(keys, grouped.samples);
    for mut places in groups(&places, &ends) {
        if let (true, Some(batch_size)) = (grouped.drop_last, rule.batch_size()) {
            let rest = places.len() % usize::try_from(batch_size).unwrap_or(usize::MAX);
            places = &places[..places.len() - rest];
        }
        let in_pool = match grouped.shuffled {
            true => rule.samples_in_pool(PoolBounds::of(places.len() as u64), grouped.counted),
            false => u64::MAX,
        };
        let in_pool = usize::try_from(in_pool).unwrap_or(usize::MAX).max(1);
        for pool in places.chunks(in_pool) {
            let sizes: Vec<u32> = pool.iter().map(|&place| grouped.pool.sizes[to_index(place)]).collect();
            let extents = grouped.pool.extents.map(|(dimensions, all)| {
                let of =
                    |&place: &u32| &all[to_index(place) * dimensions..(to_index(place) + 1) * dimensions];
                (dimensions, pool.iter().flat_map(of).copied().collect::<Vec<u32>>())
            });
            let extents = extents.as_ref().map(|(dimensions, extents)| (*dimensions, extents.as_slice()));
            let rows = grouped.pool.budgets.map(|budgets| (budgets, budgets.gather(pool)));
            let budgets = rows.as_ref().map(|(budgets, rows)| PoolBudgets { rows, ..*budgets });
            let together = grouped.shuffled.then_some(places.len() as u64);
            let drop_last = grouped.drop_last;
            let sizes = PoolSizes { sizes: &sizes, extents, together, even: false, drop_last, budgets };
            pool_batches.append(&rule.cut(sizes), pool);
        }
    }
    pool_batches
}

/// Batches of different keys: samples of the most frequent key are placed first, each into the batch with most room.
fn different_keys(keys: &Keys, batch_size: usize, samples: &[u64]) -> PoolBatches {
    let count = samples.len().div_ceil(batch_size);
    let room = |batch: usize| batch_size.min(samples.len() - batch * batch_size);
    let mut open: BinaryHeap<(usize, Reverse<usize>)> =
        (0..count).map(|batch| (room(batch), Reverse(batch))).collect();
    let mut batches: Vec<Vec<u32>> = vec![Vec::new(); count];
    let (places, ends) = by_key(keys, samples);
    let mut groups: Vec<&[u32]> = groups(&places, &ends).collect();
    // Keys that are as frequent come in the order of the epoch.
    groups.sort_by_key(|places| (Reverse(places.len()), places[0]));
    let mut filled = Vec::new();
    for places in groups {
        for &place in places {
            let Some((room, Reverse(batch))) = open.pop() else { break };
            batches[batch].push(place);
            filled.push((room - 1, Reverse(batch)));
        }
        open.extend(filled.drain(..).filter(|&(room, _)| room > 0));
    }
    let mut pool_batches = PoolBatches::default();
    for mut batch in batches {
        batch.sort_unstable();
        pool_batches.places.extend(batch);
        pool_batches.ends.push(to_place(pool_batches.places.len()));
    }
    pool_batches
}
