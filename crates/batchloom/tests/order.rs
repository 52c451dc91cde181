//! The order: a bijection, the same everywhere and for ever (L2), fresh for every seed and epoch (L7), and
//! statistically a shuffle. All draws are keyed, so a statistic is a fixed number: a failure is a change, never luck.

use batchloom::order::{Key, LIMIT, Order, Permutation, Purpose, Shards};
use proptest::prelude::*;

fn key(seed: u64, epoch: u64) -> Key {
    Key::new(seed, epoch, Purpose::Samples)
}

fn all(samples: u64, key: &Key) -> Vec<u64> {
    let mut out = vec![0; usize::try_from(samples).unwrap()];
    Permutation::new(samples, key).fill(0, &mut out);
    out
}

/// An order in shards by definition: runs of neighbours as stored, a short one among them; the full ones in random
/// order and then the short one; each shuffled.
pub(crate) fn sharded(samples: u64, shard_size: u64, seed: u64, epoch: u64) -> Vec<u64> {
    shards(samples, shard_size, seed, epoch).concat()
}

/// The shards of such an order.
fn shards(samples: u64, shard_size: u64, seed: u64, epoch: u64) -> Vec<Vec<u64>> {
    let key = |purpose| Key::new(seed, epoch, purpose);
    let count = samples / shard_size;
    let before = Permutation::new(count + 1, &key(Purpose::ShortShard)).get(0);
    let mut lengths = vec![shard_size; count as usize];
    lengths.insert(before as usize, samples % shard_size);
    let mut start = 0;
    let mut stored: Vec<(u64, u64)> = Vec::new();
    for length in lengths {
        stored.push((start, length));
        start += length;
    }
    let short = stored.remove(before as usize);
    let order = all(count, &key(Purpose::Shards));
    let full = order.into_iter().map(|number| (number, stored[number as usize]));
    let shuffled = |(number, (start, length))| {
        let inside = all(length, &key(Purpose::Shard { number }));
        inside.into_iter().map(|sample| start + sample).collect::<Vec<_>>()
    };
    full.chain([(count, short)]).map(shuffled).filter(|shard| !shard.is_empty()).collect()
}

/// The greatest plausible chi-square: the mean and six standard deviations.
fn plausible(cells: usize) -> f64 {
    let freedom = (cells - 1) as f64;
    freedom + 6.0 * (2.0 * freedom).sqrt()
}

fn assert_uniform(counts: &[u64], what: &str) {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    assert!(chi < plausible(counts.len()), "{what}: chi-square {chi:.1} over {} cells", counts.len());
}

fn bucket(value: u64, samples: u64, buckets: u64) -> usize {
    usize::try_from(u128::from(value) * u128::from(buckets) / u128::from(samples)).unwrap()
}

proptest! {
    // law: L1
    #[test]
    fn every_sample_once(samples in 0_u64..5000, seed: u64, epoch: u64) {
        let mut order = all(samples, &key(seed, epoch));
        order.sort_unstable();
        prop_assert_eq!(order, (0..samples).collect::<Vec<_>>());
    }

    #[test]
    fn runs_agree_with_single_positions(samples in 1..=LIMIT, seed: u64, at in 0.0..1.0_f64, len in 0_usize..400) {
        let permutation = Permutation::new(samples, &key(seed, 3));
        let start = ((samples as f64 * at) as u64).min(samples - 1);
        let len = len.min(usize::try_from(samples - start).unwrap_or(usize::MAX));
        let mut run = vec![0; len];
        permutation.fill(start, &mut run);
        for (position, &sample) in (start..).zip(&run) {
            prop_assert_eq!(permutation.get(position), sample);
            prop_assert_eq!(permutation.find(sample), position);
        }
    }

    // Just above a product of its sides, a permutation walks from most places outside: up to one less than a side.
    #[test]
    fn runs_agree_where_many_positions_walk(side in 1_u64..300, more in 1_u64..4, from in 0.0..1.0_f64, seed: u64) {
        let samples = side * (side - 1) + more;
        let permutation = Permutation::new(samples, &key(seed, 3));
        let start = (samples as f64 * from * from) as u64;
        let mut run = vec![0; usize::try_from(samples - start).unwrap_or_default()];
        permutation.fill(start, &mut run);
        for (position, &sample) in (start..).zip(&run) {
            prop_assert_eq!(permutation.get(position), sample);
        }
    }
}

