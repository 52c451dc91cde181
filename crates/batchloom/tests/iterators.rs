//! Iterators know their length, loaders are made for other ranks, and options that do nothing are errors.

use batchloom::batching::{Packing, TokenBudget};
use batchloom::dataset::{Dataset, Selection, WindowShape};
use batchloom::loader::Scalar;
use batchloom::{DType, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset};
use proptest::prelude::*;

use crate::errors::{is, refused};

fn rows(len: usize) -> Dataset {
    TensorDataset::new([("x", (0..len as i64).collect::<Vec<_>>())]).unwrap().into()
}

fn texts(lengths: &[usize]) -> Dataset {
    let texts = lengths.iter().map(|&length| vec![1_i64; length]);
    SequenceDataset::new().slices("ids", texts).unwrap().build().unwrap().into()
}

proptest! {
    #[test]
    fn the_length_is_exact_at_every_batch(
        lengths in prop::collection::vec(1_usize..20, 8..60),
        batch_size in 1_u64..6,
        (rank, world_size) in (1_u32..4).prop_flat_map(|world_size| (0..world_size, Just(world_size))),
        by_tokens in any::<bool>(),
        (taken, epochs) in (0_usize..4, 1_usize..3),
    ) {
        let builder = Loader::builder(texts(&lengths)).shuffle(true).rank(rank, world_size);
        let builder = match by_tokens {
            true => builder.rule(TokenBudget::new(40).unwrap()),
            false => builder.batch_size(batch_size),
        };
        let Ok(loader) = builder.build() else { return Ok(()) };
        for _ in 0..epochs {
            let mut batches = loader.iter();
            prop_assert_eq!(batches.len() as u64, loader.remaining());
            for left in (0..batches.len()).rev() {
                prop_assert!(batches.next().is_some_and(|batch| batch.is_ok()));
                prop_assert_eq!(batches.size_hint(), (left, Some(left)));
            }
            prop_assert!(batches.next().is_none() && batches.next().is_none());
            prop_assert_eq!(batches.len(), 0);
        }
        // The rest of an epoch that was loaded.
        drop(loader.iter().take(taken).collect::<Vec<_>>());
        let resumed = loader.on_rank(rank, world_size).unwrap();
        resumed.load(&loader.state()).unwrap();
        let batches = resumed.iter();
        prop_assert_eq!(batches.len() as u64, resumed.remaining());
        let length = batches.len();
        prop_assert_eq!(batches.count(), length);
    }

    #[test]
    fn a_loader_of_another_rank_is_that_of_its_builder(
        len in 20_usize..90,
        world_size in 1_u32..5,
        seed in any::<u64>(),
        epoch in 0_u64..3,
    ) {
        let builder = Loader::builder(rows(len)).batch_size(3).shuffle(true).seed(seed);
        let alone = builder.clone().build().unwrap();
        alone.set_epoch(epoch);
        for rank in 0..world_size {
            let expected = builder.clone().rank(rank, world_size).build().unwrap();
            expected.set_epoch(epoch);
            let other = alone.on_rank(rank, world_size).unwrap();
            prop_assert_eq!((other.rank(), other.world_size(), other.epoch()), (rank, world_size, epoch));
            for (batch, expected) in other.iter().zip(&expected) {
                let (batch, expected) = (batch.unwrap(), expected.unwrap());
                prop_assert_eq!(batch.view::<i64>("x").unwrap(), expected.view::<i64>("x").unwrap());
            }
        }
        prop_assert_eq!((alone.rank(), alone.epoch()), (0, epoch));
        let words = [format!("rank is {world_size}"), format!("world of {world_size}")];
        refused(alone.on_rank(world_size, world_size), Kind::Argument, &words.each_ref().map(String::as_str));
    }

    #[test]
    fn padding_is_the_number_or_an_error(number in -300_i64..300) {
        let build = |dtype| {
            Loader::builder(texts(&[1, 2])).batch_size(2).dtype("ids", dtype).pad_value("ids", number).build()
        };
        let padding = |dtype| build(dtype).unwrap().iter().next().unwrap().unwrap().fields()[0].clone();
        prop_assert_eq!(padding(DType::I64).as_slice::<i64>().unwrap()[1], number);
        prop_assert_eq!(padding(DType::I16).as_slice::<i16>().unwrap()[1], number as i16);
        prop_assert_eq!(padding(DType::F32).as_slice::<f32>().unwrap()[1], number as f32);
        let fits = u8::try_from(number).is_ok();
        match build(DType::U8) {
            Ok(_) => prop_assert!(fits),
            Err(error) => {
                let reason = format!("padding is {number}, which uint8 does not hold");
                prop_assert!(!fits);
                prop_assert!(is(&error, Kind::Argument, &["field ids", &reason]), "{error}");
            }
        }
    }
}

