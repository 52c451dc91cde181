//! Plans of samples of different sizes, for every rule, pool, world size and any sizes: partition (L1), pure (L2),
//! equal (L3), resume (L4), elastic (L5), budget (L6), whole (L8), exact length (L10).

use std::collections::BTreeMap;

use batchloom::batching::{
    CostModel, CostOptimal, Count, FixedSize, LengthBuckets, Oversize, PackedOversize, Packing, PackingOrder,
    Pool, Rests, Rule, Sizes, TokenBudget,
};
use batchloom::plan::{Parts, State};
use batchloom::ranks::Uneven;
use batchloom::{Error, Kind, Plan};
use proptest::prelude::*;

use crate::budgets;
use crate::errors::refused;

/// The options of a plan over samples of different sizes.
#[derive(Debug, Clone)]
struct Options {
    sizes: Vec<u32>,
    rule: Rule,
    shuffle: bool,
    seed: u64,
    epoch: u64,
    world_size: u32,
    drop_last: bool,
    uneven: Uneven,
    balance: bool,
    largest_first: bool,
    shard_size: Option<u64>,
}

impl Options {
    fn build(&self) -> Result<Plan, Error> {
        Plan::builder(self.sizes.len() as u64)
            .sizes(budgets::sizes(&self.sizes))
            .rule(self.rule.clone())
            .shuffle(self.shuffle)
            .seed(self.seed)
            .epoch(self.epoch)
            .world_size(self.world_size)
            .drop_last(self.drop_last)
            .uneven(self.uneven)
            .balance(self.balance)
            .cost(CostModel::new(0.0, 1.0, 0.0).unwrap())
            .largest_first(self.largest_first)
            .shard_size(self.shard_size)
            .build()
    }
}

pub(crate) fn sizes() -> impl Strategy<Value = Vec<u32>> {
    let one = prop_oneof![Just(0_u32), Just(7), 1_u32..40, 1_u32..40, 1_u32..40, 30_u32..200,];
    prop_oneof![
        prop::collection::vec(one, 1..160),
        prop::collection::vec(Just(5_u32), 1..60),
        prop::collection::vec(Just(0_u32), 1..20),
        Just(vec![64]),
    ]
}

pub(crate) fn oversize() -> impl Strategy<Value = Oversize> {
    prop_oneof![Just(Oversize::Alone), Just(Oversize::Drop), Just(Oversize::Truncate)]
}

pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let pool = prop_oneof![(1_u64..50).prop_map(Pool::Of), Just(Pool::Auto), Just(Pool::All)];
    let some = |range| prop::option::of(range);
    let budget = (30_u64..300, any::<bool>(), some(0..30), some(1..9), 1_u32..17, oversize(), pool.clone())
        .prop_map(|(tokens, real, spread, samples, multiple, oversize, pool)| {
            let rule = TokenBudget::new(tokens).unwrap().oversize(oversize).pool(pool).unwrap();
            let rule = rule.multiple_of(multiple).unwrap();
            let rule = rule.count(if real { Count::Real } else { Count::Padded });
            let rule = spread.map_or(rule.clone(), |spread| rule.max_length_spread(spread as u32));
            samples.map_or(rule.clone(), |samples| rule.max_samples(samples as u64).unwrap()).into()
        });
    let optimal = (cost(), some(30..300), some(1..9), 1_u32..17, oversize(), pool.clone()).prop_map(
        |(cost, tokens, samples, multiple, oversize, pool)| {
            let rule = CostOptimal::new(cost).oversize(oversize).pool(pool).unwrap();
            let rule = rule.multiple_of(multiple).unwrap();
            let rule = tokens.map_or(rule, |tokens| rule.max_tokens(tokens as u64).unwrap());
            samples.map_or(rule, |samples| rule.max_samples(samples as u64).unwrap()).into()
        },
    );
    let policies = [PackedOversize::Split, PackedOversize::Truncate, PackedOversize::Drop];
    let policy = prop::sample::select(policies.to_vec());
    let rows = (some(1..5), any::<bool>());
    let packing = (30_u64..300, some(1..9), policy, any::<bool>(), pool.clone(), rows).prop_map(
        |(tokens, samples, oversize, decreasing, pool, (rows, continues))| {
            let order = if decreasing { PackingOrder::Decreasing } else { PackingOrder::Random };
            let rule = Packing::new(tokens).unwrap().oversize(oversize).order(order).pool(pool).unwrap();
            let rule = rows.map_or(rule.clone(), |rows| rule.rows(rows as u32).unwrap());
            let rule = rule.rests(if continues { Rests::Continue } else { Rests::None });
            samples.map_or(rule.clone(), |samples| rule.max_samples(samples as u32).unwrap()).into()
        },
    );
    prop_oneof![
        (1_u64..20, 1_u32..17).prop_map(|(size, multiple)| {
            FixedSize::new(size).unwrap().multiple_of(multiple).unwrap().into()
        }),
        (1_u64..20, pool, 1_u32..17).prop_map(|(size, pool, multiple)| {
            let rule = LengthBuckets::new(size).unwrap().pool(pool).unwrap();
            rule.multiple_of(multiple).unwrap().into()
        }),
        budget,
        optimal,
        packing,
    ]
}

