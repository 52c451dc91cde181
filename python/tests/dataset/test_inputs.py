"""Inputs of fields: arrays, lists, columns and frames give the same batches in every dataset that takes rows."""

import array
from collections.abc import Sequence

import batchloom as bl
import numpy
import pytest

VALUES = numpy.arange(20.0).reshape(10, 2)
NUMBERS = numpy.arange(10)


class Column(Sequence):
    """A column of ``datasets``: a sequence that is read when it is indexed."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, places):
        return self.values[places]


class WithArray:
    """An object that NumPy knows how to convert, and that has no DLPack."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values


def numbers():
    """The numbers in each form, by the name of the form."""
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    return {
        "list": NUMBERS.tolist(),
        "tuple": tuple(NUMBERS.tolist()),
        "range": range(10),
        "pandas": pandas.Series(NUMBERS),
        "polars": polars.Series(NUMBERS),
        "arrow": arrow.array(NUMBERS),
        "chunked": arrow.chunked_array([NUMBERS[:4], NUMBERS[4:]]),
        "column": Column(NUMBERS.tolist()),
        "array": array.array("q", NUMBERS.tolist()),
        "object": WithArray(NUMBERS),
    }


def tables():
    """The values in each form with two columns, by the name of the form."""
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    return {
        "lists": VALUES.tolist(),
        "pandas": pandas.DataFrame(VALUES, columns=["a", "b"]),
        "polars": polars.DataFrame(VALUES, schema=["a", "b"]),
        "arrow": arrow.table({"a": VALUES[:, 0], "b": VALUES[:, 1]}),
        "column": Column(VALUES.tolist()),
        "object": WithArray(VALUES),
    }


def datasets(x, y):
    """A dataset of each kind that takes rows."""
    query = numpy.repeat(numpy.arange(5), 2)
    return [
        bl.TensorDataset(x=x, y=y),
        bl.GroupDataset(query, x=x, y=y),
        bl.SequenceDataset(
            ids=[numpy.arange(n + 1) for n in range(10)], x=VALUES if isinstance(x, list | Column) else x, y=y
        ),
    ]


@pytest.mark.parametrize("form", ["list", "tuple", "range", *numbers()])
def test_numbers_in_any_form_are_the_array_of_them(form):
    y = numbers()[form]
    if form == "tuple":
        expected, found = bl.TensorDataset(x=VALUES, y=NUMBERS), bl.TensorDataset(x=VALUES, y=y)
        assert numpy.array_equal(
            next(iter(bl.DataLoader(found, 10)))["y"], next(iter(bl.DataLoader(expected, 10)))["y"]
        )
        return
    for found, expected in zip(datasets(VALUES, y), datasets(VALUES, NUMBERS), strict=True):
        loaders = [bl.DataLoader(dataset, 4, shuffle=True, seed=3) for dataset in (found, expected)]
        for one, other in zip(*loaders, strict=True):
            assert numpy.array_equal(numpy.asarray(one["y"]), other["y"])


@pytest.mark.parametrize("form", list(tables()))
def test_tables_of_numbers_are_one_field_with_a_column_for_each(form):
    x = tables()[form]
    for found, expected in zip(datasets(x, NUMBERS), datasets(VALUES, NUMBERS), strict=True):
        loaders = [bl.DataLoader(dataset, 4, shuffle=True, seed=3) for dataset in (found, expected)]
        for one, other in zip(*loaders, strict=True):
            assert numpy.array_equal(numpy.asarray(one["x"]), other["x"])


@pytest.mark.parametrize("form", ["list", "pandas", "polars", "arrow", "column", "range"])
def test_numbers_in_any_form_are_one_series(form):
    found, expected = (bl.WindowDataset(series, 4, 2) for series in (numbers()[form], NUMBERS))
    for one, other in zip(bl.DataLoader(found, 3), bl.DataLoader(expected, 3), strict=True):
        assert all(numpy.array_equal(part, same) for part, same in zip(one, other, strict=True))


def test_columns_of_a_frame_are_fields():
    frame = pytest.importorskip("pandas").DataFrame(VALUES, columns=["a", "b"])
    (batch,) = bl.DataLoader(bl.TensorDataset(**frame), 10)
    assert batch["a"].tolist() == VALUES[:, 0].tolist()
    assert batch["b"].tolist() == VALUES[:, 1].tolist()


def test_columns_of_lists_are_sequences():
    dataset = bl.SequenceDataset(input_ids=Column([[1, 2, 3], [4, 5], [6]]), labels=Column([0, 1, 1]))
    (batch,) = bl.DataLoader(dataset, 3)
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 5, 0], [6, 0, 0]]
    assert batch["labels"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: [[1, 2], [3]], bl.DataError, ("field x", "differ in shape", "SequenceDataset")),
        (lambda: [1, None], bl.DTypeError, ("field x", "object")),
        (lambda: [1, "b"], bl.DTypeError, ("field x", "<U21")),
        (lambda: pytest.importorskip("pyarrow").array([1, None]), bl.DataError, ("field x", "nulls")),
        (lambda: {"a": [1]}, bl.DataError, ("field x", "dict")),
        (lambda: object(), bl.DataError, ("field x", "object", "__array__")),
    ],
)
def test_what_is_no_array_is_refused(make, error, words):
    with pytest.raises(error) as caught:
        bl.TensorDataset(x=make())
    assert all(word in str(caught.value) for word in words), str(caught.value)
