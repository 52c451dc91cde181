//! Samples with several keys, which no batch holds twice, and samples that no batch has room for.

use std::collections::{BTreeMap, BTreeSet};

use batchloom::batching::{Keys, Surplus};
use batchloom::plan::PlanBuilder;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// The keys of samples, a row for each.
type Rows = Vec<Vec<u32>>;

/// Keys from few values, from many, or both, so that some are frequent.
fn rows(columns: std::ops::Range<usize>, samples: std::ops::Range<usize>) -> impl Strategy<Value = Rows> {
    (columns, 2..60_u32).prop_flat_map(move |(columns, values)| {
        let key = prop_oneof![4 => 0..values, 4 => 0..1000_u32, 1 => 0..3_u32];
        prop::collection::vec(prop::collection::vec(key, columns), samples.clone())
    })
}

fn keys(rows: &Rows) -> Keys {
    Keys::several(rows.concat(), rows[0].len()).unwrap()
}

fn plan_of(rows: &Rows, batch_size: u64, surplus: Surplus) -> PlanBuilder {
    let builder = Plan::builder(rows.len() as u64).batch_size(batch_size).shuffle(true);
    builder.distinct_by(keys(rows)).surplus(surplus)
}

fn shares_key(row: &[u32], other: &[u32]) -> bool {
    row.iter().any(|key| other.contains(key))
}

/// The samples of each rank at a step, without those that fill up.
fn batches(plan: &Plan, step: u64) -> Vec<Vec<u64>> {
    let own = |rank: u32| {
        let mut batch = plan.indices(step, rank).unwrap();
        batch.truncate(batch.len() - plan.fillers(step, rank).unwrap() as usize);
        batch
    };
    let ranks = (0..plan.world_size()).filter(|&rank| step < plan.steps_of(rank));
    ranks.map(own).filter(|batch| !batch.is_empty()).collect()
}

fn all_batches(plan: &Plan) -> Vec<Vec<u64>> {
    (0..plan.steps()).flat_map(|step| batches(plan, step)).collect()
}

/// The most samples that batches of different keys hold, all full but the last one, by trying all batches.
fn most_kept(counts: &[u64], batch_size: usize, drop_last: bool, known: &mut BTreeMap<Vec<u64>, u64>) -> u64 {
    let mut counts: Vec<u64> = counts.iter().copied().filter(|&count| count > 0).collect();
    counts.sort_unstable();
    if let Some(&known) = known.get(&counts) {
        return known;
    }
    let mut most = if drop_last || counts.len() >= batch_size { 0 } else { counts.len() as u64 };
    for chosen in 0..1_u32 << counts.len() {
        if chosen.count_ones() as usize == batch_size {
            let left = (0..).zip(&counts).map(|(key, count)| count - u64::from(chosen >> key & 1));
            let left: Vec<u64> = left.collect();
            most = most.max(batch_size as u64 + most_kept(&left, batch_size, drop_last, known));
        }
    }
    known.insert(counts, most);
    most
}

