"""Batches hold all that describes their fields, some of it, or nothing, wherever batches are made.

A batch with fewer extras is the batch with all of them, without the others: the fields, their order and their bits
stay. Other tests compare the batch with all of them with its definition.
"""

import pickle

import batchloom as bl
import jax
import numpy
import pytest
import torch
from batchloom.integrations.library_loader import LibraryLoader
from oracles.devices import KINDS, WAYS, bits, data, loader_on
from refusals import refused

LENGTHS = [3, 1, 4, 1, 5, 2]
SENTENCES = [numpy.arange(length) + 10 * place for place, length in enumerate(LENGTHS)]
PADDED, PACKED = (
    ("attention_mask", "lengths", "index"),
    ("cu_seqlens", "max_seqlen", "position_ids", "segment_ids", "index"),
)
SERIES = torch.arange(40.0)


def same(*names):
    """Extras of batches that are dicts, by name."""
    return {name: name for name in names}


# The extras of each kind in oracles.devices, with the key or the place of each in a batch.
OF_KIND = {
    "rows": {},
    "named rows": {},
    "groups": same("group_ids", "offsets"),
    "neighbours": {},
    "sequences": same(*PADDED),
    "left": same(*PADDED),
    "packed": same(*PACKED),
    "padded groups": {"mask": 2},
    "stream": {"segment_ids": 2},
    "windows": {"mask": 2, "target_mask": 3},
}


def choices(names):
    """Some of several names: none, each alone, all but each, and all."""
    names = list(names)
    return [*([name] for name in names), *([other for other in names if other != name] for name in names), [], names]


def restricted(batch, places, kept):
    """A batch without the extras that are not kept; ``places`` has the key or the place of each extra."""
    left_out = {place for name, place in places.items() if name not in kept}
    if isinstance(batch, dict):
        return [(name, bits(value)) for name, value in batch.items() if name not in left_out]
    return [bits(value) for place, value in enumerate(batch) if place not in left_out]


def assert_restricted(make, places, epochs=2):
    """Batches with some extras are those with all of them, without the others."""
    for kept in choices(places):
        whole, loader = make(None), make(tuple(kept))
        assert loader.plan().fingerprint == whole.plan().fingerprint
        for _ in range(epochs):
            expected = [restricted(batch, places, kept) for batch in whole]
            assert [restricted(batch, {}, ()) for batch in loader] == expected, kept
        assert restricted(loader.replay(0, 1), {}, ()) == restricted(whole.replay(0, 1), places, kept)


def on(way, dataset, **options):
    if way == "threads":
        return bl.DataLoader(dataset, output="torch", num_threads=2, **options)
    if way == "static":
        return bl.DataLoader(dataset, resident=True, buffers="static", output="torch", **options)
    return bl.DataLoader(dataset, output="torch", **options) if way == "host" else loader_on(way, dataset, **options)[0]


@pytest.mark.parametrize("way", ["host", "threads", *WAYS])
@pytest.mark.parametrize("kind", KINDS)
def test_extras_are_chosen_for_every_kind_of_data(kind, way):
    dataset, options = data(kind)
    assert_restricted(lambda extras: on(way, dataset, extras=extras, **options), OF_KIND[kind])


def name(sentence):
    return {"z": sentence, "a": len(sentence)}


def pair(sentence):
    return sentence, len(sentence)


