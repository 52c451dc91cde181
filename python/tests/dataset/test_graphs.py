"""Graphs: fields with lengths of their own concatenated, indices offset; against a definition, and against PyG."""

import importlib.util
import pickle
from itertools import islice

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import Graph, batch_of, drawn_graphs, fields_of
from refusals import refused

EDGES = {"edges": ("edge_index", "edge_attr")}
FIELDS = {"edge_index": bl.Field(offset_by="x")}
BUDGET = 24
BUDGETS = {"x": 12, "edges": 20}
RULES = (bl.FixedSize(4), bl.LengthBuckets(3), bl.TokenBudget(BUDGET), bl.Packing(BUDGET), bl.Packing(BUDGETS))
# Batches are formed in memory, and on a device as well.
WAYS = ({}, {"device": "cpu", "resident": False}, {"output": "numpy"})


def dataset_of(graphs, **options):
    """The graphs as a dataset."""
    options = {"own_lengths": EDGES, "layout": "concatenated", "dim": {"edge_index": 1}, **options}
    return bl.SequenceDataset(**fields_of(graphs), **options)


def assert_equal(batch, graphs):
    """Compare a batch with its definition, type by type and element by element."""
    for name, expected in batch_of(graphs).items():
        found = torch.as_tensor(batch[name])
        assert found.dtype == expected.dtype, name
        assert found.is_contiguous(), name
        assert torch.equal(found, expected), name


@pytest.mark.law("L1", "L6", "L9")
@given(
    drawn_graphs(40), st.sampled_from(RULES), st.sampled_from(["max", "sum", "x", "edges", "edge_attr"]), st.booleans(),
    st.sampled_from(WAYS),
)  # fmt: skip
def test_batches_of_graphs_are_those_of_the_definition(graphs, rule, of, shuffle, way):
    dataset = dataset_of(graphs, of=of)
    loader = bl.DataLoader(dataset, batching=rule, shuffle=shuffle, fields=FIELDS, **way)
    seen = []
    for batch in loader:
        members = [graphs[sample] for sample in batch["index"].tolist()]
        assert_equal(batch, members)
        nodes, edges = (sum(len(array) for array in arrays) for arrays in (
            [graph.x for graph in members], [graph.edge_attr for graph in members]
        ))  # fmt: skip
        bounded = {"max": max(nodes, edges), "sum": nodes + edges, "x": nodes}.get(of, edges)
        if rule == bl.Packing(BUDGETS):
            assert nodes <= BUDGETS["x"]
            assert edges <= BUDGETS["edges"]
        elif hasattr(rule, "max_tokens"):
            assert bounded <= BUDGET
        seen += batch["index"].tolist()
    assert sorted(seen) == list(range(len(graphs)))


@pytest.mark.law("L4", "L5")
@given(drawn_graphs(30), st.sampled_from(RULES), st.integers(1, 3), st.integers(1, 3), st.data())
def test_graphs_resume_in_other_worlds(graphs, rule, first, second, data):
    if len(graphs) < max(first, second):
        return
    options = {"batching": rule, "shuffle": True, "seed": 3, "fields": FIELDS, "uneven": "mask"}

    def ranks(world, state=None):
        loaders = [bl.DataLoader(dataset_of(graphs), rank=rank, world_size=world, **options) for rank in range(world)]
        for loader in loaders if state else ():
            loader.load_state_dict(state)
        return loaders

    before = ranks(first)
    steps = data.draw(st.integers(0, len(before[0]) - 1))
    batches = [batch for loader in before for batch in islice(loader, steps)]
    after = ranks(second, before[0].state_dict()) if steps else ranks(second)
    batches += [batch for loader in after for batch in loader]
    seen = []
    for batch in batches:
        # A place that only fills up repeats a graph of its batch, of which its target tells.
        assert_equal(batch, [find(graphs, target) for target in batch["y"]])
        seen += [sample for sample, counts in zip(batch["index"].tolist(), batch["weight"], strict=True) if counts]
    assert sorted(seen) == list(range(len(graphs)))


def find(graphs, target):
    """The graph with a target."""
    return next(graph for graph in graphs if torch.equal(graph.y[0], target))


