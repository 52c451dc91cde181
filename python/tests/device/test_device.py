"""Batches on a device are the batches of the host, bit for bit, for every kind of dataset and in every way."""

import gc
import itertools
import re

import batchloom as bl
import batchloom.arrays.torch
import numpy
import pytest
import torch
from by_field import padded_with
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import rules, sized
from oracles.devices import WAYS, assert_as_on_the_host, blocks, data, loader_on, seen
from oracles.elements import TORCH_TYPES, arbitrary, tensor
from oracles.groups import cases
from oracles.runs import few
from oracles.tokens import EXTRAS, corpora
from oracles.windows import pretended, shapes
from refusals import refused

# Layouts of an array whose rows are these.
LAYOUTS = {
    "plain": lambda rows: rows,
    "backwards": lambda rows: rows[::-1].copy()[::-1],
    "every other": lambda rows: rows.repeat(2, axis=0)[::2],
    "fortran": numpy.asfortranarray,
    "inside turned": lambda rows: rows[..., ::-1].copy()[..., ::-1] if rows.ndim > 1 else rows,
    "one row again and again": lambda rows: numpy.broadcast_to(rows[:1], rows.shape),
}
every_way = pytest.mark.parametrize("way", WAYS)
INNER = [(), (3,), (2, 3), (0,), (1,), (16,)]


@st.composite
def fields(draw, samples, most=3):
    """Fields of any type and layout, of either framework."""
    found = []
    for number in range(draw(st.integers(1, most))):
        rows = arbitrary(draw(st.sampled_from(TORCH_TYPES)), (samples, *draw(st.sampled_from(INNER))), number)
        name = draw(st.sampled_from(list(LAYOUTS)))
        forwards = "backwards" not in name and name != "inside turned"
        array = LAYOUTS[name](rows)
        found.append(tensor(array.copy("K")) if forwards and draw(st.booleans()) else array)
    return found


common = {
    "shuffle": st.booleans(),
    "seed": st.integers(0, 2**64 - 1),
    "num_threads": st.sampled_from([None, 1, 3]),
    "prefetch": st.integers(0, 3),
    "uneven": st.sampled_from(["pad", "mask", "short"]),
}
options = st.fixed_dictionaries(common)
sizes_of_blocks = st.sampled_from([1, 300, 5000, 1 << 20])


@every_way
@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_every_element_type_arrives(way, dtype):
    array = arbitrary(dtype, (37, 3))
    for given_as in (array, tensor(array.copy())):
        assert_as_on_the_host(bl.TensorDataset(given_as), (way,), batch_size=5)
    pads = {"pad_value": True} if dtype == "bool" else {"pad_value": 1}
    lengths = bl.SequenceDataset(x=(array, numpy.array([0, 0, 5, 7, 20, 37])), y=numpy.arange(5))
    assert_as_on_the_host(lengths, (way,), batch_size=2, shuffle=True, **pads)


@every_way
@few
@given(data=st.data(), samples=st.integers(1, 50), named=st.booleans(), more=options)
def test_rows_of_any_type_and_layout(data, samples, named, way, more):
    arrays = data.draw(fields(samples))
    dataset = bl.TensorDataset(**{f"f{k}": array for k, array in enumerate(arrays)}) if named else None
    dataset = dataset or bl.TensorDataset(*arrays)
    batch_size = data.draw(st.integers(1, 12))
    more |= {"shuffle": data.draw(st.sampled_from([False, True, "runs"])), "drop_last": data.draw(st.booleans())}
    world_size = data.draw(st.integers(1, 4))
    assume(not more["drop_last"] or samples >= batch_size * world_size)
    rank = data.draw(st.integers(0, world_size - 1))
    size = data.draw(sizes_of_blocks)
    assert_as_on_the_host(dataset, (way,), batch_size=batch_size, size=size, world_size=world_size, rank=rank, **more)


