"""neuralforecast: each step of training takes windows of all series, in place of all windows of a few.

    model = NHITS(h=24, input_size=96, max_steps=1000, callbacks=[WindowBatches()])
    NeuralForecast([model], freq="D").fit(frame, static_df=static, val_size=24)

A model of neuralforecast is given whole series, copies every window of them, and trains on ``windows_batch_size`` of
these, drawn anew. With :class:`WindowBatches` it is given the windows to train on. They are those that it would cut
itself: with zeros after the end of a series (and before its start, where the model is told so, or other series are
longer), without those whose steps are not available. Model, trainer, scaling, validation and prediction are its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy
from batchloom.dataset.base import Dataset
from batchloom.dataset.windows.window_dataset import WindowDataset
from batchloom.errors import ArgumentError, DataError, many
from batchloom.integrations.library_loader import LibraryLoader, LoaderCallback, SeriesOfSamples, same
from batchloom.integrations.requirement import require

require("neuralforecast", "3.3")

import torch  # noqa: E402
from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset  # noqa: E402
from pytorch_lightning import Callback  # noqa: E402

Array = numpy.ndarray[Any, Any]

# Windows in a batch, for models that name no number: as many as neuralforecast's own default.
BATCH = 1024


class WindowBatches(LoaderCallback, Callback):  # type: ignore[misc, unused-ignore]
    """Gives a model of neuralforecast the windows to train on.

    It is an argument of the model, ``callbacks=[WindowBatches()]``, or of a trainer of your own. An epoch is every
    window once. A step is a batch of windows, so ``max_steps`` is as much work as before. A checkpoint of the trainer
    holds the place in the epoch. Each fit begins with the first epoch of ``seed``.

    Args:
        batch_size: The windows in a batch; ``None`` for ``windows_batch_size`` of the model.
        shuffle: If ``True``, windows are in random order.
        options: More arguments of :class:`batchloom.DataLoader`, as ``seed``, ``drop_last`` and ``num_threads``.
    """

    DATA_MODULE = TimeSeriesDataModule

    def __init__(self, batch_size: int | None = None, shuffle: bool = True, **options: Any) -> None:
        self.batch_size, self.shuffle, self.options = batch_size, shuffle, options
        self._replaced: dict[str, Any] = {}
        self._sizes: tuple[int, int] | None = None

    def replace_loaders(self, data: Any, model: Any) -> None:
        """Make a loader of the training windows, and put it in the place of the data module's own loader."""
        options = {"drop_last": data.drop_last, **self.options}
        loader = window_loader(model, data.dataset, self.batch_size, self.shuffle, **options)
        data.train_dataloader = partial(same, loader)
        # Windows come padded and drawn.
        ours: dict[str, Any] = {"windows_batch_size": None, "padder_train": torch.nn.Identity()}
        self._replaced = {name: getattr(model, name) for name in ours}
        _set(model, ours)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note that windows end before the validation part: the model would cut that off."""
        self._sizes = pl_module.val_size, pl_module.test_size
        pl_module.val_size = pl_module.test_size = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Give the model its sizes back, for validation."""
        if self._sizes is not None:
            pl_module.val_size, pl_module.test_size = self._sizes
        self._sizes = None

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Give the model back what was replaced."""
        self.on_train_batch_end(trainer, pl_module, None, None, 0)
        _set(pl_module, self._replaced)
        self._replaced = {}

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the model back what was replaced."""
        self.teardown(trainer, pl_module, "fit")


