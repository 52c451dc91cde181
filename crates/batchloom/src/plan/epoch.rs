//! The batches of one epoch before they are dealt: an order, divided pool by pool.
//!
//! Without sizes, every sample counts as one element, and everything has a closed form. With sizes, the batches of a
//! pool are made when one of them is asked for. If sizes decide how many batches a pool makes, all pools are looked at
//! once, to count them.
//!
//! With `balance`, the batches of several pools are dealt together, as one pool of the epoch: a window. How many pools
//! there are in a window depends on the world with which the epoch begins.

use std::cmp::Reverse;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, OnceLock};

use super::chunk_pools::{find_pools, slots_of_pools};
use super::full_pools::{Border, FullPools, Span};
use super::pool::{BatchedPool, DealtPool, PoolSamples, length};
use super::recipe::Recipe;
use super::runs::Runs;
use super::survey::{Look, Survey};
use crate::batching::{Grouped, Grouping, PoolBatches, PoolBudgets, PoolSizes, Sizes};
use crate::draws::Draws;
use crate::order::{Key, Order, Purpose, Shards, Shuffle};
use crate::ranks::{BalanceWithin, BatchOrder, Dealt, Updates};

/// The number of samples that are drawn at once.
const DRAWN: usize = 1024;

/// One epoch of a run, the same for every world in which as many pools are dealt together.
pub(super) struct Epoch {
    pub(super) recipe: Arc<Recipe>,
    pub(super) number: u64,
    /// The number of pools of the rule that are dealt together: a pool of the epoch.
    pub(super) pools_in_window: u64,
    pub(super) draws: Draws,
    /// The runs of positions that are batches, if samples all count the same.
    runs: OnceLock<Option<Runs>>,
    /// The order of the runs, if these are shuffled.
    run_order: Option<Order>,
    /// The batches that hold a sample which is banned at some time, ascending, if samples all count the same.
    ban_batches: OnceLock<Vec<u64>>,
    survey: OnceLock<Survey>,
    /// The start of each pool, if pools end with chunks or with full batches.
    borders: OnceLock<Vec<Border>>,
}

crate::brief::debug_in_brief!(Epoch, [recipe, number], []);

impl Epoch {
    pub(super) fn new(recipe: Arc<Recipe>, number: u64) -> Self {
        let shuffled = |things, in_shard: Option<u64>, purpose| match in_shard {
            Some(in_shard) => Order::from(Shards::new(things, in_shard, recipe.options.seed, number)),
            None => Order::new(things, Some(&Key::new(recipe.options.seed, number, purpose))),
        };
        let (draws, runs) = (recipe.draws(number), OnceLock::new());
        let shuffled_runs =
            (recipe.options.shuffle == Shuffle::Runs).then(|| Runs::new(&recipe, draws.len(), number));
        let shuffled_runs = shuffled_runs.flatten().zip(recipe.uniform());
        let run_order = shuffled_runs.map(|(runs, batch_size)| {
            let in_shard = recipe.options.shard_size.map(|samples| samples / batch_size);
            shuffled(runs.count(), in_shard, Purpose::Runs)
        });
        let (ban_batches, survey, borders) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let pools_in_window = recipe.pools_in_window(1);
        Self { draws, runs, run_order, recipe, number, pools_in_window, ban_batches, survey, borders }
    }

    /// This epoch, where it begins with `world_size` ranks.
    pub(super) fn begun_by(self: Arc<Self>, world_size: u32) -> Arc<Self> {
        let pools_in_window = self.recipe.pools_in_window(world_size);
        match pools_in_window == self.pools_in_window {
            true => self,
            false => Arc::new(Self { pools_in_window, ..Self::new(Arc::clone(&self.recipe), self.number) }),
        }
    }

    /// The number of positions.
    pub(super) fn len(&self) -> u64 {
        self.draws.len()
    }

    /// The runs of positions that are batches, if samples all count the same.
    fn runs(&self) -> Option<Runs> {
        self.recipe.uniform()?;
        *self.runs.get_or_init(|| Runs::new(&self.recipe, self.len(), self.number))
    }

    /// The number of positions that are left when those that fill no batch are dropped.
    pub(super) fn count_kept(&self) -> u64 {
        self.recipe.count_kept(self.len())
    }

