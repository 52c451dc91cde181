//! Epochs: order, progress, states.

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;

use crate::common::{engine, epoch, fed};

#[test]
fn batches_are_those_of_the_engine() {
    let (ours, loader) = (engine(1_027, 64, 2), fed(&engine(1_027, 64, 2)));
    for _ in 0..3 {
        let expected: Vec<Vec<i64>> =
            ours.iter().map(|batch| batch.unwrap().view::<i64>("x").unwrap().to_vec()).collect();
        assert_eq!(epoch(&loader), expected);
    }
}

#[test]
fn the_order_does_not_depend_on_threads() {
    let few = fed(&engine(5_000, 32, 1));
    let many = fed(&engine(5_000, 32, 4));
    for _ in 0..3 {
        assert_eq!(epoch(&few), epoch(&many));
    }
}

#[test]
fn each_iteration_is_the_next_epoch_on_any_device() {
    let engine = engine(100, 10, 2);
    let loader = fed(&engine);
    let moved = loader.to_device(&Device::flex());
    let (first, second) = (epoch(&loader), epoch(&*moved));
    assert_ne!(first, second);
    assert_eq!(engine.upcoming().epoch(), 2);
    engine.set_epoch(0);
    assert_eq!(epoch(&*moved), first);
}

#[test]
fn progress_is_whole_after_the_last_batch_and_not_before() {
    for (samples, batch_size) in [(100, 10), (101, 10), (7, 3), (3, 10)] {
        let loader = fed(&engine(samples, batch_size, 1));
        let (mut batches, mut before) = (loader.iter(), 0);
        let steps = epoch(&fed(&engine(samples, batch_size, 1))).len();
        for step in 1..=steps {
            batches.next().unwrap().unwrap();
            let progress = batches.progress();
            assert_eq!(progress.is_completed(), step == steps, "step {step} of {steps}");
            assert!(progress.items_processed > before || steps > samples as usize);
            before = progress.items_processed;
        }
        assert_eq!(before, loader.num_items());
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

#[test]
fn a_state_in_mid_epoch_leaves_the_rest() {
    let whole = epoch(&fed(&engine(1_000, 16, 2)));
    let engine_loader = engine(1_000, 16, 2);
    let loader = fed(&engine_loader);
    let taken: Vec<_> = loader.iter().take(20).map(|batch| crate::common::numbers(batch.unwrap())).collect();
    let state = engine_loader.state();

    let other = engine(1_000, 16, 3);
    other.load(&state).unwrap();
    let rest = epoch(&fed(&other));
    assert_eq!([taken, rest].concat(), whole);
}

#[test]
fn an_error_of_the_function_ends_the_epoch() {
    let loader = batchloom_burn::BatchLoader::<()>::new(engine(10, 2, 1), Device::flex(), |_, _| {
        Err(batchloom_burn::Error::Type { found: batchloom::DType::C64 })
    });
    let mut batches = loader.iter();
    let error = batches.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("complex64"), "{error}");
    assert!(batches.next().is_none());
}
