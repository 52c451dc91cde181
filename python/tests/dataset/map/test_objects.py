"""Texts and other objects: in rows, in samples on demand and in whole batches, they are handed over as lists."""

import dataclasses
import itertools
import pickle
from pathlib import Path

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import loader_on
from refusals import refused

SAMPLES = 23
TEXTS = [f"text {number}" * (number % 4 + 1) for number in range(SAMPLES)]


def captioned(number):
    """A sample with a text, a path and a list of words of any number."""
    return {"x": numpy.full(3, number), "text": TEXTS[number], "nested": (Path(str(number)), ["word"] * (number % 3))}


def pair(number):
    return numpy.full(2, number), TEXTS[number]


def sized(number):
    return {"x": numpy.full(number % 5 + 1, number), "text": TEXTS[number]}


@dataclasses.dataclass
class Graph:
    nodes: torch.Tensor
    names: list


def as_dict(samples):
    return {"x": numpy.stack([each["x"] for each in samples]), "text": [each["text"] for each in samples], "n": 3}


def as_lists(samples):
    return [[torch.full((each["x"][0] % 3 + 1,), each["x"][0]) for each in samples], [each["text"] for each in samples]]


def as_detection(samples):
    targets = tuple({"boxes": torch.ones(2), "id": each["text"]} for each in samples)
    return tuple(torch.from_numpy(each["x"]) for each in samples), targets


def as_graph(samples):
    return Graph(torch.from_numpy(numpy.stack([each["x"] for each in samples])), [each["text"] for each in samples])


FUNCTIONS = [as_dict, as_lists, as_detection, as_graph]


def plain(value):
    """A batch as lists, dicts and tuples of Python."""
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, plain(vars(value))]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    return (type(value).__name__, value.tolist()) if hasattr(value, "tolist") else value


ON_DEMAND = {
    workers: lambda fn=captioned, workers=workers, **options: bl.MapDataset(
        range(SAMPLES), fn, workers=workers, **options
    )
    for workers in ("threads", "processes")
}


def rows():
    return bl.TensorDataset(x=torch.arange(SAMPLES), text=TEXTS, path=[Path(text) for text in TEXTS])


@pytest.mark.parametrize(("workers", "threads"), [("threads", 1), ("threads", 3), ("processes", 2)])
def test_samples_on_demand_keep_their_objects(workers, threads):
    loader = bl.DataLoader(ON_DEMAND[workers](), 5, shuffle=True, num_threads=threads)
    for _ in range(2):
        numbers = []
        for batch in loader:
            own = batch["x"][:, 0].tolist()
            assert batch["text"] == [TEXTS[number] for number in own]
            assert batch["nested"] == (
                [Path(str(number)) for number in own],
                [["word"] * (number % 3) for number in own],
            )
            numbers += own
        assert sorted(numbers) == list(range(SAMPLES))


def test_objects_of_threads_are_the_objects_themselves():
    made = [object() for _ in range(4)]
    (batch,) = bl.DataLoader(bl.MapDataset(range(4), lambda number: {"x": number, "own": made[number]}), 4)
    assert all(one is other for one, other in zip(batch["own"], made, strict=True))


@pytest.mark.parametrize(
    ("rule", "workers"),
    [
        (bl.TokenBudget(12), "threads"),
        (bl.Packing(12), "threads"),
        (bl.LengthBuckets(4), "threads"),
        (bl.Packing(12), "processes"),
    ],
    ids=str,
)
def test_samples_of_any_length_keep_their_objects(rule, workers):
    sizes = [number % 5 + 1 for number in range(SAMPLES)]
    dataset = ON_DEMAND[workers](sized, sizes=sizes, columns=["x"])
    seen = []
    for batch in bl.DataLoader(dataset, batching=rule, shuffle=True):
        firsts = batch["x"][batch["cu_seqlens"][:-1]] if "cu_seqlens" in batch else batch["x"][:, 0]
        assert batch["text"] == [TEXTS[number] for number in firsts.tolist()]
        seen += batch["text"]
    assert sorted(seen) == sorted(TEXTS)


@pytest.mark.parametrize(
    ("collate", "way", "workers"),
    [
        *((collate, way, "threads") for collate in FUNCTIONS for way in ("host", "device", "jax")),
        (as_detection, "host", "processes"),
    ],
)
def test_what_a_function_of_whole_batches_returns_is_handed_over(collate, workers, way):
    loader = loader_by(way, ON_DEMAND[workers](), 5, shuffle=True, collate=collate)
    plan = loader.plan(0)
    for step, batch in enumerate(loader):
        numbers = plan[step].tolist()
        expected = collate([captioned(number) for number in numbers])
        assert len(numbers) == (3 if step == 4 else 5)
        if way == "host":
            assert plain(batch) == plain(expected)
        else:
            assert values(batch) == values(expected)