    /// The number of samples in each shard but the last, or of all samples if there are no shards.
    fn in_shard(&self) -> u64 {
        self.recipe.in_shard(self.len())
    }

    /// The number of samples in each pool of the epoch but the last of a shard.
    pub(super) fn in_pool(&self) -> u64 {
        self.recipe.in_pool.saturating_mul(self.pools_in_window)
    }

    fn pools_in_shard(&self) -> u64 {
        self.in_shard().div_ceil(self.in_pool())
    }

    /// The pool that holds `position`; of several, which have parts of its sample, the last.
    fn pool_at(&self, position: u64) -> u64 {
        if let Some(borders) = self.borders() {
            return borders.partition_point(|border| border.position <= position) as u64 - 1;
        }
        let in_shard = self.in_shard();
        position / in_shard * self.pools_in_shard() + position % in_shard / self.in_pool()
    }

    /// The first position of `pool`; past the last pool, a number above all positions.
    fn start_of(&self, pool: u64) -> u64 {
        if let Some(borders) = self.borders() {
            return borders.get(length(pool)).map_or(u64::MAX, |border| border.position);
        }
        let pools = self.pools_in_shard();
        pool / pools * self.in_shard() + pool % pools * self.in_pool()
    }

    /// The part of the epoch that `pool` takes.
    fn span_of(&self, pool: u64) -> Span {
        let kept = self.count_kept();
        let border = |pool: u64| match self.borders() {
            Some(borders) => borders.get(length(pool)).copied(),
            None => Some(Border::from(self.start_of(pool))),
        };
        Span::between(border(pool).unwrap_or(kept.into()), border(pool + 1), kept)
    }

    /// The start of each pool, if pools end with chunks or with full batches.
    fn borders(&self) -> Option<&[Border]> {
        if let Some(pools) = self.full_pools(self.pools_in_window) {
            return Some(self.borders.get_or_init(|| pools.borders(self.sizes_taken())));
        }
        let window = self.draws.chunk_window()?;
        let batch_size = self.recipe.options.rule.batch_size().unwrap_or(1);
        let find =
            || find_pools(window, self.recipe.in_pool, batch_size).into_iter().map(Border::from).collect();
        Some(self.borders.get_or_init(find))
    }

    /// The slots of the window that each pool has samples of, if samples are read chunk by chunk from one window.
    pub(super) fn slots_of_pools(&self) -> Option<Vec<RangeInclusive<u64>>> {
        let window = self.draws.chunk_window()?;
        let starts: Vec<u64> = self.borders()?.iter().map(|border| border.position).collect();
        Some(slots_of_pools(window, &starts, self.count_kept()))
    }

    /// The measures of windows of so many pools, if pools end with full batches.
    fn full_pools(&self, pools_in_window: u64) -> Option<FullPools> {
        let rule = &self.recipe.options.rule;
        let is_cut = rule.continues() && self.recipe.grouping.is_none();
        let batch = rule.budget(self.recipe.options.sizes.as_ref()).filter(|_| is_cut)?;
        let in_pool = self.recipe.in_pool.saturating_mul(pools_in_window);
        Some(FullPools { in_pool, batch, in_shard: self.in_shard() })
    }

