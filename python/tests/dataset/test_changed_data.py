"""Data that changes under the loader: resized tensors, files that were cut, values that are written anew."""

import os
import time

import batchloom as bl
import numpy
import pytest
import torch
from refusals import refused


def test_a_tensor_that_grew():
    X = torch.zeros(100, 4)
    loader = bl.DataLoader(bl.TensorDataset(rows=X), 10)
    X.resize_(1_000_000, 4)
    with refused(bl.DataError, "field rows", "resized", "(100, 4)", "(1000000, 4)"):
        next(iter(loader))
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.resize_(10, 10),
        lambda X: X.t_(),
        lambda X: X.unsqueeze_(0),
        lambda X: X.set_(torch.zeros(20, 20)),
        lambda X: setattr(X, "data", torch.zeros(20, 20)),
        lambda X: X.untyped_storage().resize_(1 << 24),
    ],
    ids=["resize_", "t_", "unsqueeze_", "set_", "data", "storage"],
)
def test_a_tensor_that_is_no_longer_what_it_was(change):
    X = torch.arange(400.0).reshape(20, 20).clone()
    data = bl.TensorDataset(X)
    loader = bl.DataLoader(data, 10)
    change(X)
    with refused(bl.DataError, "field 0"):
        next(iter(loader))


def test_a_tensor_that_grows_in_mid_epoch():
    X = torch.zeros(20_000, 1000)
    batches = iter(bl.DataLoader(bl.TensorDataset(X), 100, prefetch=1, num_threads=1))
    next(batches)
    # The old memory stays: the dataset holds it.
    X.data = torch.zeros(5, 5)
    with refused(bl.DataError, "field 0", "(20000, 1000)", "(5, 5)"):
        list(batches)
    assert next(batches, "end") == "end"


def test_numpy_itself_refuses_to_resize_what_is_borrowed():
    X = numpy.zeros(100)
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    with pytest.raises(ValueError, match="cannot resize"):
        X.resize(1000)
    assert len(list(loader)) == 10


def test_an_array_that_is_resized_against_all_warnings():
    X = numpy.zeros(100)
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X.resize(1_000_000, refcheck=False)
    with refused(bl.DataError, "field 0", "(100,)", "(1000000,)"):
        next(iter(loader))


def test_an_array_that_is_reshaped_in_place():
    X = numpy.zeros((100, 4))
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X.resize(4, 100, refcheck=False)
    with refused(bl.DataError, "field 0", "(100, 4)", "(4, 100)"):
        next(iter(loader))


def mapped(tmp_path, samples=4_000_000):
    path = tmp_path / "rows.npy"
    numpy.save(path, numpy.arange(float(samples)).reshape(-1, 4))
    return path, numpy.load(path, mmap_mode="r")


def test_a_map_whose_file_was_cut_before_the_dataset(tmp_path):
    path, X = mapped(tmp_path)
    os.truncate(path, 4096)
    with refused(bl.DataError, "field rows", str(path), "4096", str(128 + 8 * 4_000_000)):
        bl.TensorDataset(rows=X)


def test_a_map_whose_file_was_cut_after_the_dataset(tmp_path):
    path, X = mapped(tmp_path)
    loader = bl.DataLoader(bl.TensorDataset(rows=X), 64, shuffle=True)
    os.truncate(path, 4096)
    with refused(bl.DataError, "field rows", str(path), "4096", str(128 + 8 * 4_000_000)):
        next(iter(loader))
    assert loader.state_dict()["epoch"] == 0


def test_a_slice_of_a_map_whose_file_was_cut(tmp_path):
    path, X = mapped(tmp_path)
    loader = bl.DataLoader(bl.TensorDataset(X[1000:, ::2]), 64)
    os.truncate(path, 4096)
    with refused(bl.DataError, "4096"):
        next(iter(loader))


