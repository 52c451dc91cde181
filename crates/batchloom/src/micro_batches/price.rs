//! Costs as integers, so that sums do not depend on their order, nor an answer on the platform.

use crate::batching::CostModel;

/// The largest sum of costs, as a power of two: sums and differences of costs, and levels, fit 64 bits.
const MOST_BITS: u32 = 60;

/// The tokens of some samples, and the sum of the squares of their lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) tokens: u64,
    pub(super) squares: u128,
}

impl Moments {
    pub(super) fn add(&mut self, length: u64) {
        self.tokens += length;
        self.squares += u128::from(length) * u128::from(length);
    }
}

/// A cost model whose largest coefficient is 1, so that no cost is infinite.
#[derive(Debug, Clone, Copy)]
pub(super) struct Price {
    fixed: f64,
    per_token: f64,
    per_pair: f64,
}

impl Price {
    pub(super) fn new(model: CostModel) -> Self {
        let largest = model.fixed().max(model.per_token()).max(model.per_pair());
        Self {
            fixed: model.fixed() / largest,
            per_token: model.per_token() / largest,
            per_pair: model.per_pair() / largest,
        }
    }

    /// The cost of a micro-batch.
    pub(super) fn of_batch(&self, moments: Moments) -> f64 {
        self.fixed + self.of_samples(moments)
    }

    /// The cost that samples add to a micro-batch.
    pub(super) fn of_samples(&self, moments: Moments) -> f64 {
        let linear = self.per_token * moments.tokens as f64;
        linear + self.per_pair * moments.squares as f64
    }

    /// The cost of any micro-batch, whatever it contains.
    pub(super) fn fixed(&self) -> f64 {
        self.fixed
    }
}

/// Costs in a unit in which their sum has about 60 bits; all are 1 if all costs are 0. A cost above 0 stays above 0.
pub(super) fn in_integers(costs: &[f64]) -> Vec<u64> {
    let total: f64 = costs.iter().sum();
    if total <= 0.0 {
        return vec![1; costs.len()];
    }
    let scale = power_of_two(i64::from(MOST_BITS) - exponent(total));
    costs.iter().map(|&cost| if cost > 0.0 { round(cost * scale).max(1) } else { 0 }).collect()
}

/// The power of two below a number above 0.
fn exponent(number: f64) -> i64 {
    i64::from(u32::try_from(number.to_bits() >> 52).unwrap_or(0)) - 1023
}

/// A power of two, as far as floats have them. It is put together of bits: functions of platforms may round.
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(u64::try_from(exponent.clamp(-1022, 1023) + 1023).unwrap_or(0) << 52)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, and below 2^62")]
fn round(number: f64) -> u64 {
    number as u64
}
