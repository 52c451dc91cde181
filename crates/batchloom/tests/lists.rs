//! Batches that are given as lists: dealt as they come (L1, L3), resumed at any step (L4) by any number of ranks (L5).

use batchloom::batching::{FixedSize, Listed, Rule};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Loader, Plan, Tensor, TensorDataset};
use proptest::prelude::*;

use crate::errors::refused;

const SAMPLES: u32 = 30;

fn lists() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let any = prop::collection::vec(prop::collection::vec(0..SAMPLES, 1..5), 1..30);
    let equal = (prop::collection::vec(0..SAMPLES, 1..90), 1..5_usize);
    let equal = equal.prop_map(|(samples, len)| samples.chunks(len).map(<[u32]>::to_vec).collect());
    prop_oneof![any, equal]
}

fn listed(lists: &[Vec<u32>]) -> Listed {
    let ends: Vec<u32> = lists
        .iter()
        .scan(0, |end, list| {
            *end += list.len() as u32;
            Some(*end)
        })
        .collect();
    Listed::new(lists.concat(), ends).unwrap()
}

fn plan(lists: &[Vec<u32>], world_size: u32, uneven: Uneven) -> Plan {
    let builder = Plan::builder(u64::from(SAMPLES)).rule(listed(lists)).world_size(world_size);
    builder.uneven(uneven).build().unwrap()
}

fn uneven() -> impl Strategy<Value = Uneven> {
    prop_oneof![Just(Uneven::Pad), Just(Uneven::Short)]
}

/// The number of samples that batches are filled up to: that of all lists but the last, if it holds no more.
fn equal_len(lists: &[Vec<u32>]) -> Option<usize> {
    let (last, others) = lists.split_last().unwrap();
    let len = others.first().unwrap_or(last).len();
    (others.iter().all(|list| list.len() == len) && last.len() <= len).then_some(len)
}

/// The lists that all ranks take from a plan, in the order of dealing.
fn taken(plan: &Plan) -> Vec<Vec<u32>> {
    let places = (0..plan.steps()).flat_map(|step| (0..plan.world_size()).map(move |rank| (step, rank)));
    places
        .filter(|&(step, rank)| step < plan.steps_of(rank))
        .map(|(step, rank)| {
            plan.indices(step, rank).unwrap().into_iter().map(|sample| sample as u32).collect()
        })
        .collect()
}

