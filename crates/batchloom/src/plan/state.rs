//! The state of a run between two steps: a checkpoint; the run continues exactly there.
//!
//! A state is a few integers, the same on every rank and for any number of ranks: the number of batches delivered
//! decides which ones they were. Loading costs O(1), however far the epoch has come.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::Plan;
use super::bans::Ban;
use super::epoch::{Epoch, first};
use super::error::{PlanCause, StateCause};
use super::recipe::Recipe;
use crate::batching::{Listed, Rule};
use crate::draws::{History, Mix, Weights};
use crate::ranks::MOST_RANKS;
use crate::{Error, Result};

/// The version of the state format.
pub const STATE_VERSION: u32 = 1;

/// A point between two steps of a run. These are plain values, to serialise in any format; field names are a promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version of the format, [`STATE_VERSION`].
    pub version: u32,
    /// The [`Plan::fingerprint`] of the plan that was followed.
    pub fingerprint: String,
    /// The seed of the run.
    pub seed: u64,
    /// The epoch under way.
    pub epoch: u64,
    /// The number of batches of the epoch delivered so far, over all ranks.
    pub batches: u64,
    /// The parts of the epoch so far, as (world size, steps).
    pub worlds: Vec<(u32, u64)>,
    /// The [`Listed::digest`](crate::batching::Listed::digest) of the batches of the epoch, if they are given as lists
    /// and some were delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<String>,
    /// The digest of the weights of draws, if some batches of the epoch were delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// The weights of sources so far, if samples are drawn from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<History>,
    /// The changes of the samples that are left without weight, if there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bans: Option<Vec<Ban>>,
    /// The number of chunks that are open at a time, if samples are read chunk by chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks_open: Option<u64>,
    /// The number of steps that the run has taken, over all epochs. A plan does not know it; a loader counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// A name, of 32 hexadecimal digits, for all that determined the run so far: fingerprint, seed, and of each epoch
    /// its number, the steps of its worlds, its lists, its weights and its bans. A plan does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The digest at the start of the epoch under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_before: Option<String>,
    /// The last number that a trainer gave to `set_epoch` of a loader, and the epoch that began with it, where the two
    /// differ. A plan does not know it; a loader of Python counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_epoch: Option<(u64, u64)>,
}

impl State {
    /// The digest of a run that came to this state, where `before` is that at the start of the epoch.
    pub fn digest_after(&self, before: &str) -> String {
        let Self { fingerprint, seed, epoch, worlds, lists, weights, sources, bans, .. } = self;
        // These are numbers and texts: serialising them cannot fail.
        let text =
            serde_json::to_string(&(before, fingerprint, seed, epoch, worlds, lists, weights, sources, bans));
        format!("{:032x}", xxh3_128(text.unwrap_or_default().as_bytes()))
    }
}

impl Plan {
    /// The state after `steps` steps of this plan. After the last one, it is the start of the next epoch.
    pub fn state(&self, steps: u64) -> State {
        if steps > 0 && steps >= self.steps() { self.next_epoch().at(0) } else { self.at(steps) }
    }

    /// The digest of a run after `steps` steps of this plan, even at the end of the epoch; `before` is the digest at
    /// the start of the epoch. Loaders put it in their [`State::digest`].
    pub fn digest(&self, steps: u64, before: &str) -> String {
        self.at(steps).digest_after(before)
    }

    /// The state after `steps` steps, even if it is the end of the epoch.
    pub(crate) fn at(&self, steps: u64) -> State {
        let worlds = extend(&self.past, self.world_size, steps);
        let lists = self.rule().listed().filter(|_| !worlds.is_empty()).map(Listed::digest);
        let weights = self.weights_digest(!worlds.is_empty());
        State {
            version: STATE_VERSION,
            fingerprint: self.fingerprint(),
            seed: self.seed(),
            epoch: self.epoch(),
            batches: first(&worlds),
            worlds,
            lists,
            weights,
            sources: self.recipe().sources().map(|mix| mix.history().clone()),
            bans: Some(self.recipe().bans.changes().to_vec()).filter(|bans| !bans.is_empty()),
            chunks_open: self.options().chunks_open,
            steps: None,
            digest: None,
            digest_before: None,
            set_epoch: None,
        }
    }

