//! Parts of a split: the places at which they end, from shares, places, or places in each of several series.
//!
//! Shares are exact. They are added as fractions, and a sum is taken as it is meant: 0.7 is seven tenths and 2 / 3 two
//! thirds, not the floats next to them. So parts of 0.7, 0.2 and 0.1 leave no step out.

use std::cmp::Ordering;

use super::error::SelectionCause;
use crate::Result;

/// The end of one part of a time split. A part begins where the previous one ends.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PartEnd {
    /// The part holds this share of each series: above 0, and at most 1 with the shares of the parts before.
    Share(f64),
    /// The part ends before this step, in each series; series that are shorter end before.
    Step(i64),
    /// The part ends before another step in each series, as one time lies at different steps of them.
    Steps(Vec<usize>),
    /// The part holds the rest. Only the last part may.
    Rest,
}

/// Returns the step at which each part ends, in each series of these lengths.
///
/// ```
/// use batchloom::dataset::{PartEnd, borders};
///
/// let parts = [("train", PartEnd::Share(0.7)), ("val", PartEnd::Share(0.1)), ("test", PartEnd::Share(0.2))];
/// assert_eq!(borders(&[10, 101], &parts)?, [[7, 70], [8, 80], [10, 101]]);
/// # Ok::<(), batchloom::Error>(())
/// ```
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if there is no part, if a part before the last takes the rest, if a share
/// or a step is out of range, if a part ends before the previous one, or if there is not one step for each series.
pub fn borders(lengths: &[usize], parts: &[(&str, PartEnd)]) -> Result<Vec<Vec<usize>>> {
    Ok(ends(lengths, parts)?)
}

/// The same, with the cause of the error as a value.
pub(super) fn ends(
    lengths: &[usize],
    parts: &[(&str, PartEnd)],
) -> std::result::Result<Vec<Vec<usize>>, SelectionCause> {
    if parts.is_empty() {
        return Err(SelectionCause::NoParts);
    }
    let mut total = Total::default();
    let mut ends: Vec<Vec<usize>> = Vec::with_capacity(parts.len());
    for (place, (name, end)) in parts.iter().enumerate() {
        let part = || (*name).to_owned();
        let stops = match end {
            PartEnd::Share(share) => {
                total = total.plus(*share).filter(|total| total.is_at_most_one()).ok_or_else(|| {
                    SelectionCause::PartShare {
                        part: part(),
                        share: number(*share),
                        total: number(total.to_f64() + share),
                    }
                })?;
                lengths.iter().map(|&length| total.of(length)).collect()
            }
            PartEnd::Step(step) => at_step(name, *step, lengths)?,
            PartEnd::Steps(steps) => in_each(name, steps, lengths)?,
            PartEnd::Rest if place + 1 < parts.len() => {
                return Err(SelectionCause::RestBeforeLast { part: part() });
            }
            PartEnd::Rest => lengths.to_vec(),
        };
        let ends_early =
            |previous: &Vec<usize>| previous.iter().zip(&stops).any(|(start, stop)| stop < start);
        if ends.last().is_some_and(ends_early) {
            return Err(SelectionCause::PartOrder { part: part() });
        }
        ends.push(stops);
    }
    Ok(ends)
}

/// The steps at which the parts of the hourly ETT sets end in publications: 12, 4 and 4 months of 30 days.
pub const ETT_HOUR: [i64; 3] = [8640, 11_520, 14_400];

/// The same for the ETT sets with a step every 15 minutes.
pub const ETT_MINUTE: [i64; 3] = [34_560, 46_080, 57_600];

/// The ends of a first, a middle and a last part as the Time-Series-Library counts them: the first and the last hold
/// their share of each series, a float product that is truncated, and the middle one holds what is left.
///
/// ```
/// use batchloom::dataset::{PartEnd, tslib_ends};
///
/// let [train, val, _] = tslib_ends(&[1001], [("train", 0.7), ("val", 0.1), ("test", 0.2)])?;
/// assert_eq!((train, val), (PartEnd::Steps(vec![700]), PartEnd::Steps(vec![801]))); // 801 of 1001: 200 are left
/// # Ok::<(), batchloom::Error>(())
/// ```
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) for a share that is not above 0 and at most 1, or if shares do not sum to
/// 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length that is a usize"
)]
pub fn tslib_ends(lengths: &[usize], shares: [(&str, f64); 3]) -> Result<[PartEnd; 3]> {
    let total: f64 = shares.iter().map(|(_, share)| share).sum();
    for (part, share) in shares {
        if !(share > 0.0 && share <= 1.0) || (total - 1.0).abs() > 1e-6 {
            let (part, share, total) = (part.to_owned(), number(share), number(total));
            return Err(SelectionCause::PartShare { part, share, total }.into());
        }
    }
    let truncated = |share: f64| move |&length: &usize| (length as f64 * share) as usize;
    let first = lengths.iter().map(truncated(shares[0].1)).collect();
    let last = lengths.iter().zip(lengths.iter().map(truncated(shares[2].1)));
    let middle = last.map(|(&length, last)| length.saturating_sub(last)).collect();
    Ok([PartEnd::Steps(first), PartEnd::Steps(middle), PartEnd::Rest])
}

