//! Samples made on demand: the batches of arrays of the same samples, whatever the threads and delays; nothing read too
//! early, too late or twice; failures in their place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use batchloom::batching::{CostModel, CostOptimal, FixedSize, LengthBuckets, Packing, Rule, TokenBudget};
use batchloom::dataset::{Dataset, MapDataset, OnError, Sample, Sequences, Source, SourceError};
use batchloom::error::ReadError;
use batchloom::loader::{Batch, Crop, Keep, LoaderBuilder, PadSide, PadSlot, Slot};
use batchloom::ranks::Uneven;
use batchloom::{Error, Kind, Loader, SequenceDataset, Tensor, TensorDataset};
use proptest::prelude::*;
use rand::Rng;

use crate::errors::refused;

/// Rows of numbers that follow from the sample, read after a delay, and the samples that were read.
#[derive(Clone, Default)]
struct Rows {
    samples: u64,
    lengths: Option<Vec<u32>>,
    delays: bool,
    fails: Option<u64>,
    read: Arc<Mutex<Vec<u64>>>,
}

impl Source for Rows {
    fn len(&self) -> u64 {
        self.samples
    }

    fn size(&self, sample: u64) -> Option<u32> {
        Some(self.lengths.as_ref()?[sample as usize])
    }

    fn read(&self, sample: u64, rng: &mut rand::rngs::ChaCha8Rng) -> Result<Sample, SourceError> {
        self.read.lock().unwrap().push(sample);
        if self.delays {
            thread::sleep(Duration::from_micros(u64::from(rng.next_u32() % 300)));
        }
        if self.fails == Some(sample) {
            return Err(format!("no sample {sample}").into());
        }
        let length = self.lengths.as_ref().map_or(3, |lengths| lengths[sample as usize] as usize);
        let x: Vec<u32> = (0..length as u32 * 2).map(|place| sample as u32 * 100 + place).collect();
        Ok(Sample::new([
            ("x", Tensor::from_vec(x, &[length, 2])?),
            ("y", Tensor::from_vec(vec![sample as i64], &[])?),
        ]))
    }
}

impl Rows {
    /// The same samples, in arrays.
    fn stored(&self) -> Dataset {
        let y = Tensor::from_vec((0..self.samples as i64).collect(), &[self.samples as usize]).unwrap();
        let length = |sample: u64| self.lengths.as_ref().map_or(3, |lengths| lengths[sample as usize]);
        let value = |sample: u64| (0..length(sample) * 2).map(move |place| sample as u32 * 100 + place);
        let x: Vec<u32> = (0..self.samples).flat_map(value).collect();
        let rows = x.len() / 2;
        if self.lengths.is_none() {
            let x = Tensor::from_vec(x, &[self.samples as usize, 3, 2]).unwrap();
            return TensorDataset::new([("x", x), ("y", y)]).unwrap().into();
        }
        let mut offsets = vec![0];
        (0..self.samples)
            .for_each(|sample| offsets.push(offsets[sample as usize] + i64::from(length(sample))));
        let x = Sequences::new("x", Tensor::from_vec(x, &[rows, 2]).unwrap(), &offsets).unwrap();
        SequenceDataset::new().variable("x", x).fixed("y", y).build().unwrap().into()
    }
}

/// The names and contents of a batch.
pub(crate) fn contents(batch: &Batch) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = |tensor: &Tensor| {
        let start = tensor.layout().offset();
        tensor.bytes()[start..start + tensor.layout().elements() * tensor.dtype().size()].to_vec()
    };
    let fields = batch.names().iter().zip(batch.fields());
    fields.map(|(name, field)| (name.clone(), field.shape().to_vec(), bytes(field))).collect()
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (1_u64..6).prop_map(|size| FixedSize::new(size).unwrap().into()),
        (1_u64..6).prop_map(|size| LengthBuckets::new(size).unwrap().into()),
        (9_u64..40).prop_map(|tokens| TokenBudget::new(tokens).unwrap().into()),
        (9_u64..40).prop_map(|tokens| Packing::new(tokens).unwrap().into()),
        (9_u64..40).prop_map(|tokens| CostOptimal::new(CostModel::new(3.0, 1.0, 0.1).unwrap())
            .max_tokens(tokens)
            .unwrap()
            .into()),
    ]
}

