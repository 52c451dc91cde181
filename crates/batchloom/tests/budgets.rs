//! Several budgets at once: no batch exceeds one (L6), every sample comes once (L1), batches are by definition, and bins
//! are nearly as few as the bound of linear programming.

use std::collections::BTreeMap;

use batchloom::batching::{
    Budgets, Count, Oversize, PackedOversize, Packing, PackingOrder, Pool, Rule, Sizes, TokenBudget,
};
use batchloom::plan::{BudgetStats, Parts};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::option;
use proptest::prelude::*;

use crate::errors::refused;
use crate::rules::seen;

/// A number that looks random, for a sample.
fn mixed(sample: u64, salt: u64) -> u64 {
    let mixed = (sample ^ salt << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

/// Numbers that most samples have none of.
fn images(samples: usize) -> Vec<u32> {
    (0..samples as u64)
        .map(|sample| if mixed(sample, 1).is_multiple_of(3) { mixed(sample, 2) as u32 % 9 } else { 0 })
        .collect()
}

/// Samples of these lengths, which also have names: `length`, `images`, which most have none of, and `bonds`.
pub(crate) fn sizes(lengths: &[u32]) -> Sizes {
    let bonds: Vec<u32> =
        (0..).zip(lengths).map(|(sample, &length)| length / 2 + mixed(sample, 3) as u32 % 8).collect();
    let sizes = Sizes::new(lengths.to_vec()).named("length").unwrap();
    sizes.with("images", images(lengths.len())).unwrap().with("bonds", bonds).unwrap()
}

/// Rules with budgets for these samples that none of them exceeds unless it is longer than the lengths that policies cut.
pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let budgets = (option::of(30_u64..300), option::of(8_u64..40), option::of(110_u64..500));
    let budgets = budgets.prop_filter_map("no budget", |(length, images, bonds)| {
        let each = [("length", length), ("images", images), ("bonds", bonds)];
        Budgets::new(each.into_iter().filter_map(|(name, limit)| Some((name, limit?)))).ok()
    });
    let pool = prop_oneof![(1_u64..50).prop_map(Pool::Of), Just(Pool::Auto), Just(Pool::All)];
    let policies = vec![PackedOversize::Split, PackedOversize::Truncate, PackedOversize::Drop];
    let packing = (prop::sample::select(policies), any::<bool>());
    let greedy = (any::<bool>(), option::of(0_u32..30), 1_u32..9, crate::rules::oversize());
    (budgets, packing, greedy, option::of(1_u32..9), pool, any::<bool>()).prop_map(
        |(budgets, (policy, decreasing), (real, spread, multiple, oversize), samples, pool, packs)| {
            if packs {
                let order = if decreasing { PackingOrder::Decreasing } else { PackingOrder::Random };
                let rule =
                    Packing::within(budgets).unwrap().oversize(policy).order(order).pool(pool).unwrap();
                return samples.map_or(rule.clone(), |samples| rule.max_samples(samples).unwrap()).into();
            }
            let rule = TokenBudget::within(budgets).oversize(oversize).pool(pool).unwrap();
            let rule = rule.multiple_of(multiple).unwrap();
            let rule = rule.count(if real { Count::Real } else { Count::Padded });
            let rule = spread.map_or(rule.clone(), |spread| rule.max_length_spread(spread));
            samples.map_or(rule.clone(), |samples| rule.max_samples(samples.into()).unwrap()).into()
        },
    )
}

/// The options of a rule, by their names.
fn option(rule: &Rule, name: &str) -> String {
    let text = rule.to_string();
    let found = text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default().to_owned()
}

/// The sizes of the parts of a batch by a budget, by definition.
fn of_budget(parts: &Parts, sizes: &Sizes, name: &str) -> Vec<u64> {
    let values = sizes.of(name).unwrap();
    let each = parts.samples.iter().zip(&parts.sizes);
    let size =
        |(&sample, &taken): (&u64, &u32)| if name == "length" { taken } else { values[sample as usize] };
    each.map(size).map(u64::from).collect()
}

/// The elements that a budget counts of a batch, by definition.
fn counted(parts: &Parts, rule: &Rule, sizes: &Sizes, name: &str) -> u64 {
    let each = of_budget(parts, sizes, name);
    let pads = name == "length" && !matches!(rule, Rule::Packing(_)) && option(rule, "count") != "real";
    match pads {
        false => each.iter().sum(),
        true => {
            let multiple_of = option(rule, "multiple_of").parse().unwrap_or(1);
            each.iter().max().map_or(0, |most| most.next_multiple_of(multiple_of)) * each.len() as u64
        }
    }
}

fn uneven() -> impl Strategy<Value = Uneven> {
    prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)]
}

