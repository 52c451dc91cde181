"""Fields beside windows: labels, covariates of series, places, and fields of steps around an anchor."""

import pickle

import batchloom as bl
import numpy
import pandas
import polars
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.windows import MODES, loader_of, modes, pretended, shapes
from refusals import refused

orders = st.sampled_from([False, "runs", True])


def of_windows(dataset):
    """A label for each different window: its number, and the number doubled."""
    windows = numpy.arange(dataset.stats().windows)
    return numpy.stack([windows, 2 * windows], axis=1)


def unique(shape):
    """The number of each sample among different windows."""
    seen = {}
    return [seen.setdefault(place, len(seen)) for place in shape.windows()]


def beside(shape, labels_of):
    """A dataset with labels, covariates and places, and what it holds beside the windows."""
    series = len(shape.lengths)
    static = numpy.arange(series, dtype=numpy.int16)[:, None] * 3 + numpy.arange(2)
    time = numpy.concatenate([numpy.arange(length) * 10 + 5 for length in shape.lengths])
    labels = {
        "windows": of_windows(shape.dataset()),
        "series": numpy.arange(series) + 100,
        "steps": numpy.arange(sum(shape.lengths)) + 1,
    }[labels_of]
    options = {"labels": labels, "labels_of": labels_of, "static": static, "time": time, "index": True}
    return shape.dataset(mask=True, **options), labels, static


def expected(shape, labels_of, labels, static, samples):
    """The fields beside the windows of some samples, by definition."""
    windows, numbers = shape.windows(), unique(shape)
    places = [windows[sample] for sample in samples]
    start = [first - missing for _, first, missing in places]
    found = {
        "static": numpy.stack([static[series] for series, _, _ in places]),
        "series": [series for series, _, _ in places],
        "start": start,
        "time": [first * 10 + 5 for _, first, _ in places],
        "index": list(samples),
    }
    if labels_of == "steps":
        steps = shape.offsets()
        rows = [
            steps[series] + begin + numpy.arange(shape.input_len)
            for (series, _, _), begin in zip(places, start, strict=True)
        ]
        exists = [numpy.arange(shape.input_len) >= missing for _, _, missing in places]
        taken = [
            numpy.where(there, labels[numpy.where(there, row, 0)], 0) for row, there in zip(rows, exists, strict=True)
        ]
        return found | {"labels": numpy.stack(taken)}
    rows = {"windows": [numbers[sample] for sample in samples], "series": found["series"]}[labels_of]
    return found | {"labels": labels[rows]}


@pytest.mark.law("L9")
@given(
    shape=shapes(),
    labels_of=st.sampled_from(["windows", "series", "steps"]),
    order=orders,
    size=st.integers(1, 9),
    mode=modes("jax"),
)
def test_batches_hold_what_is_beside_their_windows(shape, labels_of, order, size, mode):
    dataset, labels, static = beside(shape, labels_of)
    loader = loader_of(dataset, mode, size, shuffle=order)
    plan = loader.plan(0)
    for samples, batch in zip(plan, loader, strict=True):
        wanted = expected(shape, labels_of, labels, static, samples.tolist())
        for name, value in wanted.items():
            found = numpy.asarray(batch[name])
            assert numpy.array_equal(found, value), name
        assert tuple(batch) == dataset.names
        *_, mask = shape.stack(samples)[-1:]
        assert numpy.array_equal(numpy.asarray(batch["target_mask" if shape.horizon else "mask"]), mask)


@given(shape=shapes(), labels_of=st.sampled_from(["windows", "series", "steps"]))
def test_a_sample_is_a_batch_of_one(shape, labels_of):
    dataset, *_ = beside(shape, labels_of)
    loader = bl.DataLoader(dataset, 1, buffers="own")
    for sample, batch in enumerate(loader):
        one = dataset[sample]
        assert tuple(one) == tuple(batch)
        assert all(numpy.array_equal(one[name], batch[name][0]) for name in one)


@given(shape=shapes(sampled_by="windows"), chosen=st.data())
def test_places_say_where_a_window_is_and_back(shape, chosen):
    dataset = shape.dataset(index=True)
    for sample in range(len(dataset)):
        place = dataset.place(sample)
        assert dataset.sample_at(place.series, place.start) == sample
        assert (dataset[sample]["series"], dataset[sample]["start"]) == place[:2]
    some = chosen.draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, unique=True))
    selected = dataset.select(some)
    batch = next(iter(bl.DataLoader(selected, len(some), buffers="own")))
    assert batch["index"].tolist() == list(range(len(some)))
    for sample, (series, start) in enumerate(zip(batch["series"].tolist(), batch["start"].tolist(), strict=True)):
        assert selected.sample_at(series, start) == sample


