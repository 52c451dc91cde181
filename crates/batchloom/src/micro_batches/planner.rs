//! `MicroBatchPlanner`: the options, and the way from samples to micro-batches.

use super::choose::{Across, Method, Wanted, Work};
use super::deal::Slot;
use super::error::MicroBatchCause;
use super::options::{MicroBatchOrder, OversizeSample, SyncEvery, Whole};
use super::price::Price;
use super::problem::{Limits, Problem};
use super::result::{Description, MicroBatches};
use super::rollouts::Rollouts;
use super::units::Room;
use crate::Result;
use crate::batching::CostModel;
use crate::memory::require_each;

/// The most ranks.
const MOST_RANKS: u32 = 1 << 20;

/// The most micro-batches of all ranks.
const MOST_MICRO_BATCHES: u64 = 1 << 24;

/// A planner of micro-batches: how samples in hand are divided among ranks, and into micro-batches.
///
/// ```
/// use batchloom::micro_batches::{MicroBatchPlanner, Rollouts};
///
/// let lengths = [900, 120, 300, 310, 80, 640];
/// let planner = MicroBatchPlanner::new(2, 1024);
/// let planned = planner.plan(&Rollouts::new(&lengths))?;
/// assert_eq!((planned.world_size, planned.count), (2, 2));
/// assert!(planned.tokens.iter().all(|&tokens| tokens <= 1024));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MicroBatchPlanner {
    world_size: u32,
    max_tokens: u64,
    cost: CostModel,
    max_samples: Option<u32>,
    multiple_of: u32,
    least: u32,
    count: Option<u32>,
    count_multiple_of: u32,
    equal_samples: bool,
    whole: Option<Whole>,
    sync: SyncEvery,
    oversize: OversizeSample,
    order: MicroBatchOrder,
}

impl MicroBatchPlanner {
    /// A planner for a number of ranks and the most tokens in a micro-batch.
    pub fn new(world_size: u32, max_tokens: u64) -> Self {
        Self {
            world_size,
            max_tokens,
            cost: CostModel::default(),
            max_samples: None,
            multiple_of: 1,
            least: 1,
            count: None,
            count_multiple_of: 1,
            equal_samples: false,
            whole: None,
            sync: SyncEvery::default(),
            oversize: OversizeSample::default(),
            order: MicroBatchOrder::default(),
        }
    }

    /// Sets the cost of a micro-batch: `fixed + per_token * sum of L + per_pair * sum of L^2`.
    #[must_use]
    pub fn cost(self, cost: CostModel) -> Self {
        Self { cost, ..self }
    }

    /// Sets the most samples in a micro-batch.
    #[must_use]
    pub fn max_samples(self, samples: u32) -> Self {
        Self { max_samples: Some(samples), ..self }
    }

    /// Sets the number that lengths are rounded up to a multiple of before they count.
    #[must_use]
    pub fn multiple_of(self, multiple_of: u32) -> Self {
        Self { multiple_of, ..self }
    }

    /// Sets the least number of micro-batches of a rank.
    #[must_use]
    pub fn least(self, least: u32) -> Self {
        Self { least, ..self }
    }

    /// Sets the number of micro-batches of a rank. The latest samples are left over if they do not fit.
    #[must_use]
    pub fn count(self, count: u32) -> Self {
        Self { count: Some(count), ..self }
    }

    /// Sets the number that the micro-batches of a rank are a multiple of, as interleaved pipeline stages want it.
    #[must_use]
    pub fn count_multiple_of(self, multiple: u32) -> Self {
        Self { count_multiple_of: multiple, ..self }
    }

    /// Gives each rank as many samples.
    #[must_use]
    pub fn equal_samples(self, equal: bool) -> Self {
        Self { equal_samples: equal, ..self }
    }

    /// Sets what keeps the samples of a group together.
    #[must_use]
    pub fn whole(self, whole: Whole) -> Self {
        Self { whole: Some(whole), ..self }
    }

    /// Sets where ranks wait for each other.
    #[must_use]
    pub fn sync(self, sync: SyncEvery) -> Self {
        Self { sync, ..self }
    }

    /// Sets the treatment of a sample that exceeds a micro-batch.
    #[must_use]
    pub fn oversize(self, oversize: OversizeSample) -> Self {
        Self { oversize, ..self }
    }

    /// Sets the order of the micro-batches of a rank.
    #[must_use]
    pub fn order(self, order: MicroBatchOrder) -> Self {
        Self { order, ..self }
    }