    /// The rest of the epoch that `state` interrupted, for this plan's number of ranks and with the seed of the state.
    /// If nothing is left of it, for the ranks of then or of now, this is the next epoch.
    ///
    /// If this plan bans other samples than the state, it bans these from here on.
    ///
    /// If sources have other weights in this plan than in the state, these hold from the first pool on of which no
    /// batch was delivered (from the next batch on, if samples all count the same).
    ///
    /// # Errors
    /// [`Kind::State`](crate::Kind::State) if the state has another format, belongs to another plan, other lists or
    /// other weights, bans samples where this plan says nothing of bans, or contradicts itself;
    /// [`Kind::Argument`](crate::Kind::Argument) if other weights would move a pool that came first.
    pub fn resume(&self, state: &State) -> Result<Self> {
        if state.version != STATE_VERSION {
            return Err(StateCause::Version { found: state.version, expected: STATE_VERSION }.into());
        }
        require_digest("digest", state.digest.as_deref())?;
        require_digest("digest_before", state.digest_before.as_deref())?;
        if state.chunks_open != self.options().chunks_open {
            let (found, expected) = (state.chunks_open, self.options().chunks_open);
            return Err(StateCause::ChunksOpen { found, expected }.into());
        }
        let mut recipe = self.recipe().clone();
        recipe.options.seed = state.seed;
        let expected = recipe.fingerprint();
        if state.fingerprint != expected {
            return Err(StateCause::Fingerprint { found: state.fingerprint.clone(), expected }.into());
        }
        if !state.worlds.is_empty() {
            let lists = self.rule().listed().map(Listed::digest);
            require_lists(state.lists.as_deref(), lists.as_deref())?;
        }
        let expected = self.weights_digest(!state.worlds.is_empty());
        if state.weights != expected {
            return Err(StateCause::Weights { found: state.weights.clone(), expected }.into());
        }
        if let Some(mix) = recipe.sources() {
            let history = state.sources.clone().ok_or(StateCause::DamagedMixture)?;
            let wrong = |error: Error| StateCause::DamagedWeights { reason: error.to_string() };
            recipe.options.mix = Some(mix.with_history(history).map_err(wrong)?);
        }
        let banned = state.bans.iter().flatten().last().filter(|(_, _, banned)| !banned.is_empty());
        if let (None, Some((_, _, banned))) = (self.options().ban.as_ref(), banned) {
            return Err(StateCause::Bans { found: banned.len(), sample: banned.first().copied() }.into());
        }
        recipe.bans = recipe.bans.with_changes(state.bans.clone().unwrap_or_default());
        recipe.bans.check(recipe.samples)?;
        let history = |recipe: &Recipe| recipe.sources().map(|mix| mix.history().clone());
        let is_same = recipe.options.seed == self.seed()
            && recipe.bans.changes() == self.recipe().bans.changes()
            && history(&recipe) == history(self.recipe());
        let epoch = match is_same {
            // It may know its batches already.
            true => self.at_epoch(state.epoch).epoch,
            false => Arc::new(Epoch::new(Arc::new(recipe), state.epoch)),
        };
        let mut plan = Self::new(epoch, self.world_size, Vec::new());
        for &(world_size, steps) in &state.worlds {
            plan = plan.after(world_size, steps)?;
        }
        let expected = first(&plan.past);
        if state.batches != expected {
            return Err(StateCause::DamagedBatches { found: state.batches, expected }.into());
        }
        let rest = Self::new(Arc::clone(&plan.epoch), self.world_size, plan.past.clone());
        let rest = if plan.is_over() || rest.is_over() { rest.next_epoch() } else { rest };
        let rest = match self.recipe().sources() {
            Some(mix) => rest.weigh_like(mix)?,
            None => rest,
        };
        Ok(rest.with_own_bans())
    }

    /// The same rest of an epoch, where the samples are banned that were asked for.
    fn with_own_bans(self) -> Self {
        let bans = self.recipe().bans.with_asked_from(self.epoch(), first(&self.past));
        if bans.changes() == self.recipe().bans.changes() {
            return self;
        }
        let recipe = Recipe { bans, ..self.recipe().clone() };
        let epoch = Arc::new(Epoch::new(Arc::new(recipe), self.epoch()));
        Self::new(epoch, self.world_size, self.past)
    }

    /// The same rest of an epoch, with the weights of `other` from its first undelivered pool on, if they differ.
    fn weigh_like(self, other: &Mix) -> Result<Self> {
        let Some(mix) = self.recipe().sources().filter(|mix| !mix.weighs_like(other)) else {
            return Ok(self);
        };
        if self.options().largest_first && !self.is_whole() {
            let reason = "the pool of the largest batch came first, and would change; expected the weights of before \
                          until the epoch ends";
            return Err(PlanCause::conflict("largest_first", "other weights", reason).into());
        }
        let had_parts = |&(world_size, steps): &(u32, u64)| world_size > 1 && steps > 0;
        if self.recipe().is_in_chunks() && self.past.iter().any(had_parts) {
            let reason = "ranks took parts of the epoch, which has another length by other weights; expected the \
                          weights of before until the epoch ends";
            return Err(PlanCause::conflict("chunks", "other weights", reason).into());
        }
        let place = (self.epoch(), self.epoch.end_of_pools(first(&self.past)));
        let mix = Some(mix.replace_from(place, other));
        let recipe = self.recipe().with_options(|options| options.mix = mix);
        let epoch = Arc::new(Epoch::new(Arc::new(recipe), self.epoch()));
        let rest = Self::new(epoch, self.world_size, self.past.clone());
        Ok(if rest.is_over() { rest.next_epoch() } else { rest })
    }

