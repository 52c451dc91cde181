//! Plans over chunks: every rule cuts each epoch into batches that hold every sample once (L1), ranks take parts of
//! them (L3), runs go on at every step and in any world (L4, L5), and chunks are read by one rank but for the borders.

use std::collections::BTreeSet;

use batchloom::batching::{
    Count, FixedSize, Keys, LengthBuckets, Listed, Oversize, PackedOversize, Packing, Rule, Sizes,
    TokenBudget,
};
use batchloom::order::{ChunkWindow, Chunks};
use batchloom::plan::{Place, PlanBuilder, PlanOptions};
use batchloom::ranks::Uneven;
use batchloom::{Kind, Plan, Run};
use proptest::prelude::*;

use crate::chunk_window::chunk_sizes;

/// A plan over chunks: the sizes of chunks, the chunks that are open, the rule, and the rest.
#[derive(Debug, Clone)]
struct Case {
    chunks: Vec<u64>,
    open: u64,
    rule: Rule,
    /// The number of samples in a batch, for rules that have one.
    batch_size: Option<u64>,
    sized: bool,
    shuffle: bool,
    seed: u64,
    drop_last: bool,
    uneven: Uneven,
}

impl Case {
    fn samples(&self) -> u64 {
        self.chunks.iter().sum()
    }

    fn chunks(&self) -> Chunks {
        Chunks::new(self.chunks.clone())
    }

    fn sizes(&self) -> Vec<u32> {
        (0..self.samples()).map(|sample| (sample * 7 % 23) as u32 + 1).collect()
    }

    fn window(&self, epoch: u64) -> ChunkWindow {
        match self.shuffle {
            true => ChunkWindow::new(self.chunks(), self.open, self.seed, epoch),
            false => ChunkWindow::stored(self.chunks()),
        }
    }

    fn builder(&self) -> PlanBuilder {
        let builder = Plan::builder(self.samples()).chunks(self.chunks()).chunks_open(self.open);
        let builder = if self.sized { builder.sizes(Sizes::new(self.sizes())) } else { builder };
        let builder = builder.rule(self.rule.clone()).shuffle(self.shuffle).seed(self.seed);
        builder.drop_last(self.drop_last).uneven(self.uneven)
    }

    /// The plan, if it has a step.
    fn plan(&self, epoch: u64, world_size: u32) -> Option<Plan> {
        self.builder().epoch(epoch).world_size(world_size).build().ok()
    }

    /// All batches of the epoch, in the order in which one rank takes them.
    fn batches(&self, epoch: u64) -> Option<Vec<Vec<u64>>> {
        let case = Self { uneven: Uneven::Short, ..self.clone() };
        case.plan(epoch, 1).map(|plan| batches_of(&plan, 0))
    }
}

fn batches_of(plan: &Plan, rank: u32) -> Vec<Vec<u64>> {
    (0..plan.steps_of(rank)).map(|step| plan.indices(step, rank).unwrap()).collect()
}

/// Rules, the number of samples in their batches, and whether samples have sizes.
fn rules() -> impl Strategy<Value = (Rule, Option<u64>, bool)> {
    let dropping = TokenBudget::new(20).unwrap().count(Count::Real).oversize(Oversize::Drop);
    let splitting = Packing::new(9).unwrap().oversize(PackedOversize::Split);
    let buckets = |size| LengthBuckets::new(size).unwrap();
    prop_oneof![
        4 => (1_u64..12, any::<bool>())
            .prop_map(|(size, sized)| (FixedSize::new(size).unwrap().into(), Some(size), sized)),
        2 => (1_u64..9, 1_u64..9)
            .prop_map(move |(size, pool)| (buckets(size).pool(pool).unwrap().into(), Some(size), true)),
        1 => (1_u64..9).prop_map(move |size| (buckets(size).into(), Some(size), true)),
        2 => (1_u64..60)
            .prop_map(|pool| (TokenBudget::new(60).unwrap().pool(pool).unwrap().into(), None, true)),
        1 => Just((TokenBudget::new(60).unwrap().into(), None, true)),
        1 => Just((dropping.into(), None, true)),
        1 => Just((Packing::new(25).unwrap().into(), None, true)),
        1 => Just((splitting.into(), None, true)),
    ]
}