fn at_step(part: &str, step: i64, lengths: &[usize]) -> std::result::Result<Vec<usize>, SelectionCause> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    match usize::try_from(step) {
        Ok(step) if (1..=longest).contains(&step) => {
            Ok(lengths.iter().map(|&length| length.min(step)).collect())
        }
        _ => Err(SelectionCause::PartStep { part: part.to_owned(), step, longest }),
    }
}

fn in_each(
    part: &str,
    steps: &[usize],
    lengths: &[usize],
) -> std::result::Result<Vec<usize>, SelectionCause> {
    let part = part.to_owned();
    if steps.len() != lengths.len() {
        let (series, expected) = (steps.len(), lengths.len());
        return Err(SelectionCause::PartSteps { part, found: series, expected });
    }
    if let Some(series) = steps.iter().zip(lengths).position(|(step, length)| step > length) {
        let (step, length) = (steps[series], lengths[series]);
        return Err(SelectionCause::PartSeries { part, step, series, length });
    }
    Ok(steps.to_vec())
}

/// A number as data has it: 0.7, nan, inf.
fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    let shown = if (value - rounded).abs() < 1e-9 { rounded } else { value };
    format!("{shown:?}").to_lowercase()
}

/// The largest denominator of a simple fraction. A share near a simple fraction is taken to mean that fraction.
const MOST_DENOMINATOR: u128 = 1_000_000;

/// The inverse of the distance below which a share is near a fraction.
const NEAR: u128 = 10_000_000;

/// The number of binary digits with which shares are added. A float that is near no simple fraction is at least `1 /
/// NEAR`, and so has no more.
const DIGITS: u32 = 80;

/// A sum of shares: `numerator / (denominator * 2^DIGITS)`, with a small denominator.
#[derive(Debug, Clone, Copy)]
struct Total {
    numerator: u128,
    denominator: u128,
}

impl Default for Total {
    fn default() -> Self {
        Self { numerator: 0, denominator: 1 }
    }
}

impl Total {
    /// The sum with one more share, as meant, or `None` if the share is not above 0 and at most 1.
    fn plus(self, share: f64) -> Option<Self> {
        if !(share > 0.0 && share <= 1.0) {
            return None;
        }
        let numerator = self.numerator + digits(share) * self.denominator;
        Some(Self { numerator, ..self }.simplify())
    }

    /// The simple fraction that this is near to, or itself.
    fn simplify(self) -> Self {
        let whole = self.denominator << DIGITS;
        let (above, below) = nearest_fraction(self.numerator, whole);
        let distance = (above * whole).abs_diff(self.numerator * below);
        match distance.saturating_mul(NEAR) < below * whole {
            true => Self { numerator: above << DIGITS, denominator: below },
            false => self,
        }
    }

    fn is_at_most_one(&self) -> bool {
        self.numerator <= self.denominator << DIGITS
    }

    /// This share of `length` steps, rounded down.
    fn of(&self, length: usize) -> usize {
        // The product has more than 128 bits: the lower half of the numerator is multiplied apart.
        let (high, low, length) =
            (self.numerator >> 64, self.numerator & u128::from(u64::MAX), length as u128);
        let steps = ((high * length + ((low * length) >> 64)) >> (DIGITS - 64)) / self.denominator;
        usize::try_from(steps).unwrap_or(usize::MAX)
    }

    fn to_f64(self) -> f64 {
        self.numerator as f64 / 2_f64.powi(DIGITS.cast_signed()) / self.denominator as f64
    }
}

/// A share above 0, at most 1, in units of `2^-DIGITS`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at least 0 and at most 2^DIGITS"
)]
fn digits(share: f64) -> u128 {
    (share * 2_f64.powi(DIGITS.cast_signed())) as u128
}

/// The fraction nearest to `numerator / denominator` with a denominator of at most `MOST_DENOMINATOR`, by its continued
/// fraction.
fn nearest_fraction(numerator: u128, denominator: u128) -> (u128, u128) {
    let (mut rest, mut divisor) = (numerator, denominator);
    let (mut last, mut now) = ((0, 1), (1, 0));
    while divisor > 0 {
        let quotient = rest / divisor;
        if quotient.saturating_mul(now.1).saturating_add(last.1) > MOST_DENOMINATOR {
            break;
        }
        (last, now) = (now, (last.0 + quotient * now.0, last.1 + quotient * now.1));
        (rest, divisor) = (divisor, rest % divisor);
    }
    if divisor == 0 {
        return now;
    }
    let steps = (MOST_DENOMINATOR - last.1) / now.1;
    let other = (last.0 + steps * now.0, last.1 + steps * now.1);
    // `now` is as near as `other` unless its distance, `divisor / (now.1 * denominator)`, is the larger one.
    let twice = divisor.saturating_mul(2 * other.1);
    if twice.cmp(&denominator) == Ordering::Greater { other } else { now }
}
