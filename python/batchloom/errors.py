"""What can go wrong. One base class, and a class for each kind that is also the built-in one.

Every message says what was found, what was expected and what to change.
"""


class Error(Exception):
    """Anything that batchloom raises on purpose."""


class ArgumentError(Error, ValueError):
    """An argument, or a combination of arguments, makes no sense."""


class DataError(Error, ValueError):
    """The data cannot be batched: lengths differ, there is none, it changed under the loader."""


class DTypeError(Error, TypeError):
    """An element type that batchloom, or the framework asked for, does not have."""


class DeviceError(Error, ValueError):
    """Memory that is not where it is needed."""


class RangeError(Error, IndexError):
    """An index outside what it indexes."""


class StateError(Error, ValueError):
    """A saved state that does not belong to this loader, or is damaged."""


class LoaderError(Error, RuntimeError):
    """The machinery failed: no memory, no thread, or a forked process."""