proptest! {
    /// No batch exceeds a budget, on any rank, but for one with a single sample that the user wanted alone.
    // law: L6
    #[test]
    fn no_budget_is_exceeded(lengths in crate::rules::sizes(), rule in rule(), shuffle in any::<bool>(), balance in any::<bool>(), world_size in 1_u32..5, uneven in uneven(), seed in any::<u64>()) {
        let sizes = sizes(&lengths);
        let plan = Plan::builder(sizes.len()).sizes(sizes.clone()).rule(rule.clone()).shuffle(shuffle).seed(seed);
        let Ok(plan) = plan.balance(balance).uneven(uneven).world_size(world_size).build() else { return Ok(()) };
        for parts in seen(&plan).iter().flatten() {
            for (name, limit) in rule.budgets().unwrap().iter() {
                let alone = parts.samples.len() == 1 && option(&rule, "oversize") == "alone";
                let found = counted(parts, &rule, &sizes, name);
                prop_assert!(alone || found <= limit, "{} of {} in {:?}", found, name, parts);
            }
        }
    }

    /// Statistics are a recount, and name the budget that is fullest.
    // law: L1
    #[test]
    fn stats_are_a_recount_by_budget(lengths in crate::rules::sizes(), rule in rule(), shuffle in any::<bool>(), world_size in 1_u32..5, banned in prop::collection::vec(0_u64..160, 0..4)) {
        let sizes = sizes(&lengths);
        let banned: Vec<u64> = banned.into_iter().filter(|&sample| sample < sizes.len()).collect();
        let plan = Plan::builder(sizes.len()).sizes(sizes.clone()).rule(rule.clone()).shuffle(shuffle);
        let Ok(plan) = plan.ban(banned.clone()).world_size(world_size).build() else { return Ok(()) };
        let stats: BudgetStats = plan.stats().budgets.unwrap();
        let batches: Vec<Parts> = seen(&plan).into_iter().flatten().collect();
        let mut bound = 0;
        for (found, (name, limit)) in stats.budgets.iter().zip(rule.budgets().unwrap().iter()) {
            let data = batches.iter().map(|parts| {
                let is_data = |&(sample, _): &(&u64, u64)| !banned.contains(sample);
                parts.samples.iter().zip(of_budget(parts, &sizes, name)).filter(is_data).map(|(_, size)| size).sum::<u64>()
            });
            let real: u64 = data.sum();
            let pads = name == "length" && !matches!(rule, Rule::Packing(_)) && option(&rule, "count") != "real";
            let padded: u64 = batches.iter().map(|parts| counted(parts, &rule, &sizes, name)).sum();
            prop_assert_eq!(&found.name, name);
            prop_assert_eq!(found.sum, if pads { padded } else { real });
            prop_assert!((found.fill - found.sum as f64 / (limit * batches.len() as u64) as f64).abs() < 1e-9);
            bound = bound.max(real.div_ceil(limit));
        }
        let fullest = stats.budgets.iter().map(|budget| budget.fill).fold(0.0, f64::max);
        let binding = stats.budgets.iter().find(|budget| budget.name == stats.binding).unwrap();
        prop_assert_eq!((stats.binding_fill, binding.fill), (fullest, fullest));
        prop_assert_eq!(stats.lp_bound, bound);
        prop_assert_eq!(plan.stats().efficiency, Some(fullest));
    }

    /// Batches of `TokenBudget` are those of the greedy definition: from the longest sample on, as many as fit.
    // law: L2
    #[test]
    fn greedy_by_definition(lengths in crate::rules::sizes(), rule in rule()) {
        let Rule::TokenBudget(_) = &rule else { return Ok(()) };
        let sizes = sizes(&lengths);
        let Ok(plan) = Plan::builder(sizes.len()).sizes(sizes.clone()).rule(rule.clone()).build() else { return Ok(()) };
        let cut = option(&rule, "oversize") == "truncate";
        let multiple_of: u64 = option(&rule, "multiple_of").parse().unwrap_or(1);
        let real = option(&rule, "count") == "real";
        let of_length = rule.budgets().unwrap().iter().find(|(name, _)| *name == "length").map(|(_, limit)| limit);
        let most = of_length.filter(|_| cut).map_or(u64::MAX, |limit| if real { limit } else { limit - limit % multiple_of });
        let part = |&sample: &u64| (sample, 0, u64::from(lengths[sample as usize]).min(most) as u32);
        let batch = |samples: &[u64]| {
            let (samples, (starts, sizes)) = samples.iter().map(part).map(|(sample, start, size)| (sample, (start, size))).unzip();
            let mut parts = Parts::default();
            (parts.samples, parts.starts, parts.sizes) = (samples, starts, sizes);
            parts
        };
        let fits = |samples: &[u64]| {
            let parts = batch(samples);
            let spread = u64::from(parts.sizes.iter().max().unwrap() - parts.sizes.iter().min().unwrap());
            rule.budgets().unwrap().iter().all(|(name, limit)| counted(&parts, &rule, &sizes, name) <= limit)
                && option(&rule, "max_length_spread").parse().is_ok_and(|most: u64| spread <= most) | option(&rule, "max_length_spread").is_empty()
                && option(&rule, "max_samples").parse().is_ok_and(|most: usize| samples.len() <= most) | option(&rule, "max_samples").is_empty()
        };
        let mut sorted: Vec<u64> = (0..sizes.len()).collect();
        sorted.sort_by_key(|sample| std::cmp::Reverse(part(sample).2));
        let (fitting, alone): (Vec<u64>, Vec<u64>) = sorted.into_iter().partition(|&sample| fits(&[sample]));
        let mut expected: Vec<Vec<u64>> = if option(&rule, "oversize") == "drop" { Vec::new() } else { alone.iter().map(|&sample| vec![sample]).collect() };
        let first = expected.len();
        for sample in fitting {
            match expected.get_mut(first..).and_then(<[_]>::last_mut) {
                Some(last) if fits(&[&last[..], &[sample]].concat()) => last.push(sample),
                _ => expected.push(vec![sample]),
            }
        }
        let found: Vec<Vec<u64>> = seen(&plan).into_iter().flatten().map(|parts| parts.samples).collect();
        prop_assert_eq!(found, expected);
    }

    /// Bins of any samples are at most a little more than twice as many as any division needs.
    #[test]
    fn bins_are_few(rows in prop::collection::vec((0_u32..=100, 0_u32..=100, prop_oneof![3 => Just(0_u32), 1 => 1_u32..=100]), 1..200), seed in any::<u64>(), shuffle in any::<bool>()) {
        let column = |place: usize| rows.iter().map(|row| [row.0, row.1, row.2][place]).collect::<Vec<u32>>();
        let sizes = Sizes::new(column(0)).named("a").unwrap().with("b", column(1)).unwrap().with("c", column(2)).unwrap();
        let rule = Packing::within(Budgets::new([("a", 100), ("b", 100), ("c", 100)]).unwrap()).unwrap();
        let plan = Plan::builder(sizes.len()).sizes(sizes).rule(rule).shuffle(shuffle).seed(seed).build().unwrap();
        // Any two neighbours in the order of filling exceed a budget together, or nearly: three budgets, twice each.
        let stats = plan.stats();
        prop_assert!(stats.batches <= 6 * stats.budgets.unwrap().lp_bound + 1, "{}", stats.batches);
    }
}

