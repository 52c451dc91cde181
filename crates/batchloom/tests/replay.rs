//! A batch that is formed again is the batch that was iterated, bit for bit, and the run does not notice.

use batchloom::batching::{LengthBuckets, Packing, Rule, TokenBudget};
use batchloom::dataset::{Dataset, MapDataset, Sample, SampleRng, Sequences, WindowShape};
use batchloom::ranks::Uneven;
use batchloom::{Loader, Plan, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset};
use proptest::prelude::*;

use crate::errors::refused;
use crate::map::contents;

const SAMPLES: u64 = 41;

/// A kind of data.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Rows,
    Sequences,
    Windows,
    Tokens,
    OnDemand,
}

/// A loader, but for its rank.
#[derive(Debug, Clone)]
struct Options {
    kind: Kind,
    rule: Rule,
    shuffle: bool,
    uneven: Uneven,
    block_bytes: usize,
}

fn options() -> impl Strategy<Value = Options> {
    let sized: [Rule; 3] = [
        LengthBuckets::new(4).unwrap().into(),
        TokenBudget::new(24).unwrap().into(),
        Packing::new(20).unwrap().into(),
    ];
    let equal = prop_oneof![Just(Kind::Rows), Just(Kind::Windows), Just(Kind::Tokens), Just(Kind::OnDemand)];
    let data = prop_oneof![
        (equal, Just(batchloom::batching::FixedSize::new(4).unwrap().into())),
        (Just(Kind::Sequences), prop::sample::select(sized.to_vec())),
    ];
    let uneven = prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)];
    (data, any::<bool>(), uneven, prop_oneof![Just(1), Just(300), Just(2 << 20)]).prop_map(
        |((kind, rule), shuffle, uneven, block_bytes)| Options { kind, rule, shuffle, uneven, block_bytes },
    )
}

fn dataset(kind: Kind) -> Dataset {
    let numbers: Vec<i64> = (0..SAMPLES.cast_signed()).collect();
    match kind {
        Kind::Rows => TensorDataset::new([("x", numbers)]).unwrap().into(),
        Kind::Sequences => {
            let lengths = (0..SAMPLES.cast_signed()).map(|sample| 1 + sample * 5 % 9);
            let offsets: Vec<i64> = std::iter::once(0)
                .chain(lengths.scan(0, |end, length| {
                    *end += length;
                    Some(*end)
                }))
                .collect();
            let values = Tensor::from((0..*offsets.last().unwrap()).collect::<Vec<_>>());
            let ids = Sequences::new("ids", values, &offsets).unwrap();
            SequenceDataset::new().variable("ids", ids).build().unwrap().into()
        }
        Kind::Windows => {
            let series = Tensor::from((0..SAMPLES as usize + 5).map(|step| step as f32).collect::<Vec<_>>());
            let windows = WindowDataset::new(&[0, SAMPLES as usize + 5], WindowShape::new(6)).unwrap();
            windows.input("x", series).unwrap().into()
        }
        Kind::Tokens => {
            let tokens = Tensor::from((0..SAMPLES as u16 * 3 + 1).collect::<Vec<_>>());
            let documents = Tensor::from(vec![0_i64, 10, 45, SAMPLES.cast_signed() * 3 + 1]);
            TokenDataset::new(tokens, 3).unwrap().documents(&documents).unwrap().into()
        }
        Kind::OnDemand => {
            let read = |sample: u64, _: &mut SampleRng| {
                Ok(Sample::new([("x", Tensor::from_vec(vec![sample, sample * sample], &[2])?)]))
            };
            MapDataset::new((SAMPLES, read)).build().unwrap().into()
        }
    }
}

impl Options {
    fn loader(&self, rank: u32, world_size: u32) -> Loader {
        let is_stream = matches!(self.kind, Kind::Tokens);
        let builder = Loader::builder(dataset(self.kind)).rule(self.rule.clone()).shuffle(self.shuffle);
        let builder =
            builder.uneven(self.uneven).rank(rank, world_size).block_bytes(self.block_bytes).seed(5);
        builder.shuffle_documents(is_stream && self.shuffle).num_threads(2).build().unwrap()
    }
}

/// The contents of a batch.
type Contents = Vec<(String, Vec<usize>, Vec<u8>)>;

/// The batches of the next epoch.
fn seen(loader: &Loader) -> Vec<Contents> {
    loader.iter().map(|batch| contents(&batch.unwrap())).collect()
}

