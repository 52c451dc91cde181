//! The speed of an order: a block's worth of samples at a time, for sizes around and between powers of two.

use batchloom::order::{ChunkWindow, Chunks, Key, Permutation, Purpose, Shards};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const BLOCK: usize = 1 << 16;

fn fill(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order/fill");
    for samples in [1_000, 65_537, 1 << 20, (1 << 20) + 1, 100_000_000, 1_000_000_000, 1 << 40] {
        let permutation = Permutation::new(samples, &Key::new(0, 0, Purpose::Samples));
        let mut out = vec![0; BLOCK.min(usize::try_from(samples).unwrap_or(BLOCK))];
        group.throughput(Throughput::Elements(out.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(samples), |bencher| {
            bencher.iter(|| permutation.fill(0, &mut out));
        });
    }
    group.finish();
}

/// The same in shards, from those of one batch, each with a key of its own, to those that hold many blocks.
fn shards(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order/shards");
    for shard_size in [64, 4096, 1 << 20] {
        let shards = Shards::new(1_000_000_000, shard_size, 0, 0);
        let mut out = vec![0; BLOCK];
        group.throughput(Throughput::Elements(BLOCK as u64));
        group.bench_function(BenchmarkId::from_parameter(shard_size), |bencher| {
            bencher.iter(|| shards.fill(0, &mut out));
        });
    }
    group.finish();
}

/// The same by a window over 100 000 chunks of 8192 samples: in blocks, in batches, one by one, and made.
fn chunk_window(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order/chunk_window");
    let chunks = Chunks::new((0..100_000).map(|chunk| 8000 + chunk * 7 % 401));
    for open in [16, 64] {
        let window = ChunkWindow::new(chunks.clone(), open, 0, 0);
        for len in [BLOCK, 2048, 64] {
            let mut out = vec![0; len];
            let mut start = 0;
            group.throughput(Throughput::Elements(len as u64));
            group.bench_function(format!("fill/{open}/{len}"), |bencher| {
                bencher.iter(|| {
                    window.fill(start, &mut out);
                    start = (start + len as u64) % (window.len() - len as u64);
                });
            });
        }
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("get_and_find/{open}"), |bencher| {
            let mut position = 0;
            bencher.iter(|| {
                position = (position + 1_000_003) % window.len();
                assert_eq!(window.find(window.get(position)), position);
            });
        });
        group.bench_function(format!("new/{open}"), |bencher| {
            bencher.iter(|| ChunkWindow::new(chunks.clone(), open, 0, 0));
        });
    }
    group.finish();
}

fn access(criterion: &mut Criterion) {
    let permutation = Permutation::new(1_000_000_000, &Key::new(0, 0, Purpose::Samples));
    criterion.bench_function("order/get", |bencher| {
        let mut position = 0;
        bencher.iter(|| {
            position = permutation.get(position);
            position
        });
    });
    criterion.bench_function("order/new", |bencher| {
        bencher.iter(|| Permutation::new(1_000_000_000, &Key::new(0, 0, Purpose::Samples)));
    });
}

criterion_group!(benches, fill, shards, chunk_window, access);
criterion_main!(benches);
