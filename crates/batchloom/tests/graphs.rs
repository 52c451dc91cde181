//! Batches that concatenate fields with lengths of their own, and offset the indices among them: graphs, against their
//! definition, sample by sample.

use std::ops::Range;

use batchloom::batching::{FixedSize, LengthBuckets, PackedOversize, Packing, Rule, TokenBudget};
use batchloom::dataset::{Dataset, GroupDataset, Groups, Selection, Sequences, SizeOf};
use batchloom::loader::Batch;
use batchloom::ranks::Uneven;
use batchloom::tensor::Element;
use batchloom::{DType, Kind, Loader, SequenceDataset, Tensor};
use proptest::prelude::*;

use crate::errors::refused;

/// A graph: the number of its nodes, and the ends of its edges.
type Graph = (u32, Vec<(i64, i64)>);

/// The number of features of a node.
const FEATURES: usize = 3;

fn graphs(most: usize) -> impl Strategy<Value = Vec<Graph>> {
    let graph = (0..7_u32).prop_flat_map(|nodes| {
        let end = 0..i64::from(nodes.max(1));
        let edges = prop::collection::vec((end.clone(), end), 0..if nodes == 0 { 1 } else { 9 });
        (Just(nodes), edges)
    });
    prop::collection::vec(graph, 1..most)
}

