//! Rows of one shape and rests that are continued: every element once, full rows, parts in order, the same after any
//! stop (L1, L4, L5, L6), and fields that place each part where the plan has it.

use batchloom::batching::{PackedOversize, Packing, Pool, Rests, Rule, Sizes};
use batchloom::plan::Parts;
use batchloom::ranks::Uneven;
use batchloom::{Loader, Plan, SequenceDataset, Tensor};
use proptest::prelude::*;

use crate::rules::seen;

/// Options of packing.
#[derive(Debug, Clone)]
struct Rows {
    tokens: u64,
    samples: Option<u32>,
    rows: Option<u32>,
    pool: Pool,
    oversize: Option<PackedOversize>,
}

impl Rows {
    fn rule(&self, rests: Rests) -> Rule {
        let rule = Packing::new(self.tokens).unwrap().rests(rests).pool(self.pool).unwrap();
        let rule = self.samples.map_or(rule.clone(), |samples| rule.max_samples(samples).unwrap());
        let rule = self.oversize.map_or(rule.clone(), |oversize| rule.oversize(oversize));
        self.rows.map_or(rule.clone(), |rows| rule.rows(rows).unwrap()).into()
    }

    /// The elements of a full batch.
    fn batch(&self) -> u64 {
        self.tokens * u64::from(self.rows.unwrap_or(1))
    }

    /// The elements that a rule takes of a sample.
    fn taken(&self, size: u32) -> u32 {
        match self.oversize {
            Some(PackedOversize::Drop) if u64::from(size) > self.tokens => 0,
            Some(PackedOversize::Truncate) => size.min(self.tokens as u32),
            _ => size,
        }
    }
}

fn rows() -> impl Strategy<Value = Rows> {
    let pool = prop_oneof![(1_u64..30).prop_map(Pool::Of), Just(Pool::Auto), Just(Pool::All)];
    let policies =
        [None, Some(PackedOversize::Split), Some(PackedOversize::Truncate), Some(PackedOversize::Drop)];
    let oversize = prop::sample::select(policies.to_vec());
    let (samples, rows) = (prop::option::of(1_u32..9), prop::option::of(1_u32..5));
    (8_u64..80, samples, rows, pool, oversize).prop_map(|(tokens, samples, rows, pool, oversize)| Rows {
        tokens,
        samples,
        rows,
        pool,
        oversize,
    })
}

fn sizes() -> impl Strategy<Value = Vec<u32>> {
    let size = prop_oneof![Just(0_u32), 1_u32..20, 1_u32..20, 1_u32..60, 60_u32..300];
    prop::collection::vec(size, 1..120)
}

/// The parts of each sample in the order in which they are dealt.
fn parts_of(steps: &[Vec<Parts>], samples: usize) -> Vec<Vec<(u32, u32)>> {
    let mut parts = vec![Vec::new(); samples];
    for batch in steps.iter().flatten() {
        for ((&sample, &start), &size) in batch.samples.iter().zip(&batch.starts).zip(&batch.sizes) {
            parts[sample as usize].push((start, size));
        }
    }
    parts
}

/// The end of parts that follow each other from the first element on; `None` if they do not.
fn follow(parts: &[(u32, u32)]) -> Option<u32> {
    parts.iter().try_fold(0, |end, &(start, size)| (start == end).then_some(end + size))
}

