"""Writes into batches that are views are noticed by the end of their step, and nothing else is."""

import itertools
import pickle
import warnings

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.windows import equal, loader_of, modes, shapes
from refusals import refused

WAYS = modes("jax")


def torch_series(values):
    return torch.tensor(values)


def closed(batches):
    batches.close()


@pytest.mark.law("W4")
@given(
    shape=shapes(horizon=2, sampled_by="windows"),
    mode=WAYS,
    order=st.sampled_from([False, "runs"]),
    size=st.integers(2, 8),
    data=st.data(),
)
def test_a_write_to_a_window_is_an_error_that_names_it(shape, mode, order, size, data):
    dataset = shape.dataset(torch_series, targets=data.draw(st.sampled_from([None, [1], [0, 2]])))
    loader = loader_of(dataset, mode, size, shuffle=order, buffers="checked")
    epoch = data.draw(st.integers(0, 2))
    loader.set_epoch(epoch)
    step = data.draw(st.integers(0, len(loader) - 1))
    plan, batches = loader.plan(), iter(loader)
    batch = next(itertools.islice(batches, step, None))
    field = data.draw(st.sampled_from([0, 1]))
    window = data.draw(st.integers(0, len(batch[field]) - 1))
    end = data.draw(st.sampled_from([next, closed, list]))
    series = dataset.fields["x"].clone()
    batch[field][window] += 1
    samples = plan[step]
    if mode in ("copy", "device copy") or not shape.is_view(samples):
        assert len(list(batches)) == len(loader) - step - 1
        assert (dataset.fields["x"] == series).all()
        return
    sample = samples[window]
    place = dataset.place(sample)
    with refused(
        bl.DataError,
        f"step {step} of epoch {epoch}",
        f"{'xy'[field]} of sample {sample}, a window from step {place.start} of series {place.series}",
        'buffers="own"',
    ):
        end(batches)


@pytest.mark.law("W4")
@given(shape=shapes(), mode=modes(), order=st.sampled_from([False, "runs", True]), size=st.integers(1, 8))
def test_batches_are_the_same_where_they_are_checked(shape, mode, order, size):
    plain, checked = (
        loader_of(shape.dataset(mask=True), mode, size, shuffle=order, buffers=buffers)
        for buffers in ("views", "checked")
    )
    found = list(zip(plain, checked, strict=True))
    assert all(equal(batch, [numpy.asarray(part) for part in other]) for batch, other in found)
    assert plain.state_dict() == checked.state_dict()


