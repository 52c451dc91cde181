"""Plain values of Arrow arrays are those that Arrow itself makes, one by one."""

import math

import pyarrow as pa
import pytest
from batchloom.errors import DataError
from batchloom.formats.plain_values import ArrowValues, read_array, read_values
from batchloom.formats.sound import SoundArrays
from hypothesis import given
from hypothesis import strategies as st

FLOATS = st.floats(width=32)
INTEGERS = st.integers(0, 100)
TYPES = {
    pa.int8(): INTEGERS,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.float32(): FLOATS,
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.string_view(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=5),
    pa.list_(pa.int32()): st.lists(INTEGERS, max_size=4),
    pa.large_list(pa.float32()): st.lists(FLOATS, max_size=4),
    pa.list_(pa.bool_()): st.lists(st.booleans(), max_size=4),
    pa.list_(pa.string()): st.lists(st.text(max_size=2), max_size=3),
    pa.list_(pa.int16(), 2): st.lists(INTEGERS, min_size=2, max_size=2),
    pa.list_(pa.list_(pa.int64())): st.lists(st.lists(INTEGERS, max_size=2), max_size=2),
    pa.struct({"a": pa.int32()}): st.fixed_dictionaries({"a": INTEGERS}),
    pa.timestamp("us"): st.integers(0, 10**9),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from("abc"),
}


def plain(value):
    """A value that equals itself, with its type."""
    if isinstance(value, list):
        return [plain(part) for part in value]
    return (type(value), "nan" if isinstance(value, float) and math.isnan(value) else value)


@given(data=st.data(), kind=st.sampled_from(list(TYPES)), has_nulls=st.booleans(), chunks=st.integers(1, 2))
def test_values_are_those_of_arrow(data, kind, has_nulls, chunks):
    value = st.none() | TYPES[kind] if has_nulls else TYPES[kind]
    count = data.draw(st.integers(0, 12))
    drawn = data.draw(st.lists(value, min_size=count, max_size=count))
    start = data.draw(st.integers(0, count))
    array = pa.array(drawn, kind)
    cut = array.slice(start, data.draw(st.integers(0, count - start)))
    found = read_values([cut] * chunks)
    assert [plain(found[row]) for row in range(chunks * len(cut))] == [plain(value.as_py()) for value in cut] * chunks


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b"]),
        pa.array([b"a"]),
        pa.array(["a", None]),
        pa.array([1, 2]),
        pa.array([[1], [2, 3]]),
        pa.array([["a"], []]).flatten(),
    ],
)
def test_common_values_need_no_object_of_arrow(array):
    assert not isinstance(read_array(array, SoundArrays()), ArrowValues)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize(("offsets", "row"), [([0, 9, 4], 0), ([0, 3, 2], 1), ([0, -1, 4], 0)])
@pytest.mark.parametrize("nulls", [0, 1])
def test_offsets_that_lie_are_an_error(kind, offsets, row, nulls):
    wide = pa.int64() if kind in (pa.large_string(), pa.large_binary()) else pa.int32()
    valid = pa.py_buffer(b"\x03") if nulls else None
    buffers = [valid, pa.array([*offsets, 4], wide).buffers()[1], pa.py_buffer(b"abcd")]
    values = read_array(pa.Array.from_buffers(kind, 2 + nulls, buffers, nulls), SoundArrays())
    with pytest.raises(DataError, match="of 4 bytes of texts"):
        values[row]
