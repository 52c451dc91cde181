//! `microbatches`: samples in hand, divided among ranks and into micro-batches.

use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use batchloom::micro_batches::{MicroBatchPlanner, MicroBatches, Rollouts};

use crate::arguments::{LengthsSource, MicroBatchOptions};
use crate::output::{Output, count_in_words};
use crate::read::{self, Tables};

pub(super) fn run(
    source: &LengthsSource,
    options: &MicroBatchOptions,
    tables: &dyn Tables,
    output: &mut Output<'_>,
) -> Result<()> {
    let lengths = read::lengths(source, tables)?;
    let planned = planner(options).plan(&Rollouts::new(&lengths))?;
    Ok(output.result(&planned, Summary { planned: &planned, max_tokens: options.max_tokens })?)
}

fn planner(options: &MicroBatchOptions) -> MicroBatchPlanner {
    let mut planner = MicroBatchPlanner::new(options.world_size, options.max_tokens)
        .multiple_of(options.multiple_of)
        .least(options.least)
        .count_multiple_of(options.count_multiple_of)
        .equal_samples(options.equal_samples)
        .sync(options.sync)
        .oversize(options.oversize)
        .order(options.order);
    if let Some(cost) = options.cost {
        planner = planner.cost(cost.0);
    }
    if let Some(samples) = options.max_samples {
        planner = planner.max_samples(samples);
    }
    if let Some(count) = options.exactly {
        planner = planner.count(count);
    }
    planner
}

/// A plan in a few lines.
struct Summary<'a> {
    planned: &'a MicroBatches,
    max_tokens: u64,
}

impl Display for Summary<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { planned, max_tokens } = *self;
        let fillers = planned.weight.iter().filter(|weight| **weight == 0.0).count() as u64;
        let samples = planned.index.len() as u64 - fillers;
        let tokens: u64 = planned.padded_tokens.iter().sum();
        let room = u128::from(max_tokens) * planned.tokens.len() as u128;
        let full = if room > 0 { 100.0 * tokens as f64 / room as f64 } else { 0.0 };
        let named = |number: usize, what: &str| match number {
            0 => String::new(),
            _ => format!(", {} {what}", count_in_words(number as u64, "sample")),
        };
        writeln!(
            formatter,
            "{}, {tokens} tokens on {}{}{}",
            count_in_words(samples, "sample"),
            count_in_words(u64::from(planned.world_size), "rank"),
            named(planned.dropped.len(), "dropped"),
            named(planned.left.len(), "left"),
        )?;
        write!(formatter, "{} on each rank, {full:.1}% full", count_in_words(planned.count, "micro-batch"))?;
        if fillers > 0 {
            write!(formatter, ", {fillers} filled up at weight 0")?;
        }
        writeln!(
            formatter,
            "\nranks wait {:.2}% of the time, and at least {:.2}% with as many micro-batches",
            100.0 * planned.imbalance,
            100.0 * planned.bound
        )
    }
}
