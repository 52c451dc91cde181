//! The epochs of a loader: what its iterators share, and how an epoch begins.
//!
//! An iterator begins its epoch as its first batch is asked for. Until then it owns nothing but a reference to this.

use std::sync::{Arc, OnceLock, PoisonError};

use super::buffers::Buffers;
use super::demand::{Demand, Pace};
use super::error::LoaderCause;
use super::fields::Fields;
use super::index_table::IndexTable;
use super::job::{Job, Probe};
use super::queue::PREFETCH;
use super::read_ahead::ReadAhead;
use super::workers::Workers;
use crate::batching::Labels;
use crate::dataset::collation::CollateOptions;
use crate::dataset::kind::ContentRequest;
use crate::dataset::{Dataset, InChunks};
use crate::plan::error::PlanCause;
use crate::plan::{ChunksNeeded, PlanBuilder};
use crate::run::{Progress, Run};
use crate::sync::{Mutex, MutexGuard};
use crate::{Plan, Result};

/// The data, the options and the place in the run that the iterators of a loader share.
pub(super) struct Epochs {
    pub(super) dataset: Dataset,
    /// The options of the plan, without the facts that the dataset adds.
    pub(super) plan: PlanBuilder,
    pub(super) collate: CollateOptions,
    pub(super) fields: Arc<Fields>,
    /// True if blocks are index tables.
    pub(super) index_table: bool,
    pub(super) threads: usize,
    pub(super) prefetch: Option<usize>,
    pub(super) block_bytes: usize,
    pub(super) probe: Option<Probe>,
    pub(super) buffers: Mutex<Arc<Buffers>>,
    pub(super) workers: Mutex<Arc<Workers>>,
    pub(super) run: Mutex<Run>,
}

impl Epochs {
    /// Begins the next epoch, in blocks of `block_bytes`, and returns the result of `start`.
    pub(super) fn begin<T>(
        &self,
        block_bytes: usize,
        start: impl FnOnce(Job, Arc<Progress>) -> Result<T>,
    ) -> Result<T> {
        let mut run = self.run();
        let (plan, rank) = (run.upcoming(), run.rank());
        plan.require_steps()?;
        let job = self.job(plan.clone(), rank, block_bytes)?;
        let progress = Progress::new(plan.steps_of(rank));
        let started = start(job, Arc::clone(&progress))?;
        run.follow(plan, progress);
        Ok(started)
    }

    /// The work of forming blocks of `block_bytes` for `rank` by a plan.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if batches have no places for banned samples; and the errors of the
    /// fields of a batch.
    pub(super) fn job(&self, plan: Plan, rank: u32, block_bytes: usize) -> Result<Job> {
        self.check_bans(&plan)?;
        let (fields, demand) = (self.fields_of(&plan)?, self.demand(&plan)?);
        Ok(Job {
            index_table: self.index_table.then(|| IndexTable::new(&self.dataset, Arc::clone(&fields))),
            demand,
            fields,
            plan,
            rank,
            block_bytes,
            buffers: self.buffers(),
            probe: self.probe.clone(),
        })
    }

    /// Refuses a plan of other data, or of other options. Its seed, its epoch and its ranks may be any.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the plan is of other data or other options; and the errors of a
    /// plan for so many ranks.
    pub(super) fn check_plan(&self, plan: &Plan) -> Result<()> {
        let own = self.run().upcoming();
        let own = match self.collate.rows {
            Some(_) if own.world_size() != plan.world_size() => {
                self.plan_of_rows(&own.whole_epoch(), plan.world_size())?
            }
            _ => own,
        };
        let (fingerprint, expected) = (plan.fingerprint(), own.fingerprint_with(plan.seed()));
        if fingerprint == expected {
            Ok(())
        } else {
            Err(LoaderCause::ForeignPlan { found: fingerprint, expected }.into())
        }
    }