fn unevens() -> impl Strategy<Value = Uneven> {
    prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)]
}

fn cases() -> impl Strategy<Value = Case> {
    let options = (1_u64..20, rules(), any::<bool>(), any::<u64>(), any::<bool>(), unevens());
    (chunk_sizes(), options)
        .prop_map(|(chunks, (open, (rule, batch_size, sized), shuffle, seed, drop_last, uneven))| Case {
            chunks,
            open,
            rule,
            batch_size,
            sized,
            shuffle,
            seed,
            drop_last,
            uneven,
        })
        .prop_filter("some samples", |case| case.samples() > 0)
}

/// The numbers of batches that each rank takes by definition: equal parts of what is left, the first ranks one more.
fn parts(left: &[u64], world_size: u32) -> Vec<Vec<u64>> {
    let (world, mut rest) = (world_size as usize, left.to_vec());
    let count = |rank: usize| left.len() / world + usize::from(rank < left.len() % world);
    (0..world).map(|rank| rest.drain(..count(rank)).collect()).collect()
}

/// The numbers of batches that each rank takes, filled up or dropped as the options want it. `had` is the last batch
/// that each of these ranks took before.
fn dealt(left: &[u64], world_size: u32, drop_last: bool, uneven: Uneven, had: &[u64]) -> Vec<Vec<u64>> {
    let mut parts = parts(left, world_size);
    let (least, most) = (left.len() / world_size as usize, left.len().div_ceil(world_size as usize));
    for (rank, part) in parts.iter_mut().enumerate() {
        match (drop_last, uneven) {
            (true, _) => part.truncate(least),
            (false, Uneven::Short) => {}
            // Its own last batch again, or the last of all.
            _ => part.resize(most, *part.last().or(had.get(rank)).or(left.last()).unwrap_or(&0)),
        }
    }
    parts
}

