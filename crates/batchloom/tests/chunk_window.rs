//! The order by a window over chunks: a bijection with its inverse for chunks of any sizes (L1), what its definition
//! says (L2), fresh for every seed and epoch (L7), and never more chunks open than may be.

use std::collections::BTreeSet;

use batchloom::order::{ChunkWindow, Chunks, Key, LIMIT, Order, Permutation, Purpose};
use proptest::prelude::*;

/// The numbers below `count`, shuffled.
fn shuffled(count: u64, seed: u64, epoch: u64, purpose: Purpose) -> Vec<u64> {
    let mut out = vec![0; usize::try_from(count).unwrap()];
    Permutation::new(count, &Key::new(seed, epoch, purpose)).fill(0, &mut out);
    out
}

/// The slots by definition: chunks in random order, each shuffled and cut into slices, which go to the slots from the
/// one in which the chunk is opened on; each slot shuffled.
pub(crate) fn slots(sizes: &[u64], open: u64, seed: u64, epoch: u64) -> Vec<Vec<u64>> {
    let count = sizes.len() as u64;
    let open = open.min(count);
    let mut slots = vec![Vec::new(); usize::try_from(count - open + 1).unwrap()];
    for (place, chunk) in (0_i64..).zip(shuffled(count, seed, epoch, Purpose::Chunks)) {
        let start: u64 = sizes[..chunk as usize].iter().sum();
        let rows = shuffled(sizes[chunk as usize], seed, epoch, Purpose::Chunk { number: chunk });
        for slice in 0..open as usize {
            let cut = |slice: usize| rows.len() * slice / open as usize;
            let slot = (place + slice as i64 - (open as i64 - 1)).clamp(0, slots.len() as i64 - 1);
            let samples = rows[cut(slice)..cut(slice + 1)].iter().map(|row| start + row);
            slots[slot as usize].extend(samples);
        }
    }
    let mix = |(number, slot): (u64, Vec<u64>)| {
        let order = shuffled(slot.len() as u64, seed, epoch, Purpose::ChunkSlot { number });
        order.into_iter().map(|place| slot[place as usize]).collect()
    };
    (0..).zip(slots).map(mix).collect()
}

/// Sizes of chunks of every shape: empty, of one sample, equal, and far apart.
pub(crate) fn chunk_sizes() -> impl Strategy<Value = Vec<u64>> {
    let equal = (1_u64..40, 1_usize..30).prop_map(|(size, count)| vec![size; count]);
    let mixed = prop::collection::vec(prop_oneof![Just(0), Just(1), 2_u64..8, 8_u64..90], 1..30);
    prop_oneof![equal, mixed, Just(vec![0]), Just(vec![1]), Just(vec![0, 7, 0])]
}

fn samples_of(window: &ChunkWindow) -> Vec<u64> {
    let mut samples = vec![0; usize::try_from(window.len()).unwrap()];
    window.fill(0, &mut samples);
    samples
}

