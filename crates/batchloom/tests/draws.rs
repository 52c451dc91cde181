//! Draws: weights, epochs of any length, and mixtures, against slow and obvious definitions.

use std::collections::BTreeMap;

use batchloom::batching::{FixedSize, LengthBuckets, Packing, Rule, Sizes, TokenBudget};
use batchloom::draws::{Exhausted, Mix, Weights};
use batchloom::plan::PlanBuilder;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::{is, refused};
use crate::resume::deliver_through;

/// The samples of an epoch of a plan of batches of one, in the order of dealing.
fn drawn(plan: &Plan) -> Vec<u64> {
    (0..plan.steps()).flat_map(|step| plan.indices(step, 0).unwrap()).collect()
}

fn ones(builder: PlanBuilder) -> Plan {
    builder.batch_size(1).build().unwrap()
}

fn counted(samples: &[u64]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    samples.iter().for_each(|&sample| *counts.entry(sample).or_default() += 1);
    counts
}

/// The places of each sample are those at which it is drawn, and `fill` agrees with `indices`.
fn check_inverse(plan: &Plan) {
    let mut expected: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for step in 0..plan.steps() {
        for (index, sample) in (0..).zip(plan.indices(step, 0).unwrap()) {
            expected.entry(sample).or_default().push((step, index));
        }
    }
    for sample in 0..plan.samples() {
        let mut places: Vec<_> =
            plan.places(sample).unwrap().iter().map(|place| (place.step, place.index)).collect();
        places.sort_unstable();
        assert_eq!(places, expected.remove(&sample).unwrap_or_default(), "sample {sample}");
    }
    let all = drawn(plan);
    for start in [0, 1, plan.steps() / 2] {
        let mut out = vec![0; all.len().saturating_sub(start as usize).min(9)];
        if all.len() as u64 == plan.steps() && plan.options().sizes.is_none() {
            plan.fill(start, 0, 0, &mut out).unwrap();
            assert_eq!(out, all[start as usize..start as usize + out.len()]);
        }
    }
}

fn weights() -> impl Strategy<Value = Vec<f64>> {
    let weight = prop_oneof![
        Just(0.0),
        Just(1.0),
        0.001..10.0_f64,
        Just(1e-9),
        Just(1e6),
        Just(f64::MIN_POSITIVE),
        Just(1e300)
    ];
    prop::collection::vec(weight, 1..40)
        .prop_filter("some weight", |weights| weights.iter().any(|&w| w > 0.0))
}

/// The turns of sources by their definition: the one that is due first, at (turn + 1/2) / ratio.
fn turns(ratios: &[u64], counts: &[u64], draws: usize) -> Vec<(usize, u64)> {
    let mut taken = vec![0_u64; ratios.len()];
    let mut turns = Vec::new();
    while turns.len() < draws {
        let time =
            |source: usize, other: usize| (2 * u128::from(taken[source]) + 1) * u128::from(ratios[other]);
        let open = (0..ratios.len()).filter(|&source| ratios[source] > 0 && taken[source] < counts[source]);
        let Some(next) = open.min_by(|&a, &b| time(a, b).cmp(&time(b, a)).then(a.cmp(&b))) else { break };
        turns.push((next, taken[next]));
        taken[next] += 1;
    }
    turns
}

