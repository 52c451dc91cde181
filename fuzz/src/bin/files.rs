//! Arrays of `.npy` and safetensors files: no file is more than an error, and batches can be made of what is read.
#![no_main]

use batchloom::{Loader, Tensor, TensorDataset};
use libfuzzer_sys::fuzz_target;

/// Takes batches of an array.
fn read_through(tensor: Tensor) {
    if tensor.layout().elements() > 1 << 16 {
        return;
    }
    let Ok(dataset) = TensorDataset::new([("x", tensor)]) else { return };
    let Ok(loader) = Loader::builder(dataset).batch_size(3).shuffle(true).num_threads(1).build() else {
        return;
    };
    loader.iter().take(2).for_each(|batch| drop(batch.expect("a batch")));
    loader.views().take(2).for_each(|batch| drop(batch.expect("a batch")));
}

fuzz_target!(|file: &[u8]| {
    if let Ok(tensor) = Tensor::from_npy(file.to_vec()) {
        read_through(tensor);
    }
    if let Ok(found) = Tensor::from_safetensors(file.to_vec()) {
        found.into_iter().for_each(|(_, tensor)| read_through(tensor));
    }
});