@st.composite
def sequences(draw):
    """Sequences of any type, rank and layout, the rule for them, and what they are padded with."""
    sizes = draw(sized(samples=30, size=20))
    rule = draw(rules)
    assume(batching.refused(rule, sizes) is None)
    assume(not (all(batching.too_large(rule, size) for size in sizes) and batching.policy(rule) == "drop"))
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes, dtype=numpy.int64)])
    total, kind = int(offsets[-1]), draw(st.sampled_from(TORCH_TYPES))
    storage = LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](
        arbitrary(kind, (max(total, 1), *draw(st.sampled_from([(), (3,), (2, 2)]))))
    )[:total]
    ids = numpy.arange(total).astype(draw(st.sampled_from(["uint16", "int32", "int64", "uint32"])))
    dataset = bl.SequenceDataset(more=(storage, offsets), ids=(ids, offsets), label=numpy.arange(len(sizes)) * 1.5)
    given = {"batching": rule, "pad_side": draw(st.sampled_from(["right", "left"]))}
    padding = draw(st.sampled_from([0, 1, {"ids": 7}, {"ids": 3, "more": 1}]))
    given |= padded_with({"ids": 7, "more": True} if kind == "bool" and padding != 0 else padding)
    given["labels"] = draw(st.sampled_from([None, "ids"]))
    assume(not (isinstance(rule, bl.FixedSize | bl.LengthBuckets) and len(sizes) < 1))
    return dataset, given


@every_way
@few
@given(case=sequences(), size=sizes_of_blocks, world_size=st.integers(1, 3), more=options)
def test_sequences_of_any_type_under_any_rule(case, way, size, world_size, more):
    dataset, given = case
    assert_as_on_the_host(dataset, (way,), size=size, world_size=world_size, rank=world_size - 1, **given, **more)


images = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12)


@every_way
@few
@given(
    shapes=images,
    fixed=st.sampled_from([(), (0,), (1,), (2,), (0, 2), (1, 2)]),
    side=st.sampled_from(["right", "left"]),
    kind=st.sampled_from(["float32", "uint16", "bfloat16", "complex64"]),
    batch_size=st.integers(1, 5),
    more=options,
)
def test_samples_that_differ_in_several_dimensions(shapes, fixed, side, way, kind, batch_size, more):
    extents = numpy.array(shapes, numpy.int64)
    extents[:, list(fixed)] = 3
    storage = arbitrary(kind, (int(extents.prod(1).sum()),))
    dataset = bl.SequenceDataset(image=(storage, extents), label=numpy.arange(len(shapes)))
    rule = {"batching": bl.LengthBuckets(batch_size, pool=2, multiple_of=2)} if batch_size % 2 else {}
    rule = rule or {"batch_size": batch_size}
    assert_as_on_the_host(dataset, (way,), pad_side=side, pad_value=1, **rule, **more)


@every_way
def test_samples_without_any_element_are_padded_beside_each_other(way):
    """The extents of a batch are those of all its samples: of samples without elements it may have some."""
    dataset = bl.SequenceDataset(x=(torch.zeros(0), numpy.array([[0, 3], [2, 0]])))
    assert_as_on_the_host(dataset, (way,), batch_size=2, pad_value=5)
    (batch,) = loader_on(way, dataset, batch_size=2, pad_value=5)[0]
    assert torch.equal(batch["x"], torch.full((2, 2, 3), 5.0))
    empty = bl.SequenceDataset(x=(torch.zeros(0), numpy.zeros(4, int)), y=torch.arange(3))
    for rule in (bl.FixedSize(2), bl.TokenBudget(8, multiple_of=4), bl.Packing(4), bl.Packing(4, oversize="split")):
        assert_as_on_the_host(empty, (way,), batching=rule)


@every_way
@few
@given(case=cases(oversize=st.sampled_from(["truncate", "subsample"])), size=sizes_of_blocks)
@pytest.mark.parametrize("side", ["right", "left"])
def test_groups_scattered_or_together(case, way, size, side):
    if case.layout == "concatenated":
        side = "right"
    given = case.options() | padded_with({"row": -1, "wide": 2.5} if case.layout == "padded" else 0)
    assert_as_on_the_host(case.dataset(), (way,), size=size, pad_side=side, world_size=2, rank=1, **given)
    unnamed = bl.GroupDataset(numpy.array(case.ids), torch.arange(len(case.ids)), layout=case.layout)
    if case.max_rows is None and not isinstance(case.rule, bl.TokenBudget | bl.CostOptimal):
        assert_as_on_the_host(unnamed, (way,), epochs=1, size=size, **case.options())


@every_way
@few
@given(corpus=corpora(), extras=st.sampled_from([EXTRAS, {}, {"resets": True}]), size=sizes_of_blocks)
def test_pieces_of_streams(corpus, way, extras, size):
    names = dict.fromkeys(EXTRAS, False) | extras
    given = {"batch_size": corpus.batch_size, "shuffle": corpus.shuffle, "seed": corpus.seed}
    assert_as_on_the_host(corpus.dataset(**names), (way,), size=size, **given)


