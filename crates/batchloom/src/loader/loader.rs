//! The loader: an iterable over the batches of one rank, epoch after epoch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffers::Buffers;
use super::cursor::{Cursor, Delivery};
use super::fields::Fields;
use super::index_table::IndexTable;
use super::job::{Job, Probe};
use super::workers::Workers;
use super::{Batches, Blocks, Steps};
use crate::batching::Listed;
use crate::dataset::Dataset;
use crate::dataset::kind::CollateOptions;
use crate::plan::State;
use crate::{DType, Plan, Result};

/// Yields the batches of one rank. Each iteration is the next epoch.
///
/// ```
/// use batchloom::{Loader, Tensor, TensorDataset};
///
/// let x = Tensor::from_vec((0..1000_i64).collect(), &[1000])?;
/// let loader = Loader::builder(TensorDataset::new([("x", x)])?).batch_size(64).shuffle(true).build()?;
/// let mut sum = 0;
/// for batch in &loader {
///     sum += batch?.field("x").and_then(|x| x.as_slice::<i64>()).into_iter().flatten().sum::<i64>();
/// }
/// assert_eq!(sum, 999 * 1000 / 2);
/// # Ok::<(), batchloom::Error>(())
/// ```
pub struct Loader {
    pub(super) dataset: Dataset,
    pub(super) collate: CollateOptions,
    pub(super) fields: Arc<Fields>,
    /// True if blocks are index tables.
    pub(super) index_table: bool,
    pub(super) rank: u32,
    pub(super) threads: usize,
    pub(super) prefetch: usize,
    pub(super) block_bytes: usize,
    pub(super) probe: Option<Probe>,
    pub(super) buffers: Mutex<Arc<Buffers>>,
    pub(super) workers: Mutex<Arc<Workers>>,
    pub(super) cursor: Mutex<Cursor>,
}

impl Loader {
    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The names of a batch's fields, in order: those of the dataset, and those that are added to sequences.
    pub fn names(&self) -> &[String] {
        self.fields.names()
    }

    /// The type of each field, in order.
    pub fn dtypes(&self) -> Vec<DType> {
        self.fields.forms().iter().map(|form| form.dtype()).collect()
    }

    /// The rank that this loader serves.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of batches of the iteration under way, or else of the next one.
    pub fn len(&self) -> u64 {
        self.cursor().len(self.rank)
    }

    /// Returns true if that number is 0, which happens only after a state at the very end of an epoch was loaded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The plan of the next iteration.
    pub fn upcoming(&self) -> Plan {
        self.cursor().upcoming()
    }

    /// The plan of a whole epoch.
    pub fn plan(&self, epoch: u64) -> Plan {
        self.cursor().plan(epoch)
    }

    /// Makes `epoch` the next one. It starts at its beginning, unless a state in that very epoch was just loaded.
    pub fn set_epoch(&self, epoch: u64) {
        self.cursor().set_epoch(epoch);
    }

    /// The state of the run after the last batch that the latest iteration handed over.
    pub fn state(&self) -> State {
        self.cursor().state()
    }

    /// Continues where `state` was taken: the next iteration yields the rest of that epoch, for this number of ranks.
    ///
    /// # Errors
    /// Those of [`Plan::resume`]. The loader is unchanged then.
    pub fn load(&self, state: &State) -> Result<()> {
        self.cursor().load(state)
    }

    /// Makes `seed` that of the next epoch, which then comes from its start, and of those after it: for a seed that is
    /// drawn late.
    pub fn set_seed(&self, seed: u64) {
        self.cursor().set_seed(seed);
    }

    /// Makes `lists` the batches of the next epoch, or of what is left of an epoch that was loaded, for a loader whose
    /// rule is [`Listed`]. Epochs after it repeat them, until they are set again.
    ///
    /// # Errors
    /// [`Error::SampleRange`](crate::Error::SampleRange), and [`Error::StateLists`](crate::Error::StateLists) if a part
    /// of the epoch was taken from other lists.
    pub fn set_lists(&self, lists: Listed) -> Result<()> {
        self.cursor().set_lists(lists)
    }

