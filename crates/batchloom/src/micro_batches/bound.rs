//! The least time of any plan: what the samples themselves force.

use super::options::SyncEvery;
use super::price::{Moments, Price};

/// The least cost of all micro-batches in turn, for samples of these rounded lengths, class by class, without the fixed
/// cost of micro-batches. `max_tokens` is the cap; `largest` the greatest cost that one rank must take.
pub(super) fn bound_duration(
    classes: Vec<Vec<u64>>,
    price: &Price,
    sync: SyncEvery,
    (max_tokens, world, largest): (u64, usize, f64),
) -> f64 {
    match sync {
        SyncEvery::MicroBatch => {
            classes.into_iter().map(|lengths| bound_slots(lengths, price, max_tokens, world)).sum()
        }
        SyncEvery::Update => {
            let all: f64 = classes.iter().flatten().map(|&length| cost(price, length)).sum();
            (all / world as f64).max(largest)
        }
    }
}

/// The cost of a sample.
pub(super) fn cost(price: &Price, length: u64) -> f64 {
    let mut moments = Moments::default();
    moments.add(length);
    price.of_samples(moments)
}

fn bound_slots(mut lengths: Vec<u64>, price: &Price, max_tokens: u64, world: usize) -> f64 {
    lengths.sort_unstable_by(|one, other| other.cmp(one));
    let costs: Vec<f64> = lengths.iter().map(|&length| cost(price, length)).collect();
    bound_sum(&lengths, &costs, max_tokens, world)
}

/// The least sum of the costliest micro-batches of one class, for samples from the longest to the shortest.
///
/// Samples above half a cap are in micro-batches of their own, so at least `i` slots are as costly as the sample in place
/// `(i - 1) * world`. The first `h` of these slots hold the longest tokens that fit them, at most, and the rest divides
/// evenly.
pub(super) fn bound_sum(lengths: &[u64], costs: &[f64], max_tokens: u64, world: usize) -> f64 {
    let total: f64 = costs.iter().sum();
    let longest = costs.first().copied().unwrap_or(0.0);
    let mut least = (total / world as f64).max(longest);
    let large = lengths.iter().filter(|&&length| length > max_tokens / 2).count();
    let (mut forced, mut tokens, mut held, mut at) = (0.0, 0_u64, 0.0, 0);
    for (slot, place) in (0..large).step_by(world).enumerate() {
        forced += costs[place];
        let room = max_tokens.saturating_mul(((slot + 1) * world) as u64);
        while at < lengths.len() && tokens < room {
            tokens += lengths[at].min(max_tokens);
            held += costs[at];
            at += 1;
        }
        let carried = held.min(world as f64 * forced);
        least = least.max(forced + (total - carried).max(0.0) / world as f64);
    }
    least
}