#[test]
fn batches_end_after_an_error() {
    let dataset = TensorDataset::new([("x", vec![300_i64, 1, 2])]).unwrap();
    let loader = Loader::builder(dataset).batch_size(1).dtype("x", DType::U8).build().unwrap();
    let mut batches = loader.iter();
    assert_eq!(batches.len(), 3);
    assert!(batches.next().unwrap().is_err());
    assert_eq!((batches.len(), batches.next().is_none()), (0, true));
}

#[test]
fn values_of_another_type_do_not_pad() {
    let padded = |value: Scalar| Loader::builder(texts(&[1, 2])).pad_value("ids", value).build().map(|_| ());
    assert!(padded(1.0.into()).is_ok());
    assert!(padded(u64::MAX.into()).is_err());
    assert!(padded(0.5.into()).is_err());
    assert!(padded(f64::NAN.into()).is_err());
    assert!(padded(true.into()).is_err());
    refused(padded((&[0, 0]).into()), Kind::Argument, &["field ids has 2 bytes; expected 8"]);
    let masks =
        SequenceDataset::new().slices("m", [vec![false], vec![false, false]]).unwrap().build().unwrap();
    let loader = Loader::builder(masks.clone()).batch_size(2).pad_value("m", true).build().unwrap();
    let batch = loader.iter().next().unwrap().unwrap();
    assert_eq!(batch.view::<bool>("m").unwrap(), [false, true, false, false]);
    assert!(Loader::builder(masks).pad_value("m", 1).build().is_err());
}

#[test]
fn options_that_do_nothing_are_errors() {
    let tokens = || TokenDataset::new(Tensor::from((0..100_i64).collect::<Vec<_>>()), 9).unwrap();
    let windows = WindowDataset::new(&[0, 9], WindowShape::new(3)).unwrap();
    let windows = windows.input("x", Tensor::from((0..9_i64).collect::<Vec<_>>())).unwrap();
    let some = |dataset: Dataset| {
        let selection = Selection::list(&[0, 1], dataset.len() as u64).unwrap();
        dataset.select(&selection).unwrap()
    };
    let none: [Dataset; 4] =
        [rows(9), windows.into(), some(rows(9)), Dataset::concat([rows(3), rows(4)]).unwrap()];
    for dataset in none {
        let built = Loader::builder(dataset.clone()).labels("x").build();
        refused(built, Kind::Argument, &["labels is set", "this kind of data does not have"]);
        let built = Loader::builder(dataset.clone()).shuffle_documents(true).build();
        refused(built, Kind::Argument, &["shuffle_documents is set", "this kind of data does not have"]);
        let built = Loader::builder(dataset.clone()).pad_value("y", 0).build();
        refused(built, Kind::Argument, &["field y", "no such field"]);
        assert!(Loader::builder(dataset).shuffle_documents(false).build().is_ok());
    }
    assert!(Loader::builder(tokens()).labels("input_ids").build().is_err());
    assert!(Loader::builder(tokens()).shuffle_documents(true).build().is_ok());
    for dataset in
        [texts(&[3, 4, 5]), some(texts(&[3, 4])), Dataset::concat([texts(&[3]), texts(&[4])]).unwrap()]
    {
        let builder = Loader::builder(dataset).labels("ids").rule(Packing::new(8).unwrap());
        assert!(builder.clone().build().is_ok());
        assert!(builder.clone().pad_value("labels", 0).build().is_err());
        assert!(builder.pad_value("id", 0).build().is_err());
    }
}
