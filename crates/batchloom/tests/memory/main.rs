//! Lack of memory: where there is too little for what grows with the data, there is an error, never the end of the
//! process, and all works again once there is enough.
//!
//! The allocator of this test refuses what would exceed a limit. Each case runs in a process of its own, under limits in
//! steps from nothing to what it takes; a process that ends says where by a backtrace.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a test's values are small, a panic is how it fails, and it says what it counted"
)]

mod limited;

use std::backtrace::Backtrace;
use std::num::NonZero;
use std::process::Command;
use std::sync::Mutex;
use std::{env, iter, panic, thread};

use batchloom::batching::{
    Budgets, CostModel, CostOptimal, FixedSize, Keys, LengthBuckets, PackedOversize, Packing, PackingOrder,
    Pool, Rests, Rule, Sizes, Surplus, TokenBudget,
};
use batchloom::dataset::{Groups, PartEnd, Selection, Sequences, TextIds, WindowShape};
use batchloom::draws::{Mix, Weights};
use batchloom::ranks::Uneven;
use batchloom::{
    GroupDataset, Kind, Loader, Plan, Result, SequenceDataset, Tensor, TensorDataset, TokenDataset,
    WindowDataset,
};

use limited::Limited;

#[global_allocator]
static MEMORY: Limited = Limited::new();

/// The samples of a case: what takes an element of each takes more than the allocator lets through.
const SAMPLES: usize = 100_000;
const STEPS: usize = 20;
const CASE: &str = "BATCHLOOM_MEMORY_CASE";

