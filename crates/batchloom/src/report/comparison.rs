//! Rules side by side, on the same lengths: what each costs, and which is best.
//!
//! Rules are compared at about equal tokens a batch, over the same ranks, shuffled with the same seed. The work of a
//! rule is the time of an epoch by a cost model if one is given. Otherwise it is the elements that all ranks compute or
//! wait for: those of the largest batch of each step, times the ranks.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use super::error::ReportCause;
use super::statistics::count_in_words;
use crate::batching::error::BatchingCause;
use crate::batching::{CostModel, CostOptimal, FixedSize, LengthBuckets, Packing, Rule, Sizes, TokenBudget};
use crate::plan::Stats;
use crate::{Plan, Result};

/// The samples of mean length that a batch holds unless a budget is given.
const USUAL: u64 = 64;

/// The multiple to which the rule with few shapes rounds.
const MULTIPLE: u32 = 64;

/// The part of a budget that a batch of the cost-optimal rule costs besides its elements, unless a model is given.
const FIXED_PART: u64 = 16;

/// Work that is this close counts as equal: the simpler rule, which is listed first, is then the better one.
const CLOSE: f64 = 1.005;

/// The elements of a batch of the usual rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Budget {
    /// 64 times the mean length, and at least the longest sample.
    #[default]
    Usual,
    /// So many. Rules of equal numbers of samples hold as many on average, and more where samples are long.
    Tokens(u64),
    /// A limit for every batch, as memory has one: rules of equal numbers of samples fit it with the longest samples.
    Most(u64),
}

/// Rules side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The number of samples.
    pub samples: u64,
    /// The sum of their lengths.
    pub tokens: u64,
    /// The number of ranks.
    pub world_size: u32,
    /// The rules, in the order in which they were given.
    pub rules: Vec<Compared>,
    /// The cost of a batch by which rules are compared; its elements if there is none.
    pub cost: Option<CostModel>,
    /// The place of the best rule.
    pub best: usize,
}

/// A rule, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// The rule.
    pub rule: Rule,
    /// The statistics of its plan.
    pub stats: Stats,
    /// The time of an epoch by the cost model, if one was given.
    pub time: Option<f64>,
    /// The share of the ranks' time that is spent waiting for the slowest of a step: by the cost model if one was
    /// given, and otherwise by elements.
    pub waiting: f64,
    /// The same share where batches are [balanced](crate::plan::PlanOptions::balance) by the cost model. `None` without
    /// a model, or with one rank.
    pub balanced: Option<f64>,
    /// The time that it took to plan the epoch and to measure it.
    #[serde(serialize_with = "seconds")]
    pub planned: Duration,
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl Compared {
    /// The work of an epoch: its time by the cost model, or the elements that all ranks compute or wait for.
    pub fn work(&self) -> f64 {
        let waited = 1.0 - self.waiting;
        self.time.unwrap_or(self.stats.padded as f64 / waited.max(f64::MIN_POSITIVE))
    }

    /// Returns true if every sample is delivered whole.
    pub fn is_whole(&self) -> bool {
        self.stats.dropped == 0 && self.stats.truncated == 0
    }
}

impl Comparison {
    /// Plans an epoch by each rule, one after the other, in the memory of one plan. `progress` is called with each rule
    /// before it is planned.
    ///
    /// ```
    /// use batchloom::batching::Sizes;
    /// use batchloom::report::{Budget, Comparison};
    ///
    /// let sizes = Sizes::new((1..=1000).collect::<Vec<u32>>());
    /// let rules = Comparison::usual_rules(&sizes, Budget::Usual, None)?;
    /// let found = Comparison::new(&sizes, &rules, 4, None, |_| ())?;
    /// assert!(found.rules[found.best].stats.padding < 0.05);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`PlanBuilder::build`](crate::plan::PlanBuilder::build), and [`Kind::Data`](crate::Kind::Data) if
    /// there are no rules to compare.
    pub fn new(
        sizes: &Sizes,
        rules: &[Rule],
        world_size: u32,
        cost: Option<CostModel>,
        mut progress: impl FnMut(&Rule),
    ) -> Result<Self> {
        let compared = |rule: &Rule| {
            progress(rule);
            Compared::new(sizes, rule, world_size, cost)
        };
        let rules = rules.iter().map(compared).collect::<Result<Vec<_>>>()?;
        let best = best(&rules).ok_or(BatchingCause::NoSamples)?;
        Ok(Self { samples: sizes.len(), tokens: sizes.total(), world_size, rules, cost, best })
    }

