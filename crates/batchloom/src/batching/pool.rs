//! `Pool`: the number of samples that a rule sorts and divides together, when they are shuffled.
//!
//! A pool is a run of the random order of an epoch. Two samples that shared a batch can share one again only if they
//! fall into the same pool again, so the share of batch mates that stay together from one epoch to the next is about
//! the share of the samples that a pool holds: one pool of everything makes the same batches in every epoch. Larger
//! pools pad less.

use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{Sizes, positive};
use crate::{Error, Result};

/// The most samples in a pool, unless the user gives a number.
pub(super) const MOST: u64 = 1 << 14;

/// The number of pools that shuffled samples are divided into at least.
pub(super) const LEAST_POOLS: u64 = 4;

/// The number of batches that a pool holds at least.
const LEAST_BATCHES: u64 = 2;

/// The size of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pool {
    /// As many as keep batches new in every epoch: a quarter of the samples that are shuffled together, at most 16 384
    /// and at least two batches. [`LengthBuckets`](super::LengthBuckets) and [`Packing`](super::Packing), which have
    /// other means to the same end, take up to 16 384. Where samples are read in chunks, a pool holds at most the samples
    /// of a quarter of the open chunks: the chunks of a pool are held at the same time.
    #[default]
    Auto,
    /// This many, in the unit of the rule: samples, or batches for [`LengthBuckets`](super::LengthBuckets).
    Of(u64),
    /// All samples that are shuffled together.
    All,
}

impl From<u64> for Pool {
    fn from(count: u64) -> Self {
        Self::Of(count)
    }
}

impl FromStr for Pool {
    type Err = Error;

    /// Reads a number of samples, or the name of a choice.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) for any other text.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            number => number.parse().map(Self::Of).map_err(|_| {
                let expected = "a number, \"all\", or nothing for the default";
                Error::no_choice("pool", text, expected.to_owned())
            }),
        }
    }
}

impl Pool {
    /// Refuses a pool of nothing.
    pub(super) fn require_positive(self) -> Result<Self> {
        match self {
            Self::Of(count) => positive("pool", count).map(Self::Of),
            pool => Ok(pool),
        }
    }

    /// Returns true if the user gave a number.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Of(_))
    }

    /// The number of samples in a pool of a rule with about `in_batch` samples in a batch.
    pub(super) fn samples(self, in_batch: u64, bounds: PoolBounds) -> u64 {
        match self {
            Self::Auto => bounds.limit((bounds.samples / LEAST_POOLS).min(MOST), in_batch),
            Self::Of(count) => count,
            Self::All => u64::MAX,
        }
    }
}

/// The facts that bound a pool whose size is left open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolBounds {
    /// The number of samples that are shuffled together.
    pub(crate) samples: u64,
    /// The most samples of a pool: where samples are read in chunks, the samples of a few of them.
    pub(crate) most: u64,
}

impl PoolBounds {
    /// The bounds of pools of samples in memory.
    pub(crate) fn of(samples: u64) -> Self {
        Self { samples, most: u64::MAX }
    }

    /// The size of a pool whose size is left open, where the rule would take `wanted` samples: two batches of `in_batch`
    /// samples at least.
    pub(super) fn limit(self, wanted: u64, in_batch: u64) -> u64 {
        wanted.min(self.most).max(in_batch.saturating_mul(LEAST_BATCHES)).max(1)
    }
}

/// A number stays a number: it is part of the fingerprints of the first version.
impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => "auto".serialize(serializer),
            Self::Of(count) => count.serialize(serializer),
            Self::All => "all".serialize(serializer),
        }
    }
}

/// The samples of a pool of about `samples` that divides into whole batches, so that only the last batch of an epoch is
/// short.
pub(super) fn whole_batches(samples: u64, batch_size: u64) -> u64 {
    samples.max(batch_size) / batch_size * batch_size
}

/// The number of samples of mean size that fill a batch: within the budget, if there is one, and at most
/// `max_samples`. One sample if nothing limits a batch.
pub(super) fn samples_in_batch(
    max_tokens: Option<u64>,
    max_samples: Option<u64>,
    sizes: Option<&Sizes>,
) -> u64 {
    let (samples, total) = sizes.map_or((1, 1), |sizes| (sizes.len(), sizes.total().max(1)));
    let fill = |tokens: u64| {
        let fill = (u128::from(tokens) * u128::from(samples)).div_ceil(u128::from(total));
        u64::try_from(fill).unwrap_or(u64::MAX)
    };
    [max_tokens.map(fill), max_samples].into_iter().flatten().min().unwrap_or(1)
}
