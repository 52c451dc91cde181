//! Shows what order, restarts and devices do to Burn's own loader and to batchloom's, side by side.
//!
//! `cargo run --release --example guarantees`

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use batchloom::{Loader, Tensor, TensorDataset};
use batchloom_burn::{BatchLoader, tensor};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::split::split_dataloader;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::tensor::{Device, Int, Tensor as BurnTensor};

type Numbers = BurnTensor<1, Int>;
type Epoch = Vec<Vec<i64>>;
type Shared = Arc<dyn DataLoader<Numbers>>;

const SAMPLES: i64 = 1_027;
const BATCH: usize = 64;

struct Stack;

impl Batcher<i64, Numbers> for Stack {
    fn batch(&self, items: Vec<i64>, device: &Device) -> Numbers {
        BurnTensor::from_data(items.as_slice(), device)
    }
}

/// Burn's loader of the numbers of samples.
fn burns(workers: usize) -> Shared {
    let numbers = InMemDataset::new((0..SAMPLES).collect::<Vec<_>>());
    DataLoaderBuilder::new(Stack).batch_size(BATCH).shuffle(7).num_workers(workers).build(numbers)
}

/// batchloom's.
fn ours(threads: usize, first_epoch: u64) -> batchloom::Result<Shared> {
    let dataset = TensorDataset::new([("x", Tensor::from((0..SAMPLES).collect::<Vec<_>>()))])?;
    let builder = Loader::builder(dataset).batch_size(BATCH as u64).shuffle(true).seed(7);
    let loader = builder.num_threads(threads).build()?;
    loader.set_epoch(first_epoch);
    Ok(Arc::new(BatchLoader::new(loader, Device::flex(), |batch, device| tensor(batch, "x", device))))
}

fn epoch(loader: &Shared) -> Result<Epoch, Box<dyn Error>> {
    loader.iter().map(|batch| Ok(batch?.into_data().convert::<i64>().try_into_vec::<i64>()?)).collect()
}

fn compare(some: &Epoch, others: &Epoch) -> String {
    if some == others { "the same" } else { "differs" }.to_owned()
}

fn steps(loader: Shared) -> Result<String, Box<dyn Error>> {
    let parts = split_dataloader(loader, &vec![Device::flex(); 4]);
    let steps = parts.iter().map(|part| Ok(epoch(part)?.len().to_string()));
    Ok(steps.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", "))
}

/// The number of groups that samples fall into if all that share a batch in some epoch are in one group.
fn groups(loader: &Shared) -> Result<String, Box<dyn Error>> {
    let mut group: Vec<usize> = (0..usize::try_from(SAMPLES)?).collect();
    for _ in 0..3 {
        for batch in epoch(loader)? {
            let members = batch.iter().map(|&sample| Ok(group[usize::try_from(sample)?]));
            let members = members.collect::<Result<BTreeSet<_>, Box<dyn Error>>>()?;
            let first = members.first().copied().unwrap_or(0);
            group.iter_mut().filter(|name| members.contains(name)).for_each(|name| *name = first);
        }
    }
    Ok(group.into_iter().collect::<BTreeSet<_>>().len().to_string())
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<(), Box<dyn Error>> {
    let restarted = |first: &Shared, again: &Shared| -> Result<String, Box<dyn Error>> {
        let epochs = [epoch(first)?, epoch(first)?];
        let restarted_epoch = epoch(again)?;
        Ok(match epochs.iter().position(|epoch| *epoch == restarted_epoch) {
            Some(number) => format!("that of epoch {number}"),
            None => "another".to_owned(),
        })
    };
    let rows = [
        ("", "Burn".to_owned(), "batchloom".to_owned()),
        (
            "2 workers, run twice",
            compare(&epoch(&burns(2))?, &epoch(&burns(2))?),
            compare(&epoch(&ours(2, 0)?)?, &epoch(&ours(2, 0)?)?),
        ),
        (
            "no workers, and 2",
            compare(&epoch(&burns(0))?, &epoch(&burns(2))?),
            compare(&epoch(&ours(1, 0)?)?, &epoch(&ours(3, 0)?)?),
        ),
        ("groups of samples that never share a batch, 2 workers", groups(&burns(2))?, groups(&ours(2, 0)?)?),
        (
            "order of epoch 1 after a restart",
            restarted(&burns(0), &burns(0))?,
            restarted(&ours(2, 0)?, &ours(2, 1)?)?,
        ),
        ("steps of 4 devices", steps(burns(0))?, steps(ours(2, 0)?)?),
    ];
    println!("{SAMPLES} samples in batches of {BATCH}");
    for (what, burn, batchloom) in rows {
        println!("{what:<62} {burn:<20} {batchloom}");
    }
    Ok(())
}