def values(value):
    """All values that a batch holds, in order, whatever the frameworks of its arrays."""
    if isinstance(value, Graph):
        return values(vars(value))
    if isinstance(value, dict):
        return [values(value[key]) for key in value]
    if isinstance(value, (list, tuple)):
        return [values(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def loader_by(way, dataset, *arguments, **options):
    """A loader whose batches are made on the host, on a device, or by JAX."""
    if way == "device":
        return loader_on("streamed", dataset, batch_size=arguments[0], **options)[0]
    return bl.DataLoader(dataset, *arguments, **options, **({"output": "jax"} if way == "jax" else {}))


@pytest.mark.law("L3")
@pytest.mark.parametrize("dataset", [rows(), ON_DEMAND["threads"]()], ids=["stored", "on demand"])
@given(step=st.integers(0, 3), world=st.integers(1, 3))
def test_objects_after_a_resume_and_on_several_ranks(dataset, step, world):
    def loader(rank):
        return bl.DataLoader(dataset, 2, shuffle=True, seed=3, rank=rank, world_size=world)

    seen = []
    for rank in range(world):
        whole = [batch["text"] for batch in loader(rank)]
        first = loader(rank)
        taken = [batch["text"] for batch in itertools.islice(first, step)]
        again = loader(rank)
        again.load_state_dict(first.state_dict())
        assert taken + [batch["text"] for batch in again] == whole
        seen += [text for texts in whole for text in texts]
    assert set(seen) == set(TEXTS)


def test_a_batch_of_a_plan_again_has_its_objects():
    for dataset in (rows(), ON_DEMAND["threads"]()):
        loader = bl.DataLoader(dataset, 5, shuffle=True)
        batches = [batch["text"] for batch in loader]
        assert [loader.replay(0, step)["text"] for step in range(5)] == batches


@pytest.mark.parametrize("options", [{}, {"uneven": "mask"}], ids=str)
@pytest.mark.parametrize("way", ["host", "device", "jax"])
@pytest.mark.parametrize("kind", [rows, ON_DEMAND["threads"]], ids=["rows", "threads"])
def test_batches_hold_objects_on_every_way(kind, way, options):
    loader = loader_by(way, kind(), 5, shuffle=True, **options)
    plan = loader.plan(0)
    for step, batch in enumerate(loader):
        numbers = plan[step].tolist()
        assert batch["text"][: len(numbers)] == [TEXTS[number] for number in numbers]


def test_places_that_fill_up_hold_the_object_of_their_arrays():
    batches = list(bl.DataLoader(rows(), 5, uneven="mask", world_size=4, rank=3))
    for batch in batches:
        assert batch["text"] == [TEXTS[number] for number in batch["x"].tolist()]
    assert any(-1 in batch["index"].tolist() for batch in batches)


def test_skipped_samples_hold_none():
    def read(number):
        if number % 4 == 1:
            raise OSError("damaged")
        return captioned(number)

    for batch in bl.DataLoader(bl.MapDataset(range(SAMPLES), read, on_error="skip"), 5):
        assert [text is None for text in batch["text"]] == [weight == 0 for weight in batch["weight"].tolist()]


def test_rows_that_are_put_together_cut_and_pickled_keep_their_objects():
    other = bl.TensorDataset(x=torch.arange(3), text=["a", "b", "c"], path=["d", "e", "f"])
    (batch,) = bl.DataLoader(rows().concat(other), SAMPLES + 3)
    assert batch["text"] == [*TEXTS, "a", "b", "c"]
    part = pickle.loads(pickle.dumps(rows().select(range(2, 6))))
    assert [batch["text"] for batch in bl.DataLoader(part, 4)] == [TEXTS[2:6]]
    assert part[1]["text"] == TEXTS[3]
    chosen = pickle.loads(pickle.dumps(rows().select([7, 2])))
    assert next(iter(bl.DataLoader(chosen, 2)))["text"] == [TEXTS[7], TEXTS[2]]


def test_texts_are_classes():
    kinds = ["rare"] * 2 + ["common"] * 20
    loader = bl.DataLoader(bl.TensorDataset(x=numpy.arange(22), kind=kinds), 4, balanced_by="kind", shuffle=True)
    assert {kind for batch in loader for kind in batch["kind"]} == {"rare", "common"}


@pytest.mark.parametrize("column", ["pandas", "polars", "pyarrow", "numpy", "datasets"])
def test_columns_of_texts(column):
    if column == "numpy":
        given = numpy.array(TEXTS)
    elif column == "datasets":
        given = pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS})["text"]
    else:
        module = pytest.importorskip(column)
        given = module.array(TEXTS) if column == "pyarrow" else module.Series(TEXTS)
    (batch,) = bl.DataLoader(bl.TensorDataset(x=numpy.arange(SAMPLES), text=given), SAMPLES)
    assert batch["text"] == TEXTS


