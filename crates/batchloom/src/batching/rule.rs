//! `Rule`: any of the rules.

use serde::Serializer;

use super::{
    CostOptimal, Count, FixedSize, LengthBuckets, Listed, Oversize, PackedOversize, Packing, Pool,
    PoolBatches, PoolSizes, Sizes, TokenBudget,
};
use crate::{Error, Result};

/// The largest number of parts that samples are split into. All of them are listed while their pool is packed.
const MOST_PARTS: u64 = 1 << 28;

/// The rule by which samples share a batch.
///
/// It reads and prints as text, which serde uses too:
///
/// ```
/// use batchloom::batching::{Rule, TokenBudget};
///
/// let rule: Rule = "token-budget:16384,multiple_of=64".parse()?;
/// assert_eq!(rule, TokenBudget::new(16384)?.multiple_of(64)?.into());
/// assert_eq!(rule.to_string(), "token-budget:16384,multiple_of=64");
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Equal numbers of samples, in order.
    FixedSize(FixedSize),
    /// Equal numbers of samples of similar size.
    LengthBuckets(LengthBuckets),
    /// As many samples of similar size as fit a budget.
    TokenBudget(TokenBudget),
    /// The cheapest batches of samples of similar size.
    CostOptimal(CostOptimal),
    /// Bins filled without padding.
    Packing(Packing),
    /// Batches that are given.
    Listed(Listed),
}

impl Rule {
    /// The number of samples in a pool, where `samples` are shuffled together. `sizes` are those of the whole dataset.
    pub(crate) fn samples_in_pool(&self, samples: u64, sizes: Option<&Sizes>) -> u64 {
        match self {
            Self::FixedSize(rule) => rule.samples_in_pool(),
            Self::LengthBuckets(rule) => rule.samples_in_pool(),
            Self::TokenBudget(rule) => rule.samples_in_pool(samples, sizes),
            Self::CostOptimal(rule) => rule.samples_in_pool(samples, sizes),
            Self::Packing(rule) => rule.samples_in_pool(samples),
            Self::Listed(_) => u64::MAX,
        }
    }

    /// This rule with pools of the default size, if it sorts pools of a number that was given.
    pub(crate) fn with_auto_pool(&self) -> Option<Self> {
        let given = |pool| matches!(pool, Pool::Of(_)).then_some(Pool::Auto);
        match self {
            Self::LengthBuckets(rule) => rule.pool(given(rule.pooled())?).ok().map(Self::from),
            Self::TokenBudget(rule) => rule.pool(given(rule.pooled())?).ok().map(Self::from),
            Self::CostOptimal(rule) => rule.pool(given(rule.pooled())?).ok().map(Self::from),
            Self::FixedSize(_) | Self::Packing(_) | Self::Listed(_) => None,
        }
    }

    /// The number of samples in a full batch, if all full batches hold as many.
    pub(crate) fn batch_size(&self) -> Option<u64> {
        match self {
            Self::FixedSize(rule) => Some(rule.batch_size()),
            Self::LengthBuckets(rule) => Some(rule.batch_size()),
            _ => None,
        }
    }

    /// The number of samples in a batch, if only one where the data or a pool ends holds fewer.
    pub(crate) fn equal_len(&self) -> Option<u64> {
        self.listed().map_or_else(|| self.batch_size(), Listed::batch_size)
    }

    /// Returns true if batches of one pool differ in kind, so that their order has to be mixed.
    pub(crate) fn sorts(&self) -> bool {
        !matches!(self, Self::FixedSize(_) | Self::Listed(_))
    }

    /// Returns true if batches are concatenations.
    pub(crate) fn packs(&self) -> bool {
        matches!(self, Self::Packing(_))
    }

    /// This rule for batches that are not padded: its budget counts real elements.
    pub(crate) fn unpadded(self) -> Self {
        match self {
            Self::TokenBudget(rule) => Self::TokenBudget(rule.count(Count::Real)),
            other => other,
        }
    }

    /// The batches, if they are given.
    pub(crate) fn listed(&self) -> Option<&Listed> {
        match self {
            Self::Listed(rule) => Some(rule),
            _ => None,
        }
    }

    /// Checks batches that are given: that they name samples of a dataset of `samples`.
    ///
    /// # Errors
    /// [`Error::SampleRange`].
    pub(crate) fn check_lists(&self, samples: u64) -> Result<()> {
        self.listed().map_or(Ok(()), |rule| rule.check(samples))
    }

    /// The number that padded lengths are a multiple of.
    pub(crate) fn multiple_of(&self) -> u32 {
        match self {
            Self::FixedSize(_) | Self::Packing(_) | Self::Listed(_) => 1,
            Self::LengthBuckets(rule) => rule.padded_to(),
            Self::TokenBudget(rule) => rule.padded_to(),
            Self::CostOptimal(rule) => rule.padded_to(),
        }
    }

    /// The largest number of elements of a sample that one batch takes, if longer samples are truncated or split.
    pub(crate) fn limit(&self) -> Option<u32> {
        let (oversize, most) = match self {
            Self::TokenBudget(rule) => (rule.oversize_policy(), rule.most()),
            Self::CostOptimal(rule) => (rule.oversize_policy(), rule.most()),
            Self::Packing(rule) if rule.oversize_policy() != PackedOversize::Error => {
                return Some(rule.capacity());
            }
            _ => return None,
        };
        let cut = oversize == Oversize::Truncate;
        cut.then(|| u32::try_from(most).ok()).flatten()
    }