    /// Refuses bans where batches have no places for samples without weight.
    fn check_bans(&self, plan: &Plan) -> Result<()> {
        let refused = |other, reason| Err(LoaderCause::Bans { other, reason }.into());
        let reader = self.dataset.kind().reader();
        match plan.options().ban.as_ref().is_some_and(|banned| !banned.as_slice().is_empty()) {
            true if self.index_table => refused(
                "data that is resident on a device",
                "places of banned samples are cleared where batches are formed; expected to form them on the CPU",
            ),
            true if reader.is_some_and(|reader| reader.makes_batches()) => refused(
                "a function that makes whole batches",
                "such a batch has no places; expected to leave the samples out of the dataset",
            ),
            _ => Ok(()),
        }
    }

    /// The reader of samples for one iteration, if these are made on demand.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if this thread is reading one of these chunks.
    fn demand(&self, plan: &Plan) -> Result<Option<Arc<Demand>>> {
        let Some(reader) = self.dataset.kind().reader().map(Arc::clone) else { return Ok(None) };
        if reader.is_reading_here() {
            return Err(LoaderCause::ReadsItself.into());
        }
        let blocks = self.prefetch.unwrap_or(PREFETCH) as u64 + 1;
        let needed = plan.chunks_needed(blocks).unwrap_or(ChunksNeeded { at_once: 0, later: 0 });
        // Each thread may hold a chunk that is read early: one that later blocks need, or one beside those that batches
        // need, if memory holds as many.
        let capacity = self.dataset.kind().in_chunks().and_then(InChunks::capacity);
        let room = capacity.map_or(u64::MAX, |held| held.saturating_sub(needed.at_once));
        let more = room.min((self.threads as u64).saturating_sub(needed.later));
        let fits = capacity.is_none_or(|held| held >= needed.at_once);
        let early = if fits { needed.later.saturating_add(more) } else { 0 };
        let most = usize::try_from(needed.at_once.saturating_add(more)).unwrap_or(usize::MAX);
        let iteration = reader.begin_iteration(most);
        let (dataset, collate, first) = (self.dataset.clone(), self.collate.clone(), Mutex::default());
        Ok(Some(Arc::new(Demand {
            dataset,
            reader,
            collate,
            threads: self.threads,
            prefetch: self.prefetch.unwrap_or(PREFETCH).max(1),
            first,
            direct: OnceLock::new(),
            pace: Pace::default(),
            clock: Arc::default(),
            early: Mutex::new(ReadAhead::new(early, capacity)),
            iteration,
        })))
    }

    /// Serves `rank` of `world_size` from the next epoch on. What is left of a loaded one is shared among these ranks.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if an epoch is under way; [`Kind::Argument`](crate::Kind::Argument) if
    /// there is no such rank; and the errors of a plan for so many ranks.
    pub(super) fn set_rank(&self, rank: u32, world_size: u32) -> Result<()> {
        let mut run = self.run();
        if (run.rank(), run.world_size()) == (rank, world_size) {
            return Ok(());
        }
        run.check_rank(rank, world_size)?;
        let plan = self.plan_of_rank(&run.upcoming(), rank, world_size)?;
        run.serve_plan(rank, plan);
        Ok(())
    }

    /// The same data and options for `rank` of `world_size`, from the next epoch on. What is left of a loaded one is
    /// shared among these ranks.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank; and the errors of a plan for so many ranks.
    pub(super) fn on_rank(&self, rank: u32, world_size: u32) -> Result<Self> {
        let run = self.run();
        let plan = self.plan_of_rank(&run.upcoming(), rank, world_size)?;
        Ok(Self {
            dataset: self.dataset.clone(),
            plan: self.plan.clone(),
            collate: self.collate.clone(),
            fields: Arc::clone(&self.fields),
            index_table: self.index_table,
            threads: self.threads,
            prefetch: self.prefetch,
            block_bytes: self.block_bytes,
            probe: self.probe.clone(),
            buffers: Mutex::new(self.buffers().afresh()),
            workers: Mutex::new(self.workers().afresh()),
            run: Mutex::new(run.for_rank(rank, plan)),
        })
    }

    /// The plan of the epoch of `upcoming` for rank `rank` of `world_size`.
    fn plan_of_rank(&self, upcoming: &Plan, rank: u32, world_size: u32) -> Result<Plan> {
        let plan = match self.collate.rows {
            _ if upcoming.world_size() == world_size => upcoming.clone(),
            Some(_) => self.plan_of_rows(upcoming, world_size)?,
            None => upcoming.in_world(world_size)?,
        };
        plan.require_rank(rank).map(|()| plan)
    }

