//! The plan against a slow, obvious oracle: partition (L1), pure (L2), equal (L3), fresh (L7), exact length (L10).

use batchloom::batching::FixedSize;
use batchloom::order::{Key, Permutation, Purpose, Shuffle};
use batchloom::ranks::Uneven;
use batchloom::{Error, Kind, Plan};
use proptest::prelude::*;

use crate::errors::{is, refused};
use crate::order::sharded;

/// The options of a plan, small enough to enumerate all that it delivers.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) samples: u64,
    pub(crate) batch_size: u64,
    pub(crate) shuffle: Shuffle,
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    pub(crate) world_size: u32,
    pub(crate) drop_last: bool,
    pub(crate) uneven: Uneven,
    pub(crate) shard_size: Option<u64>,
}

impl Options {
    pub(crate) fn build(&self) -> Result<Plan, Error> {
        Plan::builder(self.samples)
            .rule(FixedSize::new(self.batch_size)?)
            .shuffle(self.shuffle)
            .seed(self.seed)
            .epoch(self.epoch)
            .world_size(self.world_size)
            .drop_last(self.drop_last)
            .uneven(self.uneven)
            .shard_size(self.shard_size)
            .build()
    }

    /// The batches of the epoch, by definition: the order in pieces of `batch_size`; or the samples as stored in pieces,
    /// and these in random order.
    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        let order = match (self.shuffle, self.shard_size) {
            (Shuffle::Samples, Some(shard_size)) => sharded(self.samples, shard_size, self.seed, self.epoch),
            (shuffle, _) => {
                let one = Plan::builder(self.samples).shuffle(shuffle == Shuffle::Samples);
                let one = one.seed(self.seed).epoch(self.epoch).batch_size(self.samples).build().unwrap();
                one.indices(0, 0).unwrap()
            }
        };
        // Runs begin at another sample in each epoch: there are some before the first full one.
        let before = if self.shuffle == Shuffle::Runs { self.before() } else { 0 };
        let (before, rest) = order.split_at(before as usize);
        let pieces = rest.chunks(usize::try_from(self.batch_size).unwrap());
        let pieces: Vec<Vec<u64>> = (!before.is_empty())
            .then_some(before)
            .into_iter()
            .chain(pieces)
            .filter(|piece| !self.drop_last || piece.len() as u64 == self.batch_size)
            .map(<[_]>::to_vec)
            .collect();
        if self.shuffle != Shuffle::Runs {
            return pieces;
        }
        let count = pieces.len() as u64;
        let order = match self.shard_size {
            Some(shard_size) => sharded(count, shard_size / self.batch_size, self.seed, self.epoch),
            None => {
                let key = Key::new(self.seed, self.epoch, Purpose::Runs);
                let permutation = Permutation::new(count, &key);
                (0..count).map(|place| permutation.get(place)).collect()
            }
        };
        order.into_iter().map(|run| pieces[run as usize].clone()).collect()
    }

    /// The samples before the first full run, by definition: any number that leaves as many runs in every epoch.
    fn before(&self) -> u64 {
        let (samples, batch_size) = (self.samples, self.batch_size);
        if self.shard_size.is_some() || samples <= batch_size {
            return 0;
        }
        let count = |before: u64| match self.drop_last {
            true => (samples - before) / batch_size,
            false => u64::from(before > 0) + (samples - before).div_ceil(batch_size),
        };
        let rest = if samples.is_multiple_of(batch_size) { batch_size } else { samples % batch_size };
        let more = u64::from(!self.drop_last && rest > batch_size / 2);
        // The first choice moves runs by nothing, and the next ones by one sample more each.
        let moved =
            (0..batch_size).map(|by| if self.drop_last { by } else { (batch_size - by) % batch_size });
        let choices: Vec<u64> = moved.filter(|&before| count(before) == count(0) + more).collect();
        let key = Key::new(self.seed, self.epoch, Purpose::Offset);
        match choices.len() as u64 {
            0 => 0,
            len => choices[Permutation::new(len, &key).get(0) as usize],
        }
    }

    /// The batches of every rank at every step, by definition: `world_size` at a time; those of a step are as large as the
    /// largest that comes for the first time, unless some ranks end early.
    fn steps(&self) -> Vec<Vec<Vec<u64>>> {
        let batches = self.batches();
        let world_size = self.world_size as usize;
        let mut steps: Vec<Vec<Vec<u64>>> = batches.chunks(world_size).map(<[_]>::to_vec).collect();
        if self.drop_last {
            steps.retain(|step| step.len() == world_size);
        }
        if self.drop_last || self.uneven == Uneven::Short {
            return steps;
        }
        for step in &mut steps {
            let size = step.iter().map(Vec::len).max().unwrap();
            let again = if self.uneven == Uneven::Pad { &batches[..] } else { &batches[batches.len() - 1..] };
            step.extend(again.iter().cycle().take(world_size - step.len()).cloned());
            step.iter_mut().for_each(|batch| *batch = batch.iter().cycle().take(size).copied().collect());
        }
        steps
    }
}