    /// Continues where `state` was taken, as [`load`](Self::load) does, in an epoch whose batches are `lists`.
    ///
    /// # Errors
    /// Those of [`Plan::resume`], and [`Error::SampleRange`](crate::Error::SampleRange). The loader is unchanged then.
    pub fn load_lists(&self, state: &State, lists: Listed) -> Result<()> {
        self.cursor().load_lists(state, lists)
    }

    /// Begins the next epoch and returns its batches. Threads start with the first epoch that is worth them.
    ///
    /// # Errors
    /// [`Error::Spawn`](crate::Error::Spawn), and [`Error::NothingLeft`](crate::Error::NothingLeft) if a rule that
    /// decides by size makes too few batches for a step in this epoch.
    pub fn iter(&self) -> Result<Batches> {
        self.blocks().map(Batches::new)
    }

    /// Begins the next epoch, as [`iter`](Self::iter) does, and returns its blocks, for callers that divide them
    /// themselves.
    ///
    /// # Errors
    /// The same as those of [`iter`](Self::iter).
    pub fn blocks(&self) -> Result<Blocks> {
        let workers = self.workers();
        self.begin(self.block_bytes, |job, delivery| {
            Blocks::start(job, delivery, workers, self.threads > 1, self.prefetch)
        })
    }

    /// Begins the next epoch, as [`iter`](Self::iter) does, and returns its steps, for callers that take batches from
    /// the data themselves. It starts no worker.
    ///
    /// # Errors
    /// The same as those of [`iter`](Self::iter).
    pub fn steps(&self) -> Result<Steps> {
        // A block of steps holds one batch.
        self.begin(0, |job, delivery| Ok(Steps::new(job, delivery)))
    }

    /// Begins the next epoch, and returns the result of `start`.
    fn begin<T>(&self, block_bytes: usize, start: impl FnOnce(Job, Arc<Delivery>) -> Result<T>) -> Result<T> {
        let mut cursor = self.cursor();
        let plan = cursor.upcoming();
        plan.require_steps()?;
        let delivery = Delivery::new(plan.steps_of(self.rank));
        let fields = self.fields_of(&plan)?;
        let job = Job {
            index_table: self.index_table.then(|| IndexTable::new(&self.dataset, Arc::clone(&fields))),
            fields,
            plan: plan.clone(),
            rank: self.rank,
            block_bytes,
            buffers: self.buffers(),
            probe: self.probe.clone(),
        };
        let started = start(job, Arc::clone(&delivery))?;
        cursor.begin(plan, delivery);
        Ok(started)
    }

    /// The fields in the epoch of `plan`: those that the loader has, unless the kind of data draws anew for each epoch.
    fn fields_of(&self, plan: &Plan) -> Result<Arc<Fields>> {
        match self.dataset.kind().changes_with_epoch(&self.collate) {
            true => Fields::new(&self.dataset, plan, &self.collate).map(Arc::new),
            false => Ok(Arc::clone(&self.fields)),
        }
    }

    /// The pool of buffers, or a new one in a forked child.
    fn buffers(&self) -> Arc<Buffers> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.is_foreign() {
            *buffers = buffers.afresh();
        }
        Arc::clone(&buffers)
    }

    /// The workers, or others in a forked child.
    fn workers(&self) -> Arc<Workers> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.is_foreign() {
            *workers = workers.afresh();
        }
        Arc::clone(&workers)
    }

    fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IntoIterator for &Loader {
    type Item = Result<super::Batch>;
    type IntoIter = Batches;

    /// Begins the next epoch, as [`Loader::iter`] does. A failure to start is the first item.
    fn into_iter(self) -> Batches {
        self.iter().unwrap_or_else(Batches::failed)
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Loader")
            .field("dataset", &self.dataset)
            .field("plan", &self.upcoming())
            .field("rank", &self.rank)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
