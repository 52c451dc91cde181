//! The spelling of rules as text, the same in Rust, on the command line, in JSON and in documentation.
//!
//! A rule is its name, a colon and the number that it cannot do without (or budgets by name), and its options: `fixed-size:64`,
//! `token-budget:16384,multiple_of=64,oversize=drop`, `cost-optimal:16384,fixed=1024,per_token=1`. Options have the
//! names that they have in Rust and in Python. Each rule spells and reads itself, in its own file. Promises:
//!
//! - Text that a rule is printed as reads as the same rule. Options that have their default value are not printed.
//! - Text is read whole or refused: an option that the rule does not have is an error that lists those that it has.

use std::fmt::{Display, Write};
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

use super::error::BatchingCause;
use crate::{Error, Result};

/// A rule that text stands for.
pub(super) trait Spelled: Sized {
    /// The name, with which the text begins.
    const NAME: &'static str;

    /// The least text of the rule, for messages, or `None` if no text can stand for it.
    const FORM: Option<&'static str>;

    /// The text of the rule.
    fn spell(&self) -> Spelling;

    /// Reads the number and the options of the rule from a text that begins with its name.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text spells no such rule, or has a number that is out of range.
    fn read(given: &mut Given<'_>) -> Result<Self>;
}

/// The text of a rule, to which its options are added.
#[derive(Debug)]
pub(super) struct Spelling(String);

impl Spelling {
    /// The name of a rule, and the number behind its colon.
    pub(super) fn new(name: &str, number: impl Into<Option<u64>>) -> Self {
        Self(number.into().map_or_else(|| name.to_owned(), |number| format!("{name}:{number}")))
    }

    /// The name of a rule, and the limits behind its colon.
    pub(super) fn with_limits(name: &str, limits: &impl Display) -> Self {
        Self(format!("{name}:{limits}"))
    }

    /// Adds an option, unless it has its default value.
    pub(super) fn option<T: Serialize + PartialEq>(mut self, name: &str, value: &T, default: &T) -> Self {
        if value != default {
            // Writing to a string cannot fail.
            let _ = write!(self.0, ",{name}={}", to_text(value));
        }
        self
    }

    /// The whole text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A number or a name as text.
fn to_text<T: Serialize>(value: &T) -> String {
    // Numbers and names can always be serialised.
    match serde_json::to_value(value).unwrap_or_default() {
        Value::String(text) => text,
        Value::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            None => number.as_f64().unwrap_or_default().to_string(),
        },
        other => other.to_string(),
    }
}

/// The parts of the text of a rule. Options are taken out as they are read.
#[derive(Debug)]
pub(super) struct Given<'a> {
    text: &'a str,
    name: &'a str,
    number: Option<&'a str>,
    options: Vec<(&'a str, &'a str)>,
    /// The options that were asked for.
    known: Vec<&'static str>,
}

impl<'a> Given<'a> {
    /// Takes the text of a rule apart.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) for a part that is no option, and for an option that is given twice.
    pub(super) fn new(text: &'a str) -> Result<Self> {
        let mut parts = text.split(',').map(str::trim);
        let head = parts.next().unwrap_or_default();
        let (name, number) = head.split_once(':').map_or((head, None), |(name, number)| (name, Some(number)));
        let mut given = Self { text, name, number, options: Vec::new(), known: Vec::new() };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(given.refuse(format!("{part:?} is no option; expected name=value")));
            };
            if given.options.iter().any(|(known, _)| *known == key) {
                return Err(given.refuse(format!("{key} is given twice; expected once")));
            }
            given.options.push((key, value));
        }
        Ok(given)
    }

    /// The name of the rule.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// The error of this text, with a reason that names what was expected.
    pub(super) fn refuse(&self, reason: impl Into<String>) -> Error {
        BatchingCause::RuleText { text: self.text.to_owned(), reason: reason.into() }.into()
    }

    /// The text behind the colon.
    pub(super) fn head(&self) -> Option<&'a str> {
        self.number
    }

    /// The number behind the colon.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option is missing, or the text is no such number.
    pub(super) fn number(&self) -> Result<u64> {
        let missing = || self.refuse(format!("there is no number; expected {}:N", self.name));
        self.number_if_given()?.ok_or_else(missing)
    }

    /// The number behind the colon, if there is one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text is no such number.
    pub(super) fn number_if_given(&self) -> Result<Option<u64>> {
        self.number.map(|text| self.parse_number("the number", text)).transpose()
    }

    /// The number that an option is set to, if it is given.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text is no such number.
    pub(super) fn take_number<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>> {
        self.take(name).map(|text| self.parse_number(name, text)).transpose()
    }

    /// The rule with the number that an option is set to, if it is given.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the text is no such number; and the errors of `set`.
    pub(super) fn set_number<R, T: FromStr>(
        &mut self,
        name: &'static str,
        rule: R,
        set: impl FnOnce(R, T) -> Result<R>,
    ) -> Result<R> {
        match self.take_number(name)? {
            Some(number) => set(rule, number),
            None => Ok(rule),
        }
    }

    /// The rule with the word that an option is set to, if it is given.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such word; and the errors of `set`.
    pub(super) fn set_word<R, T: FromStr<Err = Error>>(
        &mut self,
        name: &'static str,
        rule: R,
        set: impl FnOnce(R, T) -> Result<R>,
    ) -> Result<R> {
        let Some(text) = self.take(name) else { return Ok(rule) };
        set(rule, text.parse().map_err(|error: Error| self.refuse(error.to_string()))?)
    }

    /// Refuses options that were not asked for.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is one.
    pub(super) fn require_read(&self) -> Result<()> {
        let Some((key, _)) = self.options.first() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "no options".to_owned(),
            known => known.join(", "),
        };
        Err(self.refuse(format!("{} has no option {key:?}; expected {known}", self.name)))
    }

    fn parse_number<T: FromStr>(&self, name: &str, text: &str) -> Result<T> {
        let reason = || format!("{name} is {text:?}; expected a number of at least 0 that is not too large");
        text.parse().map_err(|_| self.refuse(reason()))
    }

    /// Takes out an option, if it is given.
    fn take(&mut self, name: &'static str) -> Option<&'a str> {
        self.known.push(name);
        let place = self.options.iter().position(|(key, _)| *key == name)?;
        Some(self.options.remove(place).1)
    }
}
