"""darts: the windows of its torch models as batches of the engine, in place of samples that are cut one by one.

    model = NHiTSModel(96, 24, pl_trainer_kwargs={"callbacks": [WindowBatches()]})
    model.fit(series, past_covariates=covariates, val_series=later)

The windows are the windows of the training dataset that darts makes, or that ``fit_from_dataset`` gets: with
covariates, static covariates and weights, every one as often in an epoch as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.dataset.windows.window_dataset import WindowDataset
from batchloom.errors import ArgumentError, DataError, many
from batchloom.integrations.library_loader import LibraryLoader, LoaderCallback, SeriesOfSamples, same
from batchloom.integrations.requirement import require

require("darts", "0.48")

import torch  # noqa: E402
from darts.utils.data import SequentialTorchTrainingDataset, ShiftedTorchTrainingDataset  # noqa: E402
from darts.utils.data.torch_datasets._data_module import TorchDataModule  # noqa: E402
from darts.utils.data.torch_datasets.utils import TorchTrainingBatch  # noqa: E402
from darts.utils.serialization import add_safe_globals  # noqa: E402
from pytorch_lightning import Callback  # noqa: E402

Array = numpy.ndarray[Any, Any]


class WindowBatches(LoaderCallback, Callback):  # type: ignore[misc, unused-ignore]
    """Gives a torch model of darts its batches: in training as the plan orders them, and in validation in order.

    It is an argument of the model, ``pl_trainer_kwargs={"callbacks": [WindowBatches()]}``, or of a trainer of your own.
    Checkpoints of the trainer hold the place in the epoch.

    Args:
        options: More arguments of :class:`batchloom.DataLoader`, as ``seed`` and ``num_threads``. The size of batches,
            ``shuffle`` and ``drop_last`` are those that darts is given.
    """

    DATA_MODULE = TorchDataModule

    def __init__(self, **options: Any) -> None:
        self.options = options

    def replace_loaders(self, data: Any, model: Any) -> None:
        """Make loaders of the datasets of a data module, and put them in the places of the loaders that it made."""
        options = {"drop_last": data.dataloader_kwargs["drop_last"], **self.options}
        train = window_loader(data.train_dataset, data.batch_size, data.shuffle, **options)
        data.train_dataloader = partial(same, train)
        if data.val_dataset is not None:
            data.val_dataloader = partial(same, window_loader(data.val_dataset, data.batch_size, False, **options))


# Models that were saved with the callback load wherever this file is imported: it holds options alone.
add_safe_globals([WindowBatches])


def window_loader(
    dataset: ShiftedTorchTrainingDataset, batch_size: int = 32, shuffle: bool = True, **options: Any
) -> LibraryLoader:
    """Return a loader of the samples of a training dataset of darts; batches are ``TorchTrainingBatch``.

    Series and covariates are copied once, one after the other.

    Args:
        dataset: The dataset.
        batch_size: The samples in a batch.
        shuffle: If ``True``, samples are in random order.
        options: More arguments of :class:`batchloom.DataLoader`.

    Raises:
        ArgumentError: A dataset of another kind, inputs that differ in length, or a horizon that lies in the input.
        DataError: A series that is too short, or holds several samples of each value; covariates that do not cover the
            windows, or have another frequency.
    """
    if type(dataset) not in (SequentialTorchTrainingDataset, ShiftedTorchTrainingDataset):
        raise ArgumentError(
            f"the dataset is a {type(dataset).__name__}; expected a SequentialTorchTrainingDataset or a "
            "ShiftedTorchTrainingDataset"
        )
    cut = _Cut(dataset)
    values, offsets = _concatenate([_values(series, "series", number) for number, series in enumerate(dataset.series)])
    past: dict[str, Any] = {}
    future: dict[str, Any] = {}
    if dataset.past_covariates is not None:
        past["past_covariates"] = _align(dataset, cut, "past_covariates", cut.input)
    if dataset.future_covariates is not None:
        both = cut.input[0], cut.output[1]
        known = _align(dataset, cut, "future_covariates", both)
        past["historic_future_covariates"] = future["future_covariates"] = known
    if dataset.sample_weight is not None:
        future["sample_weight"] = _align(dataset, cut, "sample_weight", cut.output)
    windows: Dataset[Any] = WindowDataset(
        (values, offsets),
        dataset.input_chunk_length,
        cut.horizon,
        label_len=cut.label_len,
        gap=cut.gap,
        stride=dataset.stride,
        anchor="end",
        short="error",
        past=past,
        future=future,
    )
    chosen = cut.choose()
    if chosen is not None:
        windows = windows.select(chosen)
    form = _Form(dataset, SeriesOfSamples(cut.counts, None, chosen))
    return LibraryLoader(dataset, windows, batch_size, form, shuffle=shuffle, **options)


class _Cut:
    """The windows that a dataset of darts cuts from its series.

    Attributes:
        input: The first step of the input, and its end, from the beginning of a window on.
        output: The same of the output.
        counts: The windows of each series.
        first: The first step of the first window of each series in an epoch.
        last: The step at which its last window begins.
    """

    def __init__(self, dataset: ShiftedTorchTrainingDataset) -> None:
        input_len, shift = dataset.input_chunk_length, dataset.shift
        if dataset.min_input_chunk_length != input_len:
            raise ArgumentError(
                f"inputs have {dataset.min_input_chunk_length} to {many(input_len, 'step')}; expected inputs of "
                "one length"
            )
        if shift + dataset.output_chunk_length <= input_len:
            raise ArgumentError(
                f"{many(dataset.output_chunk_length, 'step')} to predict begin {many(shift, 'step')} after "
                f"{input_len} of input do; "
                "expected them to end after these"
            )
        self.input, self.output = (0, input_len), (shift, shift + dataset.output_chunk_length)
        self.label_len, self.gap = max(input_len - shift, 0), max(shift - input_len, 0)
        self.horizon = dataset.output_chunk_length - self.label_len
        self._most, steps = dataset.max_samples_per_ts, self.output[1]
        lengths = numpy.array([len(series) for series in dataset.series])
        if lengths.min() < steps:
            short = int(lengths.argmin())
            raise DataError(
                f"series {short} has {many(lengths[short], 'step')}; expected at least {steps}, those of a window"
            )
        self.counts: Array = (lengths - steps) // dataset.stride + 1
        self.last: Array = lengths - steps
        self.first: Array = self.last - (numpy.minimum(self.counts, self._most) - 1) * dataset.stride

    def choose(self) -> Array | None:
        """Return the numbers of the windows of an epoch, equally many a series; ``None`` for every window once.

        Those are the last ones of each series, and of a series with fewer they repeat.
        """
        if (self.counts == self._most).all():
            return None
        ends = numpy.cumsum(self.counts)
        back = numpy.arange(self._most)
        numbers: Array = numpy.concatenate(
            [end - 1 - back % count for end, count in zip(ends, self.counts, strict=True)]
        )
        return numbers


def _concatenate(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Return arrays one after the other, and their borders."""
    return numpy.concatenate(parts), numpy.cumsum([0, *map(len, parts)])


