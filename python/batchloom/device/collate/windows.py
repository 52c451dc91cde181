"""Batches of windows in random order: one gather for each field of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
import torch
from batchloom.arrays.torch import windows
from batchloom.collate.window_steps import WindowSteps
from batchloom.device.collate.gather import ResidentRows, gather, gather_padded, integer_view, split
from batchloom.device.collate.rows import Outline, samples, split_marks, table


@dataclass(frozen=True)
class StepRange:
    """The steps of each window that a field takes from an array.

    Attributes:
        fetch: Fetches the array ``[time, ...]``.
        steps: The steps, counted from the beginning of the window.
        padding: The value of steps that the series does not have, in the type of :func:`integer_view` for batches;
            ``None`` if they repeat the nearest step.
    """

    fetch: Callable[[], ResidentRows]
    steps: WindowSteps
    padding: float | None = 0


@dataclass(frozen=True)
class FoundSteps:
    """A field of rows that the engine finds for each window: an index table has their numbers.

    Attributes:
        fetch: Fetches the array of rows.
        count: The number of rows that a window takes.
        padding: The value of rows that do not exist, in the type of :func:`integer_view` for batches; ``None`` if they
            repeat the nearest row.
        is_masked: ``True`` if batches hold a mask of the rows that exist.
    """

    fetch: Callable[[], ResidentRows]
    count: int
    padding: float | None
    is_masked: bool


@dataclass(frozen=True)
class LookedUpRows:
    """A field that is looked up for each window.

    Attributes:
        of: The row that it takes: of the ``"series"``, of the window among all ``"windows"``, or of a step among
            all ``"steps"``.
        fetch: Fetches the array of rows; ``None`` for the number of the series, or the step.
    """

    of: str
    fetch: Callable[[], ResidentRows] | None


@dataclass(frozen=True)
class SeriesPlaces:
    """Places of series and of their windows.

    Attributes:
        fetch: Fetches, for each series, its first row, the row after its last one, the number of windows before its
            own, and the row with which its first window begins.
        stride: The steps from one window to the next.
        anchor: The step of a window that steps are counted by.
    """

    fetch: Callable[[], ResidentRows]
    stride: int
    anchor: int


class Windows:
    """Gathers windows.

    Args:
        step_ranges: The steps of each field.
        masks: The steps of the window that each mask is about.
        ends: The padding that windows may hold: ``"none"``, ``"front"``, or ``"both"`` before and after their series.
        found: The fields of rows that the engine finds.
        looked_up: The fields that are looked up for each window.
        places: The places of series.
        lists: If ``True``, batches hold the number of each window, and no weight beside it.
    """

    def __init__(
        self,
        step_ranges: list[StepRange],
        masks: list[WindowSteps],
        ends: str,
        found: list[FoundSteps],
        looked_up: list[LookedUpRows],
        places: SeriesPlaces,
        marks: Sequence[str],
    ) -> None:
        self._step_ranges, self._masks, self._ends = step_ranges, masks, ends
        self._found, self._looked_up, self._places, self._marks = found, looked_up, places, marks

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the first row of each window, its steps before the series, found rows."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Outline) -> list[Sequence[Any]]:
        """Gather the windows of each field, and cut them into batches."""
        sizes, numbers = samples(outline.runs), arrived[0]
        whole = self.fields(numbers[0], numbers[1], numbers[2:])
        fields: list[Sequence[Any]] = [split(field, sizes) for field in whole]
        return fields + split_marks(arrived, outline, self._marks)

    def fields(
        self, rows: torch.Tensor, missing: torch.Tensor, found: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Return all fields of windows.

        Args:
            rows: The first row of each window that exists.
            missing: The steps before it that its series lacks.
            found: The rows of each place of each field of found rows, ``[places, windows]``; ``None`` without such.
        """
        window = _Window(rows, missing, self._places, self._ends)
        arrays = [_take_steps(window, step_range) for step_range in self._step_ranges]
        arrays += [window.exist(steps) for steps in self._masks]
        for each in self._found:
            assert found is not None
            arrays += _take_found(each, found[: each.count].T)
            found = found[each.count :]
        return arrays + [window.look_up(each) for each in self._looked_up]