@every_way
@pytest.mark.parametrize("kind", ["uint16", "uint32", "int32", "int64"])
def test_tokens_up_to_the_largest_of_their_type(way, kind):
    """Types for which torch has few operations travel as integers with a sign, and come out without."""
    most = min(numpy.iinfo(kind).max, 2**40)
    tokens = most - numpy.arange(60).astype(kind)
    for separator in (None, 5):
        stream = bl.TokenDataset(tokens, 4, documents=[0, 9, 30, 60], separator=separator)
        assert_as_on_the_host(stream, (way,), batch_size=3, shuffle=True)
    loader, _ = loader_on(way, bl.TokenDataset(tokens, 4), batch_size=3)
    assert torch.equal(torch.cat([x for x, _ in loader]).flatten(), most - torch.arange(56))
    sequences = bl.SequenceDataset(ids=(tokens, numpy.array([0, 9, 30, 60])))
    assert_as_on_the_host(sequences, (way,), batch_size=2, labels="ids")
    (batch,) = loader_on(way, sequences, batch_size=3, labels="ids")[0]
    assert batch["labels"].max() == most - 1


@every_way
@few
@given(corpus=corpora(mode="continuous", shuffle=st.sampled_from([False, "documents"])))
def test_streams_that_go_on_row_by_row(corpus, way):
    rows = 2 * corpus.batch_size
    assume(corpus.pieces(rows))
    given = {"batch_size": corpus.batch_size, "shuffle": corpus.shuffle, "seed": corpus.seed}
    assert_as_on_the_host(corpus.dataset(), (way,), world_size=2, rank=1, **given)


@every_way
@few
@given(
    shape=shapes() | shapes(most=9, short="pad", stride=1),
    order=st.sampled_from([True, True, False, "runs"]),
    kind=st.sampled_from(["float32", "uint16", "bfloat16", "bool", "uint64"]),
    layout=st.sampled_from(list(LAYOUTS)),
    patched=st.booleans(),
    pad=st.sampled_from([None, "end"]),
    more=st.sampled_from([{}, {"mask": True}, {"buffers": "own"}, {"mask": True, "buffers": "own"}]),
    size=sizes_of_blocks,
)
def test_windows_in_any_order(shape, way, order, kind, layout, patched, pad, more, size):
    rows = sum(shape.lengths)
    series = LAYOUTS[layout](arbitrary(kind, (rows, 3)))
    given = {"past": {"p": arbitrary("int16", (rows,))}} if patched else {}
    if patched and shape.horizon:
        given["future"] = {"f": arbitrary("float64", (rows, 2))}
    if patched:
        given |= {"patch_len": min(2, shape.input_len), "patch_stride": 1, "patch_pad": pad}
    more = dict(more)
    dataset = bl.WindowDataset((series, shape.offsets()), **shape.options(), **given, mask=more.pop("mask", False))
    assert_as_on_the_host(dataset, (way,), size=size, batch_size=4, shuffle=order, world_size=2, rank=0, **more)


@pytest.mark.law("L9")
@every_way
def test_all_samples_of_a_batch_are_at_the_same_places_of_every_field(way):
    """L9, without a host to compare with: every value says which sample it is of."""
    samples = 203
    ids = torch.arange(samples)
    wide = ids.view(-1, 1) * 10 + torch.arange(3)
    loader, _ = loader_on(
        way, bl.TensorDataset(ids=ids, wide=wide, half=ids.to(torch.uint16)), batch_size=7, shuffle=True
    )
    found = []
    for batch in loader:
        assert torch.equal(batch["wide"], batch["ids"].view(-1, 1) * 10 + torch.arange(3))
        assert torch.equal(batch["half"].long(), batch["ids"])
        found += batch["ids"].tolist()
    assert sorted(found) == list(range(samples))  # L1


@pytest.mark.law("L8")
@every_way
def test_sequences_are_never_divided(way):
    """L8, without a host to compare with: every element says where it is of."""
    sizes = [(7 * k) % 23 for k in range(60)]
    dataset = batching.dataset(sizes)
    for rule in (bl.FixedSize(7), bl.TokenBudget(90, pool=16), bl.Packing(60, pool=16)):
        loader, _ = loader_on(way, dataset, batching=rule, shuffle=True)
        found = [row for batch in loader for row in batching.held(batch)]
        starts = numpy.concatenate([[0], numpy.cumsum(sizes)])
        assert sorted(found) == [(k, *range(starts[k], starts[k + 1])) for k in range(60)]