pub(crate) fn options() -> impl Strategy<Value = Options> {
    let sizes = (1_u64..300, 1_u64..40, 1_u32..10);
    let shuffle = prop_oneof![Just(Shuffle::Nothing), Just(Shuffle::Samples), Just(Shuffle::Runs)];
    let choices =
        (shuffle, any::<bool>(), prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)]);
    // Batches in a shard.
    let shards = prop_oneof![Just(None), (1_u64..12).prop_map(Some), Just(Some(300))];
    (sizes, choices, any::<u64>(), any::<u64>(), shards).prop_map(|(sizes, choices, seed, epoch, shards)| {
        Options {
            samples: sizes.0,
            batch_size: sizes.1,
            world_size: sizes.2,
            shuffle: choices.0,
            drop_last: choices.1,
            uneven: choices.2,
            shard_size: shards.map(|batches| batches * sizes.1),
            seed,
            epoch,
        }
    })
}

/// The samples of each batch of a step that count.
pub(crate) fn counted(step: &batchloom::plan::Step) -> impl Iterator<Item = &[u64]> {
    step.batches.iter().zip(&step.counts).map(|(batch, &count)| &batch[..count as usize])
}

/// Everything that `rank` sees, in order.
pub(crate) fn seen(plan: &Plan, rank: u32) -> Vec<Vec<u64>> {
    (0..plan.steps_of(rank)).map(|step| plan.indices(step, rank).unwrap()).collect()
}

