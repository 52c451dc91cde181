"""Sequences that make no dataset: the class of the error, and the field, sample and numbers that it names."""

import batchloom as bl
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from named import named
from refusals import refused


def dataset(samples=100):
    return bl.TensorDataset(numpy.arange(samples))


# Sequences


def sequences(**fields):
    return bl.SequenceDataset(**fields)


@pytest.mark.parametrize(
    ("offsets", "parts"),
    [
        ([0, 3, 2, 5], ("sample 1", "2", "3", "decrease")),
        ([0, 3, 4, 6], ("sample 2", "6", "5 values")),
        ([0, 9, 9], ("sample 0", "9", "5 values")),
        ([-1, 3, 5], ("sample 0", "-1", "0")),
        ([0, -1], ("sample 0", "-1")),
        ([0, 2**62, 5], ("sample 0", str(2**62))),
        ([-(2**63), 2**63 - 1], ("sample 0", str(-(2**63)))),
        (numpy.array([0, 2**64 - 1], numpy.uint64), ("offset 1", str(2**64 - 1))),
        ([0, 5, 5, 5, 4], ("sample 3", "4", "5")),
        ([], ("offsets",)),
        (numpy.zeros(0, int), ("offsets", "samples")),
        ([0.0, 5.0], ("offsets", "float64", "integers")),
        ([True, True], ("offsets", "bool", "integers")),
        (["0", "5"], ("offsets", "<U1", "integers")),
        ([None, 5], ("offsets", "object", "integers")),
        (None, ("offsets", "object", "integers")),
        (5, ("offsets", "()", "integers")),
        ("abc", ("offsets", "()", "integers")),
        (numpy.zeros((1, 1, 1), int), ("offsets", "(1, 1, 1)")),
    ],
    ids=str,
)
def test_offsets_that_describe_no_sequences(offsets, parts):
    for values in (numpy.zeros(5), torch.zeros(5, 2)):
        with refused(bl.DataError, "field tokens", *parts):
            sequences(tokens=(values, offsets))


@pytest.mark.parametrize(
    ("shapes", "parts"),
    [
        ([[2, 3], [-1, 1]], ("sample 1", "[-1, 1]", "0")),
        ([[2, 2**32]], ("sample 0", str(2**32))),
        ([[1, 5], [2, 1]], ("6 values", "7")),
        ([[2, 2]], ("6 values", "4")),
        ([[2**31, 2**31, 2**31]], ("6 values",)),
    ],
    ids=str,
)
def test_shapes_that_describe_no_sequences(shapes, parts):
    with refused(bl.DataError, *parts):
        sequences(tokens=(numpy.zeros(6), shapes))


def test_sequences_too_large_to_be_sized():
    with refused(bl.DataError, "sample 1", "[65536, 65536]", "2^32"):
        sequences(tokens=(numpy.zeros(0), [[1, 0, 0], [2**16, 2**16, 0], [1, 1, 0]]))


@pytest.mark.parametrize(
    ("samples", "kind", "parts"),
    [
        ([[1], None], bl.DataError, ("sample 1", "NoneType", "array", "list")),
        ([[1], 3], bl.DataError, ("sample 1", "int")),
        ([[1], "ab"], bl.DataError, ("sample 1", "str")),
        ([b"ab"], bl.DTypeError, ("b'ab'", "numbers")),
        ([[1], {1: 2}], bl.DataError, ("sample 1", "dict")),
        ([[1], iter([1])], bl.DataError, ("sample 1", "list_iterator")),
        ([numpy.ones(2), numpy.float64(3)], bl.DataError, ("sample 1", "scalar", "dimension")),
        ([torch.ones(2), torch.tensor(3.0)], bl.DataError, ("sample 1", "scalar")),
        ([numpy.ones(2), numpy.ones(2, numpy.float32)], bl.DTypeError, ("sample 1", "float32", "sample 0", "float64")),
        ([numpy.ones(2), torch.ones(2)], bl.DTypeError, ("sample 1", "Tensor", "sample 0", "ndarray")),
        ([numpy.ones((2, 2)), numpy.ones((2, 2)), numpy.ones(2)], bl.DataError, ("sample 2", "1", "2", "dimension")),
        ([[1], [0.5]], bl.DTypeError, ("sample 1", "float64", "sample 0", "int64")),
        ([[1], [2, None]], bl.DTypeError, ("sample 1", "object")),
        ([["a"], ["b"]], bl.DTypeError, ("['a']", "numbers")),
        ([numpy.array([1, 2], "M8[s]")], bl.DTypeError, ("datetime64[s]",)),
        ([numpy.array([1, None])], bl.DTypeError, ("object",)),
        ([], bl.DataError, ("empty", "one sample")),
        ([torch.ones(2, device="meta"), torch.ones(3)], bl.DeviceError, ("sample 1", "cpu", "sample 0", "meta")),
        ([torch.ones(2), torch.ones(3, device="meta")], bl.DeviceError, ("sample 1", "meta", "sample 0", "cpu")),
        ([torch.ones(2).to_sparse(), torch.ones(3).to_sparse()], bl.DataError, ("torch.sparse_coo", "to_dense")),
        ([numpy.ma.array([1, 2], mask=[0, 1]), numpy.ma.array([1])], bl.DataError, ("masked", "filled")),
    ],
    ids=named,
)
def test_lists_that_are_no_sequences(samples, kind, parts):
    with refused(kind, "field tokens", *parts):
        sequences(tokens=samples)


