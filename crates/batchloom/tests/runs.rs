//! Runs without a loader: batches that are taken, skipped, saved and resumed are those of a run that never stopped (L4), for
//! any number of ranks (L5), and states are those of a loader.

use batchloom::batching::Listed;
use batchloom::plan::State;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Loader, Plan, Run, TensorDataset};
use proptest::prelude::*;

use crate::errors::refused;
use crate::plan::{Options, options, seen};

/// One stretch of a run: its batches, whether they are passed over, and whether a state is loaded in a new run after it.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    batches: usize,
    is_skipped: bool,
    is_saved: bool,
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let stretch = (0_usize..12, any::<bool>(), any::<bool>())
        .prop_map(|(batches, is_skipped, is_saved)| Stretch { batches, is_skipped, is_saved });
    prop::collection::vec(stretch, 1..6)
}

/// Options whose run has epochs after the first, and the rank of a run that has batches.
fn runs() -> impl Strategy<Value = (Options, u32)> {
    let with_rank = |options: Options| {
        let options = Options { epoch: options.epoch / 2, ..options };
        let ranks = 0..options.world_size;
        (Just(options), ranks)
    };
    let has_steps = |(options, rank): &(Options, u32)| {
        options.build().is_ok_and(|plan| (0..3).all(|epoch| plan.at_epoch(epoch).steps_of(*rank) > 0))
    };
    options().prop_flat_map(with_rank).prop_filter("the rank takes no step", has_steps)
}

fn begun(options: &Options, rank: u32) -> Run {
    Run::new(options.build().unwrap(), rank).unwrap()
}

/// A state after a trip through text, as a checkpoint makes it.
fn saved(state: &State) -> State {
    serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap()
}

/// Takes batches, epoch after epoch.
fn take(run: &mut Run, batches: usize) -> Vec<Vec<u64>> {
    let mut taken = Vec::new();
    while taken.len() < batches {
        let left = batches - taken.len();
        taken.extend(run.begin().take(left).map(Result::unwrap));
    }
    taken
}

/// The batches of a rank, epoch after epoch, by definition.
fn whole(options: &Options, rank: u32, batches: usize) -> Vec<Vec<u64>> {
    let plan = options.build().unwrap();
    (plan.epoch()..).flat_map(|epoch| seen(&plan.at_epoch(epoch), rank)).take(batches).collect()
}

proptest! {
    // law: L4
    #[test]
    fn a_run_in_stretches_is_the_run_that_never_stopped((options, rank) in runs(), stretches in stretches()) {
        let total: usize = stretches.iter().map(|stretch| stretch.batches).sum();
        let expected = whole(&options, rank, total);
        let (mut run, mut place) = (begun(&options, rank), 0);
        for Stretch { batches, is_skipped, is_saved } in stretches {
            if is_skipped {
                let mut left = batches as u64;
                while left > 0 {
                    left -= run.skip(left).unwrap();
                }
            } else {
                prop_assert_eq!(take(&mut run, batches), &expected[place..place + batches]);
            }
            place += batches;
            run.go_on().unwrap();
            if is_saved {
                let state = saved(&run.state());
                run = begun(&Options { seed: !options.seed, ..options.clone() }, rank);
                run.load(&state).unwrap();
                prop_assert_eq!(run.state(), state);
            }
            if rank == 0 {
                let mut other = begun(&options, rank);
                take(&mut other, place);
                prop_assert_eq!(run.state(), other.state(), "after {} batches", place);
                prop_assert_eq!(run.steps_taken(), place as u64);
            }
        }
    }

    /// A batch that waits for its use can be left out of a state, at any place of an iteration and after its epoch was left.
    // law: L4
    #[test]
    fn a_state_of_batches_that_were_used((options, _) in runs(), before in 0_usize..20, goes_on: bool) {
        let mut run = begun(&options, 0);
        take(&mut run, before);
        run.go_on().unwrap();
        let length = usize::try_from(run.remaining()).unwrap();
        for count in 1..=length {
            let mut run = begun(&options, 0);
            take(&mut run, before);
            run.go_on().unwrap();
            prop_assert_eq!(run.begin().take(count).count(), count);
            if goes_on {
                run.go_on().unwrap();
            }
            prop_assert_eq!(run.handed_over(), count as u64);
            for used in 0..=count {
                let mut other = begun(&options, 0);
                take(&mut other, before + used);
                prop_assert_eq!(run.state_after(used as u64).unwrap(), other.state());
            }
            let words = [format!("step {}", count + 1), format!("step < {}", count + 1)];
            refused(run.state_after(count as u64 + 1), Kind::Range, &words.each_ref().map(String::as_str));
        }
    }

    /// The world changes within the epoch, and the batches that were left come once each.
    // law: L5
    #[test]
    fn ranks_share_the_rest(options in options(), world_size in 1_u32..10, steps in 0_usize..20) {
        let options = Options { drop_last: false, uneven: Uneven::Short, epoch: options.epoch / 2, ..options };
        let steps = steps.min(options.build().unwrap().steps() as usize - 1);
        let mut ranks: Vec<Run> = (0..options.world_size).map(|rank| begun(&options, rank)).collect();
        let taken: Vec<Vec<Vec<u64>>> = ranks.iter_mut().map(|run| run.begin().take(steps).map(Result::unwrap).collect()).collect();
        let state = saved(&ranks[0].state());
        let mut batches: Vec<Vec<u64>> = (0..steps).flat_map(|step| taken.iter().map(move |rank| rank[step].clone())).collect();
        let rest: Vec<Vec<Vec<u64>>> = (0..world_size).map(|rank| {
            let mut run = begun(&Options { world_size: 1, ..options.clone() }, 0);
            run.load(&state).unwrap();
            run.serve(rank, world_size).unwrap();
            run.begin().map(Result::unwrap).collect()
        }).collect();
        let longest = rest.iter().map(Vec::len).max().unwrap();
        batches.extend((0..longest).flat_map(|step| rest.iter().filter_map(move |rank| rank.get(step).cloned())));
        prop_assert_eq!(batches, options.batches());
    }

    #[test]
    fn epochs_come_by_their_numbers((options, rank) in runs(), epochs in prop::collection::vec(0_u64..6, 1..6)) {
        let mut run = begun(&options, rank);
        let plan = options.build().unwrap();
        for epoch in epochs {
            run.set_epoch(epoch);
            prop_assert_eq!((run.epoch(), run.len()), (epoch, plan.at_epoch(epoch).steps_of(rank)));
            let batches = run.begin().map(Result::unwrap).collect::<Vec<_>>();
            prop_assert_eq!(batches, seen(&plan.at_epoch(epoch), rank));
            prop_assert_eq!(run.epoch(), epoch + 1);
        }
    }

    // law: L4
    #[test]
    fn a_loader_has_the_states_of_a_run((options, rank) in runs(), batches in 0_usize..30) {
        let rows = TensorDataset::new([("row", (0..options.samples.cast_signed()).collect::<Vec<_>>())]).unwrap();
        let loader = Loader::builder(rows).batch_size(options.batch_size).shuffle(options.shuffle).seed(options.seed);
        let loader = loader.rank(rank, options.world_size).drop_last(options.drop_last).uneven(options.uneven);
        let loader = loader.shard_size(options.shard_size).num_threads(1).build().unwrap();
        let mut run = Run::new(options.build().unwrap().at_epoch(0), rank).unwrap();
        let mut left = batches;
        while left > 0 {
            let (mut of_loader, mut of_run) = (loader.iter(), run.begin());
            while left > 0 && let (Some(batch), Some(samples)) = (of_loader.next(), of_run.next()) {
                let samples: Vec<i64> = samples.unwrap().into_iter().map(u64::cast_signed).collect();
                let batch = batch.unwrap();
                prop_assert_eq!(batch.view::<i64>("row").unwrap(), samples);
                prop_assert_eq!(loader.state(), run.state());
                prop_assert_eq!((loader.epoch(), loader.remaining()), (run.epoch(), run.remaining()));
                left -= 1;
            }
        }
        prop_assert_eq!((loader.state(), loader.steps_taken()), (run.state(), run.steps_taken()));
    }
}

