//! The cost of a plan, before it is run.

use std::collections::HashSet;
use std::ops::Range;

use serde::{Serialize, Serializer};

use super::Plan;
use super::budget_stats::{BudgetStats, BudgetSums};
use super::chunk_stats::ChunkStats;
use super::mates::rank_correlation;
use super::measure::Measure;
use super::parts::Parts;
use super::pool::length;
use super::step_spread::StepSpread;
#[cfg(feature = "report")]
use crate::batching::CostModel;
use crate::batching::{BatchShape, Cost};
use crate::ranks::Uneven;

/// The cost of a plan over all ranks.
///
/// The counts add up: `samples + repeated` is the number of samples delivered here plus `dropped`, `banned` and
/// `earlier`, and `tokens + repeated_tokens` is `real + truncated_tokens + dropped_tokens + banned_tokens +
/// earlier_tokens`. A sample that is split counts where its first part comes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The number of samples of the epoch: the size of the dataset, unless an option changes what is drawn.
    pub samples: u64,
    /// The number of elements of these samples.
    pub tokens: u64,
    /// The number of batches over all ranks, repeated ones included.
    pub batches: u64,
    /// The number of steps of the rank that has most.
    pub steps: u64,
    /// The number of ranks.
    pub world_size: u32,
    /// The number of elements delivered, padding not included.
    pub real: u64,
    /// The number of elements delivered, padding included.
    pub padded: u64,
    /// The share of `padded` that is padding.
    pub padding: f64,
    /// The elements that the rule counts, divided by `batches * max_tokens`, if the rule has such a limit. Of several
    /// budgets, the one that binds counts.
    pub efficiency: Option<f64>,
    /// The number of distinct shapes of batches.
    pub shapes: u64,
    /// The number of samples left out by `drop_last`, because they are too large, or because their keys are too frequent.
    pub dropped: u64,
    /// The number of elements of dropped samples.
    pub dropped_tokens: u64,
    /// The number of samples left without weight, because they are banned. Their places count as padding.
    pub banned: u64,
    /// The number of elements of banned samples, truncated ones included.
    pub banned_tokens: u64,
    /// The number of samples delivered here that were truncated.
    pub truncated: u64,
    /// The number of elements lost by truncation.
    pub truncated_tokens: u64,
    /// The number of samples delivered here in several parts.
    pub split: u64,
    /// The number of samples delivered again: so that all ranks have as many batches and samples, or because lists name
    /// them again. Places that only fill up ([`Uneven::Mask`]) count as padding instead.
    pub repeated: u64,
    /// The number of elements of repeated samples.
    pub repeated_tokens: u64,
    /// The number of samples delivered in earlier parts of the epoch.
    pub earlier: u64,
    /// The number of elements of these earlier samples, truncated ones included.
    pub earlier_tokens: u64,
    /// The number of elements of a stream of tokens that are in no sample: too few for one more piece, or for one more
    /// in each row.
    pub tail: u64,
    /// The number of elements of the largest batch, padding included.
    pub largest: u64,
    /// The share of the time of all ranks that is spent waiting for the batch of a step that costs most, by
    /// [`imbalance_cost`](Self::imbalance_cost): `1 - busy / (ranks * longest)`, where `busy` is the sum of the costs of
    /// all batches, and `longest` the sum over steps of the largest cost. With
    /// [`BalanceWithin::UpdateSum`](crate::ranks::BalanceWithin::UpdateSum), ranks wait once an update, and `longest` is
    /// the sum over updates of the largest cost that a rank has in one.
    pub imbalance: f64,
    /// The cost of a batch by which `imbalance` counts: the [cost](super::PlanOptions::cost) of the plan, or another one
    /// that was [asked for](Plan::stats_by). It is written
    /// as `tokens`, or as the coefficients of the model. Tokens leave out attention, which makes long samples of packs
    /// cost more than short ones.
    #[serde(serialize_with = "cost_as_text")]
    pub imbalance_cost: Cost,
    /// The distance of the composition of steps from random: the variance of the mean logarithm of the sizes at a step,
    /// over the variance that steps of random samples have. About 1 if steps hold random samples, more if steps follow
    /// size, and less if steps are more alike than at random. Where batches are balanced within an update of the
    /// optimizer, updates are counted in place of steps. `None` if all sizes are equal.
    pub step_spread: Option<f64>,
    /// The share of the pairs of samples that share a batch in this epoch and share one in the next epoch too: about
    /// the share of the samples that a pool holds, and 1 if nothing is shuffled. All pairs count where sizes decide;
    /// otherwise of 64 neighbours in each of 1024 batches. `None` if batches hold one sample each.
    pub mates_kept: Option<f64>,
    /// Spearman's rank correlation of the mean size of a batch with its step: about 0 if batches are in
    /// random order, -1 if the longest are first. `None` if all means are equal.
    pub length_correlation: Option<f64>,
    /// The contents of batches by several budgets. `None` if the rule has no budgets with names.
    #[serde(flatten)]
    pub budgets: Option<BudgetStats>,
    /// The costs of reading chunks. `None` if samples are not read chunk by chunk.
    #[serde(flatten)]
    pub chunks: Option<ChunkStats>,
}