    /// Plans samples. The answer depends on the samples and the options alone.
    ///
    /// # Errors
    /// Before any work: [`Kind::Argument`](crate::Kind::Argument) for options that make no sense,
    /// [`Kind::Data`](crate::Kind::Data) for a sample that exceeds a micro-batch, for groups and numbers of samples that
    /// do not go with the options, and for values that are not one for each sample.
    /// [`Kind::Memory`](crate::Kind::Memory) if there is none.
    pub fn plan(&self, rollouts: &Rollouts<'_>) -> Result<MicroBatches> {
        self.check()?;
        self.check_groups(rollouts)?;
        rollouts.check()?;
        // Lists of units, bins and samples, with their places.
        require_each(rollouts.lengths.len(), 256)?;
        let price = Price::new(self.cost);
        let room = Room { tokens: self.max_tokens, samples: self.max_samples.map_or(u64::MAX, u64::from) };
        let Self { multiple_of, oversize, whole, .. } = *self;
        let problem = Problem::new(rollouts, Limits { room, multiple_of, oversize, whole }, &price)?;
        self.check_equal(&problem)?;
        let (slots, taken) = self.choose(&problem, room)?;
        let mut left = Vec::new();
        for (members, &take) in problem.members.iter().zip(&problem.take) {
            if take >= taken {
                left.extend_from_slice(members);
            }
        }
        left.sort_unstable();
        let largest = self.find_largest(&problem, taken, &price);
        let description = Description {
            problem: &problem,
            rollouts,
            model: self.cost,
            price: &price,
            sync: self.sync,
            max_tokens: self.max_tokens,
            largest,
        };
        Ok(description.describe(&self.in_order(slots, &problem), self.world_size, left))
    }

    fn check(&self) -> Result<()> {
        let numbers = [
            ("max_tokens", self.max_tokens),
            ("max_samples", self.max_samples.map_or(1, u64::from)),
            ("multiple_of", u64::from(self.multiple_of)),
            ("least", u64::from(self.least)),
            ("count", self.count.map_or(1, u64::from)),
            ("count_multiple_of", u64::from(self.count_multiple_of)),
        ];
        if let Some(&(option, _)) = numbers.iter().find(|(_, number)| *number == 0) {
            return Err(MicroBatchCause::NotPositive { option }.into());
        }
        if !(1..=MOST_RANKS).contains(&self.world_size) {
            return Err(MicroBatchCause::World { found: self.world_size, limit: MOST_RANKS }.into());
        }
        let Self { multiple_of, max_tokens, .. } = *self;
        if u64::from(multiple_of) > max_tokens {
            return Err(MicroBatchCause::Multiple { multiple_of, max_tokens }.into());
        }
        if let Some(count) = self.count {
            let multiple = self.count_multiple_of;
            if count < self.least {
                return Err(MicroBatchCause::CountBelowLeast { count, least: self.least }.into());
            }
            if !count.is_multiple_of(multiple) {
                return Err(MicroBatchCause::CountMultiple { count, multiple }.into());
            }
        }
        let least = u64::from(self.least).next_multiple_of(u64::from(self.count_multiple_of));
        self.check_count(self.count.map_or(least, u64::from))
    }

    /// Refuses more micro-batches than there is memory for.
    fn check_count(&self, found: u64) -> Result<()> {
        let limit = MOST_MICRO_BATCHES;
        match found.saturating_mul(u64::from(self.world_size)) <= limit {
            true => Ok(()),
            false => Err(MicroBatchCause::TooMany { found, world_size: self.world_size, limit }.into()),
        }
    }

    fn check_groups(&self, rollouts: &Rollouts<'_>) -> Result<()> {
        match (self.whole, rollouts.groups) {
            (None, Some(_)) => Err(MicroBatchCause::GroupsWithoutWhole.into()),
            (Some(whole), None) => Err(MicroBatchCause::WholeWithoutGroups { whole: whole.name() }.into()),
            _ => Ok(()),
        }
    }

    /// Checks that samples, or groups of one size, divide among ranks.
    fn check_equal(&self, problem: &Problem) -> Result<()> {
        if !self.equal_samples {
            return Ok(());
        }
        let world_size = self.world_size;
        let takes = problem.first.len() as u64;
        let mut sizes = vec![0_u64; problem.first.len()];
        for (unit, &take) in problem.take.iter().enumerate() {
            sizes[take] += problem.units.samples[unit];
        }
        if let Some(take) = sizes.iter().position(|&size| size != sizes[0]) {
            let (sample, found, expected) = (problem.first[take] as u64, sizes[take], sizes[0]);
            return Err(MicroBatchCause::EqualGroups { sample, found, expected }.into());
        }
        // An exact number of micro-batches leaves the rest, but each rank takes a sample.
        let leaves_rest = self.count.is_some() && takes >= u64::from(world_size);
        match (leaves_rest || takes.is_multiple_of(u64::from(world_size)), self.whole) {
            (true, _) => Ok(()),
            (false, None) => Err(MicroBatchCause::EqualSamples { samples: takes, world_size }.into()),
            (false, Some(_)) => Err(MicroBatchCause::EqualGroupCount { groups: takes, world_size }.into()),
        }
    }

