"""Element types of arrays, arrays of arbitrary bits, and what an array holds bit for bit."""

from functools import cache

import ml_dtypes
import numpy
import pytest
import torch

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
NATIVE = ["bool", *INTEGERS, *FLOATS]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
TYPES = NATIVE + FOREIGN


def numpy_type(name):
    return numpy.dtype(getattr(ml_dtypes, name)) if name in FOREIGN else numpy.dtype(name)


def arbitrary(name, shape, seed=0):
    """An array of arbitrary bits, NaNs among them."""
    random = numpy.random.default_rng(seed)
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    dtype = numpy_type(name)
    return random.integers(0, 256, (*shape, dtype.itemsize), numpy.uint8).view(dtype).reshape(shape)


@cache
def is_shared(name):
    """Tell if torch shares arrays of a type: the oldest that is promised shares no floats of 8 bits."""
    try:
        torch.zeros(1, dtype=getattr(torch, name)).__dlpack__()
    except RuntimeError:
        return False
    return True


TORCH_TYPES = [name for name in TYPES if is_shared(name)]


def tensor(array):
    """A torch tensor of the same bits in the same layout."""
    name = array.dtype.name
    if name not in FOREIGN:
        return torch.from_numpy(array)
    if not is_shared(name):
        pytest.skip(f"torch {torch.__version__} shares no {name}")
    return torch.from_numpy(array.view(f"uint{8 * array.itemsize}")).view(getattr(torch, name))


def content(array):
    """The bytes of an array in row-major order."""
    if isinstance(array, torch.Tensor):
        return bytes(array.contiguous().reshape(-1).view(torch.uint8).numpy()) if array.numel() else b""
    return array.tobytes()


def raw(array):
    """The bytes of an array in row-major order, and its shape and type."""
    kind = str(array.dtype).removeprefix("torch.") if isinstance(array, torch.Tensor) else array.dtype.name
    return content(array), tuple(array.shape), kind
