//! Pools, and the batch mates that they keep together: default pools keep few, rules mix and pack as they say, and the
//! statistics are a recount.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

use batchloom::batching::{
    CostModel, CostOptimal, FixedSize, LengthBuckets, Packing, PackingOrder, Pool, Rule, Sizes, TokenBudget,
};
use batchloom::order::Shuffle;
use batchloom::plan::{Parts, PlanBuilder};
use batchloom::ranks::Uneven;
use batchloom::{Loader, Plan, Tensor, TokenDataset};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::rules::{rule, seen, sizes};

fn plan(sizes: &[u32], rule: impl Into<Rule>, seed: u64) -> PlanBuilder {
    Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.to_vec())).rule(rule).shuffle(true).seed(seed)
}

/// The random order of an epoch: one batch of everything.
fn order(samples: usize, seed: u64, epoch: u64) -> Vec<u64> {
    let all = Plan::builder(samples as u64).batch_size(samples as u64).shuffle(true).seed(seed).epoch(epoch);
    all.build().unwrap().indices(0, 0).unwrap()
}

fn batches(plan: &Plan) -> Vec<Vec<u64>> {
    seen(plan).into_iter().flatten().map(|parts| parts.samples).collect()
}

/// The pairs that share a batch. A sample that is split is where it begins.
fn mates(plan: &Plan, splits: bool) -> BTreeSet<(u64, u64)> {
    let mut pairs = BTreeSet::new();
    for parts in seen(plan).into_iter().flatten() {
        let begins = |(&sample, &start): (&u64, &u32)| (start == 0 || !splits).then_some(sample);
        let samples: Vec<u64> = parts.samples.iter().zip(&parts.starts).filter_map(begins).collect();
        for (place, &a) in samples.iter().enumerate() {
            pairs.extend(samples[place + 1..].iter().map(|&b| (a.min(b), a.max(b))));
        }
    }
    pairs
}

