//! Slots that draw random numbers: functions of the seed, the epoch and the sample, in memory and on demand.

use std::collections::BTreeMap;

use batchloom::dataset::{MapDataset, Sample, SampleRng};
use batchloom::loader::{Crop, FunctionSlot, Keep, LoaderBuilder, Slot, SlotMut, SlotPlace};
use batchloom::order::RunEpoch;
use batchloom::{Loader, Tensor, TensorDataset};
use proptest::prelude::*;
use rand::Rng;

/// The part of each sample in the epochs of a loader.
fn parts(loader: &Loader, epochs: usize) -> Vec<BTreeMap<u64, Vec<u32>>> {
    let epoch = |epoch| {
        let plan = loader.plan(epoch as u64);
        let mut parts = BTreeMap::new();
        for (step, batch) in loader.iter().enumerate() {
            let batch = batch.unwrap();
            let x = batch.field("x").unwrap();
            let (samples, values) = (plan.indices(step as u64, 0).unwrap(), x.as_slice::<u32>().unwrap());
            let width = x.shape()[1];
            parts.extend(samples.into_iter().zip(values.chunks(width).map(<[u32]>::to_vec)));
        }
        parts
    };
    (0..epochs).map(epoch).collect()
}

/// The first number that the generator of a sample draws, scaled to the places where a part may begin.
fn expected_start(seed: u64, epoch: u64, sample: u64, spare: usize) -> u32 {
    let place = SlotPlace { number: sample, epoch: RunEpoch { seed, epoch }, sample: None, part: None };
    let drawn = u128::from(place.generator().next_u64());
    ((drawn * (spare as u128 + 1)) >> 64) as u32
}

fn loader(rows: u64, length: u32, on_demand: bool, slot: Slot) -> LoaderBuilder {
    let values = move |sample: u64| (0..length).map(move |element| sample as u32 * 100 + element);
    if on_demand {
        let read = move |sample: u64, _: &mut SampleRng| {
            Ok(Sample::new([("x", Tensor::from_vec(values(sample).collect(), &[length as usize])?)]))
        };
        return Loader::builder(MapDataset::new((rows, read)).build().unwrap()).collate("x", slot);
    }
    let x =
        Tensor::from_vec((0..rows).flat_map(values).collect(), &[rows as usize, length as usize]).unwrap();
    Loader::builder(TensorDataset::new([("x", x)]).unwrap()).collate("x", slot)
}

proptest! {
    /// A part begins where the generator of its sample says, in each epoch, whatever the threads and the data.
    // law: L3
    #[test]
    fn parts_are_functions_of_seed_epoch_and_sample(
        rows in 1_u64..20, length in 1_u32..9, width in 1_usize..9, seed in any::<u64>(), threads in 1_usize..4,
        on_demand in any::<bool>(), batch_size in 1_u64..6,
    ) {
        let slot = Slot::Crop(Crop { shape: vec![width], keep: Keep::Random });
        let builder = loader(rows, length, on_demand, slot).shuffle(true).seed(seed);
        let loader = builder.batch_size(batch_size).num_threads(threads).build().unwrap();
        for (epoch, parts) in parts(&loader, 2).into_iter().enumerate() {
            prop_assert_eq!(parts.len() as u64, rows);
            for (sample, part) in parts {
                let start = expected_start(seed, epoch as u64, sample, (length as usize).saturating_sub(width));
                let mut expected: Vec<u32> = (start..length).map(|element| sample as u32 * 100 + element).collect();
                expected.resize(width, 0);
                prop_assert_eq!(part, expected);
            }
        }
    }
}

#[test]
fn functions_draw_from_the_generator_of_their_sample() {
    let fill = |_: &Tensor, slot: SlotMut<'_>, rng: &mut SampleRng| {
        rng.fill_bytes(slot.bytes);
        Ok(())
    };
    for on_demand in [false, true] {
        let slot = FunctionSlot::with_rng(fill).shape([2]).into();
        let loader = loader(7, 3, on_demand, slot).seed(4).batch_size(3).build().unwrap();
        for (epoch, parts) in parts(&loader, 2).into_iter().enumerate() {
            for (number, part) in parts {
                let epoch = RunEpoch { seed: 4, epoch: epoch as u64 };
                let mut rng = SlotPlace { number, epoch, sample: None, part: None }.generator();
                assert_eq!(part, [rng.next_u32(), rng.next_u32()]);
            }
        }
    }
}

/// Random parts survive releases.
#[test]
fn numbers_of_a_slot_are_pinned() {
    let place = SlotPlace { number: 3, epoch: RunEpoch { seed: 1, epoch: 2 }, sample: None, part: None };
    assert_eq!(place.key_numbers(), [4_427_813_634_695_647_383, 17_875_085_764_230_117_261]);
}