pub(crate) fn cost() -> impl Strategy<Value = CostModel> {
    let coefficient = || prop_oneof![Just(0.0), 0.0..100.0_f64];
    (0.0..1000.0_f64, coefficient(), coefficient())
        .prop_map(|(fixed, token, pair)| CostModel::new(fixed + 1e-3, token, pair / 100.0).unwrap())
}

fn options() -> impl Strategy<Value = Options> {
    let uneven = prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let shards = prop_oneof![Just(None), (1_u64..60).prop_map(Some), Just(Some(1 << 20))];
    let rule = prop_oneof![3 => rule(), 2 => budgets::rule()];
    (sizes(), rule, flags, uneven, any::<u64>(), any::<u64>(), (1_u32..6, shards)).prop_map(
        |(
            sizes,
            rule,
            (shuffle, drop_last, balance, largest_first),
            uneven,
            seed,
            epoch,
            (world_size, shards),
        )| Options {
            sizes,
            // Batches of equal size fill a shard.
            shard_size: shards.map(|size| size * parameter(&rule, "batch_size").unwrap_or(1)),
            rule,
            shuffle,
            seed,
            epoch,
            world_size,
            drop_last,
            uneven,
            balance,
            largest_first,
        },
    )
}

/// Everything that all ranks see, step by step.
pub(crate) fn seen(plan: &Plan) -> Vec<Vec<Parts>> {
    let ranks = |step| (0..plan.world_size()).filter(move |rank| step < plan.steps_of(*rank));
    (0..plan.steps()).map(|step| ranks(step).map(|rank| plan.parts(step, rank).unwrap()).collect()).collect()
}

/// Everything that all ranks see and that counts, step by step.
fn counted(plan: &Plan) -> Vec<Vec<Parts>> {
    let mut steps = seen(plan);
    for (step, parts) in (0..).zip(&mut steps) {
        for (parts, count) in parts.iter_mut().zip(plan.step(step).unwrap().counts) {
            let count = count as usize;
            parts.samples.truncate(count);
            parts.starts.truncate(count);
            parts.sizes.truncate(count);
        }
    }
    steps
}

/// The elements of a batch with padding, by definition.
fn padded(parts: &Parts, rule: &Rule) -> u64 {
    if let Some(shape) = rule.row_shape() {
        return shape.elements();
    }
    let multiple_of = match rule {
        Rule::Packing(_) => return parts.sizes.iter().map(|&size| u64::from(size)).sum(),
        rule => multiple_of(rule),
    };
    let longest =
        parts.sizes.iter().max().map_or(0, |&size| u64::from(size).div_ceil(multiple_of) * multiple_of);
    longest * parts.samples.len() as u64
}

/// The parameters of a rule, by their names.
fn parameters(rule: &Rule) -> serde_json::Value {
    let value = match rule {
        Rule::FixedSize(rule) => serde_json::to_value(rule),
        Rule::LengthBuckets(rule) => serde_json::to_value(rule),
        Rule::TokenBudget(rule) => serde_json::to_value(rule),
        Rule::CostOptimal(rule) => serde_json::to_value(rule),
        Rule::Packing(rule) => serde_json::to_value(rule),
        other => serde_json::to_value(other),
    };
    value.unwrap()
}

/// A parameter of a rule that is a number.
fn parameter(rule: &Rule, name: &str) -> Option<u64> {
    parameters(rule).get(name).and_then(serde_json::Value::as_u64)
}

