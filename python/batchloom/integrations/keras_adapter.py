"""The adapter of Keras: ``fit``, ``evaluate`` and ``predict`` read the batches of a loader through it.

Keras chooses an adapter by the type of the data, in one function, to which :func:`introduce` adds loaders. The adapter
promises that each epoch of Keras is one pass of the loader (or ``steps_per_epoch`` batches, over as many passes as they
take), that the batch from which Keras builds a model is not lost to training, and that Keras knows the number of
batches of each epoch, also where it changes.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
from batchloom.errors import ArgumentError
from batchloom.integrations.requirement import require
from batchloom.loader.inside import go_on
from batchloom.loader.interleave import LOADERS, Interleaved, is_under_way
from batchloom.loader.loader import DataLoader
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

# The arguments of fit() that a batch may hold.
INPUTS, TARGETS, WEIGHTS = ARGUMENTS = ("x", "y", "sample_weight")

_LATEST: weakref.WeakKeyDictionary[Any, weakref.ref[LoaderAdapter]] = weakref.WeakKeyDictionary()


def introduce(adapters: Any) -> None:
    """Add loaders to the data that Keras reads.

    Args:
        adapters: The module ``keras.src.trainers.data_adapters``.
    """
    choose = adapters.get_data_adapter

    @functools.wraps(choose)
    def choose_or_adapt(x: Any, *arguments: Any, **keywords: Any) -> Any:
        return (_adapt if isinstance(x, LOADERS) else choose)(x, *arguments, **keywords)

    adapters.get_data_adapter = choose_or_adapt


def adapter_of(loader: Any) -> LoaderAdapter | None:
    """Return the adapter by which Keras reads a loader now; ``None`` if Keras does not."""
    reference = _LATEST.get(loader)
    return None if reference is None else reference()


def _adapt(
    x: DataLoader[Any] | Interleaved,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    shuffle: bool = False,
    class_weight: Any = None,
) -> LoaderAdapter:
    """Return the adapter of a loader, given the arguments of Keras.

    Raises:
        RequirementError: Keras is too old.
        ArgumentError: An argument besides the loader decides what the loader decides, or the backend is TensorFlow.
    """
    require("keras", "3.8")
    given = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size, "class_weight": class_weight}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ArgumentError(
            f"{' and '.join(named)} is given beside a loader, whose batches hold targets and weights; expected none: "
            "a dataset has up to three fields, x, y and sample_weight, and batch_size is the loader's "
            "(for arrays to validate with, validation_batch_size)"
        )
    if _backend() == "tensorflow":
        raise ArgumentError("the backend of Keras is tensorflow; expected torch or jax in KERAS_BACKEND")
    # Keras passes shuffle=False where it evaluates and predicts.
    return LoaderAdapter(x, steps_per_epoch, is_training=bool(shuffle))


class LoaderAdapter(DataAdapter):  # type: ignore[misc, unused-ignore]
    """A loader as Keras reads it.

    Args:
        loader: The loader.
        steps: The batches of an epoch of Keras; ``None`` for a pass of the loader.
        is_training: ``True`` if an epoch of Keras may go on in the next pass.

    Attributes:
        handed: The batches that Keras has taken for its epochs.
        length: The batches of the present epoch of Keras.
    """

    def __init__(self, loader: DataLoader[Any] | Interleaved, steps: int | None, *, is_training: bool) -> None:
        self.handed = self.length = 0
        self._loader, self._steps, self._is_training = loader, steps, is_training
        self._epochs, self._is_open = 0, False
        # Where the loader stood before Keras looked at its first batches.
        self._before: Any = None
        self._skipped = 0
        _LATEST[loader] = weakref.ref(self)

    def get_torch_dataloader(self) -> Any:
        """Return the batches of the next epoch of Keras, for torch."""
        return self._batches(_to_torch)

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return the batches of the next epoch of Keras, for JAX."""
        return self._batches(_to_arrays)

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return the batches of the next epoch of Keras, as arrays of NumPy where torch made them."""
        return self._batches(_to_arrays)

    @property
    def num_batches(self) -> int | None:
        """The batches of the next pass; ``None`` if the number of steps is given.

        Keras reads it as it begins, and as it starts over: after it looked at a batch to build the model.
        """
        if self._is_open and self._epochs == 1:
            self._put_back()
        self._epochs, self._is_open, self.handed = 0, False, 0
        return None if self._steps is not None else _count_batches(self._loader)

    @property
    def batch_size(self) -> int | None:
        """The number of samples in a batch; ``None`` if it is not known."""
        return getattr(self._loader, "batch_size", None)

    @property
    def has_partial_batch(self) -> bool | None:
        """``None``: it is not known whether the last batch is smaller."""
        return None

    @property
    def partial_batch_size(self) -> int | None:
        """``None``: the size of the last batch is not known."""
        return None

    def on_epoch_begin(self) -> None:
        """Note that an epoch of Keras begins, and tell Keras how many batches it has."""
        self._epochs, self._is_open = self._epochs + 1, True
        if self._steps is None:
            _end_pass(self._loader)
        elif self._epochs == 1 and self._is_training:
            _continue_pass(self._loader)
        self._before = self._loader.state_dict() if isinstance(self._loader, Interleaved) else None
        self.length = _count_batches(self._loader) if self._steps is None else self._steps - self._skipped
        self._skipped = 0
        _LATEST[self._loader] = weakref.ref(self)
        # Keras counts the batches of the first epoch, and takes that number for every epoch. What it counts is in the
        # object that calls.
        reader: Any = sys._getframe(1).f_locals.get("self")
        if getattr(reader, "data_adapter", None) is not self:
            return
        if self._steps is None:
            reader._num_batches = self.length
        else:
            reader.steps_per_epoch = self.length

    def on_epoch_end(self) -> None:
        """Note that an epoch of Keras is over."""
        self._is_open = False

    def skip_steps(self, steps: int) -> None:
        """Leave out the steps of the next epoch that were taken before a resume, if Keras counts steps."""
        self._skipped = 0 if self._steps is None else steps

    def _batches(self, convert: Callable[[Any], Any]) -> Iterator[Any]:
        while True:
            for batch in self._loader:
                self.handed += 1
                given = batch[1] if isinstance(self._loader, Interleaved) else batch
                yield tuple(_map(convert, each) for each in _arrange(given))
            if self._steps is None or not (self._is_training or self._epochs > 1):
                return

    def _put_back(self) -> None:
        """Make the batches that Keras has looked at the first ones of the next epoch."""
        if self.handed:
            self._loader.load_state_dict(self._before or self._loader.state_dict(batches=0))


def _count_batches(loader: DataLoader[Any] | Interleaved) -> int:
    """Return the number of batches of the next iteration."""
    return loader.remaining if isinstance(loader, Interleaved) else len(loader.plan())


def _end_pass(loader: DataLoader[Any] | Interleaved) -> None:
    """Make the next epoch the next iteration of loaders that take turns, if one was left in the middle."""
    if isinstance(loader, Interleaved) and is_under_way(loader):
        loader.set_epoch(loader.epoch + 1)


def _continue_pass(loader: DataLoader[Any] | Interleaved) -> None:
    """Make the rest of an epoch that was left in the middle the next iteration."""
    if isinstance(loader, Interleaved):
        loader.load_state_dict(loader.state_dict())
    else:
        go_on(loader)


def _arrange(batch: Any) -> tuple[Any, ...]:
    """Return a batch as Keras reads it: inputs, targets and weights.

    Raises:
        ArgumentError: The batch has more fields, and no names.
    """
    if isinstance(batch, dict):
        return _arrange_named(batch)
    if not isinstance(batch, tuple | list):
        return (batch,)
    if len(batch) > len(ARGUMENTS):
        raise ArgumentError(
            f"a batch has {len(batch)} fields; expected up to {len(ARGUMENTS)}, for {', '.join(ARGUMENTS)}: name the "
            "fields of the dataset, and fields besides y and sample_weight are the inputs of the model, by name"
        )
    return tuple(batch)


def _arrange_named(batch: dict[str, Any]) -> tuple[Any, ...]:
    if INPUTS not in batch and TARGETS not in batch:
        return (batch,)
    inputs = {name: field for name, field in batch.items() if name not in (TARGETS, WEIGHTS)}
    first = inputs[INPUTS] if list(inputs) == [INPUTS] else inputs
    if WEIGHTS in batch:
        return first, batch.get(TARGETS), batch[WEIGHTS]
    return (first, batch[TARGETS]) if TARGETS in batch else (first,)


def _map(convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert each array of a part of a batch."""
    if isinstance(value, dict):
        return {name: _map(convert, field) for name, field in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_map(convert, field) for field in value)
    return convert(value)


def _to_torch(array: Any) -> Any:
    """Return an array that torch reads: of another framework by NumPy."""
    is_known = array is None or isinstance(array, numpy.ndarray) or _is_tensor(array)
    return array if is_known else numpy.asarray(array)


def _to_arrays(array: Any) -> Any:
    """Return an array that JAX and NumPy read: of torch by NumPy."""
    return array.numpy(force=True) if _is_tensor(array) else array


def _is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _backend() -> str:
    """Return the backend of Keras."""
    name: str = sys.modules["keras.src.backend"].backend()
    return name
