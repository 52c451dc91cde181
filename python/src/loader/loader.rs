//! The loader.

use std::sync::Arc;

use batchloom::batching::Loss;
use batchloom::loader::{DocumentMask, MaskKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::allocation::allocate_with;
use super::assembly::{Assembly, HostViews, LateViews, Pipeline};
use super::batches::{Batches, Skipped, lock};
use super::block::Block;
use super::steps::Steps;
use crate::batching::{Rule, parse};
use crate::conversion::{FieldOptions, with_fields};
use crate::dataset::Dataset;
use crate::dataset::windows::Windows;
use crate::dlpack::Tensor;
use crate::error::raise;
use crate::interpreter::detach;
use crate::labels::label_counts as counts;
use crate::plan::Plan;
use crate::plan_options::PlanOptions;
use crate::slot_function::{FieldSlot, with_slots};
use crate::state::{read_state, write_state};

/// The engine's loader. It is documented in batchloom/loader/loader.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Loader(batchloom::Loader, Skipped);

/// The kind of a mask of attention, its window, the field with prefixes, the size of a block, and whether gradients need it.
type MaskOptions = (String, Option<u32>, Option<String>, u32, bool);

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (
        dataset, options, *, rank, world_size, pad_values, pad_side, labels, num_threads, prefetch, block_bytes=None,
        shuffle_documents=false, index_table=false, memory=None, label_counts=None, fields=None,
        slots=Vec::new(), pad_numbers=Vec::new(), pad_edges=Vec::new(), left_out=Vec::new(),
        loss=None, block_mask=None, offset_by=Vec::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one constructor")]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        options: PlanOptions<'_>,
        rank: u32,
        world_size: u32,
        pad_values: Vec<(String, Vec<u8>)>,
        pad_side: &str,
        labels: Option<String>,
        num_threads: Option<usize>,
        prefetch: Option<usize>,
        block_bytes: Option<usize>,
        shuffle_documents: bool,
        index_table: bool,
        memory: Option<(usize, Py<PyAny>)>,
        label_counts: Option<(PyRef<'_, Tensor>, Option<u32>)>,
        fields: Option<Vec<FieldOptions>>,
        slots: Vec<FieldSlot>,
        pad_numbers: Vec<(Option<String>, f64)>,
        pad_edges: Vec<String>,
        left_out: Vec<String>,
        loss: Option<&str>,
        block_mask: Option<MaskOptions>,
        offset_by: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let mut builder = batchloom::Loader::builder(dataset.0.clone())
            .options(options.engine()?)
            .shuffle_documents(shuffle_documents)
            .rank(rank, world_size)
            .pad_side(parse(pad_side)?)
            .index_table(index_table)
            .poison(std::env::var_os("BATCHLOOM_POISON").is_some_and(|value| !value.is_empty()));
        if let Some(prefetch) = prefetch {
            builder = builder.prefetch(prefetch);
        }
        builder = with_fields(builder, fields.unwrap_or_default())?;
        for (field, element) in pad_values {
            builder = builder.pad_value(field, &element);
        }
        for field in pad_edges {
            builder = builder.pad_edge(field);
        }
        for (field, by) in offset_by {
            builder = builder.offset_by(field, by);
        }
        if let Some(field) = labels {
            builder = builder.labels(field);
        }
        for field in left_out {
            builder = builder.leave_out(field);
        }
        builder = with_slots(builder, slots)?;
        for (field, number) in pad_numbers {
            builder = builder.pad_number(field, number);
        }
        if let Some((numbers, piece)) = label_counts {
            builder = builder.label_counts(counts(&numbers, piece)?);
        }
        if let Some(loss) = loss {
            builder = builder.loss(parse::<Loss>(loss)?);
        }
        if let Some((kind, window, prefix, block_size, backward)) = block_mask {
            let mask =
                DocumentMask::new(parse::<MaskKind>(&kind)?).window(window).prefix(prefix).backward(backward);
            builder = builder.block_mask(mask.block_size(block_size).map_err(|error| raise(&error))?);
        }
        if let Some(threads) = num_threads {
            builder = builder.num_threads(threads);
        }
        if let Some(bytes) = block_bytes {
            builder = builder.block_bytes(bytes);
        }
        if let Some((least, allocate)) = memory {
            builder = builder.memory(least, move |bytes| allocate_with(&allocate, bytes));
        }
        let built = detach(py, || builder.build());
        built.map(|loader| Self(loader, Skipped::default())).map_err(|error| raise(&error))
    }

    /// The name and the element type of each field of a batch, in order.
    #[getter]
    fn columns(&self) -> Vec<(String, &'static str)> {
        self.0.names().iter().cloned().zip(self.0.dtypes().into_iter().map(batchloom::DType::name)).collect()
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(self.count_steps(py, batchloom::Loader::len)?)?)
    }

    /// The number of batches left of the epoch under way, or else of the next one.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        self.count_steps(py, batchloom::Loader::remaining)
    }

    /// The metrics of the latest iteration, and their text: see batchloom/loader/metrics.py. Times are in seconds.
    fn metrics(&self) -> (u64, u64, u64, [f64; 5], usize, usize, usize, String) {
        let metrics = self.0.metrics();
        let times = [metrics.elapsed, metrics.waited, metrics.idle, metrics.reading, metrics.blocked];
        (
            metrics.batches,
            metrics.blocks,
            metrics.bytes,
            times.map(|time| time.as_secs_f64()),
            metrics.queued,
            metrics.queued_bytes,
            metrics.most_queued_bytes,
            metrics.to_string(),
        )
    }

    /// The number of steps that the run has taken.
    #[getter]
    fn steps_taken(&self) -> u64 {
        self.0.steps_taken()
    }

    /// The number of the epoch under way, or else of the next one.
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// The rank that is served, and the number of ranks.
    #[getter]
    fn ranks(&self) -> (u32, u32) {
        (self.0.rank(), self.0.world_size())
    }

    /// Serves another rank from the next epoch on.
    fn set_rank(&self, py: Python<'_>, rank: u32, world_size: u32) -> PyResult<()> {
        detach(py, || self.0.set_rank(rank, world_size)).map_err(|error| raise(&error))
    }

    /// Returns true if some, but not all batches of the latest epoch were handed over.
    #[getter]
    fn is_mid_epoch(&self) -> bool {
        self.0.is_mid_epoch()
    }

    /// The plan of an epoch, or of the one that begins next.
    fn plan(&self, epoch: Option<u64>) -> Plan {
        let plan = epoch.map_or_else(|| self.0.upcoming(), |epoch| self.0.plan(epoch));
        Plan { plan, rank: self.0.rank() }
    }

    fn set_epoch(&self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    /// The number of batches that the latest iteration has handed over.
    #[getter]
    fn handed_over(&self) -> u64 {
        self.0.handed_over()
    }

    /// Returns true if the next iteration is the rest of an epoch.
    #[getter]
    fn is_rest(&self) -> bool {
        self.0.is_rest()
    }

    /// The state of the run, or of the run after only some batches of the latest iteration.
    #[pyo3(signature = (batches=None))]
    fn state<'py>(&self, py: Python<'py>, batches: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
        let state = batches.map_or_else(|| Ok(self.0.state()), |batches| self.0.state_after(batches));
        write_state(py, &state.map_err(|error| raise(&error))?)
    }

    /// Makes the rest of an epoch that was left in the middle the next iteration.
    fn go_on(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.go_on()).map_err(|error| raise(&error))
    }

    /// Passes over batches of the next iteration. Returns their number.
    fn skip(&self, py: Python<'_>, batches: u64) -> PyResult<u64> {
        detach(py, || self.0.skip(batches)).map_err(|error| raise(&error))
    }

    /// Continues where a state was taken; `lists` are the batches of its epoch, if these are given.
    #[pyo3(signature = (state, lists=None))]
    fn load(&self, state: &Bound<'_, PyDict>, lists: Option<&Rule>) -> PyResult<()> {
        let (py, state) = (state.py(), read_state(state)?);
        let lists = lists.map(Rule::lists).transpose()?;
        detach(py, || match lists {
            Some(lists) => self.0.load_lists(&state, lists),
            None => self.0.load(&state),
        })
        .map_err(|error| raise(&error))
    }

    /// Makes a seed the seed of the next epoch and of later epochs.
    fn set_seed(&self, seed: u64) {
        self.0.set_seed(seed);
    }

    /// Makes lists the batches of the next epoch.
    fn set_lists(&self, py: Python<'_>, lists: &Rule) -> PyResult<()> {
        let lists = lists.lists()?;
        detach(py, || self.0.set_lists(lists)).map_err(|error| raise(&error))
    }

    /// The batches of the next epoch, made of blocks in memory, which frameworks view. The epoch begins with the first.
    /// `begin` is called before the epoch begins; `check` is called before each block and raises if the data has moved.
    fn batches(&self, views: Py<HostViews>, begin: Py<PyAny>, check: Py<PyAny>) -> Batches {
        Batches::new(self.0.blocks(), Assembly::Host(views), begin, check, Arc::clone(&self.1))
    }

    /// The batches of the next epoch; their fields are known with the first block: `views` then makes views of a list
    /// of their names and types.
    fn late_batches(&self, views: Py<PyAny>, begin: Py<PyAny>, check: Py<PyAny>) -> Batches {
        Batches::new(
            self.0.blocks(),
            Assembly::Late(LateViews::new(views)),
            begin,
            check,
            Arc::clone(&self.1),
        )
    }

    /// The samples that could not be read and were left out, with the reasons, since the loader was made.
    #[getter]
    fn skipped(&self) -> Vec<(u64, String)> {
        lock(&self.1).clone()
    }

    /// The batches of the next epoch, which a pipeline makes on a device: dicts with these keys, or tuples.
    fn device_batches(
        &self,
        pipeline: Pipeline,
        keys: Option<Vec<Py<PyString>>>,
        begin: Py<PyAny>,
        check: Py<PyAny>,
    ) -> Batches {
        let assembly = Assembly::Device(pipeline, keys.into());
        Batches::new(self.0.blocks(), assembly, begin, check, Arc::clone(&self.1))
    }

    /// The block that holds the batch at a step of a plan alone, for the rank of the plan. The run stays where it is.
    fn form(&self, py: Python<'_>, plan: &Plan, step: u64) -> PyResult<Block> {
        let form = || self.0.steps_at(&plan.plan, plan.rank, step)?.form();
        detach(py, form).map(Block).map_err(|error| raise(&error))
    }

    /// One step of a plan, for callers that take its batch of windows from the series themselves. The run stays where
    /// it is.
    fn steps_at(&self, py: Python<'_>, plan: &Plan, step: u64, windows: Py<Windows>) -> PyResult<Steps> {
        let steps = detach(py, || self.0.steps_at(&plan.plan, plan.rank, step));
        steps.map(|steps| Steps { steps, windows }).map_err(|error| raise(&error))
    }

    /// The steps of the next epoch, for callers that take batches of windows from the series themselves. The epoch
    /// begins with the first.
    fn steps(&self, windows: Py<Windows>) -> Steps {
        Steps { steps: self.0.steps(), windows }
    }
}

impl Loader {
    /// Counts steps of the next epoch by a function, where there is memory for it.
    ///
    /// # Errors
    /// The exception for [`batchloom::Kind::Memory`].
    fn count_steps<T: Send>(
        &self,
        py: Python<'_>,
        count: impl Fn(&batchloom::Loader) -> T + Sync,
    ) -> PyResult<T> {
        let checked = || self.0.plan(self.0.epoch()).require_memory().map(|()| count(&self.0));
        detach(py, checked).map_err(|error| raise(&error))
    }
}