proptest! {
    /// Every batch but the last is full, no two samples of one share a key, and each sample is in one or left out.
    // law: L1, L6
    #[test]
    fn batches_share_no_key(
        rows in rows(1..4, 1..150), batch_size in 1..12_u64, drop_last in any::<bool>(), drops in any::<bool>(),
        world_size in 1..4_u32, seed in any::<u64>(), epoch in 0..3_u64,
    ) {
        let surplus = if drops { Surplus::Drop } else { Surplus::Error };
        let builder = plan_of(&rows, batch_size, surplus).seed(seed).epoch(epoch).drop_last(drop_last);
        let plan = match builder.world_size(world_size).uneven(Uneven::Mask).build() {
            Err(error) if drop_last && is(&error, Kind::Argument, &["drop_last leaves no step"]) => return Ok(()),
            Err(error) => {
                prop_assert!(!drops, "{error}");
                let sample = error.sample().unwrap() as usize;
                let sharing = rows.iter().filter(|row| shares_key(row, &rows[sample])).count();
                prop_assert!(sharing > 1 || drop_last);
                let said = ["have the key of sample", "shares its keys"];
                prop_assert!(said.iter().any(|said| is(&error, Kind::Argument, &[said])), "{error}");
                return Ok(());
            }
            plan => plan.unwrap(),
        };
        let found = all_batches(&plan);
        for (place, batch) in found.iter().enumerate() {
            let is_last = place + 1 == found.len();
            prop_assert!(batch.len() as u64 == batch_size || (is_last && !drop_last), "{:?}", found);
            for (index, &sample) in batch.iter().enumerate() {
                let row = &rows[sample as usize];
                prop_assert!(!batch[..index].iter().any(|&other| shares_key(row, &rows[other as usize])));
            }
        }
        let seen: BTreeSet<u64> = found.iter().flatten().copied().collect();
        prop_assert_eq!(seen.len(), found.iter().map(Vec::len).sum::<usize>());
        let (all, stats) = (rows.len() as u64, plan.stats());
        prop_assert_eq!(stats.dropped, all - seen.len() as u64);
        prop_assert_eq!(stats.real + stats.dropped, all);
        if !drops {
            let kept = if drop_last { all - all % batch_size } else { all };
            // A last step that lacks batches is left out too.
            let missing = if drop_last { kept - seen.len() as u64 } else { 0 };
            prop_assert_eq!(seen.len() as u64 + missing, kept);
            prop_assert!(missing < batch_size * u64::from(world_size));
        }
        for sample in 0..all {
            let places = plan.places(sample).unwrap();
            prop_assert_eq!(places.len(), usize::from(seen.contains(&sample)));
            for place in places {
                prop_assert_eq!(plan.indices(place.step, place.rank).unwrap()[place.index as usize], sample);
            }
        }
    }

    /// Drops nothing where every sample finds a batch: batches are the same.
    // law: L1
    #[test]
    fn a_surplus_is_dropped_where_there_is_one(
        rows in rows(1..4, 20..150), batch_size in 1..8_u64, seed in any::<u64>(), epoch in 0..3_u64,
    ) {
        let build = |surplus| plan_of(&rows, batch_size, surplus).seed(seed).epoch(epoch).build();
        if let Ok(plan) = build(Surplus::Error) {
            let dropping = build(Surplus::Drop).unwrap();
            prop_assert_eq!(all_batches(&plan), all_batches(&dropping));
            prop_assert_ne!(plan.fingerprint(), dropping.fingerprint());
        }
    }

    /// With one key a sample, as many samples are kept as any batches hold.
    #[test]
    fn as_few_as_possible_are_left_out(
        counts in prop::collection::vec(1..6_u64, 1..5), batch_size in 1..5_u64, drop_last in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let each = (0_u32..).zip(&counts).flat_map(|(key, &count)| std::iter::repeat_n(vec![key], count as usize));
        let rows: Rows = each.collect();
        let most = most_kept(&counts, batch_size as usize, drop_last, &mut BTreeMap::new());
        match plan_of(&rows, batch_size, Surplus::Drop).drop_last(drop_last).seed(seed).build() {
            Ok(plan) => prop_assert_eq!(plan.stats().real, most),
            Err(error) => {
                prop_assert!(is(&error, Kind::Argument, &["drop_last leaves no step"]), "{error}");
                prop_assert_eq!(most, 0);
            }
        }
    }

    /// A run that stops and continues with other ranks takes the batches that were left.
    // law: L4, L5
    #[test]
    fn what_is_left_is_taken_by_other_ranks(
        rows in rows(1..4, 20..120), batch_size in 1..8_u64, worlds in (1..4_u32, 1..4_u32), seed in any::<u64>(),
        stop in any::<prop::sample::Index>(),
    ) {
        let builder = plan_of(&rows, batch_size, Surplus::Drop).seed(seed).epoch(1).uneven(Uneven::Short);
        let plan = builder.world_size(worlds.0).build().unwrap();
        let stop = stop.index(plan.steps() as usize) as u64;
        let rest = plan.in_world(worlds.1).unwrap().resume(&plan.state(stop)).unwrap();
        let taken = (0..stop).flat_map(|step| batches(&plan, step));
        let together: Vec<Vec<u64>> = taken.chain(all_batches(&rest)).collect();
        prop_assert_eq!(together, all_batches(&plan));
        let stats = rest.stats();
        prop_assert_eq!(stats.samples, stats.real + stats.dropped + stats.earlier);
    }
}

/// A batch of pairs keeps every anchor apart from every positive, in every epoch, and mates change.
#[test]
fn pairs_with_frequent_anchors_are_kept_apart() {
    // The first anchor has 40 positives, and 50 batches take one each.
    let row = |pair: u32| vec![if pair < 40 { 0 } else { pair / 2 }, 10_000 + pair / 3];
    let rows: Rows = (0..1600).map(row).collect();
    let plan = plan_of(&rows, 32, Surplus::Error).build().unwrap();
    for epoch in 0..20 {
        let found = all_batches(&plan.at_epoch(epoch));
        assert_eq!((found.len(), found.iter().map(Vec::len).sum::<usize>()), (50, 1600));
        for batch in found {
            let held: BTreeSet<u32> =
                batch.iter().flat_map(|&sample| rows[sample as usize].clone()).collect();
            assert_eq!(held.len(), 64);
        }
    }
    assert!(plan.stats().mates_kept.unwrap() < 0.05);
}

