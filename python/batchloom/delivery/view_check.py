"""A check that batches which are views were not written to: the rows of a batch are compared with a copy of them.

The copy holds the rows that a batch covers, for as long as the batch is the last one, and the row that its windows
share in a mask or in a covariate of a series. Every byte is compared, when the next batch is asked for, at the end of
the epoch, or when the iterator is closed. Nothing is restored.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import batchloom._native as _native
import numpy
from batchloom.arrays.frameworks import framework_of, load
from batchloom.delivery.window_views import BatchMaker, Cut, LoadedRows, View, WindowViews
from batchloom.errors import DataError, many

Array = numpy.ndarray[Any, Any]


class CheckedWindowViews(WindowViews):
    """Batches that are views, each of which is checked for writes after its step."""

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> Any:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""
        if self._copy or self._static is not None:
            return super().begin(loader, begin)  # their memory is their own
        steps = loader.steps(self._windows)
        maker = WatchedMaker(self, steps, loader)
        return CheckedBatches(self._iterator(steps, maker, begin, None), maker)

    @property
    def _adds(self) -> bool:
        return True  # Each batch is watched as it is made.

    def watch(self, loaded: LoadedRows, batch: list[Any], row: int, place: tuple[int, int], numbers: Array) -> Watch:
        """Return a copy of the rows that a batch covers, and of those that its windows share, to compare with."""
        modules = [module for module, _, _ in self._sources]
        rows = loaded.rows(*self.cover((row, len(numbers), self._stride)))
        covered = [Guarded.of(module, array) for module, array in zip(modules, rows, strict=True)]
        beside = dict(zip(self._source.beside, batch[len(self._cuts) :], strict=False))
        modules_of = {name: load(framework_of(name, array)) for name, array in beside.items()}
        shared = {
            name: Guarded.of(modules_of[name], array[:1])
            for name, array in beside.items()
            if modules_of[name].is_repeated(array)
        }
        return Watch(covered, shared, row, place, numbers)

    def error(self, watch: Watch) -> DataError | None:
        """Return the error of a batch that was written to; ``None`` if its bytes are unchanged."""
        step, epoch = watch.place
        for name, guarded in watch.shared.items():
            if guarded.count_changed().any():
                return DataError(
                    f"step {step} of epoch {epoch} wrote to {name}, of which the "
                    f"{many(len(watch.numbers), 'window')} of the "
                    'batch share one row; expected a new array, or a loader with buffers="own"'
                )
        changed = [guarded.count_changed() for guarded in watch.covered]
        return self._of_series(watch, changed) if any(rows.any() for rows in changed) else None

    def _of_series(self, watch: Watch, changed: list[Array]) -> DataError:
        """Return the error of a batch that changed some bytes of some rows of the series."""
        steps = numpy.flatnonzero(sum(changed))
        names = self._find_written(changed, int(steps[0]), int(steps[-1]), len(watch.numbers))
        written = " or ".join(self._describe_window(name, watch, int(steps[0])) for name in names)
        step, epoch = watch.place
        return DataError(
            f"step {step} of epoch {epoch} wrote to {written}: {many(len(steps), 'step')} of the series changed. "
            "Batches of "
            "neighbours are views, which share these steps; expected a new array, as x = x - x.mean(1, keepdim=True), "
            'or a loader with buffers="own"'
        )

    def _describe_window(self, name: str, watch: Watch, row: int) -> str:
        """Return the name of the last window of a field that begins no later than a row."""
        start = dict(zip(self._source.spans, self._cuts, strict=True))[name].steps.start
        window = min((row - start) // self._stride, len(watch.numbers) - 1)
        place = self._source.where(watch.row + window * self._stride)
        return f"{name} of sample {watch.numbers[window]}, a window from {place} on"

    def _find_written(self, changed: list[Array], first: int, last: int, samples: int) -> list[str]:
        """Return the fields that hold all changes; those that hold some, if each of them holds a part."""
        most = max(rows.sum() for rows in changed)
        rows = sum(changed) > 0

        def reach(cut: Cut) -> slice:
            return slice(cut.steps.start, cut.steps.start + (samples - 1) * self._stride + cut.steps.covered)

        def holds_all(cut: Cut) -> bool:
            own, span = changed[cut.array], reach(cut)
            whole = bool(((own > 0) == rows).all()) and bool(own.sum() == most)
            return whole and span.start <= first and last < span.stop

        cuts = dict(zip(self._source.spans, self._cuts, strict=True))
        names = [name for name, cut in cuts.items() if holds_all(cut)]
        return names or [name for name, cut in cuts.items() if changed[cut.array][reach(cut)].any()]


@dataclass(frozen=True)
class Guarded:
    """Rows of an array, and a copy of their bytes.

    Attributes:
        module: The functions of the framework of the array.
        rows: The rows.
        copy: Their bytes as the batch was handed over.
    """

    module: Any
    rows: Any
    copy: Any

    @classmethod
    def of(cls, module: Any, rows: Any) -> Guarded:
        """Copy the bytes of rows."""
        return cls(module, rows, module.bits(module.own(rows, None)))

    def count_changed(self) -> Array:
        """Return the number of bytes of each row that differ from the copy."""
        counts: Array = self.module.differences(self.module.bits(self.rows), self.copy)
        return counts


@dataclass(frozen=True)
class Watch:
    """A copy of the rows of a batch.

    Attributes:
        covered: The rows of the series that the batch covers, of each array.
        shared: The row that all windows share, of each field that repeats one.
        row: The number of the first row that the batch covers.
        place: The step and the epoch.
        numbers: The samples of the batch.
    """

    covered: list[Guarded]
    shared: dict[str, Guarded]
    row: int
    place: tuple[int, int]
    numbers: Array


class WatchedMaker(BatchMaker):
    """Makes the batches of one epoch, and watches the last one."""

    def __init__(self, views: CheckedWindowViews, steps: _native.Steps, loader: _native.Loader) -> None:
        super().__init__(views, steps)
        self._checked, self._loader = views, loader
        self._watch: Watch | None = None

    def __call__(self, view: View | None) -> list[Any]:
        """Return the arrays of the next batch, given its view; ``None`` if it is not one view."""
        self._watch = None
        if view is None:
            return super().__call__(view)
        loaded = self._loaded = self._load(0, *self._views.cover(view))
        arrays = super().__call__(view)
        state = self._loader.state()
        place = sum(steps for _, steps in state["worlds"]), state["epoch"]
        numbers = numpy.from_dlpack(self._steps.indices())
        self._watch = self._checked.watch(loaded, arrays, view[0], place, numbers)
        return arrays

    def verify(self) -> None:
        """Check that the last batch was not written to.

        Raises:
            DataError: It was; the message names its step, the window and the field.
        """
        watch, self._watch = self._watch, None
        error = None if watch is None else self._checked.error(watch)
        if error is not None:
            raise error


class CheckedBatches:
    """The batches of an epoch, each of which is checked after its step."""

    def __init__(self, batches: _native.StepIterator, maker: WatchedMaker) -> None:
        self._batches, self._maker = batches, maker

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            DataError: The last one was written to.
        """
        self._maker.verify()
        return next(self._batches)

    def close(self) -> None:
        """End the iteration.

        Raises:
            DataError: The last batch was written to.
        """
        self._batches.close()
        self._maker.verify()

    def __reduce__(self) -> NoReturn:
        self._batches.__reduce__()

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        try:
            self._maker.verify()
        except DataError as error:
            # No error comes out of here: a loop that is left by break would hide it.
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
