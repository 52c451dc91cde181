//! `Debug` of data tells how much there is of it: the text of anything, however many its elements, is short.

use std::fmt::Debug;

use batchloom::batching::{Keys, LabelCounts, Listed, PadTo, Sizes};
use batchloom::dataset::{
    Dataset, Groups, MapDataset, Sample, SampleRng, Selection, Sequences, SizeOf, SparseRows, TextIds,
    WindowShape,
};
use batchloom::draws::{Mix, Weights};
use batchloom::{
    GroupDataset, Loader, Plan, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset,
};

/// The elements of everything here.
const MANY: usize = 200_000;

/// The most characters of a text.
const MOST: usize = 2000;

fn is_short(what: &str, value: impl Debug) {
    let text = format!("{value:?}");
    assert!(text.len() < MOST, "{what}: {} characters, {}...", text.len(), &text[..300]);
    let lines = format!("{value:#?}");
    assert!(lines.len() < 3 * MOST, "{what} in lines: {} characters", lines.len());
}

fn numbers() -> Tensor {
    Tensor::from_vec((0..MANY as i64).collect(), &[MANY]).unwrap()
}

fn ones() -> Vec<u32> {
    vec![1; MANY]
}

fn loaders_are_short(what: &str, dataset: impl Into<Dataset>) {
    let dataset = dataset.into();
    is_short(what, &dataset);
    let chosen = dataset.select(&Selection::list(&(0..4).collect::<Vec<_>>(), dataset.len() as u64).unwrap());
    is_short(what, chosen.ok());
    let builder = Loader::builder(dataset).batch_size(100_000).shuffle(true).block_bytes(usize::MAX / 4);
    is_short(what, &builder);
    let loader = builder.build().unwrap();
    is_short(what, &loader);
    let mut batches = loader.iter();
    let batch = batches.next().unwrap().unwrap();
    is_short(what, &batch);
    is_short(what, batch.fields());
    is_short(what, &batches);
    is_short(what, loader.plan(0));
    is_short(what, loader.state());
    let mut blocks = loader.blocks();
    let block = blocks.next().unwrap().unwrap();
    is_short(what, &block.runs()[0]);
    is_short(what, &blocks);
    is_short(what, loader.steps());
}

#[test]
fn tensors_say_type_and_shape() {
    let tensor = Tensor::from_vec(vec![0.0_f32; MANY], &[200, 1000]).unwrap();
    assert_eq!(format!("{tensor:?}"), "Tensor(float32, [200, 1000])");
    assert_eq!(format!("{:?}", tensor.index(3).unwrap()), "Tensor(float32, [1000])");
}

#[test]
fn parts_of_data_are_short() {
    let offsets: Vec<i64> = (0..=MANY as i64).collect();
    is_short("sequences", Sequences::new("x", numbers(), &offsets).unwrap());
    let offsets = Tensor::from_vec(offsets, &[MANY + 1]).unwrap();
    is_short("sparse rows", SparseRows::new("x", offsets, numbers(), numbers(), MANY).unwrap());
    is_short("sizes", Sizes::new(ones()));
    is_short("keys", Keys::new((0..MANY as u32).collect()));
    is_short("counts of labels", LabelCounts::new(ones()));
    let lists = Listed::new((0..MANY as u32).collect::<Vec<_>>(), (1..=MANY as u32).collect::<Vec<_>>());
    is_short("lists", lists.unwrap());
    is_short("lengths", PadTo::new(1..=MANY as u32).unwrap());
    is_short("weights", Weights::new(&vec![1.0; MANY]).unwrap());
    let list: Vec<u64> = (0..MANY as u64).rev().collect();
    is_short("selection", Selection::list(&list, MANY as u64).unwrap());
    let ids: Vec<i64> = (0..MANY as i64).map(|row| row % 1000).collect();
    is_short("groups", Groups::of(&ids).unwrap());
    let texts: Vec<String> = (0..MANY).map(|row| row.to_string()).collect();
    is_short("texts", TextIds::new(texts.iter().map(String::as_str)).unwrap());
    is_short("mix", Mix::new(&[500_000, 500_000], &[1.0, 2.0]).unwrap());
}

#[test]
fn datasets_and_loaders_are_short() {
    loaders_are_short("rows", TensorDataset::new([("x", numbers())]).unwrap());
    let offsets: Vec<i64> = (0..=MANY as i64).collect();
    let sequences = Sequences::new("x", numbers(), &offsets).unwrap();
    let builder = SequenceDataset::new().variable("x", sequences).sizes(ones()).size_of(SizeOf::Max);
    is_short("builder of sequences", &builder);
    loaders_are_short("sequences", builder.build().unwrap());
    let ids: Vec<i64> = (0..MANY as i64).map(|row| row % 500_000).collect();
    let builder = GroupDataset::new(Groups::of(&ids).unwrap()).rows("x", numbers()).unwrap();
    is_short("builder of groups", &builder);
    loaders_are_short("groups", builder.build().unwrap());
    let starts: Vec<usize> = (0..=MANY / 2).map(|series| series * 2).collect();
    let windows = WindowDataset::new(&starts, WindowShape::new(1)).unwrap();
    loaders_are_short("windows", windows.input("x", numbers()).unwrap());
    let documents = Tensor::from_vec((0..=MANY as i64).collect(), &[MANY + 1]).unwrap();
    let tokens = TokenDataset::new(numbers(), 1).unwrap().documents(&documents).unwrap();
    loaders_are_short("tokens", tokens);
    let read = |sample: u64, _: &mut SampleRng| {
        let x = Tensor::from_vec(vec![sample], &[])?;
        Ok(Sample::new([("x", x)]))
    };
    let builder = MapDataset::new((MANY as u64, read)).sizes(ones());
    is_short("builder of samples on demand", &builder);
    is_short("samples on demand", builder.build().unwrap());
}

#[test]
fn plans_are_short() {
    let builder = Plan::builder(MANY as u64).sizes(Sizes::new(ones())).ban((0..100_000).collect::<Vec<_>>());
    is_short("builder of plans", &builder);
    let plan = builder.batch_size(64).shuffle(true).build().unwrap();
    is_short("plan before", &plan);
    plan.indices(plan.steps() - 1, 0).unwrap();
    is_short("stats", plan.stats());
    is_short("plan after", &plan);
}
