//! The plan of one epoch.
//!
//! Promise: if samples all count the same, nothing here grows with their number: making a plan, asking it for any step,
//! finding a sample and resuming are O(1), or as the window over chunks has it. If sizes decide, a step costs the
//! batches of its pool, which are kept for the following steps, and counting the steps may cost one look at all pools.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::PlanOptions;
use super::epoch::{Epoch, first};
use super::error::PlanCause;
use super::label_sums::LatestUpdate;
use super::parts::{Parts, fit_len};
use super::pool::{DealtPool, length};
use super::recipe::Recipe;
use super::step::{Place, Step};
use crate::batching::error::BatchingCause;
use crate::batching::{Listed, Rounding, Rule};
use crate::draws::{Mix, Weights};
use crate::order::Shuffle;
use crate::ranks::Deal;
use crate::{Result, memory};

/// The number of pools that are kept: enough for the pool that is being read and the pool that the workers are in.
const KEPT_POOLS: usize = 3;

/// The most pools that are kept where each rank reads one of its own, so that a step looks at as many.
const MOST_KEPT_POOLS: usize = 64;

/// The steps of one epoch, for every rank.
///
/// ```
/// use batchloom::Plan;
///
/// let plan = Plan::builder(1_000_000_000).batch_size(64).shuffle(true).world_size(8).build()?;
/// assert_eq!(plan.steps(), 1_953_125);
/// let batch = plan.indices(1_000_000, 3)?; // what rank 3 sees at step 1 000 000
/// assert_eq!(batch.len(), 64);
/// assert_eq!(plan.places(batch[5])?[0].step, 1_000_000);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Plan {
    pub(super) epoch: Arc<Epoch>,
    pub(super) world_size: u32,
    /// The earlier parts of this epoch, as (world size, steps).
    pub(super) past: Vec<(u32, u64)>,
    /// The pools that were asked for lately.
    pools: Arc<Mutex<Recent>>,
    /// The steps and ranks of the batches that are left.
    deal: OnceLock<Deal>,
    /// The labels of the update that was asked for last.
    pub(super) latest_update: Arc<LatestUpdate>,
}

crate::brief::debug_in_brief!(Plan, [epoch, world_size, past], []);

/// Plans are equal if they deliver the same: one epoch of equal fingerprints, weights, lists and bans, for as many
/// ranks, from the same step on.
impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        let given = |plan: &Self| {
            (plan.options().weights.as_ref().map(Weights::digest), plan.rule().listed().map(Listed::digest))
        };
        self.world_size == other.world_size && self.at(0) == other.at(0) && given(self) == given(other)
    }
}

impl Eq for Plan {}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.fingerprint(), self.epoch(), self.world_size, &self.past).hash(state);
    }
}

/// Pools by their places in the order of dealing, the latest in front.
type Recent = VecDeque<(u64, Arc<DealtPool>)>;

impl Plan {
    pub(super) fn new(epoch: Arc<Epoch>, world_size: u32, past: Vec<(u32, u64)>) -> Self {
        let epoch = epoch.begun_by(past.first().map_or(world_size, |&(world_size, _)| world_size));
        Self {
            epoch,
            world_size,
            past,
            pools: Arc::default(),
            deal: OnceLock::new(),
            latest_update: Arc::default(),
        }
    }

    /// The same run in another epoch, from its start.
    #[must_use]
    pub fn at_epoch(&self, epoch: u64) -> Self {
        let same = || Arc::clone(&self.epoch);
        let other = || Arc::new(Epoch::new(Arc::clone(&self.epoch.recipe), epoch));
        let epoch = if epoch == self.epoch() { same() } else { other() };
        Self::new(epoch, self.world_size, Vec::new())
    }

    /// The whole epoch that this is the rest of.
    pub(crate) fn whole_epoch(&self) -> Self {
        match self.is_whole() {
            true => self.clone(),
            false => Self::new(Arc::clone(&self.epoch), self.world_size, Vec::new()),
        }
    }

    /// Returns true if nothing of the epoch was taken before.
    pub(crate) fn is_whole(&self) -> bool {
        self.past.is_empty()
    }

