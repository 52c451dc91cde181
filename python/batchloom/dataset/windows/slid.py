"""Windows over series that were read: where each lies, and what loaders ask of them.

Windows take no memory. Fields are cut from series, or looked up for each window (``beside.py``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arguments import integer
from batchloom.arrays import frames
from batchloom.arrays.field import Field, host, lend
from batchloom.arrays.frameworks import require
from batchloom.collate.schema import Column, Columns, Schema
from batchloom.collate.window_steps import MOST_STEPS, WindowSteps
from batchloom.dataset.base import Dataset, Form, Made, Sliceable
from batchloom.dataset.windows.beside import LookedUp, ReadBeside, SeriesTable
from batchloom.dataset.windows.offsets import Offsets
from batchloom.dataset.windows.span import Span
from batchloom.errors import ArgumentError, DataError, RangeError, many

if TYPE_CHECKING:
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.collate.gather import ResidentRows
    from batchloom.device.collate.windows import Windows as Gatherer
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

Array = numpy.ndarray[Any, Any]

OWN = ("x", "y", "x_mark", "y_mark", "mask", "target_mask")

# Attributes that are derived from the others, and are left out of a pickle.
OF_WINDOWS = ("_windows", "_spans", "_looked", "_table", "_selection")

# Lengths that follow from others.
ENDS = ("lead", "trail", "whole")


class WindowPlace(NamedTuple):
    """The place of a window in its series."""

    series: int
    """The number of the series."""
    start: int
    """The first step of the window in its series, as batches with ``index=True`` hold it.

    It is negative if zeros come before the series. With ``offsets``, it is the step of the anchor.
    """
    missing: int
    """The steps of zeros before the series."""


@dataclass(frozen=True)
class WindowStats:
    """Counts of windows and series, and their bytes."""

    windows: int
    """Different windows."""
    samples: int
    """Samples of an epoch: more than windows if shorter series repeat theirs."""
    series: int
    """Series."""
    padded_series: int
    """Series that are shorter than a window, and make one that begins with zeros."""
    series_without_windows: int
    """Series without a window: those that ``short="drop"`` leaves out, and those without any step."""
    series_bytes: int
    """Bytes of the arrays themselves."""
    stacked_bytes: int
    """Bytes of the windows of an epoch, each copied to arrays of its own."""
    gathered_bytes: int
    """Bytes of a batch of windows that owns its memory, as with ``shuffle=True``."""
    viewed_bytes: int
    """Bytes of the rows that a batch of neighbours covers: a batch of views needs these alone, all in the series."""
    materialised_bytes: int
    """Bytes that a batch of neighbours writes on the CPU: 0 for views, ``gathered_bytes`` where they are not."""
    patched_bytes: int
    """Bytes of the patches of a batch, if each were stored: they are a view, of the series or of what was written."""


class SlidWindows(Dataset[Form]):
    """Windows over series, which :class:`WindowDataset` reads."""

    _lengths: dict[str, Any]
    _options: dict[str, Any]
    _offsets: Array
    _ids: list[Any] | None
    _times: Array | None
    _zoned: bool
    _is_filled: Array | None
    _filled_ahead: Array | None
    _patches: tuple[int, int] | None
    _steps_of_fields: Offsets | None
    _named: bool
    _index: bool

    def _finish(self, spans: dict[str, Span], masks: dict[str, WindowSteps], beside: ReadBeside, anchor: int) -> None:
        """Take the fields of a window, and those that are looked up beside it."""
        self._spans, self._masks, self._anchor = spans, masks, anchor
        self._parts: tuple[tuple[Array, Array, bool], ...] = ()
        whole = self._places()
        self._firsts: Array = numpy.from_dlpack(whole.firsts())
        counts = {"windows": whole.counts()[1], "series": len(self._offsets) - 1, "steps": int(self._offsets[-1])}
        self._looked: dict[str, LookedUp] = {}
        for name, rows, of in beside.told(counts):
            if name in (*spans, *masks, *self._place_names, *self._looked):
                raise ArgumentError(f"a field is named {name}, which is taken; expected another name")
            if of == "steps":
                if self._steps_of_fields is not None:
                    raise ArgumentError(f"{name} has a row for each step; expected it among the fields of offsets")
                spans[name] = Span(Field(name, rows), WindowSteps(0, self._lengths["input_len"]))
            else:
                self._looked[name] = LookedUp(of, Field(name, rows))
        if self._index:
            self._looked |= self._place_fields()
        self._take(self._slide())

    def _take(self, windows: _native.Windows) -> None:
        """Take the windows of the engine, and the table that follows from them."""
        ranges: Array = numpy.from_dlpack(windows.ranges())
        rows = numpy.stack([self._offsets[:-1], ranges[:, 1], *self._firsts.T], axis=1)
        self._windows, self._table = windows, SeriesTable(rows, self._lengths["stride"], self._anchor)

    def _place_fields(self) -> dict[str, LookedUp]:
        """Return the fields that say which window a sample is."""
        found = {"series": LookedUp("series"), self._step_name: LookedUp("steps")}
        if self._times is None:
            return found
        times: Any = self._times.view(numpy.int64) if self._times.dtype.kind == "M" else self._times
        if self._framework == "torch":
            times = lend(_native.borrow(times, "time"), "torch")
        return found | {"time": LookedUp("steps", Field("time", times))}

    @property
    def _place_names(self) -> tuple[str, ...]:
        """The names of the fields that say which window a sample is, if batches hold them."""
        return ("series", self._step_name, "time", "index") if self._index else ()

    @property
    def _step_name(self) -> str:
        """The name of the field that says where in its series a window is."""
        return "start" if self._steps_of_fields is None else "step"

    def _places(self) -> _native.Windows:
        """Return the windows of the engine, without fields.

        Raises:
            DataError: A series is too short; the message names it, also by its id.
        """
        try:
            return _native.Windows(_native.borrow(self._offsets, "offsets"), **self._lengths, **self._options)
        except DataError as error:
            raise DataError(self._with_id(str(error))) from None

    def _with_id(self, message: str) -> str:
        """Return a message of the engine's that begins with the number of a series, with its id after the number."""
        found = re.match(r"series (\d+)", message)
        if found is None or self._ids is None:
            return message
        return f"{found[0]} ({self._ids[int(found[1])]!r}){message[found.end() :]}"

    def _slide(self) -> _native.Windows:
        """Return the windows of the engine."""
        windows = self._places()
        for name, span in self._spans.items():
            windows = windows.with_steps(name, span.field.tensor, span.steps.native)
        for name, steps in self._masks.items():
            windows = windows.with_mask(name, steps.native)
        for name, each in self._looked.items():
            if each.field is not None and name != "time":
                windows = windows.with_rows(name, each.field.tensor, each.of, self._anchor)
        if self._index:
            windows = windows.with_index(self._step_name, self._anchor)
            time = self._looked.get("time")
            if time is not None and time.field is not None:
                windows = windows.with_rows("time", time.field.tensor, "steps", self._anchor)
        for starts, stops, reach_back in self._parts:
            windows = windows.part(_native.borrow(starts, "part"), _native.borrow(stops, "part"), reach_back)
        return windows

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return (*self._spans, *self._masks, *self._looked, *(["index"] if self._index else []))

    @property
    def fields(self) -> dict[str, Any]:
        """The series from which each array of a batch is cut."""
        rows = {name: each.field.array for name, each in self._looked.items() if each.field is not None}
        return {name: span.field.array for name, span in self._spans.items()} | rows

    @property
    def offsets(self) -> Array:
        """The offsets of series, int64: series ``k`` is the rows ``offsets[k]`` to ``offsets[k + 1]`` of each array."""
        return self._offsets

    @property
    def ids(self) -> list[Any] | None:
        """The id of each series; ``None`` unless they came in a frame with ids."""
        return self._ids

    @property
    def times(self) -> Array | None:
        """The time of each step of all series, in UTC where times have a time zone; ``None`` without times.

        The field ``time`` of a batch counts in their unit: ``batch["time"].view(dataset.times.dtype)`` for NumPy.
        """
        return self._times

    @property
    def filled(self) -> Array | None:
        """``True`` at each step of all series that was missing and was filled; ``None`` without ``freq``."""
        return self._is_filled

    @property
    def series(self) -> Array:
        """The number of the series of each sample; int64. To split by series: ``select(dataset.series < 80)``."""
        return self._series_and_begin()[0]

    @property
    def anchor(self) -> int:
        """The step of a window that is its anchor: with ``offsets``, the steps before it; else 0."""
        return self._anchor

    def _whole_len(self) -> int:
        return len(self._windows)

    def _sample(self, sample: int) -> Any:
        """Return one window: the arrays of a batch without their first dimension, as copies."""
        series, row, missing = self._windows.place(sample)
        end = int(self._table.rows[series, 1])
        found = {name: self._part(name, span, row - missing, row, end) for name, span in self._spans.items()}
        for name, steps in self._masks.items():
            rows = row - missing + numpy.asarray(steps.numbers, numpy.int64)
            found[name] = lend(_native.borrow((rows >= row) & (rows < end), name), self._framework)
        for name, each in self._looked.items():
            found[name] = self._looked_up(name, each, series, row - missing, row)
        if self._index:
            found["index"] = self._number_of("index", sample)
        return found if self._named else tuple(found.values())

    def _part(self, name: str, span: Span, begin: int, first: int, end: int) -> Any:
        """Return the steps of a field of the window that begins at row ``begin``, of the rows ``first`` to ``end``."""
        steps = span.steps
        low, high = begin + steps.start, begin + steps.start + steps.covered
        start, stop = min(max(low, first), high), max(min(high, end), low)
        module = require(span.field.framework, span.field.dtype, name)
        found = span.field.slice(start, max(start, stop))
        zeros = (start - low, high - max(start, stop))
        found = module.pad_rows(found, *zeros) if any(zeros) else module.own(found, None)
        if not steps.are_neighbours:
            found = found[numpy.asarray(steps.numbers) - steps.start]
        return module.patches(found[None], *self._patches)[0] if self._patches and name == "x" else found

    def _looked_up(self, name: str, each: LookedUp, series: int, begin: int, first: int) -> Any:
        """Return a field of the window of ``series`` that begins at row ``begin``, and exists from ``first`` on."""
        start, _, before, first_window = self._table.rows[series].tolist()
        if each.field is None:
            return self._number_of(name, series if each.of == "series" else begin - start + self._anchor)
        window = before + (begin - first_window) // self._lengths["stride"]
        row = {"series": series, "windows": window, "steps": max(begin + self._anchor, first)}[each.of]
        return each.field.slice(row, row + 1)[0]

    def _number_of(self, name: str, number: int) -> Any:
        """Return the number of a field that says which window a sample is, in the framework of batches."""
        return lend(_native.borrow(numpy.array([number]), name), self._framework)[0]

    def place(self, sample: int) -> WindowPlace:
        """Return the place of a window in its series, to join predictions with series and times.

        :meth:`sample_at` is its inverse: of samples that repeat a window, it returns the first one.
        """
        series, row, missing = self._windows.place(self._number(sample))
        return WindowPlace(series, row - missing - int(self._offsets[series]) + self._anchor, missing)

    def sample_at(self, series: int, start: int) -> int:
        """Return the number of the window of a series at a step, as batches with ``index=True`` say both.

        Args:
            series: The number of the series.
            start: The first step of the window, negative if zeros come before the series; with ``offsets``, the step of
                its anchor.

        Raises:
            RangeError: There is no such window.
        """
        most = len(self._offsets) - 2
        number, step = integer("series", series, most=most), operator.index(start) - self._anchor
        found = self._windows.sample_at(number, step) if abs(step) < MOST_STEPS else None
        if found is None:
            raise RangeError(
                f"series {number} has no window at step {start}; expected the start of one, as place() and batches "
                "with index=True say it"
            )
        return found

    def _number(self, sample: int) -> int:
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise RangeError(f"sample {number} is outside the dataset; expected 0 <= sample < {len(self)}")
        return number % len(self)

    def stats(self, batch_size: int = 64) -> WindowStats:
        """Return the counts of windows and series, and the bytes of an epoch and of a batch, stacked or not.

        For a part of a split, all of these are of the part, except ``series_bytes``: parts share the arrays.
        """
        batch_size = integer("batch_size", batch_size, least=1)
        samples, windows, series, padded, without = self._windows.counts()
        lengths, own = self._lengths, list({id(span.field.array): span for span in self._spans.values()}.values())
        covered = (batch_size - 1) * lengths["stride"] + self._span
        window = sum(span.steps.count * span.field.row_bytes for span in self._spans.values())
        row = sum(span.field.row_bytes for span in own)
        are_views = all(span.steps.are_strided for span in self._spans.values())
        return WindowStats(
            windows=windows,
            samples=samples,
            series=series,
            padded_series=padded,
            series_without_windows=without,
            series_bytes=sum(len(span.field.tensor) * span.field.row_bytes for span in own),
            stacked_bytes=samples * window,
            gathered_bytes=batch_size * window,
            viewed_bytes=covered * row,
            materialised_bytes=0 if are_views else batch_size * window,
            patched_bytes=batch_size * self._patch_bytes(),
        )

    def _patch_bytes(self) -> int:
        """Return the bytes of the patches of a window, if each were stored."""
        if self._patches is None:
            return 0
        (length, stride), x = self._patches, self._spans["x"]
        return ((x.steps.count - length) // stride + 1) * length * x.field.row_bytes

    def _ranges(self) -> tuple[Array, list[Array] | None]:
        """Return the first row and the end of each series, and the times of each, where they are known."""
        ranges: Array = numpy.from_dlpack(self._windows.ranges())
        times = None if self._times is None else [self._times[start:end] for start, end in ranges.tolist()]
        return ranges, times

    def _choose(self, selection: _native.Selection) -> None:
        self._windows = self._windows.select(selection)

    def _made(self) -> Made:
        state = {name: value for name, value in self.__dict__.items() if name not in OF_WINDOWS}
        arrays = {name: (span.field.array, span.steps) for name, span in self._spans.items()}
        beside = {
            name: (each.of, None if each.field is None else each.field.array) for name, each in self._looked.items()
        }
        return _rebuild, (type(self), state, arrays, beside)

    def __repr__(self) -> str:
        fields = ", ".join(repr(span.field) for span in self._spans.values())
        lengths = ", ".join(f"{name}={value}" for name, value in self._lengths.items() if value and name not in ENDS)
        return f"WindowDataset({fields}; {lengths}; {many(len(self), 'window')} of {len(self._offsets) - 1} series)"

    @property
    def _span(self) -> int:
        """The steps of a window: input, gap and horizon."""
        span: int = self._lengths["input_len"] + self._lengths["gap"] + self._lengths["horizon"]
        return span

    @property
    def _framework(self) -> str:
        """The framework of the series."""
        return next(iter(self._spans.values())).field.framework

    def _native_dataset(self) -> _native.Dataset:
        return self._windows.dataset()

    def _series_arrays(self) -> tuple[Field, ...]:
        """Return the arrays that fields are cut from, each once."""
        return tuple({id(span.field.array): span.field for span in reversed(self._spans.values())}.values())

    def _row_arrays(self) -> tuple[Field, ...]:
        """Return the arrays that rows are looked up in."""
        return tuple(each.field for each in self._looked.values() if each.field is not None)

    def _series_and_begin(self) -> tuple[Array, Array]:
        """Return the series of each sample, and the row with which it begins; that row may lie before the series."""
        samples = _native.borrow(numpy.arange(len(self)), "samples")
        places: list[Array] = [numpy.from_dlpack(found) for found in self._windows.rows(samples)]
        rows, missing = places
        series = numpy.searchsorted(self._offsets[:-1], rows, side="right") - 1
        return series, rows - missing

    def _classes(self, option: str, field: str | int) -> Any:
        looked_up = self._looked.get(str(field))
        if looked_up is None or looked_up.of == "steps":
            return super()._classes(option, field)
        series, begin = self._series_and_begin()
        if looked_up.field is None:
            return series
        _, _, before, first = self._table.rows[series].T
        rows = series if looked_up.of == "series" else before + (begin - first) // self._lengths["stride"]
        return numpy.asarray(host(option, looked_up.field.data))[rows]

    def _arrays(self) -> tuple[Field, ...]:
        return (*self._series_arrays(), *self._row_arrays())

    def _beside(self) -> tuple[Field, ...]:
        return (self._table.field,) if self._looked or self._lengths["trail"] else ()

    def _row_ranges(self, first: int, end: int) -> list[RowRange]:
        from batchloom.device.shards import RowRange

        start, stop = self._native_dataset().rows(first, end)[0]
        whole = [RowRange(field, 0, len(field)) for field in (*self._row_arrays(), *self._beside())]
        return [RowRange(field, start, stop) for field in self._series_arrays()] + whole

    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        most = self._native_dataset().most_rows(samples)[0]
        whole = [(field, len(field)) for field in (*self._row_arrays(), *self._beside())]
        return [(field, most) for field in self._series_arrays()] + whole

    def _element_bytes(self) -> int | None:
        return sum(field.row_bytes for field in self._series_arrays()) if self._padded else None

    def _row_shapes(self) -> Mapping[str, Sequence[int]]:
        # A patch is cut along time, so the shape of a step is not the end of the shape of x.
        fields = {name: span.field for name, span in self._spans.items() if not (self._patches and name == "x")}
        fields |= {name: each.field for name, each in self._looked.items() if each.field is not None}
        return {name: field.tensor.shape[1:] for name, field in fields.items()}

    def _schema(self, columns: Columns) -> Schema:
        frameworks = {name: span.field.framework for name, span in self._spans.items()}
        frameworks |= {name: each.field.framework for name, each in self._looked.items() if each.field is not None}
        found = (Column(name, dtype, frameworks.get(name, self._framework)) for name, dtype in columns)
        return Schema(tuple(found), named=self._named, patches=self._patches)

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        return self._gatherer(resident, options)

    def _gatherer(self, resident: Resident, options: CollateOptions | None = None) -> Gatherer:
        from batchloom.device.collate.windows import LookedUpRows, SeriesPlaces, StepRange
        from batchloom.device.collate.windows import Windows as Gatherer
        from batchloom.device.conversion import converted

        def fetched(name: str, field: Field) -> Callable[[], ResidentRows]:
            fetch = partial(resident.rows_of, field)
            return fetch if options is None else converted(options, name, fetch)

        shared = {id(field.array): field for field in self._series_arrays()}
        step_ranges = [
            StepRange(fetched(name, shared[id(span.field.array)]), span.steps) for name, span in self._spans.items()
        ]
        looked_up = [
            LookedUpRows(each.of, None if each.field is None else fetched(name, each.field))
            for name, each in self._looked.items()
        ]
        places = SeriesPlaces(partial(resident.rows_of, self._table.field), self._table.stride, self._table.anchor)
        ends = "both" if self._lengths["trail"] else "front" if self._padded else "none"
        lists = self._index and not (options is not None and options.marked)
        return Gatherer(step_ranges, list(self._masks.values()), ends, looked_up, places, lists)

    def _in_parts(self) -> frozenset[str]:
        return frozenset(self._spans)

    def _sliceable(self, documents: bool) -> Sliceable | None:
        if not all(span.steps.are_strided for span in self._spans.values()):
            return None
        return Sliceable(
            windows=self._windows,
            spans=self._spans,
            stride=self._lengths["stride"],
            span=self._span,
            masks={name: steps.count for name, steps in self._masks.items()},
            beside=self._looked,
            table=self._table,
            index=self._index,
            patches=self._patches,
            keys=list(self.names) if self._named else None,
            collator=self._gatherer,
            where=partial(frames.where, offsets=self._offsets, ids=self._ids),
        )

    @property
    def _is_formed_without_torch(self) -> bool:
        return True

    @property
    def _padded(self) -> bool:
        """``True`` if windows may hold zeros that their series does not have."""
        _, _, _, padded, _ = self._windows.counts()
        return bool(padded or self._lengths["lead"] or self._lengths["trail"])


def _rebuild(
    kind: type[SlidWindows[Any]],
    state: dict[str, Any],
    arrays: dict[str, tuple[Any, WindowSteps]],
    beside: dict[str, tuple[str, Any]],
) -> SlidWindows[Any]:
    dataset = kind.__new__(kind)
    dataset.__dict__.update(state)
    dataset._spans = {name: Span(Field(name, array), steps) for name, (array, steps) in arrays.items()}
    dataset._looked = {
        name: LookedUp(of, None if array is None else Field(name, array)) for name, (of, array) in beside.items()
    }
    dataset._take(dataset._slide())
    return dataset
