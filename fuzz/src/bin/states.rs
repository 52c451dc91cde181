//! States from JSON: a plan refuses those that are not its own, and goes on from the others.
#![no_main]

use std::sync::LazyLock;

use batchloom::plan::State;
use batchloom::{Loader, Tensor, TensorDataset};
use libfuzzer_sys::fuzz_target;

static DATA: LazyLock<TensorDataset> = LazyLock::new(|| {
    TensorDataset::new([("x", Tensor::from((0..100_i64).collect::<Vec<_>>()))]).expect("rows")
});

fuzz_target!(|text: &[u8]| {
    let loader =
        Loader::builder(DATA.clone()).batch_size(7).shuffle(true).num_threads(1).build().expect("a loader");
    let Ok(mut state) = serde_json::from_slice::<State>(text) else { return };
    // Half of them are told to be of this loader, so that the rest is looked at.
    if text.len() % 2 == 0 {
        state = State { fingerprint: loader.state().fingerprint, ..state };
    }
    if loader.load(&state).is_ok() {
        let left = loader.remaining();
        let steps = loader.views();
        assert_eq!(steps.len() as u64, left);
        let rows: usize = steps.take(3).map(|batch| batch.expect("a batch").len()).sum();
        assert!(rows <= 21);
    }
});