/// The sources that take turns are those expected, in that order; shuffled, they are as often there, and not far from it.
fn check_turns(sources_in_turn: &[usize], expected: &[usize], sources: usize, shuffle: bool) {
    if !shuffle {
        assert_eq!(sources_in_turn, expected);
        return;
    }
    let (mut ahead, mut most) = (vec![0_i64; sources], 0);
    for (&source, &other) in sources_in_turn.iter().zip(expected) {
        ahead[source] += 1;
        ahead[other] -= 1;
        most = most.max(ahead.iter().map(|count| count.abs()).max().unwrap_or(0));
    }
    assert_eq!((sources_in_turn.len(), ahead), (expected.len(), vec![0; sources]));
    assert!(most <= 1 + sources as i64 / 2, "{most} turns ahead of {sources} sources");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A sample comes as often as its weight says, to less than two, on average exactly; places are where it comes.
    // law: L1
    #[test]
    fn weighted_samples_come_as_often_as_they_should(weights in weights(), draws in 1_u64..300, seed in any::<u64>()) {
        let samples = weights.len() as u64;
        let total: f64 = weights.iter().sum();
        let builder = Plan::builder(samples).weights(Weights::new(&weights).unwrap()).num_samples(draws);
        let plan = ones(builder.shuffle(true).seed(seed));
        let mut sums = vec![0.0; weights.len()];
        const EPOCHS: u64 = 40;
        for epoch in 0..EPOCHS {
            let counts = counted(&drawn(&plan.at_epoch(epoch)));
            prop_assert_eq!(counts.values().sum::<u64>(), draws);
            for (sample, &weight) in weights.iter().enumerate() {
                let count = counts.get(&(sample as u64)).copied().unwrap_or(0) as f64;
                let expected = draws as f64 * weight / total;
                prop_assert!((count - expected).abs() < 2.0, "{} for {}", count, expected);
                prop_assert!(weight > 0.0 || count == 0.0);
                sums[sample] += count;
            }
        }
        for (sum, weight) in sums.iter().zip(&weights) {
            // The deviation of one count is at most that of two coins.
            let expected = draws as f64 * weight / total;
            let deviation = (EPOCHS as f64 * 0.5).sqrt();
            prop_assert!((sum - expected * EPOCHS as f64).abs() < 6.0 * deviation);
        }
        check_inverse(&plan);
        prop_assert_eq!(plan.stats().samples, draws);
    }

    /// Epochs of any length go on where the last one stopped: their draws, one after the other, are passes.
    // law: L1
    #[test]
    fn epochs_of_any_length_are_passes(samples in 1_u64..60, draws in 1_u64..150, shuffle in any::<bool>(), seed in any::<u64>()) {
        let plan = ones(Plan::builder(samples).num_samples(draws).shuffle(shuffle).seed(seed));
        let whole = ones(Plan::builder(samples).shuffle(shuffle).seed(seed));
        let epochs = 3 + 2 * samples / draws;
        let samples_of_all: Vec<u64> = (0..epochs).flat_map(|epoch| drawn(&plan.at_epoch(epoch))).collect();
        let passes = (0..).flat_map(|epoch| drawn(&whole.at_epoch(epoch)));
        prop_assert_eq!(&samples_of_all, &passes.take(samples_of_all.len()).collect::<Vec<_>>());
        check_inverse(&plan.at_epoch(1));
    }

    /// Sources take turns as their weights say, each in passes of its own, and an epoch ends where it should.
    // law: L1
    #[test]
    fn mixtures_are_their_definition(
        counts in prop::collection::vec(1_u64..30, 1..6),
        ratios in prop::collection::vec(0_u64..9, 6),
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        num_samples in prop::option::of(1_u64..90),
        shuffle in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let ratios = &ratios[..counts.len()];
        prop_assume!(ratios.iter().any(|&ratio| ratio > 0));
        let samples = counts.iter().sum();
        let floats: Vec<f64> = ratios.iter().map(|&ratio| ratio as f64).collect();
        let mix = Mix::new(&counts, &floats).unwrap().when_exhausted(exhausted);
        let plan = ones(Plan::builder(samples).mix(mix).num_samples(num_samples).shuffle(shuffle).seed(seed));
        let before: Vec<u64> = counts.iter().scan(0, |end, count| { *end += count; Some(*end - count) }).collect();
        let endless = vec![u64::MAX; counts.len()];
        let expected = match (num_samples, exhausted) {
            (Some(draws), _) => turns(ratios, &endless, draws as usize),
            (None, Exhausted::Renormalise) => turns(ratios, &counts, usize::MAX),
            (None, exhausted) => {
                // Until the time at which the source that is exhausted first, or last, has been gone through.
                let time = |source: &usize| counts[*source] as f64 / ratios[*source] as f64;
                let sources = (0..counts.len()).filter(|&source| ratios[source] > 0);
                let limit = match exhausted {
                    Exhausted::Stop => sources.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap(),
                    _ => sources.max_by(|a, b| time(a).total_cmp(&time(b))).unwrap(),
                };
                let due = |&(source, turn): &(usize, u64)| (2 * turn + 1) * ratios[limit] < 2 * counts[limit] * ratios[source];
                turns(ratios, &endless, 2000).into_iter().take_while(due).collect()
            }
        };
        let share: Vec<u64> = (0..counts.len()).map(|source| expected.iter().filter(|turn| turn.0 == source).count() as u64).collect();
        let mut passes: Vec<Vec<u64>> = vec![Vec::new(); counts.len()];
        for epoch in 0..3 {
            let samples = drawn(&plan.at_epoch(epoch));
            let sources: Vec<usize> = samples.iter().map(|&sample| before.partition_point(|&before| before <= sample) - 1).collect();
            check_turns(&sources, &expected.iter().map(|turn| turn.0).collect::<Vec<_>>(), counts.len(), shuffle);
            samples.iter().zip(&sources).for_each(|(&sample, &source)| passes[source].push(sample - before[source]));
            check_inverse(&plan.at_epoch(epoch));
        }
        // No sample comes again before all have come, through all epochs.
        for ((passes, &count), share) in passes.iter().zip(&counts).zip(share) {
            prop_assert_eq!(passes.len() as u64, 3 * share);
            for pass in passes.chunks(count as usize) {
                let mut pass = pass.to_vec();
                pass.sort_unstable();
                let whole = pass.len() as u64 == count;
                pass.dedup();
                prop_assert!(!whole || pass.len() as u64 == count);
                prop_assert_eq!(counted(&pass).len(), pass.len());
            }
        }
    }

    /// Weights change by schedule where it says, counted over all epochs, and epochs end where they should.
    // law: L1
    #[test]
    fn scheduled_mixtures_are_their_definition(
        counts in prop::collection::vec(1_u64..30, 1..5),
        first in prop::collection::vec(1_u64..9, 5),
        changes in prop::collection::btree_map(1_u64..200, prop::collection::vec(0_u64..9, 5), 1..4),
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        shuffle in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sources = counts.len();
        let floats = |ratios: &[u64]| ratios[..sources].iter().map(|&ratio| ratio as f64).collect::<Vec<_>>();
        prop_assume!(changes.values().all(|ratios| ratios[..sources].iter().any(|&ratio| ratio > 0)));
        let schedule: Vec<(u64, Vec<f64>)> = changes.iter().map(|(&amount, ratios)| (amount, floats(ratios))).collect();
        let mix = Mix::new(&counts, &floats(&first)).unwrap().when_exhausted(exhausted).schedule(&schedule).unwrap();
        let plan = ones(Plan::builder(counts.iter().sum()).mix(mix).shuffle(shuffle).seed(seed));
        let before: Vec<u64> = counts.iter().scan(0, |end, count| { *end += count; Some(*end - count) }).collect();
        let (mut drawn_in_run, mut passes) = (0, vec![Vec::new(); sources]);
        for epoch in 0..6 {
            let mut expected: Vec<usize> = Vec::new();
            let mut had = vec![0_u64; sources];
            loop {
                let now = changes.range(..=drawn_in_run).next_back().map_or(&first, |(_, ratios)| ratios);
                let now = &now[..sources];
                let next = changes.keys().copied().find(|&amount| amount > drawn_in_run).unwrap_or(u64::MAX);
                let left: Vec<u64> = (0..sources).map(|source| counts[source].saturating_sub(had[source])).collect();
                let time = |source: &usize| left[*source] as f64 / now[*source] as f64;
                let open = (0..sources).filter(|&source| now[source] > 0);
                let limit = match exhausted {
                    Exhausted::Stop => open.min_by(|a, b| time(a).total_cmp(&time(b))),
                    _ => open.max_by(|a, b| time(a).total_cmp(&time(b))),
                }.unwrap();
                let due = |&(source, turn): &(usize, u64)| match exhausted {
                    Exhausted::Renormalise => true,
                    _ => (2 * turn + 1) * now[limit] < 2 * left[limit] * now[source],
                };
                let endless = vec![u64::MAX; sources];
                let caps = if exhausted == Exhausted::Renormalise { &left } else { &endless };
                let rest: Vec<_> = turns(now, caps, 2000).into_iter().take_while(due).collect();
                let taken = rest.len().min((next - drawn_in_run) as usize);
                rest[..taken].iter().for_each(|&(source, _)| { had[source] += 1; expected.push(source); });
                drawn_in_run += taken as u64;
                if taken == rest.len() {
                    break;
                }
            }
            let plan = plan.at_epoch(epoch);
            let samples_drawn = drawn(&plan);
            let of = |sample: u64| before.partition_point(|&before| before <= sample) - 1;
            // Shuffled, a stretch that is cut has one turn more or less of a source, which moves all that come after it.
            if !shuffle {
                prop_assert_eq!(&samples_drawn.iter().map(|&sample| of(sample)).collect::<Vec<_>>(), &expected);
            }
            samples_drawn.iter().for_each(|&sample| passes[of(sample)].push(sample));
            check_inverse(&plan);
        }
        for (passes, &count) in passes.iter().zip(&counts) {
            passes.chunks(count as usize).for_each(|pass| assert_eq!(counted(pass).len(), pass.len()));
        }
    }

    /// By tokens, weights change by schedule to a sample, and no source repeats a sample early.
    // law: L1
    #[test]
    fn measured_mixtures_change_by_schedule(
        sizes in prop::collection::vec(prop::collection::vec(1_u32..20, 5..30), 2..4),
        from in 1_u64..600,
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        seed in any::<u64>(),
    ) {
        let counts: Vec<u64> = sizes.iter().map(|sizes| sizes.len() as u64).collect();
        let all: Vec<u32> = sizes.concat();
        let mut last = vec![0.0; counts.len()];
        last[1] = 1.0;
        let mix = Mix::new(&counts, &vec![1.0; counts.len()]).unwrap().when_exhausted(exhausted);
        let mix = mix.measured("tokens", all.clone()).unwrap().schedule(&[(from, last)]).unwrap();
        let plan = ones(Plan::builder(all.len() as u64).mix(mix).shuffle(true).seed(seed));
        let source = |sample: u64| usize::from(sample >= counts[0]) + usize::from(sample >= counts[0] + counts[1]);
        let (mut had, mut passes) = (0_u64, vec![Vec::new(); counts.len()]);
        for epoch in 0..8 {
            for sample in drawn(&plan.at_epoch(epoch)) {
                // To a sample: where an epoch begins, each source may have had one more or less than its share.
                let slack = 20 * counts.len() as u64;
                prop_assert!(had < from + slack || source(sample) == 1, "{} at {}", source(sample), had);
                had += u64::from(all[sample as usize]);
                passes[source(sample)].push(sample);
            }
            check_inverse(&plan.at_epoch(epoch));
        }
        for (passes, &count) in passes.iter().zip(&counts) {
            passes.chunks(count as usize).for_each(|pass| assert_eq!(counted(pass).len(), pass.len()));
        }
    }

    /// Weights that are replaced at any steps of a run, through worlds and rules: what was delivered stays, and each source
    /// goes on through its passes.
    // law: L5
    #[test]
    fn replaced_weights_go_on(
        counts in prop::collection::vec(5_u64..40, 2..4),
        stops in prop::collection::vec((0.0..1.0_f64, prop::collection::vec(1_u64..9, 4)), 3),
        rule in 0_usize..4,
        by_tokens in any::<bool>(),
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        seed in any::<u64>(),
    ) {
        let samples: u64 = counts.iter().sum();
        let sizes: Vec<u32> = (0..samples).map(|sample| 1 + (sample * 7 % 13) as u32).collect();
        let rule: Rule = match rule {
            0 => FixedSize::new(3).unwrap().into(),
            1 => TokenBudget::new(40).unwrap().into(),
            2 => Packing::new(40).unwrap().into(),
            _ => LengthBuckets::new(4).unwrap().into(),
        };
        let built = |ratios: &[u64], world_size: u32| {
            let weights: Vec<f64> = ratios[..counts.len()].iter().map(|&ratio| ratio as f64).collect();
            let mix = Mix::new(&counts, &weights).unwrap().when_exhausted(exhausted);
            let mix = if by_tokens { mix.measured("tokens", sizes.clone()).unwrap() } else { mix };
            let builder = Plan::builder(samples).mix(mix).sizes(Sizes::new(sizes.clone())).rule(rule.clone());
            builder.shuffle(true).seed(seed).uneven(Uneven::Short).world_size(world_size).build().unwrap()
        };
        let mut delivered: Vec<u64> = Vec::new();
        let take = |plan: &Plan, step: u64, delivered: &mut Vec<u64>| {
            for rank in (0..plan.world_size()).filter(|&rank| step < plan.steps_of(rank)) {
                delivered.extend(plan.indices(step, rank).unwrap());
            }
        };
        let (mut plan, mut ratios, mut epoch) = (built(&[1; 4], 4), vec![1; 4], 0);
        for ((share, next), world_size) in stops.iter().zip([3, 8, 4]) {
            let stop = (plan.steps() as f64 * share) as u64;
            (0..stop).for_each(|step| take(&plan, step, &mut delivered));
            let state = plan.state(stop);
            let text = serde_json::to_string(&state).unwrap();
            let state = serde_json::from_str(&text).unwrap();
            // The same weights change nothing; others hold from the next pool on.
            let same = built(&ratios, plan.world_size()).resume(&state).unwrap();
            if stop < plan.steps() {
                prop_assert_eq!(same.epoch(), plan.epoch());
                for step in stop..plan.steps() {
                    prop_assert_eq!(same.step(step - stop).unwrap().batches, plan.step(step).unwrap().batches);
                }
            }
            plan = built(next, world_size).resume(&state).unwrap();
            ratios = next.clone();
            prop_assert!(plan.epoch() >= epoch);
            epoch = plan.epoch();
            // A state of the changed run goes on as that run.
            let again = built(next, world_size).resume(&plan.state(1.min(plan.steps() - 1))).unwrap();
            let taken = 1.min(plan.steps() - 1);
            prop_assert_eq!(again.step(0).unwrap().batches, plan.step(taken).unwrap().batches);
        }
        for _ in 0..3 {
            (0..plan.steps()).for_each(|step| take(&plan, step, &mut delivered));
            plan = built(&ratios, 4).resume(&plan.state(plan.steps())).unwrap();
        }
        let mut first = 0;
        for &count in &counts {
            let times: Vec<usize> = (first..first + count)
                .map(|sample| delivered.iter().filter(|&&other| other == sample).count())
                .collect();
            let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", times);
            first += count;
        }
    }

    /// By tokens, the share of a source is right to its longest samples at every draw, and epochs are passes.
    // law: L1
    #[test]
    fn measured_mixtures_hold_their_shares(
        sizes in prop::collection::vec(prop::collection::vec(0_u32..20, 1..30), 1..5),
        ratios in prop::collection::vec(1_u64..9, 5),
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        shuffle in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let counts: Vec<u64> = sizes.iter().map(|sizes| sizes.len() as u64).collect();
        let ratios = &ratios[..counts.len()];
        let floats: Vec<f64> = ratios.iter().map(|&ratio| ratio as f64).collect();
        let all: Vec<u32> = sizes.concat();
        let mix = Mix::new(&counts, &floats).unwrap().when_exhausted(exhausted).measured("tokens", all.clone());
        let Ok(mix) = mix else {
            prop_assert!(sizes.iter().any(|sizes| sizes.iter().sum::<u32>() == 0));
            return Ok(());
        };
        let before: Vec<u64> = counts.iter().scan(0, |end, count| { *end += count; Some(*end - count) }).collect();
        let source = |sample: u64| before.partition_point(|&before| before <= sample) - 1;
        let samples = all.len() as u64;
        let builder = Plan::builder(samples).mix(mix).shuffle(shuffle).seed(seed);
        let plan = ones(builder);
        let mut passes: Vec<Vec<u64>> = vec![Vec::new(); counts.len()];
        let total: u64 = ratios.iter().sum();
        for epoch in 0..4 {
            let samples_drawn = drawn(&plan.at_epoch(epoch));
            prop_assert_eq!(samples_drawn.len() as u64, plan.at_epoch(epoch).draws());
            let mut had = vec![0_u64; counts.len()];
            for &sample in &samples_drawn {
                let longest = 20.0;
                let all_had: u64 = had.iter().sum();
                let open = exhausted != Exhausted::Renormalise;
                for (had, &ratio) in had.iter().zip(ratios).filter(|_| open) {
                    let expected = all_had as f64 * ratio as f64 / total as f64;
                    prop_assert!((*had as f64 - expected).abs() <= 2.0 * longest);
                }
                had[source(sample)] += u64::from(all[sample as usize]);
                passes[source(sample)].push(sample);
            }
            if exhausted == Exhausted::Renormalise {
                let mut once = samples_drawn.clone();
                once.sort_unstable();
                prop_assert_eq!(once, (0..samples).collect::<Vec<_>>());
            }
            check_inverse(&plan.at_epoch(epoch));
        }
        for (passes, &count) in passes.iter().zip(&counts) {
            for pass in passes.chunks(count as usize) {
                prop_assert_eq!(counted(pass).len(), pass.len());
            }
        }
        if exhausted == Exhausted::Stop {
            // Some source is gone through exactly once in each epoch.
            let epochs = passes.iter().zip(&counts).any(|(passes, &count)| passes.len() as u64 == 4 * count);
            prop_assert!(epochs);
        }
    }

    /// Batches by classes hold as many samples of each, to one.
    #[test]
    fn balanced_batches_hold_as_many_of_each_class(
        classes in prop::collection::vec(-2_i64..3, 1..60),
        batch_size in 1_u64..20,
        num_samples in 1_u64..200,
    ) {
        let samples = classes.len() as u64;
        let builder = Plan::builder(samples).mix(Mix::balanced(&classes).unwrap()).num_samples(num_samples);
        let plan = builder.shuffle(true).batch_size(batch_size).build().unwrap();
        let kinds = counted(&classes.iter().map(|&class| (class + 9) as u64).collect::<Vec<_>>()).len() as u64;
        for step in 0..plan.steps() {
            let batch = plan.indices(step, 0).unwrap();
            let held = counted(&batch.iter().map(|&sample| (classes[sample as usize] + 9) as u64).collect::<Vec<_>>());
            let (least, most) = (batch.len() as u64 / kinds, (batch.len() as u64).div_ceil(kinds));
            prop_assert!(held.values().all(|&count| count >= least.max(1).min(count) && count <= most + 1));
            prop_assert!(held.len() as u64 >= kinds.min(batch.len() as u64) || kinds > batch.len() as u64);
        }
        check_inverse(&plan);
    }

    /// A mixture of one is the dataset alone, under every rule; every rule delivers what is drawn, and resumes.
    // law: L1
    #[test]
    fn every_rule_delivers_what_is_drawn(
        sizes in prop::collection::vec(1_u32..30, 2..80),
        cut in any::<prop::sample::Index>(),
        rule in prop_oneof![
            (1_u64..9).prop_map(|size| Rule::from(FixedSize::new(size).unwrap())),
            (1_u64..9).prop_map(|size| LengthBuckets::new(size).unwrap().into()),
            (30_u64..90).prop_map(|most| TokenBudget::new(most).unwrap().into()),
            (30_u64..90).prop_map(|most| Packing::new(most).unwrap().into()),
        ],
        by_tokens in any::<bool>(),
        repeat in any::<bool>(),
        worlds in prop::collection::vec((1_u32..5, 0_u64..4), 0..4),
        seed in any::<u64>(),
    ) {
        let samples = sizes.len() as u64;
        let cut = 1 + cut.index(sizes.len() - 1) as u64;
        let exhausted = if repeat { Exhausted::Repeat } else { Exhausted::Stop };
        let mix = |counts: &[u64], weights: &[f64]| {
            let mix = Mix::new(counts, weights).unwrap().when_exhausted(exhausted);
            if by_tokens { mix.measured("tokens", sizes.clone()).unwrap() } else { mix }
        };
        let builder = |mix: Option<Mix>| {
            let builder = Plan::builder(samples).rule(rule.clone()).sizes(Sizes::new(sizes.clone())).mix(mix);
            builder.shuffle(true).seed(seed).uneven(Uneven::Short).epoch(1)
        };
        let (alone, of_one) = (builder(None).build().unwrap(), builder(Some(mix(&[samples], &[0.3]))).build().unwrap());
        prop_assert_eq!(drawn(&alone), drawn(&of_one));
        let builder = || builder(Some(mix(&[cut, samples - cut], &[2.0, 1.0])));
        let plan = builder().build().unwrap();
        let expected = counted(&drawn(&plan));
        prop_assert_eq!(expected.values().sum::<u64>(), plan.draws());
        check_inverse(&plan);
        let stats = plan.stats();
        prop_assert_eq!((stats.samples, stats.dropped, stats.repeated), (plan.draws(), 0, 0));
        // Any chain of worlds delivers each draw once.
        prop_assert_eq!(counted(&deliver_through(builder, worlds).concat()), expected);
    }
}