def zeroed(graph):
    """A graph without data."""
    return Graph(*(0 * array for array in vars(graph).values()))


@pytest.mark.law("L1")
@given(drawn_graphs(30), st.sampled_from(RULES), st.sets(st.integers(0, 29), max_size=5))
def test_edges_of_banned_graphs_stay_in_their_graph(graphs, rule, banned):
    banned = sorted(sample for sample in banned if sample < len(graphs))
    loader = bl.DataLoader(dataset_of(graphs), batching=rule, shuffle=True, fields=FIELDS, ban=banned)
    plan = loader.plan(0)
    for number, batch in enumerate(loader):
        members = [zeroed(graphs[sample]) if sample in banned else graphs[sample] for sample in plan[number].tolist()]
        assert_equal(batch, members)


@pytest.mark.skipif(not importlib.util.find_spec("torch_geometric"), reason="torch_geometric is not installed")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_batches_are_bit_equal_to_those_of_pyg():
    from torch_geometric.data import Batch, Data
    from torch_geometric.loader import DataLoader

    generator = numpy.random.default_rng(0)
    graphs = [
        Graph.draw(int(nodes), int(nodes * 2.1), seed) for seed, nodes in enumerate(generator.integers(0, 30, 3000))
    ]
    data = [Data(**vars(graph)) for graph in graphs]
    # In order, batches are those of its loader; in any order, those that it makes of the same graphs.
    loader = bl.DataLoader(dataset_of(graphs), 32, fields=FIELDS)
    for batch, expected in zip(loader, DataLoader(data, 32), strict=True):
        assert_same(batch, expected)
    for rule in (bl.FixedSize(33), bl.Packing(200)):
        for batch in bl.DataLoader(dataset_of(graphs), batching=rule, shuffle=True, fields=FIELDS):
            assert_same(batch, Batch.from_data_list([data[sample] for sample in batch["index"].tolist()]))


def assert_same(batch, expected):
    """Compare a batch with one of PyG, in each of its parts."""
    for name in expected.keys():  # noqa: SIM118
        assert batch[name].dtype == expected[name].dtype, name
        assert batch[name].stride() == expected[name].stride(), name
        assert torch.equal(batch[name], expected[name]), name


def test_parts_of_datasets_offset_alike():
    graphs = [Graph.draw(1 + seed % 5, seed % 7, seed) for seed in range(40)]
    dataset = dataset_of(graphs)
    chosen = dataset.select(list(range(39, 0, -3)))
    for part, members in (
        (chosen, graphs[39:0:-3]),
        (dataset_of(graphs[:15]).concat(dataset_of(graphs[15:])), graphs),
        (pickle.loads(pickle.dumps(dataset)), graphs),
        (pickle.loads(pickle.dumps(chosen)), graphs[39:0:-3]),
        (dataset.split(seed=None, train=0.5, test=0.5)[0], graphs[:20]),
    ):
        found = list(bl.DataLoader(part, 7, fields=FIELDS))
        assert sum(len(batch["index"]) for batch in found) == len(members)
        for batch in found:
            assert_equal(batch, [members[sample] for sample in batch["index"].tolist()])
    mixture = bl.Mixture({"a": dataset_of(graphs[:15]), "b": dataset_of(graphs[15:])}, weights={"a": 0.5, "b": 0.5})
    for batch in bl.DataLoader(mixture, 8, fields=FIELDS, seed=1):
        assert_equal(batch, [graphs[sample] for sample in batch["index"].tolist()])


