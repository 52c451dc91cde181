//! The options of a plan, from Python and back.

use batchloom::batching::Keys;
use batchloom::order::{Chunks, Shuffle};
use pyo3::prelude::*;

use crate::batching::{
    Coefficients, GivenSizes, Rule, parse, read_cost, read_pad_to, read_sizes, sizes, write_cost,
};
use crate::dlpack::Tensor;
use crate::draws::Draws;
use crate::error::{DataError, raise};
use crate::labels::{Labels, labels_to_python};
use crate::memory::{collect, require};

/// The options of a plan, as the items of a dict. They are documented in batchloom/plan/options.py; options without a
/// default here are those that Python always gives.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PlanOptions<'py> {
    rule: PyRef<'py, Rule>,
    shuffle: String,
    seed: u64,
    drop_last: bool,
    uneven: String,
    balance: bool,
    cost: Option<Coefficients>,
    largest_first: bool,
    shard_size: Option<u64>,
    pad_to: Option<(Vec<u32>, String)>,
    draws: Option<PyRef<'py, Draws>>,
    ban: Option<Vec<u64>>,
    grouping: Option<Grouping<'py>>,
    per_class: Option<u64>,
    chunks: Option<PyRef<'py, Tensor>>,
    chunks_open: Option<u64>,
    accumulate: Option<u64>,
    balance_within: String,
    #[pyo3(default)]
    sizes: Option<GivenSizes<'py>>,
    #[pyo3(default)]
    labels: Option<Labels<'py>>,
    #[pyo3(default)]
    concatenated: bool,
    #[pyo3(default)]
    content: Option<String>,
}

/// The name of the option that restricts which samples share a batch, the key of each sample as uint32 (`[samples]`, or
/// `[samples, columns]` for several), and the treatment of samples that no batch has room for.
type Grouping<'py> = (String, PyRef<'py, Tensor>, String);

impl PlanOptions<'_> {
    /// The options as the engine takes them.
    pub(crate) fn engine(self) -> PyResult<batchloom::plan::PlanOptions> {
        let mut options = batchloom::plan::PlanOptions::default();
        options.rule = self.rule.0.clone();
        options.shuffle = parse::<Shuffle>(&self.shuffle)?;
        options.seed = self.seed;
        options.drop_last = self.drop_last;
        options.uneven = parse(&self.uneven)?;
        options.balance = self.balance;
        options.cost = read_cost(self.cost)?;
        options.largest_first = self.largest_first;
        options.shard_size = self.shard_size;
        options.pad_to = read_pad_to(self.pad_to)?;
        options.ban = self.ban.map(batchloom::plan::Banned::new);
        options.sizes = self.sizes.as_ref().map(read_sizes).transpose()?;
        options.labels = self.labels.map(|labels| labels.engine()).transpose()?;
        options.per_class = self.per_class;
        options.chunks = self.chunks.map(|sizes| read_chunks(&sizes)).transpose()?;
        options.chunks_open = self.chunks_open;
        options.accumulate = self.accumulate;
        options.balance_within = parse(&self.balance_within)?;
        options.concatenated = self.concatenated;
        options.content = self.content;
        if let Some(draws) = self.draws {
            draws.set(&mut options);
        }
        if let Some((name, numbers, surplus)) = self.grouping {
            let keys = Some(keys(&numbers)?);
            options.surplus = parse(&surplus)?;
            match name == "homogeneous_by" {
                true => options.homogeneous_by = keys,
                false => options.distinct_by = keys,
            }
        }
        Ok(options)
    }
}

/// The options of a plan as Python reads them: the items that [`PlanOptions`] takes, but the rule and the sizes.
#[derive(IntoPyObject)]
pub(crate) struct WrittenOptions {
    shuffle: &'static str,
    seed: u64,
    drop_last: bool,
    uneven: &'static str,
    balance: bool,
    /// The coefficients of the cost model; `None` if the cost of a batch is its elements.
    cost: Option<Coefficients>,
    largest_first: bool,
    shard_size: Option<u64>,
    /// The lengths that batches are padded to, and the treatment of samples that are longer.
    pad_to: Option<(Vec<u32>, &'static str)>,
    /// `None` if an epoch is every sample once.
    draws: Option<Draws>,
    ban: Option<Vec<u64>>,
    grouping: Option<(&'static str, Tensor, &'static str)>,
    per_class: Option<u64>,
    /// The number of samples in each chunk, as uint64.
    chunks: Option<Tensor>,
    chunks_open: Option<u64>,
    accumulate: Option<u64>,
    balance_within: &'static str,
    labels: Py<PyAny>,
    concatenated: bool,
    content: Option<String>,
}

impl WrittenOptions {
    /// The options of a plan.
    pub(crate) fn new(py: Python<'_>, options: &batchloom::plan::PlanOptions) -> PyResult<Self> {
        let pad_to = options.pad_to.as_ref();
        let homogeneous = options.homogeneous_by.as_ref().map(|keys| ("homogeneous_by", keys));
        let grouping = homogeneous.or_else(|| options.distinct_by.as_ref().map(|keys| ("distinct_by", keys)));
        let numbers = |(name, keys): (&'static str, &Keys)| {
            write_keys(keys).map(|keys| (name, keys, options.surplus.name()))
        };
        Ok(Self {
            shuffle: options.shuffle.name(),
            seed: options.seed,
            drop_last: options.drop_last,
            uneven: options.uneven.name(),
            balance: options.balance,
            cost: write_cost(&options.cost),
            largest_first: options.largest_first,
            shard_size: options.shard_size,
            pad_to: pad_to.map(|pad_to| (pad_to.lengths().to_vec(), pad_to.truncation().name())),
            draws: Draws::of(options),
            ban: options.ban.as_ref().map(|banned| banned.as_slice().to_vec()),
            grouping: grouping.map(numbers).transpose()?,
            per_class: options.per_class,
            chunks: options
                .chunks
                .as_ref()
                .map(|chunks| Tensor::of_list(collect(chunks.sizes())?))
                .transpose()?,
            chunks_open: options.chunks_open,
            accumulate: options.accumulate,
            balance_within: options.balance_within.name(),
            labels: labels_to_python(py, options.labels.as_ref())?,
            concatenated: options.concatenated,
            content: options.content.clone(),
        })
    }
}

/// Keys of samples from an array of uint32, with a column for each of several.
fn keys(numbers: &Tensor) -> PyResult<Keys> {
    let columns = numbers.0.shape().get(1).copied().unwrap_or(1);
    let numbers = sizes(numbers)?;
    // A copy, and a table that numbers them.
    require::<[u64; 4]>(numbers.len())?;
    Keys::several(numbers.to_vec(), columns).map_err(|error| raise(&error))
}

/// Keys of samples as an array of uint32, with a column for each of several.
fn write_keys(keys: &Keys) -> PyResult<Tensor> {
    if keys.columns() == 1 {
        return Tensor::of_numbers(keys.as_slice());
    }
    let numbers = collect(keys.as_slice().iter().copied())?;
    let shape = [numbers.len() / keys.columns(), keys.columns()];
    batchloom::Tensor::from_vec(numbers, &shape).map(Tensor).map_err(|error| raise(&error))
}

/// Chunks from an array of uint64, the number of samples in each.
fn read_chunks(sizes: &Tensor) -> PyResult<Chunks> {
    let sizes = sizes.0.as_slice::<u64>();
    let sizes = sizes.ok_or_else(|| DataError::new_err("chunks are not a compact array of uint64"))?;
    require::<[u64; 2]>(sizes.len())?;
    Ok(Chunks::new(sizes.iter().copied()))
}