fn cost_as_text<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cost)
}

impl Plan {
    /// Computes the cost of this plan. This is O(world size) if samples all count the same; otherwise it makes the
    /// batches of every pool once.
    pub fn stats(&self) -> Stats {
        self.stats_by(self.options().cost)
    }

    /// Computes the cost of this plan, with the time that ranks wait by `cost`, whichever cost batches are balanced by.
    ///
    /// ```
    /// use batchloom::Plan;
    /// use batchloom::batching::{CostModel, Packing, Sizes};
    ///
    /// let plan = Plan::builder(100).sizes(Sizes::new((1..=100).collect::<Vec<u32>>())).rule(Packing::new(128)?);
    /// let plan = plan.shuffle(true).world_size(2).build()?;
    /// let attention = CostModel::new(0.0, 0.0, 1.0)?;
    /// assert!(plan.stats_by(attention).imbalance > plan.stats().imbalance);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn stats_by(&self, cost: impl Into<Cost>) -> Stats {
        let cost = cost.into();
        match self.epoch.uniform() {
            Some(batch_size) => {
                Stats { tail: self.recipe().options.tail, ..self.uniform_stats(batch_size, cost) }
            }
            None => Walk::new(self, cost, None).walk(),
        }
    }

    /// The cost of this plan of samples with sizes, and its time by a model.
    #[cfg(feature = "report")]
    pub(crate) fn timed_stats(&self, cost: &CostModel) -> (Stats, Time) {
        let mut walk = Walk::new(self, self.options().cost, Some(Cost::from(*cost)));
        let stats = walk.walk();
        let clock = walk.timed.unwrap_or_default();
        (
            stats,
            Time { epoch: clock.steps(self.world_size()), waiting: clock.waiting_share(self.world_size()) },
        )
    }

    /// The share of batch mates that the next epoch keeps. After the last epoch, the one before it counts.
    fn mates_kept(&self) -> Option<f64> {
        let epoch = self.epoch();
        let other = if epoch == u64::MAX { epoch - 1 } else { epoch + 1 };
        self.epoch.mates_kept(&self.at_epoch(other).epoch)
    }

    fn uniform_stats(&self, batch_size: u64, cost: Cost) -> Stats {
        let deal = self.deal();
        let (dealt, batches) = (deal.dealt(), deal.dealt_batches());
        let earlier = self.count_samples(&deal.earlier_batches(), batch_size);
        let once = self.count_samples(&batches, batch_size);
        let filled = self.count_filled(batch_size);
        // Places that only fill up are padding.
        let repeated = if self.options().uneven == Uneven::Mask { 0 } else { filled };
        let (banned, all_banned) = self.count_banned();
        let repeated = repeated - (all_banned - banned);
        let draws = self.epoch.len();
        let (real, dropped) = (once - banned + repeated, draws - earlier - once);
        let padded = once + filled;
        let sizes = self.uniform_sizes(&batches, batch_size);
        Stats {
            samples: draws,
            tokens: draws,
            batches: dealt + deal.repeated(),
            steps: self.steps(),
            world_size: self.world_size(),
            real,
            padded,
            padding: share(padded - real, padded),
            dropped,
            dropped_tokens: dropped,
            banned,
            banned_tokens: banned,
            repeated,
            repeated_tokens: repeated,
            earlier,
            earlier_tokens: earlier,
            largest: sizes.iter().copied().max().unwrap_or(0),
            shapes: sizes.len() as u64,
            imbalance: self.uniform_imbalance(cost, dealt + deal.repeated(), padded, batch_size),
            imbalance_cost: cost,
            mates_kept: self.mates_kept(),
            chunks: self.chunk_stats(),
            ..Stats::default()
        }
    }

    /// The number of samples in a batch, if samples all count the same.
    fn samples_in(&self, batch: u64) -> u64 {
        self.epoch.positions(batch).map_or(0, |positions| positions.end - positions.start)
    }

    /// The batches that are not full, at most two of them, and the number of samples that each lacks.
    fn find_partial(&self, batch_size: u64) -> Vec<(u64, u64)> {
        let mut batches: Vec<(u64, u64)> = Vec::new();
        for batch in [0, self.epoch.len().saturating_sub(1)]
            .into_iter()
            .filter_map(|position| self.epoch.batch_of(position))
        {
            let lacking = batch_size - self.samples_in(batch);
            if lacking > 0 && !batches.contains(&(batch, lacking)) {
                batches.push((batch, lacking));
            }
        }
        batches
    }

    /// The number of places of the batches dealt here, and of those dealt again, that hold no sample for the first time,
    /// if samples all count the same.
    fn count_filled(&self, batch_size: u64) -> u64 {
        let deal = self.deal();
        let len = |step: u64| self.filled_len(step);
        let in_partial = self.find_partial(batch_size).into_iter().filter_map(|(batch, lacking)| {
            let (step, _) = deal.first_place(batch)?;
            Some(len(step)? - (batch_size - lacking))
        });
        let again = self.steps().checked_sub(1).and_then(len).map_or(0, |len| len * deal.repeated());
        in_partial.sum::<u64>() + again
    }

    /// The number of samples in some batches, if samples all count the same.
    fn count_samples(&self, batches: &[Range<u64>], batch_size: u64) -> u64 {
        let full: u64 = batches.iter().map(|batches| (batches.end - batches.start) * batch_size).sum();
        let partial = self.find_partial(batch_size).into_iter();
        let partial = partial.filter(|(batch, _)| batches.iter().any(|batches| batches.contains(batch)));
        full - partial.map(|(_, lacking)| lacking).sum::<u64>()
    }

    /// The distinct sizes of some batches, filled up, if samples all count the same.
    fn uniform_sizes(&self, batches: &[Range<u64>], batch_size: u64) -> HashSet<u64> {
        let partial: Vec<u64> = self.find_partial(batch_size).into_iter().map(|(batch, _)| batch).collect();
        let full = batches.iter().cloned().flatten().take(3).find(|batch| !partial.contains(batch));
        let sizes = full.into_iter().chain(partial).filter_map(|batch| {
            let (step, _) = self.deal().first_place(batch)?;
            Some(self.filled_len(step).unwrap_or_else(|| self.samples_in(batch)))
        });
        sizes.collect()
    }

    /// The share of time that ranks wait, if samples all count the same: the cost of what ranks lack in their steps.
    fn uniform_imbalance(&self, cost: Cost, batches: u64, padded: u64, batch_size: u64) -> f64 {
        if self.world_size() == 1 {
            return 0.0;
        }
        let partial = self.find_partial(batch_size).into_iter();
        // Every other step has a full batch.
        let mut uneven: Vec<u64> =
            partial.filter_map(|(batch, _)| self.deal().first_place(batch)).map(|(step, _)| step).collect();
        uneven.extend(self.steps().checked_sub(1));
        uneven.sort_unstable();
        uneven.dedup();
        let longest = |step: &u64| {
            (0..self.world_size()).filter_map(|rank| self.batch_len(*step, rank).ok()).max().unwrap_or(0)
        };
        let full = (self.steps() - uneven.len() as u64) * batch_size;
        let longest = full + uneven.iter().map(longest).sum::<u64>();
        let world_size = u64::from(self.world_size());
        let cost =
            |batches: u64, elements: u64| batches as f64 * cost.fixed() + elements as f64 * cost.price(1);
        let (steps, all) = (self.steps() * world_size, longest * world_size);
        quotient(cost(steps.saturating_sub(batches), all.saturating_sub(padded)), cost(steps, all))
    }
}