# Devices that are others


def test_data_without_values_is_refused():
    for dataset in (
        bl.TensorDataset(torch.zeros(6, device="meta")),
        bl.WindowDataset(torch.zeros(6, device="meta"), 2),
    ):
        with refused(bl.DeviceError, "meta", "no values", "data on the CPU"):
            bl.DataLoader(dataset, 2)


@pytest.fixture
def _hollow_is_whole(monkeypatch):
    monkeypatch.setattr("batchloom.arrays.torch.HOLLOW", frozenset())


@pytest.mark.usefixtures("_hollow_is_whole")
def test_a_device_without_values_has_the_right_shapes():
    """Data that is described alone: types, shapes and names are those of the host."""
    offsets = numpy.array([0, 3, 3, 10, 12])
    ids = numpy.array([3, 1, 3, 3, 1, 2, 2, 1, 3, 5, 5, 5])

    def datasets(place):
        x, y = torch.zeros(12, 3, device=place), torch.zeros(12, dtype=torch.uint16, device=place)
        yield bl.TensorDataset(x, y), {"batch_size": 5}
        yield bl.TensorDataset(x=x), {"batch_size": 5, "drop_last": True}
        yield bl.SequenceDataset(x=(x, offsets), y=(y, offsets), z=y[:4]), {"batch_size": 3, "labels": "y"}
        yield bl.SequenceDataset(y=(y, offsets)), {"batching": bl.Packing(5, oversize="split"), "labels": "y"}
        yield bl.SequenceDataset(y=[y[:3], y[:7]]), {"batch_size": 2}
        yield bl.GroupDataset(ids, x=x, y=y, layout="padded", max_rows=2, oversize="truncate"), {"batch_size": 3}
        yield bl.GroupDataset(ids, x, y, max_rows=2, oversize="subsample"), {"batching": bl.TokenBudget(5)}
        yield bl.TokenDataset(y, 2, documents=offsets, separator=7, **EXTRAS), {"batch_size": 2}
        yield bl.TokenDataset(y.long(), 2), {"batch_size": 2}
        yield bl.WindowDataset(x, 4, 2, mask=True, label_len=1), {"batch_size": 4}
        yield bl.WindowDataset([x, x[:3]], 4, mask=True, patch_len=2), {"batch_size": 4, "buffers": "own"}

    orders = [{}, {"shuffle": True}]
    for (there, chosen), (here, _) in zip(datasets("meta"), datasets("cpu"), strict=True):
        for order in orders:
            found, expected = (bl.DataLoader(data, **chosen, **order, output="torch") for data in (there, here))
            assert found.placement.device == "meta"
            assert found.placement.mode in ("resident", "views")
            assert len(found) == len(expected)
            for batch, same in itertools.chain(*(zip(found, expected, strict=True) for _ in range(2))):
                assert type(batch) is type(same)
                pairs = (
                    zip(batch.values(), same.values(), strict=True)
                    if isinstance(batch, dict)
                    else zip(batch, same, strict=True)
                )
                assert not isinstance(batch, dict) or list(batch) == list(same)
                for array, other in pairs:
                    if not isinstance(array, torch.Tensor):
                        assert array == other
                        continue
                    assert array.device.type == "meta"
                    assert (array.shape, array.dtype) == (other.shape, other.dtype)


def test_data_moves_to_a_device_that_is_given():
    dataset = bl.TensorDataset(numpy.zeros((10, 2)), torch.zeros(10))
    for chosen in ({}, {"resident": True}, {"resident": False}, {"buffers": "static"}, {"output": "torch"}):
        loader = bl.DataLoader(dataset, 4, device="meta", **chosen)
        assert {array.device.type for batch in loader for array in batch} == {"meta"}
        assert [tuple(map(tuple, (x.shape, y.shape))) for x, y in loader] == [((4, 2), (4,))] * 2 + [((2, 2), (2,))]


@pytest.mark.parametrize("resident", [True, False, 10_000])
def test_a_device_that_is_the_cpu_makes_batches_where_they_are(resident):
    """A script has one argument for its device; on the CPU, torch took up to six times as long as the engine."""
    x = torch.arange(1200.0).reshape(300, 4)
    loader = bl.DataLoader(bl.TensorDataset(x), 64, True, device=torch.device("cpu"), resident=resident)
    assert loader.placement.mode == "host"
    plain = list(bl.DataLoader(bl.TensorDataset(x), 64, True))
    assert all(a.equal(b) for (a,), (b,) in zip(loader, plain, strict=True))
    of_numpy = bl.DataLoader(bl.TensorDataset(x.numpy()), 64, True, device="cpu", resident=resident)
    assert all(a.tolist() == b.tolist() for (a,), (b,) in zip(of_numpy, plain, strict=True))