proptest! {
    // law: L1
    #[test]
    fn shards_are_what_the_oracle_says(samples in 0_u64..600, shard_size in 1_u64..700, seed: u64, epoch: u64) {
        let order = Order::from(Shards::new(samples, shard_size, seed, epoch));
        let expected = sharded(samples, shard_size, seed, epoch);
        prop_assert_eq!(order.len(), samples);
        let mut samples_in_order = vec![0; usize::try_from(samples).unwrap()];
        order.fill(0, &mut samples_in_order);
        prop_assert_eq!(&samples_in_order, &expected);
        for (position, &sample) in (0..).zip(&expected) {
            prop_assert_eq!(order.get(position), sample);
            prop_assert_eq!(order.find(sample), position);
        }
    }

    /// Every sample comes once; a shard is a run both of the storage and of the order; the short one comes last.
    #[test]
    fn shards_are_neighbours_as_stored(samples in 1_u64..600, shard_size in 1_u64..700, seed: u64, epoch: u64) {
        let shards = Shards::new(samples, shard_size, seed, epoch);
        let mut order = vec![0; usize::try_from(samples).unwrap()];
        shards.fill(0, &mut order);
        for (start, shard) in (0..).step_by(shard_size as usize).zip(order.chunks(shard_size as usize)) {
            let mut stored = shard.to_vec();
            stored.sort_unstable();
            let range = stored[0]..stored[0] + shard.len() as u64;
            prop_assert_eq!(stored, range.clone().collect::<Vec<_>>());
            for position in start..start + shard.len() as u64 {
                prop_assert_eq!(shards.range(position), range.clone());
            }
        }
        order.sort_unstable();
        prop_assert_eq!(order, (0..samples).collect::<Vec<_>>());
    }

    #[test]
    fn runs_of_shards_agree_with_single_positions(
        samples in 1..=LIMIT,
        bits in 0_u32..63,
        seed: u64,
        at in 0.0..1.0_f64,
        len in 0_usize..300,
    ) {
        let shards = Shards::new(samples, (1 << bits) + seed % 3, seed, 3);
        let start = ((samples as f64 * at) as u64).min(samples - 1);
        let len = len.min(usize::try_from(samples - start).unwrap_or(usize::MAX));
        let mut run = vec![0; len];
        shards.fill(start, &mut run);
        for (position, &sample) in (start..).zip(&run) {
            prop_assert_eq!(shards.get(position), sample);
            prop_assert_eq!(shards.find(sample), position);
            prop_assert!(shards.range(position).contains(&sample));
        }
    }

    // law: L7
    #[test]
    fn seeds_and_epochs_give_other_shards(shard_size in 20_u64..200, seed: u64, epoch: u64, other in 1_u64..) {
        let order = sharded(400, shard_size, seed, epoch);
        prop_assert_ne!(&order, &sharded(400, shard_size, seed.wrapping_add(other), epoch));
        prop_assert_ne!(&order, &sharded(400, shard_size, seed, epoch.wrapping_add(other)));
    }
}

/// The place of a sample of a small set is uniform, as far as shards allow: every position of a full shard is as likely
/// to hold any sample that can lie in one.
#[test]
fn shards_and_their_samples_are_shuffled() {
    let (samples, shard_size, seeds) = (24, 6, 20_000);
    for position in [0, 5, 6, 23] {
        let mut counts = vec![0; usize::try_from(samples).unwrap()];
        for seed in 0..seeds {
            counts[usize::try_from(Shards::new(samples, shard_size, seed, 4).get(position)).unwrap()] += 1;
        }
        assert_uniform(&counts, &format!("position {position}"));
    }
}

/// The short shard holds another stretch in each epoch, every one as likely.
#[test]
fn the_short_shard_lies_anywhere() {
    let mut counts = vec![0; 5];
    for epoch in 0..20_000 {
        let range = Shards::new(43, 10, 7, epoch).range(42);
        assert_eq!((range.end - range.start, range.start % 10), (3, 0));
        counts[usize::try_from(range.start / 10).unwrap()] += 1;
    }
    assert_uniform(&counts, "places of the short shard");
}

