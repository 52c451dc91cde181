//! Batches that are padded to given lengths: each is as long as the smallest that holds its samples, and no budget is
//! exceeded.

use batchloom::batching::{FixedSize, LengthBuckets, PadTo, Rule, Sizes, TokenBudget, Truncate};
use batchloom::dataset::Sequences;
use batchloom::{Loader, Plan, SequenceDataset, Tensor};
use proptest::prelude::*;

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::from(FixedSize::new(3).unwrap())),
        Just(Rule::from(LengthBuckets::new(3).unwrap())),
        Just(Rule::from(TokenBudget::new(40).unwrap())),
    ]
}

fn dataset(lengths: &[u32]) -> SequenceDataset {
    let ends = lengths.iter().scan(0_i64, |end, &length| {
        *end += i64::from(length);
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    let total = *offsets.last().unwrap();
    let values = Tensor::from_vec((0..total).collect(), &[total as usize]);
    let sequences = Sequences::new("x", values.unwrap(), &offsets).unwrap();
    SequenceDataset::new().variable("x", sequences).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // law: L6
    #[test]
    fn batches_have_given_lengths(
        lengths in prop::collection::vec(0_u32..25, 1..30),
        to in prop::collection::vec(1_u32..20, 1..4),
        rule in rules(),
        left in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let truncate = if left { Truncate::Left } else { Truncate::Right };
        let pad_to = PadTo::new(to.clone()).unwrap().truncate(truncate);
        let most = *to.iter().max().unwrap();
        let length = |size: u32| to.iter().copied().filter(|&to| to >= size).min().unwrap_or(most);
        let counted: Vec<u32> = lengths.iter().map(|&size| length(size)).collect();
        let plain = Plan::builder(lengths.len() as u64).rule(rule.clone()).sizes(Sizes::new(counted.clone()));
        let plain = plain.shuffle(true).seed(seed).build().unwrap();
        let data = dataset(&lengths);
        let loader = Loader::builder(data).rule(rule.clone()).shuffle(true).seed(seed).pad_to(pad_to);
        let loader = loader.build().unwrap();
        let mut padded = 0;
        for (step, batch) in loader.iter().enumerate() {
            let batch = batch.unwrap();
            let samples = plain.indices(step as u64, 0).unwrap();
            let of = |sample: &u64| *sample as usize;
            let width = samples.iter().map(|sample| counted[of(sample)] as usize).max().unwrap();
            padded += (width * samples.len()) as u64;
            if let Rule::TokenBudget(_) = rule {
                prop_assert!(width * samples.len() <= 40);
            }
            let field = batch.field("x").unwrap();
            prop_assert_eq!(field.shape(), [samples.len(), width]);
            let rows = field.as_slice::<i64>().unwrap();
            for (row, sample) in rows.chunks(width.max(1)).zip(&samples) {
                let first: i64 = lengths[..of(sample)].iter().map(|&size| i64::from(size)).sum();
                let (size, taken) = (lengths[of(sample)], lengths[of(sample)].min(most));
                let first = first + i64::from(if left { size - taken } else { 0 });
                let data: Vec<i64> = (first..first + i64::from(taken)).collect();
                prop_assert_eq!(&row[..data.len()], data.as_slice());
                prop_assert!(row[data.len()..].iter().all(|&value| value == 0));
            }
        }
        let stats = loader.plan(0).stats();
        prop_assert_eq!(stats.padded, padded);
        let cut = lengths.iter().filter(|&&size| size > most);
        prop_assert_eq!(stats.truncated, cut.clone().count() as u64);
        prop_assert_eq!(stats.truncated_tokens, cut.map(|size| u64::from(size - most)).sum::<u64>());
        prop_assert_eq!(stats.samples, lengths.len() as u64);
    }
}

#[test]
fn a_sample_that_is_too_long_is_named() {
    let loader = Loader::builder(dataset(&[3, 9, 4])).batch_size(2).pad_to(PadTo::new([4]).unwrap());
    let error = loader.build().unwrap_err().to_string();
    assert!(error.contains("sample 1 has 9 elements") && error.contains("pad_to is 4"), "{error}");
}
