//! Micro-batches for samples in hand, from Python and back. They are documented in batchloom/batching/micro_batches.py.

use batchloom::batching::CostModel;
use batchloom::micro_batches::{MicroBatchPlanner, MicroBatches, Rollouts};
use pyo3::prelude::*;

use crate::batching::{parse, sizes};
use crate::dlpack::Tensor;
use crate::error::{DataError, raise};
use crate::interpreter::detach;
use crate::memory::collect;

/// The number of micro-batches of a rank: at least, exactly, and a multiple of.
type Counts = (u32, Option<u32>, u32);

/// The names of choices: `whole`, `sync`, `oversize` and `order`.
type Names = (Option<String>, String, String, String);

/// The fields of micro-batches, by their names in the class: numbers, arrays of int64, weights, costs, labels with their
/// sum and the number of sequences, and the two shares of time.
type Fields = (u64, Vec<Tensor>, Tensor, Tensor, (Option<Tensor>, Option<u64>, u64), (f64, f64));

/// Plans samples with lengths (uint32), groups and classes (int64) and labels (uint32).
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "arguments of one function")]
#[expect(clippy::needless_pass_by_value, reason = "extracted from a tuple of Python")]
pub(crate) fn micro_batches(
    py: Python<'_>,
    lengths: &Tensor,
    groups: Option<&Tensor>,
    classes: Option<&Tensor>,
    labels: Option<&Tensor>,
    world_size: u32,
    max_tokens: u64,
    cost: (f64, f64, f64),
    max_samples: Option<u32>,
    multiple_of: u32,
    counts: Counts,
    equal_samples: bool,
    names: Names,
) -> PyResult<Fields> {
    let (whole, sync, oversize, order) = &names;
    let cost = CostModel::new(cost.0, cost.1, cost.2).map_err(|error| raise(&error))?;
    let planner = MicroBatchPlanner::new(world_size, max_tokens).cost(cost).multiple_of(multiple_of);
    let mut planner = planner.least(counts.0).count_multiple_of(counts.2).equal_samples(equal_samples);
    planner = planner.sync(parse(sync)?).oversize(parse(oversize)?).order(parse(order)?);
    if let Some(whole) = whole {
        planner = planner.whole(parse(whole)?);
    }
    if let Some(count) = counts.1 {
        planner = planner.count(count);
    }
    if let Some(samples) = max_samples {
        planner = planner.max_samples(samples);
    }
    let (groups, classes) = (numbers(groups)?, numbers(classes)?);
    let mut rollouts = Rollouts::new(sizes(lengths)?);
    if let Some(groups) = &groups {
        rollouts = rollouts.groups(groups);
    }
    if let Some(classes) = &classes {
        rollouts = rollouts.classes(classes);
    }
    if let Some(labels) = labels {
        rollouts = rollouts.labels(sizes(labels)?);
    }
    let planned = detach(py, || planner.plan(&rollouts)).map_err(|error| raise(&error))?;
    to_python(planned)
}

/// Numbers of groups or classes.
fn numbers(given: Option<&Tensor>) -> PyResult<Option<Vec<u64>>> {
    let Some(given) = given else { return Ok(None) };
    let given = given.0.as_slice::<i64>();
    let given = given.ok_or_else(|| DataError::new_err("groups are no compact array of int64"))?;
    collect(given.iter().map(|number| number.cast_unsigned())).map(Some)
}

fn to_python(planned: MicroBatches) -> PyResult<Fields> {
    let MicroBatches { index, offsets, tokens, padded_tokens, dropped, left, .. } = &planned;
    let mut arrays = Vec::with_capacity(7);
    for numbers in [index, offsets, tokens, padded_tokens, dropped, left] {
        arrays.push(Tensor::of_indices(numbers)?);
    }
    arrays.push(Tensor::of_list(planned.inverse)?);
    let labels = planned.labels.as_deref().map(Tensor::of_indices).transpose()?;
    Ok((
        planned.count,
        arrays,
        Tensor::of_list(planned.weight)?,
        Tensor::of_list(planned.cost)?,
        (labels, planned.total_labels, planned.sequences),
        (planned.imbalance, planned.bound),
    ))
}