proptest! {
    /// Each element is dealt once, the parts of a sample in order, and with places enough only the last batch of an epoch
    /// has padding; a plan that leaves out the last batch has full ones alone.
    // law: L1, L6
    #[test]
    fn rests_fill_rows(options in rows(), sizes in sizes(), shuffle in any::<bool>(), seed in any::<u64>(), world_size in 1_u32..5, drop_last in any::<bool>(), balance in any::<bool>()) {
        let options = Rows { samples: Some(1 << 16), ..options };
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(options.rule(Rests::Continue));
        let plan = plan.shuffle(shuffle).seed(seed).world_size(world_size).uneven(Uneven::Short).drop_last(drop_last).balance(balance);
        // Without a full batch for each rank there is no step.
        let Ok(plan) = plan.build() else {
            prop_assert!(drop_last || sizes.iter().all(|&size| size > 0 && options.taken(size) == 0));
            return Ok(());
        };
        let steps = seen(&plan);
        let taken: Vec<u32> = sizes.iter().map(|&size| options.taken(size)).collect();
        let total: u64 = taken.iter().map(|&size| u64::from(size)).sum();
        let elements = |parts: &Parts| parts.sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
        let partial = steps.iter().flatten().filter(|parts| elements(parts) < options.batch()).count();
        let stats = plan.stats();
        prop_assert_eq!(stats.real, steps.iter().flatten().map(elements).sum::<u64>());
        if drop_last {
            prop_assert_eq!(partial, 0);
            let left = (total - stats.real) / options.batch();
            prop_assert!(left < u64::from(world_size), "{} of {}", stats.real, total);
        } else {
            prop_assert!(partial <= 1, "{partial} batches have padding");
            prop_assert_eq!(stats.real, total);
        }
        for ((sample, parts), &size) in parts_of(&steps, sizes.len()).iter().enumerate().zip(&taken) {
            let end = follow(parts);
            prop_assert!(drop_last || end == Some(size), "sample {} of {}: {:?}", sample, size, parts);
            prop_assert!(end.is_some_and(|end| end <= size), "sample {} of {}: {:?}", sample, size, parts);
        }
    }

    /// Stops in other worlds lose and repeat no element.
    // law: L4, L5
    #[test]
    fn rests_after_stops(options in rows(), sizes in sizes(), shuffle in any::<bool>(), seed in any::<u64>(), balance in any::<bool>(), stops in prop::collection::vec((1_u32..6, 0.0..1.0_f64), 1..4)) {
        if sizes.iter().all(|&size| size > 0 && options.taken(size) == 0) {
            return Ok(());
        }
        let build = |world_size: u32| {
            let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(options.rule(Rests::Continue));
            plan.shuffle(shuffle).seed(seed).world_size(world_size).uneven(Uneven::Short).balance(balance).build().unwrap()
        };
        let (mut plan, mut came) = (build(stops[0].0), Vec::new());
        for (world_size, stop) in stops {
            let steps = (plan.steps() as f64 * stop) as u64;
            came.extend(seen(&plan).into_iter().take(steps as usize));
            plan = build(world_size).resume(&plan.state(steps)).unwrap();
        }
        came.extend(seen(&plan));
        for (parts, &size) in parts_of(&came, sizes.len()).iter().zip(&sizes) {
            prop_assert_eq!(follow(parts), Some(options.taken(size)), "{:?}", parts);
        }
    }

    /// Fields in rows have each part where the plan has it, and padding elsewhere.
    // law: L1, L6, L10
    #[test]
    fn fields_lie_in_rows(options in rows(), sizes in prop::collection::vec(0_usize..20, 1..60), continues in any::<bool>(), seed in any::<u64>(), threads in 1_usize..4, block in prop::sample::select(vec![64_usize, 4096, 1 << 21])) {
        let options = Rows { rows: options.rows.or(Some(2)), oversize: options.oversize.or(Some(PackedOversize::Split)), ..options };
        let rule = options.rule(if continues { Rests::Continue } else { Rests::None });
        let shape = rule.row_shape().unwrap();
        let documents: Vec<Vec<i32>> =
            sizes.iter().enumerate().map(|(sample, &size)| (0..size).map(|place| (1000 * (sample + 1) + place) as i32).collect()).collect();
        let scores = Tensor::from_vec((0..sizes.len() as i64).map(|score| score + 7).collect(), &[sizes.len()]).unwrap();
        let dataset = SequenceDataset::new().slices("ids", &documents).unwrap().fixed("score", scores).build().unwrap();
        let loader = Loader::builder(dataset).rule(rule).shuffle(true).seed(seed).labels("ids").num_threads(threads).block_bytes(block).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in (0..).zip(loader.iter()) {
            let (batch, parts) = (batch.unwrap(), plan.parts(step, 0).unwrap());
            let [rows, tokens, samples] = [shape.rows, shape.tokens, shape.samples].map(|extent| extent as usize);
            prop_assert_eq!(batch.longest(), tokens);
            let mut expected = Expected::new(rows, tokens, samples);
            for (row, members) in each_row(&parts).into_iter().enumerate() {
                expected.put(row, &members, &documents, continues, |sample| options.taken(sizes[sample] as u32) as usize);
            }
            let shapes = [("ids", [rows, tokens]), ("score", [rows, samples]), ("cu_seqlens", [rows, samples + 1]), ("index", [rows, samples])];
            for (name, shape) in shapes {
                prop_assert_eq!(batch.field(name).unwrap().shape(), &shape[..], "{}", name);
            }
            prop_assert_eq!(batch.view::<i32>("ids").unwrap(), expected.ids);
            prop_assert_eq!(batch.view::<i64>("score").unwrap(), expected.scores);
            prop_assert_eq!(batch.view::<i64>("index").unwrap(), expected.index);
            prop_assert_eq!(batch.view::<i32>("cu_seqlens").unwrap(), expected.ends);
            prop_assert_eq!(batch.view::<i64>("position_ids").unwrap(), expected.positions);
            prop_assert_eq!(batch.view::<i32>("segment_ids").unwrap(), expected.segments);
            prop_assert_eq!(batch.view::<i64>("labels").unwrap(), expected.labels);
        }
    }
}