def test_graphs_of_one_shape_are_told_their_dimension_and_keep_it():
    graphs = [Graph.draw(4, 5, seed) for seed in range(12)]
    dataset = dataset_of(graphs, dim={"edge_index": -1})
    for each in (dataset, pickle.loads(pickle.dumps(dataset)), pickle.loads(pickle.dumps(dataset.select([3, 4, 5])))):
        batch = next(iter(bl.DataLoader(each, 2, fields=FIELDS)))
        assert batch["edge_index"].shape == (2, 10)
    with refused(bl.ArgumentError, "edge_index", "dim"):
        dataset_of(graphs, dim=None)
    alone = bl.SequenceDataset(**fields_of(graphs), own_lengths=("edge_index", "edge_attr"), layout="concatenated")
    with refused(bl.ArgumentError, "edge_index", "dim"):
        bl.DataLoader(alone, 2, fields=FIELDS)
    # Where graphs differ, nothing has to be told, and a part of them is concatenated as all are.
    graphs += [Graph.draw(4, 6, 99)]
    dataset = dataset_of(graphs, dim=None)
    for each in (dataset, pickle.loads(pickle.dumps(dataset.select(range(12))))):
        assert next(iter(bl.DataLoader(each, 2, fields=FIELDS)))["edge_index"].shape == (2, 10)


def test_fields_with_lengths_of_their_own_are_concatenated_in_packs():
    source = [numpy.arange(length) for length in (3, 0, 2, 5)]
    target = [numpy.arange(length, dtype=numpy.float32) for length in (1, 4, 0, 2)]
    dataset = bl.SequenceDataset(source=source, target=target, own_lengths=("target",), of="sum")
    assert numpy.asarray(dataset.sizes).tolist() == [4, 4, 2, 7]
    seen = []
    for batch in bl.DataLoader(dataset, batching=bl.Packing(8), labels="source", output="numpy"):
        samples = batch["index"].tolist()
        numpy.testing.assert_array_equal(batch["source"], numpy.concatenate([source[sample] for sample in samples]))
        numpy.testing.assert_array_equal(batch["target"], numpy.concatenate([target[sample] for sample in samples]))
        assert batch["target_offsets"].dtype == numpy.int64
        assert batch["target_offsets"].tolist() == [0, *numpy.cumsum([len(target[sample]) for sample in samples])]
        assert batch["labels"].shape == batch["source"].shape
        assert batch["target_offsets"][-1] + batch["cu_seqlens"][-1] <= 8
        assert not {"batch", "ptr"} & set(batch)
        seen += samples
    assert sorted(seen) == [0, 1, 2, 3]
    # Labels of a field with lengths of its own have these.
    dataset = bl.SequenceDataset(a=[[1.0], [2.0, 3.0]], b=[[5, 6, 7], [8]], own_lengths=("b",))
    batch = next(iter(bl.DataLoader(dataset, batching=bl.Packing(8), labels="b", loss="token-mean", output="numpy")))
    assert batch["labels"].tolist() == {0: [6, 7, -100, -100], 1: [-100, 6, 7, -100]}[int(batch["index"][0])]
    assert batch["loss_weight"].tolist() == [0.5 if label >= 0 else 0.0 for label in batch["labels"].tolist()]


def test_samples_that_vary_in_another_dimension_are_concatenated_along_it():
    frames = [numpy.random.default_rng(seed).random((3, seed % 5, 2)) for seed in range(20)]
    dataset = bl.SequenceDataset(frames=frames)
    for way in ({}, {"resident": 10**9}):
        for batch in bl.DataLoader(dataset, batching=bl.Packing(9), output="torch", **way):
            expected = numpy.concatenate([frames[sample] for sample in batch["index"].tolist()], axis=1)
            numpy.testing.assert_array_equal(batch["frames"].numpy(), expected)


def test_extras_of_graphs_are_chosen():
    dataset = dataset_of([Graph.draw(3, 4, seed) for seed in range(6)])
    loader = bl.DataLoader(dataset, 2, fields=FIELDS, extras=("batch",))
    assert list(next(iter(loader))) == ["x", "edge_index", "edge_attr", "y", "batch"]
    with refused(bl.ArgumentError, "ptr"):
        bl.DataLoader(dataset, 2, extras=("ptr",))


