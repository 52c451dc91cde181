//! Keys of samples: batches of one key, and batches of different keys.

use std::collections::{BTreeMap, BTreeSet};

use batchloom::batching::{
    CostModel, CostOptimal, FixedSize, Keys, LengthBuckets, PackedOversize, Packing, Rule, Sizes, TokenBudget,
};
use batchloom::draws::{Mix, Weights};
use batchloom::plan::PlanBuilder;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::{is, refused};

fn rule_of(rule: usize) -> Rule {
    let model = CostModel::new(1.0, 1.0, 0.0).unwrap();
    match rule {
        0 => FixedSize::new(4).unwrap().into(),
        1 => LengthBuckets::new(4).unwrap().into(),
        2 => TokenBudget::new(30).unwrap().into(),
        3 => Packing::new(30).unwrap().into(),
        _ => CostOptimal::new(model).max_tokens(30).unwrap().into(),
    }
}

fn plan_of(rule: usize, keys: &[u32]) -> PlanBuilder {
    let sizes: Vec<u32> = (0..keys.len() as u32).map(|sample| 1 + sample * 7 % 13).collect();
    let builder = Plan::builder(keys.len() as u64).rule(rule_of(rule));
    if rule == 0 { builder } else { builder.sizes(Sizes::new(sizes)) }
}

fn keys(most: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![Just(0_u32), 0..5_u32, 0..40_u32], 1..most)
}

/// The samples of each rank at a step, without those that fill up.
fn batches(plan: &Plan, step: u64) -> Vec<Vec<u64>> {
    let ranks = (0..plan.world_size()).filter(|&rank| step < plan.steps_of(rank));
    let own = |rank: u32| {
        let mut batch = plan.indices(step, rank).unwrap();
        batch.truncate(batch.len() - plan.fillers(step, rank).unwrap() as usize);
        batch
    };
    ranks.map(own).collect()
}

