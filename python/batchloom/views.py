"""Batches of windows as views on the series, where it lies or on a device.

A batch of neighbours is one slice of a template: of each array every stretch of so many rows, ``[stretches, steps,
...]``, over the array's own memory. Where the rows are moved, all at once, some batches at a time, or batch by batch,
the template is made there, so that what moves is each row once and never a stacked batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchloom import _native, exchange
from batchloom.cut import FixedSize, Rule
from batchloom.errors import ArgumentError
from batchloom.placement import Placement
from batchloom.tokens import TokenDataset
from batchloom.windows import WindowDataset

# Batches after which memory maps are looked at.
RELEASED = 64


@dataclass(frozen=True)
class Cut:
    """How one field is cut from rows.

    Attributes:
        module: The functions of its framework.
        array: Which array it is cut from.
        start: The first step of the window,
        steps: and how many.
        patches: The length of patches and the steps from one to the next, if any.
    """

    module: Any
    array: int
    start: int
    steps: int
    patches: tuple[int, int] | None

    def finish(self, batch: Any) -> Any:
        """Cut into patches what was cut from rows."""
        return batch if self.patches is None else self.module.patches(batch, *self.patches)


class Shard:
    """Rows ``first`` to ``end`` of every array, and the templates over them."""

    def __init__(self, arrays: list[Any], cuts: list[Cut], first: int, end: int) -> None:
        self.first, self.end = first, end
        self._cuts = cuts
        self._templates = [cut.module.windows(arrays[cut.array], cut.steps) for cut in cuts]

    def slice(self, row: int, samples: int, stride: int) -> list[Any]:
        """Return windows that begin at equal distances from ``row`` on: views."""
        low = row - self.first
        high = low + (samples - 1) * stride + 1
        pairs = zip(self._cuts, self._templates, strict=True)
        return [cut.finish(template[low + cut.start : high + cut.start : stride]) for cut, template in pairs]

    def gather(self, rows: Any) -> list[Any]:
        """Return the windows that begin at ``rows``, an array of the templates' framework and device: owned."""
        pairs = zip(self._cuts, self._templates, strict=True)
        return [cut.finish(template[rows - self.first + cut.start].contiguous()) for cut, template in pairs]


def views(dataset: Any, batching: Rule, shuffle: str, documents: bool, where: Placement) -> Views | None:
    """Return what makes views, or ``None`` where all batches are gathered by the engine."""
    if isinstance(dataset, TokenDataset):
        dataset = None if documents else dataset._as_windows()
    if not isinstance(dataset, WindowDataset):
        return None
    fields = [span.field for span in dataset._spans.values()]
    lendable = all(_lendable(field, where.output or field.framework) for field in fields)
    neighbours = isinstance(batching, FixedSize) and shuffle != "samples"
    if not lendable or (where.device is None and (where.copy or not neighbours)):
        return None
    found = Views(dataset, where, batching.batch_size if isinstance(batching, FixedSize) else 1)
    return found if neighbours or found.is_resident else None


def _lendable(field: exchange.Field, framework: str) -> bool:
    """Whether a framework has views on such an array: JAX has none, torch none of what runs backwards."""
    module = exchange.require(framework, field.dtype, field.label)
    return hasattr(module, "windows") and not (framework == "torch" and field.tensor.is_backward)


