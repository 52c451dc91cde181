//! The plan of one epoch.
//!
//! Promise: nothing here grows with the number of samples. Making a plan, asking it for any step, finding a sample and
//! resuming are O(1).

use std::collections::TryReserveError;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::PlanBuilder;
use crate::cut::{Cut, Rule};
use crate::deal::{Deal, Uneven};
use crate::order::{self, Key, Order, Purpose};
use crate::{Error, Result};

/// What stays the same over all epochs and worlds of a run. Its hash is the plan's fingerprint, so the names and the
/// order of these fields are part of the state format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Recipe {
    pub(super) samples: u64,
    pub(super) rule: Rule,
    pub(super) shuffle: bool,
    pub(super) seed: u64,
    pub(super) drop_last: bool,
    pub(super) uneven: Uneven,
}

impl Recipe {
    fn fingerprint(&self) -> String {
        let text = format!("{} {}", order::VERSION, self.text());
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// The recipe as JSON, fields in the order of their declaration.
    fn text(&self) -> String {
        // Plain structs of integers, booleans and names: serialising them has no way to fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The steps of one epoch, for every rank.
///
/// ```
/// use batchloom::Plan;
///
/// let plan = Plan::builder(1_000_000_000).batch_size(64).shuffle(true).world(8).build()?;
/// assert_eq!(plan.steps(), 1_953_125);
/// let batch = plan.indices(1_000_000, 3)?; // what rank 3 sees at step 1 000 000
/// assert_eq!(batch.len(), 64);
/// assert_eq!(plan.places(batch[5])?[0].step, 1_000_000);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) recipe: Recipe,
    pub(super) epoch: u64,
    pub(super) world: u32,
    /// The parts of this epoch that came earlier: (world, steps).
    pub(super) past: Vec<(u32, u64)>,
    pub(super) order: Order,
    pub(super) cut: Cut,
    pub(super) deal: Deal,
}

/// One step: `world` batches, one for each rank, taken at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which step of the plan.
    pub index: u64,
    /// Samples over all ranks.
    pub samples: u64,
    /// Elements over all ranks, without padding: the divisor of a loss that is averaged over tokens.
    pub tokens: u64,
    /// For each rank that takes part, the samples of its batch.
    pub batches: Vec<Vec<u64>>,
}

/// Where a sample comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// At which step,
    pub step: u64,
    /// on which rank,
    pub rank: u32,
    /// at which index of the batch.
    pub index: u64,
}

impl Plan {
    /// The options of a plan over `samples` samples.
    pub fn builder(samples: u64) -> PlanBuilder {
        PlanBuilder::new(samples)
    }

    pub(super) fn new(recipe: Recipe, epoch: u64, world: u32, past: Vec<(u32, u64)>) -> Self {
        let key = recipe.shuffle.then(|| Key::new(recipe.seed, epoch, Purpose::Samples));
        let order = Order::new(recipe.samples, key.as_ref());
        let cut = Cut::new(recipe.rule.clone(), recipe.samples, recipe.drop_last);
        let deal = Deal::new(first(&past), cut.batches(), world, recipe.drop_last, recipe.uneven);
        Self { recipe, epoch, world, past, order, cut, deal }
    }

    pub(super) fn require_steps(&self) -> Result<()> {
        let Rule::FixedSize(rule) = &self.recipe.rule;
        match self.deal.steps() {
            0 => Err(Error::NothingLeft {
                samples: self.recipe.samples,
                batch_size: rule.batch_size(),
                batches: self.cut.batches(),
                world: self.world,
            }),
            _ => Ok(()),
        }
    }

    /// The same run in another epoch, from its start.
    #[must_use]
    pub fn at_epoch(&self, epoch: u64) -> Self {
        Self::new(self.recipe.clone(), epoch, self.world, Vec::new())
    }

    /// The samples in the dataset.
    pub fn samples(&self) -> u64 {
        self.recipe.samples
    }

    /// How samples share a batch.
    pub fn rule(&self) -> &Rule {
        &self.recipe.rule
    }

    /// Whether the order is random.
    pub fn shuffle(&self) -> bool {
        self.recipe.shuffle
    }

    /// What the order depends on, besides the epoch.
    pub fn seed(&self) -> u64 {
        self.recipe.seed
    }

    /// Whether what does not fill a batch and a step is left out.
    pub fn drop_last(&self) -> bool {
        self.recipe.drop_last
    }

    /// What happens to batches that do not fill a step, unless they are dropped.
    pub fn uneven(&self) -> Uneven {
        self.recipe.uneven
    }

    /// Which epoch this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The steps of this plan: what the rank that has most of them takes.
    pub fn steps(&self) -> u64 {
        self.deal.steps()
    }