def divide(number):
    return {"x": numpy.ones(2) * (6 // number)}


ROWS, IDS, SIZED = torch.arange(10), {"ids": SENTENCES}, {"sizes": LENGTHS}
NUMBERS, OTHERS = bl.MapDataset([(1, 6), (2, 7), (3, 8)]), bl.MapDataset([(4, 9), (5, 10)])
CUT = {"ids": bl.Field(slot=bl.Pad(multiple_of=4), dtype="int32")}
STEPS = {"a": [0, 2], "b": range(3)}
EVALUATED = {"batch_size": 4, "uneven": "mask", "world_size": 2, "rank": 1}
OF_PLACES = ("series", "start", "index")
# Datasets, options of a loader, and the extras of batches.
FURTHER = {
    "marks": (bl.TensorDataset(x=ROWS), EVALUATED, same("index", "weight")),
    "bans": (bl.SequenceDataset(**IDS), {"batch_size": 2, "ban": [1]}, same(*PADDED, "weight")),
    "marks in tuples": (bl.TensorDataset(ROWS, ROWS), {"batch_size": 4, "ban": [3]}, {"index": 2, "weight": 3}),
    "marks of a stream": (
        bl.TokenDataset(torch.arange(50), 4, resets=True, position_ids=True),
        {"batch_size": 2, "ban": [3]},
        {"position_ids": 2, "resets": 3, "index": 4, "weight": 5},
    ),
    "a mixture": (
        bl.Mixture({"one": bl.TensorDataset(ROWS), "two": bl.TensorDataset(ROWS + 30)}),
        {"batch_size": 4},
        {"source": 1},
    ),
    "places of windows": (
        bl.WindowDataset(SERIES, 5, 2, index=True, time=numpy.arange(40)),
        {"batch_size": 4, "shuffle": "runs"},
        same(*OF_PLACES, "time"),
    ),
    "places and marks of windows": (
        bl.WindowDataset([SERIES, SERIES[:3]], 5, 2, index=True, short="pad"),
        {"batch_size": 4, "uneven": "mask", "shuffle": True},
        same("mask", "target_mask", *OF_PLACES, "weight"),
    ),
    "masks of neighbours": (
        bl.WindowDataset(SERIES, 5, 2, mask=True),
        {"batch_size": 4},
        {"mask": 2, "target_mask": 3},
    ),
    "steps of windows": (
        bl.WindowDataset({"a": SERIES, "b": SERIES}, offsets=STEPS, short="pad"),
        {"batch_size": 4},
        same("a_mask", "b_mask"),
    ),
    "named groups": (bl.GroupDataset([0, 0, 1, 2, 2], x=ROWS[:5]), {"batch_size": 2}, same("group_ids", "offsets")),
    "own lengths": (
        bl.SequenceDataset(**IDS, to=SENTENCES[::-1], own_lengths=["to"]),
        {"batch_size": 2},
        same(*PADDED, "to_mask", "to_lengths"),
    ),
    "slots": (bl.SequenceDataset(**IDS), {"batch_size": 2, "fields": CUT}, same(*PADDED)),
    "samples on demand": (bl.MapDataset(SENTENCES, name, **SIZED), {"batch_size": 2}, same(*PADDED)),
    "packed on demand": (bl.MapDataset(SENTENCES, name, **SIZED), {"batching": bl.Packing(8)}, same(*PACKED)),
    "pairs on demand": (
        bl.MapDataset(SENTENCES, pair, **SIZED),
        {"batching": bl.Packing(8)},
        {extra: place for place, extra in enumerate(PACKED, 2)},
    ),
    "samples that fail": (
        bl.MapDataset([1, 0, 2, 3], divide, on_error="skip"),
        {"batch_size": 2},
        same("weight"),
    ),
    "several sources": (bl.Mixture({"a": NUMBERS, "b": OTHERS}), {"batch_size": 2}, {"source": 2}),
}
# Those of which a device makes batches itself.
GATHERED = (
    *("marks", "places of windows", "places and marks of windows", "masks of neighbours", "steps of windows"),
    "named groups",
)


@pytest.mark.parametrize("way", ["host", "threads", "device", "streamed"])
@pytest.mark.parametrize("kind", FURTHER)
def test_extras_that_options_add_are_chosen(kind, way):
    dataset, options, places = FURTHER[kind]
    assert_restricted(lambda extras: on(way, dataset, extras=extras, **options), places)


@pytest.mark.parametrize("way", ["resident", "sharded"])
@pytest.mark.parametrize("kind", GATHERED)
def test_extras_that_options_add_are_chosen_for_data_on_a_device(kind, way):
    dataset, options, places = FURTHER[kind]
    assert_restricted(lambda extras: on(way, dataset, extras=extras, **options), places)


@pytest.mark.parametrize("kind", ["sequences", "packed", "padded groups", "windows"])
def test_extras_are_chosen_with_static_buffers(kind):
    dataset, options = data(kind)
    assert_restricted(lambda extras: on("static", dataset, extras=extras, **options), OF_KIND[kind])


@pytest.mark.parametrize("device", [None, jax.devices("cpu")[0]], ids=["host", "device"])
@pytest.mark.parametrize("kind", ["packed", "left", "bans", "places of windows", "a mixture"])
def test_extras_are_chosen_for_jax(kind, device):
    dataset, options, places = (*data(kind), OF_KIND[kind]) if kind in KINDS else FURTHER[kind]

    def listed(batch, left_out=()):
        entries = batch.items() if isinstance(batch, dict) else enumerate(batch)
        return [(key, numpy.asarray(value).tolist()) for key, value in entries if key not in left_out]

    for kept in choices(places):
        left_out = [place for name, place in places.items() if name not in kept]
        whole = bl.DataLoader(dataset, output="jax", device=device, **options)
        loader = bl.DataLoader(dataset, output="jax", device=device, extras=kept, **options)
        found, expected = ([listed(batch, gone) for batch in each] for each, gone in ((loader, ()), (whole, left_out)))
        renumbered = [[value for _, value in batch] for batch in found]
        assert renumbered == [[value for _, value in batch] for batch in expected]
        if isinstance(expected[0][0][0], str):
            assert found == expected


def test_a_batch_holds_what_a_model_takes():
    dataset = bl.SequenceDataset(input_ids=SENTENCES, label=numpy.array(LENGTHS))
    loader = bl.DataLoader(dataset, batch_size=2, labels="input_ids", extras=("attention_mask",))
    batch = next(iter(loader))
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[0, 1, 2], [10, 0, 0]],
        "label": [3, 1],
        "attention_mask": [[True, True, True], [True, False, False]],
        "labels": [[1, 2, -100], [-100, -100, -100]],
    }
    (packed, *_) = bl.DataLoader(dataset, batching=bl.Packing(8), extras=("max_seqlen", "position_ids"))
    assert list(packed) == ["input_ids", "label", "max_seqlen", "position_ids"]
    assert type(packed["max_seqlen"]) is int
    assert packed["position_ids"].tolist() == [step for n in packed["label"] for step in range(n)]
    assert packed["max_seqlen"] == max(packed["label"])


