//! The cost by which batches are balanced and by which waiting is counted: elements unless a model is given.

use batchloom::Plan;
use batchloom::batching::{
    Cost, CostModel, FixedSize, LengthBuckets, Packing, Pool, Rule, Sizes, TokenBudget,
};
use batchloom::plan::{Parts, PlanBuilder};
use batchloom::ranks::{BalanceWithin, Uneven};
use proptest::prelude::*;

use crate::rules::{cost, rule, seen, sizes};

/// A plan over samples of these sizes whose last step may be short.
fn planned(sizes: &[u32], world_size: u32, seed: u64) -> PlanBuilder {
    let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.to_vec()));
    plan.shuffle(true).seed(seed).world_size(world_size).uneven(Uneven::Short)
}

/// The cost of a batch, by definition.
fn cost_of(model: &CostModel, plan: &Plan, parts: &Parts, packs: bool) -> f64 {
    let price = |length: f64| (model.per_token() + model.per_pair() * length) * length;
    match packs {
        true => model.fixed() + parts.sizes.iter().map(|&size| price(f64::from(size))).sum::<f64>(),
        false => {
            let longest = parts.sizes.iter().copied().max().unwrap_or(0);
            let multiple_of = multiple_of(&plan.rule().to_string());
            let length = u64::from(longest).next_multiple_of(multiple_of) as f64;
            model.fixed() + parts.sizes.len() as f64 * price(length)
        }
    }
}

/// The option `multiple_of` in the text of a rule.
fn multiple_of(rule: &str) -> u64 {
    rule.split(',')
        .find_map(|option| option.strip_prefix("multiple_of="))
        .map_or(1, |text| text.parse().unwrap())
}

/// The costs of all batches, step by step.
fn costs(model: &CostModel, plan: &Plan, packs: bool) -> Vec<Vec<f64>> {
    let of = |step: Vec<Parts>| step.iter().map(|parts| cost_of(model, plan, parts, packs)).collect();
    seen(plan).into_iter().map(of).collect()
}

/// The share of the time of all ranks that is spent waiting, by definition.
fn waiting(costs: &[Vec<f64>], world_size: u32) -> f64 {
    let slowest = |step: &Vec<f64>| step.iter().copied().fold(0.0, f64::max);
    let all = f64::from(world_size) * costs.iter().map(slowest).sum::<f64>();
    let busy: f64 = costs.iter().flatten().sum();
    if all > 0.0 { 1.0 - busy / all } else { 0.0 }
}

/// Rules with pools so small that a few hundred samples make several windows.
fn small_pools() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (50_u64..120, 1_u64..4).prop_map(|(tokens, pool)| Packing::new(tokens)
            .unwrap()
            .pool(pool)
            .unwrap()
            .into()),
        (50_u64..120, 1_u64..4).prop_map(|(tokens, pool)| TokenBudget::new(tokens)
            .unwrap()
            .pool(pool)
            .unwrap()
            .into()),
        (1_u64..4).prop_map(|pool| LengthBuckets::new(1).unwrap().pool(pool).unwrap().into()),
    ]
}