fn starts(graphs: &[Graph], count: impl Fn(&Graph) -> usize) -> Vec<i64> {
    let ends = graphs.iter().scan(0, |end, graph| {
        *end += count(graph) as i64;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

fn nodes(graph: &Graph) -> usize {
    graph.0 as usize
}

fn edges(graph: &Graph) -> usize {
    graph.1.len()
}

/// The values of the features of the nodes of one graph.
fn features(graphs: &[Graph], graph: usize) -> Range<i32> {
    let start = |graph: usize| (graphs[..graph].iter().map(nodes).sum::<usize>() * FEATURES) as i32;
    start(graph)..start(graph + 1)
}

/// The ends of edges as arrays `[2, edges]`, one after the other.
fn edge_index(graphs: &[Graph]) -> Sequences {
    let ends = graphs.iter().flat_map(|(_, edges)| {
        let sources = edges.iter().map(|edge| edge.0);
        sources.chain(edges.iter().map(|edge| edge.1))
    });
    let ends: Vec<i64> = ends.collect();
    let shapes: Vec<u32> = graphs.iter().flat_map(|graph| [2, edges(graph) as u32]).collect();
    let count = ends.len();
    Sequences::along("edge_index", &Tensor::from_vec(ends, &[count]).unwrap(), &shapes, 2, 1).unwrap()
}

/// Nodes with features, edges with their ends and a length, the root of each graph, and a target for each.
fn builder(graphs: &[Graph]) -> batchloom::dataset::SequenceDatasetBuilder {
    let all: usize = graphs.iter().map(nodes).sum();
    let x = Tensor::from_vec((0..(all * FEATURES) as i32).collect(), &[all, FEATURES]).unwrap();
    let count: usize = graphs.iter().map(edges).sum();
    let spans = Tensor::from_vec((0..count as i32).collect(), &[count]).unwrap();
    let roots = graphs.iter().map(|graph| graph.0.saturating_sub(1) as i64).collect();
    SequenceDataset::new()
        .variable("x", Sequences::new("x", x, &starts(graphs, nodes)).unwrap())
        .variable("edge_index", edge_index(graphs))
        .variable("length", Sequences::new("length", spans, &starts(graphs, edges)).unwrap())
        .fixed("root", Tensor::from_vec(roots, &[graphs.len()]).unwrap())
        .fixed("y", Tensor::from_vec((0..graphs.len() as i64).collect(), &[graphs.len()]).unwrap())
        .shared_lengths("edges", ["edge_index", "length"])
}

fn values<T: Element>(batch: &Batch, field: &str) -> Vec<T> {
    batch.view::<T>(field).unwrap().to_vec()
}

/// Checks a batch against its graphs, one by one. The data of graphs in `banned` is zeros.
fn check(graphs: &[Graph], batch: &Batch, banned: &[u64], fillers: usize) {
    let members: Vec<usize> = match batch.field("index") {
        Some(_) if fillers == 0 => {
            values::<i64>(batch, "index").iter().map(|&graph| graph as usize).collect()
        }
        // Fillers have no number there, and repeat graphs of the batch.
        _ => values::<i64>(batch, "y").iter().map(|&graph| graph as usize).collect(),
    };
    let (mut x, mut sources, mut targets, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut owners, mut ptr, mut offsets, mut roots) = (Vec::new(), vec![0], vec![0], Vec::new());
    for (number, &member) in members.iter().enumerate() {
        let (graph, before) = (&graphs[member], *ptr.last().unwrap());
        let is_banned = banned.contains(&(member as u64));
        let kept = |value: i64| if is_banned { 0 } else { value };
        x.extend(features(graphs, member).map(|value| kept(i64::from(value)) as i32));
        let first = graphs[..member].iter().map(edges).sum::<usize>();
        for (edge, &(source, target)) in graph.1.iter().enumerate() {
            sources.push(kept(source) + before);
            targets.push(kept(target) + before);
            spans.push(kept((first + edge) as i64) as i32);
        }
        roots.push(kept(i64::from(graph.0.saturating_sub(1))) + before);
        owners.extend(vec![number as i64; nodes(graph)]);
        ptr.push(before + nodes(graph) as i64);
        offsets.push(offsets.last().unwrap() + edges(graph) as i64);
    }
    assert_eq!(batch.field("x").unwrap().shape(), [owners.len(), FEATURES]);
    assert_eq!(batch.field("edge_index").unwrap().shape(), [2, sources.len()]);
    assert_eq!(values::<i32>(batch, "x"), x);
    assert_eq!(values::<i64>(batch, "edge_index"), [sources, targets].concat());
    assert_eq!(values::<i32>(batch, "length"), spans);
    assert_eq!(values::<i64>(batch, "root"), roots);
    assert_eq!(values::<i64>(batch, "batch"), owners);
    assert_eq!(values::<i64>(batch, "ptr"), ptr);
    assert_eq!(values::<i64>(batch, "edges_offsets"), offsets);
    let short: Vec<i32> = ptr.iter().map(|&end| end as i32).collect();
    assert_eq!(values::<i32>(batch, "cu_seqlens"), short);
}

fn rule(which: usize) -> Rule {
    match which {
        0 => FixedSize::new(5).unwrap().into(),
        1 => LengthBuckets::new(4).unwrap().into(),
        2 => TokenBudget::new(BUDGET).unwrap().into(),
        _ => Packing::new(BUDGET).unwrap().into(),
    }
}

const BUDGET: u64 = 24;

fn loader(dataset: impl Into<Dataset>) -> batchloom::loader::LoaderBuilder {
    Loader::builder(dataset).offset_by("edge_index", "x").offset_by("root", "x")
}

proptest! {
    // law: L1, L6, L9
    #[test]
    fn batches_concatenate_graphs_and_offset_their_indices(
        graphs in graphs(50), which in 0..4_usize, size_of in 0..4_usize, shuffle in any::<bool>(), seed in any::<u64>(),
        threads in 1..4_usize, bytes in 1..5000_usize,
    ) {
        let size_of = [SizeOf::Max, SizeOf::Sum, "x".into(), "edges".into()][size_of].clone();
        let dataset = builder(&graphs).size_of(size_of.clone()).concatenated().build().unwrap();
        let built = loader(dataset).rule(rule(which)).shuffle(shuffle).seed(seed);
        let loader = built.num_threads(threads).block_bytes(bytes).build().unwrap();
        let mut seen = Vec::new();
        for batch in &loader {
            let batch = batch.unwrap();
            check(&graphs, &batch, &[], 0);
            let (nodes, edges) = (values::<i64>(&batch, "batch").len(), values::<i32>(&batch, "length").len());
            let bounded = match &size_of {
                SizeOf::Max => nodes.max(edges),
                SizeOf::Sum => nodes + edges,
                SizeOf::Field(name) if name == "x" => nodes,
                _ => edges,
            };
            prop_assert!(which < 2 || bounded as u64 <= BUDGET);
            seen.extend(values::<i64>(&batch, "index"));
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..graphs.len() as i64).collect::<Vec<_>>());
    }

    // law: L1, L9
    #[test]
    fn fillers_and_banned_graphs_keep_indices_within_themselves(
        graphs in graphs(40), which in 0..4_usize, banned in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        world_size in 1..4_u32, rank in 0..3_u32,
    ) {
        prop_assume!(graphs.len() >= world_size as usize);
        let banned: Vec<u64> = banned.iter().map(|index| index.index(graphs.len()) as u64).collect();
        let dataset = builder(&graphs).concatenated().build().unwrap();
        let built = loader(dataset).rule(rule(which)).shuffle(true).uneven(Uneven::Mask).ban(banned.clone());
        let loader = built.rank(rank % world_size, world_size).num_threads(1).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in (0..).zip(&loader) {
            let batch = batch.unwrap();
            let members = plan.indices(step, rank % world_size).unwrap();
            let zeroed = |members: &[u64]| members.iter().map(|member| if banned.contains(member) { 0 } else { *member as i64 }).collect::<Vec<_>>();
            prop_assert_eq!(values::<i64>(&batch, "y"), zeroed(&members));
            check_members(&graphs, &batch, &members, &banned);
        }
    }

    // law: L2
    #[test]
    fn selections_and_concatenations_offset_alike(graphs in graphs(40), cut in any::<prop::sample::Index>(), sources in any::<bool>()) {
        prop_assume!(graphs.len() > 1);
        let cut = 1 + cut.index(graphs.len() - 1);
        let part = |graphs: &[Graph]| Dataset::from(builder(graphs).concatenated().build().unwrap());
        let parts = [part(&graphs[..cut]), part(&graphs[cut..])];
        let joined = if sources { Dataset::sources(parts) } else { Dataset::concat(parts) }.unwrap();
        let picked: Vec<u64> = (0..graphs.len() as u64).rev().step_by(2).collect();
        let selection = Selection::list(&picked, graphs.len() as u64).unwrap();
        for (dataset, samples) in [
            (joined.select(&selection).unwrap(), picked.clone()),
            (part(&graphs).select(&selection).unwrap(), picked),
            (joined, (0..graphs.len() as u64).collect()),
        ] {
            let whole = Loader::builder(dataset).offset_by("edge_index", "edges").batch_size(3).build().unwrap();
            for (step, batch) in (0..).zip(&whole) {
                let batch = batch.unwrap();
                let members: Vec<&Graph> =
                    whole.plan(0).indices(step, 0).unwrap().iter().map(|&sample| &graphs[samples[sample as usize] as usize]).collect();
                let mut ends = [Vec::new(), Vec::new()];
                for graph in members {
                    let before = ends[0].len() as i64;
                    ends[0].extend(graph.1.iter().map(|edge| edge.0 + before));
                    ends[1].extend(graph.1.iter().map(|edge| edge.1 + before));
                }
                prop_assert_eq!(values::<i64>(&batch, "edge_index"), ends.concat());
            }
        }
    }
}

/// Checks a batch whose members are known.
fn check_members(graphs: &[Graph], batch: &Batch, members: &[u64], banned: &[u64]) {
    let mut ptr = vec![0];
    let mut ends = [Vec::new(), Vec::new()];
    for &member in members {
        let (graph, before) = (&graphs[member as usize], *ptr.last().unwrap());
        let kept = |end: i64| if banned.contains(&member) { before } else { end + before };
        ends[0].extend(graph.1.iter().map(|edge| kept(edge.0)));
        ends[1].extend(graph.1.iter().map(|edge| kept(edge.1)));
        ptr.push(before + nodes(graph) as i64);
        // An edge stays within its graph, whether that counts or not.
        if graph.0 > 0 {
            let own = before..before + i64::from(graph.0);
            let edges = ends[0].len() - graph.1.len()..;
            assert!(ends.iter().all(|ends| ends[edges.clone()].iter().all(|end| own.contains(end))));
        }
    }
    assert_eq!(values::<i64>(batch, "ptr"), ptr);
    assert_eq!(values::<i64>(batch, "edge_index"), ends.concat());
}

/// Batches of several pieces, so that threads fill parts of each band.
#[test]
fn bands_of_large_batches_are_filled_piece_by_piece() {
    let lengths: Vec<u32> = (0..3000).map(|sample| sample * 37 % 101).collect();
    let (bands, inner) = (4, 5);
    let size = |length: u32| (bands * length * inner) as usize;
    let total: usize = lengths.iter().map(|&length| size(length)).sum();
    let values_of_all: Vec<i32> = (0..total as i32).collect();
    let shapes: Vec<u32> = lengths.iter().flat_map(|&length| [2, 2, length, inner]).collect();
    let frames = Tensor::from_vec(values_of_all, &[total]).unwrap();
    let frames = Sequences::with_shapes("frames", &frames, &shapes, 4).unwrap();
    let dataset = SequenceDataset::new().variable("frames", frames).concatenated().build().unwrap();
    for (threads, dtype) in [(1, DType::I32), (3, DType::I32), (3, DType::F64)] {
        let built = Loader::builder(dataset.clone()).batch_size(1500).shuffle(true).dtype("frames", dtype);
        for batch in &built.num_threads(threads).build().unwrap() {
            let batch = batch.unwrap();
            let members = values::<i64>(&batch, "index");
            let elements: u32 = members.iter().map(|&member| lengths[member as usize]).sum();
            assert_eq!(batch.field("frames").unwrap().shape(), [2, 2, elements as usize, inner as usize]);
            let found: Vec<i64> = match dtype {
                DType::F64 => values::<f64>(&batch, "frames").iter().map(|&value| value as i64).collect(),
                _ => values::<i32>(&batch, "frames").iter().map(|&value| i64::from(value)).collect(),
            };
            let mut expected = Vec::new();
            for band in 0..i64::from(bands) {
                for &member in &members {
                    let before: usize = lengths[..member as usize].iter().map(|&length| size(length)).sum();
                    let part = i64::from(lengths[member as usize] * inner);
                    expected.extend((0..part).map(|place| before as i64 + band * part + place));
                }
            }
            assert_eq!(found, expected);
        }
    }
}

/// Means and deviations of the first dimension are those of its rows, which are bands.
#[test]
fn channels_of_bands_are_scaled_one_by_one() {
    let values_of_all = Tensor::from_vec((0..30_i64).map(|value| value as f32).collect(), &[30]).unwrap();
    let frames = Sequences::along("frames", &values_of_all, &[3, 4, 3, 6], 2, 1).unwrap();
    let dataset = SequenceDataset::new().variable("frames", frames).concatenated().build().unwrap();
    let loader = Loader::builder(dataset).batch_size(2).mean("frames", [1.0, 10.0, 100.0]).build().unwrap();
    let batch = loader.iter().next().unwrap().unwrap();
    let row = |row: i32, mean: f32| {
        let first = (4 * row..4 * row + 4).chain(12 + 6 * row..12 + 6 * row + 6);
        first.map(move |value| value as f32 - mean)
    };
    let expected: Vec<f32> = row(0, 1.0).chain(row(1, 10.0)).chain(row(2, 100.0)).collect();
    assert_eq!(values::<f32>(&batch, "frames"), expected);
}

#[test]
fn samples_that_are_split_take_their_part_of_each_band() {
    let values_of_all = Tensor::from_vec((0..20_i64).collect(), &[20]).unwrap();
    let frames = Sequences::along("frames", &values_of_all, &[2, 7, 2, 3], 2, 1).unwrap();
    let dataset = SequenceDataset::new().variable("frames", frames).build().unwrap();
    let rule = Packing::new(4).unwrap().oversize(PackedOversize::Split);
    let mut parts: Vec<Vec<i64>> = Vec::new();
    for batch in &Loader::builder(dataset).rule(rule).build().unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch.field("frames").unwrap().shape()[0], 2);
        parts.push(values(&batch, "frames"));
    }
    parts.sort();
    assert_eq!(
        parts,
        [vec![0, 1, 2, 3, 7, 8, 9, 10], vec![4, 5, 6, 11, 12, 13], vec![14, 15, 16, 17, 18, 19]]
    );
}