fn ten() -> Plan {
    Plan::builder(10).batch_size(2).shuffle(true).build().unwrap()
}

#[test]
fn an_iteration_that_handed_over_nothing_begins_again() {
    let mut run = Run::new(ten(), 0).unwrap();
    drop(run.begin());
    assert_eq!((run.epoch(), run.remaining(), run.state()), (0, 5, ten().state(0)));
    let first = run.begin();
    let mut second = run.begin();
    assert_eq!((first.plan().epoch(), second.plan().epoch()), (0, 1));
    assert_eq!((second.step(), second.left(), second.rank()), (0, 5, 0));
    // An iteration that is not the latest counts for nobody.
    first.advance();
    assert_eq!(run.handed_over(), 0);
    second.next().unwrap().unwrap();
    assert_eq!((run.handed_over(), run.epoch(), run.remaining(), run.is_mid_epoch()), (1, 1, 4, true));
}

#[test]
fn a_reader_ahead_counts_what_it_hands_over() {
    let mut run = Run::new(ten(), 0).unwrap();
    let iteration = run.begin();
    let read: Vec<Vec<u64>> =
        (0..iteration.left()).map(|step| iteration.plan().indices(step, 0).unwrap()).collect();
    assert_eq!(run.state(), ten().state(0));
    iteration.advance();
    iteration.advance();
    assert_eq!(run.state().batches, 2);
    let mut other = Run::new(ten(), 0).unwrap();
    other.load(&run.state()).unwrap();
    assert!(other.is_rest());
    assert_eq!(other.begin().map(Result::unwrap).collect::<Vec<_>>(), read[2..]);
}

#[test]
fn the_epoch_of_a_rank_with_a_step_less_is_over_when_its_end_is_seen() {
    let plan = Plan::builder(10).batch_size(2).world_size(2).uneven(Uneven::Short).build().unwrap();
    let mut run = Run::new(plan, 1).unwrap();
    let mut batches = run.begin();
    assert_eq!(batches.by_ref().take(2).count(), 2);
    assert_eq!((run.state().epoch, run.steps_taken()), (0, 2));
    assert!(batches.next().is_none());
    assert_eq!((run.state().epoch, run.steps_taken()), (1, 3));
}

#[test]
fn what_a_run_cannot_do_is_refused_and_changes_nothing() {
    refused(Run::new(ten(), 1), Kind::Argument, &["rank is 1", "world of 1"]);
    let mut run = Run::new(ten(), 0).unwrap();
    take(&mut run, 2);
    let state = run.state();
    refused(run.serve(3, 2), Kind::Argument, &["rank is 3", "world of 2"]);
    refused(run.serve(0, 0), Kind::Argument, &["world_size is 0"]);
    let other = Plan::builder(11).batch_size(2).build().unwrap().state(0);
    refused(run.load(&other), Kind::State, &["the state belongs to another plan", &other.fingerprint]);
    let lists = Listed::new([0], [1]).unwrap();
    refused(run.set_lists(lists), Kind::Argument, &["lists of samples are given", "FixedSize"]);
    assert_eq!(run.state(), state);
}