fn build(
    dataset: impl Into<Dataset>,
    rule: &Rule,
    seed: u64,
    uneven: Uneven,
    ranks: (u32, u32),
) -> LoaderBuilder {
    let loader = Loader::builder(dataset).rule(rule.clone()).shuffle(true).seed(seed);
    loader.uneven(uneven).rank(ranks.0, ranks.1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Lazy samples make the batches of the same samples in arrays, and a resumed rest is the rest.
    #[test]
    fn lazy_batches_are_those_of_arrays(
        lengths in prop::option::of(prop::collection::vec(0_u32..9, 1..40)),
        samples in 1_u64..40,
        rule in rules(),
        seed in any::<u64>(),
        threads in 1_usize..8,
        prefetch in 0_usize..4,
        uneven in prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)],
        world_size in 1_u32..4,
        cut in 0_usize..9,
    ) {
        let samples = lengths.as_ref().map_or(samples, |lengths| lengths.len() as u64);
        let rows = Rows { samples, lengths, delays: true, ..Rows::default() };
        for rank in 0..world_size {
            let stored = build(rows.stored(), &rule, seed, uneven, (rank, world_size)).build();
            let lazy = MapDataset::new(rows.clone()).build().unwrap();
            let lazy = build(lazy, &rule, seed, uneven, (rank, world_size)).num_threads(threads).prefetch(prefetch).build();
            let (stored, lazy) = match (stored, lazy) {
                (Ok(stored), Ok(lazy)) => (stored, lazy),
                (Err(expected), Err(error)) => { prop_assert_eq!(expected, error); continue; }
                (stored, lazy) => panic!("{stored:?}, {lazy:?}"),
            };
            let (Ok(expected), Ok(batches)) = (
                stored.iter().map(|batch| Ok(contents(&batch?))).collect::<Result<Vec<_>, Error>>(),
                lazy.iter().map(|batch| Ok(contents(&batch?))).collect::<Result<Vec<_>, Error>>(),
            ) else { continue };
            prop_assert_eq!(&expected, &batches);
            // The next epoch, cut and gone on with by another loader.
            let next: Vec<_> = stored.iter().map(|batch| contents(&batch.unwrap())).collect();
            let mut taken: Vec<_> = lazy.iter().take(cut).map(|batch| contents(&batch.unwrap())).collect();
            if taken.len() < next.len() {
                let again = MapDataset::new(rows.clone()).build().unwrap();
                let again = build(again, &rule, seed, uneven, (rank, world_size)).build().unwrap();
                again.load(&lazy.state()).unwrap();
                taken.extend(again.iter().map(|batch| contents(&batch.unwrap())));
            }
            prop_assert_eq!(&next, &taken);
        }
    }

    /// A failure comes in the place of its batch, after all batches before it, with any number of threads.
    #[test]
    fn failures_come_in_their_place(
        samples in 1_u64..60, batch_size in 1_u64..8, seed in any::<u64>(), fails in any::<prop::sample::Index>(), threads in 1_usize..6,
    ) {
        let fails = fails.index(samples as usize) as u64;
        let rows = Rows { samples, delays: true, fails: Some(fails), ..Rows::default() };
        let dataset = MapDataset::new(rows).build().unwrap();
        let loader = Loader::builder(dataset).batch_size(batch_size).shuffle(true).seed(seed).num_threads(threads).build().unwrap();
        let plan = loader.plan(0);
        let bad = (0..plan.steps()).find(|&step| plan.indices(step, 0).unwrap().contains(&fails)).unwrap();
        let mut batches = loader.iter();
        for _ in 0..bad {
            prop_assert!(batches.next().unwrap().is_ok());
        }
        match batches.next().unwrap() {
            Err(error) => {
                let Some(ReadError::Failed { sample, cause }) = error.reading() else { panic!("{error:?}") };
                prop_assert_eq!((*sample, cause.to_string()), (fails, format!("no sample {fails}")));
                prop_assert_eq!((error.kind(), error.sample()), (Kind::Data, Some(fails)));
                let source = std::error::Error::source(&error).map(ToString::to_string);
                prop_assert_eq!(source, Some(format!("no sample {fails}")));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        prop_assert!(batches.next().is_none());
        prop_assert_eq!(loader.state().batches, bad);
    }

    /// A skipped sample is zeros with a weight of 0; all others are as they were, and the failure is told.
    #[test]
    fn skipped_samples_leave_a_hole(
        lengths in prop::option::of(prop::collection::vec(1_u32..9, 2..40)), rule in rules(), seed in any::<u64>(),
        fails in any::<prop::sample::Index>(), uneven in prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask)], world_size in 1_u32..3,
    ) {
        let samples = lengths.as_ref().map_or(30, |lengths| lengths.len() as u64);
        let fails = fails.index(samples as usize) as u64;
        let rows = Rows { samples, lengths, ..Rows::default() };
        let whole = MapDataset::new(rows.clone()).build().unwrap();
        let holed = MapDataset::new(Rows { fails: Some(fails), ..rows }).on_error(OnError::Skip).build().unwrap();
        let whole = build(whole, &rule, seed, uneven, (0, world_size)).build();
        prop_assume!(whole.is_ok());
        let (whole, holed) = (whole.unwrap(), build(holed, &rule, seed, uneven, (0, world_size)).build().unwrap());
        let plan = whole.plan(0);
        let mut blocks = holed.blocks();
        for (step, batch) in whole.iter().enumerate() {
            let (batch, members) = (batch.unwrap(), plan.indices(step as u64, 0).unwrap());
            let block = match blocks.next().unwrap() {
                Ok(block) => block,
                Err(error) if matches!(error.reading(), Some(ReadError::NoneRead { .. })) => {
                    prop_assert!(members.iter().all(|&sample| sample == fails));
                    return Ok(());
                }
                Err(error) => panic!("{error}"),
            };
            let with_holes = block.batches().next().unwrap();
            let holes: Vec<bool> = members.iter().map(|&sample| sample == fails).collect();
            let weights = with_holes.field("weight").unwrap().as_slice::<f32>().unwrap();
            let y = with_holes.field("y").unwrap().as_slice::<i64>().unwrap();
            let expected = batch.field("weight").map(|weight| weight.as_slice::<f32>().unwrap().to_vec());
            for (member, &hole) in holes.iter().enumerate() {
                let whole = expected.as_ref().map_or(1.0, |weights| weights[member]);
                prop_assert_eq!(weights[member], if hole { 0.0 } else { whole });
                prop_assert_eq!(y[member], if hole { 0 } else { members[member] as i64 });
            }
            prop_assert_eq!(block.skipped().len(), holes.iter().filter(|&&hole| hole).count());
            let x = |batch: &Batch| batch.field("x").unwrap().as_slice::<u32>().unwrap().to_vec();
            let (before, after) = (x(&batch), x(&with_holes));
            prop_assert_eq!(before.len(), after.len());
            let kept = |value: u32| u64::from(value / 100) != fails;
            let holed = before.iter().map(|&value| if kept(value) { value } else { 0 }).collect::<Vec<_>>();
            prop_assert_eq!(holed, after);
        }
    }

    /// A slot holds the part of a sample that the definition names, element by element.
    #[test]
    fn slots_by_definition(
        shapes in prop::collection::vec((0_usize..6, 0_usize..5), 1..6), to in (1_usize..6, 1_usize..5),
        keep in prop_oneof![Just(Keep::Start), Just(Keep::Center), Just(Keep::End)],
        side in prop_oneof![Just(PadSide::Left), Just(PadSide::Right)],
        multiple_of in (1_usize..4, 1_usize..4), crops in any::<bool>(), transposed in any::<bool>(),
    ) {
        let read = {
            let shapes = shapes.clone();
            move |sample: u64, _: &mut _| {
                let (rows, columns) = shapes[sample as usize];
                let value = |row: usize, column: usize| (sample as usize * 100 + row * 10 + column + 1) as u16;
                let (mut values, strides) = (vec![0; rows * columns], if transposed { [2, 2 * rows as isize] } else { [2 * columns as isize, 2] });
                for row in 0..rows {
                    for column in 0..columns {
                        values[if transposed { column * rows + row } else { row * columns + column }] = value(row, column);
                    }
                }
                let bytes: Vec<u8> = values.iter().flat_map(|value: &u16| value.to_ne_bytes()).collect();
                let x = Tensor::new(bytes.into(), batchloom::DType::U16, &[rows, columns], &strides, 0)?;
                Ok(Sample::new([("x", x)]))
            }
        };
        let grains = vec![multiple_of.0, multiple_of.1];
        let slot = match crops {
            true => Slot::Crop(Crop { shape: vec![to.0, to.1], keep }),
            false => Slot::Pad(PadSlot { to: Vec::new(), multiple_of: grains.clone(), side }),
        };
        let most = |of: fn(&(usize, usize)) -> usize, grain: usize| shapes.iter().map(of).max().unwrap().next_multiple_of(grain);
        let (height, width) = if crops { to } else { (most(|shape| shape.0, grains[0]), most(|shape| shape.1, grains[1])) };
        let loader = Loader::builder(MapDataset::new((shapes.len() as u64, read)).build().unwrap());
        let loader = loader.collate("x", slot).pad_value("x", &7_u16.to_ne_bytes()).build().unwrap();
        let batch = loader.iter().next().unwrap().unwrap();
        prop_assert_eq!(batch.fields()[0].shape(), [shapes.len(), height, width]);
        let elements = batch.fields()[0].as_slice::<u16>().unwrap();
        let keep = if crops { keep } else if side == PadSide::Left { Keep::End } else { Keep::Start };
        // The place of a slot's element in the sample, along one dimension.
        let place = |at: usize, slot: usize, sample: usize| {
            let shift = |spare: usize| match keep { Keep::Start | Keep::Random => 0, Keep::Center => spare / 2, Keep::End => spare };
            let (into, from) = (shift(slot.saturating_sub(sample)), shift(sample.saturating_sub(slot)));
            at.checked_sub(into).map(|at| at + from).filter(|&at| at < sample)
        };
        for (sample, &(rows, columns)) in shapes.iter().enumerate() {
            for row in 0..height {
                for column in 0..width {
                    let expected = match (place(row, height, rows), place(column, width, columns)) {
                        (Some(row), Some(column)) => (sample * 100 + row * 10 + column + 1) as u16,
                        _ => 7,
                    };
                    prop_assert_eq!(elements[(sample * height + row) * width + column], expected);
                }
            }
        }
    }
}