/// The parts of each row: sample, start and size.
fn each_row(parts: &Parts) -> Vec<Vec<(u64, u32, u32)>> {
    let mut start = 0;
    let mut row = |end: u32| {
        let range = start as usize..end as usize;
        start = end;
        range.map(|place| (parts.samples[place], parts.starts[place], parts.sizes[place])).collect()
    };
    parts.row_ends.iter().map(|&end| row(end)).collect()
}

/// The fields of a batch by definition.
struct Expected {
    tokens: usize,
    samples: usize,
    ids: Vec<i32>,
    labels: Vec<i64>,
    positions: Vec<i64>,
    segments: Vec<i32>,
    scores: Vec<i64>,
    index: Vec<i64>,
    ends: Vec<i32>,
}

impl Expected {
    fn new(rows: usize, tokens: usize, samples: usize) -> Self {
        let (elements, places) = (rows * tokens, rows * samples);
        Self {
            tokens,
            samples,
            ids: vec![0; elements],
            labels: vec![-100; elements],
            positions: vec![0; elements],
            segments: vec![0; elements],
            scores: vec![0; places],
            index: vec![-1; places],
            ends: vec![0; rows * (samples + 1)],
        }
    }

    fn put(
        &mut self,
        row: usize,
        members: &[(u64, u32, u32)],
        documents: &[Vec<i32>],
        continues: bool,
        taken: impl Fn(usize) -> usize,
    ) {
        let mut used = 0;
        let ends = row * (self.samples + 1);
        for (number, &(sample, start, size)) in members.iter().enumerate() {
            let (start, document) = (start as usize, &documents[sample as usize]);
            for place in 0..size as usize {
                let at = row * self.tokens + used + place;
                self.ids[at] = document[start + place];
                self.segments[at] = number as i32 + 1;
                self.positions[at] = (place + if continues { start } else { 0 }) as i64;
                let is_followed =
                    place + 1 < size as usize || continues && start + place + 1 < taken(sample as usize);
                if is_followed {
                    self.labels[at] = document.get(start + place + 1).map_or(-100, |&token| token.into());
                }
            }
            used += size as usize;
            self.scores[row * self.samples + number] = sample as i64 + 7;
            self.index[row * self.samples + number] = sample as i64;
            self.ends[ends + number + 1..ends + self.samples + 1].fill(used as i32);
        }
    }
}