@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
def test_labels_may_be_named_time_where_no_place_is(options):
    labels = numpy.arange(6.0)
    dataset = bl.WindowDataset(numpy.arange(10.0), 4, 1, labels={"time": labels}, labels_of="windows")
    (batch,) = bl.DataLoader(dataset, 6, **options)
    assert batch["time"].tolist() == batch["x"][:, 0].tolist()
    with pytest.raises(bl.ArgumentError, match="time"):
        bl.WindowDataset(numpy.arange(10.0), 4, 1, labels={"time": labels}, labels_of="windows", index=True)


def test_places_of_windows_around_an_anchor_are_those_of_batches():
    values = {"state": numpy.arange(7.0), "action": numpy.arange(14.0).reshape(7, 2)}
    dataset = bl.WindowDataset(values, offsets={"state": [-2, 0], "action": range(3)}, index=True)
    for sample in range(len(dataset)):
        place = dataset.place(sample)
        assert (dataset[sample]["series"], dataset[sample]["step"], dataset[sample]["index"]) == (*place[:2], sample)
        assert dataset.sample_at(*place[:2]) == sample


@pytest.mark.parametrize("framework", ["jax", "numpy"])
def test_covariates_of_another_framework_than_the_series(framework):
    static = numpy.arange(6.0, dtype="float32").reshape(2, 3)
    given = pytest.importorskip("jax").numpy.asarray(static) if framework == "jax" else static
    dataset = bl.WindowDataset([torch.zeros(9), torch.zeros(8)], 4, 2, static=given, index=True)
    for batch in bl.DataLoader(dataset, 2):
        assert type(batch["static"]).__module__.startswith(framework)
        assert numpy.array_equal(numpy.asarray(batch["static"]), static[batch["series"].numpy()])


@pytest.mark.law("L9")
@given(shape=shapes(stride=1, sampled_by="windows", short="drop", whole=True), shuffle=orders, mode=modes("jax"))
def test_labels_of_windows_stay_with_them_in_splits_and_selections(shape, shuffle, mode):
    dataset = shape.dataset()
    dataset = shape.dataset(labels=of_windows(dataset), labels_of="windows", index=True)
    whole = {tuple(dataset.place(sample)): sample for sample in range(len(dataset))}
    try:
        parts = dataset.split(early=0.5, late=0.5)
    except bl.DataError:
        return
    for part in [*parts, *(part.select(slice(None, None, -2)) for part in parts)]:
        loader = loader_of(part, mode, 4, shuffle=shuffle)
        for samples, batch in zip(loader.plan(0), loader, strict=True):
            numbers = [whole.get(tuple(part.place(sample))) for sample in samples.tolist()]
            # Windows that begin before their series are others in a part that reaches back.
            known = [number for number in numbers if number is not None]
            found = numpy.asarray(batch["labels"])[:, 0].tolist()
            assert [label for label, number in zip(found, numbers, strict=True) if number is not None] == known


def test_a_series_of_neighbours_repeats_its_row_by_a_view():
    static = torch.randn(2, 50)
    dataset = bl.WindowDataset(
        [torch.randn(100, 3), torch.randn(90, 3)], 10, 2, static=static, labels=torch.arange(168)
    )
    batch = next(iter(bl.DataLoader(dataset, batch_size=32)))
    assert batch["static"].stride() == (0, 1)
    assert batch["static"].untyped_storage().nbytes() == 50 * 4
    assert batch["labels"].tolist() == list(range(32))
    batch["labels"] += 1
    assert batch["static"][0].equal(static[0])
    assert next(iter(bl.DataLoader(dataset, batch_size=32)))["labels"].tolist() == list(range(32))


@st.composite
def anchored(draw):
    """Lengths of series, the steps of two fields, and the treatment of what lies outside."""
    step = st.integers(-5, 5)
    fields = {name: draw(st.lists(step, min_size=1, max_size=4)) for name in ("state", "action")}
    ranged = draw(st.booleans())
    if ranged:
        fields["action"] = list(range(0, draw(st.integers(1, 9)), draw(st.integers(1, 3))))
    return draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)), fields, draw(st.sampled_from(["pad", "drop"]))