proptest! {
    #[test]
    fn lists_are_dealt_as_they_come(lists in lists(), world_size in 1..6_u32, uneven in uneven(), epoch in 0..3_u64) {
        let plan = plan(&lists, world_size, uneven).at_epoch(epoch);
        let batches = taken(&plan);
        let short = uneven == Uneven::Short;
        let steps = lists.len().div_ceil(world_size as usize);
        prop_assert_eq!(plan.steps(), steps as u64);
        let dealt = if short { lists.len() } else { steps * world_size as usize };
        let dealt: Vec<_> = lists.iter().cycle().take(dealt).cloned().collect();
        let Some(_) = equal_len(&lists).filter(|_| !short && world_size > 1) else {
            prop_assert_eq!(batches, dealt);
            return Ok(());
        };
        let expected = dealt.chunks(world_size as usize).enumerate().flat_map(|(step, batches)| {
            let left = &lists[step * world_size as usize..];
            let len = left.iter().take(world_size as usize).map(Vec::len).max().unwrap();
            batches.iter().map(move |list| list.iter().copied().cycle().take(len).collect::<Vec<_>>())
        });
        prop_assert_eq!(batches, expected.collect::<Vec<_>>());
    }

    // law: L3
    #[test]
    fn lists_of_equal_counts_are_batches_of_a_rule_of_equal_counts(
        samples in 1..60_u32, batch_size in 1..9_u64, world_size in 1..6_u32, masked in any::<bool>(),
    ) {
        let uneven = if masked { Uneven::Mask } else { Uneven::Pad };
        let all: Vec<u32> = (0..samples).collect();
        let lists: Vec<Vec<u32>> = all.chunks(batch_size as usize).map(<[u32]>::to_vec).collect();
        let plan = |rule: Rule| {
            Plan::builder(u64::from(samples)).rule(rule).world_size(world_size).uneven(uneven).build().unwrap()
        };
        let (given, made) = (plan(listed(&lists).into()), plan(FixedSize::new(batch_size).unwrap().into()));
        prop_assert_eq!(given.steps(), made.steps());
        for step in 0..made.steps() {
            prop_assert_eq!(given.step(step).unwrap(), made.step(step).unwrap());
        }
    }

    #[test]
    fn lists_resume_at_any_step_with_any_world(
        lists in lists(), before in 1..6_u32, after in 1..6_u32, stop in 0.0..1.0_f64
    ) {
        let first = plan(&lists, before, Uneven::Short);
        let steps = (first.steps() as f64 * stop) as u64;
        let state = first.state(steps);
        let rest = plan(&lists, after, Uneven::Short).resume(&state).unwrap();
        let begun = (steps as usize * before as usize).min(lists.len());
        prop_assert_eq!(taken(&rest), &lists[begun..]);
    }

    #[test]
    fn statistics_count_what_lists_repeat_and_leave_out(lists in lists(), world_size in 1..6_u32) {
        let stats = plan(&lists, world_size, Uneven::Short).stats();
        let all = lists.concat();
        let named: std::collections::HashSet<u32> = all.iter().copied().collect();
        prop_assert_eq!(stats.real, all.len() as u64);
        prop_assert_eq!(stats.dropped, u64::from(SAMPLES) - named.len() as u64);
        prop_assert_eq!(stats.repeated, (all.len() - named.len()) as u64);
        prop_assert_eq!(stats.tokens + stats.repeated_tokens, stats.real + stats.dropped_tokens);
    }

    #[test]
    fn a_loader_takes_the_lists_of_each_epoch(epochs in prop::collection::vec(lists(), 1..4)) {
        let x = Tensor::from_vec((0..i64::from(SAMPLES)).collect(), &[SAMPLES as usize]).unwrap();
        let loader = Loader::builder(TensorDataset::new([("x", x)]).unwrap()).rule(listed(&epochs[0]));
        let loader = loader.build().unwrap();
        for lists in &epochs {
            loader.set_lists(listed(lists)).unwrap();
            let batches: Vec<Vec<u32>> = loader
                .iter()
                .map(|batch| {
                    let batch = batch.unwrap();
                    let x = batch.field("x").and_then(|x| x.as_slice::<i64>()).unwrap();
                    x.iter().map(|&sample| sample as u32).collect()
                })
                .collect();
            prop_assert_eq!(&batches, lists);
        }
    }
}

#[test]
fn a_state_needs_the_lists_that_it_was_taken_with() {
    let lists = [vec![0, 1], vec![2], vec![3, 4]];
    let state = plan(&lists, 1, Uneven::Pad).state(1);
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.contains(&listed(&lists).digest()), "{text}");
    let other = plan(&[vec![1, 0], vec![2], vec![3, 4]], 1, Uneven::Pad);
    refused(other.resume(&state), Kind::State, &["other batches", &listed(&lists).digest()]);
    // At its start, no list of an epoch was taken.
    assert!(other.resume(&plan(&lists, 1, Uneven::Pad).state(0)).is_ok());
}

#[test]
fn lists_that_make_no_sense() {
    refused(
        Listed::new(vec![1, 2], vec![1, 1, 2]),
        Kind::Argument,
        &["batch 1 of the lists holds no sample"],
    );
    refused(
        Listed::new(vec![1, 2], vec![2, 1]),
        Kind::Argument,
        &["a list ends at 1", "where 2 was reached"],
    );
    refused(Listed::new(vec![1, 2], vec![1]), Kind::Argument, &["a list ends at 1", "where 2 was reached"]);
    let lists = [vec![0], vec![SAMPLES]];
    let build = |lists: &[Vec<u32>]| Plan::builder(u64::from(SAMPLES)).rule(listed(lists));
    refused(
        build(&lists).build(),
        Kind::Range,
        &[&format!("sample {SAMPLES}"), &format!("sample < {SAMPLES}")],
    );
    let built = build(&lists[..1]).shuffle(true).build();
    refused(built, Kind::Argument, &["shuffle does not go with a list of batches"]);
    let built = build(&lists[..1]).shard_size(2).build();
    refused(built, Kind::Argument, &["shard_size does not go with a list of batches"]);
}
