//! Resume (L4) and elastic world (L5): continuing from a saved state equals never having stopped.

use batchloom::plan::{PlanBuilder, State};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::refused;
use crate::plan::{Options, options, seen};

/// A state after a trip through text, as a checkpoint makes it.
fn saved(state: &State) -> State {
    serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap()
}

/// The batches of epoch 1 that a chain of worlds delivers, each for some steps, and a last world to the end.
pub(crate) fn deliver_through(
    builder: impl Fn() -> PlanBuilder,
    worlds: impl IntoIterator<Item = (u32, u64)>,
) -> Vec<Vec<u64>> {
    let (mut state, mut delivered) = (builder().build().unwrap().state(0), Vec::new());
    for (world_size, steps) in worlds.into_iter().chain([(2, u64::MAX)]) {
        let plan = builder().world_size(world_size).build().unwrap().resume(&state).unwrap();
        if plan.epoch() != 1 {
            break;
        }
        let steps = steps.min(plan.steps());
        for step in 0..steps {
            let ranks = (0..world_size).filter(|&rank| step < plan.steps_of(rank));
            delivered.extend(ranks.map(|rank| plan.indices(step, rank).unwrap()));
        }
        state = plan.state(steps);
    }
    delivered
}

fn following(plan: &Plan) -> Plan {
    plan.at_epoch(plan.epoch().wrapping_add(1))
}

proptest! {
    // law: L4
    #[test]
    fn resume_equals_never_stopping_at_every_step(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        for epoch in [options.epoch, options.epoch.wrapping_add(1), options.epoch.wrapping_add(2)] {
            let plan = plan.at_epoch(epoch);
            for step in 0..=plan.steps() {
                let state = saved(&plan.state(step));
                prop_assert!(state.batches <= options.batches().len() as u64);
                let rest = options.build().unwrap().resume(&state).unwrap();
                prop_assert_eq!(rest.state(0), state);
                // After the last step, a run goes on with the next epoch.
                let (whole, from) = if step < plan.steps() { (plan.clone(), step) } else { (following(&plan), 0) };
                prop_assert_eq!(rest.epoch(), whole.epoch());
                for rank in 0..options.world_size {
                    let whole = seen(&whole, rank);
                    let from = usize::try_from(from).unwrap().min(whole.len());
                    prop_assert_eq!(seen(&rest, rank), &whole[from..]);
                }
            }
        }
    }

    // law: L4
    #[test]
    fn three_resumes_inside_one_epoch(options in options(), stops in prop::array::uniform3(0.0..1.0_f64)) {
        let Ok(whole) = options.build() else { return Ok(()) };
        let mut got = vec![Vec::new(); options.world_size as usize];
        let mut plan = whole.clone();
        for stop in stops {
            let steps = (plan.steps() as f64 * stop) as u64;
            for rank in 0..options.world_size {
                let count = usize::try_from(steps).unwrap();
                got[rank as usize].extend(seen(&plan, rank).into_iter().take(count));
            }
            plan = options.build().unwrap().resume(&saved(&plan.state(steps))).unwrap();
        }
        for rank in 0..options.world_size {
            got[rank as usize].extend(seen(&plan, rank));
            prop_assert_eq!(&got[rank as usize], &seen(&whole, rank));
        }
    }

    /// Too few batches for a step of more ranks are dropped, as at any epoch's end.
    // law: L4
    #[test]
    fn no_rest_is_empty(options in options(), world_size in 1_u32..10, stop in 0.0..1.0_f64) {
        let options = Options { drop_last: true, ..options };
        let Ok(plan) = options.build() else { return Ok(()) };
        let steps = (plan.steps() as f64 * stop) as u64;
        let (all, taken) = (options.batches().len() as u64, steps * u64::from(options.world_size));
        let Ok(now) = (Options { world_size, ..options }).build() else { return Ok(()) };
        let rest = now.resume(&plan.state(steps)).unwrap();
        let left = (all - taken) / u64::from(world_size);
        let (epoch, expected) =
            if left > 0 { (now.epoch(), left) } else { (following(&now).epoch(), following(&now).steps()) };
        prop_assert_eq!((rest.epoch(), rest.steps()), (epoch, expected));
    }

    /// The world changes twice within the epoch, and the batches that were left come once each.
    // law: L5
    #[test]
    fn elastic(options in options(), worlds in prop::array::uniform2(1_u32..10), stops in prop::array::uniform2(0.0..1.0_f64)) {
        let options = Options { drop_last: false, uneven: Uneven::Short, ..options };
        let mut plan = options.build().unwrap();
        let mut got = Vec::new();
        for (world_size, stop) in worlds.into_iter().zip(stops) {
            let steps = (plan.steps() as f64 * stop) as u64;
            (0..steps).for_each(|step| got.extend(plan.step(step).unwrap().batches));
            let next = Options { world_size, seed: 99, ..options.clone() }.build().unwrap();
            plan = next.resume(&saved(&plan.state(steps))).unwrap();
            prop_assert_eq!(plan.stats().earlier, got.iter().map(Vec::len).sum::<usize>() as u64);
        }
        (0..plan.steps()).for_each(|step| got.extend(plan.step(step).unwrap().batches));
        prop_assert_eq!(got, options.batches());
    }

    // law: L5
    #[test]
    fn elastic_with_padding_loses_nothing(options in options(), world_size in 1_u32..10, stop in 0.0..1.0_f64) {
        let options = Options { drop_last: false, uneven: Uneven::Pad, ..options };
        let plan = options.build().unwrap();
        let steps = (plan.steps() as f64 * stop) as u64;
        let (batches, before) = (options.batches(), (steps * u64::from(options.world_size)) as usize);
        let left: usize = batches.iter().skip(before).map(Vec::len).sum();
        let rest = Options { world_size, ..options }.build().unwrap().resume(&plan.state(steps)).unwrap();
        let stats = rest.stats();
        prop_assert_eq!(stats.real - stats.repeated, left as u64);
        prop_assert_eq!(stats.dropped, 0);
        for rank in 0..world_size {
            prop_assert_eq!(rest.steps_of(rank), rest.steps());
        }
    }
}