proptest! {
    // law: L1
    #[test]
    fn batches_hold_every_sample_once(case in cases(), epoch in 0_u64..3) {
        let case = Case { drop_last: false, ..case };
        let Some(plan) = case.plan(epoch, 1) else { return Ok(()) };
        let batches = batches_of(&plan, 0);
        let mut samples: Vec<u64> = batches.concat();
        samples.sort_unstable();
        samples.dedup();
        let stats = plan.stats();
        prop_assert_eq!(samples.len() as u64, case.samples() - stats.dropped);
        if case.rule.to_string().starts_with("fixed-size") {
            let mut order = vec![0; samples.len()];
            case.window(epoch).fill(0, &mut order);
            prop_assert_eq!(batches.concat(), order);
        }
        prop_assert_eq!(case.plan(epoch, 1), Some(plan));
    }

    /// Pools end where slots do; slots that are larger than two pools are several.
    #[test]
    fn a_batch_lies_in_one_pool_of_whole_slots(
        chunks in chunk_sizes(), open in 1_u64..20, pool in 1_u64..60, shuffle: bool, seed: u64,
    ) {
        let rule = TokenBudget::new(60).unwrap().pool(pool).unwrap().into();
        let (uneven, drop_last) = (Uneven::Pad, false);
        let case = Case { chunks, open, rule, batch_size: None, sized: true, shuffle, seed, drop_last, uneven };
        let Some(batches) = case.batches(0) else { return Ok(()) };
        let window = case.window(0);
        let (in_pool, mut borders) = (pool.min(case.samples()), vec![0]);
        for end in (0..window.slots()).map(|slot| window.positions(slot).end) {
            let start = *borders.last().unwrap();
            let pools = (end - start) / in_pool;
            borders.extend((1..=pools).map(|pool| if pool == pools { end } else { start + pool * in_pool }));
        }
        let mut last = 0;
        for batch in batches {
            let pool_of = |sample: &u64| borders.partition_point(|&border| border <= window.find(*sample));
            let pools: BTreeSet<usize> = batch.iter().map(pool_of).collect();
            prop_assert_eq!(pools.len(), 1);
            prop_assert!(pools.iter().all(|&pool| pool >= last));
            last = *pools.last().unwrap();
        }
    }

    // law: L2, L3
    #[test]
    fn ranks_take_parts_of_the_same_batches(case in cases(), world_size in 1_u32..10) {
        let Some(batches) = case.batches(2) else { return Ok(()) };
        let Some(plan) = case.plan(2, world_size) else { return Ok(()) };
        let all: Vec<u64> = (0..batches.len() as u64).collect();
        for (rank, part) in (0..).zip(dealt(&all, world_size, case.drop_last, case.uneven, &[])) {
            prop_assert_eq!(plan.steps_of(rank), part.len() as u64);
            for (step, &batch) in (0..).zip(&part) {
                let (found, own) = (plan.indices(step, rank).unwrap(), &batches[batch as usize]);
                let cycled: Vec<u64> = own.iter().copied().cycle().take(found.len()).collect();
                prop_assert_eq!(&found, &cycled);
                if case.uneven == Uneven::Short || case.drop_last {
                    prop_assert_eq!(&found, own);
                }
                for (index, &sample) in (0..).zip(&found) {
                    let is_filler = index >= found.len() as u64 - plan.fillers(step, rank).unwrap();
                    let places = plan.places(sample).unwrap();
                    let here = |place: &Place| (place.step, place.rank, place.index) == (step, rank, index);
                    prop_assert_eq!(places.iter().any(here), !is_filler);
                }
            }
        }
        let lens = |step| (0..world_size).filter_map(|rank| plan.batch_len(step, rank).ok()).collect::<BTreeSet<u64>>();
        let equal = case.batch_size.is_some() && case.uneven != Uneven::Short && !case.drop_last;
        for step in 0..plan.steps() {
            prop_assert!(!equal || lens(step).len() == 1);
        }
    }

    // law: L1
    #[test]
    fn a_mask_counts_every_sample_once(case in cases(), world_size in 1_u32..10) {
        let case = Case { drop_last: false, uneven: Uneven::Mask, ..case };
        let Some(plan) = case.plan(0, world_size) else { return Ok(()) };
        let mut counted = Vec::new();
        for step in 0..plan.steps() {
            for rank in 0..world_size {
                let samples = plan.indices(step, rank).unwrap();
                let count = samples.len() as u64 - plan.fillers(step, rank).unwrap();
                counted.extend_from_slice(&samples[..count as usize]);
            }
        }
        let mut expected = case.batches(0).unwrap().concat();
        counted.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(counted, expected);
    }

    #[test]
    fn any_run_of_samples_is_what_the_steps_hold(
        case in cases(), world_size in 1_u32..5, rank in 0_u32..5, from in 0.0..1.0_f64, part in 0.0..1.0_f64,
    ) {
        let Some(plan) = case.plan(1, world_size) else { return Ok(()) };
        let rank = rank % world_size;
        let steps = plan.steps_of(rank);
        if steps == 0 {
            return Ok(());
        }
        let step = ((steps as f64 * from) as u64).min(steps - 1);
        let first = plan.indices(step, rank).unwrap();
        let skip = (first.len() as f64 * part) as usize;
        let all: Vec<u64> = (step..steps).flat_map(|step| plan.indices(step, rank).unwrap()).skip(skip).collect();
        let mut run = vec![0; (all.len() as f64 * part.sqrt()).ceil() as usize];
        plan.fill(step, rank, skip as u64, &mut run).unwrap();
        prop_assert_eq!(&run, &all[..run.len()]);
        let mut beyond = vec![0; all.len() + 1];
        prop_assert_eq!(plan.fill(step, rank, skip as u64, &mut beyond).unwrap_err().kind(), Kind::Range);
    }

    // law: L4, L5
    #[test]
    fn a_chain_of_worlds_takes_each_batch_once(
        case in cases(), chain in prop::collection::vec((1_u32..10, 0.0..1.0_f64), 1..4), last in 1_u32..10,
    ) {
        let case = Case { drop_last: false, ..case };
        let Some(batches) = case.batches(0) else { return Ok(()) };
        let mut left: Vec<u64> = (0..batches.len() as u64).collect();
        let mut plan = case.plan(0, 1).unwrap();
        let (mut past, mut had, mut had_by) = (Vec::new(), Vec::new(), 0);
        for &(world_size, part) in &chain {
            plan = case.plan(0, world_size).unwrap().resume(&plan.state(0)).unwrap();
            let steps = (plan.steps() as f64 * part) as u64;
            prop_assert_eq!(plan.epoch(), 0);
            let parts = parts(&left, world_size);
            let taken = |part: &Vec<u64>| (steps as usize).min(part.len());
            for (rank, part) in (0..).zip(&parts) {
                for (step, &batch) in (0..steps).zip(part) {
                    prop_assert_eq!(unfilled(&plan, step, rank), batches[batch as usize].clone());
                }
            }
            if steps > 0 && !left.is_empty() {
                let before = if had_by == world_size { had.clone() } else { Vec::new() };
                let own = |(rank, part): (usize, &Vec<u64>)| *part.last().or(before.get(rank)).or(left.last()).unwrap();
                had = parts.iter().enumerate().map(own).collect();
                had_by = world_size;
            }
            left = parts.iter().flat_map(|part| &part[taken(part)..]).copied().collect();
            let state = plan.state(steps);
            past.push((plan.clone(), steps));
            let json = serde_json::to_string(&state).unwrap();
            plan = plan.resume(&serde_json::from_str(&json).unwrap()).unwrap();
        }
        let rest = case.plan(0, last).unwrap().resume(&plan.state(0)).unwrap();
        let had = if had_by == last { had } else { Vec::new() };
        for (rank, part) in (0..).zip(dealt(&left, last, false, case.uneven, &had)) {
            prop_assert_eq!(rest.steps_of(rank), part.len() as u64);
            for (step, &batch) in (0..).zip(&part) {
                let own = &batches[batch as usize];
                let found = rest.indices(step, rank).unwrap();
                prop_assert_eq!(&found, &own.iter().copied().cycle().take(found.len()).collect::<Vec<u64>>());
            }
        }
        let taken: u64 = rest.by_world().iter().rev().skip(1).map(|(_, steps)| steps).sum();
        prop_assert_eq!(taken, past.iter().map(|(_, steps)| steps).sum::<u64>());
        let stats = rest.stats();
        let before: usize = (0..batches.len() as u64).filter(|batch| !left.contains(batch)).count();
        if case.batch_size.is_some() {
            let earlier: usize =
                (0..).zip(&batches).filter(|(batch, _)| !left.contains(batch)).map(|(_, batch)| batch.len()).sum();
            prop_assert_eq!(stats.earlier, earlier as u64);
        }
        prop_assert!(before <= batches.len());
    }

    // law: L4
    #[test]
    fn a_run_goes_on_at_every_step(case in cases(), world_size in 1_u32..6, rank in 0_u32..6) {
        let case = Case { seed: 3, ..case };
        let Some(plan) = case.plan(0, world_size) else { return Ok(()) };
        let rank = rank % world_size;
        let all: Vec<Vec<u64>> = [batches_of(&plan, rank), batches_of(&plan.at_epoch(1), rank)].concat();
        let mut run = Run::new(plan.clone(), rank).unwrap();
        for taken in 0..plan.steps_of(rank) {
            let state = run.state();
            let mut again = Run::new(plan.clone(), rank).unwrap();
            again.load(&state).unwrap();
            let mut found: Vec<Vec<u64>> = again.begin().collect::<Result<_, _>>().unwrap();
            found.extend(again.begin().collect::<Result<Vec<_>, _>>().unwrap());
            prop_assert_eq!(&found, &all[taken as usize..]);
            run.load(&state).unwrap();
            prop_assert_eq!(run.begin().next().unwrap().unwrap(), all[taken as usize].clone());
        }
    }

    #[test]
    fn statistics_add_up(case in cases(), world_size in 1_u32..10) {
        let Some(plan) = case.plan(0, world_size) else { return Ok(()) };
        let stats = plan.stats();
        let all = || (0..world_size).flat_map(|rank| (0..plan.steps_of(rank)).map(move |step| (step, rank)));
        let delivered: u64 = (0..plan.steps()).map(|step| plan.step(step).unwrap().samples).sum();
        if !case.rule.to_string().contains("split") {
            prop_assert_eq!(delivered + stats.dropped, stats.samples + stats.repeated);
        }
        let tokens: u64 = (0..plan.steps()).map(|step| plan.step(step).unwrap().tokens).sum();
        prop_assert_eq!(stats.real, tokens);
        prop_assert_eq!(stats.batches, all().count() as u64);
        let padded: u64 = all().map(|(step, rank)| plan.batch_elements(step, rank).unwrap()).sum();
        prop_assert_eq!(stats.padded, padded);
        let largest = all().map(|(step, rank)| plan.batch_elements(step, rank).unwrap()).max();
        prop_assert_eq!(stats.largest, largest.unwrap());
        let longest: u64 = (0..plan.steps())
            .map(|step| (0..world_size).filter_map(|rank| plan.batch_elements(step, rank).ok()).max().unwrap())
            .sum();
        let imbalance = 1.0 - padded as f64 / (longest * u64::from(world_size)) as f64;
        prop_assert!((stats.imbalance - imbalance).abs() < 1e-9, "{} {imbalance}", stats.imbalance);
    }

    /// Chunks are read by one rank, but for those that are open at the borders of parts; the count is that of a reader.
    #[test]
    fn chunks_are_read_once_but_at_borders(
        chunks in chunk_sizes(), open in 1_u64..20, batch_size in 1_u64..12, world_size in 1_u32..10,
        shuffle: bool, sized: bool,
    ) {
        let rule = FixedSize::new(batch_size).unwrap().into();
        let (uneven, drop_last, batch_size) = (Uneven::Pad, false, Some(batch_size));
        let case = Case { chunks, open, rule, batch_size, sized, shuffle, seed: 9, drop_last, uneven };
        let Some(plan) = case.plan(0, world_size) else { return Ok(()) };
        let window = case.window(0);
        let stats = plan.stats().chunks.unwrap();
        prop_assert_eq!(stats.chunks_open, window.open());
        // A reader that opens the chunks of each slot that it passes.
        let opened = |rank: u32| {
            let samples = batches_of(&plan, rank).concat();
            let slots: BTreeSet<u64> = samples.iter().map(|&sample| window.slot_of(window.find(sample))).collect();
            slots.into_iter().flat_map(|slot| window.chunks_of(slot)).collect::<BTreeSet<u64>>().len() as u64
        };
        let read: u64 = (0..world_size).map(opened).sum();
        prop_assert_eq!(stats.chunks_read, read);
        let held = case.chunks.iter().filter(|&&size| size > 0).count() as u64;
        if case.batches(0).unwrap().len() >= world_size as usize {
            prop_assert!(read <= held + u64::from(world_size - 1) * window.open(), "{read} of {held}");
        }
    }
}