/// The order inside one shard tells nothing of the order inside another.
#[test]
fn shards_are_shuffled_independently() {
    let shards = Shards::new(1 << 20, 1 << 10, 0, 0);
    let mut order = vec![0; 1 << 20];
    shards.fill(0, &mut order);
    let inside: Vec<Vec<u64>> =
        order.chunks(1 << 10).map(|shard| shard.iter().map(|sample| sample % (1 << 10)).collect()).collect();
    for pair in inside.windows(2) {
        let same = pair[0].iter().zip(&pair[1]).filter(|(first, second)| first == second).count();
        assert!(same < 10, "{same} samples of two shards come at the same place");
    }
}

#[test]
fn shards_of_all_samples_or_of_one() {
    assert_eq!(Shards::new(10, u64::MAX, 3, 4).range(9), 0..10);
    assert_eq!(Shards::new(10, 10, 3, 4).range(0), 0..10);
    assert_eq!(sharded(50, 1, 3, 4), all(50, &Key::new(3, 4, Purpose::Shards)));
    assert!(Order::from(Shards::new(0, 5, 0, 0)).is_empty());
    let most = Shards::new(LIMIT, 1, 0, 0);
    assert_eq!(most.find(most.get(LIMIT - 1)), LIMIT - 1);
}

#[test]
fn inverse_around_powers_of_two() {
    for bits in 0..62 {
        for samples in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1] {
            let permutation = Permutation::new(samples, &key(bits, 0));
            for position in [0, 1, samples / 3, samples / 2, samples.saturating_sub(1)] {
                if position < samples {
                    assert_eq!(permutation.find(permutation.get(position)), position, "{samples}");
                    assert!(permutation.get(position) < samples);
                }
            }
        }
    }
}

#[test]
fn nothing_and_one() {
    assert_eq!(all(0, &key(0, 0)), Vec::<u64>::new());
    assert_eq!(all(1, &key(0, 0)), vec![0]);
    assert_eq!(Order::new(3, None).find(2), 2);
}

/// Every arrangement of a handful of samples is equally likely.
#[test]
fn small_sets_take_every_arrangement() {
    const FACTORIAL: [usize; 7] = [1, 1, 2, 6, 24, 120, 720];
    for samples in 2..=6_usize {
        let mut counts = vec![0; FACTORIAL[samples]];
        for seed in 0..100_000 {
            counts[rank_of(&all(samples as u64, &key(seed, 0)))] += 1;
        }
        assert_uniform(&counts, &format!("arrangements of {samples}"));
    }
}

/// The number of a permutation in lexicographic order.
fn rank_of(permutation: &[u64]) -> usize {
    let mut rank = 0;
    for (place, value) in permutation.iter().enumerate() {
        let smaller = permutation[place + 1..].iter().filter(|later| *later < value).count();
        rank = rank * (permutation.len() - place) + smaller;
    }
    rank
}

/// The place of a sample is uniform, for sizes small and large, square and not.
// law: L7
#[test]
fn positions_are_uniform() {
    for samples in
        [7, 12, 13, 64, 100, 1000, 4096, 4097, 65_537, 1 << 20, 100_000_007, 1 << 32, (1 << 40) + 1]
    {
        let buckets = samples.min(20);
        for position in [0, 1, samples / 2, samples - 1] {
            let mut counts = vec![0; usize::try_from(buckets).unwrap()];
            for seed in 0..20_000 {
                let sample = Permutation::new(samples, &key(seed, 1)).get(position);
                counts[bucket(sample, samples, buckets)] += 1;
            }
            if samples % buckets == 0 || samples > 10_000 {
                assert_uniform(&counts, &format!("position {position} of {samples}"));
            }
        }
    }
}

/// Neighbours in the order are unrelated: their joint distribution is uniform, within one order and over keys.
#[test]
fn neighbours_are_independent() {
    for samples in [4096_u64, 4097, 10_000, 65_536, 65_537, 1_000_000] {
        for gap in [1, 2, samples.isqrt(), samples.isqrt() + 1] {
            let mut counts = vec![0; 256];
            for seed in 0..(2_000_000 / samples).max(2) {
                let order = all(samples, &key(seed, 0));
                for (first, second) in order.iter().zip(&order[usize::try_from(gap).unwrap()..]) {
                    counts[bucket(*first, samples, 16) * 16 + bucket(*second, samples, 16)] += 1;
                }
            }
            // Pairs of distinct samples: the diagonal is short of a pair in each of 16 blocks, invisible at this size.
            assert_uniform(&counts, &format!("pairs {gap} apart of {samples}"));
        }
    }
}