fn multiple_of(rule: &Rule) -> u64 {
    parameter(rule, "multiple_of").unwrap_or(1)
}

fn policy(rule: &Rule, name: &str) -> String {
    let parameters = parameters(rule);
    parameters.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

/// The labels of the next tokens of a batch: the last element that batches take of a sample has none.
pub(crate) fn count_labels(rule: &Rule, sizes: &[u32], parts: &Parts) -> Vec<u64> {
    let continues = policy(rule, "rests") == "continue";
    let most = match policy(rule, "overflow").as_str() {
        "truncate" => parameter(rule, "max_tokens").map_or(u32::MAX, |most| most as u32),
        _ => u32::MAX,
    };
    let parts = parts.samples.iter().zip(&parts.starts).zip(&parts.sizes);
    let labels = |((&sample, &start), &size): ((&u64, &u32), &u32)| {
        let is_last = !continues || start + size == sizes[sample as usize].min(most);
        u64::from(size.saturating_sub(u32::from(is_last)))
    };
    parts.map(labels).collect()
}

/// True if a batch may hold a part of a sample.
fn splits(rule: &Rule) -> bool {
    policy(rule, "overflow") == "split" || policy(rule, "rests") == "continue"
}

/// The intervals of each sample that came, in order of their starts.
fn intervals(steps: &[Vec<Parts>]) -> BTreeMap<u64, Vec<(u32, u32)>> {
    let mut intervals: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
    for parts in steps.iter().flatten() {
        for ((&sample, &start), &size) in parts.samples.iter().zip(&parts.starts).zip(&parts.sizes) {
            intervals.entry(sample).or_default().push((start, size));
        }
    }
    intervals.values_mut().for_each(|parts| parts.sort_unstable());
    intervals
}

proptest! {
    /// Every element comes exactly once, except those that the plan counts as dropped, truncated or repeated.
    // law: L1, L8
    #[test]
    fn partition(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let (steps, stats) = (counted(&plan), plan.stats());
        let intervals = intervals(&steps);
        let total: u64 = options.sizes.iter().map(|&size| u64::from(size)).sum();
        let real: u64 = steps.iter().flatten().flat_map(|parts| &parts.sizes).map(|&size| u64::from(size)).sum();
        prop_assert_eq!((stats.tokens, stats.real), (total, real));
        prop_assert_eq!(total + stats.repeated_tokens, real + stats.truncated_tokens + stats.dropped_tokens);
        let mut dropped = 0;
        for (sample, &size) in (0..).zip(&options.sizes) {
            let mut parts = intervals.get(&sample).cloned().unwrap_or_default();
            if stats.repeated == 0 && stats.repeated_tokens == 0 {
                // Once each, without a gap, from the start to the end or to the limit.
                let end = parts.iter().try_fold(0, |end, &(start, size)| (start == end).then_some(end + size));
                let dropped_part = options.drop_last && splits(&options.rule);
                prop_assert!(dropped_part || end.is_some(), "sample {sample}: {parts:?}");
                prop_assert!(parts.is_empty() || dropped_part || end == Some(size) || policy(&options.rule, "oversize") == "truncate" || policy(&options.rule, "overflow") == "truncate");
            }
            parts.dedup();
            dropped += u64::from(!parts.iter().any(|part| part.0 == 0));
        }
        prop_assert_eq!(stats.dropped, dropped);
        let drops = policy(&options.rule, "overflow") == "drop" || options.drop_last || policy(&options.rule, "oversize") == "drop";
        prop_assert!(drops || stats.dropped == 0);
    }

    /// The counts of the plan are those of a recount.
    // law: L1
    #[test]
    fn stats_are_a_recount(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let (steps, stats) = (seen(&plan), plan.stats());
        let costs: Vec<Vec<u64>> =
            steps.iter().map(|step| step.iter().map(|parts| padded(parts, &options.rule)).collect()).collect();
        let flat: Vec<u64> = costs.iter().flatten().copied().collect();
        prop_assert_eq!(stats.steps, steps.len() as u64);
        prop_assert_eq!(stats.batches, flat.len() as u64);
        prop_assert_eq!(stats.padded, flat.iter().sum::<u64>());
        prop_assert_eq!(stats.largest, flat.iter().copied().max().unwrap_or(0));
        // The time of a pack goes by its samples, not by the padding of its rows.
        let timed: Vec<Vec<u64>> = match options.rule.row_shape() {
            Some(_) => steps.iter().map(|step| step.iter().map(|parts| parts.sizes.iter().map(|&size| u64::from(size)).sum()).collect()).collect(),
            None => costs,
        };
        let waited: u64 = timed.iter().map(|step| step.iter().max().unwrap_or(&0) * u64::from(options.world_size)).sum();
        let worked: u64 = timed.iter().flatten().sum();
        let expected = if waited == 0 { 0.0 } else { 1.0 - worked as f64 / waited as f64 };
        prop_assert!((stats.imbalance - expected).abs() < 1e-9, "{} {expected}", stats.imbalance);
        if let Some(tokens) = parameter(&options.rule, "max_tokens") {
            let shape = options.rule.row_shape();
            let is_real = policy(&options.rule, "count") == "real" || shape.is_some();
            let tokens = shape.map_or(tokens, |shape| shape.elements());
            let counted = if is_real { stats.real } else { stats.padded };
            let expected = counted as f64 / (tokens * stats.batches) as f64;
            prop_assert!((stats.efficiency.unwrap() - expected).abs() < 1e-9);
        }
        let shape = |parts: &Parts| match &options.rule {
            Rule::Packing(_) => (0, padded(parts, &options.rule)),
            _ => (parts.samples.len() as u64, padded(parts, &options.rule) / parts.samples.len() as u64),
        };
        let mut shapes: Vec<_> = steps.iter().flatten().map(shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        prop_assert_eq!(stats.shapes, shapes.len() as u64);
        for ((index, step), counted) in (0..).zip(&steps).zip(counted(&plan)) {
            let step_tokens: u64 = counted.iter().flat_map(|parts| &parts.sizes).map(|&size| u64::from(size)).sum();
            let step_of_all = plan.step(index).unwrap();
            prop_assert_eq!(step_of_all.tokens, step_tokens);
            prop_assert_eq!(step_of_all.batches, step.iter().map(|parts| parts.samples.clone()).collect::<Vec<_>>());
            for (rank, parts) in (0..).zip(step) {
                prop_assert_eq!(plan.batch_len(index, rank).unwrap(), parts.samples.len() as u64);
                prop_assert_eq!(plan.batch_elements(index, rank).unwrap(), padded(parts, &options.rule));
            }
        }
    }

    /// No batch is empty, exceeds its budget, its spread or its number of samples, but for one that holds a single
    /// oversize sample that the user wanted alone.
    // law: L6
    #[test]
    fn budget(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let rule = &options.rule;
        for parts in seen(&plan).iter().flatten() {
            prop_assert!(!parts.samples.is_empty());
            let real: u64 = parts.sizes.iter().map(|&size| u64::from(size)).sum();
            let elements = if policy(rule, "count") == "real" { real } else { padded(parts, rule) };
            let alone = parts.samples.len() == 1 && policy(rule, "oversize") == "alone";
            if let Some(shape) = rule.row_shape() {
                prop_assert!(parts.row_ends.len() <= shape.rows as usize);
                prop_assert_eq!(parts.row_ends.last().copied(), Some(parts.samples.len() as u32));
                let mut start = 0;
                for end in parts.row_ends.iter().map(|&end| end as usize) {
                    prop_assert!(start < end && end - start <= shape.samples as usize);
                    prop_assert!(parts.sizes[start..end].iter().sum::<u32>() <= shape.tokens);
                    start = end;
                }
                continue;
            }
            prop_assert!(alone || elements <= parameter(rule, "max_tokens").unwrap_or(u64::MAX));
            prop_assert!(parts.samples.len() as u64 <= parameter(rule, "max_samples").unwrap_or(u64::MAX));
            prop_assert!(parts.samples.len() as u64 <= parameter(rule, "batch_size").unwrap_or(u64::MAX));
            let spread = u64::from(parts.sizes.iter().max().unwrap() - parts.sizes.iter().min().unwrap());
            prop_assert!(spread <= parameter(rule, "max_length_spread").unwrap_or(u64::MAX));
        }
    }

    /// A sample is found where it comes.
    #[test]
    fn places(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let mut expected: BTreeMap<u64, Vec<(u64, u32, u64)>> = BTreeMap::new();
        for step in 0..plan.steps() {
            let step_found = plan.step(step).unwrap();
            for (rank, batch) in (0..).zip(super::plan::counted(&step_found)) {
                for (index, &sample) in (0..).zip(batch) {
                    expected.entry(sample).or_default().push((step, rank, index));
                }
            }
        }
        for sample in 0..plan.samples() {
            let mut places: Vec<_> =
                plan.places(sample).unwrap().into_iter().map(|place| (place.step, place.rank, place.index)).collect();
            places.sort_unstable();
            prop_assert_eq!(places, expected.remove(&sample).unwrap_or_default());
        }
    }

    /// Ranks have equally many steps; the batches do not depend on the world, unless they are balanced over it.
    // law: L2, L3
    #[test]
    fn equal_and_pure(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        for rank in 0..options.world_size {
            prop_assert!(options.uneven == Uneven::Short && !options.drop_last || plan.steps_of(rank) == plan.steps());
        }
        prop_assert_eq!(seen(&plan), seen(&options.build().unwrap()));
        let one = Options { world_size: 1, uneven: Uneven::Short, drop_last: false, ..options.clone() };
        let Ok(one) = one.build() else { return Ok(()) };
        if !options.drop_last && options.uneven == Uneven::Short {
            let sorted = |plan: &Plan| {
                let mut batches: Vec<Vec<u64>> =
                    seen(plan).into_iter().flatten().map(|parts| parts.samples).collect();
                if options.balance {
                    batches.sort();
                }
                batches
            };
            prop_assert_eq!(sorted(&plan), sorted(&one));
        }
    }

    /// After any chain of stops, with other worlds, exactly the batches that were left come.
    // law: L4, L5
    #[test]
    fn resume_and_elastic(options in options(), worlds in prop::array::uniform3(1_u32..6), stops in prop::array::uniform3(0.0..1.0_f64)) {
        let options = Options { drop_last: false, uneven: Uneven::Short, ..options };
        let Ok(whole) = options.build() else { return Ok(()) };
        let mut plan = options.build().unwrap();
        let mut got: Vec<Vec<Parts>> = Vec::new();
        for (world_size, stop) in worlds.into_iter().zip(stops) {
            let steps = (plan.steps() as f64 * stop) as u64;
            got.extend(seen(&plan).into_iter().take(steps as usize));
            let state: State = serde_json::from_str(&serde_json::to_string(&plan.state(steps)).unwrap()).unwrap();
            let same = options.build().unwrap();
            let same = Options { world_size: plan.world_size(), ..options.clone() }.build().unwrap_or(same).resume(&state).unwrap();
            prop_assert_eq!(&seen(&same)[..], &seen(&plan)[steps as usize..]);
            plan = Options { world_size, seed: 1, ..options.clone() }.build().unwrap().resume(&state).unwrap();
            prop_assert_eq!(plan.stats().earlier, got.iter().flatten().flat_map(|parts| &parts.starts).filter(|&&start| start == 0).count() as u64);
        }
        got.extend(seen(&plan));
        let batches = |steps: Vec<Vec<Parts>>| {
            let mut batches: Vec<Vec<u64>> = steps.into_iter().flatten().map(|parts| parts.samples).collect();
            batches.sort();
            batches
        };
        prop_assert_eq!(batches(got), batches(seen(&whole)));
    }

    /// No batch of any rule lies in two shards, on any rank, after any stop.
    #[test]
    fn batches_lie_in_their_shard(options in options(), stop in 0.0..1.0_f64, world_size in 1_u32..6) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let Some(shard_size) = options.shard_size else { return Ok(()) };
        let state = plan.state((plan.steps() as f64 * stop) as u64);
        let rest = Options { world_size, ..options.clone() }.build().and_then(|plan| plan.resume(&state));
        for plan in [Some(plan), rest.ok()].into_iter().flatten() {
            let mut came: Vec<std::ops::Range<u64>> = Vec::new();
            for (index, step) in (0..).zip(seen(&plan)) {
                for (rank, parts) in (0..).zip(step) {
                    let shard = plan.shard(index, rank).unwrap().unwrap();
                    prop_assert!(parts.samples.iter().all(|sample| shard.contains(sample)), "{:?} {:?}", parts, shard);
                    prop_assert!(shard.end - shard.start <= shard_size && shard.end <= plan.samples());
                    if came.last() != Some(&shard) {
                        came.push(shard);
                    }
                }
            }
            // The order is shard by shard, unless the largest batch is to come first, or repeated batches come last.
            if !options.largest_first && plan.stats().repeated_tokens == 0 && plan.stats().repeated == 0 {
                came.sort_unstable_by_key(|shard| shard.start);
                prop_assert!(came.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", came);
            }
        }
    }

    /// The first batch is the largest where that is asked for.
    #[test]
    fn largest_first(options in options()) {
        let options = Options { largest_first: true, drop_last: false, world_size: 1, ..options };
        let Ok(plan) = options.build() else { return Ok(()) };
        prop_assert_eq!(plan.batch_elements(0, 0).unwrap(), plan.stats().largest);
    }

    /// Balanced steps cost at most what steps in random order cost, all pools being whole steps.
    #[test]
    fn balance(options in options()) {
        let pool = options.sizes.len() as u64;
        let rule = LengthBuckets::new(1).unwrap().pool(pool).unwrap();
        let options = Options { rule: rule.into(), balance: true, uneven: Uneven::Short, drop_last: false, largest_first: false, shard_size: None, ..options };
        let Ok(balanced) = options.build() else { return Ok(()) };
        let mut sizes = options.sizes.clone();
        sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
        // Sorted batches, `world_size` at a time, make the least waiting possible.
        let least: u64 = sizes.chunks(options.world_size as usize).map(|step| u64::from(step[0]) * u64::from(options.world_size)).sum();
        let busy: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let expected = if least == 0 { 0.0 } else { 1.0 - busy as f64 / least as f64 };
        prop_assert!((balanced.stats().imbalance - expected).abs() < 1e-9);
    }
}

/// Lengths that add up to more than 2^32 are counted in full.
#[test]
fn huge_lengths() {
    let sizes = Sizes::new(vec![u32::MAX; 100]);
    let build =
        |rule: Rule| Plan::builder(100).sizes(sizes.clone()).rule(rule).shuffle(true).build().unwrap();
    let plan = build(TokenBudget::new(u64::from(u32::MAX) * 3).unwrap().pool(Pool::All).unwrap().into());
    assert_eq!((plan.steps(), plan.stats().real), (34, 100 * u64::from(u32::MAX)));
    let plan = build(LengthBuckets::new(7).unwrap().multiple_of(1 << 20).unwrap().into());
    assert_eq!(plan.stats().padded, 100 << 32);
    let plan = build(CostOptimal::new(CostModel::new(1.0, 1.0, 1.0).unwrap()).into());
    assert_eq!(plan.stats().real, 100 * u64::from(u32::MAX));
    let plan = build(Packing::new(1 << 28).unwrap().oversize(PackedOversize::Truncate).into());
    assert_eq!(plan.stats().truncated_tokens, 100 * (u64::from(u32::MAX) - (1 << 28)));
}

/// The order of batches tells nothing about their length.
#[test]
fn batch_order_is_uncorrelated_with_length() {
    let sizes: Vec<u32> =
        (0..40_000_u32).map(|sample| 1 + sample.wrapping_mul(2_654_435_761) % 500).collect();
    let rules: [Rule; 4] = [
        LengthBuckets::new(16).unwrap().into(),
        TokenBudget::new(4000).unwrap().into(),
        CostOptimal::new(CostModel::new(100.0, 1.0, 0.0).unwrap()).into(),
        Packing::new(2000).unwrap().into(),
    ];
    for rule in rules {
        let plan = Plan::builder(40_000)
            .sizes(Sizes::new(sizes.clone()))
            .rule(rule.clone())
            .shuffle(true)
            .build()
            .unwrap();
        let lengths: Vec<f64> = seen(&plan).iter().flatten().map(|parts| f64::from(parts.sizes[0])).collect();
        // Of neighbours, and of a batch with its time: both vanish like 1 / sqrt(batches).
        let count = lengths.len() as f64;
        let mean = lengths.iter().sum::<f64>() / count;
        let variance: f64 = lengths.iter().map(|length| (length - mean).powi(2)).sum();
        let neighbours: f64 = lengths.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let time: f64 =
            (0..).zip(&lengths).map(|(at, length)| (f64::from(at) - count / 2.0) * (length - mean)).sum();
        let spread = (variance * count.powi(3) / 12.0).sqrt();
        let bound = 5.0 / count.sqrt();
        assert!((neighbours / variance).abs() < bound, "{rule:?}: {}", neighbours / variance);
        assert!((time / spread).abs() < bound, "{rule:?}: {}", time / spread);
    }
}

/// Bad input is refused before any work, with the numbers that are wrong.
#[test]
fn bad_input() {
    let build = |rule: Rule| Plan::builder(3).sizes(Sizes::new(vec![5, 50, 60])).rule(rule).build();
    let rounded = build(TokenBudget::new(50).unwrap().multiple_of(16).unwrap().into());
    let words = ["sample 1 has size 50", "rounded up to a multiple of 16", "max_tokens (50)"];
    refused(rounded, Kind::Data, &words);
    let large = build(Packing::new(50).unwrap().into());
    refused(large, Kind::Data, &["sample 2 has size 60", "max_tokens (50)"]);
    let dropped = build(TokenBudget::new(4).unwrap().oversize(Oversize::Drop).into());
    refused(dropped, Kind::Argument, &["oversize drops all 3 samples", "max_tokens (4)"]);
    refused(TokenBudget::new(0), Kind::Argument, &["max_tokens is 0"]);
    let multiple = TokenBudget::new(5).unwrap().multiple_of(6);
    refused(multiple, Kind::Argument, &["multiple_of is 6", "max_tokens (5)"]);
    refused(Packing::new(1 << 29), Kind::Argument, &["max_tokens is 536870912", "268435456"]);
    for (fixed, token, pair) in
        [(f64::NAN, 1.0, 1.0), (-1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (1.0, f64::INFINITY, 0.0)]
    {
        let coefficients = format!("({fixed}, {token}, {pair})");
        refused(CostModel::new(fixed, token, pair), Kind::Argument, &["cost model", &coefficients]);
    }
    let without = Plan::builder(3).rule(LengthBuckets::new(2).unwrap()).build();
    refused(without, Kind::Argument, &["LengthBuckets decides by size", "samples have none"]);
    let wrong = Plan::builder(4).sizes(Sizes::new(vec![1, 2, 3])).build();
    refused(wrong, Kind::Data, &["3 sizes for 4 samples"]);
    let large = Sizes::with_extents(vec![1 << 20, 1 << 20], 2);
    refused(large, Kind::Data, &["sample 0", "[1048576, 1048576]", "2^32"]);
}

/// The batches of each rule over the same samples are a promise across releases.
// law: L2
#[test]
fn golden() {
    let sizes: Vec<u32> = (0..300_u32).map(|sample| sample.wrapping_mul(2_654_435_761) >> 24).collect();
    let cost = CostModel::new(500.0, 1.0, 0.01).unwrap();
    let packing = Packing::new(200).unwrap().oversize(PackedOversize::Split);
    let rules: [Rule; 9] = [
        FixedSize::new(7).unwrap().into(),
        LengthBuckets::new(8).unwrap().pool(5).unwrap().into(),
        TokenBudget::new(1000)
            .unwrap()
            .max_length_spread(40)
            .multiple_of(8)
            .unwrap()
            .pool(100)
            .unwrap()
            .into(),
        CostOptimal::new(cost).max_tokens(2000).unwrap().pool(100).unwrap().into(),
        packing.clone().order(PackingOrder::Decreasing).pool(100).unwrap().into(),
        LengthBuckets::new(8).unwrap().into(),
        TokenBudget::new(1000).unwrap().into(),
        CostOptimal::new(cost).pool(Pool::All).unwrap().into(),
        packing.into(),
    ];
    // What changes the balance of steps changes the first file alone.
    for (name, balance) in [("rules.json", true), ("rules_as_they_come.json", false)] {
        let plans = rules.clone().map(|rule| {
            let builder =
                Plan::builder(300).sizes(Sizes::new(sizes.clone())).rule(rule).shuffle(true).seed(7);
            builder.epoch(3).world_size(2).balance(balance).largest_first(true).build().unwrap()
        });
        let steps = |plan: &Plan| -> Vec<Vec<Vec<u64>>> {
            (0..plan.steps()).map(|step| plan.step(step).unwrap().batches).collect()
        };
        let line = |plan: &Plan| {
            let steps = serde_json::to_string(&steps(plan)).unwrap();
            format!("{{\"fingerprint\": \"{}\", \"steps\": {steps}}}", plan.fingerprint())
        };
        let text = format!("[\n{}\n]\n", plans.iter().map(line).collect::<Vec<_>>().join(",\n"));
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(path).unwrap());
    }
}
