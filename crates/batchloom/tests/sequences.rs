//! Batches of sequences against their definition: padded to the union, packed with their boundaries, labelled; for any
//! rank, side, thread count and block size (L2, L6, L8, L9).

use batchloom::batching::{FixedSize, LengthBuckets, Oversize, PackedOversize, Packing, Rule, TokenBudget};
use batchloom::dataset::Sequences;
use batchloom::loader::{Batch, PadSide};
use batchloom::plan::Parts;
use batchloom::{Kind, Loader, SequenceDataset, Tensor};
use proptest::prelude::*;

use crate::errors::refused;

const PAD: i32 = -7;

/// Sequences of tokens with two features a token, and a label for each. The value at every place can be computed.
fn dataset(lengths: &[u32]) -> SequenceDataset {
    let total: usize = lengths.iter().map(|&length| length as usize).sum();
    let mut offsets = vec![0_i64];
    offsets.extend(lengths.iter().scan(0, |end, &length| {
        *end += i64::from(length);
        Some(*end)
    }));
    let tokens = Tensor::from_vec((0..total as i32).collect(), &[total]).unwrap();
    let features = Tensor::from_vec((0..2 * total as u64).collect(), &[total, 2]).unwrap();
    let labels = Tensor::from_vec((0..lengths.len() as i16).collect(), &[lengths.len()]).unwrap();
    SequenceDataset::new()
        .variable("tokens", Sequences::new("tokens", tokens, &offsets).unwrap())
        .fixed("label", labels)
        .variable("features", Sequences::new("features", features, &offsets).unwrap())
        .build()
        .unwrap()
}

/// The tokens that a batch takes of each of its samples.
fn taken(lengths: &[u32], parts: &Parts) -> Vec<Vec<i32>> {
    let start = |sample: u64| lengths[..sample as usize].iter().sum::<u32>();
    let members = parts.samples.iter().zip(&parts.starts).zip(&parts.sizes);
    let tokens = |((&sample, &from), &size): ((&u64, &u32), &u32)| {
        let first = start(sample) + from;
        (first as i32..(first + size) as i32).collect()
    };
    members.map(tokens).collect()
}

fn values<T: batchloom::tensor::Element>(batch: &Batch, field: &str) -> Vec<T> {
    batch.field(field).unwrap().as_slice::<T>().unwrap().to_vec()
}

fn booleans(batch: &Batch, field: &str) -> Vec<bool> {
    let mask = batch.field(field).unwrap();
    let offset = mask.layout().offset();
    let bytes = &mask.bytes()[offset..offset + mask.layout().elements()];
    assert!(bytes.iter().all(|&byte| byte <= 1), "a boolean is 0 or 1");
    bytes.iter().map(|&byte| byte == 1).collect()
}

fn next_tokens(tokens: &[i32]) -> Vec<i64> {
    let next = tokens.iter().skip(1).map(|&token| i64::from(token));
    next.chain((!tokens.is_empty()).then_some(-100)).collect()
}

fn check_padded(lengths: &[u32], parts: &Parts, batch: &Batch, multiple_of: usize, side: PadSide) {
    let taken = taken(lengths, parts);
    let width = taken.iter().map(Vec::len).max().unwrap().next_multiple_of(multiple_of);
    let place = |row: &[i64], padding: i64| {
        let padding = vec![padding; width - row.len()];
        match side {
            PadSide::Right => [row, &padding].concat(),
            _ => [&padding, row].concat(),
        }
    };
    let wide = |row: &[i32]| row.iter().map(|&token| i64::from(token)).collect::<Vec<_>>();
    let tokens: Vec<i64> = taken.iter().flat_map(|row| place(&wide(row), i64::from(PAD))).collect();
    assert_eq!(wide(&values::<i32>(batch, "tokens")), tokens);
    assert_eq!(batch.field("tokens").unwrap().shape(), [taken.len(), width]);
    let mask: Vec<bool> =
        taken.iter().flat_map(|row| place(&vec![1; row.len()], 0)).map(|one| one == 1).collect();
    assert_eq!(booleans(batch, "attention_mask"), mask);
    let labels: Vec<i64> = taken.iter().flat_map(|row| place(&next_tokens(row), -100)).collect();
    assert_eq!(values::<i64>(batch, "labels"), labels);
    let expected: Vec<i64> = taken.iter().map(|row| row.len() as i64).collect();
    assert_eq!(values::<i64>(batch, "lengths"), expected);
    // Features of a token are twice its number and the next one; padding is zero.
    let features = tokens.iter().flat_map(|&token| match token {
        token if token == i64::from(PAD) => [0, 0],
        token => [2 * token as u64, 2 * token as u64 + 1],
    });
    assert_eq!(values::<u64>(batch, "features"), features.collect::<Vec<_>>());
}