    /// The number of elements that batches take of the sample at each position.
    fn sizes_taken(&self) -> impl Iterator<Item = u32> + use<'_> {
        let (rule, kept) = (&self.recipe.options.rule, self.count_kept());
        let sizes = self.recipe.sizes_for_rule().map_or(&[][..], Sizes::as_slice);
        (0..kept).step_by(DRAWN).flat_map(move |start| {
            let mut samples = vec![0; length(kept - start).min(DRAWN)];
            self.draws.fill(start, &mut samples);
            samples.into_iter().map(move |sample| rule.count_taken(sizes[length(sample)]))
        })
    }

    /// The samples, as stored, of the shard that holds `batch`, or `None` if there are no shards.
    pub(super) fn shard(&self, batch: u64) -> Option<Range<u64>> {
        let (shard_size, samples) = (self.recipe.options.shard_size?, self.recipe.samples);
        if let (Some(runs), Some(shards)) = (self.runs(), self.run_order.as_ref().and_then(Order::shards)) {
            let range = shards.range(batch);
            return Some(runs.positions(range.start).start..runs.positions(range.end - 1).end);
        }
        // A pool lies in one shard, and a batch in one pool.
        let position = match self.positions(batch) {
            Some(positions) => positions.start,
            None => self.start_of(self.exchange(self.pool_of(batch))),
        };
        let start = position - position % shard_size;
        let stored = || start..start.saturating_add(shard_size).min(samples);
        Some(self.draws.shards().map_or_else(stored, |shards| shards.range(position)))
    }

    /// The positions of the samples of `batch`, or `None` if samples do not all count the same.
    pub(super) fn positions(&self, batch: u64) -> Option<Range<u64>> {
        let run = self.run_order.as_ref().map_or(batch, |order| order.get(batch));
        self.runs().map(|runs| runs.positions(run))
    }

    /// The batch that holds `position`, or `None` if samples do not all count the same.
    pub(super) fn batch_of(&self, position: u64) -> Option<u64> {
        let run = self.runs()?.run_of(position)?;
        Some(self.run_order.as_ref().map_or(run, |order| order.find(run)))
    }

    /// The batches that hold a sample which is banned at some time, ascending, if samples all count the same.
    pub(super) fn ban_batches(&self) -> &[u64] {
        self.ban_batches.get_or_init(|| {
            let banned = self.recipe.bans.all().into_iter();
            let positions = banned.flat_map(|sample| self.draws.find(sample));
            let mut batches: Vec<u64> = positions.filter_map(|position| self.batch_of(position)).collect();
            batches.sort_unstable();
            batches.dedup();
            batches
        })
    }

    /// Returns true if the positions of consecutive batches follow each other.
    pub(super) fn is_consecutive(&self) -> bool {
        self.run_order.is_none()
    }

    /// Returns true if counting the batches takes no memory, or did.
    pub(super) fn is_counted(&self) -> bool {
        self.recipe.uniform().is_some()
            || self.survey.get().is_some()
            || (self.equal_batches().is_some() && !self.recipe.counts_by_keys())
    }

    /// The number of batches, each counted once.
    pub(super) fn batches(&self) -> u64 {
        match (self.runs(), self.recipe.options.rule.batch_size().filter(|_| !self.recipe.counts_by_keys())) {
            (Some(runs), _) => runs.count(),
            (None, Some(batch_size)) => self.count_kept().div_ceil(batch_size),
            (None, None) => self.survey().before.last().copied().unwrap_or(0),
        }
    }

    /// The number of samples in a full batch, or `None` if samples do not all count the same.
    pub(super) fn uniform(&self) -> Option<u64> {
        self.recipe.uniform()
    }

    /// The number of pools.
    pub(super) fn pools(&self) -> u64 {
        self.count_kept().checked_sub(1).map_or(0, |last| self.pool_at(last) + 1)
    }

    /// The place, in the order of dealing, of the pool that holds `batch`.
    pub(super) fn pool_of(&self, batch: u64) -> u64 {
        match self.equal_batches() {
            Some(batch_size) => self.pool_at(batch * batch_size),
            // Batches that fill steps of one key come past the last number.
            None if self.recipe.is_homogeneous() => 0,
            None => self.survey().before.partition_point(|&before| before <= batch) as u64 - 1,
        }
    }

    /// The positions that have to be read for the batches from `first` to `last`: their own, or those of their pools,
    /// if a rule sorts.
    pub(super) fn positions_read(&self, first: u64, last: u64) -> Range<u64> {
        match (self.equal_batches(), self.recipe.options.rule.looks_at_sizes()) {
            (Some(batch_size), false) => first * batch_size..((last + 1) * batch_size).min(self.count_kept()),
            _ => self.positions_of_pools(first, last),
        }
    }

    /// The positions of the pools that hold the batches from `first` to `last`, if pools are dealt in their order.
    fn positions_of_pools(&self, first: u64, last: u64) -> Range<u64> {
        self.span_of(self.pool_of(first)).positions.start..self.span_of(self.pool_of(last)).positions.end
    }

    /// The pools that hold a part of the sample at `position`, by their places in the order of dealing, and the place of
    /// the position in each. Empty for positions that are dropped.
    pub(super) fn places_of(&self, position: u64) -> Vec<(u64, u64)> {
        if position >= self.count_kept() {
            return Vec::new();
        }
        let last = self.pool_at(position);
        let holds = |pool: &u64| self.span_of(*pool).positions.contains(&position);
        let pools = (0..=last).rev().take_while(holds);
        pools.map(|pool| (self.exchange(pool), position - self.start_of(pool))).collect()
    }

    /// The end of the pools that hold the first `batches` batches, if pools come in their order; the end of these
    /// batches if samples all count the same.
    pub(super) fn end_of_pools(&self, batches: u64) -> u64 {
        let Some(last) = batches.min(self.batches()).checked_sub(1) else { return 0 };
        match self.positions(last) {
            Some(positions) => positions.end,
            None => self.positions_of_pools(0, last).end,
        }
    }

    /// The pool that is dealt in place `place`. `worlds` lists the parts of the epoch as (world size, batches taken).
    pub(super) fn pool(&self, place: u64, worlds: &[(u32, u64)]) -> DealtPool {
        let first = match self.equal_batches() {
            Some(batch_size) => self.start_of(place) / batch_size,
            None => self.survey().before[length(place)],
        };
        let pool = self.exchange(place);
        let kept = self.survey.get().and_then(|survey| survey.kept.get(length(pool)).cloned());
        let batched = kept.unwrap_or_else(|| Arc::new(self.cut(pool)));
        let mut pool = DealtPool { first, dealt: None, batched };
        pool.dealt = self.arrange(place, &pool, worlds);
        if self.recipe.options.rule.continues() {
            if !self.recipe.options.balance && !self.recipe.is_homogeneous() {
                pool.end_with_partial(self.full_pools(1).map_or(0, |pools| pools.batch));
            }
            pool.order_parts();
        }
        pool
    }

    /// The order in which the batches of `pool` are dealt, or `None` if it is that in which the rule made them.
    fn arrange(&self, place: u64, pool: &DealtPool, worlds: &[(u32, u64)]) -> Option<Vec<Dealt>> {
        let recipe = &self.recipe;
        let one_key = recipe.grouping.as_ref().filter(|grouping| grouping.is_homogeneous());
        let mixes = recipe.options.shuffle == Shuffle::Samples
            && (recipe.options.rule.looks_at_sizes() || one_key.is_some());
        let largest_first = recipe.options.largest_first && place == 0;
        if !mixes && !recipe.options.balance && !largest_first && one_key.is_none() {
            return None;
        }
        let count = pool.batched.batches.ends.len();
        if let Some(grouping) = one_key {
            let keys: Vec<u64> =
                (0..count).map(|batch| u64::from(pool.batched.key(batch, grouping))).collect();
            let purpose = Purpose::Batches { pool: place };
            let key = mixes.then(|| Key::new(recipe.options.seed, self.number, purpose));
            let order = BatchOrder { first: pool.first, costs: &keys, key: key.as_ref(), largest: None };
            return Some(order.order_by_key(worlds, recipe.options.drop_last, recipe.options.uneven));
        }
        let (costs, elements) = match recipe.options.balance || largest_first {
            true => self.measure_batches(&pool.batched),
            false => (vec![0; count], Vec::new()),
        };
        let largest = largest_first.then(|| find_largest(&elements)).flatten();
        let purpose = Purpose::Batches { pool: self.exchange(place) };
        let key = mixes.then(|| Key::new(recipe.options.seed, self.number, purpose));
        let order = BatchOrder { first: pool.first, costs: &costs, key: key.as_ref(), largest };
        let dealt = match (recipe.options.balance, recipe.options.balance_within) {
            (false, _) => order.mix(),
            (true, BalanceWithin::Window) => order.balance(worlds),
            (true, within) => {
                let accumulate = recipe.options.accumulate.unwrap_or(1);
                order.balance_updates(worlds, Updates { accumulate, within })
            }
        };
        Some(dealt.into_iter().map(Dealt::from).collect())
    }

    /// The cost of each batch, as a number that orders batches, and its elements with padding, in the order in which
    /// the rule made the batches.
    fn measure_batches(&self, cut: &BatchedPool) -> (Vec<u64>, Vec<u64>) {
        let measured = |batch| {
            let parts = cut.parts(batch, &self.recipe);
            let measure = self.measure(&parts);
            (self.recipe.options.cost.rank(self.batch_shape(&parts, &measure)), measure.padded)
        };
        (0..cut.batches.ends.len()).map(measured).unzip()
    }

    /// The samples of a pool, and the batches that the rule makes of them.
    pub(super) fn cut(&self, pool: u64) -> BatchedPool {
        let recipe = &self.recipe;
        if recipe.options.rule.listed().is_some() {
            let batches = recipe.options.rule.cut(PoolSizes::default());
            return BatchedPool { samples: PoolSamples::Run(0), batches };
        }
        if let Some(grouping) = &recipe.grouping {
            return self.cut_by(grouping);
        }
        let Some(sizes) = recipe.sizes_for_rule() else {
            return BatchedPool { samples: PoolSamples::Run(0), batches: PoolBatches::default() };
        };
        let span = self.span_of(pool);
        let positions = span.positions.clone();
        let count = length(positions.end - positions.start);
        if recipe.is_stored() {
            let range = length(positions.start)..length(positions.start) + count;
            let budgets = recipe.budgeted.as_ref().map(|budgeted| budgeted.stored().part(&range));
            let extents = sizes.extents_of(range.clone());
            let batches = self.cut_sizes(&span, &sizes.as_slice()[range], extents, budgets, None);
            return BatchedPool { samples: PoolSamples::Run(positions.start), batches };
        }
        let mut samples = vec![0; count];
        self.draws.fill(positions.start, &mut samples);
        let rows = recipe.budgeted.as_ref().map(|budgeted| (budgeted, budgeted.gather(&samples)));
        let budgets = rows.as_ref().map(|(budgeted, rows)| budgeted.pool(rows));
        let gathered = budgets.and_then(PoolBudgets::primary);
        let look_up = || samples.iter().map(|&sample| sizes.as_slice()[length(sample)]).collect();
        let gathered: Vec<u32> = gathered.unwrap_or_else(look_up);
        let extents = sizes.gather_extents(&samples);
        let extents = extents.as_ref().map(|(dimensions, extents)| (*dimensions, extents.as_slice()));
        let together = || recipe.in_shard(recipe.count_pooled(self.len()));
        let together = (recipe.options.shuffle == Shuffle::Samples).then(together);
        let batches = self.cut_sizes(&span, &gathered, extents, budgets, together);
        BatchedPool { samples: PoolSamples::Listed(samples), batches }
    }

    /// The batches that the rule makes of samples of these sizes, which take a part of the epoch, pool by pool of the
    /// rule.
    fn cut_sizes(
        &self,
        span: &Span,
        sizes: &[u32],
        extents: Option<(usize, &[u32])>,
        budgets: Option<PoolBudgets<'_>>,
        together: Option<u64>,
    ) -> PoolBatches {
        let recipe = &self.recipe;
        let (even, drop_last) = (recipe.options.balance, recipe.options.drop_last);
        if let Some(pools) = self.full_pools(1) {
            let pool = PoolSizes { sizes, extents, together, even, drop_last, budgets };
            let pools = FullPools { in_shard: u64::MAX, ..pools };
            return span.cut(&recipe.options.rule, pool, (self.pools_in_window > 1).then_some(pools));
        }
        let cut = |range: Range<usize>| {
            let extents = extents.map(|(dimensions, extents)| {
                (dimensions, &extents[range.start * dimensions..range.end * dimensions])
            });
            let budgets = budgets.map(|budgets| budgets.part(&range));
            let sizes = &sizes[range];
            recipe.options.rule.cut(PoolSizes { sizes, extents, together, even, drop_last, budgets })
        };
        if self.pools_in_window == 1 {
            return cut(0..sizes.len());
        }
        let mut batches = PoolBatches::default();
        for start in (0..sizes.len()).step_by(length(recipe.in_pool)) {
            let end = start.saturating_add(length(recipe.in_pool)).min(sizes.len());
            batches.append_pool(cut(start..end), u32::try_from(start).unwrap_or(u32::MAX));
        }
        batches
    }

    /// All samples, and the batches that the rule makes of those that may share one.
    fn cut_by(&self, grouping: &Grouping) -> BatchedPool {
        let recipe = &self.recipe;
        let mut samples = vec![0; length(self.count_kept())];
        self.draws.fill(0, &mut samples);
        let counted = recipe.sizes_for_rule();
        let size = |&sample: &u64| counted.map_or(1, |sizes| sizes.as_slice()[length(sample)]);
        let sizes: Vec<u32> = samples.iter().map(size).collect();
        let extents = counted.and_then(|sizes| sizes.gather_extents(&samples));
        let extents = extents.as_ref().map(|(dimensions, extents)| (*dimensions, extents.as_slice()));
        let rows = recipe.budgeted.as_ref().map(|budgeted| (budgeted, budgeted.gather(&samples)));
        let budgets = rows.as_ref().map(|(budgeted, rows)| budgeted.pool(rows));
        let batches = grouping.cut(
            &recipe.options.rule,
            Grouped {
                samples: &samples,
                pool: PoolSizes { sizes: &sizes, extents, budgets, ..PoolSizes::default() },
                counted,
                shuffled: recipe.options.shuffle == Shuffle::Samples,
                drop_last: recipe.options.drop_last,
            },
        );
        BatchedPool { samples: PoolSamples::Listed(samples), batches }
    }

    /// The number of elements of all samples.
    pub(super) fn tokens(&self) -> u64 {
        let Some(sizes) = &self.recipe.options.sizes else { return self.len() };
        if !self.recipe.draws_otherwise() {
            return sizes.total();
        }
        let mut samples = [0; DRAWN];
        let mut tokens = 0;
        for start in (0..self.len()).step_by(samples.len()) {
            let count = length(self.len() - start).min(samples.len());
            self.draws.fill(start, &mut samples[..count]);
            let size = |&sample: &u64| u64::from(sizes.as_slice()[length(sample)]);
            tokens += samples[..count].iter().map(size).sum::<u64>();
        }
        tokens
    }

    /// The number of samples in every batch but the last, if pools are dealt in their order. Every pool then starts
    /// with a new batch; its number follows from the samples before it.
    fn equal_batches(&self) -> Option<u64> {
        let counts_differ = self.recipe.options.largest_first || self.recipe.counts_by_keys();
        self.recipe.options.rule.batch_size().filter(|_| !counts_differ)
    }

    /// The number of samples in `batch`, if it is full and in a pool whose batches are all full.
    pub(super) fn full_len(&self, batch: u64) -> Option<u64> {
        let batch_size = self.equal_batches().filter(|_| self.recipe.is_in_chunks())?;
        let end = self.start_of(self.pool_of(batch) + 1).min(self.count_kept());
        end.is_multiple_of(batch_size).then_some(batch_size)
    }

    /// The pool in place `place`, which is also the place of pool `place`, because at most two pools are exchanged.
    fn exchange(&self, place: u64) -> u64 {
        match self.recipe.options.largest_first {
            false => place,
            true => match self.survey().first {
                first if place == first => 0,
                first if place == 0 => first,
                _ => place,
            },
        }
    }

    fn survey(&self) -> &Survey {
        self.survey.get_or_init(|| {
            let pools = self.pools();
            let keeps = |_: &u64| pools == 1 || self.keeps_pools();
            let kept: Vec<_> = (0..pools).filter(keeps).map(|pool| Arc::new(self.cut(pool))).collect();
            let look = |pool| match kept.get(length(pool)) {
                Some(kept) => self.look_at(kept),
                None => self.look_at(&self.cut(pool)),
            };
            let survey = Survey::new(pools, self.count_survey_threads(), look);
            Survey { kept, ..survey }
        })
    }

    fn look_at(&self, pool: &BatchedPool) -> Look {
        let largest = match self.recipe.options.largest_first {
            true => self.measure_batches(pool).1.into_iter().max().unwrap_or(0),
            false => 0,
        };
        Look { batches: pool.batches.ends.len() as u64, largest }
    }
}

/// The batch that has most elements, and the first one of several.
fn find_largest(elements: &[u64]) -> Option<u32> {
    let batches = (0_u32..).zip(elements);
    batches.min_by_key(|&(batch, &elements)| (Reverse(elements), batch)).map(|(batch, _)| batch)
}

/// The number of batches delivered by earlier parts of an epoch.
pub(super) fn first(past: &[(u32, u64)]) -> u64 {
    past.iter().map(|(world_size, steps)| u64::from(*world_size) * steps).sum()
}
