//! Times epochs of rows on the backend flex, one at a time, when it is told to: the program of the chapter `burn` of `bench/`.
//!
//! `epochs ROWS WIDTH`, where rows have 16, 64 or 1024 floats. Each line of standard input names a candidate:
//! `batchloom THREADS` or `burn WORKERS`. The answer is a line of JSON, with the seconds of an epoch and a sum of labels,
//! which is the same for all. Loaders are kept from epoch to epoch.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use batchloom::{Loader, Tensor, TensorDataset};
use batchloom_burn::{BatchLoader, tensor};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::tensor::{Device, Int, Tensor as BurnTensor, TensorData};

const BATCH: usize = 64;

struct Rows {
    x: BurnTensor<2>,
    y: BurnTensor<1, Int>,
}

// Burn's loader wants batches that can be printed and cloned.
impl std::fmt::Debug for Rows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Rows {:?}", self.x.dims())
    }
}

impl Clone for Rows {
    fn clone(&self) -> Self {
        Self { x: self.x.clone(), y: self.y.clone() }
    }
}

/// A row as Burn's dataset gives it: an array, which is cloned without an allocation.
#[derive(Debug, Clone)]
struct Row<const WIDTH: usize> {
    x: [f32; WIDTH],
    y: i64,
}

struct Stack;

impl<const WIDTH: usize> Batcher<Row<WIDTH>, Rows> for Stack {
    fn batch(&self, items: Vec<Row<WIDTH>>, device: &Device) -> Rows {
        let mut x = Vec::with_capacity(items.len() * WIDTH);
        let mut y = Vec::with_capacity(items.len());
        for row in &items {
            x.extend_from_slice(&row.x);
            y.push(row.y);
        }
        let (x, y) = (TensorData::new(x, [items.len(), WIDTH]), TensorData::new(y, [items.len()]));
        Rows {
            x: BurnTensor::from_data(x, device),
            y: BurnTensor::from_data(y, (device, burn::tensor::DType::I64)),
        }
    }
}

fn value(row: usize, column: usize) -> f32 {
    (row * 31 + column) as f32
}

fn batchloom<const WIDTH: usize>(
    rows: usize,
    threads: usize,
) -> batchloom::Result<Arc<dyn DataLoader<Rows>>> {
    let x = (0..rows).flat_map(|row| (0..WIDTH).map(move |column| value(row, column))).collect();
    let y = (0..rows as i64).collect::<Vec<_>>();
    let dataset = TensorDataset::new([("x", Tensor::from_vec(x, &[rows, WIDTH])?), ("y", Tensor::from(y))])?;
    let builder = Loader::builder(dataset).batch_size(BATCH as u64).shuffle(true);
    let loader = builder.num_threads(threads).build()?;
    Ok(Arc::new(BatchLoader::new(loader, Device::flex(), |batch, device| {
        Ok(Rows { x: tensor(batch, "x", device)?, y: tensor(batch, "y", device)? })
    })))
}

fn burn<const WIDTH: usize>(rows: usize, workers: usize) -> Arc<dyn DataLoader<Rows>> {
    let row = |row| Row { x: std::array::from_fn(|column| value(row, column)), y: row as i64 };
    let dataset = InMemDataset::new((0..rows).map(row).collect());
    DataLoaderBuilder::new(Stack)
        .batch_size(BATCH)
        .shuffle(0)
        .num_workers(workers)
        .build::<InMemDataset<Row<WIDTH>>>(dataset)
}

fn serve<const WIDTH: usize>(rows: usize) -> Result<(), Box<dyn Error>> {
    let mut loaders: HashMap<String, Arc<dyn DataLoader<Rows>>> = HashMap::new();
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, count) = line.split_once(' ').ok_or("expected a candidate and a number of threads")?;
        let count = count.trim().parse()?;
        if !loaders.contains_key(&line) {
            let loader =
                if name == "burn" { burn::<WIDTH>(rows, count) } else { batchloom::<WIDTH>(rows, count)? };
            loaders.insert(line.clone(), loader);
        }
        let loader = &loaders[&line];
        let (begun, mut seen, mut labels) = (Instant::now(), 0, 0);
        let mut first = 0.0;
        for batch in loader.iter() {
            let Rows { x, y } = batch?;
            seen += x.dims()[0];
            let (x, y) = (x.into_data(), y.into_data());
            first += x.as_slice::<f32>()?[0];
            labels += y.as_slice::<i64>()?.iter().sum::<i64>();
        }
        let seconds = begun.elapsed().as_secs_f64();
        if seen != rows {
            return Err(format!("{line}: an epoch had {seen} rows of {rows}").into());
        }
        std::hint::black_box(first);
        writeln!(answers, "{{\"seconds\": {seconds}, \"labels\": {labels}}}")?;
        answers.flush()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers =
        std::env::args().skip(1).map(|number| number.parse::<usize>()).collect::<Result<Vec<_>, _>>()?;
    match numbers[..] {
        [rows, 16] => serve::<16>(rows),
        [rows, 64] => serve::<64>(rows),
        [rows, 1024] => serve::<1024>(rows),
        _ => Err("expected ROWS and WIDTH: 16, 64 or 1024".into()),
    }
}
