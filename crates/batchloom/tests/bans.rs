//! Bans: a banned sample leaves its place without weight, and changes nothing else, whenever it is banned.

use std::collections::BTreeSet;

use batchloom::batching::{FixedSize, LengthBuckets, Packing, Rule, Sizes, TokenBudget};
use batchloom::plan::{PlanBuilder, State};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::refused;

fn plan_of(rule: usize, uneven: Uneven, world_size: u32) -> PlanBuilder {
    let sizes: Vec<u32> = (0..90).map(|sample| 1 + sample * 7 % 13).collect();
    let rule: Rule = match rule {
        0 => FixedSize::new(4).unwrap().into(),
        1 => LengthBuckets::new(4).unwrap().into(),
        2 => TokenBudget::new(40).unwrap().into(),
        _ => Packing::new(26).unwrap().into(),
    };
    let builder = Plan::builder(90).shuffle(true).uneven(uneven).world_size(world_size).seed(5);
    let builder = if matches!(rule, Rule::FixedSize(_)) { builder } else { builder.sizes(Sizes::new(sizes)) };
    builder.rule(rule)
}

fn uneven() -> impl Strategy<Value = Uneven> {
    prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)]
}

fn banned() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..90_u64, 0..12)
}

/// The samples of a step that count.
fn counting(plan: &Plan, step: u64) -> Vec<u64> {
    let step_of_all = plan.step(step).unwrap();
    let fillers = |rank: usize| plan.fillers(step, rank as u32).unwrap() as usize;
    let own = step_of_all.batches.iter().enumerate();
    let own = own.flat_map(|(rank, batch)| batch[..batch.len() - fillers(rank)].to_vec());
    own.filter(|sample| plan.banned(step).binary_search(sample).is_err()).collect()
}

proptest! {
    // law: L1
    #[test]
    fn bans_change_counts_and_nothing_else(
        rule in 0..4_usize, uneven in uneven(), world_size in 1..4_u32, banned in banned(),
    ) {
        let whole = plan_of(rule, uneven, world_size).build().unwrap();
        let plan = plan_of(rule, uneven, world_size).ban(banned.clone()).build().unwrap();
        prop_assert_eq!(plan.fingerprint(), whole.fingerprint());
        prop_assert_eq!(plan.steps(), whole.steps());
        for step in 0..plan.steps() {
            let (banning, expected) = (plan.step(step).unwrap(), whole.step(step).unwrap());
            prop_assert_eq!(&banning.batches, &expected.batches);
            prop_assert_eq!(banning.samples, counting(&plan, step).len() as u64);
            prop_assert_eq!(banning.counts.iter().sum::<u64>(), banning.samples);
        }
        for sample in 0..90 {
            let places = plan.places(sample).unwrap();
            let expected = if banned.contains(&sample) { Vec::new() } else { whole.places(sample).unwrap() };
            prop_assert_eq!(places, expected);
        }
        let (banning, expected) = (plan.stats(), whole.stats());
        prop_assert_eq!(banning.banned, banned.iter().collect::<BTreeSet<_>>().len() as u64);
        prop_assert_eq!(banning.padded, expected.padded);
        prop_assert_eq!(
            banning.tokens + banning.repeated_tokens,
            banning.real + banning.truncated_tokens + banning.dropped_tokens + banning.banned_tokens + banning.earlier_tokens
        );
        prop_assert_eq!(
            banning.samples + banning.repeated,
            banning.dropped + banning.earlier + banning.banned
                + (0..plan.steps()).map(|step| plan.step(step).unwrap().samples).sum::<u64>()
        );
    }

    // law: L5
    #[test]
    fn bans_hold_from_the_step_at_which_a_state_was_loaded(
        rule in 0..4_usize, lists in prop::collection::vec(banned(), 1..4),
        worlds in prop::collection::vec((1..4_u32, 0..9_u64), 3), epochs in 1..3_u64,
    ) {
        // A run in parts, each with its own list and world; what it should count is looked up in the plans without bans.
        let base = |world_size: u32| plan_of(rule, Uneven::Mask, world_size);
        let mut state: Option<State> = None;
        let mut history: Vec<(State, Vec<u64>)> = Vec::new();
        for (part, &(world_size, steps)) in worlds.iter().enumerate() {
            let list = lists[part % lists.len()].clone();
            let plan = base(world_size).epoch(epochs).ban(list.clone()).build().unwrap();
            let plan = state.as_ref().map_or(Ok(plan.clone()), |state| plan.resume(state)).unwrap();
            let plain = base(world_size).epoch(epochs).build().unwrap();
            let bare = |state: &State| State { bans: None, ..state.clone() };
            let plain = state.as_ref().map_or(Ok(plain.clone()), |state| plain.resume(&bare(state))).unwrap();
            let steps = steps.min(plan.steps().saturating_sub(1));
            for step in 0..steps {
                let expected: Vec<u64> =
                    counting(&plain, step).into_iter().filter(|sample| !list.contains(sample)).collect();
                prop_assert_eq!(counting(&plan, step), expected);
            }
            let saved = plan.state(steps);
            history.push((saved.clone(), list));
            state = Some(saved);
        }
        // The last state alone says what was banned at each earlier step.
        let (last, list) = history.last().unwrap();
        let run = base(1).epoch(epochs).ban(list.clone()).build().unwrap().resume(last).unwrap();
        let mut done = 0;
        for ((world_size, steps), part) in worlds.iter().zip(0..) {
            let list: BTreeSet<u64> = lists[part % lists.len()].iter().copied().collect();
            let upto = history[part].0.batches;
            if upto > done {
                let whole = run.at_epoch(epochs);
                prop_assert_eq!(whole.banned(done), list.into_iter().collect::<Vec<_>>(), "{} {}", world_size, steps);
            }
            done = upto;
        }
    }
}

#[test]
fn states_that_ban_need_a_list() {
    let builder = || Plan::builder(10).batch_size(2);
    let state = builder().ban(vec![3, 7, 3]).build().unwrap().state(2);
    assert_eq!(state.bans, Some(vec![(0, 0, vec![3, 7])]));
    let resumed = builder().build().unwrap().resume(&state);
    refused(resumed, Kind::State, &["the state bans 2 samples", "first of them 3"]);
    let lifted = builder().ban(Vec::new()).build().unwrap().resume(&state).unwrap();
    assert_eq!(lifted.state(0).bans, Some(vec![(0, 0, vec![3, 7]), (0, 2, vec![])]));
    assert_eq!(lifted.banned(0), [0_u64; 0]);
    // What was lifted needs no list.
    let lifted = State { bans: Some(vec![(0, 0, vec![3]), (0, 2, vec![])]), ..state };
    assert_eq!(builder().build().unwrap().resume(&lifted).unwrap().state(0).bans, lifted.bans);
    refused(builder().ban(vec![10]).build(), Kind::Range, &["sample 10", "sample < 10"]);
}

#[test]
fn damaged_bans_are_refused() {
    let plan = Plan::builder(10).batch_size(2).ban(vec![1]).build().unwrap();
    for bans in [
        vec![(0, 4, vec![1]), (0, 4, vec![2])],
        vec![(1, 0, vec![1]), (0, 4, vec![2])],
        vec![(0, 0, vec![2, 1])],
        vec![(0, 0, vec![10])],
    ] {
        let state = State { bans: Some(bans.clone()), ..plan.state(2) };
        refused(plan.resume(&state), Kind::State, &["the state is damaged"]);
    }
}
