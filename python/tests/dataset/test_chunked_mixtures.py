"""Mixtures of data that is read chunk by chunk: the plan of each source over its own chunks, under every rule."""

import json
import pickle
from collections import Counter

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import flat
from oracles.runs import few
from refusals import refused

RULES = [bl.FixedSize(8), bl.LengthBuckets(8), bl.TokenBudget(60), bl.Packing(60), bl.Packing(30, rows=4)]
WHEN = ["stop", "repeat", "renormalise"]
LENGTHS = {
    "web": [1 + 5 * k % 7 for k in range(90)],
    "books": [1 + (3 + 5 * k) % 29 for k in range(20)],
    "code": [1 + (1 + 5 * k) % 13 for k in range(40)],
}
WEIGHTS = {"web": 0.5, "books": 0.3, "code": 0.2}
SIZE = 6


def documents(place, samples):
    """Lists of tokens that tell their source and their sample."""
    lengths = list(LENGTHS.values())[place]
    return [numpy.full(lengths[sample], 1000 * place + sample) for sample in samples]


class Documents:
    """Reads chunks of documents of a source."""

    def __init__(self, place, sizes):
        self.place, self.sizes = place, sizes

    def __call__(self, chunk):
        start = SIZE * chunk
        return {"ids": documents(self.place, range(start, start + self.sizes[chunk]))}


def chunk_source(place, name, read=None, **options):
    total = len(LENGTHS[name])
    sizes = [min(SIZE, total - start) for start in range(0, total, SIZE)]
    return bl.ChunkDataset(sizes, read or Documents(place, sizes), lengths=LENGTHS[name], **options)


def sources(**options):
    options = {"chunks_open": 3} | options
    return {name: chunk_source(place, name, **options) for place, name in enumerate(LENGTHS)}


def in_memory():
    return {
        name: bl.SequenceDataset(ids=documents(place, range(len(LENGTHS[name])))) for place, name in enumerate(LENGTHS)
    }