proptest! {
    // law: L1
    #[test]
    fn batches_hold_one_key(
        rule in 0..5_usize, keys in keys(120), shuffle in any::<bool>(), world_size in 1..4_u32, drop_last in any::<bool>(),
        seed in any::<u64>(), epoch in 0..3_u64,
    ) {
        let builder = plan_of(rule, &keys).homogeneous_by(Keys::new(keys.clone())).shuffle(shuffle).seed(seed).epoch(epoch);
        let builder = builder.world_size(world_size).drop_last(drop_last).uneven(Uneven::Mask);
        let plan = match builder.build() {
            Err(error) if drop_last => {
                let said = ["drop_last leaves no step", "drop_last does not go with homogeneous_by"];
                prop_assert!(said.iter().any(|said| is(&error, Kind::Argument, &[said])), "{error}");
                return Ok(());
            }
            plan => plan.unwrap(),
        };
        let key = |sample: &u64| keys[*sample as usize];
        let mut seen: Vec<u64> = Vec::new();
        let mut short: BTreeMap<u32, usize> = BTreeMap::new();
        for step in 0..plan.steps() {
            let batches = batches(&plan, step);
            let held: BTreeSet<u32> = batches.iter().flatten().map(key).collect();
            for batch in &batches {
                prop_assert!(batch.iter().map(key).collect::<BTreeSet<_>>().len() <= 1);
                if let Some(sample) = batch.first().filter(|_| rule == 0 && batch.len() < 4) {
                    *short.entry(key(sample)).or_default() += 1;
                }
            }
            prop_assert_eq!(held.len(), 1, "step {} holds {:?}", step, held);
            prop_assert_eq!(batches.len() as u32, world_size);
            seen.extend(batches.into_iter().flatten());
        }
        prop_assert!(short.values().all(|&count| count == 1 && !drop_last), "{:?}", short);
        seen.sort_unstable();
        let stats = plan.stats();
        if drop_last {
            prop_assert_eq!(stats.dropped, keys.len() as u64 - seen.len() as u64);
            // At most one batch of a key and one step of it are missing.
            let kinds = keys.iter().collect::<BTreeSet<_>>().len() as u64;
            prop_assert!(rule != 0 || stats.dropped <= kinds * (3 + 4 * u64::from(world_size - 1)));
        } else {
            prop_assert_eq!(&seen, &(0..keys.len() as u64).collect::<Vec<_>>());
        }
        seen.dedup();
        for sample in 0..keys.len() as u64 {
            let places = plan.places(sample).unwrap();
            prop_assert_eq!(!places.is_empty(), seen.binary_search(&sample).is_ok());
            for place in places {
                prop_assert_eq!(plan.indices(place.step, place.rank).unwrap()[place.index as usize], sample);
            }
        }
    }

    /// Samples that are split come whole, whatever the others of their key and of other keys do.
    // law: L1
    #[test]
    fn parts_of_samples_of_one_key_add_up(
        sized in prop::collection::vec((0..4_u32, prop_oneof![0..5_u32, 0..40_u32]), 1..80), tokens in 3..12_u64, shuffle in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (keys, sizes): (Vec<u32>, Vec<u32>) = sized.into_iter().unzip();
        let rule = Packing::new(tokens).unwrap().oversize(PackedOversize::Split);
        let builder = Plan::builder(sizes.len() as u64).rule(rule).sizes(Sizes::new(sizes.clone())).shuffle(shuffle).seed(seed);
        let plan = builder.homogeneous_by(Keys::new(keys)).build().unwrap();
        let mut taken: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
        for step in 0..plan.steps() {
            let parts = plan.parts(step, 0).unwrap();
            prop_assert!(parts.sizes.iter().map(|&size| u64::from(size)).sum::<u64>() <= tokens);
            for ((&sample, &start), &size) in parts.samples.iter().zip(&parts.starts).zip(&parts.sizes) {
                taken.entry(sample).or_default().push((start, size));
            }
        }
        for (sample, &size) in sizes.iter().enumerate() {
            let mut parts = taken.remove(&(sample as u64)).unwrap_or_default();
            parts.sort_unstable();
            let end = parts.iter().fold(0, |end, &(start, size)| if start == end { end + size } else { u32::MAX / 2 });
            prop_assert_eq!(end, size, "sample {}: {:?}", sample, parts);
        }
    }

    // law: L5
    #[test]
    fn batches_of_one_key_resume_in_any_world(
        rule in 0..5_usize, keys in keys(120), worlds in prop::collection::vec((1..5_u32, 0..6_u64), 1..4),
        drop_last in any::<bool>(), seed in any::<u64>(),
    ) {
        let built = |world_size| {
            let builder = plan_of(rule, &keys).homogeneous_by(Keys::new(keys.clone())).shuffle(true).seed(seed);
            builder.world_size(world_size).drop_last(drop_last).uneven(Uneven::Mask).build()
        };
        let key = |sample: &u64| keys[*sample as usize];
        let (mut state, mut seen) = (built(1), Vec::new());
        prop_assume!(state.is_ok());
        let mut state = state.as_mut().unwrap().state(0);
        for (world_size, steps) in worlds.into_iter().chain([(2, u64::MAX)]) {
            let Ok(plan) = built(world_size) else { continue };
            let plan = plan.resume(&state).unwrap();
            if plan.epoch() > 0 {
                break;
            }
            let steps = steps.min(plan.steps());
            for step in 0..steps {
                let batches = batches(&plan, step);
                let held: BTreeSet<u32> = batches.iter().flatten().map(key).collect();
                prop_assert_eq!(held.len(), 1);
                seen.extend(batches.into_iter().flatten());
            }
            // What fills steps counts nowhere.
            let stats = plan.stats();
            let delivered = stats.samples + stats.repeated - stats.dropped - stats.earlier;
            let counted: u64 = (0..plan.steps()).map(|step| plan.step(step).unwrap().samples).sum();
            prop_assert_eq!((stats.repeated, delivered), (0, counted));
            // A run that was not stopped takes the same steps.
            let state_then = plan.state(steps);
            if steps < plan.steps() {
                let again = built(world_size).unwrap().resume(&state_then).unwrap();
                for step in steps..plan.steps() {
                    let mut expected = plan.step(step).unwrap();
                    expected.index = step - steps;
                    prop_assert_eq!(again.step(step - steps).unwrap(), expected);
                }
            }
            state = state_then;
        }
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        prop_assert_eq!(seen.len(), all);
        if !drop_last {
            prop_assert_eq!(all, keys.len());
        }
    }

    /// Without marks, batches of the key come again where it fills no step: less than a step for each key.
    #[test]
    fn batches_that_fill_steps_are_of_their_key(
        rule in 0..5_usize, keys in keys(120), world_size in 1..5_u32, steps in 0..9_u64, seed in any::<u64>(),
    ) {
        let builder = plan_of(rule, &keys).homogeneous_by(Keys::new(keys.clone())).shuffle(true).seed(seed);
        let plan = builder.world_size(world_size).build().unwrap();
        let stats = plan.stats();
        let kinds = keys.iter().collect::<BTreeSet<_>>().len() as u64;
        let mut batches: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        let mut count = 0;
        for step in 0..plan.steps() {
            let step = plan.step(step).unwrap();
            prop_assert_eq!(step.batches.len() as u32, world_size);
            let held: BTreeSet<u32> = step.batches.iter().flatten().map(|&sample| keys[sample as usize]).collect();
            prop_assert_eq!(held.len(), 1);
            prop_assert!(rule != 0 || step.counts.iter().all(|&count| count == step.counts[0]));
            count += step.samples;
            for mut batch in step.batches {
                batch.sort_unstable();
                batch.dedup();
                *batches.entry(batch).or_default() += 1;
            }
        }
        let again: u64 = batches.values().map(|count| count - 1).sum();
        prop_assert!(again <= kinds * u64::from(world_size - 1));
        prop_assert_eq!(stats.batches, plan.steps() * u64::from(world_size));
        prop_assert_eq!(stats.samples + stats.repeated, count);
        let seen: BTreeSet<u64> = batches.keys().flatten().copied().collect();
        prop_assert_eq!(seen.len(), keys.len());
        // Every place is listed.
        let places: usize = (0..keys.len() as u64).map(|sample| plan.places(sample).unwrap().len()).sum();
        prop_assert_eq!(places as u64, count);
        // A stop in the middle, and the rest with another number of ranks.
        let steps = steps.min(plan.steps());
        let rest = plan.in_world(world_size % 3 + 1).unwrap().resume(&plan.state(steps)).unwrap();
        if rest.epoch() == 0 {
            let taken = (0..steps).flat_map(|step| plan.step(step).unwrap().batches);
            let later = (0..rest.steps()).flat_map(|step| rest.step(step).unwrap().batches);
            let seen: BTreeSet<u64> = taken.chain(later).flatten().collect();
            prop_assert_eq!(seen.len(), keys.len());
            let stats = rest.stats();
            let counted: u64 = (0..rest.steps()).map(|step| rest.step(step).unwrap().samples).sum();
            prop_assert_eq!(stats.samples + stats.repeated - stats.earlier, counted);
        }
    }

    // law: L1
    #[test]
    fn batches_hold_different_keys(
        keys in prop_oneof![keys(150), prop::collection::vec(0..40_u32, 60..150)], batch_size in 1..9_u64, drop_last in any::<bool>(), world_size in 1..4_u32, seed in any::<u64>(),
    ) {
        let builder = Plan::builder(keys.len() as u64).batch_size(batch_size).distinct_by(Keys::new(keys.clone()));
        let builder = builder.shuffle(true).seed(seed).drop_last(drop_last).world_size(world_size).uneven(Uneven::Mask);
        let count = |key: u32| keys.iter().filter(|&&other| other == key).count() as u64;
        let most = (0..40).map(count).max().unwrap();
        let full = keys.len() as u64 / batch_size;
        let plan = match builder.build() {
            Err(error) if drop_last && is(&error, Kind::Argument, &["drop_last leaves no step"]) => return Ok(()),
            Err(error) => {
                let sample = error.sample().unwrap();
                let message = format!("{} samples have the key of sample {sample}", count(keys[sample as usize]));
                prop_assert!(is(&error, Kind::Argument, &[&message]), "{error}");
                // No plan was possible: the most frequent key comes more often than there are full batches.
                prop_assert!(most > full, "{} of {}", most, full);
                return Ok(());
            }
            plan => plan.unwrap(),
        };
        let mut seen = Vec::new();
        for step in 0..plan.steps() {
            for batch in batches(&plan, step) {
                let held: BTreeSet<u32> = batch.iter().map(|&sample| keys[sample as usize]).collect();
                prop_assert_eq!(held.len(), batch.len());
                prop_assert!(!drop_last || batch.len() as u64 == batch_size);
                seen.extend(batch);
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), all);
        prop_assert!(drop_last || all == keys.len());
        if most * batch_size <= keys.len() as u64 && !drop_last {
            prop_assert_eq!(plan.steps(), (keys.len() as u64).div_ceil(batch_size).div_ceil(u64::from(world_size)));
        }
    }
}

