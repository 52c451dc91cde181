//! Mixtures of sources that are read chunk by chunk: each source has an order of its own chunks, pass after pass; sources
//! take the turns that they take in memory; and chunks are read once a pass, by one rank but for the borders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use batchloom::batching::{FixedSize, Keys, LengthBuckets, Packing, Rule, Sizes, TokenBudget};
use batchloom::dataset::{
    ChunkField, ChunkSamples, ChunkSource, Dataset, MapDataset, OnError, ReadClock, Selection, SourceError,
};
use batchloom::draws::{Exhausted, Mix, SourceWindow};
use batchloom::order::{ChunkWindow, Chunks};
use batchloom::plan::PlanBuilder;
use batchloom::ranks::Uneven;
use batchloom::{Kind, Loader, Plan, TensorDataset};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// A mixture: the chunks of each source, `None` for one in memory; how many are open; and the rest.
#[derive(Debug, Clone)]
struct Case {
    sources: Vec<(Vec<u64>, bool)>,
    open: u64,
    weights: Vec<f64>,
    exhausted: Exhausted,
    by_tokens: bool,
    rule: Rule,
    shuffle: bool,
    seed: u64,
    uneven: Uneven,
}

impl Case {
    fn counts(&self) -> Vec<u64> {
        self.sources.iter().map(|(chunks, _)| chunks.iter().sum()).collect()
    }

    fn samples(&self) -> u64 {
        self.counts().iter().sum()
    }

    fn sizes(&self) -> Vec<u32> {
        (0..self.samples()).map(|sample| (sample * 7 % 23) as u32 + 1).collect()
    }

    fn mix(&self, in_chunks: bool) -> Mix {
        let mix = Mix::new(&self.counts(), &self.weights).unwrap().when_exhausted(self.exhausted);
        let mix = if self.by_tokens { mix.measured("tokens", self.sizes()).unwrap() } else { mix };
        let window = |(chunks, is_read): &(Vec<u64>, bool)| {
            is_read.then(|| SourceWindow { chunks: Chunks::new(chunks.clone()), open: self.open })
        };
        match in_chunks {
            true => mix.in_chunks(self.sources.iter().map(window).collect()).unwrap(),
            false => mix,
        }
    }

    fn builder(&self, in_chunks: bool) -> PlanBuilder {
        let builder = Plan::builder(self.samples()).mix(self.mix(in_chunks)).rule(self.rule.clone());
        let is_sized = self.by_tokens || !self.rule.to_string().starts_with("fixed-size");
        let builder = if is_sized { builder.sizes(Sizes::new(self.sizes())) } else { builder };
        builder.shuffle(self.shuffle).seed(self.seed).uneven(self.uneven)
    }

    fn plan(&self, epoch: u64, world_size: u32) -> Option<Plan> {
        self.builder(true).epoch(epoch).world_size(world_size).build().ok()
    }

    /// The source of a sample, and its number there.
    fn origin(&self, sample: u64) -> (usize, u64) {
        let sum = |end: &mut u64, count: u64| {
            *end += count;
            Some(*end)
        };
        let ends: Vec<u64> = self.counts().into_iter().scan(0, sum).collect();
        let source = ends.partition_point(|&end| end <= sample);
        (source, sample - source.checked_sub(1).map_or(0, |before| ends[before]))
    }

    /// The chunk of a sample of a source.
    fn chunk(&self, source: usize, number: u64) -> u64 {
        Chunks::new(self.sources[source].0.clone()).chunk_of(number)
    }
}

