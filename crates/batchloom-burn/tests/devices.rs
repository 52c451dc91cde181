//! Parts for several devices: as many steps each, every sample, the same parts by slices and by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchloom::{Loader, Tensor, TensorDataset};
use burn::data::dataloader::DataLoader;
use burn::data::dataloader::split::split_dataloader;
use burn::tensor::Device;

use crate::common::{Numbers, engine, epoch, fed};

fn parts(samples: i64, batch_size: u64, devices: usize) -> Vec<Arc<dyn DataLoader<Numbers>>> {
    let loader: Arc<dyn DataLoader<Numbers>> = Arc::new(fed(&engine(samples, batch_size, 2)));
    split_dataloader(loader, &vec![Device::flex(); devices])
}

#[test]
fn every_device_takes_as_many_steps_and_all_take_every_sample() {
    for (samples, devices) in [(1_027, 4), (1_027, 3), (5_001, 8), (640, 2)] {
        let parts = parts(samples, 64, devices);
        for _ in 0..2 {
            let epochs: Vec<_> = parts.iter().map(|part| epoch(&**part)).collect();
            let steps: BTreeSet<_> = epochs.iter().map(Vec::len).collect();
            assert_eq!(steps.len(), 1, "{samples} samples, {devices} devices: {steps:?}");
            let seen: BTreeSet<_> = epochs.into_iter().flatten().flatten().collect();
            assert_eq!(seen, (0..samples).collect());
        }
    }
}

#[test]
fn slices_and_split_make_the_same_parts() {
    let loader = fed(&engine(1_027, 64, 2));
    let named = loader.split(&vec![Device::flex(); 4]).unwrap();
    for (by_slice, by_name) in parts(1_027, 64, 4).iter().zip(&named) {
        assert_eq!(by_slice.num_items(), by_name.num_items());
        assert_eq!(epoch(&**by_slice), epoch(&**by_name));
    }
}

#[test]
fn devices_of_processes_are_ranks_of_all() {
    let x = Tensor::from((0..1_000_i64).collect::<Vec<_>>());
    let dataset = TensorDataset::new([("x", x)]).unwrap();
    let on = |rank, world| {
        let builder = Loader::builder(dataset.clone()).batch_size(16).shuffle(true).seed(7);
        Arc::new(builder.rank(rank, world).build().unwrap())
    };
    for process in 0..2 {
        let devices = fed(&on(process, 2)).split(&vec![Device::flex(); 3]).unwrap();
        for (index, part) in (0..3).zip(devices) {
            assert_eq!(epoch(&*part), epoch(&fed(&on(process * 3 + index, 6))));
        }
    }
}

#[test]
fn parts_begin_where_a_state_was_taken() {
    let whole = engine(1_000, 10, 2);
    whole.set_epoch(3);
    let expected: Vec<_> = epoch(&fed(&whole));
    let begun = engine(1_000, 10, 2);
    begun.set_epoch(3);
    let state = begun.plan(3).state(0);
    let other = engine(1_000, 10, 2);
    other.load(&state).unwrap();
    let parts =
        split_dataloader(Arc::new(fed(&other)) as Arc<dyn DataLoader<Numbers>>, &vec![Device::flex(); 2]);
    let (first, second) = (epoch(&*parts[0]), epoch(&*parts[1]));
    let dealt: Vec<_> = first.into_iter().zip(second).flat_map(|(first, second)| [first, second]).collect();
    assert_eq!(dealt, expected);
}

#[test]
fn a_slice_that_is_no_part_is_an_error_in_place_of_a_batch() {
    let loader = fed(&engine(1_000, 10, 1));
    for (start, end) in [(1, 500), (0, 3), (0, 0)] {
        let part = loader.slice(start, end);
        let mut batches = part.iter();
        let error = batches.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("of 1000 are") && error.contains("BatchLoader::split"), "{error}");
        assert!(batches.next().is_none());
    }
    let part = loader.slice(0, 500);
    assert!(part.slice(0, 250).iter().next().unwrap().is_err(), "a part of a part");
}

#[test]
fn more_devices_than_steps_are_refused() {
    let loader = fed(&engine(100, 64, 1));
    let error = loader.split(&vec![Device::flex(); 40]).err();
    assert!(error.is_none() || error.unwrap().to_string().contains("rank"));
}