type Case = (&'static str, fn(&Given) -> Result<u64>);

/// The data of all cases, which is made without a limit.
struct Given {
    lengths: Vec<u32>,
    offsets: Vec<i64>,
    rows: Tensor,
    tokens: Tensor,
    ids: Vec<i64>,
    list: Vec<u64>,
    sizes: Sizes,
    named_sizes: Sizes,
    keys: Keys,
    few_keys: Keys,
    pairs: Keys,
    weights: Vec<f64>,
    classes: Vec<i64>,
    documents: Tensor,
    series: Vec<usize>,
}

impl Given {
    fn new() -> Self {
        let lengths: Vec<u32> =
            (0..SAMPLES as u32).map(|sample| 1 + sample.wrapping_mul(2_654_435_761) % 9).collect();
        let ends = lengths.iter().scan(0, |end, &length| {
            *end += i64::from(length);
            Some(*end)
        });
        let offsets: Vec<i64> = iter::once(0).chain(ends).collect();
        let elements = usize::try_from(offsets[SAMPLES]).unwrap();
        let tokens = Tensor::from_vec(vec![1_i32; elements], &[elements]).unwrap();
        let rows = Tensor::from_vec((0..SAMPLES as i64).collect(), &[SAMPLES]).unwrap();
        let ids: Vec<i64> = (0..SAMPLES as i64).map(|row| row / 3 * 7).collect();
        let list = (0..SAMPLES as u64).rev().collect();
        let sizes = Sizes::new(lengths.clone());
        let patches: Vec<u32> = lengths.iter().rev().copied().collect();
        let named_sizes = sizes.clone().named("ids").unwrap().with("patches", patches).unwrap();
        let keys = Keys::new(ids.iter().map(|&id| id as u32).collect());
        let few_keys = Keys::new(ids.iter().map(|&id| id as u32 % 5).collect());
        let pairs = (0..SAMPLES as u32).flat_map(|sample| [sample / 2, 1_000_000 + sample / 3]).collect();
        let pairs = Keys::several(pairs, 2).unwrap();
        let weights = lengths.iter().map(|&length| f64::from(length)).collect();
        let classes = ids.iter().map(|id| id % 5).collect();
        let series = (0..=SAMPLES / 8).map(|series| series * 8).collect();
        let documents = Tensor::from_vec(offsets.clone(), &[SAMPLES + 1]).unwrap();
        Self {
            lengths,
            offsets,
            rows,
            tokens,
            ids,
            list,
            sizes,
            named_sizes,
            keys,
            few_keys,
            pairs,
            weights,
            classes,
            documents,
            series,
        }
    }

    fn table(&self) -> Result<TensorDataset> {
        TensorDataset::new([("rows", self.rows.clone())])
    }

    fn sequences(&self) -> Result<SequenceDataset> {
        let field = Sequences::new("ids", self.tokens.clone(), &self.offsets)?;
        SequenceDataset::new().variable("ids", field).fixed("row", self.rows.clone()).build()
    }

    fn ruled(&self, rule: impl Into<Rule>) -> Result<u64> {
        let plan =
            Plan::builder(SAMPLES as u64).sizes(self.sizes.clone()).rule(rule).shuffle(true).balance(true);
        counted(&plan.uneven(Uneven::Short).world_size(2).build()?)
    }
}

/// Numbers that tell plans apart.
fn counted(plan: &Plan) -> Result<u64> {
    let later = plan.at_epoch(1);
    later.require_memory()?;
    let mut sum = plan.steps() + later.steps();
    for step in [0, plan.steps() / 2, plan.steps() - 1] {
        sum = sum.wrapping_mul(31) + plan.indices(step, 0)?.iter().sum::<u64>();
    }
    Ok(sum)
}

/// Numbers that tell the batches of a loader apart.
fn summed(loader: &Loader) -> Result<u64> {
    let mut sum = 0_u64;
    for batch in loader.iter() {
        let batch = batch?;
        for field in batch.names() {
            sum +=
                batch.field(field).map_or(0, |field| field.bytes().iter().map(|&byte| u64::from(byte)).sum());
        }
    }
    Ok(sum)
}

const CASES: &[Case] = &[
    ("sequences", |given| {
        summed(&Loader::builder(given.sequences()?).batch_size(512).shuffle(true).num_threads(2).build()?)
    }),
    ("slices", |given| {
        let slices = given.lengths.iter().map(|&length| &[1_u8; 16][..length as usize]);
        Ok(SequenceDataset::new()
            .slices("ids", slices)?
            .build()?
            .sizes()
            .as_slice()
            .iter()
            .map(|&size| u64::from(size))
            .sum())
    }),
    ("rows of a table", |given| {
        summed(&Loader::builder(given.table()?).batch_size(64).shuffle(true).num_threads(2).build()?)
    }),
    ("one batch of all sequences", |given| {
        summed(
            &Loader::builder(given.sequences()?)
                .batch_size(SAMPLES as u64)
                .shuffle(true)
                .num_threads(1)
                .build()?,
        )
    }),
    ("one batch of all rows", |given| {
        summed(
            &Loader::builder(given.table()?)
                .batch_size(SAMPLES as u64)
                .shuffle(true)
                .num_threads(1)
                .build()?,
        )
    }),
    ("texts", |given| {
        let texts = TextIds::new(given.documents.bytes()[8..].chunks_exact(8))?;
        Ok(texts.first_rows().len() as u64)
    }),
    ("fixed", |given| given.ruled(FixedSize::new(64)?)),
    ("length buckets of all", |given| given.ruled(LengthBuckets::new(64)?.pool(Pool::All)?)),
    ("length buckets", |given| given.ruled(LengthBuckets::new(64)?)),
    ("token budget", |given| given.ruled(TokenBudget::new(512)?.pool(Pool::All)?)),
    ("cost-optimal", |given| {
        given.ruled(CostOptimal::new(CostModel::new(1.0, 1.0, 0.0)?).max_tokens(512)?.pool(Pool::All)?)
    }),
    ("packing", |given| given.ruled(Packing::new(64)?.pool(Pool::All)?)),
    ("packing, longest first", |given| {
        given.ruled(Packing::new(64)?.order(PackingOrder::Decreasing).pool(Pool::All)?)
    }),
    ("packing of parts", |given| {
        given.ruled(Packing::new(2)?.oversize(PackedOversize::Split).pool(Pool::All)?)
    }),
    ("rows", |given| given.ruled(Packing::new(64)?.rows(4)?)),
    ("rows of all, rests continued", |given| {
        given.ruled(Packing::new(64)?.rows(4)?.rests(Rests::Continue).pool(Pool::All)?)
    }),
    ("several budgets", |given| {
        let budgets = Budgets::new([("ids", 64), ("patches", 90)])?;
        let plan =
            Plan::builder(SAMPLES as u64).sizes(given.named_sizes.clone()).rule(Packing::within(budgets)?);
        counted(&plan.shuffle(true).balance(true).build()?)
    }),
    ("pools of a batch", |given| given.ruled(LengthBuckets::new(2)?.pool(1)?)),
    ("keys", |given| {
        let keys = given.keys.clone();
        counted(&Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).distinct_by(keys).build()?)
    }),
    ("several keys", |given| {
        let keys = given.pairs.clone();
        counted(&Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).distinct_by(keys).build()?)
    }),
    ("a surplus of keys", |given| {
        let plan = Plan::builder(SAMPLES as u64).batch_size(1).shuffle(true).distinct_by(given.pairs.clone());
        counted(&plan.surplus(Surplus::Drop).build()?)
    }),
    ("one key a batch", |given| {
        let keys = given.few_keys.clone();
        counted(&Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).homogeneous_by(keys).build()?)
    }),
    ("weights", |given| {
        let weights = Weights::new(&given.weights)?;
        counted(&Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).weights(weights).build()?)
    }),
    ("classes", |given| {
        let mix = Mix::balanced(&given.classes)?;
        counted(&Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).mix(mix).build()?)
    }),
    ("several samples of each class", |given| {
        let mix = Mix::balanced(&given.classes)?;
        let plan = Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true).mix(mix).per_class(4);
        counted(&plan.build()?)
    }),
    ("bans", |given| {
        let plan = Plan::builder(SAMPLES as u64).batch_size(64).shuffle(true);
        counted(&plan.ban(given.list[..SAMPLES / 50].to_vec()).build()?)
    }),
    ("groups", |given| {
        let dataset = GroupDataset::new(Groups::of(&given.ids)?).rows("row", given.rows.clone())?.build()?;
        summed(&Loader::builder(dataset).batch_size(64).num_threads(2).build()?)
    }),
    ("selections", |given| {
        let parts = [("train", PartEnd::Share(0.8)), ("test", PartEnd::Rest)];
        let train = Selection::split(SAMPLES as u64, &parts, Some(0), None)?.remove(0);
        let strata = Selection::split(SAMPLES as u64, &parts, Some(0), Some(&given.ids))?.remove(0);
        let listed = Selection::list(&given.list, SAMPLES as u64)?;
        let within = Selection::list(&given.list[SAMPLES / 2..], SAMPLES as u64)?.within(&listed)?;
        Ok(train.get(7) + strata.get(7) + listed.get(7) + within.get(7))
    }),
    ("parts of sequences", |given| {
        let selection = Selection::list(&given.list, SAMPLES as u64)?;
        let dataset = batchloom::dataset::Dataset::from(given.sequences()?).select(&selection)?;
        summed(&Loader::builder(dataset).batch_size(512).num_threads(2).build()?)
    }),
    ("concatenated", |given| {
        let parts = [given.sequences()?.into(), given.sequences()?.into()];
        let dataset = batchloom::dataset::Dataset::concat(parts)?;
        summed(&Loader::builder(dataset).batch_size(512).shuffle(true).num_threads(2).build()?)
    }),
    ("tokens", |given| {
        let dataset = TokenDataset::new(given.tokens.clone(), 128)?.documents(&given.documents)?;
        summed(&Loader::builder(dataset).batch_size(16).shuffle(true).num_threads(2).build()?)
    }),
    ("documents in another order", |given| {
        let dataset = TokenDataset::new(given.tokens.clone(), 128)?.documents(&given.documents)?;
        summed(
            &Loader::builder(dataset)
                .batch_size(16)
                .shuffle_documents(true)
                .shuffle(true)
                .num_threads(2)
                .build()?,
        )
    }),
    ("windows", |given| {
        let dataset =
            WindowDataset::new(&given.series, WindowShape::new(3))?.input("x", given.rows.clone())?;
        let parts = [("train", PartEnd::Share(0.8)), ("test", PartEnd::Rest)];
        let chosen = dataset.select(&Selection::split(dataset.len() as u64, &parts, Some(0), None)?[0])?;
        assert_eq!(chosen.counts()?.windows, chosen.len() as u64);
        summed(&Loader::builder(dataset).batch_size(256).shuffle(true).num_threads(2).build()?)
    }),
];

