"""`ItemChunks`: items that are read a chunk at a time, each found by its number in the chunk that holds it.

Promises:

- The engine decides which chunks are held, and which thread reads one. Here, they are found while they are held.
- A chunk that cannot be read is an error of each of its items, when it is asked for.
- An item of a chunk that is not held is read with its chunk, for this one look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from traceback import format_tb
from typing import Any, Protocol
from weakref import ref

import numpy
from batchloom.dataset.map.source import ItemsByField, describe_error
from batchloom.dataset.samples import override
from batchloom.errors import DataError, SampleError, many
from batchloom.samples.chunks import check_chunks


class ReadInChunks(Protocol):
    """Items that lie in chunks."""

    @property
    def chunks(self) -> Sequence[int]:
        """The number of items in each chunk."""

    def read_chunk(self, chunk: int) -> Any:
        """Return the items of a chunk: anything with ``len()`` and ``[]``, and with ``nbytes`` where memory is limited.

        Several threads call this at a time.
        """


def are_in_chunks(items: Any) -> bool:
    """Return whether items are read a chunk at a time."""
    return callable(getattr(items, "read_chunk", None)) and hasattr(items, "chunks")


class JoinedChunkItems:
    """The items of several datasets, each with the number of its dataset.

    Args:
        parts: The items of each dataset, in chunks.
    """

    def __init__(self, parts: Sequence[ItemChunks]) -> None:
        self._parts = list(parts)
        self.chunks: list[int] = [int(size) for part in parts for size in part.sizes]
        self._ends = list(accumulate(len(part.sizes) for part in parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedChunkItems, (self._parts,)

    def read_chunk(self, chunk: int) -> JoinedItemsOfChunk:
        """Return the items of a chunk."""
        source = bisect_right(self._ends, chunk)
        own = chunk - (self._ends[source - 1] if source else 0)
        return JoinedItemsOfChunk(source, self._parts[source].items.read_chunk(own))


class JoinedItemsOfChunk:
    """The items of a chunk, each with the number of its dataset."""

    def __init__(self, source: int, items: Any) -> None:
        self._source, self._items = source, items

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __getitem__(self, row: int) -> tuple[int, Any]:
        """Return the number of the dataset, and an item."""
        return self._source, self._items[row]

    @property
    def nbytes(self) -> int:
        """The bytes of the items; 0 where these are not known."""
        return int(getattr(self._items, "nbytes", 0))


class HeldItems:
    """The items of a chunk, as long as the engine holds it."""

    __slots__ = ("__weakref__", "items")

    def __init__(self, items: Any) -> None:
        self.items = items


class FieldItems:
    """The items of a chunk that are rows of fields. Items of users are told apart by this class.

    Attributes:
        columns: The function that returns the value of a row, by field; chunks of one dataset have the same fields.
    """

    columns: Mapping[str, Callable[[int], Any]]


class UnreadItems:
    """The items of a chunk that could not be read: each is the reason."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def __getitem__(self, row: int) -> Any:
        """Raise the reason.

        Raises:
            DataError: Always.
        """
        reason = self._reason
        text = str(reason) if isinstance(reason, DataError) else describe_error(reason)
        raise DataError(text) from reason


class ItemChunks(ItemsByField):
    """Items by number, read a chunk at a time.

    Args:
        items: The items, as they were given.

    Attributes:
        items: These items.
        sizes: The number of items in each chunk; uint64.

    Raises:
        DataError: A size is no number from 0 on.
    """

    def __init__(self, items: ReadInChunks) -> None:
        self.items, self.sizes = items, numpy.array(check_chunks(items.chunks))
        self._ends = list(accumulate(map(int, self.sizes)))
        self._firsts = [0, *self._ends]
        self._stops = numpy.array(self._ends, numpy.int64)
        self._held: dict[int, ref[HeldItems]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemChunks, (self.items,)

    def __len__(self) -> int:
        """Return the number of items of all chunks."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, number: int) -> Any:
        """Return one item.

        Raises:
            DataError: Its chunk cannot be read.
        """
        chunk = bisect_right(self._ends, number)
        if number < 0 or chunk == len(self._ends):
            raise IndexError(f"item {number} of {len(self)}")
        return self._items_of(chunk)[number - self._firsts[chunk]]

    @override
    def read_columns(self, numbers: list[int]) -> dict[str, list[Any]] | None:
        chunks = numpy.searchsorted(self._stops, numbers, side="right").tolist()
        found = {chunk: self._items_of(chunk) for chunk in dict.fromkeys(chunks)}
        for items in found.values():
            if isinstance(items, UnreadItems):
                items[0]
            if not isinstance(items, FieldItems):
                return None
        firsts = self._firsts
        rows = [(found[chunk].columns, number - firsts[chunk]) for chunk, number in zip(chunks, numbers, strict=True)]
        return {name: [columns[name](row) for columns, row in rows] for name in rows[0][0]}

    def _items_of(self, chunk: int) -> Any:
        """Return the items of a chunk: as the engine holds them, or read for this one look."""
        known = self._held.get(chunk)
        held = None if known is None else known()
        return self._read(chunk) if held is None else held.items

    def __iter__(self) -> Iterator[Any]:
        """Yield all items in order; one chunk is there at a time."""
        for chunk, size in enumerate(map(int, self.sizes)):
            items = self._read(chunk) if size else ()
            for row in range(size):
                yield items[row]

    def hold_chunk(self, chunk: int) -> tuple[HeldItems, int]:
        """Return the items of a chunk, which are found by number as long as the engine holds them, and their bytes."""
        items = self._read(chunk)
        held = HeldItems(items)
        self._held[chunk] = ref(held)
        return held, int(getattr(items, "nbytes", 0))

    def measure_chunk(self, chunk: int) -> int:
        """Return the bytes of a chunk.

        Raises:
            SampleError: It cannot be read, or does not say them.
        """
        items, first = self._read(chunk), self._firsts[chunk]
        if isinstance(items, UnreadItems):
            try:
                items[0]
            except DataError as error:
                raise SampleError(f"chunk {chunk} could not be read: {error}", first) from error
        if not hasattr(items, "nbytes"):
            raise SampleError(
                f"chunk {chunk} is a {type(items).__name__} without nbytes, and memory is given; expected its bytes "
                "there, or chunks_open= in place of memory",
                first,
            )
        return int(items.nbytes)

    def _read(self, chunk: int) -> Any:
        """Return the items of a chunk."""
        try:
            items = self.items.read_chunk(chunk)
            if len(items) != self.sizes[chunk]:
                raise DataError(
                    f"chunk {chunk} has {many(len(items), 'item')}; expected {self.sizes[chunk]}, as its size says"
                )
        except Exception as error:
            return UnreadItems(_drop_frames(error))
        return items


def _drop_frames(error: Exception) -> Exception:
    """Return an error that is kept with a chunk, its traceback as text: frames would keep the loader that reads."""
    error.add_note("".join(["Traceback of the thread that read it:\n", *format_tb(error.__traceback__)]).rstrip())
    part: BaseException | None = error
    while part is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error
