//! `CostOptimal`: each pool sorted by size, then divided at the least total cost.
//!
//! With sizes in descending order, a batch of the samples `start..end` costs `fixed + (end - start) * (per_token * L +
//! per_pair * L^2)`, where `L` is the padded size of sample `start`. The least cost of the first `end` samples is the
//! least, over `start`, of the least cost of the first `start` samples plus that of this last batch: a straight line in
//! `end` for each `start`, and the slopes descend. So once the later of two starts is better, it stays better (the
//! quadrangle inequality), also when limits on the batch end the earlier one's reach. A queue of starts, each with the
//! first end from which it is best, finds every least cost in constant time on average: the least-weight subsequence of
//! Hirschberg and Larmore (1987); their search for the crossing is a division here.

use std::collections::VecDeque;

use serde::Serialize;

use super::pool::PoolBounds;
use super::pool_rule::PoolRule;
use super::sizes::round_up;
use super::sorting::Sorting;
use super::spelling::{Given, Spelled, Spelling};
use super::{
    Cost, CostModel, Oversize, Pool, PoolBatches, PoolSizes, Sizes, Sorted, positive, to_index, to_place,
};
use crate::Result;

/// The batches of samples of similar size with the least total cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostOptimal {
    cost: CostModel,
    max_tokens: Option<u64>,
    #[serde(flatten)]
    sorting: Sorting,
}

impl CostOptimal {
    /// Batches of any size that are cheapest in total.
    pub fn new(cost: CostModel) -> Self {
        Self { cost, max_tokens: None, sorting: Sorting::default() }
    }

    /// Sets the largest number of elements in a batch, padding counted. Default: no limit.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0, or if it is less than `multiple_of`.
    pub fn max_tokens(self, max_tokens: u64) -> Result<Self> {
        let max_tokens = positive("max_tokens", max_tokens)?;
        self.sorting.check_multiple(Some(max_tokens))?;
        Ok(Self { max_tokens: Some(max_tokens), ..self })
    }

    /// Sets the largest number of samples in a batch. Default: no limit.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn max_samples(self, max_samples: u64) -> Result<Self> {
        Ok(Self { sorting: self.sorting.max_samples(max_samples)?, ..self })
    }

    /// Rounds padded lengths up to a multiple of this number. Default: 1.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0, or if it exceeds `max_tokens`.
    pub fn multiple_of(self, multiple_of: u32) -> Result<Self> {
        Ok(Self { sorting: self.sorting.multiple_of(multiple_of, self.max_tokens)?, ..self })
    }

    /// Sets what happens to a sample that alone exceeds `max_tokens`. Default: [`Oversize::Error`].
    #[must_use]
    pub fn oversize(self, oversize: Oversize) -> Self {
        Self { sorting: self.sorting.oversize(oversize), ..self }
    }

    /// Sets the size of a pool, in samples, when they are shuffled. Larger pools mean less padding and less randomness.
    /// Default: [`Pool::Auto`].
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn pool(self, pool: impl Into<Pool>) -> Result<Self> {
        Ok(Self { sorting: self.sorting.pool(pool.into())?, ..self })
    }

    /// The largest sample that fits alone.
    fn most(&self) -> u64 {
        self.sorting.round_down(self.max_tokens.unwrap_or(u64::MAX))
    }

    /// The ends of the cheapest batches of sorted samples.
    fn partition(&self, sizes: &[u32]) -> Vec<u32> {
        // last[end] is the start of the last batch when the first `end` samples are divided at the least cost.
        let mut last = vec![0_u32; sizes.len() + 1];
        let mut queue = VecDeque::new();
        let (cost, mut least) = (Cost::from(self.cost), 0.0);
        for (start, &size) in sizes.iter().enumerate() {
            self.offer(&mut queue, self.candidate(&cost, start, size, least), sizes.len());
            let end = start + 1;
            while queue.get(1).is_some_and(|next: &Candidate| next.from <= end) {
                queue.pop_front();
            }
            let Some(best) = queue.front() else { break };
            least = best.cost(end);
            last[end] = to_place(best.start);
        }
        backtrack(&last)
    }

    /// The batch that begins at `start`, after batches that cost `least`.
    fn candidate(&self, cost: &Cost, start: usize, size: u32, least: f64) -> Candidate {
        let length = round_up(size, self.sorting.multiple_of);
        let fit = self.max_tokens.and_then(|tokens| tokens.checked_div(length)).unwrap_or(u64::MAX);
        let fit = fit.min(self.sorting.most_samples()).max(1);
        let reach = start.saturating_add(usize::try_from(fit).unwrap_or(usize::MAX));
        Candidate { start, from: start + 1, reach, base: least + cost.fixed(), price: cost.price(length) }
    }

    /// Puts a new start behind those that are better than it at first.
    fn offer(&self, queue: &mut VecDeque<Candidate>, mut new: Candidate, samples: usize) {
        while let Some(back) = queue.back() {
            let first = back.from.max(new.start + 1);
            if first <= back.reach && back.cost(first) <= new.cost(first) {
                new.from = back.find_overtaking(&new, first);
                break;
            }
            queue.pop_back();
        }
        if new.from <= samples {
            queue.push_back(new);
        }
    }
}

