//! `Budgets`: several limits of a batch at once, by the names of sizes, and their text.
//!
//! A vision-language model limits the tokens, the patches and the images of a batch; a model of molecules limits atoms
//! and bonds. Promise: budgets are a set. They are kept in the order of their names, so two spellings of the same
//! budgets are one rule, with one fingerprint and one plan.
//!
//! As text, budgets are names with their limits, joined by a plus sign: `packing:images=48+text=8192`. Characters of
//! names that mean something else there, or in JSON, are written as a percent sign and two hexadecimal digits.

use std::fmt::{self, Write};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::error::BatchingCause;
use super::positive;
use super::spelling::Given;
use crate::Result;

/// The largest number of budgets.
pub(super) const MOST: usize = 8;

/// The characters of names that have another meaning in the text of a rule, or in JSON.
const ESCAPED: [char; 6] = ['%', '+', '=', ',', '"', '\\'];

/// Limits of a batch by the names of sizes: a batch exceeds none of them.
///
/// ```
/// use batchloom::batching::{Budgets, Packing, Rule};
///
/// let rule: Rule = Packing::within(Budgets::new([("text", 8192), ("images", 48)])?)?.into();
/// assert_eq!(rule.to_string(), "packing:images=48+text=8192");
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Budgets(Arc<[(String, u64)]>);

impl Budgets {
    /// Budgets of these names and limits.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are none or more than 8, if a name is empty or given twice, or
    /// if a limit is 0.
    pub fn new<N: Into<String>>(budgets: impl IntoIterator<Item = (N, u64)>) -> Result<Self> {
        let mut budgets: Vec<(String, u64)> =
            budgets.into_iter().map(|(name, limit)| (name.into(), limit)).collect();
        if budgets.is_empty() || budgets.len() > MOST {
            return Err(BatchingCause::BudgetCount { found: budgets.len(), limit: MOST }.into());
        }
        budgets.sort();
        if let Some(pair) = budgets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(BatchingCause::BudgetTwice { name: pair[0].0.clone() }.into());
        }
        for (name, limit) in &budgets {
            match (name.as_str(), *limit) {
                ("", _) => return Err(BatchingCause::BudgetName.into()),
                (name, 0) => return Err(BatchingCause::BudgetOfNothing { name: name.to_owned() }.into()),
                _ => {}
            }
        }
        Ok(Self(budgets.into()))
    }

    /// The names and the limits, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, limit)| (name.as_str(), *limit))
    }

    /// The number of budgets, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads names with their limits.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text has another form, and the errors of [`new`](Self::new).
    fn read(text: &str, given: &Given<'_>) -> Result<Self> {
        let mut budgets = Vec::new();
        for part in text.split('+') {
            let refused =
                || given.refuse(format!("{part:?} is no budget; expected a name and a number, as text=8192"));
            let (name, limit) = part.split_once('=').ok_or_else(refused)?;
            let name = unescape(name).ok_or_else(refused)?;
            budgets.push((name, limit.parse().map_err(|_| refused())?));
        }
        Self::new(budgets)
    }
}

impl fmt::Display for Budgets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, limit)) in self.iter().enumerate() {
            formatter.write_str(if place == 0 { "" } else { "+" })?;
            for character in name.chars() {
                match ESCAPED.contains(&character) {
                    true => write!(formatter, "%{:02X}", u32::from(character))?,
                    false => formatter.write_char(character)?,
                }
            }
            write!(formatter, "={limit}")?;
        }
        Ok(())
    }
}

impl Serialize for Budgets {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The name that a text spells, or `None` for a percent sign without two hexadecimal digits of an escaped character.
fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let character = char::from(u8::from_str_radix(code, 16).ok()?);
        name.push(Some(character).filter(|character| ESCAPED.contains(character))?);
        name.push_str(rest);
    }
    Some(name)
}

/// The limit of a batch: a number of elements, or budgets. It is written as the number or as a map.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum MaxTokens {
    One(u64),
    Several(Budgets),
}

impl MaxTokens {
    /// The number of elements.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub(super) fn one(max_tokens: u64) -> Result<Self> {
        positive("max_tokens", max_tokens).map(Self::One)
    }

    /// Reads what stands behind the colon of the text of a rule.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if that is neither a number nor budgets.
    pub(super) fn read(given: &Given<'_>) -> Result<Self> {
        match given.head().filter(|head| head.contains('=')) {
            Some(head) => Budgets::read(head, given).map(Self::Several),
            None => Self::one(given.number()?),
        }
    }

    /// The budgets, if there are some.
    pub(super) fn budgets(&self) -> Option<&Budgets> {
        match self {
            Self::One(_) => None,
            Self::Several(budgets) => Some(budgets),
        }
    }

    /// The largest limit.
    pub(super) fn largest(&self) -> u64 {
        match self {
            Self::One(max_tokens) => *max_tokens,
            Self::Several(budgets) => budgets.iter().map(|(_, limit)| limit).max().unwrap_or(0),
        }
    }

    /// The limit of the sizes that samples are sorted by: of several budgets, the least of those for which `is_primary`
    /// returns true.
    pub(super) fn of_primary(&self, is_primary: impl Fn(&str) -> bool) -> Option<u64> {
        match self {
            Self::One(max_tokens) => Some(*max_tokens),
            Self::Several(budgets) => {
                budgets.iter().filter(|(name, _)| is_primary(name)).map(|(_, limit)| limit).min()
            }
        }
    }
}

impl fmt::Display for MaxTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(max_tokens) => max_tokens.fmt(formatter),
            Self::Several(budgets) => budgets.fmt(formatter),
        }
    }
}
