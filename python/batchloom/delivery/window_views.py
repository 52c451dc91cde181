"""Batches of windows as views on the series, in their own memory or on a device.

A batch of neighbours is one slice of a template. The template of an array holds all ranges of as many rows as a window
has, ``[ranges, steps, ...]``, as views on its memory. If rows move to a device (all at once, some batches at a time, or
batch by batch), the template is made there: each row moves once, and stacked batches never move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
from batchloom.arrays.field import BorrowedArray, lend
from batchloom.arrays.frameworks import DEVICE_FRAMEWORK, require
from batchloom.batching.rules import FixedSize, Rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.schema import CollateOptions, Schema
from batchloom.collate.window_steps import WindowSteps
from batchloom.dataset.array_windows import ArrayWindows
from batchloom.delivery.placement import Placement, PlacementRequest

if TYPE_CHECKING:
    from batchloom.device.resident import Resident
    from batchloom.device.static_buffers import StaticBuffers
    from batchloom.device.transfer import Copy, Transfer


View = tuple[int, int, int]
"""A batch that is one view: its first row, the number of its windows, and the rows from one window to the next."""


@dataclass(frozen=True)
class Cut:
    """The cut of one field from rows.

    Attributes:
        framework: Its framework.
        module: The functions of that framework.
        array: The number of the array that it is cut from.
        steps: The steps of the window that it takes.
        patches: The length of patches and the steps from one to the next, if any.
    """

    framework: str
    module: Any
    array: int
    steps: WindowSteps
    patches: tuple[int, int] | None

    def template(self, rows: Any) -> Any:
        """Return its windows that begin with each of the rows: views."""
        windows = self.module.windows(rows, self.steps.covered)[self.steps.start :]
        return self.finish(windows if self.steps.are_neighbours else windows[:, :: self.steps.every])

    def finish(self, batch: Any) -> Any:
        """Cut windows into patches, if the field has patches."""
        return batch if self.patches is None else self.module.patches(batch, *self.patches)


class LoadedRows:
    """Rows ``first`` to ``end`` of every array, and the templates over them.

    Args:
        arrays: The rows, if they are on the device already.
        copies: The copies of the rows that are under way to a device.
    """

    def __init__(self, cuts: list[Cut], first: int, end: int, arrays: list[Any], copies: Sequence[Copy] = ()) -> None:
        self.first, self.end = first, end
        self._cuts, self._arrays, self._copies = cuts, arrays, copies
        self._templates: list[Any] = []

    def holds(self, first: int, end: int) -> bool:
        """Return whether it holds these rows."""
        return self.first <= first and end <= self.end

    def slice(self, view: View) -> list[Any]:
        """Return windows that begin at equal distances: views."""
        row, samples, stride = view
        low = row - self.first
        high = low + (samples - 1) * stride + 1
        return [template[low:high:stride] for template in self.templates()]

    def templates(self) -> list[Any]:
        """Return the windows that begin with each of the rows, of each field: views."""
        arrays = self._finish_copies()
        if not self._templates:
            self._templates = [cut.template(arrays[cut.array]) for cut in self._cuts]
        return self._templates

    def rows(self, first: int, end: int) -> list[Any]:
        """Return the rows ``first`` to ``end`` of every array."""
        return [array[first - self.first : end - self.first] for array in self._finish_copies()]

    def _finish_copies(self) -> list[Any]:
        # Each time: the consumer may have gone on to another stream.
        return [copy.arrive() for copy in self._copies] if self._copies else self._arrays


def views(
    source: ArrayWindows,
    batching: Rule,
    shuffle: str,
    request: PlacementRequest,
    kind: type[WindowViews],
    release: Callable[[], None],
) -> WindowViews | None:
    """Return the delivery of views, or ``None`` where batches are no neighbours, or are to be formed.

    Args:
        source: The windows.
        batching: The rule of batches.
        shuffle: The random order.
        request: The request of the user.
        kind: The class of the delivery.
        release: Unmaps the pages of memory maps that views have read, if they are many.
    """
    if not isinstance(batching, FixedSize) or shuffle == "samples":
        return None
    if source.continues and (request.device is not None or request.checks_views):
        return None
    if source.found and request.is_there:
        return None  # The engine, which copies found rows, does not read what is on a device.
    fields = source.fields().values()
    lendable = all(_has_views(field, request.output or field.framework, request.device) for field in fields)
    if not lendable or (request.device is None and request.copies):
        return None
    return kind(source, request, batching.batch_size, release)


def _has_views(field: BorrowedArray, framework: str, device: Any) -> bool:
    """Return whether a framework has views on an array: JAX never, torch not where it runs backwards in memory."""
    module = require(DEVICE_FRAMEWORK if device is not None else framework, field.dtype, field.label)
    return module.HAS_VIEWS and (module.HAS_BACKWARD_VIEWS or not field.tensor.is_backward)


def _transfer(device: Any) -> tuple[Transfer | None, Resident | None]:
    """Return the transfer to a device, and the arrays that stay there; ``None`` for the CPU."""
    if device is None:
        return None, None
    from batchloom.device.resident import Resident
    from batchloom.device.transfer import Transfer

    return Transfer(device), Resident(device)


def _make_static_buffers() -> StaticBuffers:
    from batchloom.device.static_buffers import StaticBuffers

    return StaticBuffers()


class WindowViews:
    """Batches of a loader that are views on the arrays of its dataset.

    Attributes:
        placement: The place where batches are made, and why.

    Raises:
        ArgumentError: Two batches exceed the bytes that ``resident`` allows.
    """

    def __init__(
        self, source: ArrayWindows, request: PlacementRequest, batch_size: int, release: Callable[[], None]
    ) -> None:
        self._source, self._windows, self._release = source, source.native, release
        self._stride, self._span, self._masks = source.shape.stride, source.shape.span, source.masks
        self._device, self._copy, self._is_there = request.device, request.copies, request.is_there
        self._output = DEVICE_FRAMEWORK if self._device is not None else request.output
        self._transfer, self._resident = _transfer(self._device)
        self._static = _make_static_buffers() if request.is_static else None
        self._read(source)
        self._limit = self._rows_at_once(request, batch_size)
        self.placement = self._placement(request)
        self._whole: LoadedRows | None = None
        self._stream_key = None if self._transfer is None else self._transfer.stream_key()
        self._key: Any = None

    def _read(self, source: ArrayWindows) -> None:
        """Take the arrays, each once, and how fields are cut from them."""
        self._cuts: list[Cut] = []
        self._sources: list[tuple[Any, BorrowedArray, str]] = []
        self._fields = [span.field for span in source.spans.values()]
        self._framework = self._fields[0].framework
        places: dict[tuple[int, str], int] = {}
        for name, span in source.spans.items():
            framework = self._output or span.field.framework
            module = require(framework, span.field.dtype, name)
            key = (id(span.field.array), framework)
            if key not in places:
                places[key] = len(self._sources)
                self._sources.append((module, span.field, framework))
            patches = source.shape.patches if name == "x" else None
            self._cuts.append(Cut(framework, module, places[key], span.steps, patches))
        self._rows = len(self._fields[0].tensor)
        self._row_bytes: int = sum(field.tensor.nbytes for _, field, _ in self._sources) // max(self._rows, 1)

    def _rows_at_once(self, request: PlacementRequest, batch_size: int) -> int | None:
        """Return the most rows to move at once; ``None`` for all rows, 0 for the rows of one batch."""
        batch = self.cover((0, batch_size, self._stride))[1] * self._row_bytes
        return request.rows_at_once(self._rows * self._row_bytes, batch_size, batch, self._row_bytes)

    def _placement(self, request: PlacementRequest) -> Placement:
        device, size = str(self._device or "cpu"), request.limit()
        if self._limit is None:
            reason = "the series are read where they are" if self._device is None else "the series are on the device"
        else:
            reason = f"{self._limit} rows move at a time" if self._limit else "the rows of each batch move"
        return Placement("views", device, self._rows * self._row_bytes, size, reason, request.shard_size)

    @property
    def moves(self) -> bool:
        """``True`` if rows move to a device in parts, beside its computation."""
        return self._transfer is not None and self._limit is not None

    def copies(self) -> tuple[int, int]:
        """Return the number of copies to the device that are under way, and their bytes."""
        return (0, 0) if self._transfer is None else self._transfer.under_way()

    def note_reader(self) -> None:
        """Note the current stream as a reader of the arrays on the device."""
        if self._transfer is None or self._resident is None or not self._transfer.has_streams:
            return
        assert self._stream_key is not None
        key = self._stream_key()
        # Before torch 2.15, a stream is neither equal to None nor unequal.
        if self._key is None or key != self._key:
            self._key = key
            self._resident.use(self._transfer.current_stream())

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine, which has none of the data where that is on a device."""
        return BlockOptions(index_table=self._is_there)

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches: move data that is to be resident."""
        self._keys, self._marks, self._options = schema.keys, options.marks, options
        self._source = self._source.holding(options.names)
        self._masks = self._source.masks
        if self._limit is None and self._resident is not None:
            self._resident.bring([*(field for _, field, _ in self._sources), *self._source.row_arrays])

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> Any:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""
        steps = loader.steps(self._windows)
        return self._iterator(steps, BatchMaker(self, steps), begin, self._static)

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader."""
        steps = loader.steps_at(plan, step, self._windows)
        return next(self._iterator(steps, BatchMaker(self, steps), lambda: None, None))

    def _iterator(
        self,
        steps: _native.Steps,
        maker: BatchMaker,
        begin: Callable[[], None],
        static: StaticBuffers | None,
    ) -> _native.StepIterator:
        """Return the batches that ``maker`` makes of steps."""
        deliver = None if static is None else static.put

        def start() -> None:
            for field in self._fields:
                field.check()
            begin()

        templates = None if self._adds else self._all_windows
        return _native.StepIterator(steps, start, maker, templates, self._release, self._keys, deliver)

    @property
    def _adds(self) -> bool:
        """``True`` if a batch takes more than slices of series that stay where they are."""
        moves = self._transfer is not None or self._limit is not None
        return moves or bool(self._marks or self._source.beside)

    def _all_windows(self) -> list[Any]:
        """Return the windows that begin with each of the rows, of each field, and a function that slices batches."""
        return [(each, cut.module.slices) for each, cut in zip(self._load_all().templates(), self._cuts, strict=True)]

    def slice(self, loaded: LoadedRows, view: View, steps: _native.Steps) -> list[Any]:
        """Return windows that begin at equal distances, the next ones of ``steps``; their rows are in ``loaded``."""
        row, samples, _ = view
        arrays = loaded.slice(view)
        arrays += [self._cuts[0].module.ones(samples, steps.count, self._device) for steps in self._masks.values()]
        if self._source.found:
            arrays += self.find(steps)
        if self._source.looked_up:
            arrays += self.look_up(row, samples)
        # Views are copied on a device only: on the CPU, the engine makes the batches of buffers="own".
        return [self._cuts[0].module.own(array, None) for array in arrays] if self._copy else arrays

    def marks(self, steps: _native.Steps) -> list[Any]:
        """Return the index and the weight of the next batch, if batches hold them."""
        if not self._marks:
            return []
        index = lend(steps.index(), self._cuts[0].framework)
        if self._transfer is not None:
            index = self._transfer.carry(index).arrive()
        return [index if name == "index" else self._cuts[0].module.weights(index) for name in self._marks]

    def find(self, steps: _native.Steps) -> list[Any]:
        """Return the found rows of the next windows, and their masks: copies."""
        options, found = self._options, self._source.found
        formed = self._windows.form_timed(steps.indices(), options.pad_values, [*options.edges & found.keys()])
        arrays = []
        for each in found.values():
            framework = self._output or each.field.framework
            values, mask = formed.pop(0), formed.pop(0)
            arrays += [lend(values, framework), *([] if each.mask is None else [lend(mask, framework)])]
        return arrays if self._transfer is None else [copy.arrive() for copy in map(self._transfer.carry, arrays)]

    def look_up(self, row: int, samples: int) -> list[Any]:
        """Return the fields that are looked up for windows of neighbours."""
        source, output = self._source, self._output
        arrays = [source.look_up_neighbours(name, output, row, samples) for name in source.looked_up]
        if self._transfer is not None:
            return [copy.arrive() for copy in [self._transfer.carry(array.contiguous()) for array in arrays]]
        return arrays

    def cover(self, view: View) -> tuple[int, int]:
        """Return the rows that windows cover, as first and end."""
        row, samples, stride = view
        return row, row + (samples - 1) * stride + self._span

    def load(self, steps: _native.Steps, ahead: int, first: int, end: int) -> LoadedRows:
        """Load the rows of the batch ``ahead``, and of later ones as long as they fit and no row moves in vain."""
        if self._limit is None:
            return self._load_all()
        for later in range(ahead + 1, steps.left()):
            view = steps.view(later)
            if view is None:
                break
            low, high = self.cover(view)
            both = max(end, high) - min(first, low)
            if both > self._limit or both > (end - first) + (high - low):
                break
            first, end = min(first, low), max(end, high)
        rows = [(lend(field.tensor, name)[first:end], module) for module, field, name in self._sources]
        if self._transfer is None:
            return LoadedRows(self._cuts, first, end, [module.own(array, None) for array, module in rows])
        return LoadedRows(self._cuts, first, end, [], [self._transfer.carry(array) for array, _ in rows])

    def _load_all(self) -> LoadedRows:
        """Return all rows, which are moved once."""
        if self._whole is None:
            arrays = [
                lend(field.tensor, name) if self._resident is None else self._resident.rows_of(field).values
                for _, field, name in self._sources
            ]
            self._whole = LoadedRows(self._cuts, 0, self._rows, arrays)
        return self._whole

    def form_batch(self, steps: _native.Steps) -> list[Any]:
        """Return the arrays of the next batch if padding or the end of a series keeps it from being a view."""
        if self._transfer is not None and self._limit is None:
            return self._gather(self._transfer, steps)
        formed, frameworks = steps.form(), [cut.framework for cut in self._cuts]
        numbers = self._output or self._framework
        frameworks += [self._output or framework or numbers for framework in self._source.beside.values()]
        frameworks += [numbers] * (len(formed) - len(frameworks))  # marks
        arrays = [lend(tensor, name) for tensor, name in zip(formed, frameworks, strict=True)]
        if self._transfer is not None:
            arrays = [copy.arrive() for copy in [self._transfer.carry(array) for array in arrays]]
        return self._cut_patches(arrays)

    def _gather(self, transfer: Transfer, steps: _native.Steps) -> list[Any]:
        """Gather the arrays of the next batch on the device."""
        assert self._resident is not None
        collator = self._source.collator(self._resident, self._options)
        windows = steps.indices()
        places = [*self._windows.rows(windows), *([self._windows.timed_rows(windows)] if self._source.found else [])]
        numbers = [transfer.carry(lend(place, DEVICE_FRAMEWORK)).arrive() for place in places]
        return self._cut_patches(collator.fields(*numbers)) + self.marks(steps)

    def _cut_patches(self, arrays: list[Any]) -> list[Any]:
        cut = [cut.finish(array) for cut, array in zip(self._cuts, arrays, strict=False)]
        return cut + arrays[len(cut) :]


