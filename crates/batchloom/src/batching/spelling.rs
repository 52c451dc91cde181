//! The spelling of rules as text, the same in Rust, on the command line, in JSON and in documentation.
//!
//! A rule is its name, a colon and the number that it cannot do without, and its options: `fixed-size:64`,
//! `token-budget:16384,multiple_of=64,oversize=drop`, `cost-optimal:16384,fixed=1024,per_token=1`. Options have the names
//! that they have in Rust and in Python. Promises:
//!
//! - Text that a rule is printed as reads as the same rule. Options that have their default value are not printed.
//! - Text is read whole or refused: an option that the rule does not have is an error that lists those that it has.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{
    CostModel, CostOptimal, Count, FixedSize, LengthBuckets, Oversize, PackedOversize, Packing, PackingOrder,
    Pool, Rule, TokenBudget,
};
use crate::{Error, Result};

/// The forms of all rules that have one, for messages.
const FORMS: &str = "fixed-size:N, length-buckets:N, token-budget:N, cost-optimal or packing:N";

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, main, options) = self.spelled();
        formatter.write_str(name)?;
        main.map_or(Ok(()), |main| write!(formatter, ":{main}"))?;
        let given = options.into_iter().filter_map(|(key, value)| value.map(|value| (key, value)));
        given.into_iter().try_for_each(|(key, value)| write!(formatter, ",{key}={value}"))
    }
}

/// The options of a rule, and the value of each that is not the default.
type Options = Vec<(&'static str, Option<String>)>;

impl Rule {
    fn spelled(&self) -> (&'static str, Option<u64>, Options) {
        match self {
            Self::FixedSize(rule) => ("fixed-size", Some(rule.batch_size()), Vec::new()),
            Self::LengthBuckets(rule) => {
                let options = [other(&rule.pool, &Pool::Auto), other(&rule.multiple_of, &1)];
                ("length-buckets", Some(rule.batch_size), named(&["pool", "multiple_of"], options))
            }
            Self::TokenBudget(rule) => {
                let names = ["count", "max_length_spread", "max_samples", "multiple_of", "oversize", "pool"];
                let options = [
                    other(&rule.count, &Count::default()),
                    other(&rule.max_length_spread, &None),
                    other(&rule.max_samples, &None),
                    other(&rule.multiple_of, &1),
                    other(&rule.oversize, &Oversize::default()),
                    other(&rule.pool, &Pool::Auto),
                ];
                ("token-budget", Some(rule.max_tokens), named(&names, options))
            }
            Self::CostOptimal(rule) => {
                let names =
                    ["fixed", "per_token", "per_pair", "max_samples", "multiple_of", "oversize", "pool"];
                let options = [
                    other(&rule.cost.fixed(), &0.0),
                    other(&rule.cost.per_token(), &0.0),
                    other(&rule.cost.per_pair(), &0.0),
                    other(&rule.max_samples, &None),
                    other(&rule.multiple_of, &1),
                    other(&rule.oversize, &Oversize::default()),
                    other(&rule.pool, &Pool::Auto),
                ];
                ("cost-optimal", rule.max_tokens, named(&names, options))
            }
            Self::Packing(rule) => {
                let options = [
                    other(&rule.max_samples, &None),
                    other(&rule.oversize, &PackedOversize::default()),
                    other(&rule.pool, &Pool::Auto),
                    other(&rule.order, &PackingOrder::default()),
                ];
                let names = ["max_samples", "oversize", "pool", "order"];
                ("packing", Some(rule.capacity().into()), named(&names, options))
            }
            Self::Listed(_) => ("listed", None, Vec::new()),
        }
    }
}

fn named<const N: usize>(names: &[&'static str; N], values: [Option<String>; N]) -> Options {
    names.iter().copied().zip(values).collect()
}

/// A value as text, unless it is the default.
fn other<T: Serialize + PartialEq>(value: &T, default: &T) -> Option<String> {
    // Numbers and names cannot fail.
    let text = || match serde_json::to_value(value).unwrap_or_default() {
        Value::String(text) => text,
        Value::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            None => number.as_f64().unwrap_or_default().to_string(),
        },
        other => other.to_string(),
    };
    (value != default).then(text)
}

/// Reads the text that a rule is printed as.
///
/// # Errors
/// [`Error::RuleText`], or the error of the rule's own methods for a number that is out of range.
impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut given = Given::new(text)?;
        let rule = match given.name {
            "fixed-size" => FixedSize::new(given.main()?)?.into(),
            "length-buckets" => given.length_buckets()?.into(),
            "token-budget" => given.token_budget()?.into(),
            "cost-optimal" => given.cost_optimal()?.into(),
            "packing" => given.packing()?.into(),
            "listed" => return Err(given.refused("lists have no text; expected another rule")),
            name => return Err(given.refused(format!("there is no rule {name:?}; expected {FORMS}"))),
        };
        given.require_read()?;
        Ok(rule)
    }
}