/// Each epoch makes other batches, and keys other groups.
#[test]
fn epochs_differ() {
    let keys: Vec<u32> = (0..4000).map(|sample| sample / 4).collect();
    let plan = Plan::builder(4000).batch_size(50).shuffle(true).distinct_by(Keys::new(keys)).build().unwrap();
    assert!(plan.stats().mates_kept.unwrap() < 0.03, "{:?}", plan.stats().mates_kept);
    let keys: Vec<u32> = (0..4000).map(|sample| sample % 4).collect();
    let plan = plan_of(1, &keys).shuffle(true).homogeneous_by(Keys::new(keys)).build().unwrap();
    assert!(plan.stats().mates_kept.unwrap() < 0.27, "{:?}", plan.stats().mates_kept);
    assert_ne!(plan.indices(0, 0).unwrap(), plan.at_epoch(1).indices(0, 0).unwrap());
}

/// Keys go with weights, epochs of any length and mixtures: a batch has one source.
#[test]
fn a_batch_has_one_source() {
    let keys: Vec<u32> = (0..300).map(|sample| u32::from(sample >= 200)).collect();
    let mix = Mix::new(&[200, 100], &[1.0, 1.0]).unwrap();
    for builder in [
        Plan::builder(300).mix(mix),
        Plan::builder(300).weights(Weights::new(&[1.0; 300]).unwrap()).num_samples(450),
        Plan::builder(300).num_samples(450),
    ] {
        let plan =
            builder.batch_size(8).shuffle(true).homogeneous_by(Keys::new(keys.clone())).build().unwrap();
        for epoch in 0..3 {
            let plan = plan.at_epoch(epoch);
            let mut count = 0;
            for step in 0..plan.steps() {
                let batch = plan.indices(step, 0).unwrap();
                count += batch.len() as u64;
                assert_eq!(
                    batch.iter().map(|&sample| keys[sample as usize]).collect::<BTreeSet<_>>().len(),
                    1
                );
            }
            assert_eq!(count, plan.draws());
        }
    }
}