fn check_packed(lengths: &[u32], parts: &Parts, batch: &Batch) {
    let taken = taken(lengths, parts);
    assert_eq!(values::<i32>(batch, "tokens"), taken.concat());
    let mut ends = vec![0_i32];
    ends.extend(taken.iter().scan(0, |end, row| {
        *end += row.len() as i32;
        Some(*end)
    }));
    assert_eq!(values::<i32>(batch, "cu_seqlens"), ends);
    let positions: Vec<i64> = taken.iter().flat_map(|row| 0..row.len() as i64).collect();
    assert_eq!(values::<i64>(batch, "position_ids"), positions);
    let segments: Vec<i32> = (1..).zip(&taken).flat_map(|(at, row)| vec![at; row.len()]).collect();
    assert_eq!(values::<i32>(batch, "segment_ids"), segments);
    let labels: Vec<i64> = taken.iter().flat_map(|row| next_tokens(row)).collect();
    assert_eq!(values::<i64>(batch, "labels"), labels);
    assert_eq!(batch.longest(), taken.iter().map(Vec::len).max().unwrap());
}

fn rule() -> impl Strategy<Value = (Rule, usize)> {
    prop_oneof![
        (1_u64..20).prop_map(|size| (FixedSize::new(size).unwrap().into(), 1)),
        (1_u64..20, 1_u32..9).prop_map(|(size, multiple)| {
            let rule = LengthBuckets::new(size).unwrap().multiple_of(multiple).unwrap();
            (rule.into(), multiple as usize)
        }),
        (20_u64..200).prop_map(|tokens| {
            (TokenBudget::new(tokens).unwrap().oversize(Oversize::Truncate).into(), 1)
        }),
        (20_u64..200, any::<bool>()).prop_map(|(tokens, split)| {
            let oversize = if split { PackedOversize::Split } else { PackedOversize::Truncate };
            (Packing::new(tokens).unwrap().oversize(oversize).into(), 1)
        }),
    ]
}

