//! `Run`: the epoch under way, its progress, and the steps and the digest of all epochs before it.
//!
//! Each iteration is the next epoch, or the epoch that was set, or the rest of an epoch after a state was loaded.
//! Promise: a state and the options of the plan decide all later batches, for any number of ranks.

use std::sync::{Arc, OnceLock};

use super::error::RunCause;
use super::iteration::Iteration;
use super::metrics::Metrics;
use super::progress::Progress;
use crate::batching::Listed;
use crate::plan::State;
use crate::plan::error::PlanCause;
use crate::{Plan, Result};

/// The place in a run, on one rank: which epoch is under way, and how many of its batches were handed over.
///
/// A [`Loader`](crate::Loader) holds one. A program that reads its data itself uses a run alone. Here the data are the
/// lines of a file, and the program stops after three batches:
///
/// ```
/// use batchloom::{Plan, Run};
///
/// let lines: Vec<String> = (0..10).map(|line| format!("line {line}")).collect();
/// let read = |samples: Vec<u64>| samples.into_iter().map(|sample| lines[sample as usize].clone()).collect::<Vec<_>>();
/// let plan = Plan::builder(10).batch_size(2).shuffle(true).build()?;
///
/// let mut run = Run::new(plan.clone(), 0)?;
/// let mut seen = Vec::new();
/// for samples in run.begin().take(3) {
///     seen.extend(read(samples?));
/// }
/// let checkpoint = run.state(); // plain values, for any format that serde writes
///
/// // Later, in another process:
/// let mut run = Run::new(plan, 0)?;
/// run.load(&checkpoint)?;
/// for samples in run.begin() {
///     seen.extend(read(samples?));
/// }
/// seen.sort();
/// assert_eq!(seen, lines);
/// assert_eq!((run.epoch(), run.steps_taken()), (1, 5));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug)]
pub struct Run {
    rank: u32,
    /// The epoch that began last, or the next one before it begins.
    part: EpochPart,
    /// The progress in it, once it has begun.
    progress: Option<Arc<Progress>>,
    /// The latest iteration, where the run has left its epoch since.
    left: Option<Left>,
}

/// An epoch, or the rest of one, and the run before it.
#[derive(Debug, Clone)]
struct EpochPart {
    plan: Plan,
    /// The number of steps that the run took before this part.
    taken: u64,
    /// The digest of the run at the start of the epoch. Empty before any epoch.
    before: String,
    /// The plan of the epoch after it, kept because it may have to look at all sizes to count its batches.
    next: OnceLock<Plan>,
}

/// An iteration that the run has left, after some of its batches.
#[derive(Debug)]
struct Left {
    part: EpochPart,
    steps: u64,
}

impl EpochPart {
    fn new(plan: Plan, taken: u64, before: String) -> Self {
        Self { plan, taken, before, next: OnceLock::new() }
    }

    /// The plan of the epoch after it.
    fn next(&self) -> &Plan {
        self.next.get_or_init(|| self.plan.next_epoch())
    }

    /// The state of the run after `steps` of its steps, or at its end.
    fn state(&self, steps: u64, is_over: bool) -> State {
        let state = if is_over { self.next().state(0) } else { self.plan.state(steps) };
        let total = self.steps(steps, is_over);
        if total == 0 {
            return state;
        }
        let before = match state.epoch == self.plan.epoch() {
            true => self.before.clone(),
            false => self.digest_after(steps, is_over),
        };
        State {
            steps: Some(total),
            digest: Some(state.digest_after(&before)),
            digest_before: Some(before),
            ..state
        }
    }

    /// The number of steps that the run has taken after `steps` steps of this part, or at its end.
    fn steps(&self, steps: u64, is_over: bool) -> u64 {
        let steps = if is_over { self.plan.steps() } else { steps };
        self.taken.saturating_add(steps)
    }

    /// The digest of the run at the start of the next epoch, if this part is left after `steps` steps, or at its end.
    fn digest_after(&self, steps: u64, is_over: bool) -> String {
        let left = self.plan.at(if is_over { self.plan.steps() } else { steps });
        if left.worlds.is_empty() { self.before.clone() } else { left.digest_after(&self.before) }
    }
}