/// A walk over all batches, in the order of dealing.
struct Walk<'a> {
    plan: &'a Plan,
    stats: Stats,
    shapes: HashSet<(u64, u64)>,
    /// The mean size of each batch, by its number among those of all steps.
    means: Vec<Option<f64>>,
    /// The time of the epoch, by the cost that statistics count by, and by another one that is asked for.
    clock: Clock,
    timed: Option<Clock>,
    spread: StepSpread,
    budgets: BudgetSums,
}

/// The time of an epoch by a cost model.
#[cfg(feature = "report")]
pub(crate) struct Time {
    /// The time of the slowest rank of each step, added up.
    pub(crate) epoch: f64,
    /// The share of the time of all ranks in which they wait for the slowest.
    pub(crate) waiting: f64,
}

/// A clock of steps: all ranks wait for the slowest at the end of each step, or of each update.
#[derive(Default)]
struct Clock {
    /// The cost of a batch.
    cost: Cost,
    /// The time of each batch, by its number among those of all steps; 0 where a rank takes none.
    times: Vec<f64>,
    /// The number of steps after which ranks wait for the first time, and for all later times.
    waits: (u64, u64),
}

impl Clock {
    fn new(cost: Cost, plan: &Plan) -> Self {
        Self { cost, times: Vec::new(), waits: plan.waits() }
    }

