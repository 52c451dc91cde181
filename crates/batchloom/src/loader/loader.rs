//! The loader: an iterable over the batches of one rank, epoch after epoch.

use std::sync::Arc;

use super::epochs::Epochs;
use super::{Batches, Blocks, Metrics, Steps, Views};
use crate::batching::Listed;
use crate::dataset::Dataset;
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
pub struct Loader(pub(super) Arc<Epochs>);

impl Loader {
    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.0.dataset
    }

    /// The names of a batch's fields, in order: the fields of the dataset, and the fields that are added to sequences.
    pub fn names(&self) -> &[String] {
        self.0.fields.names()
    }

    /// The type of each field, in order.
    pub fn dtypes(&self) -> Vec<DType> {
        self.0.fields.forms().iter().map(|form| form.dtype()).collect()
    }

    /// The rank that this loader serves.
    pub fn rank(&self) -> u32 {
        self.0.run().rank()
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.0.run().world_size()
    }

    /// Serves `rank` of `world_size` from the next epoch on. If a state was loaded, what is left of its epoch is shared
    /// among these ranks.
    ///
    /// # Errors
    /// [`Kind::Runtime`](crate::Kind::Runtime) if some, but not all batches of the latest epoch were handed over: the
    /// ranks of then had others. [`Kind::Argument`](crate::Kind::Argument) if there is no such rank, or if so many
    /// ranks would take no step. The loader is unchanged then.
    pub fn set_rank(&self, rank: u32, world_size: u32) -> Result<()> {
        self.0.set_rank(rank, world_size)
    }

    /// The loader of `rank` among `world_size` ranks, over the same data with the same options: for programs that train
    /// on several devices, with a loader for each. It begins with the epoch that begins next here, and has threads and
    /// blocks alone. If a state was loaded, what is left of its epoch is shared among these ranks.
    ///
    /// ```
    /// use batchloom::{Loader, Result, TensorDataset};
    ///
    /// let dataset = TensorDataset::new([("x", (0..10_i64).collect::<Vec<_>>())])?;
    /// let loader = Loader::builder(dataset).batch_size(2).build()?;
    /// let ranks = (0..2).map(|rank| loader.on_rank(rank, 2)).collect::<Result<Vec<_>>>()?;
    /// let first = ranks[1].iter().next().expect("a batch")?;
    /// assert_eq!(first.view::<i64>("x")?, [2, 3]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if there is no such rank, or if so many ranks would take no step.
    pub fn on_rank(&self, rank: u32, world_size: u32) -> Result<Self> {
        Ok(Self(Arc::new(self.0.on_rank(rank, world_size)?)))
    }

    /// Returns true if some, but not all batches of the latest epoch were handed over.
    pub fn is_mid_epoch(&self) -> bool {
        self.0.run().is_mid_epoch()
    }

    /// The number of the epoch under way, or else of the next one.
    pub fn epoch(&self) -> u64 {
        self.0.run().epoch()
    }

    /// The number of batches in the whole of [that epoch](Self::epoch), whatever was taken of it.
    pub fn len(&self) -> u64 {
        self.0.run().len()
    }

    /// Returns true if that number is 0, which happens only if a rule drops every sample of an epoch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of batches that are left of [that epoch](Self::epoch): all of them, unless it is under way, or a
    /// state in it was loaded.
    pub fn remaining(&self) -> u64 {
        self.0.run().remaining()
    }

    /// The number of steps that the run has taken, over all epochs, those before a state that was loaded included.
    pub fn steps_taken(&self) -> u64 {
        self.0.run().steps_taken()
    }

    /// The metrics of the latest iteration: its work so far, and the time that was spent waiting.
    ///
    /// ```
    /// use batchloom::{Loader, TensorDataset};
    ///
    /// let dataset = TensorDataset::new([("x", (0..10_i64).collect::<Vec<_>>())])?;
    /// let loader = Loader::builder(dataset).batch_size(2).build()?;
    /// for batch in &loader {
    ///     batch?;
    /// }
    /// let metrics = loader.metrics();
    /// assert_eq!((metrics.batches, metrics.queued), (5, 0));
    /// assert!(metrics.to_string().starts_with("the loop waited "));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.0.run().metrics()
    }

    /// The plan of the epoch that begins next: the rest of one, if a state in it was loaded.
    pub fn upcoming(&self) -> Plan {
        self.0.run().upcoming()
    }

    /// The plan of a whole epoch.
    pub fn plan(&self, epoch: u64) -> Plan {
        self.0.run().plan(epoch)
    }

    /// Makes `epoch` the next one. It starts at its beginning, unless a state in that very epoch was loaded and no
    /// batch was taken since.
    pub fn set_epoch(&self, epoch: u64) {
        self.0.run().set_epoch(epoch);
    }

    /// The state of the run after the last batch that the latest iteration handed over. After the last one of an epoch,
    /// it is the start of the next.
    pub fn state(&self) -> State {
        self.0.run().state()
    }

    /// The number of batches that the latest iteration has handed over: 0 after a state was loaded, or an epoch set.
    pub fn handed_over(&self) -> u64 {
        self.0.run().handed_over()
    }

    /// The state of the run after only `batches` batches of the latest iteration: for programs that take batches
    /// ahead of their use.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if the iteration has [handed over](Self::handed_over) fewer.
    pub fn state_after(&self, batches: u64) -> Result<State> {
        self.0.run().state_after(batches)
    }

    /// Returns true if the next iteration is the rest of an epoch after some batches.
    pub fn is_rest(&self) -> bool {
        self.0.run().is_rest()
    }

    /// Makes the rest of an epoch that was left in the middle the next iteration: see
    /// [`Run::go_on`](crate::Run::go_on).
    ///
    /// # Errors
    /// The errors of [`Run::go_on`](crate::Run::go_on).
    pub fn go_on(&self) -> Result<()> {
        self.0.run().go_on()
    }

    /// Passes over batches of the next iteration, without forming them: see [`Run::skip`](crate::Run::skip).
    ///
    /// # Errors
    /// The errors of [`Run::skip`](crate::Run::skip).
    pub fn skip(&self, batches: u64) -> Result<u64> {
        self.0.run().skip(batches)
    }

    /// Continues where `state` was taken: the next iteration yields the rest of that epoch, for this number of ranks.
    ///
    /// # Errors
    /// The errors of [`Plan::resume`]. The loader is unchanged then.
    pub fn load(&self, state: &State) -> Result<()> {
        self.0.run().load(state)
    }

    /// Makes `seed` the seed of the next epoch, which then begins at its start, and of later epochs: for a seed that is
    /// drawn late.
    pub fn set_seed(&self, seed: u64) {
        self.0.run().set_seed(seed);
    }

    /// Makes `lists` the batches of the next epoch, or of what is left of an epoch that was loaded, for a loader with a
    /// rule is [`Listed`]. Epochs after it repeat them, until they are set again.
    ///
    /// # Errors
    /// [`Kind::Range`](crate::Kind::Range) if a list has a sample that there is not;
    /// [`Kind::State`](crate::Kind::State) if a part of the epoch was taken from other lists.
    pub fn set_lists(&self, lists: Listed) -> Result<()> {
        self.0.run().set_lists(lists)
    }

    /// Continues where `state` was taken, as [`load`](Self::load) does, in an epoch with the batches `lists`.
    ///
    /// # Errors
    /// The errors of [`Plan::resume`]; [`Kind::Range`](crate::Kind::Range) if a list has a sample that there is not.
    /// The loader is unchanged then.
    pub fn load_lists(&self, state: &State, lists: Listed) -> Result<()> {
        self.0.run().load_lists(state, lists)
    }

    /// The batches of the next epoch. It begins as the first of them is asked for, not before: of several iterators,
    /// each takes the next epoch when it begins. Threads start with the first epoch that is worth
    /// them.
    ///
    /// The first batch is an error if the epoch cannot begin: if no thread can be started, or if a rule that decides by
    /// size makes too few batches for a step in this epoch.
    pub fn iter(&self) -> Batches {
        Batches::new(self.blocks())
    }

    /// The batches of the next epoch as views of the data, where their samples are neighbours there: rows of
    /// a [`TensorDataset`](crate::TensorDataset) in stored order, and windows in order or in runs. They cost no copy,
    /// and have the strides of the data. All other batches, and batches with converted or scaled fields, are gathered
    /// when they are needed, in this thread. Values, order and states equal those in [`iter`](Self::iter).
    ///
    /// ```
    /// use batchloom::dataset::WindowShape;
    /// use batchloom::{Loader, Tensor, WindowDataset};
    ///
    /// let series = Tensor::from((0..1_000).map(|step| step as f32).collect::<Vec<_>>());
    /// let windows = WindowDataset::new(&[0, 1_000], WindowShape::new(96))?.input("x", series)?;
    /// let loader = Loader::builder(windows).batch_size(64).build()?;
    /// for batch in loader.views() {
    ///     let x = batch?.into_fields().remove(0).1;
    ///     // A window begins a step after the last one, in the same memory.
    ///     assert_eq!((x.shape()[1], x.strides()), (96, &[4, 4][..]));
    /// }
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// It begins as [`iter`](Self::iter) does.
    pub fn views(&self) -> Views {
        Views::new(Arc::clone(&self.0))
    }

    /// The blocks of the next epoch, for callers that divide them themselves. It begins as [`iter`](Self::iter) does.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(Arc::clone(&self.0))
    }

    /// The steps of the next epoch, for callers that take batches from the data themselves. It begins as
    /// [`iter`](Self::iter) does, and starts no worker.
    #[doc(hidden)]
    pub fn steps(&self) -> Steps {
        Steps::new(Arc::clone(&self.0))
    }
}

impl IntoIterator for &Loader {
    type Item = Result<super::Batch>;
    type IntoIter = Batches;

    /// The batches of the next epoch, as [`Loader::iter`] returns them.
    fn into_iter(self) -> Batches {
        self.iter()
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Loader").field(&self.0).finish()
    }
}