/// The order is a promise.
#[test]
fn golden() {
    let keys = || Keys::new((0..20).map(|sample| sample % 3).collect());
    let builder = || Plan::builder(20).batch_size(4).shuffle(true).seed(3);
    let held = |plan: &Plan| (0..plan.steps()).map(|step| plan.indices(step, 0).unwrap()).collect::<Vec<_>>();
    let homogeneous = builder().homogeneous_by(keys()).build().unwrap();
    let pairs = Keys::new((0..20).map(|sample| sample / 2).collect());
    let distinct = builder().distinct_by(pairs).build().unwrap();
    let one_rank = [&homogeneous, &distinct].map(|plan| (plan.fingerprint(), held(plan)));
    // Three ranks, and two after the first step of three.
    let three = builder().homogeneous_by(keys()).world_size(3).build().unwrap();
    let two = three.in_world(2).unwrap().resume(&three.state(1)).unwrap();
    let steps =
        |plan: &Plan| (0..plan.steps()).map(|step| plan.step(step).unwrap().batches).collect::<Vec<_>>();
    check_golden(&serde_json::to_string(&(one_rank, steps(&three), steps(&two))).unwrap());
}

fn check_golden(text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/keys.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap().trim(), text);
}

#[test]
fn what_does_not_go_together() {
    let keys = || Keys::new(vec![0; 10]);
    let builder = || Plan::builder(10).batch_size(2).shuffle(true);
    let grouping = |builder: PlanBuilder| {
        builder.build().is_err_and(|error| is(&error, Kind::Argument, &["does not go with"]))
    };
    assert!(grouping(builder().homogeneous_by(keys()).distinct_by(keys())));
    assert!(grouping(builder().homogeneous_by(keys()).shard_size(4)));
    assert!(grouping(builder().distinct_by(keys()).shuffle(false)));
    assert!(grouping(builder().distinct_by(keys()).num_samples(4)));
    assert!(grouping(builder().homogeneous_by(keys()).sizes(Sizes::new(vec![1; 10])).balance(true)));
    assert!(grouping(builder().homogeneous_by(keys()).sizes(Sizes::new(vec![1; 10])).largest_first(true)));
    assert!(grouping(plan_of(2, &[0; 10]).distinct_by(keys()).shuffle(true)));
    assert!(grouping(builder().homogeneous_by(keys()).uneven(Uneven::Short)));
    assert!(!grouping(builder().homogeneous_by(keys()).uneven(Uneven::Short).drop_last(true)));
    let short = builder().homogeneous_by(Keys::new(vec![0; 9])).build();
    refused(short, Kind::Argument, &["homogeneous_by has 9 keys for 10 samples"]);
    let frequent = builder().distinct_by(Keys::new(vec![1, 0, 0, 0, 0, 0, 0, 2, 3, 4])).build();
    refused(frequent, Kind::Argument, &["6 samples have the key of sample 1", "5 batches of 2"]);
}