fn batches_of(plan: &Plan, rank: u32) -> Vec<Vec<u64>> {
    (0..plan.steps_of(rank)).map(|step| plan.indices(step, rank).unwrap()).collect()
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        3 => (1_u64..12).prop_map(|size| FixedSize::new(size).unwrap().into()),
        1 => (1_u64..9, 1_u64..9)
            .prop_map(|(size, pool)| LengthBuckets::new(size).unwrap().pool(pool).unwrap().into()),
        1 => (1_u64..60).prop_map(|pool| TokenBudget::new(60).unwrap().pool(pool).unwrap().into()),
        1 => Just(Packing::new(25).unwrap().into()),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let chunks = prop::collection::vec(prop_oneof![1 => Just(0_u64), 6 => 1_u64..12], 1..9)
        .prop_filter("samples", |chunks| chunks.iter().sum::<u64>() > 0);
    let source = (chunks, prop::bool::weighted(0.8), prop_oneof![Just(1.0), Just(3.0), 0.2..2.0_f64]);
    let exhausted = prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)];
    let uneven = prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)];
    let options =
        (1_u64..7, exhausted, any::<bool>(), rules(), prop::bool::weighted(0.8), any::<u64>(), uneven);
    (prop::collection::vec(source, 1..5), options)
        .prop_map(|(sources, (open, exhausted, by_tokens, rule, shuffle, seed, uneven))| Case {
            weights: sources.iter().map(|(_, _, weight)| *weight).collect(),
            sources: sources.into_iter().map(|(chunks, is_read, _)| (chunks, is_read)).collect(),
            open,
            exhausted,
            by_tokens,
            rule,
            shuffle,
            seed,
            uneven,
        })
        .prop_filter("a source in chunks", |case| case.sources.iter().any(|(_, is_read)| *is_read))
}