proptest! {
    // law: L8, L9
    #[test]
    fn batches_are_their_definition(
        lengths in prop::collection::vec(prop_oneof![Just(0_u32), 1_u32..30, 20_u32..300], 1..120),
        (rule, multiple_of) in rule(),
        left in any::<bool>(),
        shuffle in any::<bool>(),
        threads in 1_usize..4,
        block_bytes in prop_oneof![Just(1_usize), Just(3000), Just(4 << 20)],
    ) {
        let side = if left { PadSide::Left } else { PadSide::Right };
        let loader = Loader::builder(dataset(&lengths))
            .rule(rule.clone())
            .shuffle(shuffle)
            .pad_value("tokens", &PAD.to_ne_bytes())
            .pad_side(side)
            .labels("tokens")
            .num_threads(threads)
            .block_bytes(block_bytes)
            .poison(true)
            .build()
            .unwrap();
        for epoch in 0..2 {
            let plan = loader.plan(epoch);
            // Batches are held until the end, because what they show must not change.
            let batches: Vec<Batch> = loader.iter().map(Result::unwrap).collect();
            prop_assert_eq!(batches.len() as u64, plan.steps());
            for (step, batch) in (0..).zip(&batches) {
                let parts = plan.parts(step, 0).unwrap();
                match rule {
                    Rule::Packing(_) => check_packed(&lengths, &parts, batch),
                    _ => check_padded(&lengths, &parts, batch, multiple_of, side),
                }
                let index: Vec<i64> = parts.samples.iter().map(|&sample| sample as i64).collect();
                prop_assert_eq!(values::<i64>(batch, "index"), index.clone());
                let labels: Vec<i16> = index.iter().map(|&sample| sample as i16).collect();
                prop_assert_eq!(values::<i16>(batch, "label"), labels);
                prop_assert_eq!(batch.len(), parts.samples.len());
                for field in batch.fields() {
                    prop_assert_eq!((field.bytes().as_ptr() as usize + field.layout().offset()) % 64, 0);
                }
            }
        }
    }

    /// Samples of any rank, any of whose dimensions differ.
    #[test]
    fn padded_to_the_union_of_shapes(
        shapes in (1_usize..4).prop_flat_map(|rank| prop::collection::vec(prop::collection::vec(0_u32..5, rank), 1..30)),
        same in prop::array::uniform3(any::<bool>()),
        batch_size in 1_u64..9,
        left in any::<bool>(),
    ) {
        let rank = shapes[0].len();
        let shapes: Vec<Vec<u32>> = shapes.iter().map(|shape| (0..rank).map(|at| if same[at] { shapes[0][at] } else { shape[at] }).collect()).collect();
        let elements = |shape: &[u32]| shape.iter().product::<u32>() as usize;
        let total: usize = shapes.iter().map(|shape| elements(shape)).sum();
        let values_of_all = Tensor::from_vec((1..=total as i32).collect(), &[total]).unwrap();
        let sequences = Sequences::with_shapes("x", &values_of_all, &shapes.concat(), rank).unwrap();
        let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
        let side = if left { PadSide::Left } else { PadSide::Right };
        let loader = Loader::builder(dataset).batch_size(batch_size).pad_side(side).build().unwrap();
        let mut first = 1;
        for (batch, shapes) in loader.iter().map(Result::unwrap).zip(shapes.chunks(batch_size as usize)) {
            let union: Vec<u32> = (0..rank).map(|at| shapes.iter().map(|shape| shape[at]).max().unwrap()).collect();
            let mut expected = vec![0; shapes.len() * elements(&union)];
            for (sample, shape) in shapes.iter().enumerate() {
                for number in 0..elements(shape) {
                    let mut left_over = number;
                    let mut at = 0;
                    let mut step = 1;
                    for dimension in (0..rank).rev() {
                        let index = left_over % shape[dimension] as usize;
                        left_over /= shape[dimension] as usize;
                        let skipped = if left { (union[dimension] - shape[dimension]) as usize } else { 0 };
                        at += (skipped + index) * step;
                        step *= union[dimension] as usize;
                    }
                    expected[sample * elements(&union) + at] = first;
                    first += 1;
                }
            }
            prop_assert_eq!(values::<i32>(&batch, "x"), expected);
        }
        prop_assert_eq!(first as usize, total + 1);
    }
}

/// Several threads fill large batches in parts, and blocks hold what fits.
#[test]
fn large_batches_are_filled_in_parts_and_blocks_hold_what_fits() {
    let lengths: Vec<u32> = (0..600).map(|sample| sample * 7 % 41).collect();
    let total: usize = lengths.iter().map(|&length| length as usize).sum();
    let mut offsets = vec![0_i64];
    offsets.extend(lengths.iter().scan(0, |end, &length| {
        *end += i64::from(length);
        Some(*end)
    }));
    let wide = Tensor::from_vec((0..total * 1024).map(|at| at as u32).collect(), &[total, 1024]).unwrap();
    let dataset = || {
        let sequences = Sequences::new("x", wide.clone(), &offsets).unwrap();
        SequenceDataset::new().variable("x", sequences).build().unwrap()
    };
    let rules: [Rule; 2] = [Packing::new(700).unwrap().into(), LengthBuckets::new(30).unwrap().into()];
    for rule in rules {
        let block_bytes = 6 << 20;
        let loader = Loader::builder(dataset()).rule(rule.clone()).shuffle(true).num_threads(3);
        let loader = loader.block_bytes(block_bytes).build().unwrap();
        let plan = loader.plan(0);
        let mut step = 0;
        for block in loader.blocks() {
            let batches: Vec<Batch> = block.unwrap().batches().collect();
            let bytes = |batch: &Batch| {
                let fields =
                    batch.fields().iter().map(|field| field.layout().elements() * field.dtype().size());
                fields.sum::<usize>()
            };
            assert!(batches.len() == 1 || batches.iter().map(bytes).sum::<usize>() <= block_bytes);
            for batch in &batches {
                let parts = plan.parts(step, 0).unwrap();
                let x = values::<u32>(batch, "x");
                let width = x.len() / 1024 / parts.samples.len();
                let mut at = 0;
                for (place, (&sample, &size)) in parts.samples.iter().zip(&parts.sizes).enumerate() {
                    let first = offsets[sample as usize] as usize * 1024;
                    let start = if matches!(rule, Rule::Packing(_)) { at } else { place * width };
                    let expected: Vec<u32> =
                        (first..first + size as usize * 1024).map(|at| at as u32).collect();
                    assert_eq!(x[start * 1024..(start + size as usize) * 1024], expected);
                    at += size as usize;
                }
                if let Rule::Packing(_) = rule {
                    let ends = parts.sizes.iter().scan(0, |end, &size| {
                        *end += size as i32;
                        Some(*end)
                    });
                    let ends: Vec<i32> = [0].into_iter().chain(ends).collect();
                    assert_eq!(values::<i32>(batch, "cu_seqlens"), ends);
                }
                step += 1;
            }
        }
        assert_eq!(step, plan.steps());
    }
}

