//! The division of batches among ranks such that the sums of their costs are about the same.
//!
//! Batches are dealt in descending order of cost. The expected sum of a rank is its sum so far, and the mean of the
//! remaining costs for each batch it lacks. The rank with the least expected sum takes the batch. Ranks have equal numbers
//! of batches, and a rank with a costly batch ends with cheap batches. Dealing `n` batches takes `O(n (k + log n))` for `k`
//! batches a rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The rank of each batch. `costs` are no less than 0, in descending order. Ranks take equal numbers of batches, or the
/// first ranks one batch more.
pub(super) fn divide_evenly(costs: &[f64], world_size: usize) -> Vec<usize> {
    let (each, more) = (costs.len() / world_size, costs.len() % world_size);
    let mut ranks = Ranks::new(each, more, world_size);
    let means = means_of_rest(costs);
    costs.iter().zip(means).map(|(&cost, mean)| ranks.take(cost, mean)).collect()
}

/// The mean of the costs that follow each one.
fn means_of_rest(costs: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut means: Vec<f64> = costs
        .iter()
        .rev()
        .enumerate()
        .map(|(count, cost)| {
            let mean = if count == 0 { 0.0 } else { sum / count as f64 };
            sum += cost;
            mean
        })
        .collect();
    means.reverse();
    means
}

/// Ranks by the number of batches they lack, in a heap for each number: the least sum first, by its bits, which have the
/// order of numbers no less than 0.
struct Ranks(Vec<BinaryHeap<Reverse<(u64, usize)>>>);

impl Ranks {
    /// Ranks that lack `each` batches, the first `more` of them one more.
    fn new(each: usize, more: usize, world_size: usize) -> Self {
        let mut lacking = vec![BinaryHeap::new(); each + 2];
        for rank in 0..world_size {
            lacking[each + usize::from(rank < more)].push(Reverse((0.0_f64.to_bits(), rank)));
        }
        Self(lacking)
    }

    /// Deals a batch of this cost, and returns the rank. `mean` is the mean of the remaining costs.
    #[expect(clippy::suboptimal_flops, reason = "a fused product differs between platforms")]
    fn take(&mut self, cost: f64, mean: f64) -> usize {
        let expected = |lacked: usize, &Reverse((sum, rank)): &Reverse<(u64, usize)>| {
            (f64::from_bits(sum) + lacked as f64 * mean, rank, lacked)
        };
        let first = |lacked: usize| Some(expected(lacked, self.0[lacked].peek()?));
        let chosen =
            (1..self.0.len()).filter_map(first).min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let lacked = chosen.map_or(0, |(_, _, lacked)| lacked);
        let Some(Reverse((sum, rank))) = self.0[lacked].pop() else { return 0 };
        let sum = f64::from_bits(sum) + cost;
        self.0[lacked - 1].push(Reverse((sum.to_bits(), rank)));
        rank
    }
}
