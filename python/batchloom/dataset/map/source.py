"""`SampleSource`: where samples lie that are made on demand, and the source that makes them of items by a function.

The seam for samples that are elsewhere: a source reads them by their numbers, and is told nothing of batches, epochs of
a loader, ranks or devices. What a sample is, `OnDemandSamples` finds out by the first one.
"""

from __future__ import annotations

import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from batchloom.collate.generators import make_sample_generator, takes_rng
from batchloom.errors import DataError, SampleError, many

# Items in messages are cut to this many characters.
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def shorten(item: Any) -> str:
    """Return the text of an item for a message, cut."""
    try:
        return _short.repr(item)
    except Exception:
        return f"a {type(item).__name__}"


class SampleSource(Protocol):
    """Samples by number, wherever they lie: in a function, in files, in chunks that are read one after the other."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples, in the order of their numbers, until ``stop`` is true.

        A sample is an array or a number, or tuples, dicts and lists of them, in memory of its own. A sample that cannot
        be had is a :class:`Refused`. Several threads call this at a time, each for neighbours in the order of the plan.

        Args:
            numbers: The numbers of the samples. A source may read all samples of a list at once; of other iterables,
                the next number is taken when the sample before it was yielded.
            seed: The seed of the run.
            epoch: The epoch.
            stop: Something that is true once no more samples are wanted.
        """

    def item(self, number: int) -> Any:
        """Return what an error shows of a sample: the item that it is made of; ``None`` for nothing."""


class ItemsByField(ABC):
    """Items that may be read field by field. Items of users are told apart by this class."""

    @abstractmethod
    def read_columns(self, numbers: list[int]) -> dict[str, list[Any]] | None:
        """Return the values of items, field by field; ``None`` if the items have no fields.

        Raises:
            DataError: An item cannot be read.
        """


class ItemSource:
    """Samples that a function of the user makes of items.

    Attributes:
        items: The items, by number.
        fn: The function that makes a sample of an item; ``None`` if items are samples.
        takes_many: ``True`` if items are read by a list of numbers.
        holds_interpreter: ``True`` if the items are read by code that holds the interpreter and nothing else is done:
            several threads would take turns, slower than one.
    """

    def __init__(self, items: Any, fn: Callable[..., Any] | None) -> None:
        self.items, self.fn = items, fn
        self.takes_rng = fn is not None and takes_rng("fn", fn, "item")
        self.takes_many = callable(getattr(items, "__getitems__", None))
        of_datasets = fn is None and _are_of_datasets(items)
        self.holds_interpreter = of_datasets and not _run_other_code(items)
        self._by_field = fn is None and isinstance(items, ItemsByField)
        self._has_columns = of_datasets or self._by_field

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples as the function makes them, or the reason that one cannot be had, until ``stop`` is true.

        Items that have ``__getitems__`` are read by a list of numbers at once. Should that fail, they are read one by
        one, so that the error names the sample. The function is called in this loop itself: a call in between would
        cost a cheap function some of its time.
        """
        items, fn, draws = self.items, self.fn, self.takes_rng
        if self.takes_many:
            try:
                items = ItemsOfPart(items, numbers if type(numbers) is list else [])
            except DataError as error:
                yield from (Refused(make_sample_error(number, None, str(error)), error) for number in numbers)
                return
        for number in numbers:
            if stop:
                break
            item = None
            try:
                item = items[number]
                if fn is None:
                    sample = item
                elif draws:
                    sample = fn(item, rng=make_sample_generator(seed, epoch, number))
                else:
                    sample = fn(item)
            except Exception as error:
                sample = Refused(make_sample_error(number, item, describe_error(error)), error)
            yield sample

    def read_columns(self, numbers: list[int]) -> dict[str, Any] | None:
        """Return samples as columns, each with the values of these samples, in order; ``None`` if items have none.

        A set of ``datasets`` makes its rows of such columns, and chunks of fields have them. ``None`` as well if one of
        the numbers is at fault, which reading one by one finds.
        """
        if not self._has_columns:
            return None
        try:
            columns = self.items.read_columns(numbers) if self._by_field else self.items[numbers]
        except Exception:
            return None
        # Frames, tables and anything else that a format or a transform makes have rows alone.
        self._has_columns = type(columns) is dict
        is_whole = self._has_columns and all(len(column) == len(numbers) for column in columns.values())
        return columns if is_whole else None

    def item(self, number: int) -> Any:
        """Return the item of a sample; ``None`` if items are samples."""
        return None if self.fn is None else self.items[number]


def rows_of(columns: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of columns of ``count`` values."""
    for place in range(count):
        yield {name: column[place] for name, column in columns.items()}


