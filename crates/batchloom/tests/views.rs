//! Batches as views: what a gathered epoch has, in the memory of the data.

use batchloom::batching::FixedSize;
use batchloom::dataset::WindowShape;
use batchloom::loader::{Batch, LoaderBuilder};
use batchloom::order::Shuffle;
use batchloom::ranks::Uneven;
use batchloom::{DType, Loader, SequenceDataset, Tensor, TensorDataset, WindowDataset};
use proptest::prelude::*;

/// The name, the shape and the values of a field.
type Content = (String, Vec<usize>, Vec<f32>);

/// The fields of a batch, the number of its samples, and the longest of them.
fn contents(batch: &Batch) -> (Vec<Content>, usize, usize) {
    let field = |(name, tensor): (&String, &Tensor)| (name.clone(), tensor.shape().to_vec(), values(tensor));
    let fields = batch.names().iter().zip(batch.fields()).map(field).collect();
    (fields, batch.len(), batch.longest())
}

/// The elements in row-major order, found by their indices alone.
fn values(tensor: &Tensor) -> Vec<f32> {
    match tensor.shape() {
        [] => match tensor.as_slice::<f32>() {
            Some(value) => value.to_vec(),
            None => vec![f32::from(tensor.to_bytes().unwrap()[0])],
        },
        [len, ..] => (0..*len).flat_map(|index| values(&tensor.index(index).unwrap())).collect(),
    }
}

fn counted(shape: &[usize]) -> Tensor {
    Tensor::from_vec((0..shape.iter().product::<usize>()).map(|value| value as f32).collect(), shape).unwrap()
}

fn rows(samples: usize) -> TensorDataset {
    let turned = counted(&[3, samples]).permute(&[1, 0]).unwrap();
    TensorDataset::new([("x", counted(&[samples, 2])), ("turned", turned)]).unwrap()
}

fn windows(lengths: &[usize], shape: WindowShape, masked: bool) -> batchloom::Result<WindowDataset> {
    let mut offsets = vec![0];
    offsets.extend(lengths.iter().scan(0, |end, len| {
        *end += len;
        Some(*end)
    }));
    let steps = offsets[lengths.len()];
    let dataset = WindowDataset::new(&offsets, shape)?.input("x", counted(&[steps, 2]))?;
    let dataset = dataset.target("y", counted(&[steps]))?;
    if masked { dataset.mask() } else { Ok(dataset) }
}

fn orders() -> impl Strategy<Value = Shuffle> {
    prop_oneof![Just(Shuffle::Nothing), Just(Shuffle::Samples), Just(Shuffle::Runs)]
}

fn same(loader: impl Fn() -> Loader) -> Result<(), TestCaseError> {
    let (gathered, viewed) = (loader(), loader());
    for _ in 0..2 {
        let mut batches = viewed.views();
        prop_assert_eq!(batches.len() as u64, gathered.len());
        for batch in gathered.iter() {
            prop_assert_eq!(contents(&batches.next().unwrap().unwrap()), contents(&batch.unwrap()));
            prop_assert_eq!(viewed.state(), gathered.state());
        }
        prop_assert!(batches.next().is_none() && batches.next().is_none());
        prop_assert_eq!(viewed.state(), gathered.state());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_those_of_a_gathered_epoch(
        samples in 1_usize..60, batch_size in 1_u64..9, shuffle in orders(), drop_last in any::<bool>(),
        uneven in prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask), Just(Uneven::Short)],
        (rank, world) in (1_u32..4).prop_flat_map(|world| (0..world, Just(world))),
    ) {
        let build = || {
            let builder = Loader::builder(rows(samples)).batch_size(batch_size).shuffle(shuffle).seed(3);
            builder.drop_last(drop_last).uneven(uneven).rank(rank, world).build()
        };
        if build().is_ok() {
            same(|| build().unwrap())?;
        }
    }

    // law: L1
    #[test]
    fn windows_are_those_of_a_gathered_epoch(
        lengths in prop::collection::vec(0_usize..30, 1..4), input in 1_usize..6, horizon in 0_usize..4,
        stride in 1_usize..4, batch_size in 1_u64..9, shuffle in orders(), masked in any::<bool>(),
    ) {
        let build = || {
            let shape = WindowShape::new(input).horizon(horizon).stride(stride);
            let builder = Loader::builder(windows(&lengths, shape, masked)?).batch_size(batch_size);
            builder.shuffle(shuffle).seed(3).build()
        };
        if build().is_ok() {
            same(|| build().unwrap())?;
        }
    }
}

#[test]
fn rows_in_order_lie_in_the_data() {
    let x = counted(&[100, 4]);
    let data = x.bytes().as_ptr_range();
    let loader = Loader::builder(TensorDataset::new([("x", x)]).unwrap()).batch_size(8).build().unwrap();
    for batch in loader.views() {
        assert!(data.contains(&batch.unwrap().view::<f32>("x").unwrap().as_ptr().cast()));
    }
    let taken: Vec<_> = loader.views().take(3).map(|batch| contents(&batch.unwrap())).collect();
    let state = loader.state();
    assert_eq!((taken.len(), state.batches), (3, 3));
    let other = Loader::builder(rows(100)).batch_size(8).build().unwrap();
    other.load(&other.plan(state.epoch).state(3)).unwrap();
    assert_eq!(other.views().len(), 10, "the rest of the epoch");
}

#[test]
fn other_data_is_gathered() {
    let dataset =
        SequenceDataset::new().slices("x", [vec![1.0_f32], vec![2.0, 3.0]]).unwrap().build().unwrap();
    same(|| Loader::builder(dataset.clone()).rule(FixedSize::new(2).unwrap()).build().unwrap()).unwrap();
}

// law: L1
#[test]
fn fields_that_are_changed_are_gathered() {
    let builders: [&dyn Fn(LoaderBuilder) -> LoaderBuilder; 5] = [
        &|builder| builder.scale("x", 0.5),
        &|builder| builder.mean("x", [1.0]),
        &|builder| builder.dtype("x", DType::F64).dtype("x", DType::F32).scale("x", 3.0),
        &|builder| builder.ban(vec![1, 4]),
        &|builder| builder.ban(vec![1, 4]).uneven(Uneven::Mask),
    ];
    for build in builders {
        let loader = || build(Loader::builder(rows(40)).batch_size(7)).build().unwrap();
        same(loader).unwrap();
        let dataset = windows(&[40], WindowShape::new(4).horizon(2), false).unwrap();
        same(|| build(Loader::builder(dataset.clone()).batch_size(7)).build().unwrap()).unwrap();
    }
}