@pytest.mark.parametrize("samples", [[[1], [[1], [2, 3]]], [[1], [[1, 2], [3]]], [[1], [2, [3]]]], ids=str)
def test_lists_of_ragged_lists(samples):
    with refused(bl.DataError, "field tokens", "sample 1"):
        sequences(tokens=samples)


@pytest.mark.parametrize("samples", [[[2, None]], [[2**70]]], ids=str)
def test_lists_of_what_is_no_number_name_the_sample(samples):
    with refused(bl.Error, "field tokens", "sample 0"):
        sequences(tokens=samples)


@pytest.mark.parametrize("field", [None, 5, 2.5, "abc", b"abc", {1: 2}, object, ()], ids=str)
def test_what_is_no_sequence_field(field):
    with refused(bl.DataError, "field tokens", type(field).__name__, "array"):
        sequences(tokens=field)


@pytest.mark.parametrize("field", [range(3), (1, 2, 3), [1, 2, 3]], ids=str)
def test_numbers_are_no_sequences(field):
    with refused(bl.DataError, "no field varies in length", "TensorDataset"):
        sequences(tokens=field)


def test_values_that_are_none():
    for values, kind, parts in (
        ([1, 2, 3], bl.DataError, ("list", "array")),
        (numpy.array(3.0), bl.DataError, ("scalar",)),
        (numpy.array([None]), bl.DTypeError, ("object",)),
        (numpy.array(["a"]), bl.DTypeError, ("<U1",)),
        (numpy.zeros(1, ">f4"), bl.DTypeError, ("'>'",)),
        (torch.zeros(0, device="meta"), bl.DataError, ("sample 0", "1", "0 values")),
        (None, bl.DataError, ("NoneType",)),
    ):
        with refused(kind, "field tokens", *parts):
            sequences(tokens=(values, [0, 1]))


def chunked(rows, kind=None):
    return pyarrow.chunked_array([pyarrow.array(rows, kind)])


FIXED = pyarrow.list_(pyarrow.int64(), 2)
NESTED = pyarrow.list_(FIXED)
LISTS = [
    (chunked([[1], [2], None, None]), bl.DataError, ("sample 2", "null")),
    (chunked([[1], [], [2, None], [None]]), bl.DataError, ("sample 2", "null")),
    (chunked([[None], [1], [], [2, None]])[1:], bl.DataError, ("sample 2", "null")),
    (pyarrow.chunked_array([[[1], [2]], [[3], [None]]]), bl.DataError, ("sample 3", "null")),
    (chunked([[1, 2], None], FIXED), bl.DataError, ("sample 1", "null")),
    (chunked([[1, 2], [1, None]], FIXED), bl.DataError, ("sample 1", "null")),
    (chunked([[[1, 2]], [None]], NESTED), bl.DataError, ("sample 1", "null")),
    (chunked(["a"]), bl.DTypeError, ("'a'", "lists", "numbers")),
    (chunked([{"a": 1}]), bl.DTypeError, ("{'a': 1}", "lists", "numbers")),
    (chunked([["a"]]), bl.DTypeError, ("lists", "['a']")),
    (chunked([[[1]], [[2, 3]]]), bl.DTypeError, ("lists", "List")),
    (chunked([[]], pyarrow.list_(pyarrow.date32())), bl.DTypeError, ("lists", "Date32")),
    (chunked([[]], pyarrow.list_(pyarrow.decimal128(5))), bl.DTypeError, ("lists", {"Decimal128", "Decimal128(5, 0)"})),
    (chunked([[None]], pyarrow.list_(pyarrow.null())), bl.DTypeError, ("lists", "Null")),
    (chunked([[1], [2]], pyarrow.list_view(pyarrow.int64())), bl.DTypeError, ("ListView",)),
    (pyarrow.table({"a": [[1]]}), bl.DTypeError, ("column 'a'", "object", "numbers")),
    (polars.Series([[1], None]), bl.DataError, ("sample 1", "null")),
    (polars.Series([[1], [2, None]]), bl.DataError, ("sample 1", "null")),
    (polars.Series([["a"]]), bl.DTypeError, ("lists", "['a']")),
    (polars.Series([[[1]], [[2, 3]]]), bl.DTypeError, ("lists", {"List", "LargeList"})),
    (polars.DataFrame({"a": [[1]]}), bl.DTypeError, ("column 'a'", "object", "numbers")),
    (
        pandas.Series([[1], None], dtype=pandas.ArrowDtype(pyarrow.list_(pyarrow.int64()))),
        bl.DataError,
        ("sample 1", "null"),
    ),
]