/// Sizes whose spread is that of a kind of data.
fn spread(kind: usize, samples: u32) -> Vec<u32> {
    let mut numbers = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut uniform = || (f64::from(numbers.next_u32()) + 0.5) / 2_f64.powi(32);
    let mut size = || match kind {
        0 => -100.0 * uniform().ln(),
        1 => (5.0 + 0.8 * (-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos()).exp(),
        _ => 512.0 * uniform(),
    };
    (0..samples).map(|_| 1 + size().min(4000.0) as u32).collect()
}

proptest! {
    /// The share of mates that stay together is a recount of pairs.
    #[test]
    fn mates_kept_is_a_recount(sizes in sizes(), rule in rule(), seed in any::<u64>(), epoch in any::<u64>(), shuffle in any::<bool>()) {
        let splits = matches!(&rule, Rule::Packing(_));
        let build = |epoch| plan(&sizes, rule.clone(), seed).shuffle(shuffle).epoch(epoch).uneven(Uneven::Short).build();
        let Ok(now) = build(epoch) else { return Ok(()) };
        let next = build(epoch.checked_add(1).unwrap_or(epoch.saturating_sub(1))).unwrap();
        let (pairs, later) = (mates(&now, splits), mates(&next, splits));
        let kept = pairs.intersection(&later).count();
        let expected = (!pairs.is_empty()).then(|| kept as f64 / pairs.len() as f64);
        prop_assert_eq!(now.stats().mates_kept, expected);
    }

    /// So it is where all samples count the same, with runs too.
    #[test]
    fn mates_kept_of_equal_samples(samples in 1_u64..300, batch_size in 1_u64..40, seed in any::<u64>(), runs in any::<bool>(), drop_last in any::<bool>()) {
        let shuffle = if runs { Shuffle::Runs } else { Shuffle::Samples };
        let builder = Plan::builder(samples).batch_size(batch_size).shuffle(shuffle).seed(seed).drop_last(drop_last);
        let Ok(now) = builder.uneven(Uneven::Short).build() else { return Ok(()) };
        let (pairs, later) = (mates(&now, false), mates(&now.at_epoch(1), false));
        let kept = pairs.intersection(&later).count();
        let expected = (!pairs.is_empty()).then(|| kept as f64 / pairs.len() as f64);
        prop_assert_eq!(now.stats().mates_kept, expected);
    }

    /// Runs are neighbours as stored, as many in every epoch, at most one more than samples need, and each epoch moves
    /// their borders by half a run at least, to choose from.
    // law: L7
    #[test]
    fn runs_meet_others_in_each_epoch(samples in 1_u64..2000, batch_size in 1_u64..60, seed in any::<u64>(), drop_last in any::<bool>()) {
        let builder = Plan::builder(samples).batch_size(batch_size).shuffle(Shuffle::Runs).seed(seed);
        let Ok(plan) = builder.drop_last(drop_last).uneven(Uneven::Short).build() else { return Ok(()) };
        let mut borders = BTreeSet::new();
        for epoch in 0..40 {
            let now = plan.at_epoch(epoch);
            prop_assert_eq!(now.steps(), plan.steps());
            for batch in batches(&now) {
                prop_assert!(batch.windows(2).all(|pair| pair[1] == pair[0] + 1));
                prop_assert!(batch.len() as u64 == batch_size || !drop_last);
                borders.extend((batch[0] > 0).then_some(batch[0] % batch_size));
            }
        }
        let rest = samples % batch_size;
        let needed = if drop_last { samples / batch_size } else { samples.div_ceil(batch_size) };
        prop_assert!(plan.steps() == needed || plan.steps() == needed + 1 && !drop_last && (rest == 0 || rest > batch_size / 2));
        let choices = if drop_last { rest } else { batch_size / 2 };
        prop_assert!(samples <= batch_size || borders.len() as u64 >= choices.min(6), "{} of {choices}", borders.len());
    }

    /// The correlation is Spearman's: Pearson's, of ranks.
    #[test]
    fn length_correlation_by_definition(sizes in sizes(), seed in any::<u64>(), shuffle in any::<bool>()) {
        let plan = plan(&sizes, LengthBuckets::new(3).unwrap(), seed).shuffle(shuffle).uneven(Uneven::Short).build().unwrap();
        let mean = |parts: &Parts| f64::from(parts.sizes.iter().sum::<u32>()) / parts.sizes.len() as f64;
        let means: Vec<f64> = seen(&plan).iter().flatten().map(mean).collect();
        let rank = |value: f64| {
            let below = means.iter().filter(|&&other| other < value).count() as f64;
            below + means.iter().filter(|&&other| other == value).count() as f64 / 2.0
        };
        let ranks: Vec<f64> = means.iter().map(|&value| rank(value)).collect();
        let times: Vec<f64> = (0..).take(means.len()).map(f64::from).collect();
        let average = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let product = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).map(|(x, y)| (x - average(a)) * (y - average(b))).sum()
        };
        let spread = product(&ranks, &ranks) * product(&times, &times);
        let correlation = plan.stats().length_correlation;
        prop_assert_eq!(correlation.is_some(), spread > 1e-9);
        if let Some(correlation) = correlation {
            prop_assert!((correlation - product(&ranks, &times) / spread.sqrt()).abs() < 1e-9);
            prop_assert!(shuffle || correlation <= 1e-9, "the longest come first: {correlation}");
        }
    }

    /// `LengthBuckets` mixes sorted samples on an axis on which each batch takes the root of its range.
    #[test]
    fn length_buckets_mix_by_definition(sizes in sizes(), batch_size in 1_usize..20, seed in any::<u64>()) {
        let plan = plan(&sizes, LengthBuckets::new(batch_size as u64).unwrap(), seed).uneven(Uneven::Short).build().unwrap();
        let order = order(sizes.len(), seed, 0);
        let size = |&sample: &u64| u128::from(sizes[sample as usize]);
        let mut sorted = order.clone();
        sorted.sort_by_key(|sample| std::cmp::Reverse(size(sample)));
        let mut axis: BTreeMap<u64, u128> = BTreeMap::new();
        let mut begin = 0;
        for start in (0..sorted.len()).step_by(batch_size) {
            let batch = &sorted[start..sorted.len().min(start + batch_size)];
            let next = sorted.get(start + batch_size).unwrap_or(&sorted[sorted.len() - 1]);
            let root = ((size(&batch[0]) - size(next)) << 32).isqrt();
            axis.extend((0..).zip(batch).map(|(place, &sample)| (sample, begin + root * place / batch.len() as u128)));
            begin += root;
        }
        // Everything moves by less than three times the mean root of a batch: a quarter of the mates stays.
        let (count, all) = (sorted.len().div_ceil(batch_size) as u128, order.len() as u128);
        let step = 3 * (begin << 32) / (count * all);
        for (place, sample) in (0..).zip(&order) {
            *axis.get_mut(sample).unwrap() += (step * place) >> 32;
        }
        sorted.sort_by_key(|sample| axis[sample]);
        let mut expected: Vec<_> = sorted.chunks(batch_size).map(<[_]>::to_vec).collect();
        // In a batch, the longest come first, those that come first in the epoch before others.
        let place = |sample: &u64| order.iter().position(|other| other == sample);
        expected.iter_mut().for_each(|batch| batch.sort_by_key(|sample| (std::cmp::Reverse(size(sample)), place(sample))));
        let mut mixed = batches(&plan);
        expected.sort();
        mixed.sort();
        prop_assert_eq!(mixed, expected);
    }

    /// `Packing` puts large samples first, and the others in the order of the epoch, into the fullest bin that takes them.
    // law: L6
    #[test]
    fn packing_is_best_fit_in_random_order(sizes in prop::collection::vec(0_u32..120, 1..200), capacity in 120_u32..500, seed in any::<u64>()) {
        let plan = plan(&sizes, Packing::new(capacity.into()).unwrap(), seed).uneven(Uneven::Short).build().unwrap();
        let size = |&sample: &u64| sizes[sample as usize];
        let (mut large, small): (Vec<u64>, Vec<u64>) =
            order(sizes.len(), seed, 0).into_iter().partition(|sample| size(sample) > capacity / 4);
        large.sort_by_key(|sample| std::cmp::Reverse(size(sample)));
        let mut loads: Vec<u32> = Vec::new();
        for sample in large.iter().chain(&small) {
            let takes = |load: &&mut u32| **load + size(sample) <= capacity;
            match loads.iter_mut().filter(takes).max() {
                Some(load) => *load += size(sample),
                None => loads.push(size(sample)),
            }
        }
        let mut sums: Vec<u32> = batches(&plan).iter().map(|batch| batch.iter().map(size).sum()).collect();
        loads.sort_unstable();
        sums.sort_unstable();
        prop_assert_eq!(sums, loads);
    }

    /// A default pool holds two batches, or a quarter of what is shuffled together, and pools that are given hold as many
    /// as they say.
    #[test]
    fn pools_by_definition(sizes in prop::collection::vec(1_u32..50, 1..300), budget in 50_u64..400, pool in prop_oneof![Just(Pool::Auto), (1_u64..80).prop_map(Pool::Of), Just(Pool::All)], seed in any::<u64>()) {
        let rule = TokenBudget::new(budget).unwrap().pool(pool).unwrap();
        let plan = plan(&sizes, rule, seed).uneven(Uneven::Short).build().unwrap();
        let samples = sizes.len() as u64;
        let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let default = (samples / 4).max(2 * (budget * samples).div_ceil(total)).clamp(1, samples);
        let in_pool = match pool {
            Pool::Auto => default,
            Pool::Of(count) => count.min(samples),
            _ => samples,
        };
        let pool_of: BTreeMap<u64, u64> = (0..).zip(order(sizes.len(), seed, 0)).map(|(place, sample)| (sample, place / in_pool)).collect();
        let mut came = Vec::new();
        for batch in batches(&plan) {
            prop_assert!(batch.iter().all(|sample| pool_of[sample] == pool_of[&batch[0]]));
            came.push(pool_of[&batch[0]]);
        }
        prop_assert!(came.is_sorted());
        came.dedup();
        prop_assert_eq!(came.len() as u64, samples.div_ceil(in_pool));
        let covers = matches!(pool, Pool::Of(_)) && in_pool == samples && default < samples;
        prop_assert_eq!(plan.has_one_pool(), covers);
    }
}

