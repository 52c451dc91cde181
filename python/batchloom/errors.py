"""Errors: one base class, and a class for each kind, which also derives from the built-in exception of that kind.

Every message names what was found, what was expected and what to change.
"""


class Error(Exception):
    """The base class of all errors that batchloom raises."""


class ArgumentError(Error, ValueError):
    """An argument, or a combination of arguments, makes no sense."""


class DataError(Error, ValueError):
    """The data cannot be batched: lengths differ, samples are missing, or arrays changed while a loader used them."""


class UnsupportedFileError(DataError):
    """A sound file in a form that the reader of its format does not know."""


class DTypeError(Error, TypeError):
    """An element type that batchloom or the requested framework does not support."""


class DeviceError(Error, ValueError):
    """Memory on another device than the one that needs it, or too little memory on a device."""


class RangeError(Error, IndexError):
    """An index out of range."""


class SampleError(Error, RuntimeError):
    """A sample that could not be made on demand. The error of the function that makes it is the cause.

    Attributes:
        sample: The number of the sample.
        item: The item that the function was given; ``None`` where it cannot be had.
    """

    def __init__(self, message: str, sample: int = -1, item: object = None) -> None:
        super().__init__(message)
        self.sample, self.item = sample, item


class StateError(Error, ValueError):
    """A saved state that does not belong to this loader, or is damaged."""


class LoaderError(Error, RuntimeError):
    """A failure of the loader itself: no memory, no thread, or a forked process."""


class OutOfMemoryError(LoaderError, MemoryError):
    """Memory that cannot be had. The loader, and all else, works as before once there is enough."""


def many(number: int, noun: str) -> str:
    """Return a number and its noun in singular or plural: ``1 batch``, ``2 batches``."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{ending}"
