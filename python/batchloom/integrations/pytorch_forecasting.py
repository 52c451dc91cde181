"""PyTorch Forecasting: the windows of a ``TimeSeriesDataSet`` as batches of the engine, ``(x, (y, weight))``.

    training = TimeSeriesDataSet(frame, "day", "sales", ["shop"], max_encoder_length=96, max_prediction_length=24)
    trainer.fit(model, window_loader(training, batch_size=128))

The dataset reads the frame, encodes its columns and lists the windows. Its arrays are borrowed, not copied.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.dataset.windows.window_dataset import WindowDataset
from batchloom.errors import ArgumentError
from batchloom.integrations.library_loader import LibraryLoader
from batchloom.integrations.requirement import require

require("pytorch-forecasting", "1.8")

import torch  # noqa: E402
from pytorch_forecasting import TimeSeriesDataSet  # noqa: E402
from pytorch_forecasting.data.encoders import EncoderNormalizer, MultiNormalizer  # noqa: E402

Array = numpy.ndarray[Any, Any]

# What is after the name of a field that is cut as the steps to predict are.
AHEAD = "_ahead"
# The windows whose steps are checked at once.
CHECKED = 1 << 16


def window_loader(
    dataset: TimeSeriesDataSet, batch_size: int = 64, train: bool = True, **options: Any
) -> LibraryLoader:
    """Return a loader of the windows of a dataset, in place of ``dataset.to_dataloader(train, batch_size)``.

    A batch has the form of PyTorch Forecasting: a dict with ``encoder_cont``, ``target_scale`` and more,
    and the tuple of targets and weights. Sample ``i`` of the loader is sample ``i`` of the dataset. No window is
    dropped, unless ``drop_last=True``.

    Args:
        dataset: The dataset; its windows have ``max_encoder_length`` and ``max_prediction_length`` steps.
        batch_size: The windows in a batch.
        train: If ``True``, windows are in random order.
        options: More arguments of :class:`batchloom.DataLoader`.

    Raises:
        ArgumentError: Windows of several lengths, gaps between steps, covariates that are scaled anew in each window,
            or values that were overwritten.
    """
    _require_plain(dataset)
    data = dataset.data
    series = {f"target{number}": values for number, values in enumerate(data["target"])}
    if data["categoricals"].shape[1]:
        series["cat"] = data["categoricals"]
    weights = {} if data["weight"] is None else {"weight": data["weight"]}
    rows: Dataset[Any] = WindowDataset(
        data["reals"],
        dataset.max_encoder_length,
        dataset.max_prediction_length,
        short="error",
        past=series,
        future={f"{name}{AHEAD}": values for name, values in series.items()} | weights,
    )
    starts = dataset.index.index_start.to_numpy(numpy.int64)
    options = {"shuffle": train, **options}
    return LibraryLoader(dataset, rows.select(starts), batch_size, _Form(dataset, starts), **options)


def _require_plain(dataset: TimeSeriesDataSet) -> None:
    """Check that windows are stretches of steps, all of one length, which are the same each time.

    Raises:
        ArgumentError: They are not.
    """
    if not isinstance(dataset, TimeSeriesDataSet):
        raise ArgumentError(f"the dataset is a {type(dataset).__name__}; expected a TimeSeriesDataSet")
    if dataset.randomize_length is not None:
        raise ArgumentError(f"randomize_length is {dataset.randomize_length}; expected None")
    if dataset._overwrite_values is not None:
        raise ArgumentError("values of the dataset are overwritten; expected reset_overwrite_values() before")
    for first in range(0, len(dataset.index), CHECKED):
        _require_steps(dataset, first)
    for name in dataset.reals:
        if name not in dataset.target_names and isinstance(dataset.get_transformer(name), EncoderNormalizer):
            raise ArgumentError(
                f"{name} has an EncoderNormalizer, which scales it anew in each window; expected one for targets alone"
            )


def _require_steps(dataset: TimeSeriesDataSet, first: int) -> None:
    """Check the steps of some windows; ``first`` is the number of the first one.

    Raises:
        ArgumentError: They have too few or too many.
    """
    index, steps = dataset.index[first : first + CHECKED], dataset.max_encoder_length + dataset.max_prediction_length
    last = dataset.data["time"].numpy()[index.index_end.to_numpy()]
    decoder = dataset.calculate_decoder_length(last, index.sequence_length.to_numpy())
    rows = (index.index_end - index.index_start + 1).to_numpy()
    for lengths, expected, what in (
        (index.sequence_length.to_numpy(), steps, "steps"),
        (rows, steps, "rows of the frame, without missing steps"),
        (decoder, dataset.max_prediction_length, "steps to predict"),
    ):
        if (lengths != expected).any():
            window = int((lengths != expected).argmax())
            raise ArgumentError(
                f"window {first + window} has {lengths[window]} {what}; expected {expected}, as in all windows"
            )


class _Form:
    """Makes batches of PyTorch Forecasting."""

    def __init__(self, dataset: TimeSeriesDataSet, starts: Array) -> None:
        self._dataset, self._starts = dataset, torch.from_numpy(starts)
        self._lengths = dataset.max_encoder_length, dataset.max_prediction_length
        # Fitted to the windows of each batch: copies, as the dataset uses its own.
        self._normalizers = copy.deepcopy(dataset.target_normalizers)
        # Windows of one series come one after the other: each such run has a row of scales. A dataset that predicts
        # names the series of a window twice.
        series = dataset.index.sequence_id.to_numpy().reshape(len(starts), -1)[:, 0]
        self._runs = numpy.flatnonzero(series[1:] != series[:-1]) + 1
        firsts = self._starts[torch.from_numpy(numpy.append(0, self._runs))]
        self._scales = self._scales_of(dataset.data["groups"][firsts])

    def _scales_of(self, groups: torch.Tensor) -> list[torch.Tensor]:
        """Return the scales of each target, with a row for each group."""
        dataset = self._dataset
        scales = [dataset.target_normalizer.get_parameters(group, dataset.group_ids) for group in groups]
        if not isinstance(dataset.target_normalizer, MultiNormalizer):
            scales = [[scale] for scale in scales]
        return [_stack(target) for target in zip(*scales, strict=True)]

    def __call__(self, batch: dict[str, Any], samples: Array) -> tuple[dict[str, Any], tuple[Any, Any]]:
        dataset, (encoder, decoder), size = self._dataset, self._lengths, len(samples)
        start = self._starts[torch.from_numpy(samples.astype(numpy.int64))]
        time = dataset.data["time"][start] + encoder
        targets = [batch[f"target{number}"] for number in range(len(self._scales))]
        ahead = [batch[f"target{number}{AHEAD}"] for number in range(len(self._scales))]
        run = torch.from_numpy(numpy.searchsorted(self._runs, samples, side="right"))
        scales = [scales[run] for scales in self._scales]
        self._mark(batch["x"], batch["y"])
        for number, normalizer in enumerate(self._normalizers):
            if isinstance(normalizer, EncoderNormalizer):
                scales[number] = self._scale(batch, number, targets[number], ahead[number])
        cat, cat_ahead = (torch.zeros(size, steps, 0, dtype=torch.int64) for steps in self._lengths)
        is_one = not dataset.multi_target
        y = ahead[0] if is_one else ahead
        x = {
            "encoder_cat": batch.get("cat", cat),
            "encoder_cont": batch["x"],
            "encoder_target": targets[0] if is_one else targets,
            "encoder_lengths": torch.full((size,), encoder),
            "decoder_cat": batch.get(f"cat{AHEAD}", cat_ahead),
            "decoder_cont": batch["y"],
            "decoder_target": y,
            "decoder_lengths": torch.full((size,), decoder),
            "decoder_time_idx": time[:, None] + torch.arange(decoder),
            "groups": dataset.data["groups"][start],
            "target_scale": scales[0] if is_one else scales,
        }
        return x, (y, batch.get("weight"))

    def _mark(self, past: torch.Tensor, future: torch.Tensor) -> None:
        """Write the columns with the place of each step in its window."""
        dataset, (encoder, decoder) = self._dataset, self._lengths
        if dataset.add_relative_time_idx:
            column = dataset.reals.index("relative_time_idx")
            past[:, :, column] = torch.arange(-encoder, 0, dtype=past.dtype) / encoder
            future[:, :, column] = torch.arange(decoder, dtype=past.dtype) / encoder
        if dataset.add_encoder_length:
            column = dataset.reals.index("encoder_length")
            past[:, :, column] = future[:, :, column] = 1.0

    def _scale(self, batch: dict[str, Any], number: int, target: torch.Tensor, ahead: torch.Tensor) -> torch.Tensor:
        """Scale a target by its past in each window, wherever batches hold it, and return the scales."""
        dataset, normalizer, name = self._dataset, self._normalizers[number], self._dataset.target_names[number]
        scale: torch.Tensor = normalizer.fit(target).get_parameters()
        if name in dataset.reals:
            column = dataset.reals.index(name)
            batch["x"][:, :, column] = normalizer.transform(target, target_scale=scale)
            batch["y"][:, :, column] = normalizer.transform(ahead, target_scale=scale)
        if dataset.add_target_scales:
            for place, part in enumerate(("center", "scale")):
                column = dataset.reals.index(f"{name}_{part}")
                values = torch.as_tensor(dataset.transform_values(f"{name}_{part}", scale[:, place]))
                batch["x"][:, :, column] = batch["y"][:, :, column] = values.to(batch["x"].dtype)[:, None]
        return scale.float()


def _stack(scales: Sequence[Any]) -> torch.Tensor:
    if isinstance(scales[0], torch.Tensor):
        return torch.stack(list(scales))
    return torch.from_numpy(numpy.array(scales, numpy.float32))
