"""Inputs: anything that is an array gives the same batches in every argument of every dataset, and so do lists, columns
and frames where rows are taken."""

import array
from collections.abc import Sequence

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.inputs import (
    ARGUMENTS,
    ARRAYS,
    OPTIONS,
    ROWS,
    SEQUENCES,
    ArrowArray,
    Described,
    WithArray,
    in_chunks,
    mapped,
    with_lists,
)
from refusals import refused

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


# Arrays by any protocol, in every argument.


def batches_of(dataset, state=None, **options):
    loader = bl.DataLoader(dataset, 3, shuffle=True, seed=3, output="numpy", **options)
    if state is not None:
        loader.load_state_dict(state)
    first, rest = [], []
    batches = iter(loader)
    first += [batch for _, batch in zip(range(1), batches, strict=False)]
    state = loader.state_dict()
    rest += batches
    return first, rest, state


def are_equal(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(are_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    one, other = numpy.asarray(one), numpy.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def convert(value, as_kind):
    return [as_kind(each) for each in value] if isinstance(value, list) else as_kind(value)


def assert_same(make, value, as_kind, **options):
    """Batches are those of plain NumPy, and a run of plain NumPy goes on with the other arrays."""
    first, rest, state = batches_of(make(value), **options)
    given = make(convert(value, as_kind))
    again, rest_again, _ = batches_of(given, **options)
    assert are_equal(first + rest, again + rest_again)
    if rest:  # otherwise the state is the start of the next epoch
        resumed, rest_resumed, _ = batches_of(given, state, **options)
        assert are_equal(rest, resumed + rest_resumed)


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_array_of_any_kind_is_the_array_of_numpy(argument, kind):
    value, make = ARGUMENTS[argument]
    assert_same(make, value, ARRAYS[kind])


@pytest.mark.parametrize("kind", [*ARRAYS, *SEQUENCES])
@pytest.mark.parametrize("option", OPTIONS)
def test_options_take_an_array_of_any_kind(option, kind):
    value, make = OPTIONS[option]
    given = (ARRAYS | SEQUENCES)[kind](value)
    plain, other = (batches_of(make(), **{option: each})[:2] for each in (value, given))
    assert are_equal(plain, other)


@pytest.mark.parametrize("kind", SEQUENCES)
@pytest.mark.parametrize(
    "argument", [name for name, (value, _) in ARGUMENTS.items() if isinstance(value, numpy.ndarray) and value.ndim == 1]
)
def test_lists_and_columns_are_arrays_of_numbers(argument, kind):
    if argument in ("sparse_values", "sparse_columns", "sparse_starts", "tokens", "document_values"):
        pytest.skip("a list is documents, or is refused beside offsets")
    value, make = ARGUMENTS[argument]
    assert_same(make, value, SEQUENCES[kind])


@pytest.mark.parametrize(
    "argument", ["rows", "sequence_rows", "group_rows", "series_rows", "marks", "past", "future", "static", "joined"]
)
def test_columns_of_lists_of_one_size_are_matrices(argument):
    value, make = ARGUMENTS[argument]
    assert_same(make, value, SEQUENCES["datasets"])


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("make", [mapped, in_chunks])
def test_functions_return_arrays_of_any_kind(make, kind):
    if make is mapped and kind in ("pandas", "polars"):
        pytest.skip("a column is a list of objects")
    plain = batches_of(make(ROWS, numpy.asarray))[:2]
    assert are_equal(plain, batches_of(make(ROWS, ARRAYS[kind]))[:2])


@pytest.mark.parametrize("kind", ["dlpack", "arrow_array", "pyarrow", "torch"])
@pytest.mark.parametrize("argument", ["rows", "numbers", "group_rows", "series", "series_rows", "tokens"])
def test_what_lies_in_memory_is_borrowed(argument, kind):
    value, make = ARGUMENTS[argument]
    given = ARRAYS[kind](value.copy())
    dataset = make(given)
    held = dataset.tokens if argument == "tokens" else dataset.fields
    held = next(iter(held.values())) if isinstance(held, dict) else held[0] if isinstance(held, tuple) else held
    column = getattr(given, "column", given)
    source = given.array if kind == "dlpack" else column
    if kind in ("arrow_array", "pyarrow"):
        source = numpy.asarray(column.flatten() if value.ndim > 1 else column)
    assert numpy.shares_memory(numpy.asarray(held), numpy.asarray(source))


@pytest.mark.parametrize("kind", ["array", "described", "described_slices"])
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_what_gives_values_is_read_once(argument, kind):
    value, make = ARGUMENTS[argument]
    given = convert(value, ARRAYS[kind])
    make(given)
    assert [each.reads for each in (given if isinstance(given, list) else [given])] == [1] * (
        len(given) if isinstance(given, list) else 1
    )


def test_lists_of_one_size_are_one_series():
    for kind in ("arrow_array", "arrow_stream", "pyarrow"):
        dataset = bl.WindowDataset(ARRAYS[kind](ROWS), 4, 2)
        assert dataset.offsets.tolist() == [0, 12]
        assert dataset[0][0].tolist() == ROWS[:4].tolist()
    lists = pytest.importorskip("pyarrow").array(ROWS.tolist())  # whose type has no size: a series each
    assert len(bl.WindowDataset(lists, 1, 1)) == 12


def test_lists_of_one_size_are_rows_beside_other_sequences():
    assert with_lists(x=ArrowArray(ROWS)).fields["x"].shape == (12, 2)
    (batch,) = bl.DataLoader(bl.SequenceDataset(x=ArrowArray(ROWS)), 12)  # alone, they are the sequences
    assert batch["lengths"].tolist() == [2] * 12


# What is refused.


class Lying(Described):
    """An object that describes its values otherwise than they are."""

    def __init__(self, shape=None, dtype=None, index=None):
        super().__init__(numpy.arange(12.0))
        self.shape, self.dtype, self.index = shape or self.shape, dtype or self.dtype, index

    def __getitem__(self, index):
        return super().__getitem__(index) if self.index is None else self.index(index)


def fail(index):
    raise OSError("the disk is gone")


def arrow(values, kind=None):
    return pytest.importorskip("pyarrow").array(values, kind)


class Capsule(ArrowArray):
    def __init__(self, column):
        self.column = column


REFUSED = {
    "object": (object, bl.DataError, ("object", "__dlpack__", "__arrow_c_array__", "__array__", "shape, dtype and []")),
    "failing": (lambda: Lying(index=fail), bl.DataError, ("Lying", "OSError", "the disk is gone", "all of its values")),
    "other_shape": (lambda: Lying(shape=(13,)), bl.DataError, ("Lying", "(13,)", "(12,)")),
    "other_rank": (lambda: Lying(shape=(12, 1)), bl.DataError, ("Lying", "(12, 1)", "(12,)")),
    "no_shape": (lambda: Lying(shape="twelve"), bl.DataError, ("Lying", "twelve", "integers")),
    "other_type": (lambda: Lying(dtype=numpy.dtype("int32")), bl.DTypeError, ("Lying", "int32", "float64")),
    "text_type": (lambda: Lying(dtype="<U3"), bl.DTypeError, ("Lying", "<U3", "float64")),
    "no_array": (lambda: Lying(index=lambda index: object()), bl.DataError, ("Lying", "object", "an array")),
    "itself": (lambda: Lying(index=lambda index: Lying()), bl.DataError, ("Lying", "an array")),
    "nulls": (lambda: Capsule(arrow([1.0, None] * 6)), bl.DataError, ("sample 1", "null")),
    "null_rows": (
        lambda: Capsule(arrow([[1.0, 2.0], None] * 6, arrow([[0.0, 0.0]], _pairs()).type)),
        bl.DataError,
        ("sample 1", "null"),
    ),
}
# The arguments of one array of samples, rows or steps, by the name that messages have for it.
NAMED = {
    "x": ["rows", "sequence_rows", "sequence_values"],
    "0": ["numbers"],
    "1": ["group_rows"],
    "group_ids": ["group_ids"],
    "series": ["series", "series_rows", "series_values"],
    "marks": ["marks"],
    "p": ["past", "future"],
    "labels": ["labels"],
    "s": ["static", "series_by_name"],
    "tokens": ["tokens", "document_values"],
    "chunks[0]": ["parts_of_an_array"],
}


def _pairs():
    return pytest.importorskip("pyarrow").list_(pytest.importorskip("pyarrow").float64(), 2)


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize(("name", "argument"), [(name, each) for name, listed in NAMED.items() for each in listed])
def test_what_is_no_array_is_refused_in_the_same_words(name, argument, what):
    make_given, error, words = REFUSED[what]
    if argument == "group_ids" and what == "object":
        pytest.skip("an object has no values to number")
    if argument in ("sequence_rows", "tokens") and what == "null_rows":
        pytest.skip("lists of one size are sequences here, and documents")
    value, make = ARGUMENTS[argument]
    given = make_given()
    with refused(error, name, *words) as caught:
        make([given, given] if isinstance(value, list) else given)
    with pytest.raises(error) as usual:
        bl.TensorDataset(x=make_given())
    assert str(caught.value).replace(f"field {name}", "field x") == str(usual.value)


def test_objects_in_memory_are_refused_as_arrays_of_numpy_are():
    numbers = numpy.array([1, None], object)
    for objects in (Described(numbers), WithArray(numbers)):
        with refused(bl.DTypeError, "field x", "object"):
            bl.TensorDataset(x=objects)
    with refused(bl.DTypeError, "field x", "lists of any length", "SequenceDataset"):
        bl.TensorDataset(x=arrow([[1], [2, 3]]))


def test_texts_of_objects_on_disk_are_objects():
    texts = numpy.array(["a", "bc", "d"])
    for each in (Described(texts), WithArray(texts), Described(texts.astype(object))):
        (batch,) = bl.DataLoader(bl.TensorDataset(x=each), 3)
        assert batch["x"] == ["a", "bc", "d"]


def test_an_object_that_cannot_be_read_is_named():
    class OnDisk(WithArray):
        def __array__(self, dtype=None, copy=None):
            return fail(...)

    for make in (lambda x: bl.TensorDataset(x=x), lambda x: with_lists(x=x), lambda x: with_lists(sizes=x)):
        with refused(bl.DataError, {"field x", "sizes"}, "OnDisk", "the disk is gone"):
            make(OnDisk(ROWS))


def test_memory_errors_are_not_hidden():
    def run_out(index):
        raise MemoryError

    with pytest.raises(MemoryError):
        bl.TensorDataset(Lying(index=run_out))


TYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.law("L9")
@given(
    kind=st.sampled_from(["dlpack", "array", "arrow_array", "arrow_stream", "described", "described_slices"]),
    dtype=st.sampled_from(TYPES),
    rows=st.integers(2, 20),
    width=st.none() | st.integers(1, 3),
    step=st.sampled_from([1, 2, -1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_array_of_any_kind_makes_the_batches_of_numpy(kind, dtype, rows, width, step, seed):
    shape = (rows * abs(step), *([] if width is None else [width]))
    array = numpy.random.default_rng(seed).integers(0, 100, shape).astype(dtype)[::step]
    array = array.copy() if dtype == "bool" and kind == "dlpack" else array
    ids = numpy.arange(rows) // 2
    for make in (
        bl.TensorDataset,
        lambda x: bl.GroupDataset(ids, x),
        lambda x: bl.SequenceDataset(x=(x, numpy.array([0, 1, rows]))),
        lambda x: bl.WindowDataset(x, 1, 1),
        lambda x: bl.WindowDataset([x, x], 2),
        lambda x: bl.TensorDataset(bl.ChunkedArray([x, x])),
    ):
        assert_same(make, array, ARRAYS[kind])