class BatchMaker:
    """Makes the batches of one epoch: each call makes the next one, and the same again until the engine counts it."""

    def __init__(self, views: WindowViews, steps: _native.Steps) -> None:
        self._views, self._steps = views, steps
        self._loaded: LoadedRows | None = None
        self._next: LoadedRows | None = None

    def __call__(self, view: View | None) -> list[Any]:
        """Return the arrays of the next batch, given its view; ``None`` if it is not one view."""
        self._views.note_reader()
        if view is None:
            return self._views.form_batch(self._steps)
        self._loaded = self._load(0, *self._views.cover(view))
        arrays = self._views.slice(self._loaded, view, self._steps) + self._views.marks(self._steps)
        self._look_ahead()
        return arrays

    def _load(self, ahead: int, first: int, end: int) -> LoadedRows:
        """Return the rows ``first`` to ``end``, which the batch ``ahead`` covers."""
        for loaded in (self._loaded, self._next):
            if loaded is not None and loaded.holds(first, end):
                return loaded
        if ahead == 0:
            self._loaded = self._next = None  # let go before others come
        return self._views.load(self._steps, ahead, first, end)

    def _look_ahead(self) -> None:
        """Start copying the rows of the batch after the next one to the device."""
        if not self._views.moves:
            return
        if self._steps.left() < 2:
            self._loaded = self._next = None  # an iterator that is kept holds no more than its last batch does
            return
        view = self._steps.view(1)
        if view is not None:
            loaded = self._load(1, *self._views.cover(view))
            self._next = None if loaded is self._loaded else loaded