    /// Refuses an epoch without steps, unless earlier parts of it had some.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument), which says what left no step.
    pub(crate) fn require_steps(&self) -> Result<()> {
        if self.steps() > 0 || !self.past.is_empty() {
            return Ok(());
        }
        let (samples, batches) = (self.draws(), self.epoch.batches());
        if self.recipe().is_homogeneous() && batches >= u64::from(self.world_size) {
            let reason =
                "no key has a full batch for each rank; expected smaller batches, or to keep what is left";
            return Err(PlanCause::conflict("drop_last", "homogeneous_by", reason).into());
        }
        let cause = match self.rule().budget(self.options().sizes.as_ref()) {
            Some(batch) if batches == 0 && self.rule().continues() && self.options().drop_last => {
                PlanCause::NoFullBatch { samples, tokens: self.epoch.tokens(), batch }
            }
            Some(max_tokens) if batches == 0 => PlanCause::AllDropped { samples, max_tokens },
            _ => {
                let batch_size = self.rule().batch_size();
                PlanCause::NothingLeft { samples, batch_size, batches, world_size: self.world_size() }
            }
        };
        Err(cause.into())
    }

    /// The same epoch of a run with another seed, from its start.
    pub(crate) fn with_seed(&self, seed: u64) -> Self {
        let recipe = self.recipe().with_options(|options| options.seed = seed);
        Self::new(Arc::new(Epoch::new(Arc::new(recipe), self.epoch())), self.world_size, Vec::new())
    }