#[test]
fn indices_are_converted_before_they_are_offset() {
    // Two graphs of 100 nodes: the second begins at node 100, and its last node is 199.
    let ends = Tensor::from_vec(vec![99_i8, 99], &[2]).unwrap();
    let x = Tensor::from_vec(vec![0_u8; 200], &[200]).unwrap();
    let dataset = SequenceDataset::new()
        .variable("x", Sequences::new("x", x, &[0, 100, 200]).unwrap())
        .variable("ends", Sequences::new("ends", ends, &[0, 1, 2]).unwrap())
        .own_lengths(["ends"])
        .concatenated()
        .build()
        .unwrap();
    let built = || Loader::builder(dataset.clone()).batch_size(2).offset_by("ends", "x");
    let batch = built().dtype("ends", DType::U8).build().unwrap().iter().next().unwrap().unwrap();
    assert_eq!(values::<u8>(&batch, "ends"), [99, 199]);
    let words = ["field ends", "sample 1", "index 99", "100 elements", "int8", "int64"];
    refused(built().build().unwrap().iter().next().unwrap(), Kind::Data, &words);
    // A type that does not hold the number of nodes, and no edge that would need it.
    let none = Tensor::from_vec(vec![7_i8], &[1]).unwrap();
    let x = Tensor::from_vec(vec![0_u8; 200], &[200]).unwrap();
    let dataset = SequenceDataset::new()
        .variable("x", Sequences::new("x", x, &[0, 200, 200]).unwrap())
        .variable("ends", Sequences::new("ends", none, &[0, 1, 1]).unwrap())
        .own_lengths(["ends"])
        .concatenated()
        .build()
        .unwrap();
    let loader = Loader::builder(dataset).batch_size(2).offset_by("ends", "x").build().unwrap();
    assert_eq!(values::<i8>(&loader.iter().next().unwrap().unwrap(), "ends"), [7]);
}