/// Samples are read once the first batch is asked for, at most `prefetch` batches ahead, and no more after the iterator
/// is gone.
// law: L12
#[test]
fn samples_are_read_when_their_block_is_formed() {
    for threads in [1, 3] {
        let rows = Rows { samples: 100, ..Rows::default() };
        let read = Arc::clone(&rows.read);
        let dataset = MapDataset::new(rows).build().unwrap();
        let loader = Loader::builder(dataset).batch_size(5).num_threads(threads).prefetch(2).build().unwrap();
        let mut batches = loader.iter();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(read.lock().unwrap().len(), 0);
        for step in 1..=10 {
            let _batch = batches.next().unwrap().unwrap();
            thread::sleep(Duration::from_millis(5));
            let samples_read = read.lock().unwrap().len();
            assert!(samples_read <= 5 * (step + 2), "{samples_read} samples read at step {step}");
            assert_eq!(samples_read, 5 * (step + 2), "two batches are ready");
        }
        drop(batches);
        let after = read.lock().unwrap().len();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(read.lock().unwrap().len(), after);
        // What was read and not taken is read again.
        let rest = loader.iter().count();
        assert_eq!(rest, 20);
        let _whole: Vec<_> = loader.iter().map(|batch| batch.unwrap()).collect();
        assert_eq!(read.lock().unwrap().len(), after + 200);
    }
}