/// A batch of samples without any size, and one of a table that most samples have nothing of.
#[test]
fn budgets_that_samples_have_none_of() {
    let budgets = || Budgets::new([("length", 100), ("images", 8)]).unwrap();
    let plan = |sizes: Sizes, rule: Rule| Plan::builder(sizes.len()).sizes(sizes).rule(rule).build().unwrap();
    let none =
        |count| Sizes::new(vec![0; count]).named("length").unwrap().with("images", vec![0; count]).unwrap();
    assert_eq!(plan(none(1000), Packing::within(budgets()).unwrap().into()).steps(), 1);
    assert_eq!(plan(none(1000), TokenBudget::within(budgets()).into()).steps(), 1);
    let few = Packing::within(budgets()).unwrap().max_samples(10).unwrap();
    assert_eq!(plan(none(1000), few.into()).steps(), 100);
    // One sample in a hundred has images, and these are all that counts.
    let images: Vec<u32> = (0..1000).map(|sample| if sample % 100 == 0 { 8 } else { 0 }).collect();
    let sizes = Sizes::new(vec![1; 1000]).named("length").unwrap().with("images", images).unwrap();
    assert_eq!(plan(sizes, Packing::within(budgets()).unwrap().into()).steps(), 10);
}

/// Parts of samples that are split count their own elements, so that small parts share a batch.
#[test]
fn parts_of_samples_count_their_own_elements() {
    let budgets = Budgets::new([("length", 100), ("images", 30)]).unwrap();
    let sizes = Sizes::new(vec![250; 10]).named("length").unwrap().with("images", vec![1; 10]).unwrap();
    let rule = Packing::within(budgets).unwrap().oversize(PackedOversize::Split);
    let plan = Plan::builder(10).sizes(sizes).rule(rule).build().unwrap();
    // Two parts of 100 elements for each sample, and two rests of 50 in each further batch.
    assert_eq!(plan.steps(), 25);
}

