"""Rows that make no dataset: the class of the error, and the field and the numbers that it names."""

import batchloom as bl
import ml_dtypes
import numpy
import pytest
import torch
from refusals import refused


def dataset(samples=100):
    return bl.TensorDataset(numpy.arange(samples))


# Fields


def test_fields_of_different_lengths():
    with refused(bl.DataError, "field y", "7", "field x", "8"):
        bl.TensorDataset(x=numpy.zeros((8, 2)), y=torch.zeros(7))
    with refused(bl.DataError, "field 2", "0", "field 0", "8"):
        bl.TensorDataset(numpy.zeros(8), numpy.zeros(8), numpy.zeros(0))


def test_no_fields_and_mixed_fields():
    with refused(bl.DataError, "no", "fields"):
        bl.TensorDataset()
    with refused(bl.ArgumentError, "mixed"):
        bl.TensorDataset(numpy.zeros(3), y=numpy.zeros(3))


@pytest.mark.parametrize(
    "field",
    [None, "abc", b"abc", 5, 2.5, {1: 2}, {1, 2, 3}, object, iter([1])],
    ids=lambda field: type(field).__name__,
)
def test_what_is_no_array(field):
    with refused(bl.DataError, "field labels", type(field).__name__, "array"):
        bl.TensorDataset(rows=numpy.zeros(3), labels=field)


@pytest.mark.parametrize("scalar", [numpy.array(3.0), torch.tensor(3.0), numpy.zeros((5, 2))[1, 1:2].reshape(())])
def test_scalars(scalar):
    with refused(bl.DataError, "field 1", "scalar", "dimension"):
        bl.TensorDataset(numpy.zeros(3), scalar)


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (numpy.array([None, 1]), "object"),
        (numpy.array([[1], [1, 2]], dtype=object), "object"),
        (numpy.zeros(3, [("a", "f4"), ("b", "i4")]), "('a', '<f4')"),
        (numpy.zeros(3, "M8[s]"), "datetime64[s]"),
        (numpy.zeros(3, "m8[s]"), "timedelta64[s]"),
        (numpy.zeros(3, "V8"), "|V8"),
        (numpy.zeros(3, ">f4"), "'>'"),
        (numpy.zeros(3, ">i8"), "'>'"),
        (numpy.zeros(3, numpy.longdouble), "float128"),
        (numpy.zeros(3, numpy.clongdouble), "complex256"),
        (numpy.zeros(3, ml_dtypes.int4), "int4"),
        (numpy.zeros(3, ml_dtypes.float8_e8m0fnu), "float8_e8m0fnu"),
        *[
            (torch.zeros(4, 2, dtype=torch.uint8).view(getattr(torch, name)), told)
            for name, told in (
                ("float8_e8m0fnu", {"element type", "dlpack"}),
                ("float4_e2m1fn_x2", "element type"),
                ("bits8", "bits8"),
            )
            if hasattr(torch, name)  # the oldest that is promised has not all
        ],
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_element_types_that_no_batch_can_have(array, name):
    with refused(bl.DTypeError, "field rows", name):
        bl.TensorDataset(rows=array)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_half_complex_numbers():
    with refused(bl.DTypeError, "field rows", "32 bits", "complex64"):
        bl.TensorDataset(rows=torch.zeros(3, dtype=torch.complex32))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_layouts_that_are_not_dense():
    dense = torch.eye(4)
    for sparse in (dense.to_sparse(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)), dense.to_mkldnn()):
        with refused(bl.DataError, "field 0", str(sparse.layout), "to_dense"):
            bl.TensorDataset(sparse)
    ragged = [torch.zeros(2), torch.zeros(3)]
    for layout in (torch.strided, torch.jagged):
        with refused(bl.Error, "field 0"):
            bl.TensorDataset(torch.nested.nested_tensor(ragged, layout=layout))
    with refused(bl.DataError, "field 0", "masked"):
        bl.TensorDataset(numpy.ma.array([1, 2], mask=[True, False]))


class OnAnAccelerator:
    def __dlpack__(self, **request):
        raise AssertionError("asked for memory that it cannot read")

    def __dlpack_device__(self):
        return 2, 3


def test_devices_that_are_not_the_processor():
    with refused(bl.DeviceError, "field x", "2", "3", "CPU"):
        bl.TensorDataset(x=OnAnAccelerator())
    for device in ("cuda", "cuda:0", "mps", "gpu", torch.device("cuda", 1), 0, 3.5):
        with refused(bl.DeviceError, "device", repr(device), "torch"):
            bl.DataLoader(dataset(), device=device)


def test_a_producer_whose_capsule_is_none():
    class Broken(OnAnAccelerator):
        def __dlpack__(self, **request):
            return 5

        def __dlpack_device__(self):
            return 1, 0

    with refused(bl.Error, "field 0"):
        bl.TensorDataset(Broken())


# Sizes


def test_an_empty_dataset_is_a_dataset_but_cannot_be_loaded():
    empty = bl.TensorDataset(numpy.zeros((0, 3)), torch.zeros(0))
    assert len(empty) == 0
    with refused(bl.DataError, "no samples"):
        bl.DataLoader(empty, 4)
    with refused(bl.DataError, "no samples"):
        bl.Plan(0, 4)
    with pytest.raises(bl.RangeError):
        empty[0]


def test_more_samples_than_can_be_ordered():
    with refused(bl.DataError, str(2**62 + 1), str(2**62)):
        bl.Plan(2**62 + 1, 4)
    with refused(bl.ArgumentError, str(2**64)):
        bl.Plan(2**64, 4)


@pytest.mark.parametrize("samples", [2**60, 2**61, 2**62, 2**62 + 1, 2**63 - 1])
def test_about_as_many_samples_as_there_can_be(samples):
    X = numpy.broadcast_to(numpy.zeros(1, numpy.uint8), (samples,))
    try:
        loader = bl.DataLoader(bl.TensorDataset(X), 4)
    except bl.DataError:
        assert samples > 2**60
    else:
        assert samples <= 2**62
        assert len(loader) == samples // 4
        assert next(iter(loader))[0].tolist() == [0] * 4


HUGE = {
    "a batch of a plan": "bl.Plan(2**45, 2**45)[0]",
    "a batch larger than numbers": "bl.Plan(2**62, 2**62)[0]",
    "a step of a plan": "bl.Plan(2**45, 2**45).step(0)",
    "a batch of a loader": "next(iter(bl.DataLoader(bl.TensorDataset(values), 2**50)))",
    "a shuffled batch of a loader": "next(iter(bl.DataLoader(bl.TensorDataset(values), 2**50, shuffle=True)))",
    "a row": "next(iter(bl.DataLoader(bl.TensorDataset(values[None]), 1)))",
    "rows that add up": "bl.DataLoader(bl.TensorDataset(numpy.broadcast_to(values[0], (2**30, 2**30))), 2**30)",
}


@pytest.mark.parametrize("case", HUGE)
def test_more_than_memory_is_an_error_and_no_abort(script, case):
    script(
        f"""
        import numpy
        import batchloom as bl

        values = numpy.broadcast_to(numpy.zeros(1, numpy.uint8), (2**50,))
        try:
            batch = {HUGE[case]}
        except (bl.Error, MemoryError) as error:
            print(error)
        """
    )
