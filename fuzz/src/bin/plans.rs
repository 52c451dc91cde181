//! Options of plans: those that are let in deliver what the laws say, whatever the options.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use batchloom::batching::{Keys, Rule, Sizes, Surplus};
use batchloom::draws::{Mix, Weights};
use batchloom::order::Shuffle;
use batchloom::ranks::Uneven;
use batchloom::{Error, Plan};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    samples: u8,
    rule: u8,
    number: u16,
    sizes: Option<Vec<u8>>,
    shuffle: u8,
    seed: u64,
    epoch: u64,
    world_size: u8,
    flags: u8,
    uneven: u8,
    shard_size: Option<u8>,
    num_samples: Option<u8>,
    ban: Option<Vec<u8>>,
    weights: Option<Vec<u8>>,
    sources: Option<Vec<u8>>,
    keys: Option<(bool, Vec<u8>)>,
    step: u8,
}

fn rule(input: &Input) -> Option<Rule> {
    let number = 1 + input.number % 300;
    let text = match input.rule % 6 {
        0 => format!("fixed-size:{number}"),
        1 => format!("length-buckets:{number}"),
        2 => format!("token-budget:{number}"),
        3 => format!("packing:{number}"),
        4 => format!("cost-optimal:{number}"),
        _ => format!("packing:{number},oversize=split"),
    };
    text.parse().ok()
}

fn plan(input: &Input) -> Option<Result<Plan, Error>> {
    let samples = u64::from(input.samples % 80);
    let of_samples = |bytes: &[u8]| {
        (0..samples as usize).map(|at| bytes.get(at).copied().unwrap_or(1)).collect::<Vec<_>>()
    };
    let flag = |bit: u8| input.flags >> bit & 1 == 1;
    let mut plan = Plan::builder(samples)
        .rule(rule(input)?)
        .shuffle([Shuffle::Nothing, Shuffle::Samples, Shuffle::Runs][usize::from(input.shuffle) % 3])
        .seed(input.seed)
        .epoch(input.epoch)
        .world_size(u32::from(input.world_size % 7))
        .drop_last(flag(0))
        .balance(flag(1))
        .largest_first(flag(2))
        .concatenated(flag(3))
        .uneven([Uneven::Pad, Uneven::Short, Uneven::Mask][usize::from(input.uneven) % 3])
        .shard_size(input.shard_size.map(u64::from))
        .num_samples(input.num_samples.map(u64::from));
    if let Some(sizes) = &input.sizes {
        plan = plan.sizes(Sizes::new(of_samples(sizes).into_iter().map(u32::from).collect::<Vec<_>>()));
    }
    if let Some(ban) = &input.ban {
        plan = plan.ban(ban.iter().map(|&sample| u64::from(sample)).collect::<Vec<_>>());
    }
    if let Some(weights) = &input.weights {
        let weights: Vec<f64> = of_samples(weights).into_iter().map(f64::from).collect();
        plan = plan.weights(Weights::new(&weights).ok()?);
    }
    if let Some(sources) = &input.sources {
        let counts: Vec<u64> = sources.iter().take(4).map(|&count| u64::from(count % 40)).collect();
        plan = plan.mix(Mix::new(&counts, &vec![1.0; counts.len()]).ok()?);
    }
    if let Some((one, keys)) = &input.keys {
        let keys: Vec<u32> = of_samples(keys).into_iter().map(|key| u32::from(key % 5)).collect();
        let pairs = keys.iter().zip(keys.iter().rev()).flat_map(|(&key, &other)| [key, 3 + other]).collect();
        plan = match (one, flag(4)) {
            (true, _) => plan.homogeneous_by(Keys::new(keys)),
            (false, false) => plan.distinct_by(Keys::new(keys)),
            (false, true) => plan.distinct_by(Keys::several(pairs, 2).ok()?),
        };
        plan = plan.surplus(if flag(5) { Surplus::Drop } else { Surplus::Error });
    }
    Some(plan.build())
}

fuzz_target!(|input: Input| {
    if std::env::var_os("PLANS_SHOW").is_some() {
        eprintln!("{input:?}");
    }
    let Some(Ok(plan)) = plan(&input) else { return };
    let (steps, world_size) = (plan.steps(), plan.world_size());
    let options = plan.options();
    let once = options.weights.is_none() && options.mix.is_none() && options.num_samples.is_none();
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut batches, mut listed) = (0, 0);
    for step in 0..steps {
        let ranks = (0..world_size).filter(|&rank| step < plan.steps_of(rank));
        let shown = plan.step(step).expect("a step");
        for (rank, shown) in ranks.zip(&shown.batches) {
            let found = plan.indices(step, rank).expect("a batch");
            assert_eq!(&found, shown, "step and indices differ");
            assert_eq!(found.len() as u64, plan.batch_len(step, rank).expect("a length"));
            assert!(found.iter().all(|&sample| sample < plan.samples()), "no such sample");
            (batches, listed) = (batches + 1, listed + found.len());
            // Places that only fill up come last, and neither these nor banned samples are places of a sample.
            let counted = found.len() - plan.fillers(step, rank).expect("fillers") as usize;
            let banned = plan.banned(step);
            let counts = found[..counted].iter().filter(|sample| banned.binary_search(sample).is_err());
            counts.for_each(|&sample| *seen.entry(sample).or_default() += 1);
        }
    }
    let stats = plan.stats();
    assert_eq!(stats.batches, batches, "batches");
    for (&sample, &times) in seen.iter().take(20) {
        let places = plan.places(sample).expect("places");
        assert_eq!(places.len() as u64, times, "places of {sample}");
        for place in places {
            assert_eq!(plan.indices(place.step, place.rank).expect("a batch")[place.index as usize], sample);
        }
    }
    let splits = plan.rule().to_string().contains("split");
    if once && options.uneven == Uneven::Short && !splits && options.homogeneous_by.is_none() {
        assert!(seen.values().all(|&times| times == 1), "a sample came twice");
        assert_eq!(listed as u64 + stats.dropped, plan.samples(), "samples add up");
    }
    let step = u64::from(input.step) % (steps + 1);
    let state = plan.state(step);
    let rest = plan.resume(&state).expect("its own state");
    if step < steps {
        assert_eq!(rest.steps(), steps - step, "steps that are left");
        let ranks = (0..world_size).find(|&rank| plan.steps_of(rank) > step).expect("a rank");
        assert_eq!(rest.indices(0, ranks).expect("a batch"), plan.indices(step, ranks).expect("a batch"));
    }
});
