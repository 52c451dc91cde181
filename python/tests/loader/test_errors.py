"""Bad input: a clear error of the right class, before any batch where it can be known, with the numbers in question."""

import contextlib
import os

import batchloom as bl
import ml_dtypes
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import Run, listed
from refusals import refused

BUILT_IN = {
    bl.ArgumentError: ValueError,
    bl.DataError: ValueError,
    bl.DTypeError: TypeError,
    bl.DeviceError: ValueError,
    bl.RangeError: IndexError,
    bl.StateError: ValueError,
    bl.LoaderError: RuntimeError,
}


def dataset(samples=100):
    return bl.TensorDataset(numpy.arange(samples))


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_class_is_also_the_built_in_one(kind):
    assert issubclass(kind, bl.Error)
    assert issubclass(kind, BUILT_IN[kind])
    assert issubclass(bl.Error, Exception)
    assert kind.__name__ in bl.__all__


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
    [None, [1, 2, 3], (1, 2), "abc", b"abc", 5, 2.5, {1: 2}, range(3), object(), memoryview(b"abc"), iter([1])],
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
        (numpy.array(["a", "bc"]), "<U2"),
        (numpy.array([b"a", b"bc"]), "|S2"),
        (numpy.zeros(3, [("a", "f4"), ("b", "i4")]), "('a', '<f4')"),
        (numpy.zeros(3, "M8[s]"), "datetime64[s]"),
        (numpy.zeros(3, "m8[s]"), "timedelta64[s]"),
        (numpy.zeros(3, "V8"), "|V8"),
        (numpy.zeros(3, ">f4"), "'>'"),
        (numpy.zeros(3, ">i8"), "'>'"),
        (numpy.zeros(3, numpy.longdouble), "float128"),
        (numpy.zeros(3, numpy.clongdouble), "complex256"),
        (numpy.array(["a", "bc"], dtype=numpy.dtypes.StringDType()), "StringDType"),
        (numpy.zeros(3, ml_dtypes.int4), "int4"),
        (numpy.zeros(3, ml_dtypes.float8_e8m0fnu), "float8_e8m0fnu"),
        (torch.zeros(4, 2, dtype=torch.uint8).view(torch.float8_e8m0fnu), "element type"),
        (torch.zeros(4, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "element type"),
        (torch.zeros(4, 2, dtype=torch.uint8).view(torch.bits8), "bits8"),
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
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_bsr((2, 2)), dense.to_mkldnn()):
        with refused(bl.DataError, "field 0", str(sparse.layout), "to_dense"):
            bl.TensorDataset(sparse)
    ragged = [torch.zeros(2), torch.zeros(3)]
    for layout in (torch.strided, torch.jagged):
        with refused(bl.Error, "field 0"):
            bl.TensorDataset(torch.nested.nested_tensor(ragged, layout=layout))
    with refused(bl.DataError, "field 0", "masked"):
        bl.TensorDataset(numpy.ma.array([1, 2], mask=[True, False]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_messages_are_for_people():
    """No page of C++ frames in them."""
    for X in (
        torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
        torch.quantize_per_tensor(torch.zeros(3), 1, 0, torch.qint8),
    ):
        with pytest.raises(bl.DTypeError) as caught:
            bl.TensorDataset(X)
        assert "frame #" not in str(caught.value)


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


# Arguments

NOT_INTEGERS = [2.5, 2.0, float("nan"), float("inf"), True, False, "3", None, [3], 3j, numpy.float32(3), numpy.True_]


def without(*left_out):
    return [value for value in NOT_INTEGERS if not any(value is other for other in left_out)]


def spelled(value):
    return repr(value)


@pytest.mark.parametrize("found", [0, -1, -(2**63), -(2**70)])
def test_batch_sizes_below_one(found):
    for make in (
        lambda: bl.DataLoader(dataset(), found),
        lambda: bl.DataLoader(dataset(), batch_size=found),
        lambda: bl.FixedSize(found),
        lambda: bl.Plan(10, found),
    ):
        with refused(bl.ArgumentError, "batch_size", str(found), "1"):
            make()


@pytest.mark.parametrize("found", without(None), ids=spelled)
def test_batch_sizes_that_are_no_integers(found):
    for make in (lambda: bl.DataLoader(dataset(), found), lambda: bl.FixedSize(found), lambda: bl.Plan(10, found)):
        with refused(bl.ArgumentError, "batch_size", {str(found), repr(found)}):
            make()


def test_batch_sizes_too_large():
    with refused(bl.ArgumentError, str(2**64)):
        bl.DataLoader(dataset(), 2**64)


@pytest.mark.parametrize("name", ["seed", "rank", "world_size", "num_threads", "prefetch"])
@pytest.mark.parametrize("found", without(None), ids=spelled)
def test_options_that_are_no_integers(name, found):
    options = {"rank": 0, "world_size": 1} | {name: found} if name in ("rank", "world_size") else {name: found}
    with refused(bl.ArgumentError, name, {str(found), repr(found)}):
        bl.DataLoader(dataset(), **options)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"seed": -1}, ("seed", "-1")),
        ({"seed": 2**64}, ("seed", str(2**64))),
        ({"num_threads": 0}, ("num_threads", "0", "1")),
        ({"num_threads": -3}, ("num_threads", "-3")),
        ({"prefetch": 0}, ("prefetch", "0", "1")),
        ({"prefetch": -2}, ("prefetch", "-2")),
        ({"rank": 0, "world_size": 0}, ("world_size", "0", "1")),
        ({"rank": 0, "world_size": -1}, ("world_size", "-1")),
        ({"rank": 4, "world_size": 4}, ("rank", "4", "world")),
        ({"rank": 7, "world_size": 4}, ("rank", "7", "world", "4")),
        ({"rank": -1, "world_size": 4}, ("rank", "-1")),
        ({"rank": 0, "world_size": 2**32}, ("world_size", str(2**32))),
        ({"rank": 1}, ("rank", "1", "both", "neither")),
        ({"world_size": 2}, ("world_size", "2", "both", "neither")),
        ({"uneven": "repeat"}, ("uneven", "repeat", "pad", "short")),
        ({"uneven": ""}, ("uneven", "pad", "short")),
        ({"uneven": None}, ("uneven", "None", "pad", "short")),
        ({"uneven": 3}, ("uneven", "3", "pad", "short")),
        ({"output": "tensorflow"}, ("output", "tensorflow", "torch", "numpy", "jax")),
        ({"output": torch}, ("output", "torch", "numpy", "jax")),
        ({"batch_size": 3, "batching": bl.FixedSize(4)}, ("batch_size", "3", "4")),
        ({"batching": 64}, ("batching", "64", "FixedSize")),
        ({"batching": "fixed"}, ("batching", "fixed")),
        (
            {"batch_size": 60, "drop_last": True, "rank": 0, "world_size": 2},
            ("drop_last", "100 samples", "60", "2 ranks"),
        ),
        ({"batch_size": 101, "drop_last": True}, ("drop_last", "100 samples", "101")),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options, parts):
    with refused(bl.ArgumentError, *parts):
        bl.DataLoader(dataset(), **options)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"samples": -1}, ("samples", "-1")),
        ({"samples": 10.0}, ("samples", "10.0")),
        ({"world_size": 0}, ("world_size", "0")),
        ({"rank": 2, "world_size": 2}, ("rank", "2", "world")),
        ({"rank": 1}, ("rank", "1", "world")),
        ({"epoch": -1}, ("epoch", "-1")),
        ({"epoch": 1.5}, ("epoch", "1.5")),
        ({"seed": 0.5}, ("seed", "0.5")),
        ({"uneven": "no"}, ("uneven", "no")),
        ({"uneven": None}, ("uneven", "None")),
        ({"batch_size": 11, "drop_last": True}, ("drop_last", "10 samples", "11")),
    ],
    ids=str,
)
def test_plans_that_make_no_sense(options, parts):
    with refused(bl.ArgumentError, *parts):
        bl.Plan(**{"samples": 10, "batch_size": 2} | options)