/// A seeded table of vision-language lengths: text, patches and images.
fn vision(samples: u64) -> Sizes {
    let unit = |sample, salt| mixed(sample, salt) as f64 / f64::from(1_u32 << 31);
    let normal = |sample, salt| (0..12_u64).map(|each| unit(sample, salt + each)).sum::<f64>() - 6.0;
    let text = (0..samples)
        .map(|sample| (250.0 * normal(sample, 100).exp()).clamp(8.0, 8192.0) as u32)
        .collect::<Vec<_>>();
    let images: Vec<u32> = (0..samples)
        .map(|sample| if mixed(sample, 7) % 10 < 4 { 1 + mixed(sample, 8) as u32 % 8 } else { 0 })
        .collect();
    let patches = |(sample, &images): (u64, &u32)| {
        (0..images).map(|image| 256 + mixed(sample, 20 + u64::from(image)) as u32 % 769).sum()
    };
    let patches: Vec<u32> = (0..).zip(&images).map(patches).collect();
    Sizes::new(text).named("text").unwrap().with("patches", patches).unwrap().with("images", images).unwrap()
}

/// Atoms, bonds and triplets of molecules.
fn molecules(samples: u64) -> Sizes {
    let atoms: Vec<u32> =
        (0..samples).map(|sample| 5 + (mixed(sample, 1) % 28 + mixed(sample, 2) % 29) as u32).collect();
    let bonds: Vec<u32> = (0..)
        .zip(&atoms)
        .map(|(sample, &atoms)| atoms * 2 + mixed(sample, 3) as u32 % (atoms / 4 + 1))
        .collect();
    let triplets: Vec<u32> =
        (0..).zip(&bonds).map(|(sample, &bonds)| bonds + mixed(sample, 4) as u32 % bonds).collect();
    Sizes::new(atoms)
        .named("atoms")
        .unwrap()
        .with("bonds", bonds)
        .unwrap()
        .with("triplets", triplets)
        .unwrap()
}