def test_numbers_among_objects_are_refused():
    with refused(bl.DTypeError, "field x", "object"):
        bl.TensorDataset(x=numpy.array([1, "a", 2.5], dtype=object))


@pytest.mark.parametrize("dataset", [rows(), ON_DEMAND["threads"]()], ids=["stored", "on demand"])
@pytest.mark.parametrize("field", [bl.Field(dtype="float32"), bl.Field(scale=2.0)], ids=["dtype", "scale"])
def test_nothing_is_done_to_objects(dataset, field):
    with refused(bl.ArgumentError, "'text'", "holds objects", "'x'"):
        list(bl.DataLoader(dataset, 4, fields={"text": field}))


def test_static_buffers_have_no_place_for_objects():
    with refused(bl.ArgumentError, "static", "field nested.0", "objects"):
        list(bl.DataLoader(ON_DEMAND["threads"](), 4, buffers="static", device="meta"))


def test_absent_values_are_refused():
    with refused(bl.SampleError, "field text is None", "on_error"):
        list(bl.DataLoader(bl.MapDataset(range(4), lambda number: {"x": number, "text": None}), 4))


def test_a_text_where_an_array_was():
    with refused(bl.DataError, "sample 2", "object", "numpy"):
        list(bl.DataLoader(bl.MapDataset(range(4), lambda number: {"x": "a" if number == 2 else number}), 2))
    texts = [numpy.array(1.0), numpy.array("a")]
    with refused(bl.DataError, "sample 3", "object", "numpy"):
        list(bl.DataLoader(bl.MapDataset(range(4), lambda number: {"x": texts[number // 3]}), 2))


SCALARS = ["bool", "uint8", "int8", "int16", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64"]


def scalars_and_text(number):
    """A sample of scalars of NumPy, and a text; a path is an object as a text is, and bytes are."""
    scalars = {dtype: numpy.dtype(dtype).type(number % 3) for dtype in SCALARS}
    text = [str(number), b"%d" % number, Path(str(number))][number % 3 if number % 50 == 49 else 0]
    swapped = numpy.array(number, ">i4").astype("i4")
    return {**scalars, "swapped": swapped, "id": numpy.int64(number), "text": text}


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_texts_and_scalars_of_many_blocks_are_those_of_their_samples(workers):
    """The first block shows what samples are; the engine copies scalars of later ones, and takes their texts."""
    count = 3000
    dataset = bl.MapDataset(range(count), scalars_and_text, workers=workers)
    seen = []
    for batch in bl.DataLoader(dataset, 16, shuffle=True, seed=5, num_threads=2):
        for place, number in enumerate(batch["id"].tolist()):
            expected = scalars_and_text(number)
            assert batch["text"][place] == expected["text"]
            assert type(batch["text"][place]) is type(expected["text"])
            for name in (*SCALARS, "swapped"):
                assert batch[name][place] == expected[name]
                assert batch[name].dtype == expected[name].dtype
            seen.append(number)
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize(
    "other",
    [
        {"x": numpy.int32(1), "text": "a text"},
        {"x": numpy.float64(1), "text": "a text"},
        {"x": 1, "text": numpy.zeros(2)},
        {"x": "a text", "text": "a text"},
        {"x": numpy.int64(1), "text": "a text", "more": 1},
        {"x": numpy.datetime64("2020-01-01"), "text": "a text"},
    ],
)
def test_a_sample_of_another_layout_in_a_later_block_is_an_error_that_names_it(other):
    dataset = bl.MapDataset(range(2000), lambda number: other if number == 1999 else {"x": numpy.int64(2), "text": "t"})
    batches = iter(bl.DataLoader(dataset, 16, num_threads=1))
    for _ in range(1984 // 16):
        next(batches)
    with pytest.raises(bl.Error, match="1999"):
        next(batches)


def test_a_list_without_numbers_beside_lists_of_numbers_says_what_to_do():
    lists = [[1, 2], [], [3]]
    loader = bl.DataLoader(bl.MapDataset(range(3), lambda number: {"ids": lists[number]}, sizes=[2, 0, 1]), 3)
    with refused(bl.Error, "expected one structure", "a list without numbers is an object: make it an array"):
        list(loader)