@pytest.mark.parametrize("epoch", [-1, 2**64, 1.5, "3", True])
def test_epochs_that_make_no_sense(epoch):
    loader = Run(10, 3).loader()
    before = loader.state_dict()
    for ask in (loader.set_epoch, loader.plan, loader.plan().at_epoch):
        with refused(bl.ArgumentError, "epoch", str(epoch)):
            ask(epoch)
    with pytest.raises(bl.ArgumentError):
        loader.set_epoch(None)
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    "found", [None, numpy.zeros(3), [1], torch.utils.data.TensorDataset(torch.zeros(3)), bl.Plan(3)]
)
def test_datasets_that_are_none(found):
    with refused(bl.ArgumentError, "dataset", type(found).__name__, "TensorDataset"):
        bl.DataLoader(found, 2)


def test_misspelled_options_are_type_errors_as_everywhere():
    with pytest.raises(TypeError, match="bach_size"):
        bl.DataLoader(dataset(), bach_size=3)


# Types and frameworks that are not there


def test_a_framework_that_is_not_installed(script):
    script(
        """
        import sys
        sys.modules["torch"] = sys.modules["jax"] = None
        import numpy
        import batchloom as bl

        dataset = bl.TensorDataset(numpy.arange(3))
        for output in ("torch", "jax"):
            try:
                bl.DataLoader(dataset, output=output)
            except bl.ArgumentError as error:
                assert output in str(error) and "installed" in str(error), error
            else:
                raise AssertionError(output)
        assert len(list(bl.DataLoader(dataset, 2))) == 2
        """
    )


