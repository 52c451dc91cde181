//! The randomness of batches, in two numbers: batch mates that stay together, and lengths that follow the steps.

use std::sync::Arc;

use super::epoch::Epoch;
use super::pool::length;

/// The most batches to look at for mates, if samples all count the same.
const MOST_BATCHES: u64 = 1024;

/// The most samples of such a batch that are looked at.
const MOST_MATES: u64 = 64;

/// The batch of a sample that is dropped.
const NOWHERE: u64 = u64::MAX;

impl Epoch {
    /// The share of the pairs of samples that share a batch in this epoch and share one in `next` as well, over all
    /// worlds. `None` if there is no pair.
    ///
    /// Where sizes decide, all pairs count; a sample that is split is where its first part is. Otherwise these are the
    /// pairs of at most 64 neighbours in each of at most 1024 batches, evenly spread.
    pub(super) fn mates_kept(&self, next: &Self) -> Option<f64> {
        let mut pairs = Pairs::default();
        if self.uniform().is_some() {
            self.uniform_mates(next, &mut pairs);
        } else {
            let mut batch_of = vec![NOWHERE; length(self.recipe.samples)];
            let mut batch = 0;
            next.each_batch(|samples| {
                samples.iter().for_each(|&sample| batch_of[length(sample)] = batch);
                batch += 1;
            });
            let after = |&sample: &u64| Some(batch_of[length(sample)]).filter(|&batch| batch != NOWHERE);
            self.each_batch(|samples| pairs.count(samples.iter().map(after).collect()));
        }
        pairs.share()
    }

    /// Passes the samples of each batch to `take`, pool by pool, as the rule makes them. A sample that is split is in
    /// the batch of its first part.
    pub(super) fn each_batch(&self, mut take: impl FnMut(&[u64])) {
        let splits = self.recipe.options.rule.splits();
        // Parts that are continued have their elements once they are dealt.
        let continues = self.recipe.options.rule.continues();
        let made = |pool| match continues {
            true => self.pool(pool, &[(1, u64::MAX)]).batched,
            false => Arc::new(self.cut(pool)),
        };
        for pool in (0..self.pools()).map(made) {
            for batch in 0..pool.batches.ends.len() {
                let mut samples = pool.samples(batch);
                if splits {
                    let starts = pool.batches.starts.get(pool.range(batch)).unwrap_or_default();
                    let mut starts = starts.iter();
                    samples.retain(|_| starts.next().is_none_or(|&start| start == 0));
                }
                take(&samples);
            }
        }
    }

    fn uniform_mates(&self, next: &Self, pairs: &mut Pairs) {
        let batches = self.batches();
        let looked_at = batches.min(MOST_BATCHES);
        for place in 0..looked_at {
            // place * batches / looked_at, whose product could exceed 64 bits.
            let batch = place * (batches / looked_at) + place * (batches % looked_at) / looked_at;
            let Some(positions) = self.positions(batch) else { return };
            let positions = positions.start..positions.end.min(positions.start + MOST_MATES);
            // A sample that comes several times counts where it comes first.
            let mut samples = vec![0; length(positions.end - positions.start)];
            self.draws.fill(positions.start, &mut samples);
            let after = |sample| next.batch_of(next.draws.find_first(sample)?);
            pairs.count(samples.into_iter().map(after).collect());
        }
    }
}

/// Pairs of samples, and those among them that stay together.
#[derive(Debug, Default)]
struct Pairs {
    all: u128,
    kept: u128,
}

impl Pairs {
    /// Counts the pairs of a batch, given the batch of each of its samples in the other epoch.
    fn count(&mut self, mut others: Vec<Option<u64>>) {
        self.all += pairs(others.len());
        others.sort_unstable();
        others.chunk_by(|a, b| a == b && a.is_some()).for_each(|same| self.kept += pairs(same.len()));
    }

    fn share(&self) -> Option<f64> {
        (self.all > 0).then(|| self.kept as f64 / self.all as f64)
    }
}

/// The number of pairs among `len` things.
fn pairs(len: usize) -> u128 {
    let len = len as u128;
    len * len.saturating_sub(1) / 2
}

/// Spearman's rank correlation of values with their places. `None` for fewer than two values, or equal ones.
pub(super) fn rank_correlation(values: &[f64]) -> Option<f64> {
    let ranks = ranks(values);
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let of_places: f64 = (0..values.len()).map(|place| (place as f64 - middle).powi(2)).sum();
    let of_ranks: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    let both: f64 =
        (0..).zip(&ranks).map(|(place, rank)| (f64::from(place) - middle) * (rank - middle)).sum();
    (of_ranks > 0.0).then(|| both / (of_places * of_ranks).sqrt())
}

/// The rank of each value. Equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for same in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        let mean = first as f64 + (same.len() as f64 - 1.0) / 2.0;
        same.iter().for_each(|&place| ranks[place] = mean);
        first += same.len();
    }
    ranks
}