/// The distance of neighbours, modulo the size, is uniform: the stored order does not survive.
#[test]
fn differences_are_uniform() {
    for samples in [4097_u64, 65_537, 1_000_000] {
        let mut counts = vec![0; 64];
        for seed in 0..(2_000_000 / samples).max(2) {
            for pair in all(samples, &key(seed, 9)).windows(2) {
                counts[bucket((pair[1] + samples - pair[0]) % samples, samples, 64)] += 1;
            }
        }
        assert_uniform(&counts, &format!("differences of {samples}"));
    }
}

/// The number of samples that stay at their place is that of a random permutation: 1 on average, variance 1.
#[test]
fn fixed_points_are_rare() {
    for samples in [10_u64, 100, 1000, 5000] {
        let keys = 4000;
        let fixed: usize = (0..keys)
            .map(|seed| {
                (0_u64..).zip(all(samples, &key(seed, 2))).filter(|(place, sample)| place == sample).count()
            })
            .sum();
        let mean = fixed as f64 / keys as f64;
        assert!((mean - 1.0).abs() < 5.0 / (keys as f64).sqrt(), "{mean} fixed points of {samples}");
    }
}

/// One bit of the seed or of the epoch changes everything: the two orders agree no more than strangers do.
// law: L7
#[test]
fn one_bit_of_the_key_changes_everything() {
    let samples = 10_000;
    let base = all(samples, &key(0, 0));
    for bit in 0..64 {
        for other in [key(1 << bit, 0), key(0, 1 << bit)] {
            let order = all(samples, &other);
            let same = base.iter().zip(&order).filter(|(a, b)| a == b).count();
            assert!(same < 10, "bit {bit}: {same} of {samples} samples stay");
            let mut counts = vec![0; 64];
            for (a, b) in base.iter().zip(&order) {
                counts[bucket(*a, samples, 8) * 8 + bucket(*b, samples, 8)] += 1;
            }
            assert_uniform(&counts, &format!("bit {bit}"));
        }
    }
}

/// The trap of keys that add up: run A's second epoch must not be run B's first.
// law: L7
#[test]
fn seed_and_epoch_do_not_add_up() {
    assert_ne!(all(100, &key(0, 1)), all(100, &key(1, 0)));
    assert_ne!(all(100, &key(5, 7)), all(100, &key(7, 5)));
}

/// The contract across releases. `BLESS=1 cargo test golden` rewrites the file; only a new `VERSION` may need it.
// law: L2
#[test]
fn golden() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/permutation.json");
    let sizes = [1, 2, 3, 10, 1000, 4096, 4097, 65_536, 1_000_003, 1 << 32, (1 << 40) - 1, LIMIT];
    let vectors: Vec<_> = sizes
        .into_iter()
        .flat_map(|samples| [(0, 0), (42, 7), (u64::MAX, 1 << 33)].map(|(seed, epoch)| (samples, seed, epoch)))
        .map(|(samples, seed, epoch)| {
            let mut out = vec![0; usize::try_from(samples.min(8)).unwrap()];
            let start = (samples - out.len() as u64) / 2;
            Permutation::new(samples, &key(seed, epoch)).fill(start, &mut out);
            serde_json::json!({"samples": samples, "seed": seed, "epoch": epoch, "start": start, "order": out})
        })
        .collect();
    let text = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

/// The same contract for orders that go shard by shard.
// law: L2
#[test]
fn golden_shards() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/shards.json");
    let sizes =
        [(1, 1), (10, 3), (10, 100), (1000, 64), (100_000, 4097), (1 << 40, 1 << 20), (LIMIT, (1 << 33) + 1)];
    let vectors: Vec<_> = sizes
        .into_iter()
        .flat_map(|sizes| [(0, 0), (42, 7), (u64::MAX, 1 << 33)].map(|key| (sizes, key)))
        .flat_map(|(sizes, key)| [0, 1, 2].map(|place| (sizes, key, place)))
        .map(|((samples, shard_size), (seed, epoch), place): ((u64, u64), (u64, u64), u64)| {
            let shards = Shards::new(samples, shard_size, seed, epoch);
            let mut out = vec![0; usize::try_from(samples.min(8)).unwrap()];
            let start = ((samples - out.len() as u64) / 2) * place;
            shards.fill(start, &mut out);
            serde_json::json!({
                "samples": samples, "shard_size": shard_size, "seed": seed, "epoch": epoch, "start": start, "order": out
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