    /// Adds the work of one rank.
    fn work(&mut self, number: usize, batch: BatchShape<'_>) {
        put(&mut self.times, number, self.cost.of(batch), 0.0);
    }

    /// The time of the slowest rank between one wait and the next, added up.
    fn steps(&self, world_size: u32) -> f64 {
        let slowest = |steps: &[f64]| slowest_rank(steps, world_size);
        let batches = |steps: u64| length(steps.saturating_mul(world_size.into()));
        let (first, rest) = self.times.split_at(batches(self.waits.0).min(self.times.len()));
        slowest(first) + rest.chunks(batches(self.waits.1)).map(slowest).sum::<f64>()
    }

    /// The share of the time of all ranks in which they wait.
    fn waiting_share(&self, world_size: u32) -> f64 {
        let all = self.steps(world_size) * f64::from(world_size);
        quotient((all - self.times.iter().sum::<f64>()).max(0.0), all)
    }
}

/// The time of the slowest rank of some steps, after which ranks wait.
fn slowest_rank(times: &[f64], world_size: u32) -> f64 {
    let world_size = length(world_size.into());
    let of_rank = |rank: usize| times.iter().skip(rank).step_by(world_size).sum::<f64>();
    (0..world_size).map(of_rank).fold(0.0, f64::max)
}

impl<'a> Walk<'a> {
    fn new(plan: &'a Plan, imbalance_cost: Cost, timed: Option<Cost>) -> Self {
        let (samples, steps, world_size) = (plan.epoch.len(), plan.steps(), plan.world_size());
        let tokens = plan.epoch.tokens();
        let stats = Stats { samples, tokens, steps, world_size, imbalance_cost, ..Stats::default() };
        let (shapes, means) = (HashSet::new(), Vec::new());
        let (clock, timed) = (Clock::new(imbalance_cost, plan), timed.map(|cost| Clock::new(cost, plan)));
        Self {
            plan,
            stats,
            shapes,
            means,
            clock,
            timed,
            spread: StepSpread::default(),
            budgets: BudgetSums::default(),
        }
    }

    /// Counts all batches.
    fn walk(&mut self) -> Stats {
        let deal = self.plan.deal();
        let mut named = self.plan.rule().listed().map(|_| HashSet::new());
        for place in 0..self.plan.epoch.pools() {
            let pool = self.plan.pool(place);
            for index in 0..pool.len() {
                let batch = pool.first + index;
                let (once, again) = (deal.first_place(batch), deal.places_again(batch));
                let parts = pool.parts(index, self.plan.recipe());
                let first = !pool.fills(index);
                if let Some(named) = named.as_mut().filter(|_| deal.is_earlier(batch) || once.is_some()) {
                    self.count_repeated(named, &parts);
                }
                if first && deal.is_earlier(batch) {
                    self.pass(&self.plan.epoch.measure(&parts));
                }
                again.into_iter().for_each(|place| self.take(place, parts.clone(), false));
                once.into_iter().for_each(|place| self.take(place, parts.clone(), first));
            }
        }
        self.finish()
    }

    /// Counts samples that lists have named before.
    fn count_repeated(&mut self, named: &mut HashSet<u64>, parts: &Parts) {
        for (&sample, &taken) in parts.samples.iter().zip(&parts.sizes) {
            if !named.insert(sample) {
                self.stats.repeated += 1;
                self.stats.repeated_tokens += u64::from(taken);
            }
        }
    }

    /// Counts a batch of an earlier part of the epoch.
    fn pass(&mut self, measure: &Measure) {
        self.stats.earlier += measure.samples;
        self.stats.earlier_tokens += measure.real + measure.truncated_tokens;
    }

