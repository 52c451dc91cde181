"""Reading of samples: asks a source for them, and takes apart what it gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
from batchloom.collate.generators import make_batch_generator, takes_rng
from batchloom.collate.objects import Table, ticket_of
from batchloom.dataset.map.source import (
    Refused,
    SampleSource,
    describe_error,
    make_sample_error,
    rows_of,
)
from batchloom.dataset.map.structure import Structure, Structures
from batchloom.errors import Error, SampleError

if TYPE_CHECKING:
    from batchloom.collate.field_names import LateFieldNames
    from batchloom.collate.slots import SlotFunction


class SampleReader:
    """Reads samples of a source, and takes them apart.

    Args:
        source: The source.
        functions: The functions that fill slots, by field.
        whole: The function that makes a batch of a list of samples; ``None`` if the engine makes batches.
        named: The fields that arguments of a loader name; ``None`` where there is no loader.
        floats: The fields whose Python numbers are floats, though some may be written as integers.
    """

    def __init__(
        self,
        source: SampleSource,
        functions: Mapping[str, Callable[..., None]] | None = None,
        whole: Callable[..., Any] | None = None,
        named: LateFieldNames | None = None,
        floats: Collection[str] = (),
    ) -> None:
        self.source, self.functions, self.whole = source, dict(functions or {}), whole
        self.named, self.floats = named, floats
        self._read_columns = getattr(source, "read_columns", None)
        self._whole_takes_rng = whole is not None and takes_rng("collate", whole, "samples")
        self.structures = Structures(floats, whole=whole is not None)

    def sample(self, number: int, seed: int, epoch: int) -> Any:
        """Return a sample as the source gives it, in an epoch of a run.

        Raises:
            SampleError: It cannot be had.
        """
        for sample in self.samples((number,), seed, epoch):
            if type(sample) is Refused:
                raise sample.error from sample.error.__cause__
        return sample

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples as the source gives them, or the reason that one cannot be had, until ``stop`` is true."""
        return self.source.samples(numbers, seed, epoch, stop)

    def with_functions(
        self,
        slot_functions: dict[str, SlotFunction],
        whole: Callable[[list[Any]], Any] | None,
        named: LateFieldNames,
        floats: Collection[str],
    ) -> SampleReader:
        """Return the same reader beside the functions that fill slots, or make batches, and fields that are named."""
        reader = SampleReader(self.source, slot_functions, whole, named, floats)
        reader.structures.share(self.structures)
        return reader

    def __getstate__(self) -> tuple[Any, ...]:
        return self.source, self.functions, self.whole, None, self.floats

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def require_named(self, structure: Structure, dtypes: Iterable[str]) -> None:
        """Compare the first sample with the fields that arguments of the loader name.

        Raises:
            ArgumentError: An argument names a field that is not there.
        """
        named = self.named
        if named is not None:
            named.require(structure.field_names(dtypes))
            self.named = None

    def _take_apart(self, number: int, sample: Any, table: Table) -> tuple[Structure, list[_native.Tensor]]:
        try:
            return self.structures.take_apart(sample, ticket_of(number), table)
        except Error as error:
            raise make_sample_error(number, self.source.item(number), str(error)) from error

    def _read_batch(
        self, numbers: list[int], seed: int, epoch: int, stop: Any, table: Table
    ) -> list[tuple[Structure, list[_native.Tensor]]]:
        """Return the structure and the arrays of a batch that a function makes of samples; nothing if it stops.

        Raises:
            SampleError: A sample cannot be made, or the batch.
        """
        samples: list[Any] = []
        for sample in self.samples(numbers, seed, epoch, stop):
            if type(sample) is Refused:
                raise sample.error from sample.error.__cause__
            samples.append(sample)
        if len(samples) < len(numbers):
            return []
        try:
            return [self.structures.take_apart(self._make_batch(numbers, samples, seed, epoch), 1, table)]
        except Exception as error:
            named = f"{', '.join(map(str, numbers[:3]))}{', ...' if len(numbers) > 3 else ''}"
            message = f"the batch of samples {named} could not be made: {describe_error(error)}"
            raise SampleError(message, numbers[0]) from error

    def _make_batch(self, numbers: list[int], samples: list[Any], seed: int, epoch: int) -> Any:
        """Return the batch that the function makes of samples."""
        if self.whole is None:
            return samples
        if self._whole_takes_rng:
            return self.whole(samples, rng=make_batch_generator(seed, epoch, numbers))
        return self.whole(samples)

    def attempt(self, numbers: list[int], seed: int, epoch: int, stop: Any) -> tuple[list[Any], Table | None]:
        """Return the structure and the arrays of each sample, or its error; of fewer if ``stop`` becomes true.

        Where a function makes whole batches, the outcome is one. The second result has the objects that samples hold;
        ``None`` if they hold none.
        """
        outcomes: list[Any] = []
        table: Table = {}
        if self.whole is not None:
            try:
                outcomes += self._read_batch(numbers, seed, epoch, stop, table)
            except SampleError as error:
                outcomes.append(error)
            return outcomes, table or None
        for number, sample in zip(numbers, self.samples(numbers, seed, epoch, stop), strict=False):
            try:
                outcomes.append(self._read_sample(number, sample, table))
            except Exception as error:
                outcomes.append(error)
        return outcomes, table or None

    def _read_sample(self, number: int, sample: Any, table: Table) -> tuple[Structure, list[_native.Tensor]]:
        """Return the structure and the arrays of a sample that the source gave."""
        if type(sample) is Refused:
            raise sample.error from sample.error.__cause__
        structure, arrays = self._take_apart(number, sample, table)
        self.require_named(structure, (array.dtype for array in arrays))
        return structure, arrays

    def structure(self, text: str) -> Structure:
        """Return the structure that a text stands for."""
        return self.structures.of_text(text)

    def fill(
        self,
        slots: _native.Slots,
        text: str,
        numbers: list[int],
        seed: int,
        epoch: int,
        stop: Any,
    ) -> tuple[list[Any] | None, Table | None]:
        """Read samples into their slots; return ``None`` if all are there, and the objects that they hold, if any.

        Otherwise return a list: ``None`` for each sample, or its error, or its layout if that is another. It is shorter
        if ``stop`` becomes true. ``text`` stands for the structure that samples should have.
        """
        put, place, others = slots.put, -1, {}
        table: Table = {}
        columns = self._read_columns(numbers) if self._read_columns is not None and numbers else None
        if columns is None:
            samples = self.samples(numbers, seed, epoch, stop)
        elif slots.put_columns(columns, list(map(ticket_of, numbers)), table):
            return None, table or None
        else:
            samples = rows_of(columns, len(numbers))
        for place, sample in enumerate(samples):
            if not put(place, sample, ticket_of(numbers[place]), table):
                others[place] = self._put(slots, text, place, numbers[place], sample, table)
        are_there = place + 1 == len(numbers) and not any(others.values())
        return None if are_there else [others.get(place) for place in range(place + 1)], table or None

    def _put(self, slots: _native.Slots, text: str, place: int, number: int, sample: Any, table: Table) -> Any:
        """Take a sample apart and put it into its slots; return its error, or its layout if that is another."""
        if type(sample) is Refused:
            return sample.error
        try:
            structure, arrays = self._take_apart(number, sample, table)
        except SampleError as error:
            return error
        if structure is self.structures.of_text(text) and slots.put_arrays(place, arrays):
            return None
        return structure, [(array.dtype, array.shape) for array in arrays]