/// Without `prefetch`, the samples of a batch are read when it is asked for, and those of no other batch.
// law: L12
#[test]
fn samples_are_read_when_their_batch_is_asked_for() {
    for threads in [1, 3] {
        let rows = Rows { samples: 100, ..Rows::default() };
        let read = Arc::clone(&rows.read);
        let dataset = MapDataset::new(rows).build().unwrap();
        let loader = Loader::builder(dataset).batch_size(5).num_threads(threads).prefetch(0).build().unwrap();
        let mut batches = loader.iter();
        for step in 1..=20 {
            let _batch = batches.next().unwrap().unwrap();
            thread::sleep(Duration::from_millis(3));
            assert_eq!(read.lock().unwrap().len(), 5 * step);
        }
        assert!(batches.next().is_none());
    }
}

/// The samples that were read, once there are as many as expected, or after seconds; and a while later, so that more show.
fn settled(read: &Mutex<Vec<u64>>, expected: usize) -> usize {
    for _ in 0..1000 {
        if read.lock().unwrap().len() >= expected {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(50));
    read.lock().unwrap().len()
}

/// A consumer that waits for a batch has none in use, so beside that one `prefetch` others are read.
#[test]
fn the_batch_after_the_awaited_one_is_read() {
    for prefetch in [1, 2] {
        let rows = Rows { samples: 100, ..Rows::default() };
        let read = Arc::clone(&rows.read);
        let (open, gate) = mpsc::channel::<()>();
        let dataset = MapDataset::new(Gated { rows, gate: Mutex::new(gate) }).build().unwrap();
        let builder = Loader::builder(dataset).batch_size(5).shuffle(false).num_threads(20);
        let mut batches = builder.prefetch(prefetch).build().unwrap().iter();
        let _taken = [batches.next().unwrap().unwrap(), batches.next().unwrap().unwrap()];
        assert_eq!(
            settled(&read, 5 * (2 + prefetch)),
            5 * (2 + prefetch),
            "of those ahead of the batch in use"
        );
        thread::scope(|scope| {
            let awaited = scope.spawn(|| batches.next().unwrap().unwrap());
            let samples_read = settled(&read, 5 * (3 + prefetch));
            drop(open);
            awaited.join().unwrap();
            assert_eq!(samples_read, 5 * (3 + prefetch), "of those ahead of the batch that is awaited");
        });
    }
}

/// Rows of which those from number 10 on are read once a gate is open.
struct Gated {
    rows: Rows,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Source for Gated {
    fn len(&self) -> u64 {
        self.rows.len()
    }

    fn read(&self, sample: u64, rng: &mut rand::rngs::ChaCha8Rng) -> Result<Sample, SourceError> {
        let row = self.rows.read(sample, rng);
        if sample >= 10 {
            // An error says that the gate was opened, by dropping its other side.
            let _opened = self.gate.lock().unwrap().recv();
        }
        row
    }
}

/// Augmentation depends on the seed, the epoch and the sample, and on nothing else.
#[test]
fn random_numbers_are_those_of_the_sample() {
    let draw = |sample: u64, rng: &mut rand::rngs::ChaCha8Rng| {
        Ok(Sample::new([("x", Tensor::from_vec(vec![sample, rng.next_u64()], &[2])?)]))
    };
    let drawn = |seed: u64, epochs: u64, threads: usize, batch_size: u64| {
        let dataset = MapDataset::new((50, draw)).build().unwrap();
        let loader = Loader::builder(dataset)
            .batch_size(batch_size)
            .shuffle(true)
            .seed(seed)
            .num_threads(threads)
            .build()
            .unwrap();
        let mut pairs = Vec::new();
        for epoch in 0..epochs {
            pairs = loader
                .iter()
                .flat_map(|batch| batch.unwrap().fields()[0].as_slice::<u64>().unwrap().to_vec())
                .collect::<Vec<_>>()
                .chunks(2)
                .map(|pair| (epoch, pair[0], pair[1]))
                .collect();
            pairs.sort_unstable();
        }
        pairs
    };
    assert_eq!(drawn(3, 2, 1, 7), drawn(3, 2, 5, 64));
    assert_ne!(drawn(3, 1, 1, 7), drawn(4, 1, 1, 7));
    let numbers =
        |pairs: Vec<(u64, u64, u64)>| pairs.into_iter().map(|(_, _, number)| number).collect::<Vec<_>>();
    assert_ne!(numbers(drawn(3, 1, 1, 7)), numbers(drawn(3, 2, 1, 7)));
}

/// Samples that do not fit the first are errors that name both, in every order of threads.
#[test]
fn samples_of_other_layouts_are_refused() {
    let scalar = |value: f32| Tensor::from_vec(vec![value], &[]).unwrap();
    let odd = |sample: u64, _: &mut _| -> Result<Sample, SourceError> {
        Ok(match sample {
            17 => Sample::new([("x", Tensor::from_vec(vec![1.0_f32, 2.0], &[2])?)]),
            _ => Sample::new([("x", Tensor::from_vec(vec![1.0_f32], &[1])?)]),
        })
    };
    let renamed = move |sample: u64, _: &mut _| -> Result<Sample, SourceError> {
        Ok(Sample::new([(if sample == 17 { "y" } else { "x" }, scalar(1.0))]))
    };
    let failure = |loader: Loader| loader.iter().find_map(Result::err).unwrap();
    for threads in [1, 4] {
        let loader =
            Loader::builder(MapDataset::new((40, odd)).build().unwrap()).batch_size(4).num_threads(threads);
        let error = failure(loader.build().unwrap());
        let text =
            "field x of sample 17 is float32[2]; in sample 0 it was float32[1]: expected one type and shape";
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!(error.kind(), Kind::Data);
        let loader = Loader::builder(MapDataset::new((40, renamed)).build().unwrap())
            .batch_size(4)
            .num_threads(threads);
        let error = failure(loader.build().unwrap());
        assert!(error.to_string().starts_with("sample 17 is (y); sample 0 was (x)"), "{error}");
    }
}

/// Sizes are the lengths of variable fields.
#[test]
fn sizes_have_to_be_lengths() {
    let read = |_: u64, _: &mut _| Ok(Sample::new([("x", Tensor::from_vec(vec![1_u8; 3], &[3])?)]));
    let dataset = MapDataset::new((4, read)).sizes(vec![3, 3, 4, 3]).build().unwrap();
    let loader = Loader::builder(dataset.clone()).batch_size(4).build().unwrap();
    let error = loader.iter().find_map(Result::err).unwrap();
    assert!(
        error
            .to_string()
            .starts_with("field x of sample 2 has the shape [3], but the size of the sample is 4")
    );
    let few = MapDataset::new((4, read)).sizes(vec![3]).build();
    refused(few, Kind::Data, &["1 sizes for 4 samples"]);
    // As numbers to sort by, they need not be.
    let loader = Loader::builder(dataset).batch_size(4).collate("x", Slot::Same).build().unwrap();
    assert_eq!(loader.iter().next().unwrap().unwrap().names(), ["x", "index"]);
}

/// A dataset reads a sample for itself, and an option that names no field is an error.
#[test]
fn single_samples_and_unknown_fields() {
    let counter = Arc::new(AtomicU64::new(0));
    let read = {
        let counter = Arc::clone(&counter);
        move |sample: u64, _: &mut _| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Sample::new([("x", Tensor::from_vec(vec![sample, 5], &[2])?)]))
        }
    };
    let dataset = Dataset::from(MapDataset::new((4, read)).build().unwrap());
    assert_eq!(dataset.sample(3).unwrap()[0].1.as_slice::<u64>(), Some(&[3, 5][..]));
    assert_eq!(counter.load(Ordering::Relaxed), 1);
    let loader = Loader::builder(dataset).collate("y", Slot::Same).build().unwrap();
    let error = loader.iter().next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "fields names the field y, which samples do not have: they have x");
}