/// The samples of an epoch as they are drawn.
fn drawn(case: &Case, epoch: u64, in_chunks: bool) -> Vec<u64> {
    let fixed = Case { rule: FixedSize::new(1).unwrap().into(), uneven: Uneven::Short, ..case.clone() };
    let plan = fixed.builder(in_chunks).epoch(epoch).build().unwrap();
    batches_of(&plan, 0).concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Over epochs, each pass over a source has each of its samples once, in an order that has few chunks open.
    // law: L1
    #[test]
    fn each_pass_is_an_order_of_the_chunks_of_its_source(case in cases()) {
        let run: Vec<u64> = (0..4).flat_map(|epoch| drawn(&case, epoch, true)).collect();
        let mut of_source: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for sample in run {
            let (source, number) = case.origin(sample);
            of_source.entry(source).or_default().push(number);
        }
        for (source, numbers) in of_source {
            let count = case.counts()[source] as usize;
            for (pass, numbers) in numbers.chunks(count).enumerate() {
                prop_assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
                let (chunks, is_read) = &case.sources[source];
                if !is_read {
                    continue;
                }
                let chunks = Chunks::new(chunks.clone());
                if source == 0 || !case.shuffle {
                    let window = match case.shuffle {
                        true => ChunkWindow::new(chunks, case.open, case.seed, pass as u64),
                        false => ChunkWindow::stored(chunks),
                    };
                    let mut order = vec![0; numbers.len()];
                    window.fill(0, &mut order);
                    prop_assert_eq!(numbers, &order);
                }
                let held: Vec<u64> = numbers.iter().map(|&number| case.chunk(source, number)).collect();
                for place in 0..held.len() {
                    let before: BTreeSet<_> = held[..=place].iter().collect();
                    let after: BTreeSet<_> = held[place..].iter().collect();
                    prop_assert!(before.intersection(&after).count() as u64 <= 2 * case.open);
                }
            }
        }
    }

    /// Sources take the turns that they take where all samples are in memory.
    #[test]
    fn sources_take_the_turns_that_they_take_in_memory(case in cases(), epoch in 0_u64..4) {
        let case = Case { by_tokens: false, ..case };
        let sources = |in_chunks| -> Vec<usize> {
            drawn(&case, epoch, in_chunks).into_iter().map(|sample| case.origin(sample).0).collect()
        };
        prop_assert_eq!(sources(true), sources(false));
        let fixed = Case { rule: FixedSize::new(5).unwrap().into(), ..case };
        for world_size in [1, 3] {
            let steps = |in_chunks| fixed.builder(in_chunks).epoch(epoch).world_size(world_size).build().unwrap().steps();
            prop_assert_eq!(steps(true), steps(false));
        }
    }

    /// A sample in memory comes where it comes in a mixture of sources in memory alone.
    #[test]
    fn sources_in_memory_keep_their_order(case in cases(), epoch in 0_u64..3) {
        let case = Case { by_tokens: false, ..case };
        let in_memory = |samples: Vec<u64>| -> Vec<(usize, u64)> {
            let places = samples.into_iter().enumerate();
            places.filter(|(_, sample)| !case.sources[case.origin(*sample).0].1).collect()
        };
        prop_assert_eq!(in_memory(drawn(&case, epoch, true)), in_memory(drawn(&case, epoch, false)));
    }

    /// Ranks take contiguous parts of the same batches, and places are where samples are.
    // law: L2, L3
    #[test]
    fn ranks_take_parts_of_the_same_batches(case in cases(), epoch in 0_u64..3, world_size in 1_u32..10) {
        let case = Case { uneven: Uneven::Short, ..case };
        let Some(whole) = case.plan(epoch, 1) else { return Ok(()) };
        let Some(plan) = case.plan(epoch, world_size) else { return Ok(()) };
        let all: Vec<Vec<u64>> = (0..world_size).flat_map(|rank| batches_of(&plan, rank)).collect();
        prop_assert_eq!(&all, &batches_of(&whole, 0));
        for (step, batch) in batches_of(&plan, 0).iter().take(2).enumerate() {
            for (index, &sample) in batch.iter().enumerate() {
                let places = plan.places(sample).unwrap();
                prop_assert!(places.iter().any(|it| (it.step, it.rank, it.index) == (step as u64, 0, index as u64)));
            }
        }
        if case.exhausted == Exhausted::Renormalise && case.weights.iter().all(|&weight| weight > 0.0) {
            let mut samples = all.concat();
            samples.sort_unstable();
            prop_assert_eq!(samples, (0..case.samples()).collect::<Vec<_>>());
        }
    }

    /// A run that changes its world at any step delivers what is left, and no sample of an earlier batch.
    // law: L4, L5
    #[test]
    fn a_run_goes_on_in_another_world(
        case in cases(), epoch in 0_u64..3, worlds in (1_u32..7, 1_u32..7, 1_u32..7), part in 0.0..1.0_f64,
    ) {
        let case = Case { uneven: Uneven::Short, ..case };
        let Some(whole) = case.plan(epoch, 1) else { return Ok(()) };
        let mut left = batches_of(&whole, 0);
        left.sort();
        let (mut plan, mut found) = (case.plan(epoch, 1).unwrap(), Vec::new());
        for world_size in [worlds.0, worlds.1, worlds.2] {
            plan = case.plan(0, world_size).unwrap().resume(&plan.state(0)).unwrap();
            prop_assert_eq!(plan.epoch(), epoch);
            let steps = (plan.steps() as f64 * part) as u64;
            if steps == plan.steps() {
                break;
            }
            for rank in 0..world_size {
                found.extend(batches_of(&plan, rank).into_iter().take(steps as usize));
            }
            let json = serde_json::to_string(&plan.state(steps)).unwrap();
            plan = plan.resume(&serde_json::from_str(&json).unwrap()).unwrap();
        }
        for rank in 0..plan.world_size() {
            found.extend(batches_of(&plan, rank));
        }
        found.sort();
        prop_assert_eq!(found, left);
    }

    /// All ranks together read each chunk once a pass, and those that are open at the borders of parts again.
    #[test]
    fn chunks_are_read_once_a_pass_but_at_borders(case in cases(), epoch in 0_u64..3, world_size in 1_u32..8) {
        let rule: Rule = FixedSize::new(3).unwrap().into();
        let case = Case { rule, uneven: Uneven::Short, ..case };
        let Some(plan) = case.plan(epoch, world_size) else { return Ok(()) };
        let stats = plan.stats().chunks.unwrap();
        let mut needed = 0;
        for rank in 0..world_size {
            let samples = batches_of(&plan, rank).concat();
            let origins = samples.iter().map(|&sample| case.origin(sample)).filter(|it| case.sources[it.0].1);
            let chunks = origins.map(|(source, number)| (source, case.chunk(source, number)));
            needed += chunks.collect::<BTreeSet<_>>().len() as u64;
        }
        prop_assert!(stats.chunks_read >= needed, "{} of {needed}", stats.chunks_read);
        let all = drawn(&case, epoch, true);
        let passes = |source: usize| {
            let drawn = all.iter().filter(|&&it| case.origin(it).0 == source).count() as u64;
            drawn.div_ceil(case.counts()[source]) + 1
        };
        let read = case.sources.iter().enumerate().filter(|(_, (_, is_read))| *is_read);
        let most: u64 = read
            .map(|(source, (chunks, _))| {
                let chunks = chunks.iter().filter(|&&size| size > 0).count() as u64;
                passes(source) * chunks + u64::from(world_size - 1) * 2 * case.open.min(chunks)
            })
            .sum();
        prop_assert!(stats.chunks_read <= most, "{} above {most}", stats.chunks_read);
    }
}

