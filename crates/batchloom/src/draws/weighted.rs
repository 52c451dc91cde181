//! `Weighted`: draws with replacement, in proportion to weights.
//!
//! All units of weight are divided in as many equal stretches as there are draws, and a point is drawn at random in
//! each (stratified sampling). So the expected number of draws of a sample is its share exactly, the actual number is
//! less than two more or fewer, and the stretches that it may be drawn in are known. A keyed permutation puts the draws
//! in random order.

use super::weights::Weights;
use crate::order::{Key, Order, Purpose};
use rand::Rng;

/// The draws of an epoch.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    weights: Weights,
    /// The draw at each position.
    order: Order,
    /// The numbers that the points depend on.
    salt: [u64; 2],
}

impl Weighted {
    /// `draws` draws of an epoch, in random order.
    pub(crate) fn new(weights: Weights, draws: u64, seed: u64, epoch: u64) -> Self {
        let order = Order::new(draws, Some(&Key::new(seed, epoch, Purpose::Samples)));
        let mut stream = Key::new(seed, epoch, Purpose::Weights).stream();
        let salt = [stream.next_u64(), stream.next_u64()];
        Self { weights, order, salt }
    }

    /// The number of draws.
    pub(super) fn len(&self) -> u64 {
        self.order.len()
    }

    /// Writes the samples at some positions.
    pub(super) fn fill(&self, start: u64, out: &mut [u64]) {
        self.order.fill(start, out);
        out.iter_mut().for_each(|draw| *draw = self.weights.sample(self.point(*draw)));
    }

    /// The positions of a sample, in no order.
    pub(super) fn find(&self, sample: u64) -> Vec<u64> {
        let units = self.weights.of(sample);
        let (total, draws) = (u128::from(self.weights.total()), u128::from(self.len()));
        let stretch = |unit: u64| u64::try_from(u128::from(unit) * draws / total).unwrap_or(u64::MAX);
        if units.is_empty() || draws == 0 {
            return Vec::new();
        }
        let stretches = stretch(units.start)..=stretch(units.end - 1).min(self.len() - 1);
        let drawn = stretches.filter(|&draw| units.contains(&self.point(draw)));
        drawn.map(|draw| self.order.find(draw)).collect()
    }

    /// The unit that a draw takes: a random one of its stretch.
    fn point(&self, draw: u64) -> u64 {
        let (total, draws) = (u128::from(self.weights.total()), u128::from(self.len()));
        let share = (total * u128::from(scramble(draw ^ self.salt[0], self.salt[1]))) >> 64;
        u64::try_from((u128::from(draw) * total + share) / draws).unwrap_or(u64::MAX)
    }
}

/// A number that looks random, computed from `number` and `salt` (the finaliser of `SplitMix64`, twice: Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", 2014).
fn scramble(number: u64, salt: u64) -> u64 {
    [salt, salt.rotate_left(32)].into_iter().fold(number, |number, salt| {
        let number = number.wrapping_add(salt).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    })
}