    /// Plans all samples, or the oldest that fit an exact number of micro-batches; returns the number of takes, too.
    fn choose(&self, problem: &Problem, room: Room) -> Result<(Vec<Slot>, usize)> {
        let takes = problem.first.len();
        let Some(count) = self.count.filter(|_| takes > 0) else {
            let slots = self.attempt(problem, room, takes)?.unwrap_or_default();
            return Ok((slots, takes));
        };
        let step = if self.equal_samples { to_index(self.world_size) } else { 1 };
        // The oldest `good` steps of takes fit; those of `bad` and more do not, as far as is known.
        let (mut good, mut bad) = (0, takes / step + 1);
        let mut best = None;
        let mut next = bad - 1;
        while bad - good > 1 {
            match self.attempt(problem, room, next * step)? {
                Some(slots) => (good, best) = (next, Some(slots)),
                None => bad = next,
            }
            next = usize::midpoint(good, bad);
        }
        match best {
            Some(slots) => Ok((slots, good * step)),
            None => Err(self.refuse_count(problem, room, count, step.min(takes))?),
        }
    }

    /// The error for a number of micro-batches that does not suffice for the oldest takes.
    fn refuse_count(&self, problem: &Problem, room: Room, count: u32, takes: usize) -> Result<crate::Error> {
        let sample = problem.first[0] as u64;
        let any = Self { count: None, least: 1, equal_samples: false, ..*self };
        let needed = any.attempt(problem, room, takes)?.map_or(0, |slots| slots.len() as u64);
        Ok(MicroBatchCause::CountTooSmall { count, needed: needed.max(u64::from(count) + 1), sample }.into())
    }

    /// Plans the oldest takes. `None` if an exact number of micro-batches does not suffice.
    fn attempt(&self, problem: &Problem, room: Room, takes: usize) -> Result<Option<Vec<Slot>>> {
        let chosen = problem.units_of(takes);
        if chosen.is_empty() {
            return Ok(None);
        }
        let world = to_index(self.world_size);
        let across = match (self.whole, self.equal_samples) {
            (Some(Whole::Rank), _) => Across::Nothing,
            (_, true) => Across::Swaps,
            (_, false) => Across::Free,
        };
        let (units, class) = (&problem.units, problem.class.as_slice());
        let work = Work {
            units,
            class,
            classes: problem.classes,
            room,
            world,
            sync: self.sync,
            across,
            method: Method::Largest,
        };
        let wanted = Wanted {
            least: to_index(self.least),
            exactly: self.count.map(to_index),
            multiple: to_index(self.count_multiple_of),
        };
        let found = work.find_best(&problem.take, &chosen, wanted, self.equal_samples);
        if let Some(slots) = &found {
            self.check_count(slots.len() as u64)?;
        }
        Ok(found)
    }

    /// The greatest cost that one rank must take, by the samples that are planned.
    fn find_largest(&self, problem: &Problem, taken: usize, price: &Price) -> f64 {
        if self.whole.is_none() {
            return 0.0;
        }
        let mut moments = vec![super::price::Moments::default(); taken];
        for (members, &take) in problem.members.iter().zip(&problem.take) {
            if let Some(moments) = moments.get_mut(take) {
                members.iter().for_each(|&sample| moments.add(problem.rounded[sample]));
            }
        }
        moments.into_iter().map(|moments| price.of_samples(moments)).fold(0.0, f64::max)
    }

    /// Puts the micro-batches of all ranks in order.
    fn in_order(&self, mut slots: Vec<Slot>, problem: &Problem) -> Vec<Slot> {
        slots.sort_by_cached_key(|slot| std::cmp::Reverse(slot.cost(&problem.units)));
        match self.order {
            MicroBatchOrder::LargestFirst => slots,
            MicroBatchOrder::Ends => {
                let (mut before, mut after) = (Vec::new(), Vec::new());
                for (place, slot) in slots.into_iter().enumerate() {
                    if place % 2 == 0 { before.push(slot) } else { after.push(slot) }
                }
                before.reverse();
                before.append(&mut after);
                before
            }
        }
    }
}

/// A number of ranks or micro-batches as a length.
fn to_index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