/// Chunks of numbers from some number on, which notes the chunks that are read; `broken` cannot be read.
#[derive(Debug, Clone)]
struct Numbers {
    chunks: Chunks,
    first: u64,
    read: Arc<AtomicU64>,
    seen: Arc<Mutex<BTreeSet<u64>>>,
    broken: Option<u64>,
}

impl Numbers {
    fn new(sizes: &[u64], first: u64) -> Self {
        Self {
            chunks: Chunks::new(sizes.iter().copied()),
            first,
            read: Arc::default(),
            seen: Arc::default(),
            broken: None,
        }
    }

    fn builder(&self) -> batchloom::dataset::MapDatasetBuilder {
        MapDataset::in_chunks(self.chunks.clone(), self.clone())
    }
}

impl ChunkSource for Numbers {
    fn read(&self, chunk: u64, _: &ReadClock) -> Result<ChunkSamples, SourceError> {
        if self.broken == Some(chunk) {
            return Err("the disk is gone".into());
        }
        self.read.fetch_add(1, Ordering::Relaxed);
        self.seen.lock().unwrap().insert(chunk);
        let numbers: Vec<u64> = self.chunks.range(chunk).map(|number| self.first + number).collect();
        Ok(ChunkSamples::new([("x", ChunkField::from(numbers))]))
    }
}