def test_indices_take_the_type_that_is_asked_for_before_they_are_offset():
    nodes = [numpy.zeros(100, numpy.uint8) for _ in range(3)]
    ends = [numpy.array([[99], [0]], numpy.int8) for _ in range(3)]
    options = {"own_lengths": ("ends",), "dim": {"ends": 1}, "layout": "concatenated"}
    dataset = bl.SequenceDataset(x=nodes, ends=ends, **options)
    for way in ({"output": "torch"}, {"device": "cpu", "resident": False}):
        loader = bl.DataLoader(dataset, 3, fields={"ends": bl.Field(offset_by="x", dtype="int64")}, **way)
        assert next(iter(loader))["ends"].tolist() == [[99, 199, 299], [0, 100, 200]]
    with refused(bl.DataError, "ends", "sample 1", "99", "100", "int8"):
        next(iter(bl.DataLoader(dataset, 3, fields={"ends": bl.Field(offset_by="x")}, output="numpy")))


def test_what_makes_no_sense_is_refused():
    graphs = [Graph.draw(3, 4 + seed, seed) for seed in range(3)]
    dataset = dataset_of(graphs)
    for fields, values in (
        ({"edge_index": bl.Field(offset_by="nodes")}, ("edge_index", "nodes", "x", "edges")),
        ({"edge_attr": bl.Field(offset_by="x")}, ("edge_attr", "float32")),
        ({"edge_index": bl.Field(offset_by="x", dtype="float64")}, ("edge_index", "float64")),
        ({"edges": bl.Field(offset_by="x")}, ("edges",)),
    ):
        with refused(bl.ArgumentError, *values):
            bl.DataLoader(dataset, 2, fields=fields)
    with refused(bl.ArgumentError, "offset_by", "3"):
        bl.Field(offset_by=3)
    with refused(bl.ArgumentError, "edge_index", "concatenated"):
        bl.DataLoader(dataset_of(graphs, layout="padded"), 2, fields=FIELDS)
    with refused(bl.ArgumentError, "edges", "split"):
        bl.DataLoader(dataset, batching=bl.Packing(4, oversize="split"), fields=FIELDS)
    with refused(bl.ArgumentError, "edge_index", "resident=False"):
        bl.DataLoader(dataset, 2, fields=FIELDS, resident=True)
    parents = bl.SequenceDataset(parent=[[0, 0], [0, 1, 1]], layout="concatenated")
    assert bl.DataLoader(parents, 2, resident=True, output="torch").placement.mode == "resident"
    with refused(bl.ArgumentError, "parent", "resident=False"):
        bl.DataLoader(parents, 2, fields={"parent": bl.Field(offset_by="parent")}, resident=True, output="torch")
    with refused(bl.ArgumentError, "batch", "offset_by"):
        named = bl.SequenceDataset(**fields_of(graphs), batch=[1, 2, 3], own_lengths=EDGES, layout="concatenated")
        bl.DataLoader(named, 2, fields=FIELDS)
    for each in (dataset, bl.SequenceDataset(**fields_of(graphs), own_lengths=EDGES)):
        with refused(bl.ArgumentError, "rows", "edge_index"):
            bl.DataLoader(each, batching=bl.Packing(20, rows=2))
    with refused(bl.ArgumentError, "layout", "flat"):
        dataset_of(graphs, layout="flat")
    for dim in ({"edge_index": 2}, {"edge_index": -3}, {"other": 1}, {"y": 0}, {"edge_index": 1.5}, [1]):
        with refused(bl.ArgumentError, "dim"):
            dataset_of(graphs, dim=dim)
    with refused(bl.DataError, "edge_index", "dimension 1", "dimension 0"):
        dataset_of(graphs, dim={"edge_index": 0})
    for own in ({"edges": ("edge_index", "other")}, {"edges": ()}, {"x": ("edge_index", "edge_attr")}, {"edges": 3}):
        with refused(bl.ArgumentError, "own_lengths"):
            dataset_of(graphs, own_lengths=own)
    with refused(bl.DataError, "sample 0", "edge_attr", "edge_index"):
        graphs[0] = Graph(graphs[0].x, graphs[0].edge_index, graphs[0].edge_attr[1:], graphs[0].y)
        dataset_of(graphs)
    items = bl.MapDataset([{"x": numpy.zeros(2), "i": numpy.zeros(2, numpy.int64)}], sizes=[2])
    with refused(bl.ArgumentError, "i", "demand"):
        bl.DataLoader(items, batching=bl.Packing(4), fields={"i": bl.Field(offset_by="x")})
