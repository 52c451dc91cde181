"""Arrays whose elements do not begin at multiples of their size are copied: batches are right on every way."""

import batchloom as bl
import numpy
import pytest
import torch
from oracles.rows import batches_of

TYPES = ["int16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def at(past, dtype, shape):
    """Return an array that begins so many bytes past a multiple of 64."""
    size = numpy.dtype(dtype).itemsize * int(numpy.prod(shape))
    memory = numpy.zeros(size + 128, numpy.uint8)
    start = -memory.ctypes.data % 64 + past
    array = numpy.ndarray(shape, dtype, buffer=memory.data, offset=start)
    array[...] = numpy.arange(array.size).reshape(shape)
    assert array.ctypes.data % 64 == past
    return array


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("past", [1, 2, 8])
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("resident", [False, True])
def test_every_type_and_placement(dtype, past, output, resident):
    X = at(past, dtype, (100, 3))
    if resident and output == "numpy":
        pytest.skip("resident data is torch's")
    options = {"resident": True} if resident else {}
    for samples, batch in batches_of(X, output=output, **options):
        assert numpy.array_equal(numpy.asarray(batch), X[samples])


def test_the_crash_of_complex_numbers():
    X = numpy.ndarray((100,), numpy.complex128, buffer=bytearray(100 * 16 + 8), offset=8)
    for samples, batch in batches_of(X, output="torch", resident=True):
        assert batch.dtype is torch.complex128
        assert len(batch) == len(samples)


@pytest.mark.parametrize("past", [1, 8])
def test_a_tensor_of_torch(past):
    expected = numpy.arange(100, dtype=numpy.complex128)
    memory = bytearray(past + expected.nbytes)
    memory[past:] = expected.tobytes()
    # torch itself may not touch such a tensor.
    X = torch.frombuffer(memory, dtype=torch.complex128, count=100, offset=past)
    for samples, batch in batches_of(X):
        assert numpy.array_equal(batch.numpy(), expected[samples])


@pytest.mark.parametrize("header", [1, 8, 24])
def test_a_map_with_a_header(tmp_path, header):
    path = tmp_path / "rows"
    expected = numpy.arange(600, dtype=numpy.complex128).reshape(200, 3)
    path.write_bytes(b"h" * header + expected.tobytes())
    X = numpy.memmap(path, numpy.complex128, "r", header, (200, 3))
    for samples, batch in batches_of(X, output="torch"):
        assert numpy.array_equal(batch.numpy(), expected[samples])


@pytest.mark.parametrize("turned", [lambda X: X[::-1], lambda X: X[:, ::2], lambda X: X.T, lambda X: X[5:]])
def test_any_layout(turned):
    X = turned(at(4, "float64", (40, 30)))
    for samples, batch in batches_of(X):
        assert numpy.array_equal(batch, X[samples])


def test_windows_and_sequences():
    series = at(4, "float64", (300, 2))
    for x, y in bl.DataLoader(bl.WindowDataset(series, 10, 5), 20):
        assert x.ctypes.data % 8 == y.ctypes.data % 8 == 0
    values = at(2, "int64", (60,))
    sequences = bl.SequenceDataset(x=(values, numpy.array([0, 10, 25, 60])))
    found = numpy.concatenate([batch["x"].ravel() for batch in bl.DataLoader(sequences, 1)])
    assert numpy.array_equal(found, values)