impl PoolRule for CostOptimal {
    fn cut(&self, pool: PoolSizes<'_>) -> PoolBatches {
        self.sorting.oversize.cut(Sorted::new(pool.sizes), self.most(), |sizes| self.partition(sizes))
    }

    fn samples_in_pool(&self, bounds: PoolBounds, sizes: Option<&Sizes>) -> u64 {
        self.sorting.samples_in_pool(self.max_tokens, bounds, sizes)
    }

    fn takes_dimensions(&self) -> bool {
        false
    }

    fn multiple_of(&self) -> u32 {
        self.sorting.multiple_of
    }

    fn budget(&self, _: Option<&Sizes>) -> Option<u64> {
        self.max_tokens
    }

    fn limit(&self, _: Option<&Sizes>) -> Option<u32> {
        self.sorting.oversize.limit(self.most())
    }

    fn find_oversize(&self, sizes: &Sizes) -> Option<usize> {
        (self.sorting.oversize == Oversize::Error).then(|| sizes.find_above(self.most())).flatten()
    }

    fn with_auto_pool(&self) -> Option<Self> {
        Some(Self { sorting: self.sorting.with_auto_pool()?, ..*self })
    }
}

impl Spelled for CostOptimal {
    const NAME: &'static str = "cost-optimal";
    const FORM: Option<&'static str> = Some("cost-optimal");

    fn spell(&self) -> Spelling {
        let text = Spelling::new(Self::NAME, self.max_tokens)
            .option("fixed", &self.cost.fixed(), &0.0)
            .option("per_token", &self.cost.per_token(), &0.0)
            .option("per_pair", &self.cost.per_pair(), &0.0);
        self.sorting.spell(text)
    }

    fn read(given: &mut Given<'_>) -> Result<Self> {
        let mut cost = [0.0; 3];
        for (cost, name) in cost.iter_mut().zip(["fixed", "per_token", "per_pair"]) {
            *cost = given.take_number(name)?.unwrap_or_default();
        }
        let [fixed, per_token, per_pair] = cost;
        let rule = Self::new(CostModel::new(fixed, per_token, per_pair)?);
        let rule = given.number_if_given()?.map_or(Ok(rule), |tokens| rule.max_tokens(tokens))?;
        Ok(Self { sorting: Sorting::read(given, rule.max_tokens)?, ..rule })
    }
}

/// A possible start of the last batch.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    start: usize,
    /// The first end for which it is the best of those in the queue.
    from: usize,
    /// The last end that the limits allow.
    reach: usize,
    /// The cost of all batches before it, and the fixed cost of this one.
    base: f64,
    /// The cost of each sample in it.
    price: f64,
}

impl Candidate {
    fn cost(&self, end: usize) -> f64 {
        self.base + self.price * (end - self.start) as f64
    }

    /// The first end after `first` from which `later` is better. At `first` it is not.
    fn find_overtaking(&self, later: &Self, first: usize) -> usize {
        let behind = later.cost(first) - self.cost(first);
        let gain = self.price - later.price;
        let crossing = if gain > 0.0 { behind / gain } else { f64::INFINITY };
        let furthest = self.reach.saturating_add(1);
        let mut end = match crossing < (furthest - first) as f64 {
            true => first + 1 + floor(crossing),
            false => furthest,
        };
        // The division may be off by one in its last bit.
        if end > first + 1 && later.cost(end - 1) < self.cost(end - 1) {
            end -= 1;
        }
        if end < furthest && later.cost(end) >= self.cost(end) {
            end += 1;
        }
        end.min(furthest)
    }
}

/// The whole part of a number that is known to be at least 0 and to fit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with a usize before")]
fn floor(number: f64) -> usize {
    number as usize
}

/// The ends of the batches, given the start of the last batch of each beginning.
fn backtrack(last: &[u32]) -> Vec<u32> {
    let mut ends = Vec::new();
    let mut end = to_place(last.len() - 1);
    while end > 0 {
        ends.push(end);
        end = last[to_index(end)];
    }
    ends.reverse();
    ends
}