impl Run {
    /// The run of `rank` that begins with `plan`, which is an epoch, or the rest of one.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the plan has no such rank.
    pub fn new(plan: Plan, rank: u32) -> Result<Self> {
        plan.require_rank(rank)?;
        Ok(Self { rank, part: EpochPart::new(plan, 0, String::new()), progress: None, left: None })
    }

    /// The rank that is served.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.part.plan.world_size()
    }

    /// The plan of the epoch that begins next: the rest of one, if a state in it was loaded.
    pub fn upcoming(&self) -> Plan {
        if self.is_begun() { self.part.next().clone() } else { self.part.plan.clone() }
    }

    /// The plan of the epoch under way, or else of the next one.
    pub fn current(&self) -> Plan {
        if self.live_progress().is_some() { self.part.plan.clone() } else { self.upcoming() }
    }

    /// The plan of a whole epoch of this run.
    pub fn plan(&self, epoch: u64) -> Plan {
        match self.part.next.get() {
            Some(next) if next.epoch() == epoch => next.clone(),
            _ => self.part.plan.at_epoch(epoch),
        }
    }

    /// The number of the epoch under way, or else of the next one.
    pub fn epoch(&self) -> u64 {
        self.current().epoch()
    }

    /// The number of batches in the whole of that epoch, whatever was taken of it.
    pub fn len(&self) -> u64 {
        self.current().whole_epoch().steps_of(self.rank)
    }

    /// Returns true if that number is 0, which happens only if a rule drops every sample of an epoch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of batches that are left of that epoch: all of them, unless it is under way, or a state in it was
    /// loaded.
    pub fn remaining(&self) -> u64 {
        match self.live_progress() {
            Some(progress) => progress.left(),
            None => self.upcoming().steps_of(self.rank),
        }
    }

    /// Returns true if the next iteration is the rest of an epoch after some batches.
    pub fn is_rest(&self) -> bool {
        !self.upcoming().is_whole()
    }

    /// Returns true if some, but not all batches of the latest epoch were handed over.
    pub fn is_mid_epoch(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| (1..progress.total()).contains(&progress.steps()))
    }

    /// The number of steps that the run has taken, over all epochs, those before a state that was loaded included.
    pub fn steps_taken(&self) -> u64 {
        let (steps, is_over) = self.place();
        self.part.steps(steps, is_over)
    }

    /// The number of batches that the latest iteration has handed over: 0 after a state was loaded, or an epoch set.
    pub fn handed_over(&self) -> u64 {
        match (&self.progress, &self.left) {
            (Some(progress), _) => progress.steps(),
            (None, Some(left)) => left.steps,
            (None, None) => 0,
        }
    }

    /// Begins the next epoch.
    pub fn begin(&mut self) -> Iteration {
        let (plan, rank) = (self.upcoming(), self.rank);
        let progress = Progress::new(plan.steps_of(rank));
        self.follow(plan.clone(), Arc::clone(&progress));
        Iteration::new(plan, rank, progress)
    }

    /// Begins the epoch of `plan`, which is [`upcoming`](Self::upcoming). `progress` counts its batches.
    pub(crate) fn follow(&mut self, plan: Plan, progress: Arc<Progress>) {
        self.enter(plan);
        (self.progress, self.left) = (Some(progress), None);
    }

    /// The state of the run after the last batch that was handed over. After the last one of an epoch, it is the start
    /// of the next.
    pub fn state(&self) -> State {
        let (steps, is_over) = self.place();
        self.part.state(steps, is_over)
    }

    /// The state of the run after only `batches` batches of the latest iteration: for programs that take batches
    /// ahead of their use.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if the iteration has [handed over](Self::handed_over) fewer.
    pub fn state_after(&self, batches: u64) -> Result<State> {
        let handed = self.handed_over();
        if batches > handed {
            return Err(PlanCause::StepRange { found: batches, steps: handed.saturating_add(1) }.into());
        }
        if batches == handed {
            return Ok(self.state());
        }
        let left = self.left.as_ref().filter(|_| self.progress.is_none());
        Ok(left.map_or(&self.part, |left| &left.part).state(batches, false))
    }

    /// Continues where `state` was taken: the next iteration is the rest of that epoch, for this number of ranks.
    ///
    /// # Errors
    /// The errors of [`Plan::resume`]. The run is unchanged then.
    pub fn load(&mut self, state: &State) -> Result<()> {
        let plan = self.part.plan.resume(state)?;
        self.enter_at(state, plan);
        self.left = None;
        Ok(())
    }

    /// Continues where `state` was taken, as [`load`](Self::load) does, in an epoch with the batches `lists`.
    ///
    /// # Errors
    /// The errors of [`Plan::resume`]; [`Kind::Argument`](crate::Kind::Argument) if the rule makes batches itself;
    /// [`Kind::Range`](crate::Kind::Range) if a list has a sample that there is not. The run is unchanged then.
    pub fn load_lists(&mut self, state: &State, lists: Listed) -> Result<()> {
        let plan = self.part.plan.at_epoch(state.epoch).with_lists(lists)?.resume(state)?;
        self.enter_at(state, plan);
        self.left = None;
        Ok(())
    }

    /// Makes the rest of an epoch that was left in the middle the next iteration. Without it, the next iteration is the
    /// epoch after it. The [batches handed over](Self::handed_over) remain as in the latest iteration.
    ///
    /// # Errors
    /// The errors of [`Plan::resume`], which the state of a run meets only where memory runs out.
    pub fn go_on(&mut self) -> Result<()> {
        if self.is_mid_epoch() {
            let state = self.state();
            let plan = self.part.plan.resume(&state)?;
            self.enter_at(&state, plan);
        }
        Ok(())
    }

    /// Passes over the first `batches` batches of the next iteration as if they were handed over. Returns their number,
    /// which is smaller where the iteration has fewer. What is left of the epoch is the next iteration.
    ///
    /// # Errors
    /// The errors of [`go_on`](Self::go_on).
    pub fn skip(&mut self, batches: u64) -> Result<u64> {
        let plan = self.upcoming();
        let progress = Progress::new(plan.steps_of(self.rank));
        let skipped = batches.min(progress.total());
        self.follow(plan, Arc::clone(&progress));
        progress.pass_over(skipped);
        progress.close();
        self.load(&self.state())?;
        Ok(skipped)
    }

    /// Makes `epoch` the next one. It starts at its beginning, unless a state in that very epoch was loaded and it has
    /// not begun since.
    pub fn set_epoch(&mut self, epoch: u64) {
        if self.is_begun() || self.part.plan.epoch() != epoch {
            self.enter(self.plan(epoch));
        }
        self.left = None;
    }

    /// Makes `seed` the seed of the next epoch, which then begins at its start, and of later epochs: for a seed that is
    /// drawn late.
    pub fn set_seed(&mut self, seed: u64) {
        self.enter(self.upcoming().with_seed(seed));
    }

    /// Makes `lists` the batches of the next epoch, or of what is left of an epoch that was loaded, for a plan whose
    /// rule is [`Listed`]. Epochs after it repeat them, until they are set again.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the rule makes batches itself; [`Kind::Range`](crate::Kind::Range)
    /// if a list has a sample that there is not; [`Kind::State`](crate::Kind::State) if a part of the epoch was taken
    /// from other lists.
    pub fn set_lists(&mut self, lists: Listed) -> Result<()> {
        self.enter(self.upcoming().with_lists(lists)?);
        Ok(())
    }

    /// Serves `rank` of `world_size` from the next epoch on. If a state was loaded, what is left of its epoch is shared
    /// among these ranks.
    ///
    /// ```
    /// use batchloom::{Plan, Run};
    ///
    /// let plan = Plan::builder(12).batch_size(2).build()?;
    /// let mut run = Run::new(plan.clone(), 0)?;
    /// assert_eq!(run.begin().take(2).count(), 2);
    /// let state = run.state();
    ///
    /// let mut second = Run::new(plan, 0)?;
    /// second.load(&state)?;
    /// second.serve(1, 2)?;
    /// let rest = second.begin().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(rest, [[6, 7], [10, 11]]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank, or if so many ranks would take no step. The
    /// run is unchanged then.
    pub fn serve(&mut self, rank: u32, world_size: u32) -> Result<()> {
        if (rank, world_size) == (self.rank, self.world_size()) {
            return Ok(());
        }
        let upcoming = self.upcoming();
        let plan =
            if upcoming.world_size() == world_size { upcoming } else { upcoming.in_world(world_size)? };
        plan.require_rank(rank)?;
        self.serve_plan(rank, plan);
        Ok(())
    }

    /// Serves `rank` from the next epoch on, which has the plan `plan`.
    pub(crate) fn serve_plan(&mut self, rank: u32, plan: Plan) {
        self.enter(plan);
        self.rank = rank;
    }

    /// The same run for another rank from the next epoch on, which has the plan `plan`.
    pub(crate) fn for_rank(&self, rank: u32, plan: Plan) -> Self {
        let (part, progress) = (self.part.clone(), self.progress.clone());
        let mut other = Self { rank: self.rank, part, progress, left: None };
        other.serve_plan(rank, plan);
        other
    }

    /// Refuses another rank in the middle of an epoch.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if an epoch is under way.
    pub(crate) fn check_rank(&self, rank: u32, world_size: u32) -> Result<()> {
        match &self.progress {
            Some(progress) if self.is_mid_epoch() => Err(RunCause::MidEpoch {
                taken: progress.steps(),
                total: progress.total(),
                epoch: self.part.plan.epoch(),
                served: (self.rank, self.world_size()),
                rank,
                world_size,
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// The metrics of the latest iteration, until its epoch is left.
    pub(crate) fn metrics(&self) -> Metrics {
        let read = |progress: &Arc<Progress>| progress.meter.read(progress.steps());
        self.progress.as_ref().map(read).unwrap_or_default()
    }

    /// The number of batches handed over of the present part, and true if that was all of it.
    fn place(&self) -> (u64, bool) {
        self.progress.as_ref().map_or((0, false), |progress| (progress.steps(), progress.is_finished()))
    }

    /// The progress of the epoch under way.
    fn live_progress(&self) -> Option<&Progress> {
        self.progress.as_deref().filter(|progress| progress.is_live())
    }

    /// Returns true if the epoch of the present part began, and a batch of it was or may be handed over.
    fn is_begun(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| !progress.is_unspent())
    }

    /// Makes `plan` the plan of the next epoch.
    fn enter(&mut self, plan: Plan) {
        let (steps, is_over) = self.place();
        let is_left = self.is_begun() || plan.epoch() != self.part.plan.epoch();
        let before = if is_left { self.part.digest_after(steps, is_over) } else { self.part.before.clone() };
        let next = EpochPart::new(plan, self.part.steps(steps, is_over), before);
        let part = std::mem::replace(&mut self.part, next);
        if self.progress.take().is_some() {
            self.left = Some(Left { part, steps });
        }
    }

    /// Makes `plan` the plan of the next epoch, in the run that is at `state`.
    fn enter_at(&mut self, state: &State, plan: Plan) {
        self.enter(plan);
        self.part.taken = steps_of(state);
        self.part.before = state.digest_before.clone().unwrap_or_default();
        // A state that leaves nothing of its epoch is the start of the next one.
        if self.part.plan.epoch() != state.epoch {
            self.part.before = state.digest_after(&self.part.before);
        }
    }
}

/// The number of steps that a run had taken when its state was saved. States of plans know the steps of their epoch
/// alone.
fn steps_of(state: &State) -> u64 {
    let of_epoch = || state.worlds.iter().map(|&(_, steps)| steps).sum();
    state.steps.unwrap_or_else(of_epoch)
}