def test_types_that_numpy_has_only_with_a_package(script):
    script(
        """
        import sys
        sys.modules["ml_dtypes"] = None
        import torch
        import batchloom as bl

        dataset = bl.TensorDataset(weights=torch.zeros(3, dtype=torch.bfloat16))
        assert len(list(bl.DataLoader(dataset, 2))) == 2
        try:
            bl.DataLoader(dataset, output="numpy")
        except bl.DTypeError as error:
            assert "weights" in str(error) and "bfloat16" in str(error) and "ml_dtypes" in str(error), error
        else:
            raise AssertionError
        """
    )


# States


def state(**changes):
    """A state in mid-epoch, changed."""
    loader = Run(100, 7, seed=5).loader(world_size=2)
    batches = iter(loader)
    next(batches), next(batches), next(batches)
    changed = loader.state_dict() | changes
    return {key: value for key, value in changed.items() if value is not None}


def test_the_state_that_the_others_are_made_of_loads():
    loader = Run(100, 7, seed=1).loader(world_size=2)
    loader.load_state_dict(state())
    assert listed(loader) == Run(100, 7, seed=5).seen(0, 2)[3:]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"version": 2}, ("version", "2", "1")),
        ({"version": 0}, ("version", "0", "1")),
        ({"version": "1"}, ("version", "'1'")),
        ({"version": -1}, ("version", "-1")),
        ({"version": 2**40}, ("version", str(2**40))),
        ({"fingerprint": "0" * 32}, ("fingerprint", "0" * 32)),
        ({"fingerprint": ""}, ("fingerprint",)),
        ({"fingerprint": 5}, ("fingerprint", "5")),
        ({"seed": 6}, ("fingerprint",)),
        ({"seed": -1}, ("seed", "-1")),
        ({"seed": 1.0}, ("seed", "1.0")),
        ({"seed": 2**64}, ("seed", str(2**64))),
        ({"epoch": -1}, ("epoch", "-1")),
        ({"epoch": "0"}, ("epoch", "'0'")),
        ({"batches": 7}, ("7", "6")),
        ({"batches": 0}, ("0", "6")),
        ({"batches": 2.5}, ("batches", "2.5")),
        ({"batches": "6"}, ("batches", "'6'")),
        ({"worlds": []}, ("6", "0")),
        ({"worlds": [[2, 4]]}, ("6", "8")),
        ({"worlds": [[0, 3]]}, ("world", "0")),
        ({"worlds": [[2, 9]]}, ("9", "8")),
        ({"worlds": [[2, 2**64 - 1]]}, (str(2**64 - 1),)),
        ({"worlds": [[2, 2**64]]}, ("worlds", str(2**64))),
        ({"worlds": [[2**32, 3]]}, (str(2**32),)),
        ({"worlds": [[2**64 - 1, 2**64 - 1]]}, (str(2**64 - 1),)),
        ({"worlds": [[-2, 3]]}, ("worlds", "-2")),
        ({"worlds": [[2, 3], [3]]}, ("worlds", "[3]")),
        ({"worlds": [[2, 3, 4]]}, ("worlds", "[2, 3, 4]")),
        ({"worlds": [2, 3]}, ("worlds", "[2, 3]")),
        ({"worlds": {"2": 3}}, ("worlds",)),
        ({"worlds": "none"}, ("worlds", "none")),
        ({"version": None}, ("version", "missing")),
        ({"fingerprint": None}, ("fingerprint", "missing")),
        ({"seed": None}, ("seed", "missing")),
        ({"epoch": None}, ("epoch", "missing")),
        ({"batches": None}, ("batches", "missing")),
        ({"worlds": None}, ("worlds", "missing")),
    ],
    ids=str,
)
def test_states_that_are_damaged(changes, parts):
    loader = Run(100, 7, seed=5).loader(world_size=2)
    loader.set_epoch(3)
    before = loader.state_dict(), loader.plan(), len(loader)
    with refused(bl.StateError, *parts):
        loader.load_state_dict(state(**changes))
    assert (loader.state_dict(), loader.plan(), len(loader)) == before


@pytest.mark.parametrize("found", [None, [], "state", 5, [("version", 1)], b"{}"])
def test_states_that_are_no_dicts(found):
    with refused(bl.StateError, type(found).__name__, "dict"):
        Run(100, 7).loader().load_state_dict(found)


