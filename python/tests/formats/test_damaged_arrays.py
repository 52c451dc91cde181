"""Headers that lie: every file with a byte exchanged, or cut, opens or is a typed error, and never a crash."""

import io
import json
import warnings

import batchloom as bl
import numpy
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import arrays, damaged
from refusals import refused

COLUMNS = arrays(5)


def npy():
    file = io.BytesIO()
    numpy.save(file, COLUMNS["x"])
    return file.getvalue()


def npz(save=numpy.savez):
    file = io.BytesIO()
    save(file, **COLUMNS)
    return file.getvalue()


FILES = {
    "a.npy": npy(),
    "a.npz": npz(),
    "b.npz": npz(numpy.savez_compressed),
    "a.safetensors": safetensors.numpy.save(COLUMNS),
}


@pytest.mark.parametrize("name", FILES)
@given(place=st.floats(0, 1), byte=st.integers(0, 255), length=st.floats(0.5, 1) | st.just(1.0))
def test_a_damaged_file_opens_or_is_a_typed_error(name, tmp_path_factory, place, byte, length):
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(damaged(FILES[name], place, byte, length))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dataset = bl.open(path)
        except bl.Error as error:
            named = name in str(error)
        else:
            named = len(list(bl.DataLoader(dataset, 2))) == -(-len(dataset) // 2)
    assert named


def header(**entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64)


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("contents", "values"),
    [
        (header(x=entry(offsets=(0, 128))), ["'x'", "128", "64"]),
        (header(x=entry(), y=entry(offsets=(8, 24))), ["'x'", "'y'", "overlap"]),
        (header(x=entry(shape=(-2, -2))), ["'x'", "-2"]),
        (header(x=entry(shape=(2, 3))), ["'x'", "16", "24", "[2, 3]"]),
        (header(x=entry(offsets=(16, 0))), ["'x'", "16", "0"]),
        (header(x=entry(shape=(2**40, 2**40))), ["'x'"]),
        (header(x=entry(shape=(True, 4))), ["'x'"]),
        (header(x={"dtype": "F32"}), ["'x'", "data_offsets"]),
        (header(x=7), ["'x'"]),
        (header(__metadata__={"a": "b"}), ["no tensor"]),
        ((4).to_bytes(8, "little") + b"{} ]", ["JSON"]),
        ((10**9).to_bytes(8, "little") + b'{"x"', ["12", "1000000000"]),
        ((4).to_bytes(8, "little") + b'{"a"', ["JSON"]),
        ((16).to_bytes(8, "little") + b'{"a": 1,"a": 2} ', ["twice"]),
    ],
    ids=str,
)
def test_headers_of_safetensors_that_lie(tmp_path, contents, values):
    path = tmp_path / "a.safetensors"
    path.write_bytes(contents)
    with refused(bl.DataError, "a.safetensors", *values):
        bl.open(path)


def test_a_type_of_safetensors_that_nobody_knows(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(x=entry("I4", (8, 4))))
    with refused(bl.DTypeError, "a.safetensors", "'x'", "I4", "BF16"):
        bl.open(path)


def lying(shape):
    contents = FILES["a.npy"]
    found = contents.index(b"(5, 3)")
    spelled = shape.encode()
    return contents[:found] + spelled + contents[found + len(spelled) :]


@pytest.mark.parametrize("shape", ["(-5,3)", "(9, 9)", "(5,-3)", "(9e9,)", "('a',)", "[5, 3]"])
def test_headers_of_numpy_that_lie(tmp_path, shape):
    path = tmp_path / "a.npy"
    path.write_bytes(lying(shape))
    with refused(bl.DataError, "a.npy"):
        bl.open(path)


def test_a_file_that_was_cut_is_named(tmp_path):
    for name, contents in FILES.items():
        path = tmp_path / name
        path.write_bytes(contents[: len(contents) - 8])
        with refused(bl.DataError, name):
            bl.open(path)