/// Each sample of a frequent key is left out as often as any other, to what is random.
#[test]
fn samples_are_left_out_in_turns() {
    for columns in [1, 2] {
        // 30 samples share a key, and there are 10 batches.
        let row = |sample: u32| {
            let key = if sample < 30 { 0 } else { sample };
            if columns == 1 { vec![key] } else { vec![key, 1000 + sample] }
        };
        let rows: Rows = (0..95).map(row).collect();
        let plan = plan_of(&rows, 8, Surplus::Drop).build().unwrap();
        let mut times = [0_u32; 95];
        for epoch in 0..300 {
            let plan = plan.at_epoch(epoch);
            // 65 others fill nine batches with the key, but for two of their places.
            let found = all_batches(&plan);
            assert_eq!((found.len(), plan.stats().dropped), (10, 20), "{columns}");
            found.iter().flatten().for_each(|&sample| times[sample as usize] += 1);
        }
        assert!(times[30..].iter().all(|&times| times == 300), "{times:?}");
        // A hundred times, with a deviation of eight.
        assert!(times[..30].iter().all(|times| (65..135).contains(times)), "{times:?}");
    }
}

/// No two samples can share a batch, or all of them can.
#[test]
fn the_ends_of_what_keys_allow() {
    let all_in_conflict: Rows = (0..40).map(|sample| vec![7, sample]).collect();
    let plan = plan_of(&all_in_conflict, 8, Surplus::Drop).build().unwrap();
    assert_eq!((all_batches(&plan).len(), plan.stats().dropped), (1, 39));
    let dropped = plan_of(&all_in_conflict, 8, Surplus::Drop).drop_last(true).build();
    refused(dropped, Kind::Argument, &["drop_last leaves no step"]);
    let none: Rows = (0..40).map(|sample| vec![sample, sample]).collect();
    let plan = plan_of(&none, 64, Surplus::Error).build().unwrap();
    assert_eq!(all_batches(&plan)[0].len(), 40);
    assert_eq!(Keys::several(vec![3, 900, 3], 1).unwrap(), Keys::new(vec![3, 900, 3]));
}

/// Ten values in two columns are a hundred pairs, each ten times: batches of eight are near the most that there are.
#[test]
fn dense_conflicts_leave_some_out_and_end_soon() {
    let rows: Rows = (0..4000).map(|sample| vec![sample % 10, 10 + sample / 10 % 10]).collect();
    let error = plan_of(&rows, 8, Surplus::Error).build();
    refused(error, Kind::Argument, &["sample 0 shares its keys 798 times", "500 batches of 8"]);
    let plan = plan_of(&rows, 8, Surplus::Drop).build().unwrap();
    let kept: usize = all_batches(&plan).iter().map(Vec::len).sum();
    assert!(kept >= 3800, "{kept} of 4000");
}

/// The order is a promise.
#[test]
fn golden() {
    let rows: Rows = (0..24).map(|sample| vec![sample % 12, 12 + sample % 9]).collect();
    let held = |plan: &Plan| (0..plan.steps()).map(|step| plan.indices(step, 0).unwrap()).collect::<Vec<_>>();
    let several = plan_of(&rows, 3, Surplus::Error).seed(3).build().unwrap();
    let frequent: Rows = (0..24).map(|sample| vec![sample % 5 * (sample % 2)]).collect();
    let dropped = plan_of(&frequent, 3, Surplus::Drop).seed(3).build().unwrap();
    let text =
        serde_json::to_string(&[several, dropped].map(|plan| (plan.fingerprint(), held(&plan)))).unwrap();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/disjoint.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap().trim(), text);
}

#[test]
fn wrong_keys_are_refused() {
    let several = || Keys::several(vec![0; 20], 2).unwrap();
    refused(Keys::several(vec![0; 5], 2), Kind::Argument, &["5 keys are given in 2 columns"]);
    refused(Keys::several(Vec::new(), 0), Kind::Argument, &["0 keys are given in 0 columns"]);
    let builder = || Plan::builder(10).batch_size(2).shuffle(true);
    let homogeneous = builder().homogeneous_by(several()).build();
    refused(homogeneous, Kind::Argument, &["homogeneous_by has 2 keys a sample"]);
    let short = builder().distinct_by(Keys::several(vec![0; 18], 2).unwrap()).build();
    refused(short, Kind::Argument, &["distinct_by has 9 keys for 10 samples"]);
    refused(
        builder().surplus(Surplus::Drop).build(),
        Kind::Argument,
        &["surplus is \"drop\"", "distinct_by"],
    );
    let frequent = builder().distinct_by(several()).build();
    refused(
        frequent,
        Kind::Argument,
        &["10 samples have the key of sample 0", "5 batches of 2", "surplus \"drop\""],
    );
}