def test_an_empty_state():
    with refused(bl.StateError, "missing"):
        Run(100, 7).loader().load_state_dict({})


@pytest.mark.parametrize(
    "other",
    [
        Run(101, 7, seed=5),
        Run(100, 8, seed=5),
        Run(100, 7, seed=5, shuffle=False),
        Run(100, 7, seed=5, drop_last=True),
        Run(100, 7, seed=5, uneven="short"),
    ],
    ids=str,
)
def test_states_of_another_plan(other):
    loader = other.loader(world_size=2)
    before = loader.state_dict()
    with refused(bl.StateError, "fingerprint", state()["fingerprint"]):
        loader.load_state_dict(state())
    assert loader.state_dict() == before


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=5)


@given(changes=st.dictionaries(st.sampled_from(sorted(state())), values, min_size=1))
def test_any_damage_is_a_state_error_or_a_state(changes):
    loader = Run(100, 7, seed=5).loader(world_size=2)
    before = loader.state_dict()
    try:
        loader.load_state_dict(state() | changes)
    except bl.StateError:
        assert loader.state_dict() == before
    else:
        expected = len(loader)
        assert len(list(loader)) == expected


# Data that changes under the loader


def test_a_tensor_that_grew():
    X = torch.zeros(100, 4)
    loader = bl.DataLoader(bl.TensorDataset(rows=X), 10)
    X.resize_(1_000_000, 4)
    with refused(bl.DataError, "field rows", "resized", "(100, 4)", "(1000000, 4)"):
        iter(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.resize_(10, 10),
        lambda X: X.t_(),
        lambda X: X.unsqueeze_(0),
        lambda X: X.set_(torch.zeros(20, 20)),
        lambda X: setattr(X, "data", torch.zeros(20, 20)),
        lambda X: X.untyped_storage().resize_(1 << 24),
    ],
    ids=["resize_", "t_", "unsqueeze_", "set_", "data", "storage"],
)
def test_a_tensor_that_is_no_longer_what_it_was(change):
    X = torch.arange(400.0).reshape(20, 20).clone()
    data = bl.TensorDataset(X)
    loader = bl.DataLoader(data, 10)
    change(X)
    with refused(bl.DataError, "field 0"):
        iter(loader)


def test_a_tensor_that_grows_in_mid_epoch():
    X = torch.zeros(20_000, 1000)
    batches = iter(bl.DataLoader(bl.TensorDataset(X), 100, prefetch=1, num_threads=1))
    next(batches)
    # The old memory stays: the dataset holds it.
    X.data = torch.zeros(5, 5)
    with refused(bl.DataError, "field 0", "(20000, 1000)", "(5, 5)"):
        list(batches)
    assert next(batches, "end") == "end"


def test_numpy_itself_refuses_to_resize_what_is_borrowed():
    X = numpy.zeros(100)
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    with pytest.raises(ValueError, match="cannot resize"):
        X.resize(1000)
    assert len(list(loader)) == 10


def test_an_array_that_is_resized_against_all_warnings():
    X = numpy.zeros(100)
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X.resize(1_000_000, refcheck=False)
    with refused(bl.DataError, "field 0", "(100,)", "(1000000,)"):
        iter(loader)


def test_an_array_that_is_reshaped_in_place():
    X = numpy.zeros((100, 4))
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X.resize(4, 100, refcheck=False)
    with refused(bl.DataError, "field 0", "(100, 4)", "(4, 100)"):
        iter(loader)


def mapped(tmp_path, samples=4_000_000):
    path = tmp_path / "rows.npy"
    numpy.save(path, numpy.arange(float(samples)).reshape(-1, 4))
    return path, numpy.load(path, mmap_mode="r")


def test_a_map_whose_file_was_cut_before_the_dataset(tmp_path):
    path, X = mapped(tmp_path)
    os.truncate(path, 4096)
    with refused(bl.DataError, "field rows", str(path), "4096", str(128 + 8 * 4_000_000)):
        bl.TensorDataset(rows=X)


def test_a_map_whose_file_was_cut_after_the_dataset(tmp_path):
    path, X = mapped(tmp_path)
    loader = bl.DataLoader(bl.TensorDataset(rows=X), 64, shuffle=True)
    os.truncate(path, 4096)
    with refused(bl.DataError, "field rows", str(path), "4096", str(128 + 8 * 4_000_000)):
        iter(loader)
    assert loader.state_dict()["epoch"] == 0


def test_a_slice_of_a_map_whose_file_was_cut(tmp_path):
    path, X = mapped(tmp_path)
    loader = bl.DataLoader(bl.TensorDataset(X[1000:, ::2]), 64)
    os.truncate(path, 4096)
    with refused(bl.DataError, "4096"):
        iter(loader)


