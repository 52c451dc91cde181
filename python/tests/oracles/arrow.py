"""Tables of Arrow with columns of every type that makes a field, and what each field is, by Python alone."""

import datetime

import numpy
import pyarrow

DAY = 86400 * 10**9


def table(rows=23):
    """A table, and the values of each field."""
    numbers = list(range(rows))
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=k) for k in numbers]
    first = (datetime.date(2026, 1, 1) - datetime.date(1970, 1, 1)).days
    columns = {
        "f": (pyarrow.array(numbers, pyarrow.float32()), [float(k) for k in numbers]),
        "half": (pyarrow.array([numpy.float16(k) for k in numbers], pyarrow.float16()), [float(k) for k in numbers]),
        "u": (pyarrow.array(numbers, pyarrow.uint16()), numbers),
        "flag": (pyarrow.array([k % 3 == 0 for k in numbers]), [k % 3 == 0 for k in numbers]),
        "day": (pyarrow.array(days), [(first + k) * DAY for k in numbers]),
        "micro": (
            pyarrow.array([k * 10**6 for k in numbers], pyarrow.timestamp("us", "UTC")),
            [k * 10**9 for k in numbers],
        ),
        "took": (pyarrow.array(numbers, pyarrow.duration("s")), [k * 10**9 for k in numbers]),
        "clock": (pyarrow.array(numbers, pyarrow.time32("ms")), [k * 10**6 for k in numbers]),
        "code": (pyarrow.array([k % 4 for k in numbers]).dictionary_encode(), [k % 4 for k in numbers]),
        "name": (
            pyarrow.array([f"name {k % 4}" for k in numbers]).dictionary_encode(),
            [f"name {k % 4}" for k in numbers],
        ),
        "text": (pyarrow.array([f"text {k}" for k in numbers]), [f"text {k}" for k in numbers]),
        "bytes": (pyarrow.array([bytes([k]) for k in numbers]), [bytes([k]) for k in numbers]),
        "words": (pyarrow.array([["a"] * (k % 3) for k in numbers]), [["a"] * (k % 3) for k in numbers]),
        "image": (
            pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(range(6 * rows), pyarrow.int16()), 3), 2
            ),
            numpy.arange(6 * rows).reshape(rows, 2, 3).tolist(),
        ),
        "tensor": (
            pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.arange(4.0 * rows).reshape(rows, 2, 2)),
            numpy.arange(4.0 * rows).reshape(rows, 2, 2).tolist(),
        ),
    }
    found = pyarrow.table({name: column for name, (column, _) in columns.items()})
    structs = [{"score": k / 2, "inner": {"deep": k}} for k in numbers]
    found = found.append_column("meta", pyarrow.array(structs))
    values = {name: expected for name, (_, expected) in columns.items()}
    return found, values | {"meta.score": [k / 2 for k in numbers], "meta.inner.deep": numbers}


def lists(rows=23):
    """A table with lists of one length in each row, and the values of each field."""
    lengths = [(5 * k) % 7 for k in range(rows)]
    ids = [[100 * k + place for place in range(length)] for k, length in enumerate(lengths)]
    columns = {
        "ids": (pyarrow.array(ids, pyarrow.list_(pyarrow.int32())), ids),
        "large": (pyarrow.array(ids, pyarrow.large_list(pyarrow.int64())), ids),
        "flags": (
            pyarrow.array([[each % 2 == 0 for each in row] for row in ids]),
            [[e % 2 == 0 for e in r] for r in ids],
        ),
        "pairs": (
            pyarrow.array([[[e, e + 1] for e in row] for row in ids], pyarrow.list_(pyarrow.list_(pyarrow.int32(), 2))),
            [[[e, e + 1] for e in row] for row in ids],
        ),
        "label": (pyarrow.array(range(rows)), list(range(rows))),
        "text": (pyarrow.array([f"text {k}" for k in range(rows)]), [f"text {k}" for k in range(rows)]),
    }
    found = pyarrow.table({name: column for name, (column, _) in columns.items()})
    return found, {name: expected for name, (_, expected) in columns.items()}


def write(path, tables, batch=7, stream=False, **options):
    """Write tables to one file, in record batches of some rows."""
    kind = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    settings = pyarrow.ipc.IpcWriteOptions(**options)
    with pyarrow.OSFile(str(path), "wb") as file, kind(file, tables[0].schema, options=settings) as writer:
        for each in tables:
            writer.write_table(each, max_chunksize=batch)
    return path


def plain(value):
    """A value of a sample as Python has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def assert_values(dataset, values):
    """The samples of a dataset have these values, field by field."""
    assert set(dataset.names) == set(values)
    samples = [dataset[k] for k in range(len(dataset))]
    for name, expected in values.items():
        assert [plain(sample[name]) for sample in samples] == expected, name