/// Batches fill the budget that binds to 0.97 of what the bound of linear programming allows.
#[test]
fn batches_are_nearly_as_few_as_the_bound() {
    let cases = [
        (vision(60_000), vec![("text", 8192), ("patches", 16_384), ("images", 48)]),
        (vision(60_000), vec![("text", 2 * 8192), ("patches", 16_384)]),
        (vision(60_000), vec![("text", 8192), ("patches", 34_000), ("images", 100)]),
        (molecules(60_000), vec![("atoms", 300), ("bonds", 640), ("triplets", 1000)]),
        (molecules(60_000), vec![("atoms", 2000), ("bonds", 4000), ("triplets", 9000)]),
    ];
    for (sizes, budgets) in cases {
        for shuffle in [true, false] {
            let rule = Packing::within(Budgets::new(budgets.clone()).unwrap()).unwrap();
            let plan =
                Plan::builder(sizes.len()).sizes(sizes.clone()).rule(rule).shuffle(shuffle).build().unwrap();
            let (stats, budgets) = (plan.stats(), plan.stats().budgets.unwrap());
            let share = budgets.lp_bound as f64 / stats.batches as f64;
            assert!(share >= 0.97, "{share} of {budgets:?}");
            assert!(!shuffle || stats.mates_kept.unwrap() < 0.35, "{stats:?}");
        }
    }
}

/// Rules with one number have the fingerprints that they had, whatever names sizes have; a budget depends on its sizes.
// law: L2
#[test]
fn fingerprints_depend_on_the_sizes_that_budgets_name() {
    let print = |sizes: Sizes, rule: &str| {
        let rule: Rule = rule.parse().unwrap();
        Plan::builder(3).sizes(sizes).rule(rule).build().unwrap().fingerprint()
    };
    let plain = || Sizes::new(vec![3, 2, 1]);
    let named = |images: Vec<u32>| plain().named("text").unwrap().with("images", images).unwrap();
    assert_eq!(print(plain(), "packing:9"), print(named(vec![1, 0, 0]), "packing:9"));
    let both = "packing:text=9+images=3";
    assert_eq!(print(named(vec![1, 0, 0]), both), print(named(vec![1, 0, 0]), "packing:images=3+text=9"));
    assert_ne!(print(named(vec![1, 0, 0]), both), print(named(vec![0, 1, 0]), both));
    assert_ne!(print(named(vec![1, 0, 0]), both), print(named(vec![1, 0, 0]), "packing:text=9+images=4"));
    assert_eq!(print(named(vec![1, 0, 0]), "packing:text=9"), print(named(vec![0, 1, 0]), "packing:text=9"));
}

/// Samples that exceed one budget alone, under each policy.
#[test]
fn samples_that_exceed_one_budget() {
    let sizes = || Sizes::new(vec![50, 4, 5]).named("text").unwrap().with("images", vec![0, 9, 1]).unwrap();
    let build =
        |rule: &str, sizes: Sizes| Plan::builder(3).sizes(sizes).rule(rule.parse::<Rule>().unwrap()).build();
    let text = || build("packing:images=9+text=40", sizes());
    refused(text(), Kind::Data, &["sample 0", "size 50", "\"text\"", "budget of 40"]);
    for policy in ["error", "truncate", "split"] {
        let rule = format!("packing:images=8+text=60,oversize={policy}");
        refused(build(&rule, sizes()), Kind::Data, &["sample 1", "size 9", "\"images\"", "budget of 8"]);
    }
    let samples = |rule: &str| {
        let plan = build(rule, sizes()).unwrap();
        let mut parts: Vec<(u64, u32, u32)> = Vec::new();
        for batch in seen(&plan).into_iter().flatten() {
            parts.extend(
                batch
                    .samples
                    .iter()
                    .zip(&batch.starts)
                    .zip(&batch.sizes)
                    .map(|((&sample, &start), &size)| (sample, start, size)),
            );
        }
        parts.sort_unstable();
        parts
    };
    assert_eq!(samples("packing:images=8+text=40,oversize=drop"), [(2, 0, 5)]);
    assert_eq!(samples("packing:images=9+text=40,oversize=truncate"), [(0, 0, 40), (1, 0, 4), (2, 0, 5)]);
    assert_eq!(
        samples("packing:images=9+text=40,oversize=split"),
        [(0, 0, 40), (0, 40, 10), (1, 0, 4), (2, 0, 5)]
    );
    assert_eq!(samples("token-budget:images=8+text=40,oversize=alone"), [(0, 0, 50), (1, 0, 4), (2, 0, 5)]);
    assert_eq!(samples("token-budget:images=8+text=40,oversize=drop"), [(2, 0, 5)]);
    assert_eq!(
        samples("token-budget:images=9+text=40,oversize=truncate"),
        [(0, 0, 40), (1, 0, 4), (2, 0, 5)]
    );
    let padded = build("token-budget:images=9+text=51,multiple_of=8", sizes());
    refused(padded, Kind::Data, &["sample 0", "size 50", "56 as it is padded", "\"text\"", "budget of 51"]);
    let cut = build("token-budget:images=8+text=60,oversize=truncate", sizes());
    refused(cut, Kind::Data, &["sample 1", "size 9", "\"images\""]);
    // Nothing can be cut where no budget counts elements.
    let uncut = build("packing:images=8,oversize=split", sizes());
    refused(uncut, Kind::Data, &["sample 1", "\"images\""]);
}