def window_loader(
    model: Any, dataset: TimeSeriesDataset, batch_size: int | None = None, shuffle: bool = True, **options: Any
) -> LibraryLoader:
    """Return the loader of the windows that a model trains on.

    A batch is the dict that neuralforecast's own loader gives, of windows in place of series: ``temporal``,
    ``[windows, columns, steps]``, ``temporal_cols``, ``y_idx``, and ``static`` and ``static_cols`` if there are such.

    Args:
        model: The model, with the sizes of its validation and test parts.
        dataset: The series; the windows are cut from them, not from a copy.
        batch_size: The windows in a batch; ``None`` for ``windows_batch_size`` of the model.
        shuffle: If ``True``, windows are in random order.
        options: More arguments of :class:`batchloom.DataLoader`.

    Raises:
        ArgumentError: A multivariate model, or series in files.
        DataError: The series make no window.
    """
    if model.MULTIVARIATE:
        raise ArgumentError(
            f"{type(model).__name__} is multivariate: its windows hold all series side by side; expected a model of "
            "single series, or neuralforecast's own loader"
        )
    if not isinstance(dataset, TimeSeriesDataset):
        raise ArgumentError(f"the series are a {type(dataset).__name__}; expected a TimeSeriesDataset, in memory")
    if batch_size is None:
        batch_size = model.windows_batch_size or BATCH
    wanted = _Wanted(
        input_len=model.input_size,
        horizon=model.h_train if model.RECURRENT else model.h,
        before=model.input_size - 1 if model.start_padding_enabled else 0,
        after=model.h,
        cut=model.val_size + model.test_size,
        step=model.step_size,
        least_input=max(1, int(model.input_size * model.min_insample_fraction)),
        least_horizon=max(1, int((model.h_train if model.RECURRENT else model.h) * model.min_outsample_fraction)),
    )
    pieces = _pieces(dataset, wanted)
    if not pieces:
        raise DataError(
            f"the longest of {len(dataset)} series has {many(dataset.max_size, 'step')}, {wanted.cut} of them "
            "for validation "
            f"and test; expected at least {wanted.input_len - wanted.before + 1} for training"
        )
    windows: Dataset[Any] = pieces[0].windows.concat(*(piece.windows for piece in pieces[1:]))
    chosen = _choose_windows(dataset, pieces, wanted)
    if chosen is not None:
        windows = windows.select(chosen)
    counts = numpy.concatenate([piece.counts(wanted.steps) for piece in pieces])
    series = numpy.concatenate([piece.series for piece in pieces])
    form = _Form(dataset, SeriesOfSamples(counts, series, chosen))
    return LibraryLoader(dataset, windows, batch_size, form, shuffle=shuffle, **options)


class _Wanted(NamedTuple):
    """The windows that a model takes of series.

    Attributes:
        input_len: The steps of input.
        horizon: The steps to predict.
        before: The zeros before the longest series.
        after: The zeros after each series.
        cut: The steps at the end of each series that are not for training.
        step: The steps from one window to the next.
        least_input: The steps of input that have to be available.
        least_horizon: The steps to predict that have to be available.
    """

    input_len: int
    horizon: int
    before: int
    after: int
    cut: int
    step: int
    least_input: int
    least_horizon: int

    @property
    def steps(self) -> int:
        """Return the steps of a window."""
        return self.input_len + self.horizon


class _Piece(NamedTuple):
    """Windows of parts of series: of all between borders, or of those that reach over a border.

    Attributes:
        windows: Every window of the parts.
        values: The steps of all parts.
        offsets: The borders of the parts in ``values``.
        series: The series of each part.
        first: The step of the series with which each part begins: negative in the zeros before.
    """

    windows: WindowDataset[Any]
    values: torch.Tensor
    offsets: Array
    series: Array
    first: Array

    @classmethod
    def of(cls, values: torch.Tensor, offsets: Array, series: Array, first: Array, steps: int) -> _Piece | None:
        """Return the piece; ``None`` if its parts are too short for any window."""
        if not len(offsets) or int(numpy.diff(offsets).max(initial=0)) < steps:
            return None
        # Zeros are in the values already, where the library has some: no window begins with others.
        windows: WindowDataset[Any] = WindowDataset((values, offsets), (steps, steps), short="drop")
        return cls(windows, values, offsets, series, first)

    def counts(self, steps: int) -> Array:
        """Return the windows of each part."""
        windows: Array = (numpy.diff(self.offsets) - steps + 1).clip(0)
        return windows


def _pieces(dataset: TimeSeriesDataset, wanted: _Wanted) -> list[_Piece]:
    """Return the windows in two pieces: within series, which are borrowed, and over their borders, which are copies."""
    starts = numpy.asarray(dataset.indptr[:-1], numpy.int64)
    lengths = (numpy.diff(dataset.indptr).astype(numpy.int64) - wanted.cut).clip(0)
    before = numpy.minimum(wanted.input_len - 1, _room(dataset, wanted))
    after = min(wanted.horizon - 1, wanted.after)
    reach = wanted.steps - 1
    # Steps that are not for training are parts of their own, which _choose_windows leaves out.
    offsets = numpy.append(numpy.stack([starts, starts + lengths], 1).ravel(), dataset.indptr[-1])
    parts = numpy.repeat(numpy.arange(len(lengths)), 2)
    first = numpy.stack([numpy.zeros_like(lengths), lengths], 1).ravel()
    if not wanted.cut:
        offsets, parts, first = offsets[::2], parts[::2], first[::2]
    within = [_Piece.of(dataset.temporal, offsets, parts, first, wanted.steps)] if (lengths > reach).any() else []
    edges: list[tuple[int, int, int]] = []
    for number, (length, zeros) in enumerate(zip(lengths.tolist(), before.tolist(), strict=True)):
        if length > reach:
            edges += [(number, -zeros, reach)] if zeros else []
            edges.append((number, length - reach, length + after))
        elif length:
            edges.append((number, -zeros, length + after))
    return [piece for piece in [*within, _edges(dataset, edges, starts, lengths, wanted.steps)] if piece is not None]


