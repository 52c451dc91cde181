//! The plan, for one rank.

use batchloom::batching::Cost;
use batchloom::plan::Stats;
use batchloom::report::Value;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batching::{Coefficients, Rule, WrittenSizes, read_cost, write_columns};
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::memory::collect;
use crate::plan_options::{PlanOptions, WrittenOptions};
use crate::state::{read_state, write_state};

/// A plan as one rank sees it. It is documented in batchloom/plan/plan.py.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) plan: batchloom::Plan,
    pub(crate) rank: u32,
}

/// Samples, tokens and labels of a step; the samples of each batch that count, and all of them.
type Step = (u64, u64, Option<u64>, Vec<u64>, Vec<Tensor>);

/// The first step of an update and the one after its last; samples, tokens, labels and sequences; cost and imbalance.
type Update = ((u64, u64), u64, u64, Option<u64>, Option<u64>, f64, f64);

/// The place of a sample: step, rank, index.
type Place = (u64, u32, u64);

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (samples, options, *, epoch, rank, world_size))]
    fn new(
        py: Python<'_>,
        samples: u64,
        options: PlanOptions<'_>,
        epoch: u64,
        rank: u32,
        world_size: u32,
    ) -> PyResult<Self> {
        let options = options.engine()?;
        let builder = batchloom::Plan::builder(samples).options(options).epoch(epoch).world_size(world_size);
        let plan = detach(py, || builder.build()).map_err(|error| raise(&error))?;
        of_rank(plan, rank)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(self.count_steps(py, |plan| plan.steps_of(self.rank))?)?)
    }

    /// The samples of this rank's batch at `step`, as int64.
    fn indices(&self, py: Python<'_>, step: u64) -> PyResult<Tensor> {
        let indices = detach(py, || self.plan.indices(step, self.rank)).map_err(|error| raise(&error))?;
        Tensor::of_indices(&indices)
    }

    /// The shard that holds this rank's batch at `step`: its first sample as stored, and the one after its last.
    fn shard(&self, py: Python<'_>, step: u64) -> PyResult<Option<(u64, u64)>> {
        let shard = detach(py, || self.plan.shard(step, self.rank)).map_err(|error| raise(&error))?;
        Ok(shard.map(|shard| (shard.start, shard.end)))
    }

    /// Samples, tokens and labels over all ranks at `step`, and for each rank the number of samples that count and the
    /// samples of its batch.
    fn step(&self, py: Python<'_>, step: u64) -> PyResult<Step> {
        let step = detach(py, || self.plan.step(step)).map_err(|error| raise(&error))?;
        let batches = step.batches.iter().map(|batch| Tensor::of_indices(batch)).collect::<PyResult<_>>()?;
        Ok((step.samples, step.tokens, step.labels, step.counts, batches))
    }

    /// The number of updates.
    fn updates(&self, py: Python<'_>) -> PyResult<u64> {
        self.count_steps(py, batchloom::Plan::updates)
    }

    /// The steps of an update, and its counts over all ranks, by a cost model or by the cost of the plan.
    fn update(&self, py: Python<'_>, update: u64, cost: Option<Coefficients>) -> PyResult<Update> {
        let cost = self.cost_or_own(cost)?;
        let update = detach(py, || self.plan.update_by(update, cost)).map_err(|error| raise(&error))?;
        let steps = (update.steps.start, update.steps.end);
        let (samples, tokens, cost) = (update.samples, update.tokens, update.cost);
        Ok((steps, samples, tokens, update.labels, update.sequences, cost, update.imbalance))
    }

    /// The number of elements, padding included, that each rank that takes part is given at `step`.
    fn elements(&self, py: Python<'_>, step: u64) -> PyResult<Vec<u64>> {
        let elements = || {
            let ranks = (0..self.plan.world_size()).filter(|rank| step < self.plan.steps_of(*rank));
            ranks.map(|rank| self.plan.batch_elements(step, rank)).collect::<batchloom::Result<_>>()
        };
        detach(py, elements).map_err(|error| raise(&error))
    }

    /// The extents of each sample in the dimensions that vary, `[samples]` or `[samples, dimensions]`, as uint32, and the
    /// sizes with names. `None` if samples do not differ in size.
    fn extents(&self) -> PyResult<Option<WrittenSizes>> {
        let Some(sizes) = self.plan.options().sizes.as_ref() else { return Ok(None) };
        let (samples, dimensions) = (sizes.as_slice().len(), sizes.dimensions());
        let shape = if dimensions == 1 { vec![samples] } else { vec![samples, dimensions] };
        let extents = batchloom::Tensor::from_vec(sizes.to_extents(), &shape);
        let extents = extents.map(Tensor).map_err(|error| raise(&error))?;
        Ok(Some((extents, write_columns(sizes)?)))
    }

    /// The size of each sample, as uint32. `None` if samples do not differ in size.
    fn sizes(&self) -> PyResult<Option<Tensor>> {
        let Some(sizes) = self.plan.options().sizes.as_ref() else { return Ok(None) };
        Tensor::of_numbers(sizes.as_slice()).map(Some)
    }

    /// The places of `sample`.
    fn places(&self, py: Python<'_>, sample: u64) -> PyResult<Vec<Place>> {
        let places = detach(py, || self.plan.places(sample)).map_err(|error| raise(&error))?;
        Ok(places.into_iter().map(|place| (place.step, place.rank, place.index)).collect())
    }

    /// The costs of the plan, with the time that ranks wait by a cost model or by the cost of the plan.
    fn stats<'py>(&self, py: Python<'py>, cost: Option<Coefficients>) -> PyResult<Bound<'py, PyDict>> {
        let cost = self.cost_or_own(cost)?;
        dict_of(py, &self.count_steps(py, |plan| plan.stats_by(cost))?)
    }

    /// A page that shows the plan, as HTML, by a cost model or by the cost of the plan.
    fn report(&self, py: Python<'_>, title: &str, cost: Option<Coefficients>) -> PyResult<String> {
        let cost = self.cost_or_own(cost)?;
        self.count_steps(py, |plan| plan.report_by(title, cost))
    }

    /// The same run in another epoch, from its start.
    fn at_epoch(&self, epoch: u64) -> Self {
        Self { plan: self.plan.at_epoch(epoch), rank: self.rank }
    }

    /// The rest of the epoch for a rank of another world.
    fn in_world(&self, py: Python<'_>, rank: u32, world_size: u32) -> PyResult<Self> {
        let plan = detach(py, || self.plan.in_world(world_size)).map_err(|error| raise(&error))?;
        of_rank(plan, rank)
    }

    /// The same epoch with other lists.
    fn with_lists(&self, py: Python<'_>, lists: &Rule) -> PyResult<Self> {
        let lists = lists.lists()?;
        let plan = detach(py, || self.plan.with_lists(lists)).map_err(|error| raise(&error))?;
        Ok(Self { plan, rank: self.rank })
    }

    /// The state after `steps` steps, as Python values.
    fn state<'py>(&self, py: Python<'py>, steps: u64) -> PyResult<Bound<'py, PyDict>> {
        write_state(py, &self.plan.state(steps))
    }

    /// The rest of the epoch that a state interrupted.
    fn resume(&self, state: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (py, state) = (state.py(), read_state(state)?);
        let plan = detach(py, || self.plan.resume(&state)).map_err(|error| raise(&error))?;
        Ok(Self { plan, rank: self.rank })
    }

    /// The parts of the epoch, in order: the plan for the ranks that took part, and the number of its steps; last this
    /// plan, with the steps of this rank.
    fn by_world(&self, py: Python<'_>) -> PyResult<Vec<(Self, u64)>> {
        let mut parts = self.count_steps(py, batchloom::Plan::by_world)?;
        if let Some((rest, steps)) = parts.last_mut() {
            *steps = rest.steps_of(self.rank);
        }
        Ok(parts.into_iter().map(|(plan, steps)| (Self { plan, rank: self.rank }, steps)).collect())
    }

    /// The options, but the rule and the sizes.
    #[getter]
    fn options(&self, py: Python<'_>) -> PyResult<WrittenOptions> {
        WrittenOptions::new(py, self.plan.options())
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.plan.fingerprint()
    }

    /// The digest of the weights of draws, if they have some.
    #[getter]
    fn weights(&self) -> Option<String> {
        self.plan.weights_name()
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.plan.samples()
    }

    /// The number of steps of the rank that has most.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        self.count_steps(py, batchloom::Plan::steps)
    }

    /// Says that a pool which was given as a number holds everything that is shuffled.
    #[getter]
    fn has_one_pool(&self) -> bool {
        self.plan.has_one_pool()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.plan.seed()
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.plan.epoch()
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[getter]
    fn world_size(&self) -> u32 {
        self.plan.world_size()
    }
}