fn columns(loader: &Loader) -> Vec<(Vec<u64>, Vec<i64>)> {
    let batch = |batch: batchloom::loader::Batch| {
        (batch.view::<u64>("x").unwrap().to_vec(), batch.view::<i64>("source").unwrap().to_vec())
    };
    loader.iter().map(|it| batch(it.unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Batches of sources in chunks are the batches of the plan, with the number of the source of each sample; where an
    /// epoch has every sample once, each chunk is read once.
    #[test]
    fn chunks_of_sources_give_the_batches_of_the_plan(
        sizes in prop::collection::vec(prop::collection::vec(1_u64..20, 1..12), 1..4),
        open in 1_u64..6,
        batch_size in 1_u64..9,
        threads in 1_usize..4,
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        shuffles in any::<bool>(),
        by_tokens in any::<bool>(),
    ) {
        let counts: Vec<u64> = sizes.iter().map(|sizes| sizes.iter().sum()).collect();
        let mut first = 0;
        let sources: Vec<Numbers> = sizes.iter().map(|sizes| {
            let source = Numbers::new(sizes, first);
            first += source.chunks.samples();
            source
        }).collect();
        let parts = sources.iter().map(|it| Dataset::from(it.builder().chunks_open(open).build().unwrap()));
        let dataset = Dataset::sources(parts).unwrap();
        let mix = Mix::new(&counts, &vec![1.0; counts.len()]).unwrap().when_exhausted(exhausted);
        let tokens: Vec<u32> = (0..counts.iter().sum::<u64>()).map(|sample| (sample % 9) as u32 + 1).collect();
        let mix = if by_tokens { mix.measured("tokens", tokens).unwrap() } else { mix };
        let loader = Loader::builder(dataset.clone()).mix(mix).batch_size(batch_size).shuffle(shuffles);
        let loader = loader.num_threads(threads).prefetch(2).build().unwrap();
        for number in 0..3 {
            let plan = loader.plan(number);
            let batches = columns(&loader);
            prop_assert_eq!(batches.len() as u64, plan.steps());
            for (step, (x, source)) in (0..).zip(batches) {
                let expected = plan.indices(step, 0).unwrap();
                let ends: Vec<u64> = counts.iter().scan(0, |end, count| { *end += count; Some(*end) }).collect();
                let of = |sample: &u64| ends.partition_point(|end| end <= sample) as i64;
                prop_assert_eq!(&source, &expected.iter().map(of).collect::<Vec<_>>());
                prop_assert_eq!(x, expected);
            }
        }
        let read: u64 = sources.iter().map(|it| it.read.load(Ordering::Relaxed)).sum();
        prop_assert_eq!(dataset.chunk_counts().unwrap().read, read);
        if exhausted == Exhausted::Renormalise {
            prop_assert_eq!(read, 3 * sizes.iter().map(|sizes| sizes.len() as u64).sum::<u64>());
        }
    }

    /// Each chunk that is read holds a sample that the epoch draws, also where a source is hardly drawn before another ends.
    #[test]
    fn no_chunk_is_read_in_vain(
        sizes in prop::collection::vec((prop::collection::vec(1_u64..20, 1..24), 0_i32..10), 1..4),
        open in 1_u64..24,
        batch_size in 1_u64..9,
        world_size in 1_u32..4,
        threads in 1_usize..4,
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        by_tokens in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let exhausted = if sizes.iter().any(|it| it.1 > 5) { Exhausted::Stop } else { exhausted };
        let counts: Vec<u64> = sizes.iter().map(|(sizes, _)| sizes.iter().sum()).collect();
        let weights: Vec<f64> = sizes.iter().map(|(_, weight)| 0.5_f64.powi(*weight)).collect();
        let ends: Vec<u64> = counts.iter().scan(0, |end, count| { *end += count; Some(*end) }).collect();
        let tokens: Vec<u32> = (0..ends[ends.len() - 1]).map(|sample| (sample % 9) as u32 + 1).collect();
        for rank in 0..world_size {
            let sources: Vec<Numbers> = sizes.iter().map(|(sizes, _)| Numbers::new(sizes, 0)).collect();
            let parts = sources.iter().map(|it| Dataset::from(it.builder().chunks_open(open).build().unwrap()));
            let mix = Mix::new(&counts, &weights).unwrap().when_exhausted(exhausted);
            let mix = if by_tokens { mix.measured("tokens", tokens.clone()).unwrap() } else { mix };
            let loader = Loader::builder(Dataset::sources(parts).unwrap()).mix(mix).batch_size(batch_size);
            let loader = loader.shuffle(true).seed(seed).rank(rank, world_size).uneven(Uneven::Short);
            let loader = loader.num_threads(threads).prefetch(2).build().unwrap();
            for epoch in 0..3 {
                let plan = loader.plan(epoch);
                loader.iter().for_each(|batch| drop(batch.unwrap()));
                let mut needed = vec![BTreeSet::new(); sources.len()];
                for sample in batches_of(&plan, rank).concat() {
                    let source = ends.partition_point(|&end| end <= sample);
                    let own = sample - source.checked_sub(1).map_or(0, |before| ends[before]);
                    needed[source].insert(sources[source].chunks.chunk_of(own));
                }
                let read = sources.iter().map(|it| std::mem::take(&mut *it.seen.lock().unwrap()));
                prop_assert_eq!(read.collect::<Vec<_>>(), needed);
            }
        }
    }

    /// Sources together hold no more bytes than the memory that is given to all of them.
    #[test]
    fn sources_share_their_memory(
        sources in prop::collection::vec((5_u64..30, 4_u64..20, 5_u64..12), 1..4),
        exhausted in prop_oneof![Just(Exhausted::Stop), Just(Exhausted::Repeat), Just(Exhausted::Renormalise)],
        threads in 1_usize..4,
    ) {
        let (mut first, mut counts, mut parts, mut memory) = (0, Vec::new(), Vec::new(), 0);
        for &(chunks, size, held) in &sources {
            let source = Numbers::new(&vec![size; chunks as usize], first);
            first += source.chunks.samples();
            counts.push(source.chunks.samples());
            memory += held * size * 8;
            parts.push(Dataset::from(source.builder().memory(held * size * 8).build().unwrap()));
        }
        let dataset = Dataset::sources(parts).unwrap();
        let mix = Mix::new(&counts, &vec![1.0; counts.len()]).unwrap().when_exhausted(exhausted);
        let loader = Loader::builder(dataset.clone()).mix(mix).batch_size(4).shuffle(true);
        let loader = loader.num_threads(threads).build().unwrap();
        columns(&loader);
        columns(&loader);
        let most = dataset.chunk_counts().unwrap().most_bytes;
        prop_assert!(most <= memory, "{most} bytes of {memory}");
    }

    /// Datasets that are put together are one dataset of their chunks; a selection keeps the sources of its samples.
    #[test]
    fn datasets_in_chunks_are_put_together(
        first in prop::collection::vec(1_u64..9, 1..9), second in prop::collection::vec(1_u64..9, 1..9),
        picks in prop::collection::btree_set(0_u64..80, 1..30),
    ) {
        let (one, two) = (Numbers::new(&first, 0), Numbers::new(&second, first.iter().sum()));
        let parts = || [&one, &two].map(|it| Dataset::from(it.builder().chunks_open(2).build().unwrap()));
        let both = Dataset::concat(parts()).unwrap();
        let loader = Loader::builder(both.clone()).batch_size(3).shuffle(true).build().unwrap();
        let mut all: Vec<u64> = loader.iter().flat_map(|it| it.unwrap().view::<u64>("x").unwrap().to_vec()).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..both.len() as u64).collect::<Vec<_>>());
        let picks: Vec<u64> = picks.into_iter().filter(|&pick| pick < both.len() as u64).collect();
        prop_assume!(!picks.is_empty());
        let selection = Selection::list(&picks, both.len() as u64).unwrap();
        let chosen = Dataset::sources(parts()).unwrap().select(&selection).unwrap();
        let loader = Loader::builder(chosen).batch_size(3).shuffle(true).build().unwrap();
        for (x, source) in columns(&loader) {
            for (x, source) in x.into_iter().zip(source) {
                prop_assert!(picks.contains(&x));
                prop_assert_eq!(source, i64::from(x >= one.chunks.samples()));
            }
        }
        // Parts of datasets are put together as they are.
        let halves = parts().map(|part| {
            let half: Vec<u64> = (0..part.len() as u64).step_by(2).collect();
            part.select(&Selection::list(&half, part.len() as u64).unwrap()).unwrap()
        });
        let halves = Dataset::concat(halves).unwrap();
        let loader = Loader::builder(halves).batch_size(3).shuffle(true).build().unwrap();
        let mut all: Vec<u64> = loader.iter().flat_map(|it| it.unwrap().view::<u64>("x").unwrap().to_vec()).collect();
        all.sort_unstable();
        let of = |it: &Numbers| (0..it.chunks.samples()).step_by(2).map(|number| it.first + number).collect::<Vec<_>>();
        prop_assert_eq!(all, [of(&one), of(&two)].concat());
    }
}