def test_what_is_left_out_takes_no_memory():
    dataset = bl.SequenceDataset(ids=SENTENCES)
    loader = bl.DataLoader(dataset, batch_size=3, extras=())
    list(loader)
    # Each batch begins at a multiple of 64 bytes, and so does each field of int64: [3, 4] and [3, 5].
    assert loader.metrics().bytes == 128 + 128


def test_an_array_without_marks_is_an_array():
    for device in (None, "cpu"):
        loader = bl.DataLoader(torch.arange(5), batch_size=3, ban=[1], extras=(), device=device)
        assert [batch.tolist() for batch in loader] == [[0, 0, 2], [3, 4]]


def test_functions_of_whole_batches_decide_what_they_return():
    def collate(samples):
        return {"attention_mask": numpy.array([len(sample["ids"]) for sample in samples]), "index": numpy.ones(1)}

    dataset = bl.SequenceDataset(ids=SENTENCES)
    found = next(iter(bl.DataLoader(dataset, batch_size=2, collate=collate, extras=())))
    assert {name: value.tolist() for name, value in found.items()} == {"attention_mask": [3, 1], "index": [1.0]}
    with refused(bl.ArgumentError, "'index'"):
        bl.DataLoader(dataset, batch_size=2, collate=collate, extras=["index"])


def test_fields_keep_the_places_by_which_arguments_name_them():
    dataset = bl.TokenDataset(torch.arange(50), 4, position_ids=True, segment_ids=True)
    fields = {2: bl.Field(dtype="int64")}
    _, _, segments = next(iter(bl.DataLoader(dataset, batch_size=2, extras=["segment_ids"], fields=fields)))
    assert segments.dtype == torch.int64
    assert segments.tolist() == [[1] * 4] * 2


@pytest.mark.law("L4")
@pytest.mark.parametrize("way", ["host", "resident", "streamed"])
def test_a_run_goes_on_with_other_extras(way):
    dataset, options = data("sequences")
    places = OF_KIND["sequences"]
    expected = [restricted(batch, places, ["index"]) for batch in on(way, dataset, **options)]
    first = on(way, dataset, extras=(), **options)
    taken = iter(first)
    begun = [restricted(next(taken), {}, ()) for _ in range(3)]
    assert begun == [[entry for entry in batch if entry[0] != "index"] for batch in expected[:3]]
    other = on(way, dataset, extras=["index"], **options)
    other.load_state_dict(first.state_dict())
    assert [restricted(batch, {}, ()) for batch in other] == expected[3:]


def test_a_pickle_has_the_same_extras():
    loader = bl.DataLoader(bl.SequenceDataset(ids=SENTENCES), batch_size=2, extras=["lengths"])
    assert list(next(iter(pickle.loads(pickle.dumps(loader))))) == ["ids", "lengths"]


@pytest.mark.parametrize(
    ("make", "extras", "known"),
    [
        (lambda: bl.SequenceDataset(ids=SENTENCES), ["mask"], [repr(name) for name in PADDED]),
        (lambda: bl.SequenceDataset(ids=SENTENCES), ["ids"], [repr(name) for name in PADDED]),
        (lambda: bl.GroupDataset([1, 1, 2], SERIES[:3], layout="padded"), ["group_ids"], ["'mask'"]),
        (lambda: bl.TensorDataset(SERIES), ["index"], ["()"]),
        (lambda: bl.MapDataset(SENTENCES, sizes=LENGTHS), ["weight"], [repr(name) for name in PADDED]),
        (lambda: bl.TensorDataset(SERIES), "index", ["('index',)"]),
        (lambda: bl.TensorDataset(SERIES), 3, ["()", "None"]),
        (lambda: bl.TensorDataset(SERIES), [2], ["()", "None"]),
        (lambda: bl.TensorDataset(SERIES), {"index": True}, ["()", "None"]),
        (lambda: bl.TensorDataset(SERIES), False, ["()", "None"]),
    ],
)
def test_other_names_are_refused_with_those_that_there_are(make, extras, known):
    with refused(bl.ArgumentError, "extras", *known):
        bl.DataLoader(make(), batch_size=2, extras=extras)


def test_loaders_of_libraries_keep_the_extras_that_they_read():
    with refused(bl.ArgumentError, "extras"):
        LibraryLoader(None, bl.WindowDataset(SERIES, 5, 2, mask=True), 4, lambda batch, _: batch, extras=())