def test_what_was_decided_is_told():
    x = torch.zeros(100, 2)  # 800 bytes
    dataset = bl.TensorDataset(x)
    decided = [
        ({}, None, "host", "no device"),
        ({"device": "cpu"}, None, "host", "no device"),
        ({"device": "cpu", "resident": True}, None, "host", "no device"),
        ({"resident": True}, None, "resident", ""),
        ({"resident": False}, None, "streamed", "resident is False"),
        ({"device": "meta"}, None, "resident", "does not say"),
        ({"device": "meta"}, 1600, "resident", "800 bytes fit into 800"),
        ({"device": "meta"}, 1599, "streamed", "800 bytes do not fit into 799"),
        ({"device": "meta", "resident": True}, 800, "resident", "800 bytes fit into 800"),
        (
            {"device": "meta", "resident": 799},
            None,
            "sharded",
            "800 bytes do not fit into 799, the bytes that resident allows",
        ),
        ({"device": "meta", "resident": 800}, 900, "resident", "fit into 800, the bytes that resident allows"),
        ({"device": "meta", "resident": 900}, 850, "resident", "fit into 850, what is free there"),
        ({"device": "meta", "resident": False}, 10, "streamed", "resident is False"),
        ({"device": "meta", "resident": 900, "shard_size": 20}, 320, "sharded", "into 320, what is free there"),
        ({"device": "meta", "shard_size": 10}, 400, "sharded", "into 200, half of what is free there"),
        ({"device": "meta", "shard_size": 20}, 400, "streamed", "into 200, half of what is free there, nor do two"),
    ]
    for chosen, free, mode, reason in decided:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("batchloom.arrays.torch.free_memory", lambda device, free=free: free)
            placement = bl.DataLoader(dataset, 10, **chosen).placement
        assert (placement.mode, placement.needed) == (mode, 800)
        assert reason in placement.reason
        assert placement.device == chosen.get("device", "cpu")


