//! Micro-batches for samples in hand: every sample once, caps kept, ranks alike, groups whole, one class an index.

use std::collections::{BTreeMap, BTreeSet};

use batchloom::Kind;
use batchloom::batching::CostModel;
use batchloom::micro_batches::{
    MicroBatchOrder, MicroBatchPlanner, MicroBatches, OversizeSample, Rollouts, SyncEvery, Whole,
};
use proptest::prelude::*;

use crate::errors::refused;

/// A call: samples, options, and what the oracle needs of them.
#[derive(Debug, Clone)]
struct Call {
    lengths: Vec<u32>,
    groups: Option<Vec<u64>>,
    classes: Option<Vec<u64>>,
    planner: MicroBatchPlanner,
    world_size: u32,
    max_tokens: u64,
    max_samples: u32,
    multiple_of: u32,
    whole: Option<Whole>,
    oversize: OversizeSample,
    equal_samples: bool,
    sync: SyncEvery,
    cost: CostModel,
}

impl Call {
    fn plan(&self) -> MicroBatches {
        let mut rollouts = Rollouts::new(&self.lengths);
        if let Some(groups) = &self.groups {
            rollouts = rollouts.groups(groups);
        }
        if let Some(classes) = &self.classes {
            rollouts = rollouts.classes(classes);
        }
        self.planner.plan(&rollouts).unwrap()
    }

    fn padded(&self, sample: u64) -> u64 {
        u64::from(self.lengths[sample as usize].next_multiple_of(self.multiple_of))
    }

    /// Returns true if samples are one sample, or one group that a micro-batch takes whole.
    fn is_one_whole(&self, samples: &[u64]) -> bool {
        match (&self.groups, self.whole) {
            (Some(groups), Some(Whole::MicroBatch)) => {
                samples.iter().map(|&sample| groups[sample as usize]).collect::<BTreeSet<_>>().len() == 1
            }
            _ => samples.len() == 1,
        }
    }
}

prop_compose! {
    fn costs()(fixed in 0..3_u32, token in 0..3_u32, pair in 0..3_u32, huge in any::<bool>()) -> CostModel {
        let unit = if huge { 1e300 } else { 1.0 };
        CostModel::new(f64::from(fixed), f64::from(token), f64::from(pair) * unit).unwrap_or_default()
    }
}

prop_compose! {
    fn calls()(lengths in prop::collection::vec(0_u32..40, 0..60), world_size in 1_u32..9)(
        groups in prop::option::of(prop::collection::vec(0_u64..6, lengths.len())),
        classes in prop::option::of(prop::collection::vec(0_u64..3, lengths.len())),
        in_rank in any::<bool>(),
        max_tokens in 4_u64..90,
        max_samples in 1_u32..9,
        multiple_of in prop::sample::select(vec![1_u32, 4]),
        (least, multiple, equal) in any::<(u8, u8, bool)>(),
        oversize in prop::sample::select(vec![OversizeSample::Alone, OversizeSample::Drop]),
        sync in prop::sample::select(vec![SyncEvery::MicroBatch, SyncEvery::Update]),
        order in prop::sample::select(vec![MicroBatchOrder::LargestFirst, MicroBatchOrder::Ends]),
        cost in costs(),
        lengths in Just(lengths),
        world_size in Just(world_size)
    ) -> Call {
        let whole = groups.as_ref().map(|_| if in_rank { Whole::Rank } else { Whole::MicroBatch });
        // A group that a micro-batch takes whole has one class.
        let classes = match (&groups, whole) {
            (Some(groups), Some(Whole::MicroBatch)) => {
                classes.map(|_| groups.iter().map(|group| group % 2).collect())
            }
            _ => classes,
        };
        let divides = lengths.len() % world_size as usize == 0;
        let equal_samples = equal && divides && groups.is_none() && oversize == OversizeSample::Alone;
        let mut planner = MicroBatchPlanner::new(world_size, max_tokens)
            .cost(cost)
            .max_samples(max_samples)
            .multiple_of(multiple_of)
            .least(u32::from(least % 4) + 1)
            .count_multiple_of(u32::from(multiple % 3) + 1)
            .equal_samples(equal_samples)
            .oversize(oversize)
            .sync(sync)
            .order(order);
        if let Some(whole) = whole {
            planner = planner.whole(whole);
        }
        Call {
            lengths, groups, classes, planner, world_size, max_tokens, max_samples, multiple_of, whole,
            oversize, equal_samples, sync, cost,
        }
    }
}