fn two_sources(broken: Option<u64>, on_error: OnError) -> Loader {
    let sources = [Numbers::new(&[10; 3], 0), Numbers { broken, ..Numbers::new(&[10; 3], 30) }];
    let parts =
        sources.map(|it| Dataset::from(it.builder().chunks_open(1).on_error(on_error).build().unwrap()));
    let mix = Mix::new(&[30, 30], &[1.0, 1.0]).unwrap();
    let builder = Loader::builder(Dataset::sources(parts).unwrap()).mix(mix).batch_size(4);
    builder.build().unwrap()
}

#[test]
fn memory_is_given_to_all_sources_or_to_none() {
    let part = |memory: Option<u64>| {
        let builder = Numbers::new(&[4; 9], 0).builder();
        let builder = match memory {
            Some(bytes) => builder.memory(bytes),
            None => builder.chunks_open(2),
        };
        Dataset::from(builder.build().unwrap())
    };
    refused(
        Dataset::sources([part(None), part(None), part(Some(640))]),
        Kind::Argument,
        &["640", "dataset 2", "dataset 0"],
    );
    refused(
        Dataset::sources([part(Some(640)), part(None)]),
        Kind::Argument,
        &["640", "dataset 0", "dataset 1"],
    );
    Dataset::sources([part(Some(640)), part(Some(320))]).unwrap();
}

