//! `Weights`: how often samples are drawn, relative to each other.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::error::DrawsCause;
use crate::{Result, memory};

/// The number of bits that the sum of all units fits.
const BITS: i32 = 62;

/// The weights of samples: a sample of weight 2 is drawn twice as often as one of weight 1, and one of weight 0 never.
///
/// Weights are kept as whole numbers of a unit, about 2^-62 of their sum, so that what is drawn is the same on every
/// platform. Eight bytes a sample.
///
/// ```
/// use batchloom::draws::Weights;
/// use batchloom::Plan;
///
/// let weights = Weights::new(&[1.0, 0.0, 3.0])?;
/// let plan = Plan::builder(3).weights(weights).num_samples(400).shuffle(true).batch_size(400).build()?;
/// let drawn = plan.indices(0, 0)?;
/// assert_eq!(drawn.iter().filter(|&&sample| sample == 2).count(), 300);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Weights {
    /// The units before each sample, and of all samples.
    before: Arc<[u64]>,
    digest: u128,
}

crate::brief::debug_in_brief!(Weights, [], [before]);

impl Weights {
    /// One weight for each sample.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if one is negative, infinite or not a number, or none is above 0;
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn new(weights: &[f64]) -> Result<Self> {
        let total = checked_sum(weights, "sample")?;
        memory::require_each(weights.len() + 1, 4 * size_of::<u64>())?;
        // A power of two keeps the ratios of weights as they are.
        let power = BITS - 1 - exponent(total);
        let mut sum = 0_u64;
        let units = weights.iter().map(|&weight| {
            sum = sum.saturating_add(units(scale(weight, power)));
            sum
        });
        let before: Arc<[u64]> = std::iter::once(0).chain(units).collect();
        let digest = xxh3_128(bytemuck::cast_slice(&before));
        Ok(Self { before, digest })
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.before.len() as u64 - 1
    }

    /// Returns true if there are no samples, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A name for the weights, of 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }

    /// The units before each sample, and of all samples.
    #[doc(hidden)]
    pub fn units(&self) -> &[u64] {
        &self.before
    }

    /// The weights that have these [`units`](Self::units), written down and read again.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if they decrease or do not begin with 0.
    #[doc(hidden)]
    pub fn of_units(before: Vec<u64>) -> Result<Self> {
        match before.first() == Some(&0) && before.is_sorted() && before.last() > Some(&0) {
            true => {
                let digest = xxh3_128(bytemuck::cast_slice(&before));
                Ok(Self { before: before.into(), digest })
            }
            false => {
                let (first, last) = (before.first().copied(), before.last().copied());
                Err(DrawsCause::Units { first, last }.into())
            }
        }
    }

    /// The units of all samples.
    pub(super) fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// The units of a sample, which lie between the units of its neighbours.
    pub(super) fn of(&self, sample: u64) -> Range<u64> {
        let index = usize::try_from(sample).unwrap_or(usize::MAX);
        self.before[index]..self.before[index + 1]
    }

    /// The sample that a unit belongs to.
    pub(super) fn sample(&self, unit: u64) -> u64 {
        self.before.partition_point(|&before| before <= unit) as u64 - 1
    }
}

/// The weights of sources as whole numbers below 2^32, in the same ratios: to 2^-32 of the largest, and exactly for
/// whole numbers below 2^32. A weight above 0 stays above 0.
///
/// # Errors
/// As [`Weights::new`].
pub(super) fn ratios(weights: &[f64]) -> Result<Arc<[u32]>> {
    checked_sum(weights, "source")?;
    let most = weights.iter().copied().fold(0.0, f64::max);
    let power = 31 - exponent(most);
    let ratio = |&weight: &f64| u32::try_from(units(scale(weight, power))).unwrap_or(u32::MAX);
    Ok(weights.iter().map(ratio).collect())
}

/// The sum of weights that are all finite, not negative, and not all 0.
fn checked_sum(weights: &[f64], of: &'static str) -> Result<f64> {
    let wrong = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0));
    if let Some(place) = wrong {
        return Err(DrawsCause::Weight { of, place, weight: weights[place] }.into());
    }
    let total = weights.iter().fold(0.0, |total, weight| total + weight);
    match total > 0.0 && total.is_finite() {
        true => Ok(total),
        false => Err(DrawsCause::WeightSum { of, count: weights.len(), total }.into()),
    }
}

/// The largest power of two that is at most `number`, which is above 0.
fn exponent(number: f64) -> i32 {
    let guess = number.log2().floor().clamp(-1022.0, 1023.0);
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of few digits")]
    let guess = guess as i32;
    if 2_f64.powi(guess) > number { guess - 1 } else { guess }
}

/// A weight times a power of two, which may itself be too large for a float.
fn scale(weight: f64, power: i32) -> f64 {
    weight * 2_f64.powi(power / 2) * 2_f64.powi(power - power / 2)
}

/// A weight as a number of units: at least one for a weight above 0.
fn units(weight: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0 and below 2^62, by the scale"
    )]
    let rounded = weight.round() as u64;
    if weight > 0.0 { rounded.max(1) } else { 0 }
}