/// A field that describes a batch can be left out: the rest is as it is with it.
#[test]
fn fields_that_describe_a_batch_are_left_out() {
    let batch = |names: &[&str]| {
        let builder = Loader::builder(dataset(&[2, 0, 3])).batch_size(3);
        let loader = names.iter().fold(builder, |builder, name| builder.leave_out(*name)).build().unwrap();
        loader.iter().next().unwrap().unwrap()
    };
    let whole = batch(&[]);
    for left_out in [&["lengths"][..], &["attention_mask", "index"], &["no such field"]] {
        let (found, kept) = (batch(left_out), |name: &&String| !left_out.contains(&name.as_str()));
        let expected: Vec<&String> = whole.names().iter().filter(kept).collect();
        assert_eq!(found.names().iter().collect::<Vec<_>>(), expected);
        assert_eq!(values::<i32>(&found, "tokens"), values::<i32>(&whole, "tokens"));
        for name in expected.iter().filter(|name| ["lengths", "index"].contains(&name.as_str())) {
            assert_eq!(values::<i64>(&found, name), values::<i64>(&whole, name));
        }
    }
}

/// Errors of datasets, and of loaders over them, name the sample that they are about.
#[test]
fn bad_input() {
    let tokens = || Tensor::from_vec((0..10_i64).collect(), &[10]).unwrap();
    let wrong = |offsets: &[i64], words: &[&str]| {
        refused(
            Sequences::new("x", tokens(), offsets),
            Kind::Data,
            &[&["field x", "offsets"], words].concat(),
        );
    };
    wrong(&[0, 4, 3], &["sample 1 ends at 3 and starts at 4"]);
    wrong(&[0, 4, 11], &["sample 1 ends at 11", "of 10 values"]);
    wrong(&[-1, 4], &["sample 0", "starts at -1"]);
    let one = Sequences::new("x", tokens(), &[0, 4, 10]).unwrap();
    let two = Sequences::new("y", tokens(), &[0, 5, 10]).unwrap();
    let ragged = SequenceDataset::new().variable("x", one.clone()).variable("y", two).build();
    refused(ragged, Kind::Data, &["sample 0", "[5] in field y", "[4] in field x"]);
    let fixed = SequenceDataset::new().fixed("x", tokens()).build();
    refused(fixed, Kind::Data, &["no field varies in length"]);
    let dataset = SequenceDataset::new().variable("x", one.clone()).sizes(vec![9, 9]).build().unwrap();
    let split = Packing::new(4).unwrap().oversize(PackedOversize::Split);
    let built = Loader::builder(dataset).rule(split).build();
    refused(built, Kind::Argument, &["Packing truncates or splits samples", "sizes of your own"]);
    let dataset = SequenceDataset::new().variable("x", one).build().unwrap();
    let built = Loader::builder(dataset.clone()).labels("y").build();
    refused(built, Kind::Argument, &["labels", "no field y"]);
    let built = Loader::builder(dataset).pad_value("x", &[0]).build();
    refused(built, Kind::Argument, &["the padding of field x has 1 bytes; expected 8"]);
}