/// The samples of a batch, without those that fill it up.
fn unfilled(plan: &Plan, step: u64, rank: u32) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let samples = plan.indices(step, rank).unwrap();
    if plan.rule().to_string().contains("split") {
        return samples;
    }
    samples.into_iter().filter(|&sample| seen.insert(sample)).collect()
}

/// The share of pairs of one chunk is what the window promises: `1 / open`, and more in the first and last slot.
#[test]
fn pairs_of_one_chunk_are_as_few_as_the_window_promises() {
    for (count, open) in [(100, 4), (100, 16), (64, 32), (16, 16), (8, 32), (200, 1)] {
        let plan = Plan::builder(count * 1024).chunks(Chunks::new(vec![1024; count as usize]));
        let plan = plan.chunks_open(open).batch_size(64).shuffle(true).build().unwrap();
        let found = plan.stats().chunks.unwrap().pairs_of_one_chunk.unwrap();
        let (all, window) = (count as f64, open.min(count) as f64);
        let edge = 2.0 * (2.0 * window + 1.0) / (3.0 * window * (window + 1.0));
        let expected = match open >= count {
            true => 1.0 / all,
            // The first and the last slot hold half a window each, and one more half chunk.
            false => ((all - window - 1.0) / window + (window + 1.0) * edge) / all,
        };
        // Two samples differ: of the samples of a slot, one is taken already.
        assert!((found / expected - 1.0).abs() < 0.05, "{count} chunks, {open} open: {found} for {expected}");
    }
}