@pytest.mark.parametrize(("lists", "kind", "parts"), LISTS, ids=str)
def test_arrow_that_is_no_lists_of_numbers(lists, kind, parts):
    with refused(kind, "field tokens", *parts):
        sequences(tokens=lists)


def test_nulls_of_inner_lists_name_the_sample():
    with refused(bl.DataError, "field tokens", "sample 1", "null"):
        sequences(tokens=chunked([[[1, 2]], [[1, None]]], NESTED))


def test_nulls_outside_of_a_slice_do_not_matter():
    assert len(sequences(tokens=chunked([[[1, None]], [[1, 2]]], NESTED)[1:])) == 1
    assert len(sequences(tokens=chunked([[None], [1], None])[1:2])) == 1


def test_nulls_of_plain_lists_outside_of_a_slice_do_not_matter():
    dataset = sequences(tokens=chunked([[None], [1, 2], [], None])[1:3])
    assert [dataset[place]["tokens"].tolist() for place in (0, 1)] == [[1, 2], []]


def test_nulls_in_a_pyarrow_array():
    with refused(bl.DataError, "field tokens", "sample 1", "null"):
        sequences(tokens=pyarrow.array([[1], None]))


class BrokenArrow:
    def __init__(self, answer):
        self.answer = answer

    def __arrow_c_array__(self, requested_schema=None):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [RuntimeError("no"), 5, None, (1, 2)], ids=repr)
def test_a_producer_of_arrow_that_is_broken(answer):
    with refused(bl.Error, "field tokens"):
        sequences(tokens=BrokenArrow(answer))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_without_samples():
    with refused(bl.DataError, "field tokens", "one sample"):
        sequences(tokens=torch.nested.nested_tensor([]))


def test_nested_tensors_on_another_device():
    ragged = [torch.ones(2), torch.ones(3)]
    with refused(bl.DeviceError, "field tokens", "meta"):
        sequences(tokens=torch.nested.nested_tensor(ragged, layout=torch.jagged, device="meta"))


@pytest.mark.parametrize(
    "offsets", [[[1], [2, 3]], torch.tensor([0.0, 5.0], requires_grad=True)], ids=["ragged", "grad"]
)
def test_offsets_that_numpy_cannot_read(offsets):
    with refused(bl.DataError, "field tokens"):
        sequences(tokens=(numpy.zeros(5), offsets))


def test_shapes_without_samples():
    assert len(sequences(tokens=(numpy.zeros(0), numpy.zeros((0, 2), int)))) == 0


def test_shapes_of_strided_values():
    with refused(bl.DataError, "field tokens", {"compact", "contiguous"}):
        sequences(tokens=(numpy.zeros(10)[::2], [[5, 1]]))


def test_fields_that_disagree_name_the_sample():
    with refused(bl.DataError, "sample 2", "[3]", "field marks", "[2]", "field tokens"):
        sequences(tokens=[[1], [], [1, 2]], marks=[[1], [], [1, 2, 3]])
    with refused(bl.DataError, "sample 1", "[0]", "field c", "[2]", "field b"):
        sequences(a=numpy.zeros(2), b=(numpy.zeros(4), [0, 2, 4]), c=(torch.zeros(4), [0, 2, 2]))
    with refused(bl.DataError, "sample 0", "field y", "field x"):
        sequences(x=[numpy.ones((2, 3)), numpy.ones((1, 4))], y=[numpy.ones((3, 2)), numpy.ones((1, 4))])
    with refused(bl.DataError, "field y", "3", "field x", "2"):
        sequences(x=[[1], [2]], y=numpy.ones(3))
    with refused(bl.DataError, "field y", "1", "field x", "2"):
        sequences(x=[[1], [2]], y=[[1]])
    with refused(bl.DataError, "field y", "scalar"):
        sequences(x=[[1], [2]], y=numpy.array(3))