/// Default pools keep at most 0.27 of batch mates together, whatever the rule and the lengths.
// law: L7
#[test]
fn default_pools_make_new_batches_in_every_epoch() {
    let cost = CostModel::new(1000.0, 1.0, 0.0).unwrap();
    let rules: [Rule; 6] = [
        FixedSize::new(16).unwrap().into(),
        LengthBuckets::new(16).unwrap().into(),
        LengthBuckets::new(64).unwrap().into(),
        TokenBudget::new(4096).unwrap().into(),
        CostOptimal::new(cost).max_tokens(8192).unwrap().into(),
        Packing::new(8192).unwrap().into(),
    ];
    for (kind, samples) in
        [1_000, 10_000, 40_000].into_iter().flat_map(|samples| (0..3).map(move |kind| (kind, samples)))
    {
        let sizes = spread(kind, samples);
        for rule in &rules {
            let kept = plan(&sizes, rule.clone(), 5).build().unwrap().stats().mates_kept.unwrap();
            assert!(kept <= 0.27, "{kind} {samples} {rule:?}: {kept}");
        }
    }
}

/// A random order of packing fills bins about as well as a decreasing one, and keeps hardly any mates.
#[test]
fn packing_in_random_order_fills_bins() {
    for samples in [1_000, 10_000] {
        let sizes = spread(1, samples);
        let rule = Packing::new(8192).unwrap();
        let stats = |order| plan(&sizes, rule.clone().order(order), 3).build().unwrap().stats();
        let (random, decreasing) = (stats(PackingOrder::Random), stats(PackingOrder::Decreasing));
        assert!(random.batches <= decreasing.batches + 1, "{} {}", random.batches, decreasing.batches);
        assert!(random.mates_kept.unwrap() < 0.05);
    }
}

