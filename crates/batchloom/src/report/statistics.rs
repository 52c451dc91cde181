//! The statistics of a plan as names, values and what they mean: said once, for every place that shows them.

use std::fmt;

use crate::batching::Cost;
use crate::plan::{BudgetFill, BudgetStats, ChunkStats, Stats};

/// One statistic of a plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statistic {
    /// The name, the same as the field of [`Stats`].
    pub name: &'static str,
    /// The value.
    pub value: Value,
    /// The meaning, in a few words.
    pub meaning: &'static str,
}

/// The value of a statistic. It prints as people read it: `12,345`, `1.25%`, `+0.500`, or `-` where there is no value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// A share of 1.
    Share(f64),
    /// A number between -1 and 1.
    Correlation(f64),
    /// A multiple of something.
    Multiple(f64),
    /// The cost of a batch by which another statistic counts.
    Cost(Cost),
    /// The name of a thing.
    Name(String),
    /// The contents of batches by each of several budgets.
    Budgets(Vec<BudgetFill>),
    /// No value: the plan has no such statistic.
    Absent,
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Count(number) => group_digits(*number),
            Self::Share(share) => format!("{:.2}%", share * 100.0),
            Self::Correlation(number) => format!("{number:+.3}"),
            Self::Multiple(number) => format!("{number:.2}"),
            Self::Cost(cost) => cost.to_string(),
            Self::Name(name) => name.clone(),
            Self::Budgets(budgets) => name_fills(budgets),
            Self::Absent => "-".to_owned(),
        };
        formatter.pad(&text)
    }
}

impl Stats {
    /// The statistics with their meanings, in the order of the fields. Statistics of budgets and of chunks are left out if
    /// there are none.
    ///
    /// ```
    /// use batchloom::Plan;
    ///
    /// let plan = Plan::builder(12_345).batch_size(64).build()?;
    /// let samples = &plan.stats().statistics()[0];
    /// assert_eq!((samples.name, samples.value.to_string()), ("samples", "12,345".to_owned()));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn statistics(&self) -> Vec<Statistic> {
        let share = |share: Option<f64>| share.map_or(Value::Absent, Value::Share);
        let correlation = self.length_correlation.map_or(Value::Absent, Value::Correlation);
        let all = [
            ("samples", Value::Count(self.samples), "samples of the epoch"),
            ("tokens", Value::Count(self.tokens), "their elements"),
            ("batches", Value::Count(self.batches), "batches over all ranks, repeated ones included"),
            ("steps", Value::Count(self.steps), "steps of the rank that has most"),
            ("world_size", Value::Count(self.world_size.into()), "ranks"),
            ("real", Value::Count(self.real), "elements delivered that are data"),
            ("padded", Value::Count(self.padded), "elements delivered, padding included"),
            ("padding", Value::Share(self.padding), "share of padding"),
            ("efficiency", share(self.efficiency), "how full batches are, where the rule limits them"),
            ("shapes", Value::Count(self.shapes), "distinct shapes of batches"),
            (
                "dropped",
                Value::Count(self.dropped),
                "samples left out by drop_last, or for their size or their keys",
            ),
            ("dropped_tokens", Value::Count(self.dropped_tokens), "their elements"),
            ("banned", Value::Count(self.banned), "samples without weight, because they are banned"),
            ("banned_tokens", Value::Count(self.banned_tokens), "their elements"),
            ("truncated", Value::Count(self.truncated), "samples cut short"),
            ("truncated_tokens", Value::Count(self.truncated_tokens), "elements that this cost"),
            ("split", Value::Count(self.split), "samples delivered in several parts"),
            ("repeated", Value::Count(self.repeated), "samples delivered again to fill the last step"),
            ("repeated_tokens", Value::Count(self.repeated_tokens), "their elements"),
            ("earlier", Value::Count(self.earlier), "samples delivered in earlier parts of the epoch"),
            ("earlier_tokens", Value::Count(self.earlier_tokens), "their elements"),
            ("tail", Value::Count(self.tail), "elements of a stream that are in no sample"),
            ("largest", Value::Count(self.largest), "elements of the largest batch"),
            (
                "imbalance",
                Value::Share(self.imbalance),
                "share of all ranks' time spent waiting for the costliest batch of a step, or once an update",
            ),
            (
                "imbalance_cost",
                Value::Cost(self.imbalance_cost),
                match self.imbalance_cost {
                    Cost::Elements => "the cost of a batch that imbalance counts: tokens leave out attention",
                    Cost::Model(_) => "the cost of a batch that imbalance counts",
                },
            ),
            (
                "step_spread",
                self.step_spread.map_or(Value::Absent, Value::Multiple),
                "how much steps, or updates, differ in the sizes of their samples, as a multiple of random ones",
            ),
            (
                "mates_kept",
                share(self.mates_kept),
                "share of batch mates that stay together in the next epoch",
            ),
            ("length_correlation", correlation, "rank correlation of the size of batches with their step"),
        ];
        let of_budgets = self.budgets.as_ref().map(name_budget_stats);
        let all = all.into_iter().chain(of_budgets.into_iter().flatten());
        let of_chunks = self.chunks.map(|chunks| name_chunk_stats(&chunks));
        let all = all.chain(of_chunks.into_iter().flatten());
        all.map(|(name, value, meaning)| Statistic { name, value, meaning }).collect()
    }
}

/// The statistics of budgets, with their meanings.
fn name_budget_stats(stats: &BudgetStats) -> [(&'static str, Value, &'static str); 4] {
    [
        ("budgets", Value::Budgets(stats.budgets.clone()), "how full batches are by each budget"),
        ("binding", Value::Name(stats.binding.clone()), "the budget of which batches are fullest"),
        ("binding_fill", Value::Share(stats.binding_fill), "how full batches are by that budget"),
        ("lp_bound", Value::Count(stats.lp_bound), "batches that the same samples need at least"),
    ]
}

/// The fill of each budget, as people read it.
fn name_fills(budgets: &[BudgetFill]) -> String {
    let fills = budgets.iter().map(|budget| format!("{} {:.1}%", budget.name, budget.fill * 100.0));
    fills.collect::<Vec<_>>().join(", ")
}

/// The statistics of chunks, with their meanings.
fn name_chunk_stats(chunks: &ChunkStats) -> [(&'static str, Value, &'static str); 3] {
    let pairs = chunks.pairs_of_one_chunk.map_or(Value::Absent, Value::Share);
    [
        ("chunks_open", Value::Count(chunks.chunks_open), "chunks that are open at a time"),
        ("chunks_read", Value::Count(chunks.chunks_read), "chunks that all ranks together read"),
        ("pairs_of_one_chunk", pairs, "share of the pairs of samples in a batch that are of one chunk"),
    ]
}

/// A number of things in words: `1 sample`, `12,345 samples`.
pub(super) fn count_in_words(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", group_digits(number))
}

/// A number with a comma before every third digit.
pub(super) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
