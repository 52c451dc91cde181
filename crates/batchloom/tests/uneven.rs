//! Uneven ends: all batches of a step are equally large where a rule counts samples, every sample counts once where
//! fillers are masked, and labels are counted exactly. Partition (L1), equal (L3), alignment (L9).

use batchloom::batching::{
    FixedSize, LabelCounts, Labels, LengthBuckets, PackedOversize, Packing, Rule, Sizes, TokenBudget,
};
use batchloom::dataset::{Dataset, Sequences};
use batchloom::loader::Batch;
use batchloom::plan::{Parts, Step};
use batchloom::ranks::Uneven;
use batchloom::{Error, Kind, Loader, Plan, SequenceDataset, Tensor, TensorDataset, TokenDataset};
use proptest::prelude::*;

use crate::errors::refused;
use crate::rules::{count_labels, rule, seen, sizes};

/// A plan of samples of these sizes.
fn plan(sizes: &[u32], rule: &Rule, uneven: Uneven, world_size: u32, seed: u64) -> Result<Plan, Error> {
    let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.to_vec())).rule(rule.clone());
    plan.uneven(uneven).world_size(world_size).shuffle(true).seed(seed).labels(Labels::Next).build()
}

fn steps(plan: &Plan) -> Vec<Step> {
    (0..plan.steps()).map(|step| plan.step(step).unwrap()).collect()
}

/// The first `count` parts of a batch.
fn first(parts: &Parts, count: u64) -> Vec<(u64, u32, u32)> {
    let all = parts.samples.iter().zip(&parts.starts).zip(&parts.sizes);
    all.map(|((&sample, &start), &size)| (sample, start, size)).take(count as usize).collect()
}