#[test]
fn chunks_and_the_window_are_in_the_fingerprint_and_the_state() {
    let plan = |chunks: &[u64], open: u64| {
        let chunks = Chunks::new(chunks.to_vec());
        Plan::builder(60).chunks(chunks).chunks_open(open).batch_size(4).shuffle(true).build().unwrap()
    };
    let first = plan(&[20, 40], 2);
    assert_ne!(first.fingerprint(), plan(&[40, 20], 2).fingerprint());
    assert_ne!(first.fingerprint(), plan(&[20, 40], 1).fingerprint());
    assert_eq!(first.state(3).chunks_open, Some(2));
    let error = plan(&[20, 40], 1).resume(&first.state(3)).unwrap_err();
    assert_eq!((error.kind(), error.option()), (Kind::State, Some("chunks_open")));
    assert!(
        error.to_string().contains("mixes 2 chunks at a time, and this plan 1 chunk at a time"),
        "{error}"
    );
    assert_eq!(plan(&[40, 20], 2).resume(&first.state(3)).unwrap_err().kind(), Kind::State);
    let default =
        Plan::builder(60).chunks(Chunks::new([20, 40])).batch_size(4).shuffle(true).build().unwrap();
    assert_eq!(default.fingerprint(), plan(&[20, 40], 16).fingerprint());
    let without = Plan::builder(60).batch_size(4).shuffle(true).build().unwrap();
    assert!(without.stats().chunks.is_none());
    assert!(!serde_json::to_string(&without.stats()).unwrap().contains("chunk"));
    assert!(!serde_json::to_string(&without.state(1)).unwrap().contains("chunk"));
}