/// The chi-squared distance of counts from equal ones, by degrees of freedom: about 1, if counts are random.
fn unevenness(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|&count| (count as f64 - mean).powi(2) / mean).sum::<f64>() / (counts.len() - 1) as f64
}

/// Draws of sources, and of epochs, do not depend on each other.
#[test]
fn streams_of_draws_do_not_correlate() {
    let mix = Mix::new(&[16, 16], &[1.0, 1.0]).unwrap();
    let plan = ones(Plan::builder(32).mix(mix).shuffle(true).seed(5));
    let (mut sources, mut epochs) = (vec![0_u64; 256], vec![0_u64; 256]);
    let mut last: Option<Vec<u64>> = None;
    for epoch in 0..4000 {
        let samples = drawn(&plan.at_epoch(epoch));
        // Each source has its own order, whichever comes first.
        let (first, second): (Vec<u64>, Vec<u64>) = samples.into_iter().partition(|&sample| sample < 16);
        for turn in 0..16 {
            sources[(16 * first[turn] + second[turn] - 16) as usize] += 1;
            if let Some(last) = &last {
                epochs[(16 * last[turn] + first[turn]) as usize] += 1;
            }
        }
        last = Some(first);
    }
    assert!((0.7..1.4).contains(&unevenness(&sources)), "{}", unevenness(&sources));
    assert!((0.7..1.4).contains(&unevenness(&epochs)), "{}", unevenness(&epochs));
    // Which of several samples of half a chance come is as if coins were tossed.
    let plan = Plan::builder(8).weights(Weights::new(&[1.0; 8]).unwrap()).num_samples(4).shuffle(true);
    let plan = ones(plan.seed(9));
    let mut pairs = vec![0_u64; 64];
    for epoch in 0..20_000 {
        let counts = counted(&drawn(&plan.at_epoch(epoch)));
        for a in counts.keys() {
            counts.keys().filter(|b| *b > a).for_each(|b| pairs[(8 * a + b) as usize] += 1);
        }
    }
    // Neighbours of one stretch never come together, all others do.
    let never = (0..8).step_by(2).map(|first| pairs[8 * first + first + 1]).collect::<Vec<_>>();
    let others: Vec<u64> = (0..8_usize)
        .flat_map(|a| (a + 1..8).map(move |b| (a, b)))
        .filter(|&(a, b)| !(a % 2 == 0 && b == a + 1))
        .map(|(a, b)| pairs[8 * a + b])
        .collect();
    assert_eq!(never, [0; 4]);
    assert!(unevenness(&others) < 2.0, "{}", unevenness(&others));
}