#[test]
fn a_chunk_that_cannot_be_read_is_an_error_that_names_its_dataset() {
    let loader = two_sources(Some(1), OnError::Raise);
    let mut batches = loader.iter();
    for _ in 0..5 {
        assert!(batches.next().unwrap().is_ok());
    }
    let error = batches.next().unwrap().unwrap_err();
    assert!(is(&error, Kind::Data, &["dataset 1", "the disk is gone"]), "{error}");
}

#[test]
fn samples_of_a_chunk_that_cannot_be_read_have_no_weight() {
    let mut without = 0;
    for batch in &two_sources(Some(1), OnError::Skip) {
        let batch = batch.unwrap();
        let weights = batch.view::<f32>("weight").unwrap().to_vec();
        for ((x, source), weight) in
            batch.view::<u64>("x").unwrap().iter().zip(batch.view::<i64>("source").unwrap()).zip(weights)
        {
            without += u64::from(weight == 0.0);
            assert_eq!(weight == 0.0, *x == 0 && *source == 1);
        }
    }
    assert_eq!(without, 10);
}

#[test]
fn what_one_dataset_in_chunks_refuses_a_mixture_refuses() {
    let refused = |change: &dyn Fn(PlanBuilder) -> PlanBuilder| {
        let window = || Some(SourceWindow { chunks: Chunks::new([10; 3]), open: 2 });
        let mix = Mix::new(&[30, 30], &[1.0, 1.0]).unwrap().in_chunks(vec![window(), window()]).unwrap();
        let builder = Plan::builder(60).batch_size(4).shuffle(true).sizes(Sizes::new(vec![3; 60]));
        change(builder.mix(mix)).build().unwrap_err()
    };
    for (change, named) in [
        (&(|plan: PlanBuilder| plan.balance(true)) as &dyn Fn(PlanBuilder) -> PlanBuilder, "balance"),
        (&|plan| plan.largest_first(true), "largest_first"),
        (&|plan| plan.homogeneous_by(Keys::new(vec![0; 60])), "homogeneous_by"),
    ] {
        let error = refused(change);
        assert_eq!((error.kind(), error.option()), (Kind::Argument, Some(named)), "{error}");
        assert!(error.to_string().contains("chunks"), "{error}");
    }
    let mix = || Mix::new(&[30, 30], &[1.0, 1.0]).unwrap();
    let window =
        |sizes: &[u64], open| Some(SourceWindow { chunks: Chunks::new(sizes.iter().copied()), open });
    let error = mix().in_chunks(vec![None]).unwrap_err();
    assert!(is(&error, Kind::Argument, &["1 windows", "2 sources"]), "{error}");
    let error = mix().in_chunks(vec![None, window(&[10, 10], 1)]).unwrap_err();
    assert!(is(&error, Kind::Argument, &["source 1", "20 samples", "30"]), "{error}");
    let error = mix().in_chunks(vec![window(&[30], 0), None]).unwrap_err();
    assert!(is(&error, Kind::Argument, &["source 0", "at least 1"]), "{error}");
    let rows = Dataset::from(TensorDataset::new([("x", vec![1_u64, 2])]).unwrap());
    let chunks = || Dataset::from(Numbers::new(&[4, 4], 0).builder().build().unwrap());
    let error = Dataset::concat([chunks(), rows]).unwrap_err();
    assert!(is(&error, Kind::Argument, &["dataset 1", "chunks"]), "{error}");
    let skipping = Dataset::from(Numbers::new(&[4], 0).builder().on_error(OnError::Skip).build().unwrap());
    let error = Dataset::concat([chunks(), skipping]).unwrap_err();
    assert!(is(&error, Kind::Argument, &["dataset 1", "on_error"]), "{error}");
}

