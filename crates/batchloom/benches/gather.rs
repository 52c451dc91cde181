//! The speed of an epoch of shuffled rows through the loader, from rows of four bytes to rows of 64 KB, beside a plain
//! copy of the same bytes.

use batchloom::{Loader, Tensor, TensorDataset};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const BYTES: usize = 64 << 20;

fn epoch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather/epoch");
    group.sample_size(10).throughput(Throughput::Bytes(BYTES as u64));
    for row in [4, 64, 512, 4096, 65_536] {
        let rows = BYTES / row;
        let x =
            Tensor::from_vec(vec![1_u8; BYTES], &[rows, row]).and_then(|x| TensorDataset::new([("x", x)]));
        let loader = x.and_then(|x| Loader::builder(x).batch_size(64).shuffle(true).build());
        let Ok(loader) = loader else { continue };
        group.bench_function(BenchmarkId::from_parameter(row), |bencher| {
            bencher.iter(|| loader.blocks().count());
        });
    }
    group.finish();
}

fn copy(criterion: &mut Criterion) {
    let (source, mut target) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    let mut group = criterion.benchmark_group("gather/copy");
    group.sample_size(10).throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function("one thread", |bencher| bencher.iter(|| target.copy_from_slice(&source)));
    group.finish();
}

criterion_group!(benches, epoch, copy);
criterion_main!(benches);
