"""A loader with batches in the form of another library: the common part of the forecasting libraries.

The order, the epochs, the states and the ranks work as in a ``DataLoader``. What such libraries want beside the steps
of a window (the values of its series, its group, its time) follows from the numbers of the samples, which the plan has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, SupportsIndex

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError
from batchloom.loader.loader import DataLoader

Array = numpy.ndarray[Any, Any]

Form = Callable[[Any, Array], Any]
"""A function that makes a batch of a library of ours, and of the numbers of its samples."""


class LibraryLoader(DataLoader[Any]):
    """A loader that hands over its batches in the form of a library. They own their memory.

    Args:
        source: The dataset of the library, which is the loader's ``dataset``: models look there.
        windows: Its windows.
        batch_size: The windows in a batch.
        form: Makes a batch of the library of one of ours, which is of torch, and of the numbers of its samples.
        options: More arguments of :class:`batchloom.DataLoader`.
    """

    def __init__(self, source: Any, windows: Dataset[Any], batch_size: int, form: Form, **options: Any) -> None:
        refused: list[str] = [name for name in ("output", "buffers", "ban", "extras") if name in options]
        if options.get("uneven") == "mask":
            refused.append("uneven='mask'")
        if refused:
            raise ArgumentError(
                f"found {', '.join(refused)}; expected other options, since batches have the form of a library: "
                "torch tensors of their own, without marks"
            )
        super().__init__(windows, batch_size, output="torch", buffers="own", **options)
        self._form, self._library_dataset = form, source

    @property
    def dataset(self) -> Any:
        """The dataset of the library."""
        return self._library_dataset

    def __iter__(self) -> Iterator[Any]:
        return self._form_batches(super().__iter__())

    def _form_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        numbers = iter(self.plan())
        for batch in batches:
            yield self._form(batch, numpy.asarray(next(numbers)))

    def replay(self, epoch: int, step: SupportsIndex, *, state: dict[str, Any] | None = None) -> Any:
        """Make one batch of this rank again: see :meth:`batchloom.DataLoader.replay`."""
        if state is not None:
            raise ArgumentError("state is given; expected None: batches in the form of a library are of whole epochs")
        return self._form(super().replay(epoch, step), numpy.asarray(self.plan(epoch)[step]))


class LoaderCallback(ABC):
    """The part of a trainer's callback that gives a model the batches of our loaders.

    A class derives from it and from the callback of its trainer, and names the class of the data module of its library.
    """

    DATA_MODULE: ClassVar[type]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Replace the loaders of the data module, as the trainer begins to fit.

        Raises:
            ArgumentError: The trainer has a data module of another library.
        """
        if stage != "fit":
            return
        data = trainer.datamodule
        if not isinstance(data, self.DATA_MODULE):
            raise ArgumentError(
                f"the trainer has a {type(data).__name__}; expected a {self.DATA_MODULE.__name__}, which the library "
                "makes as it fits a model"
            )
        self.replace_loaders(data, pl_module)

    @abstractmethod
    def replace_loaders(self, data: Any, model: Any) -> None:
        """Make loaders of the datasets of a data module, and put them in the places of the loaders that it made."""


class SeriesOfSamples:
    """Finds the series of samples by their numbers.

    Args:
        counts: The samples of each series, one series after the other.
        series: The series that each of these counts is about; ``None`` for all in order.
        chosen: The samples that were selected of all; ``None`` for all.
    """

    def __init__(self, counts: Array, series: Array | None = None, chosen: Array | None = None) -> None:
        self._ends, self._series, self._chosen = numpy.cumsum(counts), series, chosen

    def __call__(self, samples: Array) -> Array:
        """Return the number of the series of each sample."""
        places = samples if self._chosen is None else self._chosen[samples]
        numbers: Array = numpy.searchsorted(self._ends, places, side="right")
        return numbers if self._series is None else self._series[numbers]


def same(loader: LibraryLoader) -> LibraryLoader:
    """Return the loader: with :func:`functools.partial`, the method of a data module that gives it."""
    return loader