proptest! {
    /// Ranks of a step have as many samples; what counts is what comes if ranks may end early; what fills up is of the
    /// step and comes last.
    // law: L1
    #[test]
    fn masked_steps_are_equal_and_count_every_sample_once(
        sizes in sizes(), rule in rule(), world_size in 1_u32..10, seed in any::<u64>(),
    ) {
        let Ok(masked) = plan(&sizes, &rule, Uneven::Mask, world_size, seed) else { return Ok(()) };
        let short = plan(&sizes, &rule, Uneven::Short, world_size, seed).unwrap();
        prop_assert_eq!(masked.steps(), short.steps());
        let equal = matches!(rule, Rule::FixedSize(_) | Rule::LengthBuckets(_));
        for ((step, all), expected) in steps(&masked).iter().zip(seen(&masked)).zip(seen(&short)) {
            prop_assert_eq!(step.batches.len(), world_size as usize);
            let largest = expected.iter().map(|parts| parts.samples.len()).max().unwrap();
            for (rank, (parts, &count)) in all.iter().zip(&step.counts).enumerate() {
                let own = expected.get(rank).map_or(Vec::new(), |parts| first(parts, u64::MAX));
                prop_assert_eq!(first(parts, count), own);
                prop_assert!(!equal || parts.samples.len() == largest);
                prop_assert!(equal || count == 0 || count == parts.samples.len() as u64);
                prop_assert!(parts.samples.iter().all(|sample| expected.iter().any(|it| it.samples.contains(sample))));
            }
            prop_assert_eq!(step.samples, step.counts.iter().sum::<u64>());
            let labels = expected.iter().flat_map(|parts| count_labels(&rule, &sizes, parts));
            prop_assert_eq!(step.labels, Some(labels.sum::<u64>()));
        }
        let (one, other) = (masked.stats(), short.stats());
        prop_assert_eq!((one.real, one.repeated, one.dropped), (other.real, 0, other.dropped));
    }

    /// A smaller batch repeats its own samples, and a repeated one is as large as the others.
    // law: L3
    #[test]
    fn padded_steps_are_equal_and_repeat_what_the_plan_says(
        sizes in sizes(), batch_size in 1_u64..20, buckets in any::<bool>(), world_size in 1_u32..10, seed in any::<u64>(),
    ) {
        let fixed = FixedSize::new(batch_size).unwrap();
        let rule = if buckets { LengthBuckets::new(batch_size).unwrap().pool(2).unwrap().into() } else { fixed.into() };
        let padded = plan(&sizes, &rule, Uneven::Pad, world_size, seed).unwrap();
        let short = plan(&sizes, &rule, Uneven::Short, world_size, seed).unwrap();
        let mut delivered = 0;
        for (step, expected) in steps(&padded).iter().zip(seen(&short)) {
            let largest = expected.iter().map(|parts| parts.samples.len()).max().unwrap();
            prop_assert_eq!(step.batches.len(), world_size as usize);
            prop_assert_eq!(&step.counts, &vec![largest as u64; world_size as usize]);
            for (rank, batch) in step.batches.iter().enumerate() {
                prop_assert_eq!(batch.len(), largest);
                let Some(own) = expected.get(rank) else { continue };
                let cycled: Vec<u64> = own.samples.iter().copied().cycle().take(largest).collect();
                prop_assert_eq!(batch, &cycled);
            }
            delivered += step.samples;
        }
        let stats = padded.stats();
        prop_assert_eq!(stats.samples + stats.repeated, delivered);
    }

    /// Labels are those that are not -100, of any part that a batch takes of a sample.
    // law: L3
    #[test]
    fn labels_are_a_recount(
        lengths in prop::collection::vec(0_usize..30, 1..60), rule in 0_usize..5, world_size in 1_u32..5,
        masked in any::<bool>(), seed in any::<u64>(), stride in 1_usize..7,
    ) {
        let split = |oversize| Packing::new(9).unwrap().oversize(oversize).into();
        let truncated = TokenBudget::new(12).unwrap().oversize(batchloom::batching::Oversize::Truncate).into();
        let buckets = LengthBuckets::new(3).unwrap().into();
        let rules: [Rule; 5] = [FixedSize::new(4).unwrap().into(), buckets, truncated,
                                split(PackedOversize::Split), split(PackedOversize::Truncate)];
        let rule = rules[rule].clone();
        let mut offsets = vec![0_i64];
        offsets.extend(lengths.iter().scan(0, |end, &length| { *end += length as i64; Some(*end) }));
        let total = *offsets.last().unwrap() as usize;
        let labels: Vec<i32> = (0..total).map(|place| if place % stride == 0 { -100 } else { place as i32 }).collect();
        let field = Sequences::new("tokens", Tensor::from_vec(labels, &[total]).unwrap(), &offsets).unwrap();
        let dataset = Dataset::from(SequenceDataset::new().variable("tokens", field).build().unwrap());
        let uneven = if masked { Uneven::Mask } else { Uneven::Pad };
        let counts = |next| dataset.count_labels("tokens", &rule, next).unwrap();
        for next in [false, true] {
            let mut step_labels: Vec<u64> = Vec::new();
            for rank in 0..world_size {
                let loader = Loader::builder(dataset.clone()).rule(rule.clone()).uneven(uneven).shuffle(true).seed(seed);
                let loader = loader.rank(rank, world_size).label_counts(counts(next));
                let loader = if next { loader.labels("tokens") } else { loader }.build().unwrap();
                let plan = loader.plan(0);
                for (step, batch) in (0..).zip(&loader) {
                    let labels = plan.step(step).unwrap().labels.unwrap();
                    let batch = batch.unwrap();
                    let own = used(&batch, if next { "labels" } else { "tokens" }, masked);
                    if rank == 0 { step_labels.push(labels) }
                    step_labels[step as usize] -= own;
                }
            }
            prop_assert!(step_labels.iter().all(|&left| left == 0), "{step_labels:?}");
        }
    }
}

/// The labels of a batch that a loss counts: not -100, nor of a filler.
fn used(batch: &Batch, field: &str, masked: bool) -> u64 {
    let all = batch.field(field).unwrap();
    let wide = all.as_slice::<i64>().map(<[i64]>::to_vec);
    let labels =
        wide.unwrap_or_else(|| all.as_slice::<i32>().unwrap().iter().map(|&it| i64::from(it)).collect());
    if labels.is_empty() {
        return 0;
    }
    let rows: Vec<&[i64]> = match batch.field("cu_seqlens") {
        Some(ends) => {
            let ends = ends.as_slice::<i32>().unwrap();
            ends.windows(2).map(|pair| &labels[pair[0] as usize..pair[1] as usize]).collect()
        }
        None => labels.chunks(labels.len() / batch.len()).collect(),
    };
    let lengths = batch.field("lengths").map(|lengths| lengths.as_slice::<i64>().unwrap().to_vec());
    let weights = batch.field("weight").map(|weights| weights.as_slice::<f32>().unwrap().to_vec());
    assert_eq!(weights.is_some(), masked);
    let mut sum = 0;
    for (row, labels) in rows.iter().enumerate() {
        let length = lengths.as_ref().map_or(labels.len(), |lengths| lengths[row] as usize);
        let counts = weights.as_ref().is_none_or(|weights| weights[row] > 0.0);
        sum += labels[..length].iter().filter(|&&label| counts && label != -100).count() as u64;
    }
    sum
}

/// A field of a batch as integers.
fn integers(batch: &Batch, field: &str) -> Vec<i64> {
    let field = batch.field(field).unwrap();
    let short = || field.as_slice::<i32>().unwrap().iter().map(|&it| i64::from(it)).collect();
    field.as_slice::<i64>().map_or_else(short, <[i64]>::to_vec)
}