    /// Every rule, with batches of `budget` elements.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are none, or if a bin would be larger than 2^28.
    pub fn usual_rules(sizes: &Sizes, budget: Budget, cost: Option<CostModel>) -> Result<Vec<Rule>> {
        let samples = sizes.len().max(1);
        let longest = sizes.as_slice().iter().max().map_or(1, |&size| u64::from(size));
        let usual = (sizes.total().div_ceil(samples) * USUAL).max(longest.next_multiple_of(MULTIPLE.into()));
        let (tokens, batch_size) = match budget {
            Budget::Usual => (usual.max(1), None),
            Budget::Tokens(tokens) => (tokens, None),
            Budget::Most(tokens) => (tokens, Some((tokens / longest.max(1)).max(1))),
        };
        let of_mean = (u128::from(tokens) * u128::from(samples) / u128::from(sizes.total().max(1))).max(1);
        let batch_size = batch_size.unwrap_or(u64::try_from(of_mean).unwrap_or(u64::MAX));
        let cost = match cost {
            Some(cost) => cost,
            None => CostModel::new((tokens / FIXED_PART) as f64, 1.0, 0.0)?,
        };
        let mut rules: Vec<Rule> = vec![
            FixedSize::new(batch_size)?.into(),
            LengthBuckets::new(batch_size)?.into(),
            TokenBudget::new(tokens)?.into(),
        ];
        // Rules that cannot be applied to these lengths are left out.
        if tokens >= longest.next_multiple_of(MULTIPLE.into()).max(MULTIPLE.into()) {
            rules.push(TokenBudget::new(tokens)?.multiple_of(MULTIPLE)?.into());
        }
        if sizes.dimensions() == 1 {
            rules.push(CostOptimal::new(cost).max_tokens(tokens)?.into());
            rules.extend(Packing::new(tokens).ok().map(Rule::from));
        }
        Ok(rules)
    }

    /// The best rule and the reason, as one sentence.
    pub fn verdict(&self) -> String {
        let (best, name) = (&self.rules[self.best], self.rules[self.best].rule.to_string());
        let (padding, waits) = (best.stats.padding * 100.0, best.waiting * 100.0);
        let by = if self.is_misleading(best) { " by tokens, which leave out attention" } else { "" };
        let balanced = best.balanced.map(|share| format!(" ({:.1}% with balance)", share * 100.0));
        let balanced = balanced.unwrap_or_default();
        let facts = format!("{padding:.1}% padding, {waits:.1}% waiting{by}{balanced}");
        let worst = self.rules.iter().max_by(|a, b| a.work().total_cmp(&b.work()));
        let against = worst.filter(|worst| worst.work() > best.work() * CLOSE).map(|worst| {
            let times = worst.work() / best.work().max(f64::MIN_POSITIVE);
            format!("; {} takes {times:.1} times the work", worst.rule)
        });
        let lossy = if best.is_whole() { "" } else { "; it loses data, as every rule here does" };
        let padded = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.rule.packs() && (entry.is_whole() || !best.is_whole()));
        let padded =
            padded.min_by(|(_, a), (_, b)| a.work().total_cmp(&b.work())).filter(|_| best.rule.packs());
        let otherwise = padded.map(|(_, entry)| {
            let more = (entry.work() / best.work().max(f64::MIN_POSITIVE) - 1.0) * 100.0;
            format!("; without packing {} is best, with {more:.1}% more work", entry.rule)
        });
        let (against, otherwise) = (against.unwrap_or_default(), otherwise.unwrap_or_default());
        format!("{name} is best: {facts}{against}{lossy}{otherwise}.")
    }
}

impl Comparison {
    /// Returns true if the time that ranks wait is counted by elements, and batches are packs of samples that cost more
    /// the longer they are.
    fn is_misleading(&self, entry: &Compared) -> bool {
        self.cost.is_none() && self.world_size > 1 && entry.rule.packs()
    }

    /// The words that a mark in the table stands for, if there is one.
    pub(super) fn footnote(&self) -> Option<&'static str> {
        let is_marked = self.rules.iter().any(|entry| self.is_misleading(entry));
        is_marked.then_some("* by tokens, without attention: give a cost model to count long samples in full")
    }
}

/// The place of the rule of least work, of those that deliver every sample whole if there are some. Of rules that are
/// close, the first.
fn best(rules: &[Compared]) -> Option<usize> {
    let loses = rules.iter().all(|entry| !entry.is_whole());
    let allowed = || rules.iter().enumerate().filter(move |(_, entry)| loses || entry.is_whole());
    let least = allowed().map(|(_, entry)| entry.work()).min_by(f64::total_cmp)?;
    allowed().find(|(_, entry)| entry.work() <= least * CLOSE).map(|(place, _)| place)
}