#[test]
fn windows_of_sources_are_in_the_fingerprint() {
    let print = |sizes: [u64; 3], open| {
        let window = Some(SourceWindow { chunks: Chunks::new(sizes), open });
        let mix = Mix::new(&[30, 30], &[1.0, 1.0]).unwrap().in_chunks(vec![window, None]).unwrap();
        Plan::builder(60).mix(mix).batch_size(4).shuffle(true).build().unwrap().fingerprint()
    };
    let mix = Mix::new(&[30, 30], &[1.0, 1.0]).unwrap();
    let without = Plan::builder(60).mix(mix).batch_size(4).shuffle(true).build().unwrap().fingerprint();
    let all = [print([10; 3], 2), print([10; 3], 1), print([9, 10, 11], 2), without];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4);
}

/// A block that begins with a sample of one source may hold the first sample of a small chunk of another: that chunk is
/// known to be needed, and is not dropped for a chunk that is needed now.
#[test]
fn small_chunks_of_sources_in_one_block_are_read_once() {
    let sizes = [vec![1, 1, 17, 3, 2], vec![16, 5, 1, 1], vec![3, 9, 7, 4]];
    let counts = sizes.each_ref().map(|sizes| sizes.iter().sum());
    let sources = sizes.each_ref().map(|sizes| Numbers::new(sizes, 0));
    let parts = sources.iter().map(|it| Dataset::from(it.builder().chunks_open(1).build().unwrap()));
    let mix = Mix::new(&counts, &[1.0; 3]).unwrap().when_exhausted(Exhausted::Renormalise);
    let loader = Loader::builder(Dataset::sources(parts).unwrap()).mix(mix).batch_size(1).shuffle(false);
    columns(&loader.num_threads(1).prefetch(2).build().unwrap());
    let read = sources.each_ref().map(|it| it.read.load(Ordering::Relaxed));
    assert_eq!(read, sizes.map(|sizes| sizes.len() as u64));
}

/// A chunk that an open block has not used yet stays where later chunks are read early.
#[test]
fn chunks_of_open_blocks_do_not_leave_for_chunks_read_early() {
    let sizes = [13, 16, 1, 15, 11, 3, 14, 6, 12, 5, 8];
    for seed in 0..300 {
        let source = Numbers::new(&sizes, 0);
        let dataset = Dataset::from(source.builder().chunks_open(4).build().unwrap());
        let loader = Loader::builder(dataset).batch_size(1).shuffle(true).seed(seed);
        let loader = loader.num_threads(3).prefetch(2).build().unwrap();
        loader.iter().for_each(|batch| drop(batch.unwrap()));
        assert_eq!(source.read.load(Ordering::Relaxed), sizes.len() as u64, "seed {seed}");
    }
}
