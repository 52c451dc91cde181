"""Offsets that lie: a row that leads out of its arrays is an error, at any depth, and no other row is.

The oracle is pyarrow's own full validation. Types hold bytes, since it also refuses texts that are no UTF-8.
"""

from contextlib import suppress

import batchloom as bl
import numpy as np
import pyarrow as pa
import pytest
from batchloom.errors import DataError, Error
from batchloom.formats.sound import SoundArrays
from hypothesis import given
from hypothesis import strategies as st

BYTES = st.binary(max_size=20)
TYPES = {
    pa.int64(): st.integers(0, 9),
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.list_(pa.binary()): st.lists(BYTES, max_size=3),
    pa.large_list(pa.large_binary()): st.lists(BYTES, max_size=3),
    pa.list_(pa.list_(pa.binary())): st.lists(st.lists(BYTES, max_size=2), max_size=2),
    pa.list_(pa.binary(), 2): st.lists(BYTES, min_size=2, max_size=2),
    pa.list_view(pa.binary()): st.lists(BYTES, max_size=3),
    pa.struct({"a": pa.binary(), "b": pa.list_(pa.int8())}): st.fixed_dictionaries(
        {"a": BYTES, "b": st.lists(st.integers(0, 9), max_size=3)}
    ),
    pa.map_(pa.binary(), pa.int8()): st.dictionaries(BYTES, st.integers(0, 9), max_size=3).map(
        lambda it: [*it.items()]
    ),
    pa.dictionary(pa.int32(), pa.binary()): BYTES,
    pa.list_(pa.dictionary(pa.int32(), pa.binary())): st.lists(BYTES, max_size=3),
}
LIES = [-1, -(2**31), 2**31 - 1, 2**20, 0, 1, 2, 7]


def changed(array, change):
    """The array with its buffers changed, at any depth."""
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(
            changed(array.indices, change), changed(array.dictionary, change), safe=False
        )
    kind = array.type
    if pa.types.is_struct(kind):
        children = [array.field(number) for number in range(kind.num_fields)]
    elif hasattr(array, "values"):
        children = [array.values]
    else:
        children = []
    own = 2 if hasattr(array, "sizes") else 1
    own = {pa.binary_view(): len(array.buffers()), pa.binary(): 3, pa.large_binary(): 3}.get(kind, own + 1)
    own = 1 if pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind) else own
    valid, *buffers = array.buffers()[:own]
    buffers = [valid, *(None if buffer is None else change(buffer) for buffer in buffers)]
    children = [changed(child, change) for child in children]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, children=children)


def is_valid(array):
    try:
        array.validate(full=True)
    except pa.ArrowException:
        return False
    return True


@given(data=st.data(), kind=st.sampled_from(list(TYPES)), has_nulls=st.booleans())
def test_rows_pass_if_arrow_itself_finds_no_fault(data, kind, has_nulls):
    value = TYPES[kind] | st.none() if has_nulls else TYPES[kind]
    array = pa.array(data.draw(st.lists(value, min_size=1, max_size=6)), kind)

    def change(buffer):
        content = np.frombuffer(buffer, np.uint8).copy()
        words = content[: len(content) // 4 * 4].view(np.int32)
        if len(words) and data.draw(st.integers(0, 2)) == 0:
            words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(LIES))
        return pa.py_buffer(content)

    try:
        array = changed(array, change)
    except pa.ArrowInvalid:
        return  # pyarrow sees it when a file is opened
    start = data.draw(st.integers(0, len(array)))
    end = data.draw(st.integers(start, len(array)))
    if not is_valid(array):
        # Views have rules beside, for bytes that no value is made of.
        with pytest.raises(DataError) if kind != pa.binary_view() else suppress(DataError):
            SoundArrays().require_whole(array)
            array.to_pylist()
        return
    sound = SoundArrays()
    sound.require_whole(array)
    sound.require(array, start, end)
    sound.require_whole(array.slice(start, end - start))
    array.to_pylist()


COUNT = 3000


