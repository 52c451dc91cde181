//! dataloader-rs on the rows of `bench/rows`: the same number of rows of the same width, batch 64, shuffled.
//!
//! Usage: `dataloader_rs_bench ROWS WIDTH`. It promises to
//! 1. check, on its own settings, that an epoch delivers every row exactly once with features and label of the same
//!    row (features of row `i` are functions of `i`, labels are `i`);
//! 2. try several numbers of workers and depths of prefetch, and keep the fastest;
//! 3. print one line of JSON with what it kept, then, for each line on standard input, run one epoch and print its
//!    seconds as one line of JSON.
//!
//! The set-up favours dataloader-rs: a sample is its index alone, so that no row is allocated or copied twice, and the
//! collator copies the rows straight into one vector a batch.

use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use dataloader_rs::collator::Collator;
use dataloader_rs::{DataLoader, Dataset, RandomSampler};

const BATCH: usize = 64;
const WORKERS: [usize; 4] = [0, 1, 2, 4];
const PREFETCH: [usize; 3] = [2, 8, 32];
/// Epochs that each setting is tried for; the fastest counts.
const TRIES: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// All the rows: features and labels.
struct Rows {
    width: usize,
    features: Vec<f32>,
    labels: Vec<f32>,
}

impl Rows {
    fn new(rows: usize, width: usize) -> Self {
        let features = (0..rows).flat_map(|row| (0..width).map(move |column| feature(row, column))).collect();
        Self { width, features, labels: (0..rows).map(|row| row as f32).collect() }
    }
}

/// What stands in a row and column. Exact in a float: small, and different for neighbouring rows and columns.
fn feature(row: usize, column: usize) -> f32 {
    ((row * 31 + column * 7) % 65_521) as f32
}

/// The samples, as their indices: the collator reads the rows.
struct Indices(usize);

impl Dataset for Indices {
    type Item = usize;

    fn get(&self, index: usize) -> dataloader_rs::Result<usize> {
        Ok(index)
    }

    fn get_batch(&self, indices: &[usize]) -> dataloader_rs::Result<Vec<usize>> {
        Ok(indices.to_vec())
    }

    fn len(&self) -> usize {
        self.0
    }
}

/// Copies the rows of a batch into one vector.
struct CopyRows(Arc<Rows>);

impl Collator<usize> for CopyRows {
    type Batch = (Vec<f32>, Vec<f32>);

    fn collate(&self, indices: Vec<usize>) -> dataloader_rs::Result<Self::Batch> {
        let Rows { width, features, labels } = &*self.0;
        let mut batch = Vec::with_capacity(indices.len() * width);
        for &index in &indices {
            batch.extend_from_slice(&features[index * width..(index + 1) * width]);
        }
        Ok((batch, indices.iter().map(|&index| labels[index]).collect()))
    }
}

type Loader = DataLoader<Indices, RandomSampler, CopyRows>;

/// How a loader is set.
#[derive(Clone, Copy)]
struct Setting {
    workers: usize,
    prefetch: usize,
}

impl Setting {
    fn all() -> impl Iterator<Item = Self> {
        let depths = |workers| if workers == 0 { &PREFETCH[..1] } else { &PREFETCH[..] };
        WORKERS
            .into_iter()
            .flat_map(move |workers| depths(workers).iter().map(move |&prefetch| Self { workers, prefetch }))
    }

    fn loader(self, rows: &Arc<Rows>) -> Loader {
        DataLoader::builder(Indices(rows.labels.len()))
            .batch_size(BATCH)
            .sampler(RandomSampler::new(7))
            .num_workers(self.workers)
            .prefetch_depth(self.prefetch)
            .collator(CopyRows(Arc::clone(rows)))
            .build()
    }
}

/// Seconds of one epoch.
fn epoch(loader: &mut Loader) -> Result<f64> {
    let start = Instant::now();
    for batch in loader.iter() {
        black_box(batch?);
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Fails unless an epoch holds every row once, features beside their label.
fn check(setting: Setting, width: usize) -> Result<()> {
    let rows = Arc::new(Rows::new(9_001, width));
    let mut seen = vec![0_u32; rows.labels.len()];
    for batch in setting.loader(&rows).iter() {
        let (features, labels) = batch?;
        for (row, &label) in features.chunks_exact(width).zip(&labels) {
            let id = label as usize;
            seen[id] += 1;
            if row.iter().enumerate().any(|(column, &found)| found != feature(id, column)) {
                return Err(format!("row {id} came with features of another").into());
            }
        }
    }
    if seen.iter().any(|&times| times != 1) {
        return Err("an epoch did not hold every row exactly once".into());
    }
    Ok(())
}

/// The setting with the fastest epoch.
fn tune(rows: &Arc<Rows>) -> Result<Setting> {
    let mut best = (f64::INFINITY, Setting { workers: 0, prefetch: PREFETCH[0] });
    for setting in Setting::all() {
        let mut loader = setting.loader(rows);
        for _ in 0..TRIES {
            let seconds = epoch(&mut loader)?;
            if seconds < best.0 {
                best = (seconds, setting);
            }
        }
    }
    Ok(best.1)
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn main() -> Result<()> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<std::result::Result<_, _>>()?;
    let [rows, width] = arguments[..] else {
        return Err("usage: dataloader_rs_bench ROWS WIDTH".into());
    };
    let rows = Arc::new(Rows::new(rows, width));
    let setting = tune(&rows)?;
    check(setting, width)?;
    say(&format!(r#"{{"num_workers": {}, "prefetch_depth": {}}}"#, setting.workers, setting.prefetch))?;
    let mut loader = setting.loader(&rows);
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&format!(r#"{{"seconds": {}}}"#, epoch(&mut loader)?))?;
    }
    Ok(())
}