LINES = {
    "centred": lambda x: x.sub_(x.mean(1, keepdim=True)),
    "noise": lambda x: x.add_(torch.ones_like(x)),
    "one value": lambda x: x[-1, -1].zero_(),
    "the sign of a zero": lambda x: x.mul_(torch.where(x == 0, -1.0, 1.0)),
    "a type of torch": lambda x: x.copy_(x.to(torch.float64) * 2),
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("layout", ["plain", "turned", "some columns"])
@pytest.mark.parametrize("order", [False, "runs"])
def test_lines_that_people_write(line, dtype, layout, order):
    values = torch.arange(120.0).reshape(40, 3).to(getattr(torch, dtype))
    values = {"plain": values, "turned": values.T.contiguous().T, "some columns": values[:, ::2]}[layout]
    values[3] = torch.nan
    values[::7, 0] = 0
    values[6] = 5
    loader = bl.DataLoader(bl.WindowDataset(values, 4, 2), 6, order, buffers="checked")
    for x, y in loader:
        assert x.sum() is not y  # reading is free, NaN or not
    batches = iter(loader)
    x, _ = next(batches)
    LINES[line](x)
    with refused(bl.DataError, "step 0 of epoch 1", "x of sample"):
        next(batches)


def test_a_write_to_the_series_of_numpy_is_noticed():
    values, past = numpy.arange(60.0).reshape(30, 2), numpy.arange(30)
    dataset = bl.WindowDataset(values, 4, 2, past={"past": past})
    batches = iter(bl.DataLoader(dataset, 6, buffers="checked"))
    for wrote, named in [((values,), {"x", "y"}), ((past,), {"past"}), ((values, past), {"x", "past"})]:
        next(batches)
        for array in wrote:
            array[:] += 1
        with pytest.raises(bl.DataError) as caught:
            next(batches)
        assert {name for name in ("x", "y", "past") if f"{name} of sample" in str(caught.value)} >= named - {"y"}


@pytest.mark.parametrize("field", ["static", "series", "mask", "target_mask", "numbers"])
def test_a_write_to_a_row_that_windows_share_is_noticed(field):
    static = {"static": torch.ones(2, 3), "numbers": numpy.arange(2)}
    dataset = bl.WindowDataset([torch.zeros(21), torch.zeros(20)], 4, 2, static=static, index=True, mask=True)
    batches = iter(bl.DataLoader(dataset, 4, buffers="checked"))
    next(batches)
    batch = next(batches)
    if field == "numbers":
        with pytest.raises(ValueError, match="read-only"):  # NumPy says so itself
            batch[field][1] = 5
    else:
        try:
            batch[field][1] = 0 if "mask" in field else 5
        except RuntimeError as error:
            if "single memory location" not in str(error):
                raise
            pytest.skip(f"torch {torch.__version__} says so itself: {error}")
    if field == "numbers":
        next(batches)
        return
    with refused(bl.DataError, f"step 1 of epoch 0 wrote to {field}, of which the 4 windows", 'buffers="own"'):
        next(batches)


def test_the_last_batch_is_checked_at_the_end_of_the_epoch():
    loader = bl.DataLoader(bl.WindowDataset(torch.zeros(21), 4, 2), 4, buffers="checked")
    batches = iter(loader)
    for _ in range(len(loader)):
        _, y = next(batches)
    y[-1] = 3
    with refused(bl.DataError, "step 3 of epoch 0", "y of sample 15"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_an_error_loses_no_batch_and_restores_nothing():
    values = torch.arange(40.0)
    loader = bl.DataLoader(bl.WindowDataset(values, 4, 2), 5, buffers="checked")
    batches = iter(loader)
    x, _ = next(batches)
    x += 1000
    assert values[0] > 999
    with refused(bl.DataError, "step 0"):
        next(batches)
    assert values[0] > 999
    assert loader.remaining == len(loader) - 1
    assert len(list(batches)) == len(loader) - 1


def test_a_loop_that_is_left_gets_a_warning():
    loader = bl.DataLoader(bl.WindowDataset(torch.zeros(30), 4, 2), 4, buffers="checked")

    def leave(write):
        for x, _ in loader:
            x += write
            break

    with pytest.warns(RuntimeWarning, match="step 0 of epoch 0 wrote to x of sample 0"):
        leave(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leave(0)


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_environment_checks_too(monkeypatch, value, is_on):
    monkeypatch.setenv("BATCHLOOM_CHECK", value)
    batches = iter(bl.DataLoader(bl.WindowDataset(torch.zeros(30), 4, 2), 4))
    next(batches)[0].add_(1)
    if is_on:
        with refused(bl.DataError, "step 0"):
            next(batches)
    else:
        next(batches)


def test_what_is_not_checked_is_not_wrapped(monkeypatch):
    dataset = bl.WindowDataset(torch.zeros(30), 4, 2)
    assert type(iter(bl.DataLoader(dataset, 4))).__module__ == "batchloom._native"
    monkeypatch.setenv("BATCHLOOM_CHECK", "1")
    for options in ({"buffers": "own"}, {"shuffle": True}, {"buffers": "static"}):
        loader = bl.DataLoader(dataset, 4, **options)
        for x, y in loader:
            x += 1
            y += 1
        assert (dataset.fields["x"] == 0).all()
    for x in bl.DataLoader(torch.zeros(30), 4, buffers="checked"):
        x += 1
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(iter(bl.DataLoader(dataset, 4, buffers="checked")))
    assert pickle.loads(pickle.dumps(bl.DataLoader(dataset, 4, buffers="checked")))._recipe["buffers"] == "checked"


def test_pieces_of_a_stream_are_checked_too():
    batches = iter(bl.DataLoader(bl.TokenDataset(torch.arange(100), seq_len=7), 3, buffers="checked"))
    next(batches)
    x, _ = next(batches)
    x[1, 2] = -1
    with refused(bl.DataError, "step 1 of epoch 0", "x of sample 4", "step 28 of series 0"):
        next(batches)


def test_patches_ids_and_strides():
    frame = {"id": numpy.repeat(["north", "south"], 20), "a": torch.arange(40.0).numpy()}
    dataset = bl.WindowDataset(frame, 6, 2, id="id", stride=3, patch_len=2)
    batches = iter(bl.DataLoader(dataset, 3, output="torch", buffers="checked"))
    for _ in range(3):
        x, _ = next(batches)
    x[-1] += 1
    sample = 8
    with refused(bl.DataError, f"x of sample {sample}", f"step {dataset.place(sample).start} of series 1 ('south')"):
        next(batches)