def steps(count, width, lies, by=np.int32):
    offsets = np.arange(0, width * (count + 1), width, dtype=by)
    if lies:
        offsets[count // 2] = np.iinfo(by).max // 2
    return pa.py_buffer(offsets)


def texts(count, lies, kind=None):
    data = pa.py_buffer(b"abc" * count)
    return pa.Array.from_buffers(kind or pa.string(), count, [None, steps(count, 3, lies), data])


def lists(values, lies, kind=pa.list_):
    count = len(values) // 2
    return pa.Array.from_buffers(kind(values.type), count, [None, steps(count, 2, lies)], children=[values])


COLUMNS = {
    "texts": lambda: texts(COUNT, True),
    "texts in lists": lambda: lists(texts(2 * COUNT, True), False),
    "lists of texts": lambda: lists(texts(2 * COUNT, False), True),
    "texts in lists of lists": lambda: lists(lists(texts(4 * COUNT, True), False), False),
    "lists of lists of texts": lambda: lists(lists(texts(4 * COUNT, False), True), False),
    "numbers": lambda: lists(pa.array(np.arange(2 * COUNT)), True),
    "numbers of which one is null": lambda: lists(pa.array([*range(2 * COUNT - 1), None]), True),
    "categories": lambda: pa.DictionaryArray.from_arrays(
        pa.array(np.where(np.arange(COUNT) == COUNT // 2, 1 << 30, 0)), texts(9, False), safe=False
    ),
    "texts of categories": lambda: pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(COUNT, np.int64)), texts(9, True), safe=False
    ),
    "structs in lists": lambda: lists(pa.StructArray.from_arrays([texts(2 * COUNT, True)], ["a"]), False),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("takes_rows", [True, False])
def test_files_that_lie_are_an_error_of_their_rows(tmp_path, name, compression, takes_rows):
    table = pa.table({"number": np.arange(COUNT), "t": COLUMNS[name]()})
    path = str(tmp_path / "x.arrow")
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table)
    taken = []
    with pytest.raises(Error) as caught:  # noqa: PT012
        dataset = bl.open(path, fn=lambda row: (row["number"], str(row["t"]))[0]) if takes_rows else bl.open(path)
        for batch in bl.DataLoader(dataset, 1):
            taken.append(batch)
    if name == "structs in lists" and not takes_rows:
        assert "makes no tensor" in str(caught.value)
        return
    assert path in str(caught.value)
    if taken:
        # The batches of a block are made together.
        assert COUNT // 2 - 64 <= len(taken) <= COUNT // 2


@pytest.mark.parametrize("nulls", [{"t": ""}, {"t": "x"}])
def test_nulls_in_columns_that_lie(tmp_path, nulls):
    broken = texts(COUNT, True)
    valid = pa.py_buffer(b"\xfe" + b"\xff" * (COUNT // 8))
    broken = pa.Array.from_buffers(pa.string(), COUNT, [valid, *broken.buffers()[1:]], 1)
    path = str(tmp_path / "x.arrow")
    table = pa.table({"number": np.arange(COUNT), "t": broken})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=f"row {COUNT // 2 - 1} of .*, column t: it is damaged: it goes from byte"):
        bl.open(path, nulls=nulls)


@pytest.mark.parametrize("options", [{}, {"nulls": {"t": "x"}}, {"kind": "windows", "id": "t", "input_len": 1}])
def test_the_damaged_file_is_named(tmp_path, options):
    paths = [str(tmp_path / f"{name}.arrow") for name in ("good", "wrong")]
    for path, lies in zip(paths, (False, True), strict=True):
        # Nulls, and categories, are copied as a file is opened.
        broken = texts(COUNT, lies)
        valid = pa.py_buffer(b"\xfe" + b"\xff" * (COUNT // 8))
        broken = pa.Array.from_buffers(pa.string(), COUNT, [valid, *broken.buffers()[1:]], 1)
        column = {"t": broken} if "nulls" in options else {"t": lists(texts(2 * COUNT, False), lies)}
        if "id" in options:
            column = {"t": texts(COUNT, lies)}
        table = pa.table({"n": np.arange(1.0, COUNT + 1), **column})
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    with pytest.raises(DataError, match=r"wrong\.arrow"):
        for _ in bl.DataLoader(bl.open(paths, **options), 64):
            pass


@pytest.mark.parametrize("offsets", [[0, 2**31 - 1, -2, 4], [0, 3, 1, 4]])
@pytest.mark.parametrize("depth", [1, 2])
def test_lists_of_numbers_whose_offsets_wrap_around(tmp_path, offsets, depth):
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
    column = pa.Array.from_buffers(pa.list_(pa.int64()), 3, buffers, children=[pa.array(range(4))])
    if depth == 2:
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), column)
    table = pa.table({"t": column})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=r"offsets of lists in column t of .*x\.arrow leave their values or decrease"):
        bl.open(str(tmp_path / "x.arrow"))


def test_nulls_that_are_counted_wrong_hide_no_category(tmp_path):
    numbers = np.zeros(COUNT, np.int32)
    numbers[COUNT // 2] = 1 << 30
    valid = pa.py_buffer(b"\xff" * (COUNT // 8))
    found = pa.Array.from_buffers(pa.int32(), COUNT, [valid, pa.py_buffer(numbers)], COUNT)
    array = pa.DictionaryArray.from_arrays(found, texts(9, False), safe=False)
    with pytest.raises(DataError, match="it is category 1073741824 of 9"):
        SoundArrays().require_whole(array)


def test_views_of_lists_that_are_too_long_for_a_number():
    offsets, sizes = np.array([0, 2**63 - 1]), np.array([2, 5])
    kind = pa.large_list_view(pa.int8())
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(sizes)]
    array = pa.Array.from_buffers(kind, 2, buffers, children=[pa.array([1, 2], pa.int8())])
    with pytest.raises(DataError, match="it has 5 elements from 9223372036854775807 on, of 2 elements"):
        SoundArrays().require_whole(array)


def test_bytes_of_tables_are_counted_without_their_offsets(tmp_path):
    """Arrow's own ``nbytes`` follows the offset of the last list, into lists that it did not look at."""
    inner = lists(texts(4 * COUNT, False), True)
    path = tmp_path / "x.arrow"
    table = pa.table({"n": np.arange(COUNT), "t": lists(inner, False)})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    content = bytearray(path.read_bytes())
    ends = np.arange(0, 2 * COUNT + 1, 2, dtype=np.int32).tobytes()
    place = content.index(ends) + len(ends) - 4
    content[place : place + 4] = np.int32(COUNT).tobytes()
    path.write_bytes(content)
    with pytest.raises(Error, match=f"row {COUNT // 2 - 1} of "):
        for _ in bl.DataLoader(bl.open(str(path), fn=lambda row: len(row["t"])), 1):
            pass


@pytest.mark.parametrize("kind", ["windows", "groups"])
def test_rows_of_folders_are_taken_of_sound_columns(tmp_path, kind):
    datasets = pytest.importorskip("datasets")
    table = pa.table({"n": np.arange(1.0, COUNT + 1), "g": np.zeros(COUNT, np.int64), "t": texts(COUNT, True)})
    source = datasets.Dataset(table).select(range(COUNT - 1, 0, -1))
    options = {"input_len": 1} if kind == "windows" else {"id": "g"}
    with pytest.raises(DataError, match=r"column t of .* is damaged"):
        bl.open(source, kind=kind, **options)