VIEWS = {
    "asarray": "numpy.asarray(X)",
    "a view": "X.view(numpy.ndarray)",
    "a slice of an array": "numpy.asarray(X)[10:, ::2]",
    "another type": "X.view(numpy.int64)",
    "brain floats": "X.view(numpy.uint16).view(ml_dtypes.bfloat16)",
    "asarray of brain floats": "numpy.asarray(X.view(numpy.uint16)).view(ml_dtypes.bfloat16)",
}


@pytest.mark.parametrize("case", VIEWS)
def test_a_cut_file_behind_a_view_is_an_error_and_no_bus_error(script, tmp_path, case):
    path, _ = mapped(tmp_path)
    script(
        f"""
        import os
        import sys
        import ml_dtypes
        import numpy
        import batchloom as bl

        X = numpy.load(sys.argv[1], mmap_mode="r")
        loader = bl.DataLoader(bl.TensorDataset({VIEWS[case]}), 64)
        os.truncate(sys.argv[1], 4096)
        try:
            list(loader)
        except bl.DataError as error:
            assert "4096" in str(error), error
        else:
            raise AssertionError("read past the end of a file")
        """,
        path,
    )


def test_a_file_that_is_shorter_than_its_header_says(tmp_path):
    path, _ = mapped(tmp_path)
    os.truncate(path, 4096)
    # NumPy refuses; what is left to us is not to stand in the way.
    with pytest.raises(ValueError, match="mmap length is greater than file"):
        numpy.load(path, mmap_mode="r")


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
        (numpy.array([0, 2**64 - 1], numpy.uint64), ("sample 0",)),
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
        ([b"ab"], bl.DataError, ("sample 0", "bytes")),
        ([[1], {1: 2}], bl.DataError, ("sample 1", "dict")),
        ([[1], iter([1])], bl.DataError, ("sample 1", "list_iterator")),
        ([numpy.ones(2), numpy.float64(3)], bl.DataError, ("sample 1", "scalar", "dimension")),
        ([torch.ones(2), torch.tensor(3.0)], bl.DataError, ("sample 1", "scalar")),
        ([numpy.ones(2), numpy.ones(2, numpy.float32)], bl.DTypeError, ("sample 1", "float32", "sample 0", "float64")),
        ([numpy.ones(2), torch.ones(2)], bl.DTypeError, ("sample 1", "Tensor", "sample 0", "ndarray")),
        ([numpy.ones((2, 2)), numpy.ones((2, 2)), numpy.ones(2)], bl.DataError, ("sample 2", "1", "2", "dimension")),
        ([[1], [0.5]], bl.DTypeError, ("sample 1", "float64", "sample 0", "int64")),
        ([[1], [2, None]], bl.DTypeError, ("sample 1", "object")),
        ([["a"], ["b"]], bl.DTypeError, ("<U1",)),
        ([numpy.array([1, 2], "M8[s]")], bl.DTypeError, ("datetime64[s]",)),
        ([numpy.array([1, None])], bl.DTypeError, ("object",)),
        ([], bl.DataError, ("empty", "one sample")),
        ([torch.ones(2, device="meta"), torch.ones(3)], bl.DeviceError, ("sample 1", "cpu", "sample 0", "meta")),
        ([torch.ones(2), torch.ones(3, device="meta")], bl.DeviceError, ("sample 1", "meta", "sample 0", "cpu")),
        ([torch.ones(2).to_sparse(), torch.ones(3).to_sparse()], bl.DataError, ("torch.sparse_coo", "to_dense")),
        ([numpy.ma.array([1, 2], mask=[0, 1]), numpy.ma.array([1])], bl.DataError, ("masked", "filled")),
    ],
    ids=str,
)
def test_lists_that_are_no_sequences(samples, kind, parts):
    with refused(kind, "field tokens", *parts):
        sequences(tokens=samples)


@pytest.mark.parametrize("samples", [[[1], [[1], [2, 3]]], [[1], [[1, 2], [3]]], [[1], [2, [3]]]], ids=str)
def test_lists_of_ragged_lists(samples):
    with refused(bl.DataError, "field tokens", "sample 1"):
        sequences(tokens=samples)


@pytest.mark.parametrize("samples", [[[2, None]], [[2**70]], [["a"], ["b"]]], ids=str)
def test_lists_of_what_is_no_number_name_the_sample(samples):
    with refused(bl.Error, "field tokens", "sample 0"):
        sequences(tokens=samples)