impl Compared {
    fn new(sizes: &Sizes, rule: &Rule, world_size: u32, cost: Option<CostModel>) -> Result<Self> {
        let start = Instant::now();
        let planned = || {
            let builder = Plan::builder(sizes.len()).rule(rule.clone()).sizes(sizes.clone()).shuffle(true);
            builder.world_size(world_size)
        };
        let plan = planned().build()?;
        let (stats, time, waiting) = match cost {
            Some(cost) => {
                let (stats, time) = plan.timed_stats(&cost);
                if !time.epoch.is_finite() {
                    return Err(ReportCause::Cost { rule: rule.to_string(), cost: time.epoch }.into());
                }
                (stats, Some(time.epoch), time.waiting)
            }
            None => {
                let stats = plan.stats();
                let waiting = stats.imbalance;
                (stats, None, waiting)
            }
        };
        let planned_in = start.elapsed();
        drop(plan);
        let balanced = cost.filter(|_| world_size > 1).map(|cost| planned().balance(true).cost(cost).build());
        let balanced = balanced.transpose()?.map(|plan| plan.stats().imbalance);
        Ok(Self { rule: rule.clone(), stats, time, waiting, balanced, planned: planned_in })
    }
}

/// The columns of the table, each with its meaning.
const COLUMNS: [(&str, &str); 11] = [
    ("steps", "steps of the rank that has most"),
    ("padding", "share of padding in what is computed"),
    (
        "waiting",
        "share of the ranks' time spent waiting for the costliest batch of a step, by the cost model or by tokens",
    ),
    ("balanced", "the same share if batches of a step are chosen by the cost model"),
    ("shapes", "distinct shapes of batches"),
    ("largest", "elements of the largest batch"),
    ("full", "how full batches are, where the rule limits them"),
    ("mates", "share of batch mates that stay together in the next epoch"),
    ("lost", "samples dropped or cut short"),
    ("work", "time by the cost model, or elements computed or waited for, as a multiple of the best rule's"),
    ("planned", "time to plan the epoch, in milliseconds"),
];

impl Comparison {
    /// The columns of the table and what they mean.
    pub fn columns() -> Vec<(&'static str, &'static str)> {
        COLUMNS.to_vec()
    }

    /// The cells of the table, a row for each rule, in the order of the columns.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let best = self.rules[self.best].work().max(f64::MIN_POSITIVE);
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let maybe = |share: Option<f64>| share.map_or("-".to_owned(), percent);
        let row = |entry: &Compared| {
            let stats = &entry.stats;
            vec![
                stats.steps.to_string(),
                percent(stats.padding),
                format!("{}{}", percent(entry.waiting), if self.is_misleading(entry) { "*" } else { "" }),
                maybe(entry.balanced),
                stats.shapes.to_string(),
                stats.largest.to_string(),
                maybe(stats.efficiency),
                maybe(stats.mates_kept),
                (stats.dropped + stats.truncated).to_string(),
                format!("{:.2}", entry.work() / best),
                entry.planned.as_millis().to_string(),
            ]
        };
        self.rules.iter().map(row).collect()
    }
}

/// Prints a table with a row for each rule, and the verdict. Numbers are first, as rules may be long; with `{:#}` each
/// rule has a separate line, for terminals of 80 columns.
impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, tokens) =
            (count_in_words(self.samples, "sample"), count_in_words(self.tokens, "token"));
        let ranks = count_in_words(self.world_size.into(), "rank");
        let cost = self.cost.map(|cost| format!(", cost {cost}")).unwrap_or_default();
        writeln!(formatter, "{samples}, {tokens}, {ranks}{cost}")?;
        let cells = self.cells();
        let width = |column: usize| {
            let widest = cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
            widest.max(COLUMNS[column].0.len())
        };
        let line = |cells: Vec<&str>, rule: &str| {
            let cells = cells.iter().enumerate().map(|(column, cell)| format!("{cell:>0$}", width(column)));
            let cells = cells.collect::<Vec<_>>().join(" ");
            match formatter.alternate() {
                true => format!("{rule}\n{cells}"),
                false => format!("{cells}  {rule}"),
            }
        };
        let mut lines = vec![line(COLUMNS.map(|(name, _)| name).to_vec(), "rule")];
        for (row, entry) in cells.iter().zip(&self.rules) {
            lines.push(line(row.iter().map(String::as_str).collect(), &entry.rule.to_string()));
        }
        lines.extend(self.footnote().map(str::to_owned));
        writeln!(formatter, "{}\n", lines.join("\n"))?;
        writeln!(formatter, "{}", self.verdict())
    }
}