/// The longest are not left in one place: mixing keeps the order of batches free of lengths.
#[test]
fn a_large_set_is_sorted_pool_by_pool() {
    let sizes = spread(0, 70_000);
    let stats = |pool| {
        let rule = LengthBuckets::new(16).unwrap().pool(pool).unwrap();
        plan(&sizes, rule, 1).uneven(Uneven::Short).build().unwrap().stats()
    };
    // From four pools on, falling into other pools parts mates enough.
    assert_eq!(stats(Pool::Auto).padded, stats(Pool::Of(1024)).padded);
    assert!(stats(Pool::Auto).length_correlation.unwrap().abs() < 0.05);
}

/// Pools that several threads count are the pools of the definition: each holds its samples of the order, batches have
/// no gaps between pools, and the largest batch of all is first where it is to be.
// law: L1
#[test]
fn many_pools_are_counted_as_each_alone() {
    let (sizes, in_pool) = (spread(1, 150_000), 700);
    let order = order(sizes.len(), 9, 0);
    let rule = TokenBudget::new(8192).unwrap().pool(Pool::Of(in_pool)).unwrap();
    let plan =
        |largest| plan(&sizes, rule.clone(), 9).uneven(Uneven::Short).largest_first(largest).build().unwrap();
    let expected: u64 = order
        .chunks(in_pool as usize)
        .map(|pool| {
            let sizes: Vec<u32> = pool.iter().map(|&sample| sizes[sample as usize]).collect();
            let alone = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes)).rule(rule.clone());
            alone.build().unwrap().steps()
        })
        .sum();
    let found = batches(&plan(false));
    assert_eq!(found.len() as u64, expected);
    for (pool, samples) in found.concat().chunks(in_pool as usize).zip(order.chunks(in_pool as usize)) {
        assert_eq!(pool.iter().collect::<BTreeSet<_>>(), samples.iter().collect::<BTreeSet<_>>());
    }
    let padded = |batch: &Vec<u64>| {
        batch.len() as u64 * batch.iter().map(|&sample| u64::from(sizes[sample as usize])).max().unwrap()
    };
    let largest = batches(&plan(true));
    assert_eq!(padded(&largest[0]), largest.iter().map(padded).max().unwrap());
    assert_eq!(largest.len() as u64, expected);
}

/// Runs that move are a promise across releases, as are the tokens at which streams with jitter begin.
#[test]
fn golden() {
    let mut lines = Vec::new();
    for (samples, batch_size) in [(40, 7), (42, 7), (24, 8), (7, 9), (30, 2)] {
        for (seed, drop_last) in [(0, false), (3, false), (3, true)] {
            let builder = Plan::builder(samples).batch_size(batch_size).shuffle(Shuffle::Runs).seed(seed);
            let Ok(plan) = builder.drop_last(drop_last).epoch(1).build() else { continue };
            lines.push(serde_json::json!({"runs": batches(&plan), "fingerprint": plan.fingerprint()}));
        }
    }
    for (seq_len, seed) in [(1, 0), (8, 0), (8, 3), (1024, 3)] {
        let tokens = Tensor::from_vec((0..4096_i64).collect(), &[4096]).unwrap();
        let dataset = TokenDataset::new(tokens, seq_len).unwrap().jitter(true);
        let loader = Loader::builder(dataset).batch_size(1).seed(seed).build().unwrap();
        let first = |epoch| {
            loader.set_epoch(epoch);
            let batch = loader.iter().next().unwrap().unwrap();
            batch.field("input_ids").unwrap().as_slice::<i64>().unwrap()[0]
        };
        let offsets: Vec<i64> = (0..8).map(first).collect();
        let fingerprint = loader.plan(0).fingerprint();
        lines.push(serde_json::json!({"seq_len": seq_len, "offsets": offsets, "fingerprint": fingerprint}));
    }
    let lines: Vec<String> = lines.iter().map(serde_json::Value::to_string).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/runs.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