/// Bad input is refused before any work, with the names that are known.
#[test]
fn bad_input() {
    refused(Budgets::new(Vec::<(String, u64)>::new()), Kind::Argument, &["0 budgets", "1 to 8"]);
    refused(Budgets::new((0..9).map(|each| (each.to_string(), 1))), Kind::Argument, &["9 budgets"]);
    refused(Budgets::new([("a", 1), ("a", 2)]), Kind::Argument, &["\"a\"", "twice"]);
    refused(Budgets::new([("", 1)]), Kind::Argument, &["empty"]);
    refused(Budgets::new([("a", 0)]), Kind::Argument, &["\"a\" is 0"]);
    let large = Packing::within(Budgets::new([("a", 1 << 29)]).unwrap());
    refused(large, Kind::Argument, &["536870912", "268435456"]);
    let sizes = || Sizes::new(vec![1, 2]).named("text").unwrap().with("images", vec![0, 1]).unwrap();
    let build =
        |rule: &str, sizes: Sizes| Plan::builder(2).sizes(sizes).rule(rule.parse::<Rule>().unwrap()).build();
    let unknown = build("packing:image=9+text=40", sizes());
    refused(unknown, Kind::Argument, &["\"image\"", "\"text\"", "\"images\""]);
    refused(
        build("packing:text=40", Sizes::new(vec![1, 2])),
        Kind::Argument,
        &["\"text\"", "sizes={\"patches\": ...}"],
    );
    refused(sizes().with("images", vec![1, 2]), Kind::Argument, &["\"images\""]);
    refused(sizes().named("images"), Kind::Argument, &["\"images\""]);
    refused(sizes().with("more", vec![1, 2, 3]), Kind::Data, &["3 sizes named \"more\" for 2 samples"]);
    let without = Plan::builder(2).rule(Packing::within(Budgets::new([("a", 1)]).unwrap()).unwrap()).build();
    refused(without, Kind::Argument, &["Packing decides by size", "samples have none"]);
    let extents = Sizes::with_extents(vec![1, 2, 3, 4], 2).unwrap().named("image").unwrap();
    refused(build("token-budget:image=40", extents), Kind::Argument, &["TokenBudget", "2"]);
    for text in [
        "packing:text",
        "packing:text=",
        "packing:text=a",
        "packing:=3",
        "packing:text=3+",
        "packing:te%xt=3",
        "packing:te%zzxt=3",
        "packing:text=3+text=4",
        "packing:text=0",
    ] {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
    let escaped: Rule = "packing:a%2Bb%3D%25=3".parse().unwrap();
    assert_eq!(escaped.budgets().unwrap().iter().collect::<BTreeMap<_, _>>(), BTreeMap::from([("a+b=%", 3)]));
    assert!(matches!(
        TokenBudget::within(Budgets::new([("a", 1)]).unwrap()).oversize(Oversize::Drop).into(),
        Rule::TokenBudget(_)
    ));
}