class Views:
    """What makes batches of the windows of one dataset, for a loader.

    Raises:
        ArgumentError: The rows do not fit into ``memory_limit``.
    """

    def __init__(self, dataset: WindowDataset, where: Placement, batch_size: int) -> None:
        self._windows = dataset._windows
        self._stride, self._span = dataset._lengths["stride"], dataset._span
        self._input_len = dataset._lengths["input_len"]
        self._mask, self._named, self._names = dataset._options["mask"], dataset._named, dataset.names
        self._device, self._copy = where.device, where.copy
        self._read(dataset, where.output)
        self._limit = self._rows_at_once(where, batch_size)
        self._whole: Shard | None = None

    def _read(self, dataset: WindowDataset, output: str | None) -> None:
        """Take the arrays, each once, and how fields are cut from them."""
        self._cuts: list[Cut] = []
        self._sources: list[tuple[Any, Any]] = []
        self._fields = [span.field for span in dataset._spans.values()]
        places: dict[tuple[int, str], int] = {}
        for name, span in dataset._spans.items():
            framework = output or span.field.framework
            module = exchange.require(framework, span.field.dtype, name)
            key = (id(span.field.array), framework)
            if key not in places:
                places[key] = len(self._sources)
                self._sources.append((module, exchange.lend(span.field.tensor, framework)))
            patches = dataset._patches if name == "x" else None
            self._cuts.append(Cut(module, places[key], span.start, span.steps, patches))
        self._rows = len(dataset._spans["x"].field.tensor)
        self._row_bytes: int = sum(array.nbytes for _, array in self._sources) // max(self._rows, 1)

    def _rows_at_once(self, where: Placement, batch_size: int) -> int | None:
        """How many rows may be moved at once; ``None`` for all of them, 0 for those of one batch."""
        series, batch = self._rows * self._row_bytes, self.cover(0, batch_size)[1] * self._row_bytes
        limit = self._limit_of(where)
        if limit is None or series <= limit:
            return 0 if where.resident is False else None
        if where.resident is True:
            raise ArgumentError(
                f"resident is True and memory_limit {limit}, but the series take {series} bytes; expected a higher "
                'limit, or resident="auto"'
            )
        if 2 * batch > limit:
            # Views on the rows before are still held while the next ones come.
            raise ArgumentError(
                f"memory_limit is {limit}, but the rows of a batch of {batch_size} windows take {batch} bytes, and two "
                "batches must fit; expected a higher limit or smaller batches"
            )
        return 0 if where.resident is False else limit // 2 // self._row_bytes

    def _limit_of(self, where: Placement) -> int | None:
        """The bytes that rows may take; ``None`` where nothing limits them."""
        if where.memory_limit is not None or where.resident != "auto" or self._device is None:
            return where.memory_limit
        free: int | None = exchange.require("torch", "bool", "x").free_memory(self._device)
        return None if free is None else free // 2

    @property
    def is_resident(self) -> bool:
        """Whether all rows are there at once."""
        return self._limit is None

    def begin(self, steps: _native.Steps) -> _native.Views:
        """Return the batches of an epoch."""
        return _native.Views(steps, Epoch(self, steps))

    def release(self) -> None:
        """Let go of what memory maps have read, once it is much."""
        for field in self._fields:
            exchange.release(field)

    def batch(self, found: list[Any]) -> Any:
        """Make a batch of its arrays: a tuple, or a dict."""
        return dict(zip(self._names, found, strict=True)) if self._named else tuple(found)

    def row(self, run: tuple[int, int] | None) -> int | None:
        """The first row of windows that are one view; ``None`` where they are not."""
        return None if run is None else self._windows.row(*run)

    def slice(self, shard: Shard, row: int, samples: int) -> list[Any]:
        """Neighbours, whose rows are in ``shard``."""
        found = shard.slice(row, samples, self._stride)
        if self._mask:
            found.append(self._cuts[0].module.ones(samples, self._input_len, self._device))
        # Only a device has copies of views: on the CPU, what is owned is formed by the engine.
        return [self._cuts[0].module.own(array, None) for array in found] if self._copy else found

    def cover(self, row: int, samples: int) -> tuple[int, int]:
        """The rows that windows which begin at equal distances from ``row`` on cover."""
        return row, row + (samples - 1) * self._stride + self._span

    def load(self, steps: _native.Steps, first: int, end: int) -> Shard:
        """Return the rows of the next batch, and of those after it: as far as they fit and none is moved in vain."""
        if self._limit is None:
            return self._all()
        for ahead in range(1, steps.left()):
            run = steps.run(ahead)
            row = self.row(run)
            if run is None or row is None:
                break
            low, high = self.cover(row, run[1] - run[0])
            both = max(end, high) - min(first, low)
            if both > self._limit or both > (end - first) + (high - low):
                break
            first, end = min(first, low), max(end, high)
        arrays = [module.own(array[first:end], self._device) for module, array in self._sources]
        return Shard(arrays, self._cuts, first, end)

    def _all(self) -> Shard:
        """All rows, which are moved once."""
        if self._whole is None:
            arrays = [
                array if self._device is None else module.own(array, self._device) for module, array in self._sources
            ]
            self._whole = Shard(arrays, self._cuts, 0, self._rows)
        return self._whole

    def gather(self, steps: _native.Steps) -> list[Any]:
        """The next batch, whose windows are no neighbours, gathered where the rows are."""
        rows = self._windows.rows(indices := steps.indices())
        if rows is None:
            return self.owned(steps)
        found = self._all().gather(exchange.lend(rows, "torch").to(self._device))
        if self._mask:
            found.append(self._cuts[0].module.ones(len(indices), self._input_len, self._device).clone())
        return found

    def owned(self, steps: _native.Steps) -> list[Any]:
        """The next batch, formed by the engine: it is no view, because of zeros or a series that ends."""
        modules = [cut.module for cut in self._cuts] + ([self._cuts[0].module] if self._mask else [])
        frameworks = [module.__name__.rpartition(".")[2] for module in modules]
        arrays = [exchange.lend(tensor, name) for tensor, name in zip(steps.form(), frameworks, strict=True)]
        if self._device is not None:
            arrays = [array.to(self._device) for array in arrays]
        cut = [cut.finish(array) for cut, array in zip(self._cuts, arrays, strict=False)]
        return cut + arrays[len(cut) :]


class Epoch:
    """Makes the batches of one epoch: each call the next one, and the same again until the engine counts it."""

    def __init__(self, views: Views, steps: _native.Steps) -> None:
        self._views, self._steps = views, steps
        self._shard: Shard | None = None
        self._made = 0

    def __call__(self) -> Any:
        """Return the next batch."""
        self._made += 1
        if self._made % RELEASED == 0:
            self._views.release()
        return self._views.batch(self._arrays())

    def _arrays(self) -> list[Any]:
        """The arrays of the next batch."""
        run = self._steps.run(0)
        row = self._views.row(run)
        if run is None and self._views.is_resident:
            return self._views.gather(self._steps)
        if run is None or row is None:
            return self._views.owned(self._steps)
        samples = run[1] - run[0]
        first, end = self._views.cover(row, samples)
        if self._shard is None or first < self._shard.first or end > self._shard.end:
            self._shard = None  # let go before others come
            self._shard = self._views.load(self._steps, first, end)
        return self._views.slice(self._shard, row, samples)
