//! `Listed`: batches that are given as lists of samples, whatever made them.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::BatchingCause;
use super::pool::PoolBounds;
use super::pool_rule::PoolRule;
use super::spelling::{Given, Spelled, Spelling};
use super::{PoolBatches, PoolSizes, Sizes};
use crate::Result;

/// The largest number of samples in all lists together.
const MOST: usize = u32::MAX as usize;

/// Batches that are given as lists of samples, in the order in which they are dealt to ranks.
///
/// Lists may name a sample several times, or never. They belong to one epoch, and so are not part of the fingerprint
/// of a run; a state in the middle of an epoch holds their digest.
#[derive(Clone)]
pub struct Listed {
    samples: Arc<[u32]>,
    ends: Arc<[u32]>,
    digest: u128,
    batch_size: Option<u64>,
}

crate::brief::debug_in_brief!(Listed, [batch_size], [samples, ends]);

impl Listed {
    /// Batches of `samples`; batch `k` ends before position `ends[k]`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a list is empty, if there are 2^32 samples or more, or if `ends`
    /// decrease or do not end with `samples`.
    pub fn new(samples: impl Into<Arc<[u32]>>, ends: impl Into<Arc<[u32]>>) -> Result<Self> {
        let (samples, ends) = (samples.into(), ends.into());
        if samples.len() > MOST {
            return Err(
                BatchingCause::PoolTooLarge { found: samples.len() as u64, limit: MOST as u64 }.into()
            );
        }
        let mut start = 0;
        for (batch, &end) in (0_u64..).zip(ends.iter()) {
            match end {
                end if end == start => return Err(BatchingCause::EmptyBatch { batch }.into()),
                end if end < start => {
                    return Err(BatchingCause::Lists { end: u64::from(end), start: u64::from(start) }.into());
                }
                end => start = end,
            }
        }
        if super::to_index(start) != samples.len() {
            return Err(BatchingCause::Lists { end: u64::from(start), start: samples.len() as u64 }.into());
        }
        let parts = [xxh3_128(bytemuck::cast_slice(&samples)), xxh3_128(bytemuck::cast_slice(&ends))];
        let digest = xxh3_128(bytemuck::cast_slice(&parts));
        let batch_size = equal_len(&ends);
        Ok(Self { samples, ends, digest, batch_size })
    }

    /// The number of batches.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no batches.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of samples in each batch; the last may hold fewer. `None` for batches that differ in number.
    pub fn batch_size(&self) -> Option<u64> {
        self.batch_size
    }

    /// The samples of all batches, one after the other.
    pub fn samples(&self) -> &[u32] {
        &self.samples
    }

    /// The end of each batch in [`samples`](Self::samples).
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// A name for the lists, of 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

impl PoolRule for Listed {
    fn cut(&self, _: PoolSizes<'_>) -> PoolBatches {
        PoolBatches { places: self.samples.to_vec(), ends: self.ends.to_vec(), ..PoolBatches::default() }
    }

    fn samples_in_pool(&self, _: PoolBounds, _: Option<&Sizes>) -> u64 {
        u64::MAX
    }

    fn equal_len(&self) -> Option<u64> {
        self.batch_size
    }

    fn looks_at_sizes(&self) -> bool {
        false
    }

    fn check_lists(&self, samples: u64) -> Result<()> {
        match self.samples.iter().map(|&sample| u64::from(sample)).find(|&sample| sample >= samples) {
            None => Ok(()),
            Some(sample) => Err(BatchingCause::SampleRange { sample, samples }.into()),
        }
    }
}

impl Spelled for Listed {
    const NAME: &'static str = "listed";
    const FORM: Option<&'static str> = None;

    fn spell(&self) -> Spelling {
        Spelling::new(Self::NAME, None)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        Err(given.refuse("lists have no text; expected another rule"))
    }
}

/// The size of every batch but the last, which is no larger; `None` if there is no such number.
fn equal_len(ends: &[u32]) -> Option<u64> {
    let (&first, last) = (ends.first()?, ends.len() - 1);
    let lens = ends.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
    let equal = lens.into_iter().all(|(place, len)| len == first || (len < first && place + 1 == last));
    equal.then_some(u64::from(first))
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Serialize for Listed {
    /// Writes nothing that differs from epoch to epoch.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}