proptest! {
    // law: L2
    #[test]
    fn is_what_the_oracle_says(options in options()) {
        let expected = options.steps();
        let plan = match options.build() {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert!(is(&error, Kind::Argument, &["drop_last leaves no step"]), "{error}");
                prop_assert!(expected.is_empty());
                return Ok(());
            }
        };
        prop_assert_eq!(plan.steps(), expected.len() as u64);
        for (index, step) in (0..).zip(&expected) {
            prop_assert_eq!(&plan.step(index).unwrap().batches, step);
        }
        for rank in 0..options.world_size {
            let mine: Vec<_> = expected.iter().filter_map(|step| step.get(rank as usize).cloned()).collect();
            prop_assert_eq!(seen(&plan, rank), mine);
        }
    }

    // law: L1
    #[test]
    fn partition_and_stats(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let stats = plan.stats();
        let mut times = vec![0_u64; usize::try_from(options.samples).unwrap()];
        let steps: Vec<_> = (0..plan.steps()).map(|step| plan.step(step).unwrap()).collect();
        for sample in steps.iter().flat_map(counted).flatten() {
            times[usize::try_from(*sample).unwrap()] += 1;
        }
        prop_assert_eq!(stats.dropped, times.iter().filter(|&&count| count == 0).count() as u64);
        prop_assert_eq!(stats.repeated, times.iter().map(|count| count.saturating_sub(1)).sum::<u64>());
        prop_assert!(options.drop_last || stats.dropped == 0);
        prop_assert!(options.uneven == Uneven::Pad && !options.drop_last || stats.repeated == 0);
        prop_assert_eq!(stats.samples + stats.repeated, stats.real + stats.dropped + stats.earlier);
        prop_assert_eq!(stats.real, steps.iter().map(|step| step.samples).sum::<u64>());
        let places: usize = steps.iter().flat_map(|step| &step.batches).map(Vec::len).sum();
        prop_assert_eq!(stats.padded, places as u64);
        prop_assert!((stats.padding - (1.0 - stats.real as f64 / stats.padded as f64)).abs() < 1e-9);
        prop_assert_eq!(stats.batches, steps.iter().map(|step| step.batches.len() as u64).sum::<u64>());
        let longest = |step: &batchloom::plan::Step| step.batches.iter().map(Vec::len).max().unwrap() as u64;
        prop_assert_eq!(stats.largest, steps.iter().map(longest).max().unwrap());
        let waited: u64 = steps.iter().map(|step| longest(step) * u64::from(options.world_size)).sum();
        prop_assert!((stats.imbalance - (1.0 - stats.padded as f64 / waited as f64)).abs() < 1e-9);
    }

    // law: L3, L10
    #[test]
    fn every_rank_has_the_same_number_of_steps(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        for rank in 0..options.world_size {
            let short = u64::from(options.uneven == Uneven::Short && !options.drop_last);
            prop_assert!(plan.steps_of(rank) + short >= plan.steps());
            prop_assert!(plan.steps_of(rank) <= plan.steps());
            prop_assert_eq!(plan.indices(plan.steps_of(rank), rank).is_err(), true);
        }
    }

    #[test]
    fn a_sample_is_found_where_it_comes(options in options()) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let mut places = 0;
        for sample in 0..options.samples {
            for place in plan.places(sample).unwrap() {
                let batch = plan.indices(place.step, place.rank).unwrap();
                prop_assert_eq!(batch[usize::try_from(place.index).unwrap()], sample);
                places += 1;
            }
        }
        prop_assert_eq!(places, plan.stats().real);
    }

    // law: L7
    #[test]
    fn seeds_and_epochs_give_other_orders(options in options(), other in 1_u64..) {
        let options = Options { samples: options.samples + 20, shuffle: Shuffle::Samples, world_size: 1, drop_last: false, shard_size: None, ..options };
        let plan = options.build().unwrap();
        let seeded = Options { seed: options.seed.wrapping_add(other), ..options }.build().unwrap();
        prop_assert_ne!(seen(&plan, 0).concat(), seen(&seeded, 0).concat());
        let later = plan.at_epoch(plan.epoch().wrapping_add(other));
        prop_assert_ne!(seen(&plan, 0).concat(), seen(&later, 0).concat());
        prop_assert_eq!(plan.fingerprint(), later.fingerprint());
        prop_assert_ne!(plan.fingerprint(), seeded.fingerprint());
    }

    /// Shards are runs as stored, all of one size but one, that come one after the other; `shard` gives the shard of
    /// each batch.
    #[test]
    fn batches_come_shard_by_shard(options in options(), stop in 0.0..1.0_f64, world_size in 1_u32..10) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let state = plan.state((plan.steps() as f64 * stop) as u64);
        let rest = Options { world_size, ..options }.build().and_then(|plan| plan.resume(&state));
        for plan in [Some(plan), rest.ok()].into_iter().flatten() {
            prop_assert_eq!(plan.options().shard_size, options.shard_size);
            let mut came: Vec<std::ops::Range<u64>> = Vec::new();
            for step in 0..plan.steps() {
                for (rank, batch) in (0..).zip(plan.step(step).unwrap().batches) {
                    let shard = plan.shard(step, rank).unwrap();
                    prop_assert_eq!(shard.is_some(), options.shard_size.is_some());
                    let shard = shard.unwrap_or(0..options.samples);
                    prop_assert!(batch.iter().all(|sample| shard.contains(sample)), "{:?} {:?}", batch, shard);
                    if came.last() != Some(&shard) {
                        came.push(shard);
                    }
                }
            }
            if plan.stats().repeated > 0 {
                continue; // shards of the start come again
            }
            came.sort_unstable_by_key(|shard| shard.start);
            prop_assert!(came.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", came);
            let size = options.shard_size.unwrap_or(options.samples);
            prop_assert!(came.iter().all(|shard| shard.end <= options.samples && shard.end - shard.start <= size));
            // One shard is short; with runs, also the shard that ends with the short run.
            let short = came.iter().filter(|shard| shard.end - shard.start < size).count();
            prop_assert!(short <= 1 + usize::from(options.shuffle == Shuffle::Runs), "{:?}", came);
        }
    }

    #[test]
    fn shards_other_than_none_are_part_of_the_name(options in options(), batches in 1_u64..50) {
        let Ok(plan) = (Options { shard_size: None, ..options }).build() else { return Ok(()) };
        let size = batches * options.batch_size;
        let sharded = Options { shard_size: Some(size), ..options }.build().unwrap();
        let other = Options { shard_size: Some(size + options.batch_size), ..options }.build().unwrap();
        prop_assert_ne!(plan.fingerprint(), sharded.fingerprint());
        prop_assert_ne!(other.fingerprint(), sharded.fingerprint());
        let prints = [plan.fingerprint(), sharded.fingerprint()];
        refused(sharded.resume(&plan.state(0)), Kind::State, &prints.each_ref().map(String::as_str));
    }

    #[test]
    fn parts_of_a_batch_are_parts(options in options(), skip in 0.0..1.0_f64) {
        let Ok(plan) = options.build() else { return Ok(()) };
        let batch = plan.indices(plan.steps() - 1, 0).unwrap();
        let skip = (batch.len() as f64 * skip) as usize;
        let mut rest = vec![0; batch.len() - skip];
        plan.fill(plan.steps() - 1, 0, skip as u64, &mut rest).unwrap();
        prop_assert_eq!(&rest, &batch[skip..]);
        let all = seen(&plan, 0).concat();
        let skip = skip.min(plan.indices(0, 0).unwrap().len());
        let mut rest = vec![0; all.len() - skip];
        plan.fill(0, 0, skip as u64, &mut rest).unwrap();
        prop_assert_eq!(&rest, &all[skip..]);
    }
}

