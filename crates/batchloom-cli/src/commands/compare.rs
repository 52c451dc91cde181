//! `compare`: rules side by side.

use anyhow::{Result, bail};
use batchloom::batching::{Rule, Sizes};
use batchloom::report::{Budget, Comparison};

use crate::arguments::{LengthsSource, Rules};
use crate::output::{Output, columns};
use crate::progress::Progress;
use crate::read::{self, Tables};

pub(super) fn run(
    source: &LengthsSource,
    rules: &Rules,
    tables: &dyn Tables,
    output: &mut Output<'_>,
) -> Result<()> {
    let comparison = compare(&read::sizes(source, tables, &rules.rules)?, rules)?;
    let wide = comparison.to_string();
    let widest = wide.lines().map(str::len).take(comparison.rules.len() + 2).max().unwrap_or(0);
    match columns().is_some_and(|columns| columns < widest) {
        true => Ok(output.result(&comparison, format!("{comparison:#}"))?),
        false => Ok(output.result(&comparison, wide)?),
    }
}

/// Compares the rules that were asked for, or the usual ones.
pub(super) fn compare(sizes: &Sizes, rules: &Rules) -> Result<Comparison> {
    let cost = rules.cost.map(|cost| cost.0);
    let chosen = match rules.rules.as_slice() {
        [] => Comparison::usual_rules(sizes, budget(sizes, rules)?, cost)?,
        rules => rules.to_vec(),
    };
    let progress = Progress::of(chosen.len() as u64, "planning");
    let say = |rule: &Rule| {
        progress.say(rule.to_string());
        progress.add(1);
    };
    Ok(Comparison::new(sizes, &chosen, rules.world_size, cost, say)?)
}

/// The elements of a batch: as many as were given, or as memory holds.
fn budget(sizes: &Sizes, rules: &Rules) -> Result<Budget> {
    let (Some(memory), Some(each)) = (rules.memory, rules.bytes_per_token) else {
        return Ok(rules.max_tokens.map_or(Budget::Usual, Budget::Tokens));
    };
    let tokens = memory.0 / each.0;
    if !(1.0..1e18).contains(&tokens) {
        bail!("the memory holds {tokens:.2} elements; expected at least 1 and less than 10^18");
    }
    let tokens = to_integer(tokens);
    let longest = sizes.as_slice().iter().enumerate().max_by_key(|(_, size)| **size);
    if let Some((sample, &size)) = longest.filter(|(_, size)| u64::from(**size) > tokens) {
        bail!(
            "sample {sample} has {size} elements, and the memory holds {tokens}; expected more --memory, or rules that \
             truncate or drop, given by --rule"
        );
    }
    Ok(Budget::Most(tokens))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with limits before")]
fn to_integer(number: f64) -> u64 {
    number as u64
}
