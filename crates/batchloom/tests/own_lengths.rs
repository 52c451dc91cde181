//! Fields with lengths of their own: each padded to its own longest, with its own mask; budgets count what `SizeOf` says.

use batchloom::batching::{
    CostModel, CostOptimal, FixedSize, LengthBuckets, PackedOversize, Packing, Rule, TokenBudget,
};
use batchloom::dataset::{Sequences, SizeOf};
use batchloom::loader::{Batch, PadSide};
use batchloom::{Kind, Loader, SequenceDataset, Tensor};
use proptest::prelude::*;

use crate::errors::refused;

/// Sequences of consecutive numbers from `first` on.
fn sequences(name: &str, lengths: &[u32], first: i64) -> Sequences {
    let mut offsets = vec![0_i64];
    offsets.extend(lengths.iter().scan(0, |end, &length| {
        *end += i64::from(length);
        Some(*end)
    }));
    let total = offsets[lengths.len()];
    let values = Tensor::from_vec((first..first + total).collect(), &[total as usize]).unwrap();
    Sequences::new(name, values, &offsets).unwrap()
}

fn dataset(pairs: &[(u32, u32)], size_of: SizeOf) -> SequenceDataset {
    let (source, target): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    SequenceDataset::new()
        .variable("source", sequences("source", &source, 1))
        .variable("target", sequences("target", &target, 1000))
        .own_lengths(["target"])
        .size_of(size_of)
        .build()
        .unwrap()
}

fn values(batch: &Batch, field: &str) -> Vec<i64> {
    batch.field(field).unwrap().as_slice::<i64>().unwrap().to_vec()
}

fn booleans(batch: &Batch, field: &str) -> Vec<bool> {
    let mask = batch.field(field).unwrap();
    let offset = mask.layout().offset();
    mask.bytes()[offset..offset + mask.layout().elements()].iter().map(|&byte| byte == 1).collect()
}

/// Checks one field of a batch, whose mask and lengths have these names, against its samples one by one.
fn check(
    batch: &Batch,
    field: &str,
    names: [&str; 2],
    lengths: &[u32],
    first: i64,
    multiple_of: u32,
    side: PadSide,
) {
    let samples = values(batch, "index");
    let sizes: Vec<u32> = samples.iter().map(|&sample| lengths[sample as usize]).collect();
    let width = sizes.iter().copied().max().unwrap().next_multiple_of(multiple_of) as usize;
    let (mut expected, mut mask) = (Vec::new(), Vec::new());
    for (&sample, &size) in samples.iter().zip(&sizes) {
        let start = first + lengths[..sample as usize].iter().map(|&length| i64::from(length)).sum::<i64>();
        let data: Vec<i64> = (start..start + i64::from(size)).collect();
        let padding = vec![0; width - data.len()];
        let (before, after) = if side == PadSide::Left { (padding, vec![]) } else { (vec![], padding) };
        expected.extend([before.as_slice(), &data, &after].concat());
        mask.extend([vec![false; before.len()], vec![true; data.len()], vec![false; after.len()]].concat());
    }
    assert_eq!(batch.field(field).unwrap().shape(), [samples.len(), width]);
    assert_eq!(values(batch, field), expected);
    assert_eq!(booleans(batch, names[0]), mask);
    assert_eq!(values(batch, names[1]), sizes.iter().map(|&size| i64::from(size)).collect::<Vec<_>>());
}