/// The batches of a plan, formed one by one, the last first.
fn formed(loader: &Loader, plan: &Plan, rank: u32) -> Vec<Contents> {
    let form = |step| contents(&loader.form(plan, rank, step).unwrap());
    let mut batches: Vec<_> = (0..plan.steps_of(rank)).rev().map(form).collect();
    batches.reverse();
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // law: L2
    #[test]
    fn a_batch_is_formed_again_bit_for_bit(options in options(), world_size in 1_u32..4, seed: u64) {
        let rank = (seed % u64::from(world_size)) as u32;
        let loader = options.loader(rank, world_size);
        let epochs = [seen(&loader), seen(&loader)];
        let mut batches = loader.iter();
        batches.next().unwrap().unwrap();
        let state = loader.state();
        for (epoch, expected) in (0..).zip(&epochs) {
            prop_assert_eq!(&formed(&loader, &loader.plan(epoch), rank), expected);
        }
        // Any rank, and another seed.
        let other = options.loader((rank + 1) % world_size, world_size);
        prop_assert_eq!(seen(&other), formed(&loader, &loader.plan(0), (rank + 1) % world_size));
        other.set_seed(6);
        let plan = other.upcoming();
        prop_assert_eq!(seen(&other), formed(&loader, &plan, (rank + 1) % world_size));
        // The run stays where it is, and its iteration goes on.
        prop_assert_eq!(loader.state(), state);
        prop_assert_eq!(batches.len() as u64, loader.remaining());
        prop_assert!(batches.all(|batch| batch.is_ok()));
    }

    /// An epoch that two numbers of ranks took in turn.
    // law: L5
    #[test]
    fn steps_of_other_worlds_are_formed_again(options in options(), worlds in prop::array::uniform2(1_u32..4), stop in 0_usize..6) {
        let before: Vec<Loader> = (0..worlds[0]).map(|rank| options.loader(rank, worlds[0])).collect();
        let stop = stop.min(before[0].len() as usize - 1);
        let taken: Vec<Vec<Contents>> =
            before.iter().map(|loader| loader.iter().take(stop).map(|batch| contents(&batch.unwrap())).collect()).collect();
        for rank in 0..worlds[1] {
            let loader = options.loader(rank, worlds[1]);
            loader.load(&before[0].state()).unwrap();
            let rest = loader.upcoming();
            let expected = seen(&loader);
            prop_assert_eq!(&formed(&loader, &rest, rank), &expected);
            if rest.epoch() != 0 {
                continue; // nothing was left for these ranks
            }
            let parts = rest.by_world();
            prop_assert_eq!(parts.iter().map(|(_, steps)| *steps).sum::<u64>(), stop as u64 + rest.steps());
            for (part, steps) in &parts[..parts.len() - 1] {
                prop_assert_eq!((part.world_size(), *steps), (worlds[0], stop as u64));
                for (earlier, batches) in (0..).zip(&taken) {
                    let again: Vec<Contents> =
                        (0..*steps).map(|step| contents(&loader.form(part, earlier, step).unwrap())).collect();
                    prop_assert_eq!(&again, batches);
                }
            }
        }
    }
}

#[test]
fn plans_ranks_and_steps_that_the_loader_has_not_are_refused() {
    let loader = Loader::builder(dataset(Kind::Rows)).batch_size(4).build().unwrap();
    let other = Loader::builder(dataset(Kind::Rows)).batch_size(5).build().unwrap();
    let plan = loader.plan(0);
    let foreign = other.plan(0);
    let prints = [plan.fingerprint(), foreign.fingerprint()];
    refused(loader.form(&foreign, 0, 0), batchloom::Kind::Argument, &prints.each_ref().map(String::as_str));
    refused(loader.form(&plan, 1, 0), batchloom::Kind::Argument, &["rank is 1", "world of 1"]);
    refused(loader.form(&plan, 0, 11), batchloom::Kind::Range, &["step 11", "step < 11"]);
    refused(
        loader.form(&plan, 0, u64::MAX),
        batchloom::Kind::Range,
        &["step 18446744073709551615", "step < 11"],
    );
    assert_eq!(loader.state(), loader.plan(0).state(0));
}

#[test]
fn samples_on_demand_are_read_again_and_no_others() {
    let read = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let reads = std::sync::Arc::clone(&read);
    let source = move |sample: u64, _: &mut SampleRng| {
        reads.lock().unwrap().push(sample);
        Ok(Sample::new([("x", Tensor::from_vec(vec![sample], &[])?)]))
    };
    let dataset = MapDataset::new((20, source)).build().unwrap();
    let loader = Loader::builder(dataset).batch_size(4).shuffle(true).build().unwrap();
    let plan = loader.plan(3);
    loader.form(&plan, 0, 2).unwrap();
    let mut samples = read.lock().unwrap().clone();
    let mut expected = plan.indices(2, 0).unwrap();
    samples.sort_unstable();
    expected.sort_unstable();
    assert_eq!(samples, expected);
}