def anchors(lengths, fields, short):
    """The series and the anchor of every sample."""
    low, high = min(0, *map(min, fields.values())), max(0, *map(max, fields.values()))
    every = [(series, step) for series, length in enumerate(lengths) for step in range(length)]
    return [
        (series, step)
        for series, step in every
        if short == "pad" or (step + low >= 0 and step + high < lengths[series])
    ]


@pytest.mark.law("L8")
@given(case=anchored(), order=orders, size=st.integers(1, 9), mode=modes("jax"), stride=st.integers(1, 3))
def test_fields_take_steps_around_an_anchor(case, order, size, mode, stride):
    lengths, fields, short = case
    places = anchors(lengths, fields, short)
    if stride > 1:
        by_series = [[place for place in places if place[0] == series] for series in range(len(lengths))]
        places = [place for series in by_series for place in series[::stride]]
    total = sum(lengths)
    data = {"state": numpy.arange(total * 2).reshape(total, 2) + 1, "action": numpy.arange(total) + 1000}
    ids = numpy.repeat(numpy.arange(len(lengths)), lengths)
    options = {"offsets": fields, "id": "episode", "short": short, "mask": True, "index": True, "stride": stride}
    if not places:
        with pytest.raises(bl.DataError):
            bl.WindowDataset({"episode": ids, **data}, **options)
        return
    dataset = bl.WindowDataset({"episode": ids, **data}, **options)
    assert len(dataset) == len(places)
    starts = numpy.cumsum([0, *lengths])
    loader = loader_of(dataset, mode, size, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        for name, steps in fields.items():
            for place, sample in enumerate(samples.tolist()):
                series, anchor = places[sample]
                exists = [0 <= anchor + step < lengths[series] for step in steps]
                rows = [
                    data[name][starts[series] + anchor + step] if there else 0 * data[name][0]
                    for step, there in zip(steps, exists, strict=True)
                ]
                assert numpy.array_equal(numpy.asarray(batch[name][place]), numpy.stack(rows))
                assert numpy.asarray(batch[f"{name}_mask"][place]).tolist() == exists
        assert [
            tuple(pair)
            for pair in zip(numpy.asarray(batch["series"]).tolist(), numpy.asarray(batch["step"]).tolist(), strict=True)
        ] == [places[sample] for sample in samples.tolist()]
    for sample, place in enumerate(places):
        assert dataset.sample_at(*place) == sample


def test_offsets_at_equal_distances_are_views():
    data = {"state": torch.randn(100, 4), "action": torch.randn(100, 2)}
    dataset = bl.WindowDataset(data, offsets={"state": [-4, -2, 0], "action": range(16)}, short="drop")
    batch = next(iter(bl.DataLoader(dataset, batch_size=8)))
    assert batch["state"].shape == (8, 3, 4)
    assert batch["state"].stride() == (4, 8, 1)
    assert batch["state"].untyped_storage().data_ptr() == data["state"].untyped_storage().data_ptr()
    assert torch.equal(batch["action"][3], data["action"][7 : 7 + 16])


@pytest.mark.parametrize("mode", MODES)
def test_pickles_and_resumes_keep_what_is_beside(mode):
    series = numpy.arange(60.0, dtype=numpy.float32)
    output = {"labels": numpy.arange(53), "static": numpy.ones((1, 2), numpy.float32), "index": True}
    dataset = bl.WindowDataset(series, (3, 6), 5, **output)
    dataset = pickle.loads(pickle.dumps(dataset))
    whole = [
        {name: numpy.asarray(value) for name, value in batch.items()}
        for batch in loader_of(dataset, mode, 7, shuffle=True)
    ]
    loader = loader_of(dataset, mode, 7, shuffle=True)
    batches = iter(loader)
    next(batches), next(batches)
    resumed = loader_of(dataset, mode, 7, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    rest = [{name: numpy.asarray(value) for name, value in batch.items()} for batch in resumed]
    assert len(rest) == len(whole) - 2
    for found, batch in zip(rest, whole[2:], strict=True):
        assert all(numpy.array_equal(found[name], batch[name]) for name in batch)


def test_marks_of_places_that_fill_up_come_once():
    dataset = bl.WindowDataset(numpy.arange(20.0), 3, index=True)
    for options in ({"uneven": "mask", "world_size": 3, "rank": 2}, {"ban": [4]}):
        for batch in bl.DataLoader(dataset, 4, shuffle=True, **options):
            assert list(batch)[-2:] == ["index", "weight"]
            filled = numpy.asarray(batch["index"]) < 0
            assert (numpy.asarray(batch["weight"]) == ~filled).all()


FRAME = {
    "store": ["n"] * 30 + ["s"] * 40,
    "day": numpy.concatenate([numpy.arange(30), numpy.arange(40)]),
    "sales": numpy.arange(70.0),
    "kind": numpy.repeat([3, 5], [30, 40]),
    "alarm": numpy.arange(70) % 7 == 0,
}


@pytest.mark.parametrize("frame", [dict, pandas.DataFrame, polars.DataFrame])
def test_columns_of_frames(frame):
    options = {"id": "store", "time": "day", "targets": "sales", "labels": "alarm", "static": ["kind"], "index": True}
    dataset = bl.WindowDataset(frame(FRAME), 7, 2, **options)
    assert dataset.fields["x"].shape == (70, 1)
    batch = next(iter(bl.DataLoader(dataset, batch_size=60, buffers="own")))
    assert batch["static"][:, 0].tolist() == [3] * 22 + [5] * 32
    assert batch["labels"].shape == (54, 7)
    assert batch["labels"][0].tolist() == [True] + [False] * 6
    assert batch["time"][:3].tolist() == [0, 1, 2]


def test_a_frame_of_covariates_is_matched_by_id():
    static = pandas.DataFrame({"store": ["s", "x", "n"], "kind": [5, 9, 3], "size": [1.5, 9.0, 2.5]})
    frame = {name: FRAME[name] for name in ("store", "day", "sales")}
    dataset = bl.WindowDataset(frame, 7, 2, id="store", time="day", static=static)
    assert dataset.fields["static"].tolist() == [[3, 2.5], [5, 1.5]]


def test_times_are_those_of_first_steps():
    time = numpy.datetime64("2024-02-28") + numpy.arange(30).astype("timedelta64[D]")
    dataset = bl.WindowDataset(numpy.arange(30.0), (2, 4), 1, time=time, index=True)
    batch = next(iter(bl.DataLoader(dataset, batch_size=5, buffers="own")))
    assert batch["start"].tolist() == [-2, -1, 0, 1, 2]
    assert batch["time"].view(dataset.times.dtype).tolist() == [time[k].item() for k in (0, 0, 0, 1, 2)]


def test_labels_of_windows_are_not_those_of_steps_that_were_given():
    frame = {"t": numpy.array([0, 1, 3, 4]), "v": numpy.arange(4.0)}
    options = {"time": "t", "freq": 1, "fill": "forward"}
    with refused(bl.ArgumentError, "labels", "4", "windows", "steps", "labels_of="):
        bl.WindowDataset(frame, 2, **options, labels=numpy.arange(4))
    dataset = bl.WindowDataset(frame, 2, **options, labels=numpy.arange(4), labels_of="windows")
    assert dataset.fields["labels"].tolist() == [0, 1, 2, 3]
    dataset = bl.WindowDataset(frame, 2, **options, labels=numpy.arange(4), labels_of="steps")
    assert dataset.fields["labels"].tolist() == [0, 1, 1, 2, 3]
    with refused(bl.ArgumentError, "labels_of", "windows", "'v'", "steps"):
        bl.WindowDataset({**frame, "w": frame["v"]}, 2, time="t", labels="v", labels_of="windows")


@pytest.mark.law("W1")
def test_values_that_are_filled_from_later_steps_reach_into_no_part():
    times = numpy.array([0, 1, 2, 3, 4, 5, 8, 9, 10, 11])
    dataset = bl.WindowDataset(numpy.arange(10.0), 2, 1, time=times, freq=1, fill="linear")
    for end in (7, 8):
        with refused(bl.DataError, f"step {end}", "series 0", "fill='linear'"):
            dataset.split(train=end, test=None)
    with refused(bl.DataError, "step 7", "series 0"):
        list(dataset.backtest(1, start=6))
    train, _ = dataset.split(train=6, test=None)
    assert len(train) == 4


def test_samples_are_drawn_by_labels_of_windows_and_of_series():
    rare = (numpy.arange(91) % 10 == 0).astype(int)
    dataset = bl.WindowDataset(numpy.arange(100.0), 10, labels=rare, index=True)
    batch = next(iter(bl.DataLoader(dataset, 40, shuffle=True, balanced_by="labels")))
    assert 15 <= batch["labels"].sum() <= 25
    part = dataset.split(a=0.5, b=0.5)[1].select(slice(None, None, 2))
    batch = next(iter(bl.DataLoader(part, 20, shuffle=True, balanced_by="labels")))
    assert 5 <= batch["labels"].sum() <= 15
    two = bl.WindowDataset([numpy.arange(30.0), numpy.arange(60.0)], 10, labels=numpy.array([3, 5]), index=True)
    assert two.series.tolist() == [0] * 21 + [1] * 51
    assert len(two.select(two.series < 1)) == 21
    for batch in bl.DataLoader(two, 8, shuffle=True, homogeneous_by="labels"):
        assert len(set(batch["labels"].tolist())) == 1


@pytest.mark.parametrize("options", [{}, {"shuffle": "runs"}, {"shuffle": True}])
def test_banned_windows_are_cleared_on_devices_too(options):
    series = torch.arange(40.0)
    series[3] = float("nan")
    dataset = bl.WindowDataset(series, 2, labels=torch.arange(39), index=True)
    with pretended():
        loaders = [bl.DataLoader(dataset, 8, ban=[2, 3], **options, **more) for more in ({}, {"device": "meta"})]
    for host, device in zip(*loaders, strict=True):
        assert all(torch.equal(host[name], device[name]) for name in host)
        assert not host["x"].isnan().any()


def test_bad_input():
    series = numpy.arange(40.0)
    two = [numpy.arange(30.0), numpy.arange(20.0)]
    make = bl.WindowDataset
    with refused(bl.DataError, "labels", "7", "32", "1", "40"):
        make(series, 8, 1, labels=numpy.arange(7))
    with refused(bl.DataError, "labels", "7", "32", "windows"):
        make(series, 8, 1, labels=numpy.arange(7), labels_of="windows")
    with refused(bl.ArgumentError, "labels", "40", "windows", "steps", "labels_of="):
        make(series, 1, labels=numpy.arange(40))
    with refused(bl.ArgumentError, "labels_of", "'rows'"):
        make(series, 8, labels=numpy.arange(33), labels_of="rows")
    with refused(bl.ArgumentError, "labels_of", "labels"):
        make(series, 8, labels_of="steps")
    with refused(bl.DataError, "static", "3", "2"):
        make(two, 8, static=numpy.zeros((3, 2)))
    with refused(bl.DataError, "static", "'kind'", "series 1", "step 2"):
        make(dict(FRAME, kind=numpy.repeat([3, 5, 6], [30, 2, 38])), 7, id="store", time="day", static=["kind"])
    with refused(bl.DataError, "static", "'s'"):
        frame = {name: FRAME[name] for name in ("store", "sales")}
        make(frame, 7, id="store", static=pandas.DataFrame({"store": ["n"], "kind": [3]}))
    with refused(bl.ArgumentError, "start", "another name"):
        make(two, 8, labels={"start": numpy.zeros(2)}, labels_of="series", index=True)
    with refused(bl.ArgumentError, "input_len", "(1, 2, 3)"):
        make(series, (1, 2, 3))
    with refused(bl.ArgumentError, "input_len", "5"):
        make(series, (6, 5))
    with refused(bl.ArgumentError, "input_len", "offsets"):
        make(series)
    with refused(bl.ArgumentError, "input_len", "offsets"):
        make({"x": series}, 5, offsets={"x": [0]})
    with refused(bl.ArgumentError, "offsets", "ndarray"):
        make(series, offsets={"x": [0]})
    with refused(bl.ArgumentError, "'speed'", "'state'"):
        make({"state": series}, offsets={"speed": [0]})
    with refused(bl.ArgumentError, "state", "1.5"):
        make({"state": series}, offsets={"state": [1.5]})
    with refused(bl.ArgumentError, "horizon", "offsets"):
        make({"state": series}, horizon=3, offsets={"state": [0]})
    with refused(bl.DataError, "action", "30", "40"):
        make({"state": series, "action": numpy.arange(30)}, offsets={"state": [0], "action": [0]})
    with refused(bl.DataError, "static", "list"):
        make(two, 8, static=[object(), object()])
    with refused(bl.DataError, "series 0", "40 steps", "50 (state)"):
        make({"state": series}, offsets={"state": range(51)}, short="error")
    with refused(bl.RangeError, "series 0", "-1"):
        make(series, 8).sample_at(0, -1)
    with refused(bl.ArgumentError, "stride", "3"):
        labelled = make(series, 8, 1, stride=3, labels=numpy.arange(11), labels_of="windows")
        labelled.split(train=19, test=None)
