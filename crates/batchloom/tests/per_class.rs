//! Batches of several classes with several samples of each, against their definition, draw by draw.

use std::collections::{BTreeMap, BTreeSet};

use batchloom::batching::{LengthBuckets, Listed, Packing, Sizes};
use batchloom::draws::Mix;
use batchloom::plan::PlanBuilder;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::refused;
use crate::resume::deliver_through;

/// Samples of classes, and how many of them share a batch.
#[derive(Debug, Clone)]
struct Given {
    classes: Vec<i64>,
    /// The number of samples of a class in a batch, and the number of classes in one.
    per_class: u64,
    in_batch: u64,
    shuffle: bool,
    seed: u64,
}

impl Given {
    fn builder(&self) -> PlanBuilder {
        Plan::builder(self.classes.len() as u64)
            .mix(Mix::balanced(&self.classes).unwrap())
            .per_class(self.per_class)
            .batch_size(self.per_class * self.in_batch)
            .shuffle(self.shuffle)
            .seed(self.seed)
    }

    /// The class of samples that follow each other in a batch.
    fn class(&self, turn: &[u64]) -> i64 {
        let class = self.classes[turn[0] as usize];
        assert!(turn.iter().all(|&sample| self.classes[sample as usize] == class), "{turn:?}");
        class
    }

    fn sizes(&self) -> BTreeMap<i64, u64> {
        counted(&self.classes)
    }
}

/// Classes of very unequal size, in any order.
fn given() -> impl Strategy<Value = Given> {
    let size = prop_oneof![1_usize..6, 1_usize..40];
    let classes = prop::collection::vec(size, 1..12).prop_map(|sizes| {
        let of = |(class, size): (i64, &usize)| vec![class * 5 - 20; *size];
        (0..).zip(&sizes).flat_map(of).collect::<Vec<_>>()
    });
    let numbers = (1_u64..7, 1_u64..15, any::<bool>(), any::<u64>());
    (classes.prop_shuffle(), numbers).prop_map(|(classes, (per_class, in_batch, shuffle, seed))| Given {
        classes,
        per_class,
        in_batch,
        shuffle,
        seed,
    })
}

fn counted<T: Ord + Copy>(things: &[T]) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    things.iter().for_each(|&thing| *counts.entry(thing).or_default() += 1);
    counts
}

/// Checks that each of `all` things occurs equally often among some, to one.
fn check_even<T: Ord + Copy + std::fmt::Debug>(things: &[T], all: u64) {
    let counts = counted(things);
    let (least, most) = (things.len() as u64 / all, (things.len() as u64).div_ceil(all));
    assert!(counts.values().all(|&count| (least.max(1)..=most).contains(&count)), "{things:?} of {all}");
    assert!(least == 0 || counts.len() as u64 == all, "{things:?} of {all}");
}

