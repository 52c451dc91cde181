"""Scales of series: fitted to the training part alone, applied once, and inverted."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler

TRANSFORMERS = {"standard": StandardScaler, "robust": RobustScaler, "minmax": MinMaxScaler}


def series_of(lengths: list[int], seed: int, columns: int = 3) -> list[numpy.ndarray[Any, Any]]:
    rng = numpy.random.default_rng(seed)
    return [rng.normal(rng.normal(0, 30), rng.uniform(0.1, 20), (length, columns)) for length in lengths]


@pytest.mark.law("W2")
@given(
    st.sampled_from(["standard", "robust", "minmax"]),
    st.lists(st.integers(12, 40), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_a_scale_is_that_of_the_training_part_alone(kind: str, lengths: list[int], each: bool, seed: int) -> None:
    series = series_of(lengths, seed)
    dataset = bl.WindowDataset(series, 3, 2, targets=[2, 0])
    parts = dataset.split(train=0.6, val=0.2, test=0.2, scale=kind, per_series=each)
    train = [rows[: int(len(rows) * 0.6)] for rows in series]
    fitted = [TRANSFORMERS[kind]().fit(rows) for rows in (train if each else [numpy.concatenate(train)])]
    expected = [(fitted[number] if each else fitted[0]).transform(rows) for number, rows in enumerate(series)]
    numpy.testing.assert_allclose(parts[0].fields["x"], numpy.concatenate(expected), rtol=1e-9, atol=1e-9)
    numpy.testing.assert_array_equal(parts[0].fields["y"], parts[0].fields["x"][:, [2, 0]])
    assert all(part.fields["x"] is parts[0].fields["x"] for part in parts)
    # What comes later moves nothing.
    for rows in series:
        rows[int(len(rows) * 0.6) :] *= 1000
    later = bl.WindowDataset(series, 3, 2).split(train=0.6, test=0.4, scale=kind, per_series=each)[0].scaler
    numpy.testing.assert_array_equal(later.center, parts[0].scaler.center)
    numpy.testing.assert_array_equal(later.scale, parts[0].scaler.scale)
    # Unscaling inverts.
    for part in parts:
        samples = range(len(part))
        y = numpy.stack([part[sample][1] for sample in samples])
        places = [part.place(sample) for sample in samples]
        stored = [dataset.fields["y"][dataset.offsets[place.series] + place.start + 3 :][:2] for place in places]
        found = part.unscale(y, samples) if each else part.unscale(y)
        numpy.testing.assert_allclose(found, numpy.stack(stored), rtol=1e-6, atol=1e-6)


@pytest.mark.law("W2")
@given(
    kind=st.sampled_from(["standard", "robust", "minmax"]),
    lengths=st.lists(st.integers(30, 60), min_size=1, max_size=3),
    label_len=st.integers(0, 3),
    later=st.sampled_from([0.0, 1e9, numpy.nan, numpy.inf]),
    each=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_what_comes_after_training_moves_no_scale(
    kind: str, lengths: list[int], label_len: int, later: float, each: bool, seed: int
) -> None:
    series = series_of(lengths, seed)
    time = [numpy.arange(length) for length in lengths]

    def scalers(rows: list[numpy.ndarray[Any, Any]]) -> Iterator[tuple[Any, int]]:
        """Yield each scale, and the step before which all lie to which it is fitted."""
        options = {"scale": kind, "per_series": each}
        dataset = bl.WindowDataset(rows, 3, 2, label_len=label_len, time=time)
        yield dataset.split(train=18.5, test=None, by="time", reach_back=False, **options)[1].scaler, 19
        yield dataset.split(train=20, val=25, test=None, **options)[2].scaler, 20
        for fold, (_, test) in enumerate(dataset.backtest(4, start=20, **options)):
            yield test.scaler, 20 + 4 * fold

    before = list(scalers(series))
    for place, (scaler, end) in enumerate(before):
        changed = [numpy.where(numpy.arange(len(rows))[:, None] < end, rows, later) for rows in series]
        found, _ = next(itertools.islice(scalers(changed), place, None))
        numpy.testing.assert_array_equal(found.center, scaler.center)
        numpy.testing.assert_array_equal(found.scale, scaler.scale)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_batches_are_those_of_a_series_scaled_by_hand(framework: str) -> None:
    rows = series_of([60], 3)[0].astype(numpy.float32)
    jax = pytest.importorskip("jax") if framework == "jax" else None
    given = {"numpy": rows, "torch": torch.from_numpy(rows)}.get(framework)
    dataset = bl.WindowDataset(jax.numpy.asarray(rows) if jax else given, 5, 2).scale("standard")
    by_hand = StandardScaler().fit(rows.astype(float)).transform(rows.astype(float)).astype(numpy.float32)
    for x, y in bl.DataLoader(dataset, 8):
        assert type(x).__module__.startswith({"numpy": "numpy", "torch": "torch", "jax": "jax"}[framework])
        back = dataset.unscale(y)
        assert type(back) is type(y)
        assert back.dtype == y.dtype
    windows = numpy.stack([numpy.asarray(x) for x, _ in dataset])
    expected = numpy.lib.stride_tricks.sliding_window_view(by_hand, 5, axis=0).swapaxes(1, 2)[: len(dataset)]
    numpy.testing.assert_allclose(windows, expected, rtol=1e-5, atol=1e-6)
    if framework != "jax":
        x, _ = next(iter(bl.DataLoader(dataset, 8)))
        assert numpy.shares_memory(numpy.asarray(x), numpy.asarray(dataset.fields["x"]))  # still a view


def test_types_and_shapes() -> None:
    for dtype, found in ((numpy.int16, "float32"), (numpy.float16, "float16"), (numpy.float64, "float64")):
        dataset = bl.WindowDataset(numpy.arange(50).astype(dtype), 4, 1).scale("minmax")
        assert dataset.fields["x"].dtype == found
        assert numpy.asarray(dataset.fields["x"])[-1] == 1
        assert dataset.unscale(dataset[3][1]).tolist() == pytest.approx([7], rel=1e-2)
    brain = torch.arange(100.0, dtype=torch.bfloat16)[:, None, None].expand(100, 2, 3)
    dataset = bl.WindowDataset(brain, 4, 1).scale("minmax")
    assert dataset.fields["x"].dtype == torch.bfloat16
    assert dataset.scaler.center.shape == (1, 2, 3)
    inputs = bl.WindowDataset(numpy.arange(50.0)[:, None] * [1, 2], 4).scale("robust")
    numpy.testing.assert_allclose(inputs.unscale(inputs[7][0]), numpy.arange(7.0, 11)[:, None] * [1, 2])


def test_missing_values_are_left_out() -> None:
    rows = series_of([80], 5)[0]
    rows[3:9, 1] = numpy.nan
    for kind in ("standard", "robust", "minmax"):
        found = bl.WindowDataset(rows, 4, 1).scale(kind).fields["x"]
        numpy.testing.assert_allclose(found, TRANSFORMERS[kind]().fit_transform(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.law("W2")
@pytest.mark.parametrize("kind", ["standard", "robust", "minmax"])
def test_columns_of_one_value_are_named_and_left_alone(kind: str) -> None:
    rows = series_of([50], 1)[0]
    rows[:30, 1] = 0.1
    with pytest.warns(UserWarning, match="column 1 is 0, so its values stay as they are"):
        train, test = bl.WindowDataset(rows, 4, 1).split(train=0.6, test=0.4, scale=kind)
    numpy.testing.assert_array_equal(train.fields["x"][:, 1], rows[:, 1])
    numpy.testing.assert_array_equal(test.unscale(test[0][1])[:, 1], rows[30, 1:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.WindowDataset(1e6 + rows[:, [0, 2]] * 1e-6, 4, 1).scale(kind)  # a small scale is one


def test_transformers_of_scikit_learn() -> None:
    rows = numpy.abs(series_of([90], 2)[0]) + 1
    dataset = bl.WindowDataset(rows, 4, 2, targets=[2])
    for transformer in (StandardScaler(), PowerTransformer()):
        with pytest.raises(bl.ArgumentError, match="was not fitted"):
            dataset.scale(transformer)
        fitted = transformer.fit(rows[:50])
        train, test = dataset.split(train=50, test=None, scale=fitted)
        numpy.testing.assert_allclose(test.fields["x"], fitted.transform(rows))
        assert train.scaler is fitted
        y = numpy.stack([y for _, y in test])
        expected = numpy.lib.stride_tricks.sliding_window_view(rows[50:, 2], 2)[..., None]
        numpy.testing.assert_allclose(test.unscale(y), expected)
        assert isinstance(test.unscale(torch.from_numpy(y)), torch.Tensor)


def test_frames_backtests_pickles_and_other_data() -> None:
    frame = {
        "id": numpy.repeat(["a", "b"], 60),
        "time": numpy.tile(numpy.arange(60), 2),
        "x": numpy.arange(120.0),
        "load": numpy.arange(120.0) ** 2,
        "temperature": numpy.arange(120.0) * -3,
    }
    dataset = bl.WindowDataset(frame, 6, 3, id="id", time="time", columns=["x", "temperature"], targets=["load"])
    for train, test in dataset.backtest(12, start=24, refit=2, scale="standard"):
        steps = max(place.start for place in map(train.place, range(len(train)))) + 9
        rows = numpy.concatenate([frame["load"][:steps], frame["load"][60 : 60 + steps]])
        assert train.scaler.target_center[0] == pytest.approx(rows.mean())
        assert test.scaler is train.scaler
    again = pickle.loads(pickle.dumps(test))
    numpy.testing.assert_array_equal(again.unscale(again[0][1]), test.unscale(test[0][1]))
    other = dataset.take(5).scale(test.scaler)
    numpy.testing.assert_array_equal(other[0][0], test.fields["x"][:6])
    assert len(other) == 5
    apart = dataset.scale("minmax", per_series=True)
    assert apart.fields["x"][[0, 59, 60, 119], 0].tolist() == [0, 1, 0, 1]
    y = numpy.stack([apart[sample][1] for sample in (0, len(apart) - 1)])
    found = apart.unscale(y, [0, len(apart) - 1])
    numpy.testing.assert_allclose(found[..., 0], frame["load"][[[6, 7, 8], [117, 118, 119]]])


@pytest.mark.law("W2")
def test_selected_windows_are_what_is_fitted() -> None:
    series = series_of([40, 30], 9, 1)
    dataset = bl.WindowDataset(series, 4, 2)
    for chosen in (slice(0, 10), [0, 3, 30, 40, 41], [50]):
        part = dataset.select(chosen)
        places = [part.place(sample) for sample in range(len(part))]
        held = sorted({(place.series, place.start + step) for place in places for step in range(6)})
        rows = numpy.array([series[number][step] for number, step in held])
        assert part.scale("standard").scaler.center[0] == pytest.approx(rows.mean())
        assert part.scale("minmax").scaler.scale[0] == pytest.approx(numpy.ptp(rows))


@pytest.mark.parametrize(
    ("series", "y", "expected"),
    [
        ("int64", "float32", "float64"),
        ("uint8", "bfloat16", "float64"),
        ("float32", "bfloat16", "float32"),
        ("bfloat16", "float16", "float32"),
        ("float16", "float16", "float16"),
        ("float32", "float64", "float64"),
        ("float32", "int64", "float64"),
    ],
)
@pytest.mark.parametrize("by", ["a scale", "a transformer"])
def test_units_come_in_the_wider_type(series: str, y: str, expected: str, by: str) -> None:
    values = torch.arange(40).reshape(20, 2).to(getattr(torch, series))
    scale = "standard" if by == "a scale" else StandardScaler().fit(values.double().numpy())
    dataset = bl.WindowDataset(values, 4, 2).scale(scale)
    given = torch.ones(3, 2, 2, dtype=getattr(torch, y), requires_grad=by == "a scale" and "float" in y)
    found = dataset.unscale(given)
    assert found.dtype == getattr(torch, expected)
    center, spread = values.double().mean(0), values.double().std(0, correction=0)
    torch.testing.assert_close(found.detach(), (spread + center).expand(3, 2, 2).to(found.dtype))
    assert found.requires_grad == given.requires_grad


@pytest.mark.parametrize("by", ["a scale", "a transformer"])
def test_predictions_may_be_none_or_a_list(by: str) -> None:
    values = numpy.arange(40.0).reshape(20, 2)
    dataset = bl.WindowDataset(values, 4, 2).scale("standard" if by == "a scale" else StandardScaler().fit(values))
    assert dataset.unscale(numpy.zeros((0, 2, 2))).shape == (0, 2, 2)
    assert dataset.unscale([[0.0, 0.0]]).tolist() == [pytest.approx(values.mean(0).tolist())]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("by", ["a scale", "a transformer"])
def test_integers_come_back_to_the_precision_of_their_scaled_values(framework: str, by: str) -> None:
    values = numpy.random.default_rng(0).integers(10**9, 10**9 + 1000, (50, 2))
    dataset = bl.WindowDataset(values, 4, 2).scale("minmax" if by == "a scale" else StandardScaler().fit(values))
    _, y = dataset[7]
    if framework == "jax":
        jax = pytest.importorskip("jax")
        found = dataset.unscale(jax.numpy.asarray(y))
        assert isinstance(found, jax.Array)
        numpy.testing.assert_allclose(numpy.asarray(found), values[11:13], rtol=1e-6)
        return
    found = dataset.unscale(y if framework == "numpy" else torch.from_numpy(y))
    numpy.testing.assert_allclose(numpy.asarray(found), values[11:13], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda dataset: dataset.scale("log"), "scale"),
        (lambda dataset: dataset.scale(3), "int"),
        (lambda dataset: dataset.unscale(numpy.zeros((1, 2, 2))), "expected scale"),
        (lambda dataset: dataset.scale("robust").scale("robust"), "scaled already"),
        (lambda dataset: dataset.scale("robust").unscale(numpy.zeros((1, 2, 3))), r"\(2,\)"),
        (lambda dataset: dataset.scale("robust", per_series=True).unscale(numpy.zeros((1, 2, 2))), "samples="),
        (lambda dataset: dataset.scale("minmax", per_series=True).unscale(numpy.zeros((1, 2, 2)), [0, 1]), "2 numbers"),
        (lambda dataset: bl.WindowDataset(numpy.arange(9.0), 2, 2).scale(dataset.scale("minmax").scaler), "shape"),
        (
            lambda dataset: bl.WindowDataset(numpy.ones((9, 2)), 2, 2).scale(
                dataset.scale("minmax", per_series=True).scaler
            ),
            "2 series, and there are 1",
        ),
        (lambda _: bl.WindowDataset(numpy.array([1.0, numpy.inf, 2, 3]), 2).scale("standard"), "not finite"),
        (lambda _: bl.WindowDataset(numpy.array([[1, numpy.nan]] * 9), 2).scale("robust"), "column 1 has no values"),
        (lambda dataset: dataset.scale("minmax").unscale(numpy.zeros((1, 2, 2), complex)), "complex128"),
        (
            lambda _: bl.WindowDataset([numpy.ones(9), numpy.full(9, numpy.nan)], 2).scale("minmax", per_series=True),
            "x of series 1: the minmax scale has no values",
        ),
        (lambda dataset: dataset.scale(StandardScaler), r"class StandardScaler; expected StandardScaler\(\)"),
        (lambda dataset: dataset.split(split="ett-hour"), r"expected split\('ett-hour'\)"),
        (lambda _: bl.WindowDataset(numpy.ones(9, complex), 2).scale("standard"), "complex"),
        (
            lambda _: bl.WindowDataset([numpy.arange(9.0), numpy.arange(1.0)], 2, 1, short="drop").split(
                train=0.5, test=0.5, scale="minmax", per_series=True
            ),
            "series 1 has no steps to fit",
        ),
    ],
)
def test_scales_that_make_no_sense(call: Any, message: str) -> None:
    dataset = bl.WindowDataset([numpy.arange(20.0).reshape(10, 2), numpy.arange(30.0).reshape(15, 2)], 2, 2)
    with pytest.raises(bl.Error, match=message):
        call(dataset)
