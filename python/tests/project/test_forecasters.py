"""The forecasters of bench/windows: forecasts of equal windows are equal, stacked or viewed, and so are trainings."""

import importlib
import sys
from pathlib import Path

import batchloom
import numpy
import pytest
import torch

ROOT = Path(__file__).parents[3]
LENGTH, HORIZON = 336, 24


@pytest.fixture
def bench(monkeypatch):
    """A function that imports a module of the chapter."""
    monkeypatch.syspath_prepend(str(ROOT))
    yield lambda name: importlib.import_module(f"bench.windows.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


def windows(count):
    """Windows of a series of three columns: views, and copies of them."""
    series = torch.randn(LENGTH + count - 1, 3, generator=torch.Generator().manual_seed(0))
    views = series.unfold(0, LENGTH, 1).mT
    return views, views.contiguous()


def test_patch_tst_has_42_patches_of_which_the_last_repeats_the_last_value(bench):
    patch_tst = bench("patch_tst")
    torch.manual_seed(0)
    model = patch_tst.PatchTST(LENGTH, HORIZON, patch_tst.HOURS).eval()
    assert model.patches == 42
    seen = []
    model.embed.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    x = torch.zeros(1, LENGTH, 1)
    x[0, -8:, 0] = torch.arange(8.0)
    model(x)
    found = seen[0][0]
    assert found.shape == (42, 16)
    last = numpy.concatenate([numpy.arange(8.0), numpy.full(8, 7.0)])
    given = (last - x.mean().item()) / numpy.sqrt(x.var(correction=0).item() + patch_tst.LEAST_VARIANCE)
    torch.testing.assert_close(found[-1], torch.as_tensor(given, dtype=torch.float32))


def test_patch_tst_forecasts_views_as_it_does_copies_to_the_last_bit(bench):
    patch_tst = bench("patch_tst")
    views, copies = windows(5)
    assert views.stride() != copies.stride()
    model = patch_tst.PatchTST(LENGTH, HORIZON, patch_tst.HOURS)
    for is_training in (True, False):
        model.train(is_training)
        found = []
        for x in (views, copies):
            torch.manual_seed(1)
            found.append(model(x))
        assert torch.equal(*found)


def test_patch_tst_moves_and_stretches_with_its_series(bench):
    patch_tst = bench("patch_tst")
    model = patch_tst.PatchTST(LENGTH, HORIZON, patch_tst.HOURS).eval()
    x = windows(4)[1].double()
    model = model.double()
    torch.testing.assert_close(model(3 * x + 10), 3 * model(x) + 10, rtol=1e-4, atol=1e-4)


def test_dropout_keeps_the_mean_and_the_share(bench):
    dropout = bench("patch_tst").Dropout(0.3)
    torch.manual_seed(0)
    found = dropout(torch.ones(200_000))
    assert (found == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert found.mean().item() == pytest.approx(1, abs=0.01)
    assert torch.equal(dropout.eval()(torch.ones(3)), torch.ones(3))


@pytest.mark.parametrize("name", ["dlinear", "patchtst"])
def test_trainings_on_stacked_and_on_batchloom_s_batches_are_equal(bench, name):
    accuracy, sets = bench("accuracy"), bench("forecast_sets")
    steps = torch.arange(17_420.0)[:, None]
    values = torch.sin(steps / torch.tensor([4.0, 7.0])) + torch.randn(17_420, 2) / 10
    whole = batchloom.WindowDataset(values, accuracy.INPUT, HORIZON)
    found = whole.split(train=500, val=620, test=740, scale="standard")
    parts = dict(zip(("train", "val", "test"), found, strict=True))
    recipe = {"dlinear": accuracy.LINEAR, "patchtst": accuracy.PATCH_HOURS}[name]
    results = {}
    for way in accuracy.ORDERS:
        training = accuracy.Training(recipe, accuracy.Way(way, parts, HORIZON, recipe.batch, torch.device("cpu")))
        training.advance()
        training.advance()
        results[way] = training
    assert sets.INPUT == LENGTH
    for mine, theirs in accuracy.COUNTERPART.items():
        assert results[mine].losses == pytest.approx(results[theirs].losses, rel=1e-5)
        assert results[mine].best == pytest.approx(results[theirs].best, rel=1e-5)
    if name == "patchtst":
        assert all(results[mine].best == results[theirs].best for mine, theirs in accuracy.COUNTERPART.items())
