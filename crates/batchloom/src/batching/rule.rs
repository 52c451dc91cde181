//! `Rule`: any of the rules, and the list of them.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::BatchingCause;
use super::pool::PoolBounds;
use super::pool_rule::PoolRule;
use super::spelling::{Given, Spelled, Spelling};
use super::{Budgeted, Budgets, PoolBatches, PoolSizes, RowShape, Sizes};
use crate::{Error, Result};

/// The largest number of parts that samples are split into. All of them are listed while their pool is packed.
const MOST_PARTS: u64 = 1 << 28;

/// Defines [`Rule`] by the list of rules. Each implements [`PoolRule`] and [`Spelled`].
macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident($rule:path),)+) => {
        /// The rule that decides which samples share a batch.
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
            $($(#[$doc])* $name($rule),)+
        }

        $(impl From<$rule> for Rule {
            fn from(rule: $rule) -> Self {
                Self::$name(rule)
            }
        })+

        /// The least text of each rule, for messages.
        const FORMS: &[Option<&str>] = &[$(<$rule>::FORM),+];

        impl Rule {
            fn as_pool_rule(&self) -> &(dyn PoolRule + 'static) {
                match self {
                    $(Self::$name(rule) => rule,)+
                }
            }

            /// The name of the rule.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)+
                }
            }

            /// This rule for batches that are not padded: its budget counts real elements.
            pub(crate) fn count_real_elements(self) -> Self {
                match self {
                    $(Self::$name(rule) => rule.count_real_elements().into(),)+
                }
            }

            /// This rule with pools of the default size, if it sorts pools of a number that was given.
            pub(crate) fn with_auto_pool(&self) -> Option<Self> {
                match self {
                    $(Self::$name(rule) => rule.with_auto_pool().map(Self::from),)+
                }
            }

            /// Writes the parts of the rule as fingerprints know them: its name and its fields, which are not the text.
            ///
            /// # Errors
            /// The errors of the serializer.
            pub(crate) fn serialize_parts<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(rule) => serializer.collect_map([(stringify!($name), rule)]),)+
                }
            }

            fn spell(&self) -> Spelling {
                match self {
                    $(Self::$name(rule) => rule.spell(),)+
                }
            }

            fn read(given: &mut Given<'_>) -> Result<Self> {
                match given.name() {
                    $(<$rule>::NAME => <$rule>::read(given).map(Self::from),)+
                    name => Err(given.refuse(format!("there is no rule {name:?}; expected {}", list_forms()))),
                }
            }
        }
    };
}

rules! {
    /// Equal numbers of samples, in order.
    FixedSize(super::FixedSize),
    /// Equal numbers of samples of similar size.
    LengthBuckets(super::LengthBuckets),
    /// As many samples of similar size as fit a budget.
    TokenBudget(super::TokenBudget),
    /// The cheapest batches of samples of similar size.
    CostOptimal(super::CostOptimal),
    /// Bins filled without padding.
    Packing(super::Packing),
    /// Batches that are given.
    Listed(super::Listed),
}

/// The answers of the rule: see [`PoolRule`].
impl Rule {
    pub(crate) fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        self.as_pool_rule().cut(pool)
    }

    pub(crate) fn samples_in_pool(&self, bounds: PoolBounds, sizes: Option<&Sizes>) -> u64 {
        self.as_pool_rule().samples_in_pool(bounds, sizes)
    }

    pub(crate) fn batch_size(&self) -> Option<u64> {
        self.as_pool_rule().batch_size()
    }

    pub(crate) fn equal_len(&self) -> Option<u64> {
        self.as_pool_rule().equal_len()
    }

    pub(crate) fn looks_at_sizes(&self) -> bool {
        self.as_pool_rule().looks_at_sizes()
    }

    pub(crate) fn packs(&self) -> bool {
        self.as_pool_rule().packs()
    }

    pub(crate) fn splits(&self) -> bool {
        self.as_pool_rule().splits()
    }

    pub(crate) fn continues(&self) -> bool {
        self.as_pool_rule().continues()
    }

    pub(crate) fn count_taken(&self, size: u32) -> u32 {
        self.as_pool_rule().count_taken(size)
    }

    pub(crate) fn counts_real(&self) -> bool {
        self.as_pool_rule().counts_real()
    }

    pub(crate) fn multiple_of(&self) -> u32 {
        self.as_pool_rule().multiple_of()
    }

    pub(crate) fn budget(&self, sizes: Option<&Sizes>) -> Option<u64> {
        self.as_pool_rule().budget(sizes)
    }

    pub(crate) fn limit(&self, sizes: Option<&Sizes>) -> Option<u32> {
        self.as_pool_rule().limit(sizes)
    }

    pub(crate) fn check_lists(&self, samples: u64) -> Result<()> {
        self.as_pool_rule().check_lists(samples)
    }
}

impl Rule {
    /// The lists, if batches are given.
    pub fn listed(&self) -> Option<&super::Listed> {
        let rule: &dyn Any = self.as_pool_rule();
        rule.downcast_ref()
    }

    /// The budgets with names, if there are some.
    pub fn budgets(&self) -> Option<&Budgets> {
        self.as_pool_rule().budgets()
    }

    /// The shape of batches, if they are rows of one shape.
    pub fn row_shape(&self) -> Option<RowShape> {
        self.as_pool_rule().row_shape()
    }

    /// The number of samples in every batch but the last, if the rule takes samples in order, whatever their sizes.
    pub(crate) fn run_len(&self) -> Option<u64> {
        self.batch_size().filter(|_| !self.looks_at_sizes())
    }

    /// Checks that the rule can divide every pool of samples with these sizes, `budgeted` by the budgets of the rule.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data), with the first sample that is too large;
    /// [`Kind::Argument`](crate::Kind::Argument) if the rule needs one variable dimension, or if a pool would hold more
    /// samples than can be numbered.
    pub(crate) fn check(&self, sizes: &Sizes, budgeted: Option<&Budgeted>, in_pool: u64) -> Result<()> {
        let limit = u64::from(u32::MAX);
        if in_pool > limit {
            return Err(BatchingCause::PoolTooLarge { found: in_pool, limit }.into());
        }
        let dimensions = sizes.dimensions();
        if dimensions > 1 && (!self.as_pool_rule().takes_dimensions() || self.limit(Some(sizes)).is_some()) {
            return Err(BatchingCause::Dimensions { rule: self.name(), dimensions }.into());
        }
        let parts = self.as_pool_rule().count_parts(sizes);
        if parts > MOST_PARTS {
            return Err(BatchingCause::PoolTooLarge { found: parts, limit: MOST_PARTS }.into());
        }
        if let Some(budgeted) = budgeted {
            return self.as_pool_rule().check_budgets(budgeted);
        }
        match self.as_pool_rule().find_oversize(sizes) {
            None => Ok(()),
            Some(sample) => Err(BatchingCause::Oversize {
                sample: sample as u64,
                size: sizes.as_slice()[sample],
                multiple_of: self.multiple_of(),
                max_tokens: self.as_pool_rule().largest(Some(sizes)).unwrap_or(u64::MAX),
            }
            .into()),
        }
    }
}

/// The least texts of all rules that have one.
fn list_forms() -> String {
    let forms: Vec<&str> = FORMS.iter().copied().flatten().collect();
    match forms.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => forms.concat(),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.spell().as_str())
    }
}

/// Reads the text that a rule is printed as.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if the text spells no rule, or has a number that is out of range.
impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut given = Given::new(text)?;
        let rule = Self::read(&mut given)?;
        given.require_read()?;
        Ok(rule)
    }
}

/// Writes the text of the rule.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text of a rule.
impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