proptest! {
    // law: L1
    #[test]
    fn the_order_is_what_the_oracle_says(sizes in chunk_sizes(), open in 1_u64..40, seed: u64, epoch: u64) {
        let window = ChunkWindow::new(Chunks::new(sizes.clone()), open, seed, epoch);
        let slots = slots(&sizes, open, seed, epoch);
        let expected = slots.concat();
        prop_assert_eq!(window.len(), expected.len() as u64);
        prop_assert_eq!(&samples_of(&window), &expected);
        let order = Order::from(window);
        for (position, &sample) in (0..).zip(&expected) {
            prop_assert_eq!(order.get(position), sample);
            prop_assert_eq!(order.find(sample), position);
        }
        let mut sorted = expected;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..order.len()).collect::<Vec<_>>());
    }

    #[test]
    fn slots_follow_each_other_and_hold_no_more_chunks_than_are_open(
        sizes in chunk_sizes(), open in 1_u64..40, seed: u64, start in 0.0..1.0_f64, len in 0.0..1.0_f64,
    ) {
        let chunks = Chunks::new(sizes.clone());
        let window = ChunkWindow::new(chunks.clone(), open, seed, 5);
        let slots = slots(&sizes, open, seed, 5);
        prop_assert_eq!(window.slots(), slots.len() as u64);
        prop_assert_eq!(window.open(), open.min(sizes.len() as u64));
        let mut position = 0;
        for (number, slot) in (0..).zip(&slots) {
            prop_assert_eq!(window.positions(number), position..position + slot.len() as u64);
            for position in window.positions(number) {
                prop_assert_eq!(window.slot_of(position), number);
            }
            position += slot.len() as u64;
            let held: BTreeSet<u64> = slot.iter().map(|&sample| chunks.chunk_of(sample)).collect();
            let told = window.chunks_of(number);
            prop_assert!(told.len() as u64 <= window.open());
            prop_assert_eq!(told.iter().copied().collect::<BTreeSet<u64>>(), held);
        }
        let count = slots.len() as f64;
        let first = (start * count) as usize;
        let end = first + (len * (slots.len() - first) as f64) as usize;
        let held: BTreeSet<u64> =
            slots[first..end].iter().flatten().map(|&sample| chunks.chunk_of(sample)).collect();
        let told = window.chunks_of_slots(first as u64..end as u64);
        prop_assert_eq!(told.len(), held.len());
        prop_assert_eq!(told.into_iter().collect::<BTreeSet<u64>>(), held);
    }

    #[test]
    fn any_run_agrees_with_the_whole(
        sizes in chunk_sizes(), open in 1_u64..40, seed: u64, from in 0.0..1.0_f64, part in 0.0..1.0_f64,
    ) {
        let window = ChunkWindow::new(Chunks::new(sizes), open, seed, 0);
        let all = samples_of(&window);
        let start = (all.len() as f64 * from) as usize;
        let len = ((all.len() - start) as f64 * part * part) as usize;
        let mut run = vec![0; len];
        window.fill(start as u64, &mut run);
        prop_assert_eq!(&run, &all[start..start + len]);
        // Reading on, and going back, whatever was listed before.
        let fresh = ChunkWindow::new(window.chunks().clone(), open, seed, 0);
        let on = |start: usize| (start..all.len()).step_by(3);
        for start in on(0).chain(on(start)).chain(on(start / 2)).chain([0]) {
            let mut run = vec![0; 3.min(all.len() - start)];
            fresh.fill(start as u64, &mut run);
            prop_assert_eq!(&run, &all[start..start + run.len()]);
        }
    }

    /// Chunks of up to 2^40 samples, of which only a few can be looked at.
    #[test]
    fn runs_of_large_chunks_agree_with_single_positions(
        sizes in prop::collection::vec(prop_oneof![Just(0), 1_u64..1 << 40], 1..40),
        open in 1_u64..50, seed: u64, at in 0.0..1.0_f64, len in 0_usize..100,
    ) {
        let chunks = Chunks::new(sizes);
        let window = ChunkWindow::new(chunks.clone(), open, seed, 3);
        prop_assume!(!window.is_empty());
        let start = ((window.len() as f64 * at) as u64).min(window.len() - 1);
        let mut run = vec![0; len.min(usize::try_from(window.len() - start).unwrap_or(len))];
        window.fill(start, &mut run);
        for (position, &sample) in (start..).zip(&run) {
            prop_assert_eq!(window.get(position), sample);
            prop_assert_eq!(window.find(sample), position);
            let open = window.chunks_of(window.slot_of(position));
            prop_assert!(open.contains(&chunks.chunk_of(sample)));
        }
    }

    #[test]
    fn the_stored_order_has_a_slot_for_each_chunk(sizes in chunk_sizes()) {
        let chunks = Chunks::new(sizes.clone());
        let window = ChunkWindow::stored(chunks.clone());
        prop_assert_eq!(window.slots(), sizes.len() as u64);
        prop_assert_eq!(samples_of(&window), (0..window.len()).collect::<Vec<_>>());
        for chunk in 0..chunks.len() {
            prop_assert_eq!(window.positions(chunk), chunks.range(chunk));
            let expected = if chunks.range(chunk).is_empty() { vec![] } else { vec![chunk] };
            prop_assert_eq!(window.chunks_of(chunk), expected);
        }
        for position in 0..window.len() {
            prop_assert_eq!((window.get(position), window.find(position)), (position, position));
        }
    }

    // law: L7
    #[test]
    fn seeds_and_epochs_give_other_orders(open in 1_u64..30, seed: u64, epoch: u64, other in 1_u64..) {
        let order = |seed, epoch| samples_of(&ChunkWindow::new(Chunks::new([20; 20]), open, seed, epoch));
        let expected = order(seed, epoch);
        prop_assert_ne!(&expected, &order(seed.wrapping_add(other), epoch));
        prop_assert_ne!(&expected, &order(seed, epoch.wrapping_add(other)));
    }

    #[test]
    fn chunks_know_their_borders(sizes in chunk_sizes()) {
        let chunks = Chunks::new(sizes.clone());
        prop_assert_eq!(&chunks.sizes().collect::<Vec<_>>(), &sizes);
        let mut start = 0;
        for (chunk, size) in (0..).zip(sizes) {
            prop_assert_eq!(chunks.range(chunk), start..start + size);
            for sample in chunks.range(chunk) {
                prop_assert_eq!(chunks.chunk_of(sample), chunk);
            }
            start += size;
        }
        prop_assert_eq!(chunks.samples(), start);
    }
}