fn weights(batch: &Batch) -> Vec<f32> {
    batch.field("weight").unwrap().as_slice::<f32>().unwrap().to_vec()
}

// law: L1
#[test]
fn marks_come_last_in_every_kind_of_batch_also_in_a_world_of_one() {
    let rows = |count: i64| Tensor::from_vec((0..count).collect(), &[count as usize]).unwrap();
    let sequences = Sequences::new("tokens", rows(12), &[0, 5, 7, 12]).unwrap();
    let datasets: [Dataset; 3] = [
        TensorDataset::new([("x", rows(3))]).unwrap().into(),
        SequenceDataset::new().variable("tokens", sequences).build().unwrap().into(),
        TokenDataset::new(rows(13), 4).unwrap().into(),
    ];
    for dataset in datasets {
        for world_size in 1..10 {
            let mut counted = Vec::new();
            for rank in 0..world_size {
                let loader = Loader::builder(dataset.clone()).batch_size(2).uneven(Uneven::Mask);
                let loader = loader.rank(rank, world_size).build().unwrap();
                assert_eq!(loader.names().last().map(String::as_str), Some("weight"));
                assert_eq!(loader.len(), 2_u64.div_ceil(u64::from(world_size)));
                for (step, batch) in loader.into_iter().enumerate() {
                    let batch = batch.unwrap();
                    assert!(world_size == 1 || batch.len() == 2, "step {step} of rank {rank}");
                    let index = integers(&batch, "index");
                    let expected = index.iter().map(|&sample| if sample < 0 { 0.0 } else { 1.0 });
                    assert_eq!(weights(&batch), expected.collect::<Vec<_>>());
                    if batch.names().contains(&"labels".to_owned()) {
                        let labels = integers(&batch, "labels");
                        let ignored = |row: &[i64]| row.iter().all(|&label| label == -100);
                        assert!(
                            labels.chunks(4).zip(&index).all(|(row, &sample)| ignored(row) == (sample < 0))
                        );
                    }
                    counted.extend(index.into_iter().filter(|&sample| sample >= 0));
                }
            }
            counted.sort_unstable();
            assert_eq!(counted, [0, 1, 2], "{world_size} ranks");
        }
    }
}

#[test]
fn a_field_with_the_name_of_a_mark_is_refused() {
    for name in ["index", "weight"] {
        let x = Tensor::from_vec(vec![0_i64; 4], &[4]).unwrap();
        let dataset = TensorDataset::new([(name, x)]).unwrap();
        let loader = |uneven| Loader::builder(dataset.clone()).uneven(uneven).build();
        let words = [&format!("field `{name}` has the name of a mark"), "uneven \"mask\""];
        refused(loader(Uneven::Mask), Kind::Argument, &words);
        assert!(loader(Uneven::Pad).is_ok());
    }
}

#[test]
fn counts_of_labels_that_do_not_fit_are_refused() {
    let plan = |rule: &Rule, counts| {
        Plan::builder(2).sizes(Sizes::new(vec![3, 9])).rule(rule.clone()).labels(Labels::from(counts)).build()
    };
    let labels = |step: &Plan| step.step(0).unwrap().labels;
    let whole = Rule::from(FixedSize::new(2).unwrap());
    assert_eq!(labels(&plan(&whole, LabelCounts::new(vec![2, 5])).unwrap()), Some(7));
    let many = plan(&whole, LabelCounts::new(vec![2, 5, 1]));
    refused(many, Kind::Argument, &["label_counts holds 3 numbers; expected 2"]);
    let split = Rule::from(Packing::new(4).unwrap().oversize(PackedOversize::Split));
    let of_whole = plan(&split, LabelCounts::new(vec![2, 5]));
    let words = ["label_counts", "sample 1 has 9 elements", "Packing takes 4 at a time"];
    refused(of_whole, Kind::Argument, &words);
    let of_pieces = plan(&whole, LabelCounts::of_pieces(vec![2, 5], 5));
    let words = ["label_counts", "each piece of 5 elements", "FixedSize takes whole samples"];
    refused(of_pieces, Kind::Argument, &words);
    let few = plan(&split, LabelCounts::of_pieces(vec![1, 1, 1], 4));
    refused(few, Kind::Argument, &["label_counts holds 3 numbers; expected 4"]);
    assert!(plan(&split, LabelCounts::of_pieces(vec![1, 1, 1, 1], 4)).is_ok());
    assert_eq!(Plan::builder(2).build().unwrap().step(0).unwrap().labels, None);
}