#[test]
fn what_does_not_go_with_chunks_is_refused_with_the_reason() {
    let refused = |chunks: &[u64], change: &dyn Fn(PlanBuilder) -> PlanBuilder| {
        let builder = Plan::builder(60).batch_size(4).shuffle(true).sizes(Sizes::new(vec![3; 60]));
        change(builder.chunks(Chunks::new(chunks.to_vec()))).build().unwrap_err()
    };
    let halves = [30, 30];
    let error = refused(&[30, 29], &|plan| plan);
    assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("chunks")));
    assert!(error.to_string().contains("59 samples in 2 chunks, and there are 60 samples"), "{error}");
    let error = refused(&halves, &|plan| plan.chunks_open(0));
    assert_eq!(error.option(), Some("chunks_open"));
    let error = Plan::builder(60).chunks_open(4).build().unwrap_err();
    assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("chunks_open")));
    for (change, named) in [
        (&(|plan: PlanBuilder| plan.balance(true)) as &dyn Fn(PlanBuilder) -> PlanBuilder, "balance"),
        (&|plan| plan.largest_first(true), "largest_first"),
        (&|plan| plan.shard_size(20), "shard_size"),
        (&|plan| plan.num_samples(20), "chunks"),
        (&|plan| plan.homogeneous_by(Keys::new(vec![0; 60])), "homogeneous_by"),
        (&|plan| plan.distinct_by(Keys::new((0..60).collect::<Vec<_>>())), "distinct_by"),
    ] {
        let error = refused(&halves, change);
        assert_eq!((error.kind(), error.option()), (Kind::Argument, Some(named)), "{error}");
        assert!(
            error.to_string().contains("chunks does not go with")
                || error.to_string().contains("does not go with chunks: "),
            "{error}"
        );
        assert!(
            error.to_string().contains("`batchloom convert FILES --out FOLDER --to arrow`"),
            "the way out: {error}"
        );
    }
    let mut options = PlanOptions::default();
    options.chunks = Some(Chunks::new(halves));
    options.rule = Listed::new(vec![0, 1, 2], vec![2, 3]).unwrap().into();
    assert!(
        Plan::builder(60).options(options).build().unwrap_err().to_string().contains("a list of batches")
    );
}