/// Runs a case under limits in steps, and says how many of them were too low.
fn run(case: fn(&Given) -> Result<u64>) {
    panic::set_hook(Box::new(|info| eprintln!("{info}\n{}", Backtrace::force_capture())));
    let given = Given::new();
    // What is made once for all, as the tables of a thread, is made before.
    let (expected, most) = MEMORY.within(usize::MAX, || case(&given).unwrap());
    let mut refused = 0;
    for step in 0..=STEPS {
        let limit = most * step / STEPS;
        eprintln!("{limit} of {most} bytes");
        match MEMORY.within(limit, || case(&given)).0 {
            Ok(sum) => assert_eq!(sum, expected),
            Err(error) if error.kind() == Kind::Memory => refused += 1,
            Err(error) => panic!("expected an error of memory, found {error}"),
        }
    }
    assert_eq!(MEMORY.within(usize::MAX, || case(&given).unwrap()).0, expected);
    println!("{refused} of {} limits below {most} bytes were too low", STEPS + 1);
}

/// Runs a case in a process of its own and says what came of it; tells whether it ended well.
fn ends_well(name: &str) -> bool {
    let done = Command::new(env::current_exe().unwrap()).env(CASE, name).output().unwrap();
    let well = done.status.success();
    let why =
        if well { String::new() } else { format!(" FAILED\n{}", String::from_utf8_lossy(&done.stderr)) };
    println!("{name}: {}{why}", String::from_utf8_lossy(&done.stdout).trim());
    well
}

fn main() {
    if let Ok(name) = env::var(CASE) {
        let (_, case) = CASES.iter().find(|(other, _)| *other == name).unwrap();
        return run(*case);
    }
    let wanted = env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let cases = CASES.iter().map(|(name, _)| *name);
    let left = Mutex::new(cases.filter(|name| wanted.as_deref().is_none_or(|wanted| name.contains(wanted))));
    // As many at a time as there are cores: each has a process, and so a limit of its own.
    let failed: usize = thread::scope(|scope| {
        let take = || left.lock().unwrap().next();
        let work = move || iter::from_fn(take).filter(|name| !ends_well(name)).count();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(failed, 0, "so many cases end the process");
}