    /// The steps of `rank`: as [`steps`](Self::steps), or one less on the last ranks with [`Uneven::Short`].
    pub fn steps_of(&self, rank: u32) -> u64 {
        self.deal.steps_of(rank)
    }

    /// A name for what stays the same over all epochs and worlds of a run: samples, rule, shuffle, seed, `drop_last`,
    /// `uneven`, and the version of the order. 32 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.recipe.fingerprint()
    }

    /// How many samples `rank` sees at `step`.
    ///
    /// # Errors
    /// [`Error::Rank`] and [`Error::StepRange`].
    pub fn batch_len(&self, step: u64, rank: u32) -> Result<u64> {
        self.positions(step, rank).map(|positions| positions.end - positions.start)
    }

    /// The samples that `rank` sees at `step`.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::StepRange`], and [`Error::Memory`] where their numbers do not fit in memory.
    pub fn indices(&self, step: u64, rank: u32) -> Result<Vec<u64>> {
        let positions = self.positions(step, rank)?;
        let mut out = zeros(positions.end - positions.start)?;
        self.order.fill(positions.start, &mut out);
        Ok(out)
    }

    /// Writes the samples that `rank` sees from sample `skip` of its batch at `step` on, through the batches of its
    /// following steps, as many as `out` holds.
    ///
    /// # Errors
    /// [`Error::Rank`], and [`Error::StepRange`] where its steps hold fewer samples.
    pub fn fill(&self, step: u64, rank: u32, skip: u64, out: &mut [u64]) -> Result<()> {
        let (mut step, mut skip, mut out) = (step, skip, out);
        while !out.is_empty() {
            let positions = self.positions(step, rank)?;
            let start = positions.start + skip;
            // The only rank takes all batches, so that its positions follow each other.
            let end =
                if self.world == 1 { self.cut.samples_before(self.cut.batches()) } else { positions.end };
            let (now, later) = out.split_at_mut(out.len().min(length(end.saturating_sub(start))));
            self.order.fill(start, now);
            (step, skip, out) = (step + 1, 0, later);
            if self.world == 1 && !out.is_empty() {
                return Err(Error::StepRange { found: self.steps(), steps: self.steps() });
            }
        }
        Ok(())
    }

    /// One step over all ranks. Its counts are known on every rank without communication.
    ///
    /// # Errors
    /// [`Error::StepRange`].
    pub fn step(&self, index: u64) -> Result<Step> {
        if index >= self.steps() {
            return Err(Error::StepRange { found: index, steps: self.steps() });
        }
        let ranks = (0..self.world).filter(|rank| index < self.steps_of(*rank));
        let batches = ranks.map(|rank| self.indices(index, rank)).collect::<Result<Vec<_>>>()?;
        let samples = batches.iter().map(|batch| batch.len() as u64).sum();
        Ok(Step { index, samples, tokens: samples, batches })
    }

    /// Where `sample` comes: nowhere if it is dropped or came in an earlier part of the epoch, several times if its
    /// batch is repeated to fill the last step.
    ///
    /// # Errors
    /// [`Error::SampleRange`].
    pub fn places(&self, sample: u64) -> Result<Vec<Place>> {
        if sample >= self.samples() {
            return Err(Error::SampleRange { found: sample, samples: self.samples() });
        }
        let position = self.order.find(sample);
        let Some(batch) = self.cut.batch_of(position) else { return Ok(Vec::new()) };
        let index = position - self.cut.positions(batch).start;
        Ok(self.deal.places(batch).into_iter().map(|(step, rank)| Place { step, rank, index }).collect())
    }

    fn positions(&self, step: u64, rank: u32) -> Result<std::ops::Range<u64>> {
        if rank >= self.world {
            return Err(Error::Rank { rank, world: self.world });
        }
        let batch = self.deal.batch(step, rank);
        let batch = batch.ok_or(Error::StepRange { found: step, steps: self.steps_of(rank) })?;
        Ok(self.cut.positions(batch))
    }
}

/// Batches delivered by earlier parts of an epoch.
pub(super) fn first(past: &[(u32, u64)]) -> u64 {
    past.iter().map(|(world, steps)| u64::from(*world) * steps).sum()
}

/// Room for so many sample numbers.
fn zeros(samples: u64) -> Result<Vec<u64>> {
    let len = length(samples);
    let mut numbers = Vec::new();
    let failed = |error: TryReserveError| Error::Memory {
        bytes: len.saturating_mul(size_of::<u64>()),
        reason: error.to_string(),
    };
    numbers.try_reserve_exact(len).map_err(failed)?;
    numbers.resize(len, 0);
    Ok(numbers)
}

/// A number of samples that are about to be written to memory.
fn length(samples: u64) -> usize {
    usize::try_from(samples).unwrap_or(usize::MAX)
}