/// A thousand sources of a billion samples each: a plan, any batch and a state in no time.
#[test]
fn a_thousand_sources_of_a_billion_samples() {
    let weights: Vec<f64> = (1..=1000).map(f64::from).collect();
    let mix = Mix::new(&[1_000_000_000; 1000], &weights).unwrap();
    let plan = Plan::builder(1_000_000_000_000).mix(mix).shuffle(true).batch_size(64).build().unwrap();
    let batch = plan.indices(plan.steps() / 2, 0).unwrap();
    let place = plan.places(batch[7]).unwrap();
    assert!(place.iter().any(|place| (place.step, place.index) == (plan.steps() / 2, 7)));
    assert!(serde_json::to_string(&plan.state(77)).unwrap().len() < 8 << 10);
}

/// Weights that make no sense are refused, before anything is drawn.
#[test]
fn draws_that_make_no_sense() {
    let wrong = |weights: &[f64], words: &[&str]| refused(Weights::new(weights), Kind::Argument, words);
    wrong(&[1.0, -0.5], &["the weight of sample 1", "-0.5"]);
    wrong(&[f64::NAN], &["the weight of sample 0", "NaN"]);
    wrong(&[f64::INFINITY], &["the weight of sample 0", "inf"]);
    wrong(&[0.0, 0.0], &["weights of 2 samples", "sum to 0"]);
    wrong(&[], &["weights of 0 samples", "sum to 0"]);
    refused(Mix::new(&[1], &[1.0, 2.0]), Kind::Argument, &["2 weights for 1 sources"]);
    refused(Mix::new(&[1, 0], &[1.0, 2.0]), Kind::Argument, &["source 1 has no samples"]);
    assert!(Mix::new(&[1, 0], &[1.0, 0.0]).is_ok());
    let measured = Mix::new(&[2], &[1.0]).unwrap().measured("tokens", vec![1]);
    refused(measured, Kind::Argument, &["1 numbers of tokens for 2 samples"]);
    let weights = || Weights::new(&[1.0; 10]).unwrap();
    let builder = || Plan::builder(10).batch_size(2).shuffle(true);
    let is_refused = |builder: PlanBuilder| {
        builder.build().is_err_and(|error| is(&error, Kind::Argument, &["does not go with"]))
    };
    assert!(is_refused(builder().weights(weights()).shuffle(false)));
    assert!(is_refused(builder().num_samples(4).shuffle(batchloom::order::Shuffle::Runs)));
    assert!(is_refused(builder().num_samples(4).shard_size(4)));
    assert!(is_refused(builder().weights(weights()).mix(Mix::new(&[10], &[1.0]).unwrap())));
    refused(builder().num_samples(0).build(), Kind::Argument, &["num_samples is 0"]);
    let many = Plan::builder(9).shuffle(true).weights(weights()).build();
    refused(many, Kind::Argument, &["10 weights", "9 samples"]);
    // Weights of sources may change anywhere, and those of samples between epochs.
    let state = |steps, builder: PlanBuilder| builder.build().unwrap().state(steps);
    let other =
        || builder().weights(Weights::new(&[2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).unwrap());
    assert!(other().build().unwrap().resume(&state(0, builder().weights(weights()))).is_ok());
    let resumed = other().build().unwrap().resume(&state(1, builder().weights(weights())));
    refused(resumed, Kind::State, &["the epoch under way was drawn by weights", &weights().digest()]);
}

/// Schedules that go back, or give weights that make no sense.
#[test]
fn schedules_that_make_no_sense() {
    let schedule = |changes: &[(u64, Vec<f64>)]| Mix::new(&[5, 5], &[1.0, 1.0]).unwrap().schedule(changes);
    for (changes, words) in [
        (vec![(4, vec![1.0, 2.0]), (4, vec![2.0, 1.0])], ["from 4 on", "increase"]),
        (vec![(0, vec![1.0, 2.0])], ["from 0 on", "increase"]),
        (vec![(4, vec![1.0])], ["1 weights for 2 sources", "from 4 on"]),
        (vec![(4, vec![1.0, f64::NAN])], ["source 1", "NaN"]),
        (vec![(4, vec![0.0, 0.0])], ["2 sources", "0"]),
    ] {
        let error = schedule(&changes).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "{error}"));
    }
    let empty = Mix::new(&[5, 0], &[1.0, 0.0]).unwrap().schedule(&[(4, vec![1.0, 1.0])]).unwrap_err();
    assert!(empty.to_string().contains("source 1 has no samples"), "{empty}");
}

