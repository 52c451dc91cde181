//! Lengths in text: a number, or something that has a length, on each line.

use std::io::BufRead;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::length;
use crate::arguments::Count;

/// Reads lines of text. Empty lines at the end are no samples, if lines are numbers.
pub(super) fn lines(file: impl BufRead, count: Count) -> Result<Vec<u32>> {
    let mut lengths = Vec::new();
    let mut blank = None;
    for (place, line) in (1_u64..).zip(file.lines()) {
        let line = line.with_context(|| format!("line {place}"))?;
        let line = line.trim_start_matches('\u{feff}');
        match count {
            Count::Numbers if line.trim().is_empty() => {
                blank.get_or_insert(place);
                continue;
            }
            Count::Numbers => {
                if let Some(place) = blank {
                    bail!("line {place} is empty; expected a number");
                }
                lengths.push(number(line, place)?);
            }
            count => lengths.push(length(count_units(line, count), || format!("line {place}"))?),
        }
    }
    Ok(lengths)
}

fn number(line: &str, place: u64) -> Result<u32> {
    let text = line.trim();
    let shown: String = text.chars().take(40).collect();
    let number: i128 = text.parse().map_err(|_| {
        anyhow!(
            "line {place} is {shown:?}; expected a number, or --count words or characters for lines of text"
        )
    })?;
    length(number, || format!("line {place}"))
}

fn count_units(text: &str, count: Count) -> usize {
    match count {
        Count::Words => text.split_whitespace().count(),
        Count::Numbers | Count::Characters => text.chars().count(),
    }
}

/// Reads lines of JSON: numbers, lists or texts, or objects that hold one under `column`.
pub(super) fn json_lines(file: impl BufRead, column: Option<&str>, count: Count) -> Result<Vec<u32>> {
    let mut lengths = Vec::new();
    for (place, line) in (1_u64..).zip(file.lines()) {
        let line = line.with_context(|| format!("line {place}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let value: Value =
            serde_json::from_str(&line).map_err(|error| anyhow!("line {place} is not JSON: {error}"))?;
        let value = match (&value, column) {
            (Value::Object(fields), Some(column)) => fields.get(column).ok_or_else(|| {
                let names: Vec<_> = fields.keys().map(String::as_str).collect();
                anyhow!("line {place} {}", super::columns::describe_missing(column, &names))
            })?,
            (Value::Object(fields), None) => {
                let names: Vec<_> = fields.keys().map(String::as_str).collect();
                bail!("line {place} is an object; expected --column, one of {}", names.join(", "))
            }
            (_, Some(column)) => {
                bail!("line {place} is not an object; expected one with {column:?}, or no --column")
            }
            (value, None) => value,
        };
        let named = || format!("line {place}");
        lengths.push(match value {
            Value::Number(number) => match number.as_i128() {
                Some(number) => length(number, named)?,
                None => bail!("line {place} is {number}; expected a whole number"),
            },
            Value::Array(items) => length(items.len(), named)?,
            Value::String(text) => length(count_units(text, count), named)?,
            Value::Null => bail!("line {place} is null; expected a number, a list or a text"),
            _ => bail!("line {place} is neither a number, a list nor a text"),
        });
    }
    Ok(lengths)
}