impl Plan {
    /// The cost by a model of these coefficients, or the cost of the plan.
    fn cost_or_own(&self, cost: Option<Coefficients>) -> PyResult<Cost> {
        cost.map_or(Ok(self.plan.options().cost), |cost| read_cost(Some(cost)))
    }

    /// Counts steps by a function, where there is memory for it.
    ///
    /// # Errors
    /// The exception for [`batchloom::Kind::Memory`].
    fn count_steps<T: Send>(
        &self,
        py: Python<'_>,
        count: impl Fn(&batchloom::Plan) -> T + Sync,
    ) -> PyResult<T> {
        detach(py, || self.plan.require_memory().map(|()| count(&self.plan))).map_err(|error| raise(&error))
    }
}

/// A plan for one of its ranks.
fn of_rank(plan: batchloom::Plan, rank: u32) -> PyResult<Plan> {
    plan.require_rank(rank).map_err(|error| raise(&error))?;
    Ok(Plan { plan, rank })
}

/// The place of each sample's result among `results` that came in the order of `samples`, int64; as int64. A sample
/// below 0 marks a place that only filled up.
#[pyfunction]
pub(crate) fn restore_order(py: Python<'_>, samples: &Tensor, results: usize) -> PyResult<Tensor> {
    let samples = samples.0.as_slice::<i64>();
    let samples = samples.ok_or_else(|| DataError::new_err("samples are no compact array of int64"))?;
    let restored = || batchloom::plan::restore_order(samples, results);
    let places = detach(py, restored).map_err(|error| raise(&error))?;
    Tensor::of_list(collect(places.into_iter().map(|place| place.cast_signed() as i64))?)
}

/// Statistics as a dict.
pub(crate) fn dict_of<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for statistic in stats.statistics() {
        match statistic.value {
            Value::Count(number) => dict.set_item(statistic.name, number)?,
            Value::Share(number) | Value::Correlation(number) | Value::Multiple(number) => {
                dict.set_item(statistic.name, number)?;
            }
            Value::Cost(cost) => dict.set_item(statistic.name, cost.to_string())?,
            Value::Name(name) => dict.set_item(statistic.name, name)?,
            Value::Budgets(budgets) => {
                let fills = PyDict::new(py);
                for budget in budgets {
                    let fill = PyDict::new(py);
                    fill.set_item("sum", budget.sum)?;
                    fill.set_item("fill", budget.fill)?;
                    fills.set_item(budget.name, fill)?;
                }
                dict.set_item(statistic.name, fills)?;
            }
            _ => dict.set_item(statistic.name, py.None())?,
        }
    }
    Ok(dict)
}

/// The rank of this process and the world size, if a launcher has set them in the environment.
#[pyfunction]
pub(crate) fn launched() -> PyResult<Option<(u32, u32)>> {
    batchloom::ranks::launched().map_err(|error| raise(&error))
}