    /// Returns true if a sample may be split between batches.
    pub(crate) fn splits(&self) -> bool {
        matches!(self, Self::Packing(rule) if rule.oversize_policy() == PackedOversize::Split)
    }

    /// Checks that the rule can divide every pool of samples with these sizes.
    ///
    /// # Errors
    /// [`Error::Oversize`] with the first sample that is too large, [`Error::Dimensions`] if the rule needs one
    /// variable dimension, and [`Error::PoolTooLarge`].
    pub(crate) fn check(&self, sizes: &Sizes, in_pool: u64) -> Result<()> {
        let limit = u64::from(u32::MAX);
        if in_pool > limit {
            return Err(Error::PoolTooLarge { found: in_pool, limit });
        }
        let dimensions = sizes.dimensions();
        if dimensions > 1
            && (matches!(self, Self::CostOptimal(_) | Self::Packing(_)) || self.limit().is_some())
        {
            return Err(Error::Dimensions { rule: self.name(), dimensions });
        }
        let parts = self.parts(sizes);
        if parts > MOST_PARTS {
            return Err(Error::PoolTooLarge { found: parts, limit: MOST_PARTS });
        }
        let found = match self {
            Self::TokenBudget(rule) if rule.oversize_policy() == Oversize::Error => {
                (0..index_of(sizes.len())).find(|&sample| !rule.fits(sizes.extents(sample)))
            }
            Self::CostOptimal(rule) if rule.oversize_policy() == Oversize::Error => over(sizes, rule.most()),
            Self::Packing(rule) if rule.oversize_policy() == PackedOversize::Error => {
                over(sizes, u64::from(rule.capacity()))
            }
            _ => None,
        };
        match found {
            None => Ok(()),
            Some(sample) => Err(Error::Oversize {
                sample: sample as u64,
                size: sizes.as_slice()[sample],
                multiple_of: self.multiple_of(),
                max_tokens: self.budget().unwrap_or(u64::MAX),
            }),
        }
    }

    /// The number of parts that all samples together are split into, or 0 if samples are not split.
    fn parts(&self, sizes: &Sizes) -> u64 {
        match self {
            Self::Packing(rule) if self.splits() => {
                sizes.as_slice().iter().map(|&size| u64::from(size.div_ceil(rule.capacity()))).sum()
            }
            _ => 0,
        }
    }

    /// Returns true if the budget counts elements without padding.
    pub(crate) fn counts_real(&self) -> bool {
        matches!(self, Self::TokenBudget(rule) if rule.counts_real())
    }

    /// Cuts a pool, whose samples passed [`check`](Self::check), into batches.
    pub(crate) fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        match self {
            Self::FixedSize(rule) => rule.cut(pool.sizes),
            Self::LengthBuckets(rule) => rule.cut(pool),
            Self::TokenBudget(rule) => rule.cut(pool),
            Self::CostOptimal(rule) => rule.cut(pool.sizes),
            Self::Packing(rule) => rule.cut(pool),
            Self::Listed(rule) => rule.cut(),
        }
    }

    /// The largest number of elements in a batch, if there is a limit.
    pub(crate) fn budget(&self) -> Option<u64> {
        match self {
            Self::FixedSize(_) | Self::LengthBuckets(_) | Self::Listed(_) => None,
            Self::TokenBudget(rule) => Some(rule.budget()),
            Self::CostOptimal(rule) => rule.budget(),
            Self::Packing(rule) => Some(u64::from(rule.capacity())),
        }
    }

    /// Writes the parts of the rule as fingerprints know them: the form of their first version, which is not the text.
    ///
    /// # Errors
    /// Those of the serializer.
    pub(crate) fn serialize_parts<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::FixedSize(rule) => serializer.serialize_newtype_variant("Rule", 0, self.name(), rule),
            Self::LengthBuckets(rule) => serializer.serialize_newtype_variant("Rule", 1, self.name(), rule),
            Self::TokenBudget(rule) => serializer.serialize_newtype_variant("Rule", 2, self.name(), rule),
            Self::CostOptimal(rule) => serializer.serialize_newtype_variant("Rule", 3, self.name(), rule),
            Self::Packing(rule) => serializer.serialize_newtype_variant("Rule", 4, self.name(), rule),
            Self::Listed(rule) => serializer.serialize_newtype_variant("Rule", 5, self.name(), rule),
        }
    }

    /// The name of the rule.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::FixedSize(_) => "FixedSize",
            Self::LengthBuckets(_) => "LengthBuckets",
            Self::TokenBudget(_) => "TokenBudget",
            Self::CostOptimal(_) => "CostOptimal",
            Self::Packing(_) => "Packing",
            Self::Listed(_) => "Listed",
        }
    }
}

macro_rules! from {
    ($($rule:ident),*) => {
        $(impl From<$rule> for Rule {
            fn from(rule: $rule) -> Self {
                Self::$rule(rule)
            }
        })*
    };
}

from!(FixedSize, LengthBuckets, TokenBudget, CostOptimal, Packing, Listed);

/// The first sample larger than `most`.
fn over(sizes: &Sizes, most: u64) -> Option<usize> {
    sizes.as_slice().iter().position(|&size| u64::from(size) > most)
}

/// The number of samples in memory, as an index.
fn index_of(samples: u64) -> usize {
    usize::try_from(samples).unwrap_or(usize::MAX)
}