def _are_of_datasets(items: Any) -> bool:
    """Return whether items are a set of ``datasets``: a list of numbers reads its columns."""
    datasets = sys.modules.get("datasets")
    if datasets is None or not isinstance(items, datasets.Dataset):
        return False
    # A class of the user may read rows in its own way.
    kind, known = type(items), datasets.Dataset
    return kind.__getitems__ is known.__getitems__ and kind.__getitem__ is known.__getitem__


def _run_other_code(items: Any) -> bool:
    """Return whether reading a set of ``datasets`` decodes files or runs a transform."""
    return items.format["type"] == "custom" or any(map(_is_decoded, items.features.values()))


def _is_decoded(feature: Any) -> bool:
    """Return whether a feature of ``datasets`` is decoded when it is read, as images and sounds are."""
    if hasattr(type(feature), "decode_example"):
        return True
    parts = feature.values() if isinstance(feature, dict) else feature if isinstance(feature, list | tuple) else ()
    inner = getattr(feature, "feature", None)
    return any(map(_is_decoded, parts)) or (inner is not None and _is_decoded(inner))


class ItemsOfPart:
    """Items that are read at once, by number.

    An item that is read alone is read by a list, too: `datasets` gives other types for it otherwise.

    Args:
        items: All items.
        numbers: The numbers of the items to read; others are read one by one.

    Raises:
        DataError: ``__getitems__`` returned a mapping, or another number of items.
    """

    def __init__(self, items: Any, numbers: list[int]) -> None:
        self._items = items
        self._read: dict[int, Any] = {}
        if not numbers:
            return
        try:
            read = items.__getitems__(numbers)
        except Exception:
            return  # one of the numbers is at fault, which reading one by one finds
        self._read = dict(zip(numbers, self._require_items(read, len(numbers)), strict=True))

    def __getitem__(self, number: int) -> Any:
        """Return one item."""
        if number in self._read:
            return self._read[number]
        try:
            read = self._items.__getitems__([number])
        except Exception:
            return self._items[number]
        return self._require_items(read, 1)[0]

    def _require_items(self, read: Any, count: int) -> Any:
        """Return what ``__getitems__`` returned, if it is a list of this number of items."""
        kind = type(self._items).__name__
        if isinstance(read, Mapping):
            raise DataError(f"{kind}.__getitems__ returned a {type(read).__name__}; expected a list of items")
        if len(read) != count:
            raise DataError(
                f"{kind}.__getitems__ returned {many(len(read), 'item')} for {many(count, 'number')}; expected one "
                "for each"
            )
        return read


class Refused:
    """The error of a sample, told apart from anything that a function returns."""

    def __init__(self, error: SampleError, cause: Exception) -> None:
        self.error = error
        error.__cause__ = cause


def make_sample_error(number: int, item: Any, reason: str) -> SampleError:
    """Return the error of a sample that cannot be had."""
    named = "" if item is None else f" (item {shorten(item)})"
    return SampleError(f"sample {number}{named} could not be read: {reason}", number, item)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of any error, even of one that cannot be turned into text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which has no message: its __str__ fails"