/// The batches of a plan for one rank.
fn batches(plan: &Plan) -> Vec<Vec<u64>> {
    (0..plan.steps()).map(|step| plan.indices(step, 0).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// A batch has turns of classes, evenly; a turn has samples of its class, evenly; and over all epochs, each class has
    /// a turn before any has another, and gives all of its samples before it repeats one.
    // law: L1
    #[test]
    fn batches_hold_classes_and_classes_hold_samples(given in given(), in_epoch in prop::option::of(1_u64..6)) {
        let size = given.per_class * given.in_batch;
        let plan = given.builder().num_samples(in_epoch.map(|batches| batches * size)).build().unwrap();
        let draws = in_epoch.map_or((given.classes.len() as u64).next_multiple_of(size), |batches| batches * size);
        let sizes = given.sizes();
        let (mut turns, mut samples) = (Vec::new(), BTreeMap::<i64, Vec<u64>>::new());
        for epoch in 0..4 {
            let plan = plan.at_epoch(epoch);
            prop_assert_eq!(plan.draws(), draws);
            for batch in batches(&plan) {
                prop_assert_eq!(batch.len() as u64, size);
                let taken: Vec<i64> = batch.chunks(given.per_class as usize).map(|turn| given.class(turn)).collect();
                check_even(&taken, sizes.len() as u64);
                for (turn, &class) in batch.chunks(given.per_class as usize).zip(&taken) {
                    check_even(turn, sizes[&class]);
                    samples.entry(class).or_default().extend(turn);
                }
                turns.extend(taken);
            }
        }
        turns.chunks(sizes.len()).for_each(|pass| check_even(pass, sizes.len() as u64));
        for (class, samples) in samples {
            samples.chunks(sizes[&class] as usize).for_each(|pass| check_even(pass, sizes[&class]));
        }
    }

    /// The places of a sample are those at which it is drawn, and draws may be asked for anywhere.
    // law: L2
    #[test]
    fn places_are_where_samples_are(given in given(), epoch in prop_oneof![0_u64..9, Just(u64::MAX)]) {
        let plan = given.builder().epoch(epoch).build().unwrap();
        let batches = batches(&plan);
        for sample in 0..plan.samples() {
            let at = |place: &batchloom::plan::Place| (place.step, place.index);
            let mut places: Vec<_> = plan.places(sample).unwrap().iter().map(at).collect();
            places.sort_unstable();
            let held = |(step, batch): (u64, &Vec<u64>)| {
                let same = (0..).zip(batch).filter(|&(_, &other)| other == sample);
                same.map(|(index, _)| (step, index)).collect::<Vec<_>>()
            };
            prop_assert_eq!(places, (0..).zip(&batches).flat_map(held).collect::<Vec<_>>());
        }
        let size = plan.indices(0, 0).unwrap().len();
        for from in [0, 1, size / 2, size - 1] {
            let mut out = vec![0; size - from];
            plan.fill(plan.steps() - 1, 0, from as u64, &mut out).unwrap();
            prop_assert_eq!(&out, &batches[batches.len() - 1][from..]);
        }
    }

    /// Any chain of worlds delivers each batch of the epoch once, also where samples differ in size.
    // law: L4, L5
    #[test]
    fn ranks_deliver_whole_batches_and_resume(
        given in given(),
        worlds in prop::collection::vec((1_u32..5, 0_u64..4), 0..4),
        has_sizes in any::<bool>(),
    ) {
        let sizes = has_sizes.then(|| Sizes::new((1..=given.classes.len() as u32).collect::<Vec<_>>()));
        let builder = || given.builder().sizes(sizes.clone()).uneven(Uneven::Short).epoch(1);
        let plan = builder().build().unwrap();
        let expected = batches(&plan);
        prop_assert_eq!(&expected, &batches(&given.builder().epoch(1).build().unwrap()));
        prop_assert_eq!(deliver_through(builder, worlds), expected);
    }
}

/// Classes share other batches, and samples other turns, from batch to batch and from epoch to epoch.
// law: L7
#[test]
fn mates_change() {
    let sizes = [600, 40, 30, 20, 10, 4];
    let classes: Vec<i64> = (0..).zip(sizes).flat_map(|(class, size)| vec![class; size]).collect();
    let given = Given { classes, per_class: 2, in_batch: 4, shuffle: true, seed: 3 };
    let plan = given.builder().build().unwrap();
    let pairs = |epoch| {
        let batches = batches(&plan.at_epoch(epoch)).concat();
        batches.chunks(2).map(|turn| BTreeSet::from_iter(turn.to_vec())).collect::<BTreeSet<_>>()
    };
    let (first, second) = (pairs(0), pairs(1));
    let large = |pairs: &BTreeSet<BTreeSet<u64>>| {
        pairs.iter().filter(|pair| pair.iter().all(|&sample| sample < 600)).cloned().collect::<BTreeSet<_>>()
    };
    assert!(large(&first).intersection(&large(&second)).count() < 3);
    assert!(first.intersection(&second).count() < first.len() / 2);
    let mut together = BTreeSet::new();
    for epoch in 0..2 {
        for batch in batches(&plan.at_epoch(epoch)) {
            let classes: BTreeSet<i64> = batch.iter().map(|&sample| given.classes[sample as usize]).collect();
            together.insert(classes);
        }
    }
    assert_eq!(together.len(), 15, "four of six classes");
}

#[test]
fn numbers_that_do_not_divide_are_refused() {
    let given = || {
        let classes = (0..60).map(|sample| sample % 5).collect();
        Given { classes, per_class: 3, in_batch: 4, shuffle: true, seed: 0 }.builder()
    };
    let kind = Kind::Argument;
    refused(given().batch_size(8).build(), kind, &["batch_size is 8", "per_class, which is 3", "6 or 9"]);
    refused(given().batch_size(2).build(), kind, &["batch_size is 2", "per_class, which is 3", "3"]);
    refused(given().per_class(0).build(), kind, &["per_class is 0", "at least 1"]);
    let draws = ["num_samples is 30", "batch_size, which is 12", "24 or 36"];
    refused(given().num_samples(30).build(), kind, &draws);
    let classes = ["per_class is 3", "balanced_by"];
    refused(given().mix(None).build(), kind, &classes);
    refused(given().mix(Mix::new(&[30, 30], &[1.0, 1.0]).unwrap()).build(), kind, &classes);
    let mix = || Mix::balanced(&[0, 1].repeat(30)).unwrap();
    refused(given().mix(mix().schedule(&[(9, vec![1.0, 2.0])]).unwrap()).build(), kind, &classes);
    assert!(given().mix(mix()).build().is_ok());
    assert_eq!(given().batch_size(8).build().unwrap_err().option(), Some("batch_size"));
}

#[test]
fn options_that_break_batches_are_refused() {
    let sized = || {
        let mix = Mix::balanced(&[0, 1].repeat(30)).unwrap();
        Plan::builder(60).mix(mix).per_class(2).shuffle(true).sizes(Sizes::new(vec![3; 60]))
    };
    let sorts = ["a rule that sorts by size does not go with per_class"];
    refused(sized().rule(Packing::new(40).unwrap()).build(), Kind::Argument, &sorts);
    refused(sized().rule(LengthBuckets::new(4).unwrap()).build(), Kind::Argument, &sorts);
    let measured = Mix::balanced(&[0, 1].repeat(30)).unwrap().measured("tokens", vec![3; 60]).unwrap();
    let named = ["per_class does not go with a mixture"];
    refused(sized().mix(measured).batch_size(4).build(), Kind::Argument, &named);
    let listed = Listed::new(vec![1, 2, 3], vec![2, 3]).unwrap();
    refused(
        sized().rule(listed).shuffle(false).build(),
        Kind::Argument,
        &["a list of batches", "balanced_by"],
    );
}

/// The draws that must survive releases.
#[test]
fn golden() {
    let classes: Vec<i64> =
        (0..).zip([13, 8, 5, 4, 2, 1, 3]).flat_map(|(class, size)| vec![class; size]).collect();
    let plan = |per_class, in_batch| {
        let given = Given { classes: classes.clone(), per_class, in_batch, shuffle: true, seed: 11 };
        given.builder().build().unwrap()
    };
    let lines = [(1, 3), (2, 4), (4, 2), (3, 9)].map(|(per_class, in_batch)| {
        let plan = plan(per_class, in_batch);
        let epochs: Vec<_> = (0..2).map(|epoch| batches(&plan.at_epoch(epoch))).collect();
        serde_json::json!([plan.fingerprint(), epochs]).to_string()
    });
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/per_class.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