/// The samples of a micro-batch that count.
fn counted(planned: &MicroBatches, number: usize) -> Vec<u64> {
    let places = planned.offsets[number] as usize..planned.offsets[number + 1] as usize;
    places.filter(|&place| planned.weight[place] > 0.0).map(|place| planned.index[place]).collect()
}

proptest! {
    // law: L1, L6
    #[test]
    fn every_sample_is_in_one_micro_batch_below_the_caps(call in calls()) {
        let planned = call.plan();
        let numbers = planned.offsets.len() - 1;
        prop_assert_eq!(numbers as u64, u64::from(call.world_size) * planned.count);
        let mut seen: Vec<u64> = planned.dropped.iter().chain(&planned.left).copied().collect();
        for number in 0..numbers {
            let rank = (number as u64 / planned.count) as u32;
            let held = planned.get(rank, number as u64 % planned.count);
            prop_assert!(!held.is_empty(), "micro-batch {number} is empty");
            let own = counted(&planned, number);
            prop_assert!(own.len() == held.len() || (own.is_empty() && held.len() == 1));
            let tokens: u64 = held.iter().map(|&sample| call.padded(sample)).sum();
            prop_assert_eq!(planned.padded_tokens[number], tokens);
            let fits = tokens <= call.max_tokens && held.len() <= call.max_samples as usize;
            prop_assert!(fits || (call.oversize == OversizeSample::Alone && call.is_one_whole(held)));
            seen.extend(own);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..call.lengths.len() as u64).collect::<Vec<_>>());
        for (sample, &place) in planned.inverse.iter().enumerate() {
            let gone = planned.dropped.contains(&(sample as u64));
            prop_assert_eq!(place < 0, gone);
            prop_assert!(gone || planned.index[place as usize] == sample as u64);
        }
    }

    // law: L8
    #[test]
    fn groups_stay_whole_and_an_index_has_one_class(call in calls()) {
        let planned = call.plan();
        let mut places: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut classes: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut samples = vec![0; call.world_size as usize];
        for number in 0..planned.offsets.len() - 1 {
            let (rank, slot) = (number as u64 / planned.count, number as u64 % planned.count);
            samples[rank as usize] += counted(&planned, number).len();
            for sample in counted(&planned, number) {
                if let Some(groups) = &call.groups {
                    let place = if call.whole == Some(Whole::Rank) { rank } else { number as u64 };
                    places.entry(groups[sample as usize]).or_default().insert(place);
                }
            }
            for &sample in planned.get(rank as u32, slot) {
                let class = call.classes.as_ref().map_or(0, |classes| classes[sample as usize]);
                classes.entry(slot).or_default().insert(class);
            }
        }
        prop_assert!(places.values().chain(classes.values()).all(|found| found.len() == 1));
        prop_assert!(!call.equal_samples || samples.iter().all(|&number| number == samples[0]));
    }

    #[test]
    fn waiting_is_what_costs_say_and_never_below_the_bound(call in calls()) {
        let planned = call.plan();
        prop_assume!(planned.count > 0 && planned.cost.iter().all(|&cost| cost.is_finite() && cost < 1e290));
        let (ranks, count) = (call.world_size as usize, planned.count as usize);
        for (number, &cost) in planned.cost.iter().enumerate() {
            let held = planned.get((number / count) as u32, (number % count) as u64);
            let sizes: Vec<f64> = held.iter().map(|&sample| call.padded(sample) as f64).collect();
            let model = call.cost;
            let tokens: f64 = sizes.iter().sum();
            let pairs: f64 = sizes.iter().map(|size| size * size).sum();
            let expected = model.fixed() + model.per_token() * tokens + model.per_pair() * pairs;
            prop_assert!((cost - expected).abs() <= 1e-9 * expected, "{cost} is not {expected}");
        }
        let most = |costs: Vec<f64>| costs.into_iter().fold(0.0, f64::max);
        let time: f64 = match call.sync {
            SyncEvery::Update => {
                most(planned.cost.chunks(count).map(|rank| rank.iter().sum()).collect())
            }
            _ => (0..count)
                .map(|slot| most((0..ranks).map(|rank| planned.cost[rank * count + slot]).collect()))
                .sum(),
        };
        let busy: f64 = planned.cost.iter().sum();
        let waited = if time > 0.0 { 1.0 - busy / (ranks as f64 * time) } else { 0.0 };
        prop_assert!((planned.imbalance - waited).abs() < 1e-9);
        prop_assert!(planned.bound >= 0.0 && planned.bound <= planned.imbalance);
    }

    // law: L2
    #[test]
    fn a_plan_is_a_function_of_its_arguments(call in calls(), shift in 1_u64..1000) {
        let planned = call.plan();
        prop_assert_eq!(&planned, &call.plan());
        // The numbers of groups and classes are names.
        let renamed = |numbers: &Vec<u64>| numbers.iter().map(|number| u64::MAX - number * shift).collect();
        let groups = call.groups.as_ref().map(renamed);
        let classes = call.classes.as_ref().map(renamed);
        prop_assert_eq!(&planned, &Call { groups, classes, ..call }.plan());
    }

    #[test]
    fn an_exact_count_leaves_the_latest_samples(
        lengths in prop::collection::vec(0_u32..40, 1..60),
        world_size in 1_u32..6,
        count in 1_u32..4,
    ) {
        let planner = MicroBatchPlanner::new(world_size, 60).count(count);
        let planned = planner.plan(&Rollouts::new(&lengths)).unwrap();
        prop_assert_eq!(planned.count, u64::from(count));
        let taken = lengths.len() - planned.left.len();
        prop_assert_eq!(planned.left, (taken as u64..lengths.len() as u64).collect::<Vec<_>>());
        if let Some(more) = lengths.get(..=taken) {
            let least = MicroBatchPlanner::new(world_size, 60).plan(&Rollouts::new(more)).unwrap();
            prop_assert!(least.count > u64::from(count));
        }
    }
}

