//! `Keys`: the keys of each sample, as numbers: one key, or several.
//!
//! Promise: samples share a key exactly where they share a number, in whichever columns it stands.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::BatchingCause;
use super::{to_index, to_place};
use crate::Result;

/// The key of each sample, or its keys: samples share a key if they have equal numbers here.
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
pub struct Keys {
    /// The keys of each sample, sample by sample.
    numbers: Arc<[u32]>,
    /// The number of keys of a sample.
    columns: usize,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Keys").field(&crate::brief::Brief(&self.numbers)).finish()
    }
}

impl Keys {
    /// The key of each sample, as a number.
    pub fn new(keys: Vec<u32>) -> Self {
        Self { numbers: number(keys), columns: 1 }
    }

    /// The keys of each sample, `columns` of them, sample by sample. Samples share a key if they have an equal number in
    /// any two columns. A sample may have a key twice.
    ///
    /// ```
    /// use batchloom::Plan;
    /// use batchloom::batching::Keys;
    ///
    /// // Sample k is the pair (k, k + 1), which shares a key with the pairs before and behind it.
    /// let pairs = Keys::several((0..100).flat_map(|sample| [sample, sample + 1]).collect(), 2)?;
    /// let plan = Plan::builder(100).batch_size(10).shuffle(true).distinct_by(pairs).build()?;
    /// let mut batch = plan.indices(0, 0)?;
    /// batch.sort_unstable();
    /// assert!(batch.windows(2).all(|pair| pair[1] - pair[0] > 1));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if samples have no keys, or not as many each.
    pub fn several(keys: Vec<u32>, columns: usize) -> Result<Self> {
        if columns == 0 || !keys.len().is_multiple_of(columns) {
            return Err(BatchingCause::KeyColumns { found: keys.len(), columns }.into());
        }
        Ok(Self { numbers: number(keys), columns })
    }

    /// The keys of each sample, sample by sample.
    pub fn as_slice(&self) -> &[u32] {
        &self.numbers
    }

    /// The number of keys of a sample.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The number of samples.
    pub(crate) fn samples(&self) -> usize {
        self.numbers.len() / self.columns
    }

    /// The keys of one sample after the other.
    pub(crate) fn rows(&self) -> std::slice::ChunksExact<'_, u32> {
        self.numbers.chunks_exact(self.columns)
    }

    /// The keys of a sample.
    pub(super) fn of(&self, sample: u64) -> &[u32] {
        let start = usize::try_from(sample).unwrap_or(usize::MAX) * self.columns;
        &self.numbers[start..start + self.columns]
    }

    /// The number of numbers that keys may have: one more than the largest.
    pub(super) fn count_numbers(&self) -> usize {
        self.numbers.iter().max().map_or(0, |&most| to_index(most) + 1)
    }
}

impl Serialize for Keys {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let digest = format!("{:032x}", xxh3_128(bytemuck::cast_slice(&self.numbers)));
        match self.columns {
            1 => digest.serialize(serializer),
            columns => format!("{digest} in {columns}").serialize(serializer),
        }
    }
}

/// The different keys of a sample, each once.
pub(super) fn different(row: &[u32]) -> impl Iterator<Item = u32> {
    (0..row.len()).filter(|&column| !row[..column].contains(&row[column])).map(|column| row[column])
}

/// The number of samples of each key, from 0 on.
pub(super) fn count_by_key<'a>(rows: impl Iterator<Item = &'a [u32]> + Clone) -> Vec<u64> {
    let most = rows.clone().flatten().copied().max();
    let mut counts = vec![0; most.map_or(0, |most| to_index(most) + 1)];
    rows.for_each(|row| different(row).for_each(|key| counts[to_index(key)] += 1));
    counts
}

/// Keys as numbers that are at most as large as there are keys, since they are counted in a list.
fn number(keys: Vec<u32>) -> Arc<[u32]> {
    let most = keys.iter().copied().max().map_or(0, to_index);
    if most <= keys.len() {
        return keys.into();
    }
    let mut known = keys.clone();
    known.sort_unstable();
    known.dedup();
    let number = |key: &u32| to_place(known.partition_point(|other| other < key));
    keys.iter().map(number).collect()
}