/// Weights of sources that a state does not hold, or holds damaged; and changes that would move what came first.
#[test]
fn weights_of_sources_in_states() {
    let builder = || Plan::builder(10).batch_size(2).shuffle(true);
    let mixed = |weights: &[f64]| builder().mix(Mix::new(&[6, 4], weights).unwrap());
    let plan = mixed(&[1.0, 2.0]).build().unwrap();
    let damaged = |text: &str| -> String {
        let mut state = serde_json::to_value(plan.state(1)).unwrap();
        state["sources"] = serde_json::from_str(text).unwrap();
        match serde_json::from_value(state) {
            Ok(state) => plan.resume(&state).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (text, word) in [
        ("null", "no weights of sources"),
        ("[]", "missing"),
        ("[[0, 0, []]]", "increase from 0"),
        ("[[0, 0, [[3, \"AAAAgAAAAIA\"]]]]", "increase from 0"),
        ("[[1, 0, [[0, \"AAAAgAAAAIA\"]]]]", "out of order"),
        ("[[0, 0, [[0, \"AAAAgAAA\"]]]]", "base64"),
        ("[[0, 0, [[0, \"AAAAAAAAAAA\"]]]]", "above 0"),
        ("[[0, 0, [[0, \"AAAAgA\"]]]]", "2 sources"),
    ] {
        assert!(damaged(text).contains(word), "{}", damaged(text));
    }
    let largest = |weights: &[f64]| {
        let sizes = Sizes::new((1..=10).collect::<Vec<u32>>());
        mixed(weights).sizes(sizes).rule(TokenBudget::new(12).unwrap()).largest_first(true).build().unwrap()
    };
    let state = largest(&[1.0, 2.0]).state(1);
    let resumed = largest(&[2.0, 1.0]).resume(&state);
    refused(resumed, Kind::Argument, &["largest_first does not go with other weights"]);
    assert!(largest(&[2.0, 1.0]).resume(&largest(&[1.0, 2.0]).state(0)).is_ok());
}

/// A change of weights that must survive releases: by schedule, and between a save and a load.
#[test]
fn golden_changes() {
    let sizes: Vec<u32> = (0..20).map(|sample| 1 + sample * 7 % 13).collect();
    let mix = |weights: &[f64]| Mix::new(&[12, 5, 3], weights).unwrap();
    let scheduled = |mix: Mix| mix.schedule(&[(7, vec![0.0, 1.0, 1.0]), (40, vec![3.0, 1.0, 0.0])]).unwrap();
    let lines: Vec<String> = [false, true]
        .into_iter()
        .map(|measured| {
            let by = |mix: Mix| if measured { mix.measured("tokens", sizes.clone()).unwrap() } else { mix };
            let built = |mix: Mix| ones(Plan::builder(20).mix(mix).shuffle(true).seed(11));
            let plan = built(scheduled(by(mix(&[0.5, 0.3, 0.2]))));
            let epochs: Vec<_> = (0..4).map(|epoch| drawn(&plan.at_epoch(epoch))).collect();
            let before = built(by(mix(&[0.5, 0.3, 0.2])));
            let after = built(by(mix(&[0.1, 0.1, 0.8]))).resume(&before.state(6)).unwrap();
            serde_json::json!([epochs, drawn(&after), after.state(1)]).to_string()
        })
        .collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/changes.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

/// The draws that must survive releases.
#[test]
fn golden() {
    let sizes: Vec<u32> = (0..20).map(|sample| 1 + sample * 7 % 13).collect();
    let mix = || Mix::new(&[12, 5, 3], &[0.5, 0.3, 0.2]).unwrap();
    let builders = [
        Plan::builder(20)
            .weights(Weights::new(&sizes.iter().map(|&size| f64::from(size)).collect::<Vec<_>>()).unwrap()),
        Plan::builder(20).num_samples(13),
        Plan::builder(20).mix(mix()),
        Plan::builder(20).mix(mix().when_exhausted(Exhausted::Repeat)),
        Plan::builder(20).mix(mix().when_exhausted(Exhausted::Renormalise)),
        Plan::builder(20).mix(mix().measured("tokens", sizes.clone()).unwrap()),
        Plan::builder(20)
            .mix(mix().measured("tokens", sizes.clone()).unwrap().when_exhausted(Exhausted::Repeat)),
        Plan::builder(20)
            .mix(Mix::balanced(&[0, 1, 1, 2, 1, 1, 0, 1, 1, 1, 1, 0, 1, 2, 1, 1, 1, 1, 1, 1]).unwrap()),
    ];
    let lines: Vec<String> = builders
        .into_iter()
        .map(|builder| {
            let plan = ones(builder.shuffle(true).seed(11));
            let epochs: Vec<_> = (0..2).map(|epoch| drawn(&plan.at_epoch(epoch))).collect();
            serde_json::json!([plan.fingerprint(), epochs]).to_string()
        })
        .collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/draws.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
