//! Each rule against its own definition, written the slow way.

use batchloom::batching::{CostOptimal, Count, LengthBuckets, Oversize, Packing, Sizes, TokenBudget};
use batchloom::plan::Parts;
use batchloom::{Kind, Plan};
use proptest::prelude::*;

use crate::errors::is;
use crate::order::sharded;
use crate::rules::{cost, oversize, seen, sizes};

proptest! {
    /// `LengthBuckets`: the order in groups of K batches, each sorted, then divided.
    #[test]
    fn length_buckets_by_definition(sizes in sizes(), batch_size in 1_u64..20, pool in 1_u64..9, seed in any::<u64>()) {
        let rule = LengthBuckets::new(batch_size).unwrap().pool(pool).unwrap();
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(rule).shuffle(true).seed(seed).build().unwrap();
        let order = Plan::builder(sizes.len() as u64).batch_size(sizes.len() as u64).shuffle(true).seed(seed).build().unwrap();
        let order = order.indices(0, 0).unwrap();
        let mut expected = Vec::new();
        for pool in order.chunks((batch_size * pool) as usize) {
            let mut pool = pool.to_vec();
            pool.sort_by_key(|&sample| std::cmp::Reverse(sizes[sample as usize]));
            expected.extend(pool.chunks(batch_size as usize).map(<[_]>::to_vec));
        }
        let mut batches: Vec<_> = seen(&plan).into_iter().flatten().map(|parts| parts.samples).collect();
        batches.sort();
        expected.sort();
        prop_assert_eq!(batches, expected);
    }

    /// The batches of a shard are those of the rule on it alone, as the order has it.
    #[test]
    fn length_buckets_in_shards_by_definition(sizes in sizes(), batch_size in 1_u64..20, pool in 1_u64..9, shards in 1_u64..9, seed in any::<u64>(), shuffle in any::<bool>()) {
        let rule = LengthBuckets::new(batch_size).unwrap().pool(pool).unwrap();
        let (samples, shard_size) = (sizes.len() as u64, shards * batch_size);
        let plan = Plan::builder(samples).sizes(Sizes::new(sizes.clone())).rule(rule).shuffle(shuffle).seed(seed);
        let plan = plan.shard_size(shard_size).build().unwrap();
        let order = if shuffle { sharded(samples, shard_size, seed, 0) } else { (0..samples).collect() };
        let in_pool = if shuffle { batch_size * pool } else { shard_size };
        let mut expected = Vec::new();
        for pool in order.chunks(shard_size as usize).flat_map(|shard| shard.chunks(in_pool as usize)) {
            let mut pool = pool.to_vec();
            pool.sort_by_key(|&sample| std::cmp::Reverse(sizes[sample as usize]));
            expected.extend(pool.chunks(batch_size as usize).map(<[_]>::to_vec));
        }
        let mut batches: Vec<_> = seen(&plan).into_iter().flatten().map(|parts| parts.samples).collect();
        if shuffle {
            batches.sort();
            expected.sort();
        }
        prop_assert_eq!(batches, expected);
    }

    /// `CostOptimal` against all partitions of a sorted set: none is cheaper.
    #[test]
    fn cost_optimal_against_all_partitions(
        mut sizes in prop::collection::vec(prop_oneof![Just(0_u32), 1_u32..6, 1_u32..200], 1..14),
        cost in cost(),
        max_tokens in prop::option::of(200_u64..600),
        max_samples in prop::option::of(1_u64..6),
        multiple_of in 1_u32..9,
    ) {
        let rule = CostOptimal::new(cost).multiple_of(multiple_of).unwrap();
        let rule = max_tokens.map_or(rule, |tokens| rule.max_tokens(tokens + 8).unwrap());
        let rule = max_samples.map_or(rule, |samples| rule.max_samples(samples).unwrap());
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(rule).build().unwrap();
        let price = |lengths: &[u32]| {
            let longest = u64::from(lengths[0]).next_multiple_of(u64::from(multiple_of));
            let (samples, elements) = (lengths.len() as u64, lengths.len() as u64 * longest);
            let allowed = max_tokens.is_none_or(|tokens| elements <= tokens + 8) && max_samples.is_none_or(|most| samples <= most);
            if allowed { cost.cost(samples, longest) } else { f64::INFINITY }
        };
        sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
        let sorted = sizes;
        let mut least = f64::INFINITY;
        for cuts in 0..1_u32 << (sorted.len() - 1) {
            let (mut total, mut start) = (0.0, 0);
            for end in 1..=sorted.len() {
                if end == sorted.len() || cuts >> (end - 1) & 1 == 1 {
                    total += price(&sorted[start..end]);
                    start = end;
                }
            }
            least = least.min(total);
        }
        let total: f64 = seen(&plan).iter().flatten().map(|parts| price(&parts.sizes)).sum();
        prop_assert!((total - least).abs() <= 1e-9 * least.max(1.0), "{total} {least}");
    }

    /// The same over a thousand samples, against the plain dynamic programme.
    #[test]
    fn cost_optimal_against_the_plain_programme(
        mut sizes in prop::collection::vec(0_u32..300, 300..1000),
        cost in cost(),
        max_tokens in prop::option::of(300_u64..9000),
        max_samples in prop::option::of(1_u64..60),
    ) {
        let rule = CostOptimal::new(cost);
        let rule = max_tokens.map_or(rule, |tokens| rule.max_tokens(tokens).unwrap());
        let rule = max_samples.map_or(rule, |samples| rule.max_samples(samples).unwrap());
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(rule).build().unwrap();
        sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
        let mut least = vec![0.0_f64; sizes.len() + 1];
        for end in 1..=sizes.len() {
            let price = |start: usize| {
                let (samples, longest) = ((end - start) as u64, u64::from(sizes[start]));
                let allowed = max_tokens.is_none_or(|tokens| samples * longest <= tokens) && max_samples.is_none_or(|most| samples <= most);
                if allowed { least[start] + cost.cost(samples, longest) } else { f64::INFINITY }
            };
            least[end] = (0..end).map(price).fold(f64::INFINITY, f64::min);
        }
        let batches = seen(&plan);
        let total: f64 = batches.iter().flatten().map(|parts| cost.cost(parts.samples.len() as u64, u64::from(parts.sizes[0]))).sum();
        prop_assert!((total - least[sizes.len()]).abs() <= 1e-9 * total.max(1.0), "{total} {}", least[sizes.len()]);
    }

    /// `TokenBudget`: from the longest sample down, each into the last batch if that stays within every limit.
    // law: L6
    #[test]
    fn token_budget_by_definition(
        sizes in prop::collection::vec(0_u32..60, 1..150),
        tokens in 20_u64..200,
        spread in prop::option::of(0_u32..20),
        samples in prop::option::of(1_u64..9),
        multiple_of in 1_u32..9,
        real in any::<bool>(),
        oversize in oversize(),
    ) {
        let rule = TokenBudget::new(tokens).unwrap().multiple_of(multiple_of).unwrap().oversize(oversize);
        let rule = rule.count(if real { Count::Real } else { Count::Padded });
        let rule = spread.map_or(rule.clone(), |spread| rule.max_length_spread(spread));
        let rule = samples.map_or(rule.clone(), |samples| rule.max_samples(samples).unwrap());
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(rule).build();
        let most = if real { tokens } else { tokens - tokens % u64::from(multiple_of) } as u32;
        let mut lengths: Vec<u32> = match oversize {
            Oversize::Drop => sizes.into_iter().filter(|&size| size <= most).collect(),
            Oversize::Truncate => sizes.into_iter().map(|size| size.min(most)).collect(),
            _ => sizes,
        };
        lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for length in lengths {
            let fits = |batch: &&mut Vec<u32>| {
                let count = batch.len() as u64 + 1;
                let padded = count * u64::from(batch[0].next_multiple_of(multiple_of));
                let sum = batch.iter().chain([&length]).map(|&length| u64::from(length)).sum();
                (if real { sum } else { padded }) <= tokens
                    && samples.is_none_or(|samples| count <= samples)
                    && spread.is_none_or(|spread| batch[0] - length <= spread)
                    && batch[0] <= most
            };
            match expected.last_mut().filter(fits) {
                Some(batch) => batch.push(length),
                None => expected.push(vec![length]),
            }
        }
        let batches = plan.map(|plan| seen(&plan).into_iter().flatten().map(|parts| parts.sizes).collect());
        prop_assert_eq!(batches.unwrap_or_else(|_| Vec::new()), expected);
    }

    /// `Packing` makes as many bins as best fit does, written the obvious way.
    // law: L6
    #[test]
    fn packing_is_best_fit_decreasing(mut sizes in prop::collection::vec(0_u32..120, 1..200), capacity in 120_u64..500) {
        let rule = Packing::new(capacity).unwrap();
        let plan = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.clone())).rule(rule).build().unwrap();
        sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
        let mut free: Vec<u64> = Vec::new();
        for size in sizes {
            match free.iter_mut().filter(|free| **free >= u64::from(size)).min() {
                Some(free) => *free -= u64::from(size),
                None => free.push(capacity - u64::from(size)),
            }
        }
        let real = |parts: &Parts| parts.sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
        let mut rooms: Vec<u64> = seen(&plan).iter().flatten().map(|parts| capacity - real(parts)).collect();
        free.sort_unstable();
        rooms.sort_unstable();
        prop_assert_eq!(rooms, free);
    }

    /// Samples with two variable dimensions: the union of the extents stays within the budget.
    // law: L6
    #[test]
    fn shapes_within_budget(extents in prop::collection::vec((0_u32..30, 0_u32..30), 1..100), tokens in 100_u64..2000, multiple_of in 1_u32..8, oversize in oversize(), shuffle in any::<bool>()) {
        let rule = TokenBudget::new(tokens).unwrap().multiple_of(multiple_of).unwrap().oversize(oversize).pool(40).unwrap();
        let sizes = Sizes::with_extents(extents.iter().flat_map(|&(height, width)| [height, width]).collect(), 2).unwrap();
        let plan = Plan::builder(extents.len() as u64).sizes(sizes).rule(rule).shuffle(shuffle).build();
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let said = match oversize {
                    Oversize::Truncate => "differ in one dimension, and these differ in 2",
                    Oversize::Drop => "oversize drops all",
                    _ => "no error",
                };
                prop_assert!(is(&error, Kind::Argument, &[said]), "{error}");
                return Ok(());
            }
        };
        let mut times = vec![0; extents.len()];
        let mut total = 0;
        for parts in seen(&plan).iter().flatten() {
            let most = |side: fn(&(u32, u32)) -> u32| parts.samples.iter().map(|&sample| side(&extents[sample as usize])).max().unwrap();
            let area = u64::from(most(|sides| sides.0).next_multiple_of(multiple_of)) * u64::from(most(|sides| sides.1).next_multiple_of(multiple_of));
            let elements = area * parts.samples.len() as u64;
            prop_assert!(elements <= tokens || oversize == Oversize::Alone && parts.samples.len() == 1);
            total += elements;
            parts.samples.iter().for_each(|&sample| times[sample as usize] += 1);
        }
        prop_assert_eq!(plan.stats().padded, total);
        prop_assert!(times.iter().all(|&count| count <= 1));
        prop_assert_eq!(times.iter().filter(|&&count| count == 0).count() as u64, plan.stats().dropped);
        prop_assert!(oversize == Oversize::Drop || plan.stats().dropped == 0);
    }
}