    /// Counts the batch of a rank at `step`. It is dealt for the first time, or again.
    fn take(&mut self, (step, rank): (u64, u32), parts: Parts, first: bool) {
        let epoch = &self.plan.epoch;
        let number = length(step * u64::from(self.stats.world_size) + u64::from(rank));
        let once = if first { epoch.measure(&parts) } else { Measure::default() };
        let banned = if first { self.measure_banned(step, &parts) } else { Measure::default() };
        self.stats.banned += banned.samples;
        self.stats.banned_tokens += banned.real + banned.truncated_tokens;
        let own = parts.clone();
        let parts = parts.fit(self.plan.filled_len(step));
        let filled = epoch.measure(&parts).without(&self.measure_banned(step, &parts));
        let once = once.without(&banned);
        self.count_budgets(step, own, &parts, first);
        // Places that only fill up are padding; others are delivered again.
        let measure = if self.plan.options().uneven == Uneven::Mask { once } else { filled };
        let stats = &mut self.stats;
        stats.repeated += measure.samples - once.samples;
        stats.repeated_tokens +=
            measure.real + measure.truncated_tokens - (once.real + once.truncated_tokens);
        stats.batches += 1;
        stats.real += measure.real;
        stats.padded += filled.padded;
        stats.truncated += measure.truncated;
        stats.truncated_tokens += measure.truncated_tokens;
        stats.split += measure.split;
        stats.dropped += measure.samples; // what is delivered, until `finish`
        stats.largest = stats.largest.max(filled.padded);
        let batch = epoch.batch_shape(&parts, &filled);
        self.clock.work(number, batch);
        if let Some(timed) = &mut self.timed {
            timed.work(number, batch);
        }
        self.spread.add(self.plan.composed_with(step), &parts.sizes);
        put(&mut self.means, number, Some(filled.real as f64 / filled.parts.max(1) as f64), None);
        let packs = self.plan.recipe().packs();
        self.shapes.insert((if packs { 0 } else { filled.parts }, filled.shape));
    }

    /// Counts a batch by the budgets of the rule: its `own` parts, and all of its places.
    fn count_budgets(&mut self, step: u64, own: Parts, places: &Parts, first: bool) {
        let recipe = self.plan.recipe();
        if recipe.budgeted.is_none() {
            return;
        }
        // Places that only fill up hold no data.
        let data = match (self.plan.options().uneven == Uneven::Mask, first) {
            (false, _) => places.clone(),
            (true, true) => own,
            (true, false) => Parts::default(),
        };
        self.budgets.add(recipe, places, &data.without(self.plan.banned(step)));
    }

    /// The members of a batch at `step` that are banned, measured.
    fn measure_banned(&self, step: u64, parts: &Parts) -> Measure {
        match self.plan.banned(step) {
            [] => Measure::default(),
            banned => self.plan.epoch.measure(&parts.choose(|sample| banned.binary_search(&sample).is_ok())),
        }
    }

    fn finish(&mut self) -> Stats {
        let mut stats = std::mem::take(&mut self.stats);
        let delivered = stats.dropped;
        stats.dropped = stats.samples + stats.repeated - delivered - stats.earlier - stats.banned;
        stats.dropped_tokens = stats.tokens + stats.repeated_tokens
            - (stats.real + stats.truncated_tokens + stats.earlier_tokens + stats.banned_tokens);
        stats.padding = share(stats.padded - stats.real, stats.padded);
        stats.shapes = self.shapes.len() as u64;
        stats.imbalance = self.clock.waiting_share(stats.world_size);
        stats.step_spread = self.spread.ratio();
        stats.mates_kept = self.plan.mates_kept();
        let means: Vec<f64> = self.means.iter().flatten().copied().collect();
        stats.length_correlation = rank_correlation(&means);
        stats.chunks = self.plan.chunk_stats();
        let batches = stats.batches;
        stats.budgets = std::mem::take(&mut self.budgets).finish(self.plan.recipe(), batches);
        let budget = self.plan.rule().budget(self.plan.options().sizes.as_ref());
        let counted = if self.plan.rule().counts_real() { stats.real } else { stats.padded };
        let room = |budget: u64| budget as f64 * stats.batches as f64;
        stats.efficiency = match &stats.budgets {
            Some(budgets) => Some(budgets.binding_fill),
            None => budget.map(room).filter(|&room| room > 0.0).map(|room| counted as f64 / room),
        };
        stats
    }
}

/// Puts a value at a place of a list, which grows as far as it has to.
fn put<T: Clone>(list: &mut Vec<T>, place: usize, value: T, absent: T) {
    if list.len() <= place {
        list.resize(place + 1, absent);
    }
    list[place] = value;
}

/// The share of a number in another one, or 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    quotient(part as f64, whole as f64)
}

/// The share of a time in another one, or 0 of no time.
fn quotient(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