def samples(batch):
    """The source and the number, there, of each sample of a batch, as its tokens tell them."""
    ends = numpy.cumsum([0, *map(len, LENGTHS.values())])
    found = []
    for source, index in zip(numpy.ravel(batch["source"]), numpy.ravel(batch["index"]), strict=True):
        if index >= 0:
            found.append((int(source), int(index - ends[source])))
    tokens = numpy.unique(batch["ids"])
    told = {(int(token) // 1000, int(token) % 1000) for token in tokens}
    assert set(found) <= told | {(0, 0)}
    assert told - {(0, 0)} <= set(found)
    return found


def numbers(batch):
    """The samples of a batch, without places that hold none."""
    return sorted(int(sample) for sample in numpy.ravel(batch["index"]) if sample >= 0)


def delivered(loader):
    return [samples(batch) for batch in loader]


@pytest.mark.law("L1", "L2", "L3")
@few
@given(
    rule=st.sampled_from(RULES),
    by=st.sampled_from(["samples", "tokens", "labels"]),
    when=st.sampled_from(WHEN),
    seed=st.integers(0, 3),
    threads=st.integers(1, 3),
)
def test_batches_are_those_of_the_plan(rule, by, when, seed, threads):
    mixture = bl.Mixture(sources(), WEIGHTS, by=by, when_exhausted=when)
    loader = bl.DataLoader(mixture, batching=rule, shuffle=True, seed=seed, labels="ids", num_threads=threads)
    counts = Counter()
    for _ in range(3):
        plan = loader.plan()
        found = delivered(loader)
        expected = [[mixture.dataset.origin(int(sample)) for sample in step] for step in plan]
        assert [[tuple(origin) for origin in step] for step in expected] == found
        counts.update(flat(found))
    for place, lengths in enumerate(LENGTHS.values()):
        of_source = [counts[place, sample] for sample in range(len(lengths))]
        assert max(of_source) - min(of_source) <= 1


@few
@given(rule=st.sampled_from(RULES[:2]), when=st.sampled_from(WHEN), size=st.integers(1, 9), world=st.integers(1, 4))
def test_sources_take_the_turns_that_they_take_in_memory(rule, when, size, world):
    def plan(data):
        loader = bl.DataLoader(bl.Mixture(data, WEIGHTS, when_exhausted=when), size, shuffle=True, seed=5)
        return bl.DataLoader(loader.dataset, size, shuffle=True, seed=5, rank=0, world_size=world), loader.plan(1)

    (chunked, one), (arrays, other) = plan(sources()), plan(in_memory())
    assert len(chunked) == len(arrays)
    assert len(one) == len(other)
    ends = numpy.cumsum([len(lengths) for lengths in LENGTHS.values()])
    for first, second in zip(one, other, strict=True):
        assert numpy.searchsorted(ends, first, "right").tolist() == numpy.searchsorted(ends, second, "right").tolist()


@pytest.mark.law("L4", "L5")
@few
@given(
    rule=st.sampled_from(RULES),
    by=st.sampled_from(["samples", "tokens"]),
    when=st.sampled_from(WHEN),
    worlds=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    data=st.data(),
)
def test_a_run_resumes_at_any_step_on_any_number_of_ranks(rule, by, when, worlds, data):
    mixture = bl.Mixture(sources(), WEIGHTS, by=by, when_exhausted=when)

    def loader(rank, world):
        return bl.DataLoader(
            mixture, batching=rule, shuffle=True, seed=3, rank=rank, world_size=world, uneven="short", num_threads=1
        )

    whole = [numpy.sort(step).tolist() for step in loader(0, 1).plan()]
    first = [loader(rank, worlds[0]) for rank in range(worlds[0])]
    taken = data.draw(st.integers(0, min(map(len, first))))
    found, state = [], None
    for each in first:
        batches = iter(each)
        for _ in range(taken):
            found.append(numbers(next(batches)))
        state = each.state_dict()
        del batches
    if taken == max(map(len, first)):
        return
    for rank in range(worlds[1]):
        rest = loader(rank, worlds[1])
        rest.load_state_dict(json.loads(json.dumps(state)))
        found += [numbers(batch) for batch in rest]
    assert sorted(found) == sorted(whole)


def test_a_run_is_one_whoever_stops_it():
    def loader():
        return bl.DataLoader(
            bl.Mixture(sources(), WEIGHTS, when_exhausted="repeat"), batching=bl.Packing(60), shuffle=True
        )

    whole = [batch["index"].tolist() for batch in loader()]
    for step in range(len(whole)):
        one = loader()
        batches = iter(one)
        for _ in range(step):
            next(batches)
        again = loader()
        again.load_state_dict(one.state_dict())
        assert [batch["index"].tolist() for batch in again] == whole[step:]


def parquet(folder, place, name, rows=None):
    total = len(LENGTHS[name])
    table = pyarrow.table(
        {
            "ids": pyarrow.array(documents(place, range(total))),
            "id": numpy.arange(total) + 1000 * place,
        }
    )
    folder.mkdir(exist_ok=True)
    for part, start in enumerate(range(0, total, 30)):
        pyarrow.parquet.write_table(table[start : start + 30], folder / f"{part}.parquet", row_group_size=7)
    return folder / "*.parquet"


def test_folders_of_parquet_are_mixed(tmp_path):
    folders = {name: parquet(tmp_path / name, place, name) for place, name in enumerate(LENGTHS)}
    mixture = bl.Mixture(
        {name: bl.open(folder, columns=["ids"]) for name, folder in folders.items()}, WEIGHTS, by="tokens"
    )
    loader = bl.DataLoader(mixture, batching=bl.Packing(60), shuffle=True)
    whole = delivered(loader)
    had = Counter(
        source for step in whole for source, sample in step for _ in range(list(LENGTHS.values())[source][sample])
    )
    assert abs(had[0] / sum(had.values()) - 0.5) < 0.1
    # The same numbers, read by a function of Python.
    chunked = bl.DataLoader(bl.Mixture(sources(), WEIGHTS, by="tokens"), batching=bl.Packing(60), shuffle=True)
    assert sum(map(len, delivered(chunked))) > 0
    rows = {name: bl.open(folder, columns=["id"]) for name, folder in folders.items()}
    numbers = bl.DataLoader(bl.Mixture(rows, when_exhausted="renormalise"), 8, shuffle=True)
    seen = numpy.concatenate([batch["id"] for batch in numbers])
    assert sorted(seen.tolist()) == sorted(
        1000 * place + k for place, it in enumerate(LENGTHS.values()) for k in range(len(it))
    )


def make_id(row):
    return {"id": row["id"]}


def test_functions_of_rows_of_parquet_are_mixed(tmp_path):
    folders = {name: parquet(tmp_path / name, place, name) for place, name in enumerate(LENGTHS)}
    makers = {
        "web": lambda row: {"id": numpy.int64(row["id"])},
        "books": lambda row, rng: {"id": numpy.int64(row["id"])},
    }
    opened = {name: bl.open(folders[name], fn=fn, columns=["id"], chunks_open=2) for name, fn in makers.items()}
    loader = bl.DataLoader(bl.Mixture(opened, when_exhausted="renormalise"), 8, shuffle=True)
    seen = []
    for step, batch in zip(loader.plan(), loader, strict=True):
        assert (batch["id"] // 1000 == batch["source"]).all()
        assert [sample - 90 + 1000 if sample >= 90 else sample for sample in step.tolist()] == batch["id"].tolist()
        seen += batch["id"].tolist()
    assert sorted(seen) == [*range(90), *range(1000, 1020)]
    dataset = bl.Mixture(opened).dataset
    assert dataset.counts.read == 0
    assert dataset[95]["id"] == 1005
    plain = {name: bl.open(folders[name], fn=make_id, chunks_open=2) for name in opened}
    again = pickle.loads(pickle.dumps(bl.Mixture(plain).dataset))
    assert len(again) == 110
    assert again[95]["id"] == 1005
    halves = {name: each.select(range(0, len(each), 2)) for name, each in opened.items()}
    loader = bl.DataLoader(bl.Mixture(halves, when_exhausted="renormalise"), 8, shuffle=True)
    assert sorted(flat(batch["id"].tolist() for batch in loader)) == [*range(0, 90, 2), *range(1000, 1020, 2)]


def test_memory_of_sources_adds_up():
    def reads(place):
        return lambda chunk: {"x": numpy.full((100, 64), 1.0 * chunk + 100 * place)}

    one = 100 * 64 * 8
    datasets = [bl.ChunkDataset([100] * 40, reads(place), memory=8 * one) for place in range(2)]
    mixture = bl.Mixture(dict(zip("ab", datasets, strict=True)), when_exhausted="repeat")
    loader = bl.DataLoader(mixture, 16, shuffle=True)
    iterators = [iter(loader), iter(bl.DataLoader(mixture, 16, shuffle=True, seed=9))]
    for batches in zip(*iterators, strict=True):
        assert all((batch["x"][:, 0] // 100 == batch["source"]).all() for batch in batches)
    counts = mixture.dataset.counts
    assert mixture.dataset.memory == 16 * one
    assert counts.most_bytes <= 2 * 16 * one  # two loaders at once
    assert counts.read <= 2 * (80 + 8)


def test_ranks_read_parts_of_each_source():
    def loaders(world):
        mixture = bl.Mixture(sources(chunks_open=2), when_exhausted="renormalise")
        return mixture, [bl.DataLoader(mixture, 4, shuffle=True, rank=rank, world_size=world) for rank in range(world)]

    mixture, ranks = loaders(3)
    chunks = len(mixture.dataset.chunks)
    read = 0
    for loader in ranks:
        before = mixture.dataset.counts.read
        for _ in loader:
            pass
        read += mixture.dataset.counts.read - before
    stats = ranks[0].plan(0).stats()
    assert read == stats["chunks_read"] <= chunks + 2 * 3 * 2
    assert stats["chunks_open"] == 6


def test_a_reader_that_fails_is_named_with_its_source():
    def broken(chunk):
        if chunk == 2:
            raise OSError("the disk is gone")
        start = SIZE * chunk
        return {"ids": documents(1, range(start, min(start + SIZE, 20)))}

    def mixture(**options):
        return bl.Mixture(
            {"web": chunk_source(0, "web", **options), "books": chunk_source(1, "books", broken, **options)}
        )

    with pytest.raises(bl.SampleError, match=r"dataset 1: chunk 2 could not be read.*the disk is gone") as raised:
        list(bl.DataLoader(mixture(), 8, shuffle=True))
    assert isinstance(raised.value.__cause__, bl.SampleError)
    lost = Counter()
    loader = bl.DataLoader(mixture(on_error="skip"), 8, shuffle=True, num_samples=110)
    for batch in loader:
        for source, index, weight in zip(batch["source"], batch["index"], batch["weight"], strict=True):
            lost[int(source), int(index) - 90 * int(source)] += weight == 0
    assert {key for key, count in lost.items() if count} <= {(1, sample) for sample in range(12, 18)}
    assert sum(lost.values()) > 0


def test_bans_and_static_buffers():
    mixture = bl.Mixture(sources(), when_exhausted="renormalise")
    banned = [mixture.sample("books", 3), mixture.sample("web", 0)]
    loader = bl.DataLoader(mixture, 8, shuffle=True, ban=banned)
    places = Counter(index for batch in loader for index in batch["index"].tolist())
    assert places[-1] == 2
    assert not set(banned) & set(places)
    plain = [batch["index"].tolist() for batch in bl.DataLoader(mixture, 8, shuffle=True)]
    assert [[-1 if it in banned else it for it in step] for step in plain] == [
        batch["index"].tolist() for batch in bl.DataLoader(mixture, 8, shuffle=True, ban=banned)
    ]


@pytest.mark.parametrize("limits", [({}, {"chunks_open": 2}), ({"memory": 5 * 320}, {"memory": 5 * 64})])
def test_arrays_in_memory_are_a_source_as_one_chunk(limits):
    x = numpy.arange(40.0)
    arrays = bl.ChunkDataset([40], lambda chunk: {"x": x}, **limits[0])
    chunks = bl.ChunkDataset([8] * 9, lambda chunk: {"x": numpy.arange(8.0) + 100 + 8 * chunk}, **limits[1])
    loader = bl.DataLoader(bl.Mixture({"a": arrays, "b": chunks}, when_exhausted="renormalise"), 4, shuffle=True)
    seen = numpy.concatenate([batch["x"] for batch in loader])
    assert sorted(seen) == [*range(40), *range(100, 172)]
    first = [number for number in seen if number < 100]
    assert first != sorted(first)


def test_empty_chunks_need_no_memory():
    sizes = [1, 0, 0, 1, 1, 0]
    few = bl.ChunkDataset(sizes, lambda chunk: {"x": numpy.full((sizes[chunk], 10), chunk)}, memory=3 * 80)
    batches = list(bl.DataLoader(bl.Mixture({"few": few}), 1, shuffle=True))
    assert sorted(batch["x"][0, 0] for batch in batches) == [0, 3, 4]


def test_concatenated_chunks_are_one_dataset():
    web, books, code = sources().values()
    both = web.concat(books, code)
    assert len(both) == 150
    assert both.origin(95) == (1, 5)
    assert (both[95]["ids"] == 1005).all()
    loader = bl.DataLoader(both, batching=bl.Packing(60), shuffle=True)
    assert sorted(flat(batch["index"].tolist() for batch in loader)) == list(range(150))
    again = pickle.loads(pickle.dumps(web[:10].concat(books)))
    assert len(again) == 30
    assert (again[12]["ids"] == 1002).all()
    train, val = both.split(train=0.8, val=0.2)
    assert sorted(flat(batch["index"].tolist() for batch in bl.DataLoader(val, 8))) == list(range(30))
    assert len(train) == 120


def test_plans_of_mixtures_pickle():
    loader = bl.DataLoader(bl.Mixture(sources(), WEIGHTS), 8, shuffle=True)
    plan = loader.plan(2)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.fingerprint == plan.fingerprint
    assert [step.tolist() for step in again] == [step.tolist() for step in plan]
    other = bl.DataLoader(bl.Mixture(sources(chunks_open=2), WEIGHTS), 8, shuffle=True)
    assert other.plan(2).fingerprint != plan.fingerprint


def test_what_does_not_go_together_is_refused(tmp_path):
    mixture = bl.Mixture(sources(), WEIGHTS)
    with refused(bl.ArgumentError, "balance", "chunks"):
        bl.DataLoader(mixture, batching=bl.TokenBudget(60), shuffle=True, balance=True)
    with refused(bl.ArgumentError, "homogeneous_by", "chunks"):
        bl.DataLoader(mixture, 8, shuffle=True, homogeneous_by="source")
    rows, web = bl.TensorDataset(ids=numpy.arange(9)), sources()["web"]
    with refused(bl.ArgumentError, "dataset 1", "TensorDataset", "chunk"):
        bl.Mixture({"web": web, "rows": rows})
    with refused(bl.ArgumentError, "dataset 0", "TensorDataset", "chunk"):
        bl.Mixture({"rows": rows, "web": web})
    with refused(bl.ArgumentError, "dataset 1", "on_error"):
        web.concat(chunk_source(1, "books", on_error="skip"))
    named = [("web", "ids"), ("code", "id")]
    first, second = (bl.open(parquet(tmp_path / name, 0, name), columns=[column]) for name, column in named)
    with refused(bl.ArgumentError, "dataset 0", "ids", "dataset 1", "id"):
        first.concat(second)


def test_weights_change_between_steps_on_one_rank():
    def loader(weights, **options):
        rows = {name: bl.ChunkDataset([8] * 9, lambda chunk: {"x": numpy.arange(8)}, chunks_open=2) for name in weights}
        return bl.DataLoader(bl.Mixture(rows, weights), 8, shuffle=True, **options)

    even, first_alone = {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 0, "c": 0}
    first = loader(even)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    changed = loader(first_alone)
    changed.load_state_dict(first.state_dict())
    assert {source for batch in changed for source in batch["source"].tolist()} == {0}
    one, other = (loader(weights, rank=0, world_size=2) for weights in (even, first_alone))
    next(iter(one))
    with refused(bl.ArgumentError, "other weights", "chunks"):
        other.load_state_dict(one.state_dict())


# What is known before a chunk is read


def reader(place):
    return lambda chunk: {"x": numpy.full(10, place)}


@pytest.mark.parametrize("join", ["mixture", "concat"])
@pytest.mark.parametrize("items", [False, True])
def test_memory_is_given_to_all_sources_or_to_none(join, items):
    """A number for some of them would be no limit for all, or one that the window of others exceeds."""

    def make(**options):
        if not items:
            return bl.ChunkDataset([10] * 20, reader(0), **options)
        return bl.MapDataset(Rows(), lambda row: {"x": row}, **options)

    unlimited, limited = make(chunks_open=4), make(memory=4000)
    with refused(
        bl.ArgumentError, "memory=4000", *(["source 'a'", "source 'b'"] if join == "mixture" else ["dataset 1"])
    ):
        if join == "mixture":
            bl.Mixture({"a": unlimited, "b": limited})
        else:
            unlimited.concat(limited, unlimited)
    both = bl.Mixture({"a": limited, "b": make(memory=3000)})
    assert both.dataset.memory == 7000
    assert bl.Mixture({"a": unlimited, "b": unlimited}).dataset.memory is None


class Rows:
    """Items in chunks."""

    chunks = (10,) * 20

    def __len__(self):
        return 200

    def __getitem__(self, row):
        return row

    def read_chunk(self, chunk):
        return numpy.arange(10 * chunk, 10 * chunk + 10)


def write_json(path, values):
    path.write_text("".join(json.dumps({"x": value}) + "\n" for value in values))
    return bl.open(path)


def write_parquet(path, values, kind):
    pyarrow.parquet.write_table(pyarrow.table({"x": pyarrow.array(values, kind)}), path)
    return bl.open(path)


def write_compressed(path, values, kind):
    table = pyarrow.table({"x": pyarrow.array(values, kind)})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return bl.open(path)


FIXED = pyarrow.list_(pyarrow.float32(), 3)
TYPES = {
    "int64": ([1, 2, 3], pyarrow.int64()),
    "float64": ([1.5, 2.0, 3.0], pyarrow.float64()),
    "int32": ([1, 2, 3], pyarrow.int32()),
    "bool": ([True, False, True], pyarrow.bool_()),
    "rows of 3 float32": ([[1, 2, 3]] * 3, FIXED),
    "rows of 2 float32": ([[1, 2]] * 3, pyarrow.list_(pyarrow.float32(), 2)),
    "lists of int64": ([[1], [2, 3], [4]], pyarrow.list_(pyarrow.int64())),
    "lists of float64": ([[1.5], [2, 3], [4]], pyarrow.list_(pyarrow.float64())),
}


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("other", TYPES)
def test_types_of_files_are_compared_when_they_are_put_together(tmp_path, first, other):
    """Those of Parquet, of compressed Arrow and, as far as lines have them, of lines of JSON."""

    def write(name, kind):
        values, stored = TYPES[kind]
        found = {
            "parquet": write_parquet(tmp_path / f"{name}.parquet", values, stored),
            "arrow": write_compressed(tmp_path / f"{name}.arrow", values, stored),
        }
        if kind in ("int64", "float64", "bool", "lists of int64", "lists of float64"):
            found["json"] = write_json(tmp_path / f"{name}.jsonl", values)
        return found

    firsts, others = write("first", first), write("other", other)
    for one in firsts.values():
        for two in others.values():
            if first == other:
                batches = list(bl.DataLoader(bl.Mixture({"a": one, "b": two}), 6))
                assert batches
                continue
            with refused(bl.ArgumentError, "'x'", "source 'a'", "source 'b'", first, other):
                bl.Mixture({"a": one, "b": two})
            with refused(bl.ArgumentError, "'x'", "dataset 0", "dataset 1", first, other):
                one.concat(two)


def test_names_of_files_are_compared_when_they_are_put_together(tmp_path):
    tables = {"a": {"x": [1], "y": [2]}, "b": {"x": [1], "z": [2]}}
    for name, table in tables.items():
        pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / f"{name}.parquet")
    opened = {name: bl.open(tmp_path / f"{name}.parquet") for name in tables}
    with refused(bl.ArgumentError, "source 'a'", "x, y", "source 'b'", "x, z"):
        bl.Mixture(opened)
    bl.Mixture({name: bl.open(tmp_path / f"{name}.parquet", columns=["x"]) for name in tables})
    # Functions of a user have types once they are called.
    unknown = bl.ChunkDataset([1], lambda chunk: {"x": numpy.array([chunk])})
    bl.Mixture({"a": opened["a"], "b": unknown})


def test_no_chunk_is_read_in_vain():
    """Of a source that is hardly drawn before the epoch ends."""
    read = []

    def rare(chunk):
        read.append(chunk)
        return {"x": numpy.full(100, chunk)}

    common = bl.ChunkDataset([100] * 50, lambda chunk: {"x": numpy.full(100, -1)}, chunks_open=16)
    mixture = bl.Mixture({"a": common, "b": bl.ChunkDataset([100] * 50, rare, chunks_open=16)}, {"a": 1, "b": 0.001})
    loader = bl.DataLoader(mixture, 64, shuffle=True)
    for _ in range(4):
        read.clear()
        drawn = numpy.concatenate([batch["x"] for batch in loader])
        assert sorted(read) == sorted({*drawn[drawn >= 0].tolist()})
        assert len(read) < 16