#[test]
fn a_billion_samples_and_a_thousand_ranks() {
    let plan = Plan::builder(1_000_000_000).batch_size(64).shuffle(true).world_size(1000).build().unwrap();
    assert_eq!(plan.steps(), 15_625);
    assert_eq!(plan.stats().real, 1_000_000_000);
    assert!(plan.indices(15_624, 999).unwrap().iter().all(|sample| *sample < 1_000_000_000));
    let samples = (1 << 40) + 7;
    let plan = Plan::builder(samples).batch_size(1 << 20).shuffle(true).build().unwrap();
    assert_eq!(plan.batch_len(1 << 20, 0).unwrap(), 7);
    assert_eq!(plan.places(1 << 33).unwrap().len(), 1);
    for shuffle in [Shuffle::Nothing, Shuffle::Samples, Shuffle::Runs] {
        let plan = Plan::builder(samples)
            .batch_size(1 << 10)
            .shuffle(shuffle)
            .shard_size(1_u64 << 20)
            .world_size(1000);
        let plan = plan.build().unwrap();
        let shard = plan.shard(1 << 20, 999).unwrap().unwrap();
        assert!(plan.indices(1 << 20, 999).unwrap().iter().all(|sample| shard.contains(sample)));
        let place = plan.places(1 << 33).unwrap()[0];
        assert!(plan.shard(place.step, place.rank).unwrap().unwrap().contains(&(1 << 33)));
    }
}

#[test]
fn bad_options_are_named() {
    let plan = |samples| Plan::builder(samples);
    refused(plan(0).build(), Kind::Data, &["no samples"]);
    refused(plan(5).batch_size(0).build(), Kind::Argument, &["batch_size is 0"]);
    refused(plan(5).world_size(0).build(), Kind::Argument, &["world_size is 0"]);
    refused(plan(5).world_size(u32::MAX).build(), Kind::Argument, &["world_size is 4294967295"]);
    refused(plan(u64::MAX).build(), Kind::Data, &["18446744073709551615 samples", "2^62"]);
    let nothing = plan(10).batch_size(4).world_size(3).drop_last(true).build();
    refused(nothing, Kind::Argument, &["drop_last", "10 samples make 2 full batches of 4", "3 ranks"]);
    refused(plan(9).shard_size(0).build(), Kind::Argument, &["shard_size is 0"]);
    let shards = plan(900).batch_size(64).shard_size(100).build();
    refused(shards, Kind::Argument, &["shard_size is 100", "64 or 128"]);
    let error = plan(900).batch_size(64).shard_size(9).build().unwrap_err();
    assert!(error.to_string().contains(" 64") && !error.to_string().contains(" or "), "{error}");
    let error = plan(900).batch_size(64).shard_size(u64::MAX).build().unwrap_err();
    assert!(error.to_string().contains(" 18446744073709551552"), "{error}");
    let small = plan(10).batch_size(4).world_size(2).build().unwrap();
    let (step, rank) = (["step 2", "step < 2"], ["rank is 2", "world of 2"]);
    refused(small.shard(2, 0), Kind::Range, &step);
    refused(small.shard(0, 2), Kind::Argument, &rank);
    assert_eq!(small.shard(0, 1).unwrap(), None);
    refused(small.indices(0, 2), Kind::Argument, &rank);
    refused(small.step(2), Kind::Range, &step);
    refused(small.places(10), Kind::Range, &["sample 10", "sample < 10"]);
}

#[test]
fn plans_are_equal_if_they_deliver_the_same() {
    use std::collections::HashSet;

    use batchloom::batching::Listed;

    let build = |seed, epoch, world_size| {
        Plan::builder(100)
            .batch_size(7)
            .shuffle(true)
            .seed(seed)
            .epoch(epoch)
            .world_size(world_size)
            .build()
            .unwrap()
    };
    let plan = build(1, 2, 3);
    assert_eq!(plan, build(1, 2, 3));
    assert!([build(2, 2, 3), build(1, 3, 3), build(1, 2, 4)].iter().all(|other| *other != plan));
    let resumed = plan.resume(&plan.state(1)).unwrap();
    assert_ne!(resumed, plan);
    assert_eq!(resumed, build(1, 2, 3).resume(&plan.state(1)).unwrap());
    let listed = |samples: [u32; 3]| {
        Plan::builder(4).rule(Listed::new(samples.to_vec(), vec![2, 3]).unwrap()).build().unwrap()
    };
    assert_eq!(listed([0, 1, 2]), listed([0, 1, 2]));
    assert_ne!(listed([0, 1, 2]), listed([0, 2, 1]));
    assert_eq!(HashSet::from([plan, build(1, 2, 3), resumed]).len(), 2);
}
