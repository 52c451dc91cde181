"""Ask each forecasting library and batchloom for the same windows, as a model of that library receives them.

Promises:

- A way gives batches of windows without end, of a panel that was read before. Its library made its own dataset of the
  panel before the clock, and all ways read that.
- Those of neuralforecast end where ``training_step`` has its windows: a batch of series is cut to windows and some are
  drawn from them; batchloom's windows go through the same functions.
- ``check`` lets no pair pass whose epochs do not hold the same windows (of neuralforecast, which draws: whose windows
  batchloom's do not hold).
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy
import torch
from torch import Tensor

from bench.harness.measure import LOOM

INPUT, HORIZON = 96, 24
# The defaults of the libraries: series and windows in a batch of neuralforecast, and windows of the others.
SERIES, WINDOWS = 32, 1024
DARTS_BATCH, PYTORCH_FORECASTING_BATCH = 32, 64

Batches = Iterator[int]
"""The windows in each batch, one batch after the other, each made when its number is asked for."""


@dataclass(frozen=True)
class Way:
    """A way to make batches of windows.

    Attributes:
        name: Its name in the tables.
        batches: Returns the windows of each batch, given the dataset of the library.
        windows: The windows that are timed.
        slow: True where a batch takes long.
        holds_all: True where the windows of all series are held at once.
        facts: Further entries of its record.
    """

    name: str
    batches: Callable[[Any], Batches]
    windows: int
    slow: bool = False
    holds_all: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A library: its dataset of a panel, and the ways to batch it, its own first.

    Attributes:
        name: Its name.
        dataset: Makes the dataset of so many series of so many steps.
        ways: The ways; batchloom's is the last.
        check: Compares the windows of the library with those of batchloom, on a small panel.
        modules: What it takes to import.
    """

    name: str
    dataset: Callable[[int, int], Any]
    ways: tuple[Way, ...]
    check: Callable[[Any], None]
    modules: tuple[str, ...]

    def load(self) -> None:
        """Import the library, and batchloom's integration."""
        for name in (*self.modules, f"batchloom.integrations.{self.name}"):
            import_module(name)


def quiet() -> None:
    """Leave out what the libraries say while they are made."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def panel(series: int, steps: int) -> numpy.ndarray[Any, Any]:
    """Draw the values of a panel, float32."""
    return numpy.random.default_rng(0).normal(size=(series, steps)).astype(numpy.float32)


def neuralforecast_dataset(series: int, steps: int) -> Any:
    """Make a ``TimeSeriesDataset``: the target, and the mask of available steps."""
    from neuralforecast.tsdataset import TimeSeriesDataset
    from pandas import Index

    values = panel(series, steps).reshape(-1, 1)
    return TimeSeriesDataset(
        temporal=numpy.concatenate([values, numpy.ones_like(values)], 1),
        temporal_cols=Index(["y", "available_mask"]),
        indptr=numpy.arange(0, series * steps + 1, steps, dtype=numpy.int32),
        y_idx=0,
    )


def neuralforecast_model() -> Any:
    """Make a model, which cuts and draws the windows."""
    from neuralforecast.models import MLP

    return MLP(h=HORIZON, input_size=INPUT, max_steps=1, num_layers=1, hidden_size=1)


def neuralforecast_own(series_in_batch: int | None) -> Callable[[Any], Batches]:
    """Use neuralforecast's loader, with so many series in a batch; ``None`` for all."""

    def batches(dataset: Any) -> Batches:
        from neuralforecast.tsdataset import TimeSeriesLoader

        model = neuralforecast_model()
        loader = TimeSeriesLoader(dataset, batch_size=series_in_batch or len(dataset), shuffle=True)
        for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
            yield len(drawn(model, batch, WINDOWS))

    return batches


def drawn(model: Any, batch: Any, windows: int | None) -> Tensor:
    """Return the windows of a batch that the model trains on, as its ``training_step`` draws them."""
    cut, static, static_cols, kept, weights, columns = model._create_windows(batch, step="train")
    numbers = torch.arange(len(kept)) if windows is None else torch.randperm(len(kept))[:windows]
    found: Tensor = model._sample_windows(cut, static, static_cols, columns, numbers, kept, weights)["temporal"]
    return found


def neuralforecast_ours(dataset: Any) -> Batches:
    """Use batchloom, and the same functions of the model."""
    from batchloom.integrations.neuralforecast import window_loader

    model = neuralforecast_model()
    loader = window_loader(model, dataset, WINDOWS)
    model.padder_train = torch.nn.Identity()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(drawn(model, batch, None))


def neuralforecast_check(dataset: Any) -> None:
    """Compare all windows of all series."""
    from batchloom.integrations.neuralforecast import window_loader
    from neuralforecast.tsdataset import TimeSeriesLoader

    model = neuralforecast_model()
    (whole,) = TimeSeriesLoader(dataset, batch_size=len(dataset))
    theirs, _, _, kept, _, _ = model._create_windows(whole, step="train")
    ours = torch.cat([batch["temporal"].mT for batch in window_loader(model, dataset, WINDOWS, shuffle=False)])
    assert same_rows(theirs[kept].flatten(1), ours.flatten(1))