    /// The parts of this epoch, in order: for each number of ranks that took steps of it, the plan for these ranks and
    /// the number of steps that they took; last this plan, with the steps that are left.
    ///
    /// ```
    /// use batchloom::Plan;
    ///
    /// let two = Plan::builder(12).batch_size(2).world_size(2).build()?;
    /// let rest = Plan::builder(12).batch_size(2).build()?.resume(&two.state(1))?;
    /// let parts = rest.by_world();
    /// let worlds: Vec<_> = parts.iter().map(|(plan, steps)| (plan.world_size(), *steps)).collect();
    /// assert_eq!(worlds, [(2, 1), (1, 4)]);
    /// assert_eq!(parts[0].0.indices(0, 1)?, [2, 3]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn by_world(&self) -> Vec<(Self, u64)> {
        let part = |(place, &(world_size, steps)): (usize, &(u32, u64))| {
            (Self::new(Arc::clone(&self.epoch), world_size, self.past[..place].to_vec()), steps)
        };
        let parts = self.past.iter().enumerate().map(part);
        parts.chain([(self.clone(), self.steps())]).collect()
    }

    /// The rest of this epoch for another number of ranks; the next epoch, if nothing is left for them.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there are no ranks or too many, or if they would take no step of a
    /// whole epoch.
    pub fn in_world(&self, world_size: u32) -> Result<Self> {
        if world_size == 0 || world_size > MOST_RANKS {
            return Err(PlanCause::World { found: world_size, limit: MOST_RANKS }.into());
        }
        let rest = Self::new(Arc::clone(&self.epoch), world_size, self.past.clone());
        let rest = if rest.is_over() { rest.next_epoch() } else { rest };
        rest.require_steps()?;
        Ok(rest)
    }

    /// The fingerprint of the same plan with another seed.
    pub(crate) fn fingerprint_with(&self, seed: u64) -> String {
        self.recipe().with_options(|options| options.seed = seed).fingerprint()
    }

    /// The next epoch, from its start. The last one, 2^64 - 1, is followed by itself.
    pub(crate) fn next_epoch(&self) -> Self {
        self.at_epoch(self.epoch().saturating_add(1))
    }

    /// Returns true if earlier parts of the epoch left no step.
    fn is_over(&self) -> bool {
        !self.past.is_empty() && self.steps() == 0
    }

    /// The digest of the weights of samples, if a state holds it: where an epoch is under way.
    fn weights_digest(&self, is_under_way: bool) -> Option<String> {
        self.options().weights.as_ref().filter(|_| is_under_way).map(Weights::digest)
    }

    /// The same epoch with other lists, from its start. Once a part of it was taken, lists have to stay the same.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the rule makes batches itself; [`Kind::Range`](crate::Kind::Range)
    /// if a list has a sample that there is not; [`Kind::State`](crate::Kind::State) if a part of the epoch was taken
    /// from other lists.
    pub fn with_lists(&self, lists: Listed) -> Result<Self> {
        if self.rule().listed().is_none() {
            return Err(PlanCause::NotListed { rule: self.rule().name() }.into());
        }
        let rule = Rule::from(lists);
        rule.check_lists(self.samples())?;
        let digest = |rule: &Rule| rule.listed().map(Listed::digest);
        if !self.past.is_empty() {
            require_lists(digest(self.rule()).as_deref(), digest(&rule).as_deref())?;
        }
        let recipe = self.recipe().with_options(|options| options.rule = rule);
        let epoch = Epoch::new(Arc::new(recipe), self.epoch());
        Ok(Self::new(Arc::new(epoch), self.world_size, self.past.clone()))
    }

    /// The rest of this epoch after `world_size` ranks took `steps` more steps.
    fn after(&self, world_size: u32, steps: u64) -> Result<Self> {
        if world_size == 0 || world_size > MOST_RANKS {
            return Err(StateCause::DamagedWorld { world_size, limit: MOST_RANKS }.into());
        }
        let part = Self::new(Arc::clone(&self.epoch), world_size, self.past.clone());
        if steps > part.steps() {
            return Err(StateCause::DamagedSteps { steps, world_size, left: part.steps() }.into());
        }
        Ok(Self::new(part.epoch, world_size, extend(&part.past, world_size, steps)))
    }
}

/// `past` with `steps` more steps of `world_size` ranks.
fn extend(past: &[(u32, u64)], world_size: u32, steps: u64) -> Vec<(u32, u64)> {
    let mut past = past.to_vec();
    match past.last_mut() {
        _ if steps == 0 => {}
        Some(last) if last.0 == world_size => last.1 += steps,
        _ => past.push((world_size, steps)),
    }
    past
}

/// Refuses lists that differ from the lists of the epoch under way.
fn require_lists(digest: Option<&str>, expected: Option<&str>) -> Result<()> {
    if digest == expected {
        return Ok(());
    }
    let text = |digest: Option<&str>| digest.unwrap_or("missing").to_owned();
    Err(StateCause::Lists { found: text(digest), expected: text(expected) }.into())
}

/// Refuses a text that no state has as a digest. A run that begins has an empty one.
fn require_digest(digest: &'static str, text: Option<&str>) -> Result<()> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match text {
        Some(text) if !matches!(text.len(), 0 | 32) || !text.bytes().all(is_digit) => {
            Err(StateCause::DamagedDigest { digest, found: text.to_owned() }.into())
        }
        _ => Ok(()),
    }
}