VIEWS = {
    "asarray": "numpy.asarray(X)",
    "a view": "X.view(numpy.ndarray)",
    "a slice of an array": "numpy.asarray(X)[10:, ::2]",
    "another type": "X.view(numpy.int64)",
    "brain floats": "X.view(numpy.uint16).view(ml_dtypes.bfloat16)",
    "asarray of brain floats": "numpy.asarray(X.view(numpy.uint16)).view(ml_dtypes.bfloat16)",
}


@pytest.mark.parametrize("case", VIEWS)
def test_a_cut_file_behind_a_view_is_an_error_and_no_bus_error(script, tmp_path, case):
    path, _ = mapped(tmp_path)
    script(
        f"""
        import os
        import sys
        import ml_dtypes
        import numpy
        import batchloom as bl

        X = numpy.load(sys.argv[1], mmap_mode="r")
        loader = bl.DataLoader(bl.TensorDataset({VIEWS[case]}), 64)
        os.truncate(sys.argv[1], 4096)
        try:
            list(loader)
        except bl.DataError as error:
            assert "4096" in str(error), error
        else:
            raise AssertionError("read past the end of a file")
        """,
        path,
    )


def test_a_file_that_is_shorter_than_its_header_says(tmp_path):
    path, _ = mapped(tmp_path)
    os.truncate(path, 4096)
    # NumPy refuses; what is left to us is not to stand in the way.
    with pytest.raises(ValueError, match="mmap length is greater than file"):
        numpy.load(path, mmap_mode="r")


def test_views_of_windows_look_at_their_series_as_an_epoch_begins():
    series = torch.zeros(100, 2)
    loader = bl.DataLoader(bl.WindowDataset(series, input_len=8, horizon=2), 4)
    assert loader.placement.mode == "views"
    batches = iter(loader)
    series.resize_(50_000, 2)
    with refused(bl.DataError, "100", "50000"):
        next(batches)
    assert (loader.epoch, loader.remaining) == (0, len(loader))


def of_rows(x):
    return bl.TensorDataset(x=x)


def of_sequences(x):
    return bl.SequenceDataset(x=(x, numpy.arange(0, len(x) + 1, 50)))


def of_groups(x):
    return bl.GroupDataset(numpy.repeat(numpy.arange(len(x) // 50), 50), x=x)


def of_windows(x):
    return bl.WindowDataset(x, input_len=16, index=True)


def of_samples(x):
    return bl.MapDataset(range(0, len(x), 50), lambda row: {"x": x[row]})


BORROWED = [of_rows, of_sequences, of_groups, of_windows, of_samples]
READ_AHEAD = [
    {"shuffle": True},
    {"shuffle": False},
    {"shuffle": True, "num_threads": 4, "prefetch": 16},
    {"shuffle": True, "resident": False},
]


@pytest.mark.parametrize("make", BORROWED)
@pytest.mark.parametrize("options", READ_AHEAD, ids=str)
@pytest.mark.parametrize("is_left", [False, True], ids=["whole epochs", "left by break"])
def test_values_may_change_between_epochs(make, options, is_left):
    """A rollout is overwritten when a loop has ended, also early; the next epoch has the new values alone."""
    x = numpy.zeros((20_000, 64), numpy.float32)
    loader = bl.DataLoader(make(x), 20, output="torch", **options)
    for epoch in range(4):
        x[:] = epoch
        for step, batch in enumerate(loader):
            assert (batch["x"] == epoch).all()
            if is_left and step == 3:
                break
        time.sleep(0.01)  # threads would have the time to read ahead of the next epoch


def test_values_may_change_when_steps_begin_another_epoch():
    x = torch.zeros(20_000, 64)
    loader = bl.DataLoader(bl.TensorDataset(x), 50, shuffle=True)
    for step, (batch,) in enumerate(loader.steps(1200)):
        assert (batch == step // 400).all()
        if step % 400 == 399:
            time.sleep(0.01)
            x[:] = (step + 1) // 400