proptest! {
    // law: L6
    #[test]
    fn each_field_is_padded_to_its_own_longest_within_the_budget(
        pairs in prop::collection::vec((0..20_u32, 0..20_u32), 1..60),
        size_of in prop::sample::select(vec![
            SizeOf::Max, SizeOf::Sum, SizeOf::Field("source".into()), SizeOf::Field("target".into()),
        ]),
        which in 0..4_usize,
        multiple_of in 1..4_u32,
        left in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let budget = 64_u64;
        let rule: Rule = match which {
            0 => FixedSize::new(5).unwrap().into(),
            1 => LengthBuckets::new(4).unwrap().into(),
            2 => TokenBudget::new(budget).unwrap().multiple_of(multiple_of).unwrap().into(),
            _ => CostOptimal::new(CostModel::new(10.0, 1.0, 0.01).unwrap()).max_tokens(budget).unwrap().into(),
        };
        let multiple_of = if which == 2 { multiple_of } else { 1 };
        let side = if left { PadSide::Left } else { PadSide::Right };
        let (source, target): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let built = Loader::builder(dataset(&pairs, size_of.clone())).rule(rule).shuffle(true).seed(seed).pad_side(side);
        let loader = built.num_threads(1).build().unwrap();
        let mut seen = Vec::new();
        for batch in &loader {
            let batch = batch.unwrap();
            check(&batch, "source", ["attention_mask", "lengths"], &source, 1, multiple_of, side);
            check(&batch, "target", ["target_mask", "target_lengths"], &target, 1000, multiple_of, side);
            let samples = values(&batch, "index");
            let size = |&sample: &i64| {
                let (source, target) = pairs[sample as usize];
                match &size_of {
                    SizeOf::Max => source.max(target),
                    SizeOf::Sum => source + target,
                    SizeOf::Field(name) if name == "source" => source,
                    _ => target,
                }
            };
            let longest = samples.iter().map(size).max().unwrap().next_multiple_of(multiple_of);
            let padded = u64::from(longest) * samples.len() as u64;
            prop_assert!(which < 2 || padded <= budget, "{padded} of {budget}");
            // What the size is of bounds what is in memory.
            for (field, bounded) in [("source", SizeOf::Field("source".into())), ("target", SizeOf::Field("target".into()))] {
                if which >= 2 && (size_of == SizeOf::Max || size_of == bounded) {
                    prop_assert!(values(&batch, field).len() as u64 <= budget);
                }
            }
            seen.extend(samples);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..pairs.len() as i64).collect::<Vec<_>>());
    }
}

#[test]
fn labels_follow_the_lengths_of_their_field() {
    let loader = Loader::builder(dataset(&[(1, 3), (2, 1)], SizeOf::Max))
        .batch_size(2)
        .labels("target")
        .build()
        .unwrap();
    let batch = loader.iter().next().unwrap().unwrap();
    assert_eq!(values(&batch, "labels"), [1001, 1002, -100, -100, -100, -100]);
    assert_eq!(loader.plan(0).step(0).unwrap().labels, Some(2));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let builder = |own: &[&str]| {
        let fields = SequenceDataset::new().variable("source", sequences("source", &[1, 2], 0));
        let fields = fields.variable("target", sequences("target", &[3, 1], 0));
        fields.own_lengths(own.iter().copied())
    };
    refused(builder(&["other"]).build(), Kind::Argument, &["own_lengths", "no variable field other"]);
    let twice = ["own_lengths", "target is given twice"];
    refused(builder(&["target", "target"]).build(), Kind::Argument, &twice);
    let all = ["no field varies in length", "source, target", "own_lengths"];
    refused(builder(&["source", "target"]).build(), Kind::Data, &all);
    refused(builder(&[]).build(), Kind::Data, &["extents", "field target", "field source"]);
    let unknown = builder(&["target"]).size_of(SizeOf::Field("other".into()));
    refused(unknown.build(), Kind::Argument, &["own_lengths", "of other", "source", "target"]);
    let table = Loader::builder(builder(&["target"]).build().unwrap()).index_table(true);
    refused(table.build(), Kind::Argument, &["own_lengths", "index tables"]);
    let split = Packing::new(8).unwrap().oversize(PackedOversize::Split);
    let packed = Loader::builder(builder(&["target"]).build().unwrap()).rule(split);
    refused(packed.build(), Kind::Argument, &["own_lengths", "Packing", "target", "parts", "oversize"]);
    let shared =
        |name: &str, fields: &[&str]| builder(&[]).shared_lengths(name, fields.iter().copied()).build();
    refused(shared("source", &["target"]), Kind::Argument, &["own_lengths", "source", "name"]);
    refused(shared("pairs", &[]), Kind::Argument, &["own_lengths", "pairs", "at least one field"]);
    let differing = builder(&[]).variable("other", sequences("other", &[1, 2], 0));
    let differing = differing.shared_lengths("pairs", ["other", "target"]).build();
    refused(differing, Kind::Data, &["sample 0", "field other", "field target"]);
}