    /// The plan of the same epoch for another number of ranks, of a stream with a row for each sample of a step.
    fn plan_of_rows(&self, upcoming: &Plan, world_size: u32) -> Result<Plan> {
        let options = self.plan.clone().seed(upcoming.seed()).epoch(upcoming.epoch()).world_size(world_size);
        let (options, rows) = with_content(options, &self.dataset, self.collate.shuffles_documents)?;
        let labels = match upcoming.options().labels.as_ref() {
            Some(Labels::Counted(_)) => None,
            // Rows end elsewhere.
            _ => self.dataset.kind().labels(&CollateOptions { rows, ..self.collate.clone() }),
        };
        let plan = options.labels(labels).build()?;
        // The rows of the middle of an epoch cannot be divided anew: such a state is of another plan.
        if upcoming.is_whole() { Ok(plan) } else { plan.resume(&upcoming.state(0)) }
    }

    /// The fields in the epoch of `plan`: those that the loader has, unless the kind of data draws anew for each epoch,
    /// or other ranks share its rows.
    fn fields_of(&self, plan: &Plan) -> Result<Arc<Fields>> {
        let rows = self.continued_rows(plan);
        if rows == self.collate.rows && !self.dataset.kind().changes_with_epoch(&self.collate) {
            return Ok(Arc::clone(&self.fields));
        }
        Fields::new(&self.dataset, plan, &CollateOptions { rows, ..self.collate.clone() }).map(Arc::new)
    }

    /// The rows of a stream that continue from batch to batch in the epoch of `plan`, and the number of pieces of each.
    pub(super) fn continued_rows(&self, plan: &Plan) -> Option<(u64, u64)> {
        let batch_size = self.collate.rows.and(plan.rule().batch_size())?;
        let rows = batch_size * u64::from(plan.world_size());
        Some((rows, plan.samples() / rows))
    }

    /// The pool of buffers, or a new one in a forked child.
    fn buffers(&self) -> Arc<Buffers> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.is_foreign() {
            *buffers = buffers.afresh();
        }
        Arc::clone(&buffers)
    }

    /// The workers, or new workers in a forked child.
    pub(super) fn workers(&self) -> Arc<Workers> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.is_foreign() {
            *workers = workers.afresh();
        }
        Arc::clone(&workers)
    }

    pub(super) fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The options of a plan with the facts that the dataset adds: its contents, and the rows of a stream that continues.
///
/// # Errors
/// Errors that say which option of the plan does not go with the kind of data.
pub(super) fn with_content(
    plan: PlanBuilder,
    dataset: &Dataset,
    shuffles_documents: bool,
) -> Result<(PlanBuilder, Option<(u64, u64)>)> {
    let request = ContentRequest {
        samples_in_step: plan.samples_in_step(),
        shuffle: plan.shuffle_choice(),
        shuffles_documents,
    };
    let moves = || {
        dataset.kind().changes_with_epoch(&CollateOptions { shuffles_documents, ..CollateOptions::default() })
    };
    if let Some(draws) = plan.names_samples().filter(|_| moves()) {
        let reason =
            "the pieces differ from the pieces of the stream as stored; expected to shuffle pieces alone";
        return Err(PlanCause::conflict("shuffled documents or jitter", draws, reason).into());
    }
    let Some(content) = dataset.kind().content(&request)? else { return Ok((plan, None)) };
    if content.rows.is_some() && plan.draws_otherwise() {
        let reason = "every piece has its place; expected pieces that do not continue";
        let choice = "a stream that continues from batch to batch";
        return Err(PlanCause::conflict(choice, "a choice of samples", reason).into());
    }
    let plan = plan.content(content.text).tail(content.tail);
    Ok(match content.rows {
        Some((rows, steps)) => (plan.samples(rows * steps), content.rows),
        None => (plan, None),
    })
}

impl std::fmt::Debug for Epochs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let run = self.run();
        formatter
            .debug_struct("Epochs")
            .field("dataset", &self.dataset)
            .field("plan", &run.upcoming())
            .field("rank", &run.rank())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