// law: L4
#[test]
fn the_last_state_of_an_epoch_is_the_start_of_the_next() {
    let plan = Plan::builder(10).batch_size(3).shuffle(true).build().unwrap();
    assert_eq!(plan.state(4), plan.at_epoch(1).state(0));
    let rest = plan.resume(&plan.state(4)).unwrap();
    assert_eq!((rest.epoch(), rest.steps(), rest.stats().earlier, rest.stats().real), (1, 4, 0, 10));
    let last = plan.at_epoch(u64::MAX);
    assert_eq!(last.state(4), last.state(0), "the last epoch is followed by itself");
}

// law: L4
#[test]
fn loading_does_not_replay() {
    let plan = Plan::builder(1 << 50).batch_size(8).shuffle(true).world_size(4).build().unwrap();
    let rest = plan.resume(&plan.state(1 << 44)).unwrap();
    assert_eq!(rest.indices(0, 3).unwrap(), plan.indices(1 << 44, 3).unwrap());
}

#[test]
fn foreign_and_damaged_states_are_refused() {
    let plan = Plan::builder(100).batch_size(8).shuffle(true).build().unwrap();
    let good = plan.state(5);
    let other = Plan::builder(101).batch_size(8).shuffle(true).build().unwrap();
    let (foreign, damaged) = ("the state belongs to another plan", "the state is damaged");
    refused(other.resume(&good), Kind::State, &[foreign, &plan.fingerprint(), &other.fingerprint()]);
    let resume = |state: State| plan.resume(&state);
    let version = ["format version 9", "reads version 1"];
    refused(resume(State { version: 9, ..good.clone() }), Kind::State, &version);
    refused(resume(State { seed: 1, ..good.clone() }), Kind::State, &[foreign, &plan.fingerprint()]);
    let batches = resume(State { batches: 6, ..good.clone() });
    refused(batches, Kind::State, &[damaged, "6 batches", "add up to 5"]);
    let nobody = resume(State { worlds: vec![(0, 5)], ..good.clone() });
    refused(nobody, Kind::State, &[damaged, "a world of 0"]);
    let many = resume(State { worlds: vec![(1, 99)], ..good.clone() });
    refused(many, Kind::State, &[damaged, "99 steps in a world of 1", "13 were left"]);
    let more = resume(State { worlds: vec![(1, u64::MAX)], ..good });
    refused(more, Kind::State, &[damaged, "18446744073709551615 steps in a world of 1"]);
}

/// The state format is a promise across releases.
// law: L4
#[test]
fn golden() {
    let plan =
        Plan::builder(1000).batch_size(8).shuffle(true).seed(42).epoch(3).world_size(4).build().unwrap();
    let rest = Plan::builder(1000).batch_size(8).shuffle(true).seed(42).world_size(3).build().unwrap();
    let state = rest.resume(&plan.state(5)).unwrap().state(2);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/state.json");
    let text = serde_json::to_string_pretty(&state).unwrap() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, golden);
    assert_eq!(rest.resume(&serde_json::from_str(&golden).unwrap()).unwrap().state(0), state);
}

proptest! {
    #[test]
    fn the_count_of_a_trainer_in_a_state_changes_no_plan(options in options(), count: (u64, u64)) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let state = plan.state(plan.steps() / 2);
        prop_assert!(serde_json::to_value(&state).unwrap().get("set_epoch").is_none());
        let counted = saved(&State { set_epoch: Some(count), ..state.clone() });
        prop_assert_eq!(counted.set_epoch, Some(count));
        prop_assert_eq!(plan.resume(&counted).unwrap().state(0), state);
    }
}