def test_a_limit_beyond_what_is_free_makes_no_order():
    """Free memory differs from run to run; an order must not."""
    dataset = bl.TensorDataset(torch.zeros(100, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchloom.arrays.torch.free_memory", lambda device: 400)
        with refused(bl.DeviceError, "resident", "799", "400 bytes", "meta"):
            bl.DataLoader(dataset, 10, device="meta", resident=799)
        with refused(bl.DeviceError, "800 bytes", "400", "meta", "resident", "False"):
            bl.DataLoader(dataset, 10, device="meta", resident=True)
        assert bl.DataLoader(dataset, 10, device="meta", resident=400).placement.shard_size == 20


@pytest.mark.parametrize("kind", ["rows", "groups", "windows", "neighbours"])
def test_data_that_is_there_already_is_not_counted_again(kind):
    dataset, options = data(kind)
    needed = bl.DataLoader(dataset, **options).placement.needed
    with pretended() as device, pytest.MonkeyPatch.context() as patch:
        free = [2 * needed]
        move = batchloom.arrays.torch.on

        def moved(array, device):
            free[0] -= array.nbytes
            return move(array, device).clone()

        patch.setattr("batchloom.arrays.torch.free_memory", lambda device: free[0])
        patch.setattr("batchloom.arrays.torch.on", moved)
        first = bl.DataLoader(dataset, **options, device=device)
        assert free == [needed]  # when it is made: nobody else finds it free
        free[0] = 3
        for resident in ("auto", True):
            again = bl.DataLoader(dataset, **options, device=device, resident=resident)
            assert again.placement.mode in ("resident", "views")
            assert seen(again) == seen(bl.DataLoader(dataset, **options, output="torch"))
        assert free == [3]
        del first, again
        gc.collect()
        with refused(bl.DeviceError, f"{needed} bytes", "3"):
            bl.DataLoader(dataset, **options, device=device, resident=True)


def test_too_little_memory_says_how_many_bytes_and_what_to_do():
    sequences = bl.SequenceDataset(x=(torch.zeros(100), numpy.array([0, 40, 100])))
    for dataset, needed in ((bl.TensorDataset(torch.zeros(100)), 400), (sequences, 400)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("batchloom.arrays.torch.free_memory", lambda device: 399)
            with refused(bl.DeviceError, f"{needed} bytes", "399", "meta", "resident", "False"):
                bl.DataLoader(dataset, device="meta", resident=True)
            assert bl.DataLoader(dataset, device="meta").placement.mode == "streamed"
            assert bl.DataLoader(dataset, device="meta", resident=False).placement.mode == "streamed"


def test_fields_on_different_devices_are_refused():
    here, there = torch.zeros(6), torch.zeros(6, device="meta")
    offsets, ids = numpy.array([0, 2, 6]), numpy.arange(6)
    for dataset in (
        bl.TensorDataset(a=here, b=there),
        bl.SequenceDataset(a=(here, offsets), b=(there, offsets)),
        bl.SequenceDataset(a=(here, offsets), b=there[:2]),
        bl.GroupDataset(ids, a=here, b=there),
        bl.WindowDataset(here, 2, past={"b": there}),
    ):
        with refused(bl.DeviceError, "meta", "cpu") as caught:
            bl.DataLoader(dataset, 2)
        assert len(re.findall(r"\bfield \w+", str(caught.value))) == 2


@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        ({"device": "cpu"}, bl.DeviceError, ("data", "meta", "device", "cpu")),
        ({"device": "cpu:0"}, bl.DeviceError, ("data", "meta", "device", "cpu")),
        ({"resident": False}, bl.ArgumentError, ("resident", "False", "data", "meta")),
        ({"output": "numpy"}, bl.ArgumentError, ("output", "'numpy'", "meta")),
        ({"output": "jax"}, bl.ArgumentError, ("output", "'jax'", "meta")),
        ({"output": "cupy"}, bl.ArgumentError, ("output", "'cupy'", "'torch'", "'numpy'", "'jax'")),
        ({"device": "cpu:1"}, bl.DeviceError, ("data", "meta", "device", "cpu")),
        ({"device": "cpu:x"}, bl.DeviceError, ("'cpu:x'", "torch")),
        ({"device": "nonsense"}, bl.DeviceError, ("'nonsense'", "torch")),
    ],
)
def test_data_on_a_device_stays_there(given, kind, values):
    there, offsets = torch.zeros(6, device="meta"), numpy.array([0, 2, 6])
    for dataset in (
        bl.TensorDataset(there),
        bl.SequenceDataset(a=(there, offsets)),
        bl.GroupDataset(numpy.arange(6), there),
        bl.TokenDataset(there.long(), 2),
        bl.WindowDataset(there, 2),
    ):
        with refused(kind, *values):
            bl.DataLoader(dataset, 2, **given)


def test_an_array_is_moved_once_for_all_loaders_and_fields():
    values = torch.arange(60.0).reshape(20, 3)
    with pretended() as device, pytest.MonkeyPatch.context() as patch:
        moved = []
        patch.setattr("batchloom.arrays.torch.on", lambda array, device: moved.append(len(array)) or array.clone())
        dataset = bl.WindowDataset(values, 4, 2, label_len=2)
        loaders = [bl.DataLoader(dataset, 4, device=device, shuffle=shuffle) for shuffle in (True, False, "runs")]
        for _ in range(3):
            for loader in loaders:
                list(loader)
        assert moved == [20]
        rows = bl.TensorDataset(x=values)
        loaders = [bl.DataLoader(rows, 4, device=device) for _ in range(3)]
        held = [[seen(loader) for _ in range(2)] for loader in loaders]
        assert moved == [20, 20]
        assert held[0] == held[1] == held[2]


def test_torchs_default_device_is_no_matter():
    dataset = bl.SequenceDataset(x=(torch.arange(30), numpy.array([0, 3, 10, 30])), y=torch.arange(3))
    windows = bl.WindowDataset(torch.arange(30.0), 4, mask=True)
    with blocks(64), torch.device("meta"):
        for chosen in ({}, {"resident": True}, {"resident": False}, {"buffers": "static"}):
            for loader in (
                bl.DataLoader(dataset, 2, pad_value=3, **chosen),
                bl.DataLoader(windows, 2, **chosen),
                bl.DataLoader(windows, 2, shuffle=True, **chosen),
            ):
                for _ in range(3):
                    arrays = [
                        array for batch in loader for array in (batch.values() if isinstance(batch, dict) else batch)
                    ]
                    assert {array.device.type for array in arrays} == {"cpu"}