def test_no_fields_no_sequence_and_names_that_are_taken():
    with refused(bl.DataError, "no", "fields"):
        sequences()
    with refused(bl.DataError, "field", "TensorDataset"):
        sequences(x=numpy.zeros(3), y=torch.zeros(3, 2))
    with refused(bl.ArgumentError, "table", "list"):
        bl.SequenceDataset([[1], [2]])
    for name in ("lengths", "index", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids"):
        with refused(bl.ArgumentError, name, "name"):
            sequences(**{name: [[1]]})
    with refused(bl.Error, "labels", "twice"):
        bl.DataLoader(sequences(labels=[[1], [2]]), labels="labels")
    assert len(list(bl.DataLoader(sequences(labels=[[1], [2]])))) == 1


def test_a_field_named_self():
    assert len(sequences(**{"self": [[1], [2]]})) == 2


@pytest.mark.parametrize(
    ("sizes", "kind", "parts"),
    [
        ([1], bl.DataError, ("1 sizes", "2 samples")),
        ([1, -1], bl.DataError, ("sample 1", "-1")),
        ([float("nan"), 1], bl.DataError, ("sample 0", "nan")),
        ([1, 2**32], bl.DataError, ("sample 1", str(2**32))),
        ([1, 1.5], bl.DataError, ("sample 1", "1.5")),
        ([[1, 2]], bl.DataError, ("sizes", "(1, 2)")),
        (3, bl.DataError, ("sizes", "()")),
        (["1", "2"], bl.DTypeError, ("<U1",)),
        ([True, False], bl.DTypeError, ("bool",)),
        ([None, 1], bl.DTypeError, ("object",)),
    ],
    ids=str,
)
def test_sizes_of_the_user_that_are_none(sizes, kind, parts):
    with refused(kind, *parts):
        sequences(x=[[1], [2]], sizes=sizes)


def test_an_empty_dataset_of_sequences():
    empty = sequences(x=(numpy.zeros(0), [0]), y=numpy.zeros((0, 3)))
    assert len(empty) == 0
    for rule in (bl.FixedSize(2), bl.TokenBudget(3), bl.Packing(3)):
        with refused(bl.DataError, "no samples"):
            bl.DataLoader(empty, batching=rule)
    with pytest.raises(bl.RangeError):
        empty[0]


fields = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=8,
)


def rectangular(data):
    """Tells whether NumPy reads it; ragged lists are another test's."""
    try:
        numpy.asarray(data)
    except (ValueError, OverflowError):
        return False
    return True


@given(field=fields, sizes=st.none() | fields)
def test_any_field_makes_a_dataset_or_an_error_of_ours(field, sizes):
    assume(rectangular(sizes))
    assume(not isinstance(field, list | tuple) or all(map(rectangular, field)))
    try:
        made = bl.SequenceDataset(x=field, sizes=sizes)
    except bl.Error:
        return
    assert len(made) == len(made.sizes)
    for place in range(len(made)):
        assert made[place]["x"] is not None
    if len(made):
        assert sum(len(batch["index"]) for batch in bl.DataLoader(made, 2)) == len(made)


BEYOND = {
    "a box of empty ones": "x=(numpy.zeros(0), [[2**32 - 1, 0], [0, 2**32 - 1]])), bl.FixedSize(2)",
    "three of them": "x=(numpy.zeros(0), [[2**30, 0, 0], [0, 2**30, 0], [0, 0, 2**30]])), bl.FixedSize(3)",
    "long ones": "x=(LONG, [0] + [2**32 - 1] * 1000)), bl.FixedSize(1000)",
    "a large multiple": "x=[[1], [2]]), bl.LengthBuckets(2**20, multiple_of=2**32 - 1)",
    "two large multiples": "x=[numpy.ones((1, 2)), numpy.ones((2, 1))]), bl.LengthBuckets(2, multiple_of=2**32 - 1)",
    "a large pack": "x=(numpy.broadcast_to(LONG[:1, None], (2**28, 2**20)), [0, 2**28])), bl.Packing(2**28)",
}


@pytest.mark.parametrize("case", BEYOND)
def test_sequences_beyond_memory_are_an_error_and_no_abort(script, case):
    script(
        f"""
        import resource
        import numpy
        import batchloom as bl

        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        LONG = numpy.broadcast_to(numpy.uint8(0), (2**32,))
        dataset, rule = bl.SequenceDataset({BEYOND[case]}
        try:
            batch = next(iter(bl.DataLoader(dataset, batching=rule)))
        except (bl.Error, MemoryError) as error:
            print(error)
        else:
            raise AssertionError(batch["x"].shape)
        """
    )