    /// The way in which padded lengths are rounded.
    pub(crate) fn rounding(&self) -> Rounding<'_> {
        self.recipe().rounding()
    }

    pub(super) fn recipe(&self) -> &Recipe {
        &self.epoch.recipe
    }

    /// The options. The rule is unpadded if samples are concatenated, and `balance` and `largest_first` are off if
    /// samples have no sizes.
    pub fn options(&self) -> &PlanOptions {
        &self.recipe().options
    }

    /// The number of samples in the dataset.
    pub fn samples(&self) -> u64 {
        self.recipe().samples
    }

    /// The rule that decides which samples share a batch.
    pub fn rule(&self) -> &Rule {
        &self.recipe().options.rule
    }

    /// The number of samples that an epoch draws: the size of the dataset, unless an option changes it. It may
    /// differ from epoch to epoch where sources take turns by tokens or labels.
    pub fn draws(&self) -> u64 {
        self.epoch.len()
    }

    /// Returns true if samples are drawn in passes, or by weight, and not each once in every epoch.
    pub(crate) fn draws_in_passes(&self) -> bool {
        self.recipe().draws_otherwise()
    }

    /// The digest of the weights of samples or of their sources; `None` without weights.
    pub fn weights_name(&self) -> Option<String> {
        let recipe = self.recipe();
        recipe
            .options
            .mix
            .as_ref()
            .map(Mix::digest)
            .or_else(|| recipe.options.weights.as_ref().map(Weights::digest))
    }

    /// Returns true if samples are shuffled and a pool that was given as a number holds all of them (or all of a
    /// shard), where the default pool would not: batches are then the same in every epoch.
    pub fn has_one_pool(&self) -> bool {
        let recipe = self.recipe();
        let positions = recipe.count_pooled(self.epoch.len());
        let auto = self.rule().with_auto_pool().map(|rule| recipe.in_pool_of(&rule, positions));
        let in_shard = recipe.in_shard(positions);
        recipe.options.shuffle == Shuffle::Samples
            && recipe.grouping.is_none()
            && recipe.in_pool >= in_shard
            && auto.is_some_and(|auto| auto < in_shard)
    }

    /// The number that random orders depend on, besides the epoch.
    pub fn seed(&self) -> u64 {
        self.recipe().options.seed
    }

    /// The number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.number
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The number of steps, as the rank that has most of them takes.
    pub fn steps(&self) -> u64 {
        self.deal().steps()
    }

    /// The number of steps of `rank`: [`steps`](Self::steps), or one less on the last ranks with
    /// [`Uneven::Short`](crate::ranks::Uneven::Short).
    pub fn steps_of(&self, rank: u32) -> u64 {
        self.deal().steps_of(rank)
    }

    /// A name, of 32 hexadecimal digits, for everything that stays the same over all epochs and worlds of a run:
    /// samples, rule, shuffle, seed, `drop_last`, `uneven`, sizes, `balance`, `largest_first`, `shard_size`,
    /// `per_class`, `homogeneous_by`, `distinct_by`, `surplus`, `chunks`, `chunks_open` and the version of the order.
    pub fn fingerprint(&self) -> String {
        self.recipe().fingerprint()
    }

    /// The number of samples, or parts of split samples, that `rank` sees at `step`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub fn batch_len(&self, step: u64, rank: u32) -> Result<u64> {
        let batch = self.batch(step, rank)?;
        Ok(self.filled_len(step).unwrap_or_else(|| self.own_len(batch)))
    }

    /// The number of samples of `batch` as the rule made it.
    pub(super) fn own_len(&self, batch: u64) -> u64 {
        match self.epoch.positions(batch) {
            Some(positions) => positions.end - positions.start,
            None => self.epoch.full_len(batch).unwrap_or_else(|| {
                let (pool, place) = self.pool_with(batch);
                pool.batch_len(place)
            }),
        }
    }

    /// The number of elements that `rank` is given at `step`, padding included.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub fn batch_elements(&self, step: u64, rank: u32) -> Result<u64> {
        match self.epoch.uniform() {
            Some(_) => self.batch_len(step, rank),
            None => Ok(self.epoch.measure(&self.parts(step, rank)?).padded),
        }
    }

    /// The samples that `rank` sees at `step`. A sample that is split between batches comes in each of them, and one
    /// that fills up a batch comes again at its end: see [`fillers`](Self::fillers).
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step; and [`Kind::Memory`](crate::Kind::Memory) if the list does not fit in memory.
    pub fn indices(&self, step: u64, rank: u32) -> Result<Vec<u64>> {
        let batch = self.batch(step, rank)?;
        let len = self.filled_len(step);
        let Some(positions) = self.epoch.positions(batch) else {
            let (pool, place) = self.pool_with(batch);
            return Ok(fit_len(pool.indices(place), len));
        };
        let mut out = zeros(positions.end - positions.start)?;
        self.epoch.draws.fill(positions.start, &mut out);
        Ok(fit_len(out, len))
    }

    /// The samples that `rank` sees at `step`, if they are neighbours as stored: samples all count the same and are not
    /// shuffled one by one, none of them fills up the batch, and none is banned. `None`
    /// otherwise.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub fn run(&self, step: u64, rank: u32) -> Result<Option<std::ops::Range<u64>>> {
        let batch = self.batch(step, rank)?;
        let is_whole = self.fillers(step, rank)? == 0
            && self.batch_len(step, rank)? == self.own_len(batch)
            && !self.holds_banned(step, rank)?;
        Ok(self.epoch.positions(batch).filter(|_| is_whole && self.recipe().is_stored()))
    }

    /// The shard that holds the whole batch that `rank` sees at `step`, in samples as stored, or `None` if the plan has
    /// no [`shard_size`](PlanOptions::shard_size). This is O(1), except that some rules look at all pools once, to
    /// count their batches.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if there
    /// is no such step.
    pub fn shard(&self, step: u64, rank: u32) -> Result<Option<std::ops::Range<u64>>> {
        let batch = self.batch(step, rank)?;
        Ok(self.epoch.shard(batch))
    }

    /// The samples that `rank` sees at `step`, and the elements that its batch takes of each.
    ///
    /// # Errors
    /// The same as for [`indices`](Self::indices).
    pub fn parts(&self, step: u64, rank: u32) -> Result<Parts> {
        match self.epoch.uniform() {
            Some(_) => {
                let samples = self.indices(step, rank)?;
                let (starts, sizes) = (vec![0; samples.len()], vec![1; samples.len()]);
                Ok(Parts { samples, starts, sizes, row_ends: Vec::new() })
            }
            None => {
                let (pool, place) = self.pool_with(self.batch(step, rank)?);
                Ok(pool.parts(place, self.recipe()).fit(self.filled_len(step)))
            }
        }
    }

    /// Writes the samples that `rank` sees, from sample `skip` of its batch at `step` on and through the batches of the
    /// following steps, as many as `out` holds.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; [`Kind::Range`](crate::Kind::Range) if its
    /// steps hold fewer samples.
    pub fn fill(&self, step: u64, rank: u32, skip: u64, out: &mut [u64]) -> Result<()> {
        let (mut step, mut skip, mut out) = (step, length(skip), out);
        while !out.is_empty() {
            if let Some((positions, batches)) = self.positions_from(step, rank)? {
                let positions = positions.start + skip as u64..positions.end;
                let len = out.len().min(length(positions.end.saturating_sub(positions.start)));
                let (now, later) = out.split_at_mut(len);
                self.epoch.draws.fill(positions.start, now);
                (step, skip, out) = (step + batches, 0, later);
                continue;
            }
            let samples = self.indices(step, rank)?;
            let samples = samples.get(skip..).unwrap_or_default();
            let (now, later) = out.split_at_mut(out.len().min(samples.len()));
            now.copy_from_slice(&samples[..now.len()]);
            (step, skip, out) = (step + 1, 0, later);
        }
        Ok(())
    }

    /// The positions of consecutive batches that `rank` takes as they are, from the one at `step` on, and the number of
    /// these batches. `None` if positions do not follow each other.
    fn positions_from(&self, step: u64, rank: u32) -> Result<Option<(std::ops::Range<u64>, u64)>> {
        let in_turns = self.world_size > 1 && !self.recipe().is_in_chunks();
        if in_turns || self.epoch.uniform().is_none() || !self.epoch.is_consecutive() {
            return Ok(None);
        }
        let mut batches = self.batch(step, rank)?..self.deal().run(step, rank).end;
        // With several ranks, a batch that is not full may be filled up.
        let is_full = |batch: u64| Some(self.own_len(batch)) == self.epoch.uniform();
        if self.world_size > 1 && !batches.is_empty() && !is_full(batches.end - 1) {
            batches.end -= 1;
        }
        if batches.is_empty() {
            return Ok(None);
        }
        let (first, last) = (self.epoch.positions(batches.start), self.epoch.positions(batches.end - 1));
        Ok(first.zip(last).map(|(first, last)| (first.start..last.end, batches.end - batches.start)))
    }

    /// One step over all ranks. Its counts are known on every rank without communication.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such step.
    pub fn step(&self, index: u64) -> Result<Step> {
        if index >= self.steps() {
            return Err(PlanCause::StepRange { found: index, steps: self.steps() }.into());
        }
        let mut step = Step { index, labels: Some(0), ..Step::default() };
        for rank in (0..self.world_size).filter(|rank| index < self.steps_of(*rank)) {
            let mut parts = self.parts(index, rank)?;
            step.batches.push(parts.samples.clone());
            let counted = self.batch_len(index, rank)? - self.fillers(index, rank)?;
            parts = parts.fit(Some(counted)).without(self.banned(index));
            let counted = parts.samples.len() as u64;
            step.counts.push(counted);
            step.samples += counted;
            step.tokens += parts.sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
            let labels = self.recipe().labels.as_ref();
            let labels = labels.map(|labels| labels.of(&parts.samples, &parts.starts, &parts.sizes));
            step.labels = step.labels.zip(labels).map(|(sum, labels)| sum + labels);
        }
        Ok(step)
    }

    /// The places of `sample`. Empty if it is dropped or came in an earlier part of the epoch; several if it is
    /// repeated so that all ranks have as many batches and samples, or if it is split. Places that only fill up are
    /// left out, and so are those at which the sample is [banned](Self::banned).
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if there is no such sample.
    pub fn places(&self, sample: u64) -> Result<Vec<Place>> {
        let mut places = self.slots(sample)?;
        places.retain(|place| self.banned(place.step).binary_search(&sample).is_err());
        Ok(places)
    }

    /// The places of `sample`, and those at which it is banned.
    pub(super) fn slots(&self, sample: u64) -> Result<Vec<Place>> {
        if sample >= self.samples() {
            return Err(BatchingCause::SampleRange { sample, samples: self.samples() }.into());
        }
        let deal = self.deal();
        let mut places = Vec::new();
        for (batch, first) in
            self.epoch.draws.find(sample).into_iter().flat_map(|position| self.batches_with(position))
        {
            for (step, rank) in deal.places(batch) {
                let counted = self.batch_len(step, rank)? - self.fillers(step, rank)?;
                let indices = (first..counted).step_by(length(self.own_len(batch)));
                places.extend(indices.map(|index| Place { step, rank, index }));
            }
        }
        Ok(places)
    }

    /// True for each part that another part of its sample follows, if rests are continued. Empty otherwise.
    pub(crate) fn find_continued(&self, parts: &Parts) -> Vec<bool> {
        let Some(sizes) = self.options().sizes.as_ref().filter(|_| self.rule().continues()) else {
            return Vec::new();
        };
        let whole = |sample: u64| self.rule().count_taken(sizes.as_slice()[length(sample)]);
        let each = parts.samples.iter().zip(&parts.starts).zip(&parts.sizes);
        each.map(|((&sample, start), size)| start + size < whole(sample)).collect()
    }

    /// The batches that hold the sample at `position`, and its index in each.
    fn batches_with(&self, position: u64) -> Vec<(u64, u64)> {
        if self.epoch.uniform().is_some() {
            let batch = self.epoch.batch_of(position);
            let start = |batch| self.epoch.positions(batch).map_or(0, |positions| positions.start);
            return batch.map(|batch| (batch, position - start(batch))).into_iter().collect();
        }
        let in_pool = |(pool, place)| {
            let pool = self.pool(pool);
            let found = pool.find(place);
            found.into_iter().map(move |(batch, index)| (pool.first + batch, index))
        };
        self.epoch.places_of(position).into_iter().flat_map(in_pool).collect()
    }

    pub(super) fn deal(&self) -> &Deal {
        self.deal.get_or_init(|| {
            let PlanOptions { drop_last, uneven, .. } = &self.recipe().options;
            let batches = match self.recipe().is_homogeneous() {
                // Steps of one key leave batches out, or hold some again.
                true if self.epoch.pools() == 0 => 0,
                true => self.pool(0).len(),
                false => self.epoch.batches(),
            };
            match self.recipe().is_in_chunks() {
                true => Deal::in_parts(batches, &self.past, self.world_size, *drop_last, *uneven),
                false => Deal::new(first(&self.past), batches, self.world_size, *drop_last, *uneven),
            }
        })
    }

    /// Refuses a rank for which there are no batches.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument), with the number of ranks.
    pub fn require_rank(&self, rank: u32) -> Result<()> {
        match rank < self.world_size {
            true => Ok(()),
            false => Err(PlanCause::Rank { rank, world_size: self.world_size }.into()),
        }
    }

    /// The number of the batch that `rank` takes at `step`.
    pub(super) fn batch(&self, step: u64, rank: u32) -> Result<u64> {
        self.require_rank(rank)?;
        self.require_memory()?;
        let batch = self.deal().batch(step, rank);
        let batch = batch.ok_or_else(|| PlanCause::StepRange { found: step, steps: self.steps_of(rank) })?;
        if self.epoch.positions(batch).is_none() && !self.is_kept(self.epoch.pool_of(batch)) {
            self.epoch.require_memory()?;
        }
        Ok(batch)
    }

    /// Checks that there is memory for counting the steps, unless they are counted: [`steps`](Self::steps) and
    /// [`stats`](Self::stats) end the process without it. Other methods check themselves.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    pub fn require_memory(&self) -> Result<()> {
        if self.epoch.is_counted() { Ok(()) } else { self.epoch.require_memory() }
    }

    /// Returns true if `batch` is one of its key that fills a step.
    pub(super) fn fills_step(&self, batch: u64) -> bool {
        self.recipe().is_homogeneous() && {
            let (pool, place) = self.pool_with(batch);
            pool.fills(place)
        }
    }

    /// The pool that holds `batch`, and the place of the batch there.
    fn pool_with(&self, batch: u64) -> (Arc<DealtPool>, u64) {
        let pool = self.pool(self.epoch.pool_of(batch));
        let place = batch - pool.first;
        (pool, place)
    }

    /// Returns true if the pool dealt in place `place` is one of the last few.
    fn is_kept(&self, place: u64) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().any(|(other, _)| *other == place)
    }

    /// The pool dealt in place `place`, made now unless it is one of the last few.
    pub(super) fn pool(&self, place: u64) -> Arc<DealtPool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = pools.iter().find(|(other, _)| *other == place) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(self.epoch.pool(place, &self.worlds()));
        let kept = match self.recipe().is_in_chunks() {
            true => length(u64::from(self.world_size)).saturating_add(KEPT_POOLS).min(MOST_KEPT_POOLS),
            false => KEPT_POOLS,
        };
        pools.truncate(kept - 1);
        pools.push_front((place, Arc::clone(&pool)));
        pool
    }

    /// The parts of the epoch as (world size, batches taken); the last is the one under way.
    fn worlds(&self) -> Vec<(u32, u64)> {
        let past = self.past.iter().map(|&(world_size, steps)| (world_size, u64::from(world_size) * steps));
        let mut worlds: Vec<(u32, u64)> = past.collect();
        match worlds.last_mut() {
            Some(last) if last.0 == self.world_size => last.1 = u64::MAX,
            _ => worlds.push((self.world_size, u64::MAX)),
        }
        worlds
    }
}

/// Room for `samples` sample numbers.
fn zeros(samples: u64) -> Result<Vec<u64>> {
    let len = length(samples);
    let mut numbers = memory::reserve(len)?;
    numbers.resize(len, 0);
    Ok(numbers)
}