#[test]
fn rows_of_groups_point_at_rows_of_their_group() {
    let groups = Groups::of(&[5, 5, 8, 8, 8]).unwrap();
    let parent = Tensor::from_vec(vec![0_i64, 0, 0, 0, 1], &[5]).unwrap();
    let dataset = GroupDataset::new(groups).rows("parent", parent).unwrap().build().unwrap();
    let loader = Loader::builder(dataset).batch_size(2).offset_by("parent", "parent").build().unwrap();
    assert_eq!(values::<i64>(&loader.iter().next().unwrap().unwrap(), "parent"), [0, 0, 2, 2, 3]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let graphs: Vec<Graph> = vec![(2, vec![(0, 1)]), (3, vec![])];
    let dataset = || builder(&graphs).concatenated().build().unwrap();
    let by = |field: &str, by: &str| Loader::builder(dataset()).batch_size(2).offset_by(field, by);
    let words = ["offset_by", "edge_index", "nodes", "x, edge_index, length, edges"];
    refused(by("edge_index", "nodes").build(), Kind::Argument, &words);
    refused(by("edge_index", "y").build(), Kind::Argument, &["offset_by", "y"]);
    refused(by("nothing", "x").build(), Kind::Argument, &["field nothing"]);
    refused(by("ptr", "x").build(), Kind::Argument, &["field ptr", "describes"]);
    let floats = by("edge_index", "x").dtype("edge_index", DType::F32);
    refused(floats.build(), Kind::Argument, &["offset_by", "field edge_index", "float32", "integers"]);
    let padded = Loader::builder(builder(&graphs).build().unwrap()).offset_by("edge_index", "x");
    refused(padded.build(), Kind::Argument, &["offset_by", "edge_index", "concatenated", "Packing"]);
    refused(by("edge_index", "x").index_table(true).build(), Kind::Argument, &["index tables"]);
    let rows = batchloom::TensorDataset::new([("x", Tensor::from(vec![1_i64, 2]))]).unwrap();
    refused(Loader::builder(rows).offset_by("x", "x").build(), Kind::Argument, &["offset_by", "field x"]);

    // Nothing tells the dimension of edges where all graphs have as many.
    let ends = Tensor::from_vec(vec![0_i64; 8], &[8]).unwrap();
    let ends = Sequences::with_shapes("ends", &ends, &[2, 2, 2, 2], 2).unwrap();
    let x = Tensor::from_vec(vec![0_u8; 5], &[5]).unwrap();
    let x = Sequences::new("x", x, &[0, 2, 5]).unwrap();
    let guessed = SequenceDataset::new().variable("x", x).variable("ends", ends).own_lengths(["ends"]);
    let guessed = Loader::builder(guessed.concatenated().build().unwrap()).offset_by("ends", "x");
    refused(guessed.build(), Kind::Argument, &["field ends", "one shape", "dim"]);

    let values = Tensor::from_vec(vec![0_i64; 8], &[8]).unwrap();
    let along = |shapes: &[u32], dimension| Sequences::along("ends", &values, shapes, 2, dimension);
    refused(along(&[2, 2, 2, 2], 2), Kind::Data, &["field ends", "2 dimensions", "dimension 2", "0 to 1"]);
    refused(along(&[1, 2, 3, 2], 1), Kind::Data, &["field ends", "dimension 1", "dimension 0"]);

    let two = Sequences::with_shapes("image", &values, &[1, 2, 2, 3], 2).unwrap();
    let two = SequenceDataset::new().variable("image", two).concatenated().build().unwrap();
    refused(
        Loader::builder(two).batch_size(2).build(),
        Kind::Argument,
        &["field image", "differ in 2", "pad"],
    );
    let rows = || Packing::new(8).unwrap().rows(2).unwrap();
    let own = Loader::builder(dataset()).rule(rows());
    refused(own.build(), Kind::Argument, &["rows of one shape", "lengths of its own", "edge_index"]);
    let bands = Sequences::with_shapes("bands", &values, &[2, 1, 2, 3], 2).unwrap();
    let bands = SequenceDataset::new().variable("bands", bands).build().unwrap();
    refused(Loader::builder(bands).rule(rows()).build(), Kind::Argument, &["rows of one shape", "bands"]);
    let parents = SequenceDataset::new().slices("parent", [vec![0_i64, 0]]).unwrap().build().unwrap();
    let parents = Loader::builder(parents).rule(rows()).offset_by("parent", "parent");
    refused(parents.build(), Kind::Argument, &["offset_by", "rows of one shape", "parent"]);

    let named = builder(&graphs).fixed("batch", Tensor::from(vec![1_i64, 2])).concatenated().build().unwrap();
    refused(
        Loader::builder(named).offset_by("edge_index", "x").build(),
        Kind::Argument,
        &["field batch", "offset_by"],
    );
}