@pytest.mark.parametrize("field", [None, 5, 2.5, "abc", b"abc", {1: 2}, range(3), object(), (), (1, 2, 3)], ids=str)
def test_what_is_no_sequence_field(field):
    with refused(bl.DataError, "field tokens", type(field).__name__, "array"):
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
    (chunked(["a"]), bl.DTypeError, ("Utf8", "lists", "numbers")),
    (chunked([{"a": 1}]), bl.DTypeError, ("Struct", "lists", "numbers")),
    (chunked([["a"]]), bl.DTypeError, ("lists", {"Utf8", "Utf8View"})),
    (chunked([[[1]], [[2, 3]]]), bl.DTypeError, ("lists", "List")),
    (chunked([[]], pyarrow.list_(pyarrow.date32())), bl.DTypeError, ("lists", "Date32")),
    (chunked([[]], pyarrow.list_(pyarrow.decimal128(5))), bl.DTypeError, ("lists", {"Decimal128", "Decimal128(5, 0)"})),
    (chunked([[None]], pyarrow.list_(pyarrow.null())), bl.DTypeError, ("lists", "Null")),
    (chunked([[1], [2]], pyarrow.list_view(pyarrow.int64())), bl.DTypeError, ("ListView",)),
    (pyarrow.table({"a": [[1]]}), bl.DTypeError, ("Struct",)),
    (polars.Series([[1], None]), bl.DataError, ("sample 1", "null")),
    (polars.Series([[1], [2, None]]), bl.DataError, ("sample 1", "null")),
    (polars.Series([["a"]]), bl.DTypeError, ("lists", {"Utf8", "Utf8View"})),
    (polars.Series([[[1]], [[2, 3]]]), bl.DTypeError, ("lists", {"List", "LargeList"})),
    (polars.DataFrame({"a": [[1]]}), bl.DTypeError, ("Struct",)),
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
    with pytest.raises(TypeError, match="positional"):
        bl.SequenceDataset([[1], [2]])
    for name in ("attention_mask", "lengths", "index", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids"):
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


LONG = {"x": [[1], [2] * 7, [3] * 9]}


@pytest.mark.parametrize(
    "rule",
    [
        bl.TokenBudget(6),
        bl.TokenBudget(6, count="real"),
        bl.CostOptimal(bl.CostModel(1), max_tokens=6),
        bl.Packing(6),
    ],
    ids=str,
)
def test_a_sample_longer_than_the_budget_is_named(rule):
    with refused(bl.DataError, "sample 1", "size 7", "max_tokens", "6", "oversize"):
        bl.DataLoader(sequences(**LONG), batching=rule)
    with refused(bl.DataError, "sample 0", "size 8", "max_tokens", "6"):
        bl.DataLoader(sequences(**LONG, sizes=[8, 1, 1]), batching=rule)


def test_a_sample_whose_padded_length_exceeds_the_budget_is_named():
    with refused(bl.DataError, "sample 2", "size 9", "8", "max_tokens", "12"):
        bl.DataLoader(sequences(**LONG), batching=bl.TokenBudget(12, multiple_of=8))
    boxes = [numpy.ones((2, 2)), numpy.ones((3, 3))]
    with refused(bl.DataError, "sample 1", "size 9", "2", "max_tokens", "12"):
        bl.DataLoader(sequences(x=boxes), batching=bl.TokenBudget(12, multiple_of=2))


@pytest.mark.parametrize(
    ("fields", "rule", "parts"),
    [
        ({"x": [[1] * 7]}, bl.TokenBudget(3, oversize="drop"), ("oversize", "1 sample", "max_tokens", "3")),
        (LONG | {"sizes": [1, 1, 1]}, bl.TokenBudget(3, oversize="truncate"), ("TokenBudget", "sizes")),
        (LONG | {"sizes": [1, 1, 1]}, bl.Packing(3, oversize="split"), ("Packing", "sizes")),
        (LONG | {"sizes": [1, 1, 1]}, bl.Packing(3, oversize="truncate"), ("Packing", "sizes")),
        ({"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]}, bl.Packing(30), ("Packing", "2")),
        (
            {"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]},
            bl.CostOptimal(bl.CostModel(1)),
            ("CostOptimal", "2"),
        ),
        (
            {"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]},
            bl.TokenBudget(3, oversize="truncate"),
            ("TokenBudget", "2", "truncation"),
        ),
        ({"x": [numpy.ones((2, 3)), numpy.ones((2, 4))]}, bl.Packing(30), ("Packing", "field x", "first")),
    ],
    ids=str,
)
def test_rules_that_do_not_go_with_the_data(fields, rule, parts):
    with refused(bl.ArgumentError, *parts):
        bl.DataLoader(sequences(**fields), batching=rule)


@pytest.mark.parametrize(
    "rule",
    [bl.LengthBuckets(2), bl.TokenBudget(9), bl.CostOptimal(bl.CostModel(1)), bl.Packing(9)],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_by_size_of_rows_of_one_shape(rule):
    with refused(bl.ArgumentError, type(rule).__name__, "size", "FixedSize"):
        bl.DataLoader(dataset(), batching=rule)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"labels": "z"}, ("labels", {"field z", "'z'"})),
        ({"labels": "f"}, ("field f", "float64", "integers")),
        ({"labels": "b"}, ("field b", "bool", "integers")),
        ({"labels": "w"}, ("field w", "number")),
        ({"labels": "y"}, ("labels", "field y")),
        ({"pad_side": "up"}, ("pad_side", "'up'", "right", "left")),
        ({"pad_side": None}, ("pad_side", "None")),
        ({"pad_side": True}, ("pad_side", "True")),
        ({"pad_side": ["right"]}, ("pad_side", "['right']")),
        ({"pad_value": {"z": 1}}, ("pad_value", "'z'", "'x', 'f', 'b', 'w'")),
        ({"pad_value": {"y": 1}}, ("pad_value", "'y'", "'x', 'f', 'b', 'w'")),
        ({"pad_value": {1: 1}}, ("pad_value", "1")),
        ({"pad_value": {"x": 0.5}}, ("pad_value", "0.5", "field x", "int64")),
        ({"pad_value": 0.5}, ("pad_value", "0.5", "field x", "int64")),
        ({"output": "tensorflow"}, ("output", "tensorflow")),
    ],
    ids=str,
)
def test_options_that_do_not_go_with_sequences(options, parts):
    data = sequences(
        x=[[1, 2], [3]],
        f=[[1.0, 2.0], [3.0]],
        b=[[True, False], [True]],
        w=[numpy.ones((2, 3), int), numpy.ones((1, 3), int)],
        y=numpy.ones(2, int),
    )
    for rule in (bl.FixedSize(2), bl.Packing(5)):
        with refused(bl.ArgumentError, *parts):
            bl.DataLoader(data, batching=rule, **options)


def test_labels_and_padding_of_rows_of_one_shape():
    with refused(bl.ArgumentError, "labels", "'x'", "sequences"):
        bl.DataLoader(dataset(), labels="x")
    for value in (1, -1, 0.5, float("nan"), None, "0", {"x": 1}, {}):
        with refused(bl.ArgumentError, "pad_value", repr(value), "padded"):
            bl.DataLoader(dataset(), pad_value=value)


@pytest.mark.parametrize("labels", [3, True, ["x"], b"x", 1.5])
def test_labels_that_are_no_names(labels):
    with refused(bl.ArgumentError, "labels", str(labels)):
        bl.DataLoader(sequences(x=[[1, 2], [3]]), labels=labels)


def test_padding_of_rows_by_an_array():
    with refused(bl.ArgumentError, "pad_value", "padded"):
        bl.DataLoader(dataset(), pad_value=numpy.zeros(2))


# Rules

WRONG = [*NOT_INTEGERS, 0, -1, -(2**63), -(2**70), 2**64, 2**70, object(), b"1", {}, numpy.array([1])]
MODEL = bl.CostModel(1, 1, 1)
ARGUMENTS = [
    (bl.LengthBuckets, {"batch_size": 4}, "pool", ()),
    (bl.LengthBuckets, {"batch_size": 4}, "batch_size", ()),
    (bl.LengthBuckets, {"batch_size": 4}, "multiple_of", (2**32,)),
    (bl.TokenBudget, {"max_tokens": 9}, "max_tokens", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "max_samples", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "pool", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "multiple_of", (2**32,)),
    (bl.TokenBudget, {"max_tokens": 9}, "max_length_spread", (2**32,)),
    (bl.CostOptimal, {"cost": MODEL}, "max_tokens", ()),
    (bl.CostOptimal, {"cost": MODEL}, "max_samples", ()),
    (bl.CostOptimal, {"cost": MODEL}, "pool", ()),
    (bl.CostOptimal, {"cost": MODEL}, "multiple_of", (2**32,)),
    (bl.Packing, {"max_tokens": 9}, "max_tokens", (2**28 + 1, 2**32, 2**63)),
    (bl.Packing, {"max_tokens": 9}, "max_samples", (2**32, 2**63)),
    (bl.Packing, {"max_tokens": 9}, "pool", ()),
]
OPTIONAL = ("max_samples", "max_length_spread")


@pytest.mark.parametrize(
    ("kind", "given", "name", "more"), ARGUMENTS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_numbers_of_rules_that_make_no_sense(kind, given, name, more):
    for found in [*WRONG, *more]:
        optional = name in OPTIONAL or (kind is bl.CostOptimal and name == "max_tokens")
        if (found is None and optional) or (name == "max_length_spread" and type(found) is int and found == 0):
            continue
        with refused(bl.ArgumentError, name, {str(found).strip("[]"), repr(found)}):
            kind(**given | {name: found})


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: bl.TokenBudget(9, count="paded"), ("count", "'paded'", "padded", "real")),
        (lambda: bl.TokenBudget(9, count=None), ("count", "None")),
        (lambda: bl.TokenBudget(9, count=True), ("count", "True")),
        (
            lambda: bl.TokenBudget(9, oversize="keep"),
            ("oversize", "'keep'", "'error'", "'alone'", "'drop'", "'truncate'"),
        ),
        (lambda: bl.TokenBudget(9, oversize=None), ("oversize", "None")),
        (lambda: bl.CostOptimal(MODEL, oversize="split"), ("oversize", "'split'")),
        (lambda: bl.Packing(9, oversize="drop"), ("oversize", "'drop'", "'error'", "'truncate'", "'split'")),
        (lambda: bl.Packing(9, oversize=None), ("oversize", "None")),
        (lambda: bl.TokenBudget(9, multiple_of=10), ("multiple_of", "10", "max_tokens", "9")),
        (lambda: bl.CostOptimal(MODEL, max_tokens=9, multiple_of=10), ("multiple_of", "10", "max_tokens", "9")),
        (lambda: bl.CostOptimal(None), ("cost", "None", "CostModel")),
        (lambda: bl.CostOptimal(5), ("cost", "5", "CostModel")),
        (lambda: bl.CostOptimal((1, 1, 1)), ("cost", "(1, 1, 1)", "CostModel")),
        (lambda: bl.CostOptimal(bl.CostModel), ("cost", "CostModel")),
        (lambda: bl.DataLoader(dataset(), batching=bl.TokenBudget), ("batching", "TokenBudget")),
        (lambda: bl.DataLoader(dataset(), batching=MODEL), ("batching", "CostModel")),
        (lambda: bl.DataLoader(dataset(), 3, batching=bl.TokenBudget(9)), ("batch_size", "3", "batching")),
        (lambda: bl.Plan(3, 3, batching=bl.Packing(9)), ("batch_size", "3", "batching")),
    ],
)
def test_rules_that_make_no_sense(make, parts):
    with refused(bl.ArgumentError, *parts):
        make()