#[test]
fn costs_of_any_size_are_planned() {
    let lengths = [u32::MAX, 1, 2, 3, u32::MAX, 0];
    for (token, pair) in [(f64::MAX, f64::MAX), (5e-324, 0.0), (0.0, 5e-324), (1.0, f64::MAX)] {
        let cost = CostModel::new(0.0, token, pair).unwrap();
        let planned = MicroBatchPlanner::new(2, u64::MAX).cost(cost).plan(&Rollouts::new(&lengths)).unwrap();
        assert_eq!(planned.count, 1);
        assert!((0.0..=1.0).contains(&planned.imbalance) && planned.imbalance < 0.01);
    }
}

#[test]
fn no_samples_make_no_micro_batches() {
    for planner in [MicroBatchPlanner::new(3, 8), MicroBatchPlanner::new(3, 8).count(2)] {
        let planned = planner.plan(&Rollouts::new(&[])).unwrap();
        assert_eq!((planned.count, planned.offsets.as_slice(), planned.imbalance), (0, &[0][..], 0.0));
    }
    let drop = MicroBatchPlanner::new(3, 8).oversize(OversizeSample::Drop);
    let planned = drop.plan(&Rollouts::new(&[9, 10])).unwrap();
    assert_eq!((planned.count, planned.dropped.as_slice()), (0, &[0, 1][..]));
}

#[test]
fn ranks_without_a_sample_take_the_cheapest_again() {
    let planned = MicroBatchPlanner::new(4, 8).least(2).plan(&Rollouts::new(&[5, 3, 4])).unwrap();
    let fillers = planned.index.iter().zip(&planned.weight).filter(|(_, weight)| **weight == 0.0);
    assert!(fillers.clone().all(|(&sample, _)| sample == 1));
    assert_eq!((planned.count, fillers.count(), planned.index.len()), (2, 5, 8));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let lengths = [3, 4, 5, 6];
    let plain = MicroBatchPlanner::new(2, 9);
    let samples = Rollouts::new(&lengths);
    refused(plain.least(0).plan(&samples), Kind::Argument, &["least is 0"]);
    refused(MicroBatchPlanner::new(0, 9).plan(&samples), Kind::Argument, &["world_size is 0"]);
    refused(plain.least(u32::MAX).plan(&samples), Kind::Argument, &["4294967295", "16777216"]);
    refused(plain.whole(Whole::Rank).plan(&samples), Kind::Argument, &["groups"]);
    refused(plain.plan(&samples.groups(&[0; 4])), Kind::Argument, &["whole"]);
    refused(plain.plan(&samples.labels(&[1])), Kind::Data, &["labels", "1 values", "4 samples"]);
    refused(plain.plan(&Rollouts::new(&[1, 10])), Kind::Data, &["sample 1", "length 10", "9"]);
    let odd = Rollouts::new(&lengths[1..]);
    refused(plain.equal_samples(true).plan(&odd), Kind::Data, &["3 samples", "2 ranks"]);
    let error = plain.plan(&Rollouts::new(&[1, 10])).unwrap_err();
    assert_eq!((error.sample(), error.option()), (Some(1), Some("max_tokens")));
}