def same_rows(some: Tensor, others: Tensor) -> bool:
    """Tell whether two arrays hold the same rows, as often, in any order."""
    if some.shape != others.shape:
        return False
    return all(numpy.array_equal(*pair) for pair in zip(*(ordered(rows).T for rows in (some, others)), strict=True))


def ordered(rows: Tensor) -> numpy.ndarray[Any, Any]:
    """Return rows in an order of their own."""
    found = rows.numpy()
    return found[numpy.lexsort(found.T)]


def darts_dataset(series: int, steps: int) -> Any:
    """Make a ``SequentialTorchTrainingDataset``."""
    from darts import TimeSeries
    from darts.utils.data import SequentialTorchTrainingDataset

    found = [TimeSeries.from_values(values) for values in panel(series, steps)]
    return SequentialTorchTrainingDataset(found, input_chunk_length=INPUT, output_chunk_length=HORIZON)


def darts_own(dataset: Any) -> Batches:
    """Use torch's ``DataLoader``, as darts does."""
    from darts.utils.data.torch_datasets._data_module import TorchDataModule
    from darts.utils.data.torch_datasets.utils import _batch_collate_fn_train

    options = {"pin_memory": torch.cuda.is_available()}
    data = TorchDataModule(
        dataset, batch_size=DARTS_BATCH, collate_fn=_batch_collate_fn_train, dataloader_kwargs=options
    )
    loader = data.train_dataloader()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(batch.past_target)


def darts_ours(dataset: Any) -> Batches:
    """Use batchloom."""
    from batchloom.integrations.darts import window_loader

    loader = window_loader(dataset, DARTS_BATCH)
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(batch.past_target)


def darts_check(dataset: Any) -> None:
    """Compare the windows of an epoch."""
    from batchloom.integrations.darts import window_loader

    samples = [dataset[number] for number in range(len(dataset))]
    theirs = [torch.cat([torch.from_numpy(each.past_target), torch.from_numpy(each.future_target)]) for each in samples]
    ours = [torch.cat([batch.past_target, batch.future_target], 1) for batch in window_loader(dataset, DARTS_BATCH)]
    assert same_rows(torch.stack(theirs).flatten(1), torch.cat(ours).flatten(1))


def pytorch_forecasting_dataset(series: int, steps: int) -> Any:
    """Make a ``TimeSeriesDataSet`` of the target, its group and its step."""
    import pandas
    from pytorch_forecasting import TimeSeriesDataSet

    frame = {
        "series": numpy.repeat(numpy.arange(series).astype(str), steps),
        "step": numpy.tile(numpy.arange(steps), series),
        "value": panel(series, steps).ravel(),
    }
    return TimeSeriesDataSet(
        pandas.DataFrame(frame),
        time_idx="step",
        target="value",
        group_ids=["series"],
        max_encoder_length=INPUT,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["value"],
        add_relative_time_idx=True,
    )


def pytorch_forecasting_own(dataset: Any) -> Batches:
    """Use the library's ``to_dataloader``."""
    loader = dataset.to_dataloader(train=True, batch_size=PYTORCH_FORECASTING_BATCH)
    for x, _ in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(x["encoder_lengths"])


def pytorch_forecasting_ours(dataset: Any) -> Batches:
    """Use batchloom."""
    from batchloom.integrations.pytorch_forecasting import window_loader

    loader = window_loader(dataset, PYTORCH_FORECASTING_BATCH)
    for x, _ in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(x["encoder_lengths"])


def pytorch_forecasting_check(dataset: Any) -> None:
    """Compare the batches of an epoch in order."""
    from batchloom.integrations.pytorch_forecasting import window_loader

    theirs = dataset.to_dataloader(train=False, batch_size=PYTORCH_FORECASTING_BATCH)
    ours = window_loader(dataset, PYTORCH_FORECASTING_BATCH, train=False)
    for (x, (y, _)), (found, (target, _)) in zip(theirs, ours, strict=True):
        torch.testing.assert_close(found, x)
        assert torch.equal(target, y)


LIBRARIES = (
    Library(
        "neuralforecast",
        neuralforecast_dataset,
        (
            Way("neuralforecast", neuralforecast_own(SERIES), 100 * WINDOWS, facts={"series_in_batch": SERIES}),
            Way("neuralforecast, all series a batch", neuralforecast_own(None), 2 * WINDOWS, slow=True, holds_all=True),
            Way(LOOM, neuralforecast_ours, 400 * WINDOWS),
        ),
        neuralforecast_check,
        ("neuralforecast.models",),
    ),
    Library(
        "darts",
        darts_dataset,
        (Way("darts", darts_own, 300 * DARTS_BATCH), Way(LOOM, darts_ours, 3000 * DARTS_BATCH)),
        darts_check,
        ("darts.models", "darts.utils.data"),
    ),
    Library(
        "pytorch_forecasting",
        pytorch_forecasting_dataset,
        (
            Way("pytorch_forecasting", pytorch_forecasting_own, 10 * PYTORCH_FORECASTING_BATCH),
            Way(LOOM, pytorch_forecasting_ours, 1000 * PYTORCH_FORECASTING_BATCH),
        ),
        pytorch_forecasting_check,
        ("pytorch_forecasting",),
    ),
)