/// No chunks, no samples, sums beyond 64 bits, and the most samples that there may be.
#[test]
fn the_ends_of_the_scale() {
    let nothing = ChunkWindow::new(Chunks::new([]), 4, 0, 0);
    assert_eq!((nothing.len(), nothing.chunks_of(0)), (0, vec![]));
    assert!(ChunkWindow::stored(Chunks::new([])).is_empty());
    assert_eq!(samples_of(&ChunkWindow::new(Chunks::new([0; 9]), 4, 0, 0)), Vec::<u64>::new());
    assert_eq!(Chunks::new([u64::MAX, 7]).samples(), u64::MAX);
    let most = ChunkWindow::new(Chunks::new([LIMIT - 3, 1, 2]), 2, 0, 0);
    for position in [0, 1, LIMIT / 2, LIMIT - 1] {
        assert_eq!(most.find(most.get(position)), position);
    }
}

/// A window that all chunks fit in shuffles as a permutation of all samples does: every place is as likely.
#[test]
fn one_slot_is_a_full_shuffle() {
    let (sizes, seeds) = ([1, 5, 0, 6], 20_000);
    for position in [0, 1, 11] {
        let mut counts = [0_u32; 12];
        for seed in 0..seeds {
            counts[ChunkWindow::new(Chunks::new(sizes), 4, seed, 1).get(position) as usize] += 1;
        }
        let expected = seeds as f64 / 12.0;
        let chi: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        assert!(chi < 11.0 + 6.0 * 22_f64.sqrt(), "position {position}: chi-square {chi:.1}");
    }
}

/// The contract across releases. `BLESS=1 cargo test golden` rewrites the file; only a new `VERSION` may need it.
// law: L2
#[test]
fn golden() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/chunk_window.json");
    let shapes: [(Vec<u64>, u64); 6] = [
        (vec![1], 1),
        (vec![3, 0, 1, 10, 4], 2),
        (vec![3, 0, 1, 10, 4], 100),
        (vec![1000; 64], 16),
        ((0..300).map(|chunk| chunk * 37 % 101).collect(), 7),
        ((0..40).map(|chunk| (chunk << 34) + 1).collect(), 8),
    ];
    let vectors: Vec<_> = shapes
        .into_iter()
        .flat_map(|shape| [(0, 0), (42, 7), (u64::MAX, 1 << 33)].map(|key| (shape.clone(), key)))
        .flat_map(|(shape, key)| [0, 1, 2].map(|place| (shape.clone(), key, place)))
        .map(|((sizes, open), (seed, epoch), place)| {
            let window = ChunkWindow::new(Chunks::new(sizes.clone()), open, seed, epoch);
            let count = window.len().min(8);
            let start = ((window.len() - count) / 2) * place;
            let order: Vec<u64> = (start..start + count).map(|position| window.get(position)).collect();
            serde_json::json!({
                "chunks": sizes, "chunks_open": open, "seed": seed, "epoch": epoch, "start": start, "order": order
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}