def test_misspelled_parameters_are_type_errors_as_everywhere():
    for make in (
        lambda: bl.TokenBudget(9, max_token=3),
        lambda: bl.Packing(),
        lambda: bl.CostModel(1, 2, 3, None, 5),
        lambda: bl.LengthBuckets(4, size=3),
        lambda: bl.restore_order([1]),
        lambda: bl.calibrate(),
        lambda: bl.Plan(sizes=[1], rule=bl.Packing(3)),
    ):
        with pytest.raises(TypeError, match="argument"):
            make()


anything = values | st.sampled_from([0, 1, 2**32, 2**64, float("nan"), numpy.int8(3), numpy.float32(1), b"", ()])
KEYWORDS = {
    bl.LengthBuckets: ["batch_size", "pool", "multiple_of"],
    bl.TokenBudget: ["max_tokens", "count", "max_length_spread", "max_samples", "multiple_of", "oversize", "pool"],
    bl.CostModel: ["fixed", "per_token", "per_pair"],
    bl.CostOptimal: ["cost", "max_tokens", "max_samples", "multiple_of", "oversize", "pool"],
    bl.Packing: ["max_tokens", "max_samples", "oversize", "pool"],
}
SOUND = {"batch_size": 2, "max_tokens": 9, "fixed": 1, "cost": MODEL}


@given(data=st.data(), kind=st.sampled_from(sorted(KEYWORDS, key=str)))
def test_any_arguments_make_a_rule_or_an_argument_error(data, kind):
    names = KEYWORDS[kind]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), anything, max_size=2))
    arguments = {name: value for name, value in SOUND.items() if name in names} | chosen
    try:
        rule = kind(**arguments)
    except bl.ArgumentError:
        return
    rule = bl.CostOptimal(rule) if kind is bl.CostModel else rule
    for shuffle in (False, True):
        with contextlib.suppress(bl.DataError):
            plan = bl.Plan(sizes=[3, 0, 5, 1], batching=rule, shuffle=shuffle)
            assert sum(map(len, plan)) >= 1


fields = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=8,
)


def rectangular(data):
    """Whether NumPy reads it; what it cannot is another test."""
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