proptest! {
    /// Waiting is counted by the model that is given, for any rule.
    #[test]
    fn waiting_is_counted_by_the_model(sizes in sizes(), rule in rule(), model in cost(), world_size in 1_u32..6, balance in any::<bool>(), seed in any::<u64>()) {
        let packs = rule.to_string().starts_with("packing");
        let plan = planned(&sizes, world_size, seed).rule(rule).balance(balance).cost(model).build();
        let Ok(plan) = plan else { return Ok(()) };
        let expected = waiting(&costs(&model, &plan, packs), world_size);
        let imbalance = plan.stats().imbalance;
        prop_assert!((imbalance - expected).abs() < 1e-9, "{imbalance} {expected}");
    }

    /// Samples that all count the same are counted by the model too.
    #[test]
    fn waiting_without_sizes_is_counted_by_the_model(samples in 1_u64..300, batch_size in 1_u64..20, model in cost(), world_size in 1_u32..6) {
        let plan = Plan::builder(samples).batch_size(batch_size).world_size(world_size).uneven(Uneven::Short);
        let plan = plan.cost(model).build().unwrap();
        let expected = waiting(&costs(&model, &plan, false), world_size);
        prop_assert!((plan.stats().imbalance - expected).abs() < 1e-9);
    }

    /// Steps of balanced packs hold neighbours in the order of their costs.
    #[test]
    fn packs_are_balanced_by_the_model(sizes in sizes(), model in cost(), world_size in 1_u32..6, seed in any::<u64>()) {
        let rule = Packing::new(200).unwrap().pool(Pool::All).unwrap();
        let plan = planned(&sizes, world_size, seed).rule(rule);
        let balanced = plan.balance(true).cost(model).build().unwrap();
        let mut steps = costs(&model, &balanced, true);
        steps.retain(|step| step.len() == world_size as usize);
        // Sums in another order differ in their last digits, which decide no order here.
        let rounded = |cost: f64| f64::from(cost as f32);
        let bounds = |step: &Vec<f64>| {
            step.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &cost| {
                (least.min(rounded(cost)), most.max(rounded(cost)))
            })
        };
        let mut bounds: Vec<(f64, f64)> = steps.iter().map(bounds).collect();
        bounds.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let apart = |pair: &[(f64, f64)]| pair[0].1 <= pair[1].0 * (1.0 + 1e-6);
        prop_assert!(bounds.windows(2).all(apart), "{bounds:?}");
    }

    /// The largest batch comes in the first step, even if another one costs more.
    #[test]
    fn largest_batch_is_first_whatever_costs_most(sizes in sizes(), rule in rule(), model in cost(), world_size in 1_u32..6, seed in any::<u64>()) {
        let plan = planned(&sizes, world_size, seed).rule(rule).balance(true).largest_first(true).cost(model);
        let Ok(plan) = plan.build() else { return Ok(()) };
        let first = (0..plan.world_size()).filter_map(|rank| plan.batch_elements(0, rank).ok()).max();
        let whole = plan.steps_of(world_size - 1) > 0;
        prop_assert!(!whole || first == Some(plan.stats().largest));
    }

    /// Balance has a documented cost by default, and a model that counts elements balances these.
    #[test]
    fn balance_has_a_cost_by_default(sizes in sizes(), rule in rule(), world_size in 1_u32..6, seed in any::<u64>()) {
        let plan = planned(&sizes, world_size, seed).rule(rule);
        let Ok(balanced) = plan.clone().balance(true).build() else { return Ok(()) };
        let named = plan.clone().balance(true).cost(CostModel::default()).build().unwrap();
        prop_assert_eq!((named.fingerprint(), named.stats()), (balanced.fingerprint(), balanced.stats()));
        prop_assert_eq!(balanced.stats().imbalance_cost, CostModel::default().into());
        let counting = plan.clone().balance(true).cost(CostModel::new(0.0, 1.0, 0.0).unwrap()).build().unwrap();
        prop_assert_ne!(counting.fingerprint(), balanced.fingerprint());
        // Without balance, a cost is for statistics alone.
        let plain = plan.clone().build().unwrap();
        prop_assert_eq!(plain.stats().imbalance_cost, Cost::Elements);
        let counted = plan.cost(CostModel::default()).build().unwrap();
        prop_assert_eq!(counted.fingerprint(), plain.fingerprint());
        prop_assert_eq!(seen(&counted), seen(&plain));
    }

    /// Neither the cost nor the world decides which samples share a batch, in any window of pools.
    // law: L2
    #[test]
    fn balanced_batches_are_those_of_any_cost_and_world(sizes in prop::collection::vec(0_u32..50, 1..400), rule in small_pools(), models in (cost(), cost()), worlds in (1_u32..6, prop_oneof![1_u32..6, Just(600_u32)]), seed in any::<u64>()) {
        let members = |world_size: u32, model: CostModel| {
            let plan = planned(&sizes, world_size, seed).rule(rule.clone()).balance(true).cost(model).build().unwrap();
            let mut all: Vec<Vec<u64>> = seen(&plan).into_iter().flatten().map(|parts| parts.samples).collect();
            all.sort();
            all
        };
        prop_assert_eq!(members(worlds.0, models.0), members(worlds.1, models.1));
    }

    /// Each batch comes once in any chain of worlds within an epoch of several windows, and packs keep their budget.
    // law: L4, L5, L6
    #[test]
    fn balanced_batches_come_once_in_any_chain_of_worlds(sizes in prop::collection::vec(0_u32..50, 200..500), rule in small_pools(), model in cost(), chain in prop::collection::vec((1_u32..6, 0_u64..40), 0..5), last in prop_oneof![1_u32..6, Just(600_u32)], accumulate in 1_u64..5, within in prop_oneof![Just(BalanceWithin::Update), Just(BalanceWithin::UpdateSum)], seed in any::<u64>()) {
        let build = |world_size: u32| {
            let plan = planned(&sizes, world_size, seed).rule(rule.clone()).balance(true).cost(model);
            match accumulate {
                1 => plan.build().unwrap(),
                _ => plan.accumulate(accumulate).balance_within(within).build().unwrap(),
            }
        };
        let mut whole: Vec<Vec<u64>> = seen(&build(1)).into_iter().flatten().map(|parts| parts.samples).collect();
        let mut found: Vec<Vec<u64>> = Vec::new();
        let mut plan = build(chain.first().map_or(last, |&(world_size, _)| world_size));
        for &(world_size, steps) in &chain {
            plan = plan.in_world(world_size).unwrap();
            if plan.epoch() > 0 {
                break;
            }
            let steps = steps.min(plan.steps_of(world_size - 1));
            for (step, rank) in (0..steps).flat_map(|step| (0..world_size).map(move |rank| (step, rank))) {
                found.push(plan.indices(step, rank).unwrap());
            }
            plan = plan.resume(&plan.state(steps)).unwrap();
        }
        let rest = plan.in_world(last).unwrap();
        if rest.epoch() == 0 {
            found.extend(seen(&rest).into_iter().flatten().map(|parts| parts.samples));
        }
        whole.sort();
        found.sort();
        prop_assert_eq!(found, whole);
    }
}

#[test]
fn a_cost_is_asked_for_a_shape() {
    let model = CostModel::new(3.0, 2.0, 0.5).unwrap();
    assert_eq!(Cost::from(model).of_padded(4, 10), model.cost(4, 10));
    assert_eq!(Cost::default().of_padded(4, 10), 40.0);
    let equal =
        Plan::builder(100).rule(FixedSize::new(10).unwrap()).world_size(2).cost(model).build().unwrap();
    assert_eq!(equal.stats().imbalance, 0.0);
}
