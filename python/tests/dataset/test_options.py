"""Options are attributes: a dataset tells each option with which it was made, by its name."""

import inspect
import pickle

import batchloom as bl
import numpy
import pandas
import pytest

SERIES = numpy.arange(60.0)
FRAME = pandas.DataFrame({"name": ["a"] * 30 + ["b"] * 30, "x": SERIES, "y": SERIES, "z": SERIES})
IDS = [[1, 2], [3], [4, 5, 6]]


def length(item):
    return len(item)


# Arguments that are data: fields, times and sizes hold them.
DATA = {
    bl.TensorDataset: {"fields", "named"},
    bl.SequenceDataset: {"table", "fields"},
    bl.GroupDataset: {"group_ids", "arrays", "named"},
    bl.TokenDataset: {"documents"},
    bl.WindowDataset: {"past", "future", "labels", "static", "timed", "marks", "time"},
    bl.MapDataset: {"key"},  # which made the sizes
    bl.ConcatDataset: set(),
    bl.Mixture: {"sources"},
}
# Names that have another meaning as attributes: the beginnings of series, and the step that offsets are counted from.
TAKEN = {bl.WindowDataset: {"series", "offsets", "anchor"}}


class Chunked:
    """Items in chunks."""

    chunks = (3, 4)

    def read_chunk(self, chunk):
        return numpy.arange(self.chunks[chunk])


CASES = [
    (bl.TensorDataset, lambda **options: bl.TensorDataset(SERIES, **options), {}),
    (
        bl.SequenceDataset,
        lambda **options: bl.SequenceDataset(ids=IDS, to=IDS[::-1], **options),
        {"sizes": [1, 2, 3], "own_lengths": ("to",), "of": "sum", "layout": "concatenated", "dim": {"to": 0}},
    ),
    (
        bl.GroupDataset,
        lambda **options: bl.GroupDataset([0, 0, 0, 1, 1], x=SERIES[:5], **options),
        {"layout": "padded", "max_rows": 2, "oversize": "subsample", "shuffle_rows": True},
    ),
    (
        bl.TokenDataset,
        lambda **options: bl.TokenDataset(numpy.arange(60), **options),
        {"seq_len": 5, "mode": "chunk", "separator": 3, "position_ids": True, "segment_ids": True, "resets": True}
        | {"jitter": True, "tail": "drop"},
    ),
    (
        bl.TokenDataset,
        lambda **options: bl.TokenDataset(numpy.arange(60), **options),
        {"seq_len": 5, "mode": "continuous", "tail": "pad"},
    ),
    (
        bl.WindowDataset,
        lambda **options: bl.WindowDataset(FRAME, **options),
        {"input_len": (2, 6), "horizon": 2, "label_len": 1, "gap": 1, "stride": 2, "targets": ["x"], "id": "name"}
        | {"columns": ["x", "y"], "short": "pad", "sampled_by": "series", "mask": True, "index": True},
    ),
    (
        bl.WindowDataset,
        lambda **options: bl.WindowDataset(SERIES, time=numpy.arange(60), labels=SERIES[:2], **options),
        {"input_len": 6, "freq": 1, "fill": "zero", "patch_len": 2, "patch_stride": 1, "patch_pad": "end"}
        | {"labels_of": "windows", "stride": 30},
    ),
    (
        bl.MapDataset,
        lambda **options: bl.MapDataset(IDS, **options),
        {"fn": length, "sizes": [2, 1, 3], "columns": ("0",), "on_error": "skip", "workers": "threads"},
    ),
    (bl.MapDataset, lambda **options: bl.MapDataset(Chunked(), **options), {"chunks_open": 2}),
    (bl.MapDataset, lambda **options: bl.MapDataset(Chunked(), **options), {"memory": 1000}),
    (
        bl.ConcatDataset,
        bl.ConcatDataset,
        {"datasets": (bl.TensorDataset(SERIES), bl.TensorDataset(SERIES)), "source": True},
    ),
    (
        bl.Mixture,
        lambda **options: bl.Mixture({"a": bl.TensorDataset(SERIES), "b": bl.TensorDataset(SERIES)}, **options),
        {"weights": {"a": 1.0, "b": 2.0}, "schedule": [(9, {"a": 1.0, "b": 1.0})], "by": "samples"}
        | {"when_exhausted": "repeat"},
    ),
]


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize(("kind", "make", "options"), CASES, ids=[case[0].__name__ for case in CASES])
def test_options_are_attributes_of_a_dataset_and_its_parts(kind, make, options):
    dataset = make(**options)
    for name, value in options.items():
        assert plain(getattr(dataset, name)) == value, name
    if kind is bl.Mixture:
        return
    others = [pickle.loads(pickle.dumps(dataset))]
    others += [] if kind in (bl.TokenDataset, bl.ConcatDataset) else [dataset.select(range(len(dataset)))[::-1]]
    for other in others:
        for name, value in options.items():
            if name not in ("sizes", "datasets"):
                assert plain(getattr(other, name)) == value, name


@pytest.mark.parametrize("kind", DATA, ids=lambda kind: kind.__name__)
def test_every_option_of_a_constructor_is_tested(kind):
    options = {*inspect.signature(kind).parameters} - DATA[kind] - TAKEN.get(kind, set())
    tested = {name for case in CASES if case[0] is kind for name in case[2]}
    assert tested | {"tokens", "items"} >= options
    assert all(hasattr(make(**given), name) for each, make, given in CASES if each is kind for name in options)


def test_parts_of_time_and_scaled_copies_have_the_options():
    train, _ = bl.WindowDataset(FRAME, 6, 2, id="name", stride=3).split(train=0.7, test=0.3)
    scaled = train.scale("standard")
    for dataset in (train, scaled):
        assert (dataset.input_len, dataset.horizon, dataset.stride, dataset.id) == (6, 2, 3, "name")
    assert (scaled.gap, scaled.patch_len, scaled.targets) == (0, None, None)


def test_changes_of_an_argument_reach_no_attribute():
    columns = ["x", "y"]
    dataset = bl.WindowDataset(FRAME, 6, id="name", columns=columns)
    columns.append("z")
    assert dataset.columns == ["x", "y"]