def _values(series: Any, role: str, number: int) -> Array:
    """Return the values of a series, ``[steps, components]``.

    Raises:
        DataError: It holds several samples of each.
    """
    if series.n_samples != 1:
        raise DataError(
            f"{role} {number} holds {many(series.n_samples, 'sample')} of each value, of which darts draws one; "
            "expected 1"
        )
    values: Array = series.values(copy=False)
    return values


def _align(dataset: ShiftedTorchTrainingDataset, cut: _Cut, role: str, needed: tuple[int, int]) -> tuple[Array, Array]:
    """Return covariates with one row for each step of their series: zeros where they have no value.

    Args:
        dataset: The dataset.
        cut: Its windows.
        role: The name of the covariates.
        needed: The first step of a window that takes them, and the end of such steps.

    Raises:
        DataError: They lack a step that a window takes.
    """
    parts = []
    for number, (series, other) in enumerate(zip(dataset.series, getattr(dataset, role), strict=True)):
        values, steps = _values(other, role, number), len(series)
        begin = _begin(series, other)
        first, end = int(cut.first[number]) + needed[0], int(cut.last[number]) + needed[1]
        if begin is None or begin > first or begin + len(values) < end:
            times = series.time_index
            raise DataError(
                f"{role} {number} are from {other.start_time()} to {other.end_time()} in steps of {other.freq}; "
                f"expected {times[first]} to {times[end - 1]} in steps of {series.freq}, which windows take"
            )
        if begin <= 0 and begin + len(values) >= steps:
            parts.append(values[-begin : steps - begin])
            continue
        part = numpy.zeros((steps, *values.shape[1:]), values.dtype)
        inside = max(begin, 0), min(begin + len(values), steps)
        part[inside[0] : inside[1]] = values[inside[0] - begin : inside[1] - begin]
        parts.append(part)
    return _concatenate(parts)


def _begin(series: Any, other: Any) -> int | None:
    """Return the step of a series at which another begins, negative if before; ``None`` if they do not meet."""
    if series.freq != other.freq:
        return None
    after = int(series.time_index.get_indexer(other.time_index[:1])[0])
    before = int(other.time_index.get_indexer(series.time_index[:1])[0])
    return after if after >= 0 else -before if before >= 0 else None


class _Form:
    """Makes batches of darts."""

    def __init__(self, dataset: ShiftedTorchTrainingDataset, series: SeriesOfSamples) -> None:
        self._series, self._static = series, None
        if dataset.uses_static_covariates_covariates:
            statics = [each.static_covariates_values(copy=False) for each in dataset.series]
            self._static = torch.from_numpy(numpy.stack(statics))

    def __call__(self, batch: Any, samples: Array) -> TorchTrainingBatch:
        fields = dict(batch) if isinstance(batch, dict) else dict(zip(("x", "y"), batch, strict=True))
        static = None if self._static is None else self._static[torch.from_numpy(self._series(samples))]
        x, y = fields.pop("x"), fields.pop("y")
        return TorchTrainingBatch(past_target=x, future_target=y, static_covariates=static, **fields)