class _Window:
    """Windows of a block: the first row of each that exists, and the steps before it that the series does not have."""

    def __init__(self, rows: torch.Tensor, missing: torch.Tensor, places: SeriesPlaces, ends: str) -> None:
        self.rows, self.missing, self.begin = rows, missing, rows - missing
        self.ends, self._places = ends, places
        self._found: tuple[torch.Tensor, torch.Tensor] | None = None

    def steps(self, steps: WindowSteps) -> torch.Tensor:
        """Return the steps as numbers."""
        if steps.listed is not None:
            return torch.tensor(steps.listed, dtype=self.rows.dtype, device=self.rows.device)
        end = steps.start + steps.count * steps.every
        return torch.arange(steps.start, end, steps.every, dtype=self.rows.dtype, device=self.rows.device)

    def exist(self, steps: WindowSteps) -> torch.Tensor:
        """Return a mask of the steps that series have, ``[windows, steps]``."""
        numbers = self.steps(steps)
        mask = numbers >= self.missing.view(-1, 1)
        if self.ends == "both":
            _, place = self._series()
            mask &= self.begin.view(-1, 1) + numbers < place[:, 1:2]
        return mask

    def nearest(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows ``[windows, steps]``, with the nearest row of its series in place of each outside of it."""
        rows = torch.maximum(rows, self.rows.view(-1, 1))
        if self.ends != "both":
            return rows
        _, place = self._series()
        return torch.minimum(rows, place[:, 1:2] - 1)

    def look_up(self, each: LookedUpRows) -> torch.Tensor:
        """Return a field that is looked up for each window."""
        series, place = self._series()
        begin = self.begin.to(torch.int64)
        if each.fetch is None:
            return series if each.of == "series" else begin - place[:, 0] + self._places.anchor
        if each.of == "series":
            rows = series
        elif each.of == "windows":
            rows = place[:, 2] + (begin - place[:, 3]) // self._places.stride
        else:
            rows = torch.maximum(begin + self._places.anchor, self.rows)
        return gather(each.fetch(), rows)

    def _series(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the series of each window, and its places."""
        if self._found is None:
            places = self._places.fetch().values
            series = torch.bucketize(self.rows.to(torch.int64), places[:, 0].contiguous(), right=True) - 1
            self._found = series, places[series]
        return self._found


def _take_steps(window: _Window, step_range: StepRange) -> torch.Tensor:
    """Return the steps of a field, padded where a series has none."""
    source, steps = step_range.fetch(), step_range.steps
    samples = len(window.rows)
    if not steps.count:
        return source.empty(samples, 0, *source.inner)
    if window.ends == "none" and steps.are_neighbours:
        template = windows(integer_view(source.values), steps.count)
        return source.convert_taken(template.index_select(0, source.places(window.rows + steps.start)))
    rows = window.begin.view(-1, 1) + window.steps(steps)
    exists = None
    if window.ends != "none":
        if step_range.padding is None:
            rows = window.nearest(rows)
        else:
            exists = window.exist(steps).flatten()
    values = gather_padded(source, rows.flatten(), exists, step_range.padding or 0)
    return values.view(samples, steps.count, *source.inner)


def _take_found(found: FoundSteps, rows: torch.Tensor) -> list[torch.Tensor]:
    """Return a field of found rows, and its mask if batches hold it.

    Args:
        found: The field.
        rows: The rows, ``[windows, places]``; -1 where there is none, and -2 less the nearest row where only that
            exists.
    """
    source, exists = found.fetch(), rows >= 0
    if found.padding is None:
        rows = torch.where(rows < -1, -2 - rows, rows)
    values = gather_padded(source, rows.flatten(), (rows >= 0).flatten(), found.padding or 0)
    values = values.view(*rows.shape, *source.inner)
    return [values, exists] if found.is_masked else [values]
