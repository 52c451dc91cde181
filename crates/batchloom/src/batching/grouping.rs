//! `Grouping`: restricts which samples may share a batch: samples with one key alone, or samples with
//! different keys.
//!
//! All samples of an epoch are looked at together, so that no more batches are short than have to be: an epoch costs 8
//! bytes a sample, and O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::BatchingCause;
use super::sizes::PoolSizes;
use super::{PoolBatches, PoolBudgets, Rule, Sizes, to_index, to_place};
use crate::{Result, memory};

/// The key of each sample: samples have the same key if their numbers here are equal.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::batching::Keys;
///
/// // A hundred questions with three answers each; no batch holds two answers to one question.
/// let questions = Keys::new((0..300).map(|sample| sample / 3).collect());
/// let plan = Plan::builder(300).batch_size(50).shuffle(true).distinct_by(questions).build()?;
/// let mut batch: Vec<u64> = plan.indices(0, 0)?.iter().map(|sample| sample / 3).collect();
/// batch.sort_unstable();
/// batch.dedup();
/// assert_eq!(batch.len(), 50);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(Arc<[u32]>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Keys").field(&crate::brief::Brief(&self.0)).finish()
    }
}

impl Keys {
    /// The key of each sample, as a number.
    pub fn new(keys: Vec<u32>) -> Self {
        // Keys are counted in a list, which should not be longer than that of the samples.
        let most = keys.iter().copied().max().map_or(0, to_index);
        if most <= keys.len() {
            return Self(keys.into());
        }
        let mut known = keys.clone();
        known.sort_unstable();
        known.dedup();
        let number = |key: &u32| to_place(known.partition_point(|other| other < key));
        Self(keys.iter().map(number).collect())
    }

    /// The key of each sample.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    fn of(&self, sample: u64) -> u32 {
        self.0[usize::try_from(sample).unwrap_or(usize::MAX)]
    }
}

impl Serialize for Keys {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        format!("{:032x}", xxh3_128(bytemuck::cast_slice(&self.0))).serialize(serializer)
    }
}

/// The samples that may share a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grouping {
    /// Samples with one key.
    Homogeneous(Keys),
    /// Samples with different keys.
    Distinct(Keys),
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
    pub(crate) fn keys(&self) -> &Keys {
        match self {
            Self::Homogeneous(keys) | Self::Distinct(keys) => keys,
        }
    }

    /// Returns true if samples of one key share a batch.
    pub(crate) fn is_homogeneous(&self) -> bool {
        matches!(self, Self::Homogeneous(_))
    }

    /// The key of a sample.
    pub(crate) fn key(&self, sample: u64) -> u32 {
        self.keys().of(sample)
    }

    /// Cuts all samples of an epoch.
    pub(crate) fn cut(&self, rule: &Rule, grouped: Grouped<'_>) -> PoolBatches {
        match self {
            Self::Homogeneous(keys) => one_key_each(keys, rule, grouped),
            Self::Distinct(keys) => different_keys(keys, rule.batch_size().unwrap_or(1), grouped.samples),
        }
    }

    /// Checks that batches of different keys can be made of `kept` samples, in batches of `batch_size`.
    ///
    /// Numbers of keys fit numbers of places if the `t` most frequent keys fit the places that as many keys can take,
    /// for each `t` (Gale 1957, Ryser 1957).
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a key is too frequent for that;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub(crate) fn check(&self, batch_size: u64, kept: u64) -> Result<()> {
        let Self::Distinct(keys) = self else { return Ok(()) };
        let most = keys.as_slice().iter().max().map_or(0, |&most| to_index(most) + 1);
        memory::require_each(most, size_of::<u64>() + size_of::<(u32, u64)>())?;
        let counts = count_by_key(keys.as_slice());
        let mut frequent: Vec<(u32, u64)> = (0..).zip(counts).collect();
        frequent.sort_unstable_by_key(|&(key, count)| (Reverse(count), key));
        let (full, rest) = (kept / batch_size, kept % batch_size);
        let mut sum = 0;
        for (places, &(key, count)) in (1_u64..).zip(&frequent) {
            sum += count;
            let room = places.min(batch_size) * full + places.min(rest);
            // Where some samples are dropped, these are other ones in each epoch.
            let fits = if kept < keys.as_slice().len() as u64 { count <= full } else { sum <= room };
            if !fits {
                let sample = keys.as_slice().iter().position(|&other| other == key).unwrap_or(0) as u64;
                let batches = full + u64::from(rest > 0);
                return Err(BatchingCause::TooFrequent { sample, count, batches, batch_size }.into());
            }
        }
        Ok(())
    }
}

/// The number of samples of each key, from 0 on.
fn count_by_key(keys: &[u32]) -> Vec<u64> {
    let mut counts = vec![0; keys.iter().max().map_or(0, |&most| to_index(most) + 1)];
    keys.iter().for_each(|&key| counts[to_index(key)] += 1);
    counts
}

/// The places of each key, in their order, and their ends; keys in ascending order.
fn by_key(keys: &Keys, samples: &[u64]) -> (Vec<u32>, Vec<usize>) {
    let keys: Vec<u32> = samples.iter().map(|&sample| keys.of(sample)).collect();
    let mut ends: Vec<usize> = count_by_key(&keys)
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
            true => rule.samples_in_pool(places.len() as u64, grouped.counted),
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
fn different_keys(keys: &Keys, batch_size: u64, samples: &[u64]) -> PoolBatches {
    let batch_size = usize::try_from(batch_size).unwrap_or(usize::MAX);
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