def _room(dataset: TimeSeriesDataset, wanted: _Wanted) -> Array:
    """Return the zeros before each series: the model's, plus the steps that it lacks to the longest series."""
    zeros: Array = wanted.before + dataset.max_size - numpy.diff(dataset.indptr).astype(numpy.int64)
    return zeros


def _edges(
    dataset: TimeSeriesDataset, edges: list[tuple[int, int, int]], starts: Array, lengths: Array, steps: int
) -> _Piece | None:
    """Return a piece of copies: of each series, steps from one to another, where steps outside of it are zeros."""
    if not edges:
        return None
    series, first, ends = (numpy.array(numbers, numpy.int64) for numbers in zip(*edges, strict=True))
    offsets = numpy.concatenate([[0], numpy.cumsum(ends - first)])
    values = torch.zeros(int(offsets[-1]), dataset.temporal.shape[1])
    for number, (k, begin, end) in enumerate(edges):
        inside = max(begin, 0), min(end, int(lengths[k]))
        place = int(offsets[number]) - begin
        rows = slice(int(starts[k]) + inside[0], int(starts[k]) + inside[1])
        values[place + inside[0] : place + inside[1]] = dataset.temporal[rows]
    return _Piece.of(values, offsets, series, first, steps)


def _choose_windows(dataset: TimeSeriesDataset, pieces: list[_Piece], wanted: _Wanted) -> Array | None:
    """Return the windows to train on, by number; ``None`` if these are all."""
    available = dataset.temporal_cols.get_loc("available_mask")
    is_plain = wanted.step == 1 and wanted.least_input == wanted.least_horizon == 1 and wanted.cut < wanted.steps
    if is_plain and bool((dataset.temporal[:, available] == 1).all()):
        return None
    kept = numpy.concatenate([_mark_chosen(dataset, piece, available, wanted) for piece in pieces])
    if not kept.any():
        raise DataError(
            f"{len(kept)} windows have fewer than {wanted.least_input} steps of input, or {wanted.least_horizon} to "
            "predict, that are available; expected some with as many"
        )
    numbers: Array = numpy.flatnonzero(kept)
    return None if len(numbers) == len(kept) else numbers


def _mark_chosen(dataset: TimeSeriesDataset, piece: _Piece, available: int, wanted: _Wanted) -> Array:
    """Return for each window of a piece if it is one to train on."""
    counts = piece.counts(wanted.steps)
    part = numpy.repeat(numpy.arange(len(counts)), counts)
    within = numpy.arange(len(part)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    row, step = piece.offsets[part] + within, piece.first[part] + within
    before = numpy.concatenate([[0.0], numpy.cumsum(piece.values[:, available].numpy(), dtype=numpy.float64)])
    border = row + wanted.input_len
    ends = numpy.diff(dataset.indptr)[piece.series[part]] - wanted.cut
    is_training = step + wanted.input_len < ends
    is_step = (step + _room(dataset, wanted)[piece.series[part]]) % wanted.step == 0
    is_input = before[border] - before[row] >= wanted.least_input
    is_horizon = before[row + wanted.steps] - before[border] >= wanted.least_horizon
    is_chosen: Array = is_training & is_step & is_input & is_horizon
    return is_chosen


class _Form:
    """Makes batches of neuralforecast: windows as its series are, columns before steps."""

    def __init__(self, dataset: TimeSeriesDataset, series: SeriesOfSamples) -> None:
        self._same = {"temporal_cols": dataset.temporal_cols, "y_idx": dataset.y_idx}
        self._static, self._series = dataset.static, series
        if self._static is not None:
            self._same["static_cols"] = dataset.static_cols

    def __call__(self, batch: Any, samples: Array) -> dict[str, Any]:
        fields = {"temporal": batch[0].mT, **self._same}
        if self._static is not None:
            fields["static"] = self._static[torch.from_numpy(self._series(samples))]
        return fields


def _set(model: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(model, name, value)