/// The parts of the text of a rule. Options are taken out as they are read.
struct Given<'a> {
    text: &'a str,
    name: &'a str,
    main: Option<&'a str>,
    options: Vec<(&'a str, &'a str)>,
    /// The options that were asked for.
    known: Vec<&'static str>,
}

impl<'a> Given<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let mut parts = text.split(',').map(str::trim);
        let head = parts.next().unwrap_or_default();
        let (name, main) = head.split_once(':').map_or((head, None), |(name, main)| (name, Some(main)));
        let mut given = Self { text, name, main, options: Vec::new(), known: Vec::new() };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(given.refused(format!("{part:?} is no option; expected name=value")));
            };
            if given.options.iter().any(|(known, _)| *known == key) {
                return Err(given.refused(format!("{key} is given twice; expected once")));
            }
            given.options.push((key, value));
        }
        Ok(given)
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        Error::RuleText { text: self.text.to_owned(), reason: reason.into() }
    }

    fn number<T: FromStr>(&self, name: &str, text: &str) -> Result<T> {
        let reason = || format!("{name} is {text:?}; expected a number of at least 0 that is not too large");
        text.parse().map_err(|_| self.refused(reason()))
    }

    /// The number behind the colon.
    fn main(&self) -> Result<u64> {
        match self.main {
            Some(text) => self.number("the number", text),
            None => Err(self.refused(format!("there is no number; expected {}:N", self.name))),
        }
    }

    /// An option, if it is given.
    fn take(&mut self, name: &'static str) -> Option<&'a str> {
        self.known.push(name);
        let place = self.options.iter().position(|(key, _)| *key == name)?;
        Some(self.options.remove(place).1)
    }

    fn take_number<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>> {
        self.take(name).map(|text| self.number(name, text)).transpose()
    }

    /// One of several words.
    fn take_word<T: FromStr<Err = Error>>(&mut self, name: &'static str) -> Result<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: Error| self.refused(error.to_string()))
    }

    fn length_buckets(&mut self) -> Result<LengthBuckets> {
        let rule = LengthBuckets::new(self.main()?)?;
        let rule = with(rule, self.take_word::<Pool>("pool")?, LengthBuckets::pool)?;
        with(rule, self.take_number("multiple_of")?, LengthBuckets::multiple_of)
    }

    fn token_budget(&mut self) -> Result<TokenBudget> {
        let rule = TokenBudget::new(self.main()?)?;
        let rule = with(rule, self.take_word("count")?, |rule, count| Ok(rule.count(count)))?;
        let spread = self.take_number("max_length_spread")?;
        let rule = with(rule, spread, |rule, spread| Ok(rule.max_length_spread(spread)))?;
        let rule = with(rule, self.take_number("max_samples")?, TokenBudget::max_samples)?;
        let rule = with(rule, self.take_number("multiple_of")?, TokenBudget::multiple_of)?;
        let rule = with(rule, self.take_word("oversize")?, |rule, policy| Ok(rule.oversize(policy)))?;
        with(rule, self.take_word::<Pool>("pool")?, TokenBudget::pool)
    }

    fn cost_optimal(&mut self) -> Result<CostOptimal> {
        let mut cost = [0.0; 3];
        for (cost, name) in cost.iter_mut().zip(["fixed", "per_token", "per_pair"]) {
            *cost = self.take_number(name)?.unwrap_or_default();
        }
        let [fixed, per_token, per_pair] = cost;
        let rule = CostOptimal::new(CostModel::new(fixed, per_token, per_pair)?);
        let most = self.main.map(|_| self.main()).transpose()?;
        let rule = with(rule, most, CostOptimal::max_tokens)?;
        let rule = with(rule, self.take_number("max_samples")?, CostOptimal::max_samples)?;
        let rule = with(rule, self.take_number("multiple_of")?, CostOptimal::multiple_of)?;
        let rule = with(rule, self.take_word("oversize")?, |rule, policy| Ok(rule.oversize(policy)))?;
        with(rule, self.take_word::<Pool>("pool")?, CostOptimal::pool)
    }

    fn packing(&mut self) -> Result<Packing> {
        let rule = Packing::new(self.main()?)?;
        let rule = with(rule, self.take_number("max_samples")?, Packing::max_samples)?;
        let rule = with(rule, self.take_word("oversize")?, |rule, policy| Ok(rule.oversize(policy)))?;
        let rule = with(rule, self.take_word::<Pool>("pool")?, Packing::pool)?;
        with(rule, self.take_word("order")?, |rule, order| Ok(rule.order(order)))
    }

    /// Refuses options that the rule does not have.
    fn require_read(&self) -> Result<()> {
        let Some((key, _)) = self.options.first() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "no options".to_owned(),
            known => known.join(", "),
        };
        Err(self.refused(format!("{} has no option {key:?}; expected {known}", self.name)))
    }
}

/// A rule with an option, if that is given.
fn with<R, T>(rule: R, value: Option<T>, set: impl FnOnce(R, T) -> Result<R>) -> Result<R> {
    match value {
        Some(value) => set(rule, value),
        None => Ok(rule),
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
