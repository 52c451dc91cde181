"""Files of arrays: an epoch over files is the epoch over the arrays, and several files are one."""

import os
import pickle

import batchloom as bl
import ml_dtypes
import numpy
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import ROWS, arrays, assert_same_runs, cuts, in_parts
from oracles.runs import few
from oracles.selections import assert_same, torch_seen
from refusals import refused

COLUMNS = arrays()
WRITERS = {
    "npz": lambda path, columns: numpy.savez(path, **columns),
    "compressed": lambda path, columns: numpy.savez_compressed(path, **columns),
    "safetensors": lambda path, columns: safetensors.numpy.save_file(
        {name: numpy.ascontiguousarray(array) for name, array in columns.items()}, path
    ),
}
SUFFIXES = {"npz": ".npz", "compressed": ".npz", "safetensors": ".safetensors"}
rules = st.sampled_from(
    [
        {"batch_size": 5},
        {"batch_size": 8, "drop_last": True},
        {"batching": bl.Listed([[3, 1], [2], [30, 31, 32]])},
        {"batch_size": 4, "uneven": "mask"},
    ]
)
orders = st.sampled_from([True, False, "runs"])


def write(folder, how, places):
    for number, columns in enumerate(in_parts(COLUMNS, places)):
        WRITERS[how](folder / f"part-{number}{SUFFIXES[how]}", columns)
    return str(folder)


@pytest.mark.law("L1", "L2", "L4", "L9")
@pytest.mark.parametrize("how", WRITERS)
@few
@given(places=cuts, rule=rules, order=orders, seed=st.integers(0, 99))
def test_an_epoch_over_files_is_the_epoch_over_arrays(how, tmp_path_factory, places, rule, order, seed):
    found = bl.open(write(tmp_path_factory.mktemp("files"), how, places))
    shuffle = {} if "batching" in rule else {"shuffle": order, "seed": seed}
    # safetensors orders tensors by their types.
    expected = bl.TensorDataset(**{name: COLUMNS[name] for name in found.names})
    assert_same_runs(found, expected, **rule, **shuffle)


@pytest.mark.law("L1", "L2", "L4")
@pytest.mark.parametrize("name", COLUMNS)
@few
@given(places=cuts, order=orders, seed=st.integers(0, 99))
def test_several_files_of_numpy_are_one_array(name, tmp_path_factory, places, order, seed):
    folder = tmp_path_factory.mktemp("files")
    for number, columns in enumerate(in_parts(COLUMNS, places)):
        numpy.save(folder / f"part-{number}.npy", columns[name])
    found = bl.open(folder / "part-*.npy")
    assert_same_runs(found, bl.TensorDataset(COLUMNS[name]), batch_size=5, shuffle=order, seed=seed)


def test_columns_are_chosen_named_and_joined(tmp_path):
    numpy.savez(tmp_path / "a.npz", f0=COLUMNS["label"], f1=COLUMNS["label"] * 2, y=COLUMNS["flag"], unused=[1])
    found = bl.open(tmp_path / "a.npz", columns={"x": "f*", "target": "y"})
    matrix = numpy.stack([COLUMNS["label"], COLUMNS["label"] * 2], 1)
    assert_same(found, bl.TensorDataset(x=matrix, target=COLUMNS["flag"]), {"batch_size": 5})
    listed = bl.open(tmp_path / "a.npz", columns=["y", "f1"])
    assert listed.names == ("y", "f1")
    with refused(bl.DataError, "unused", "1 row", "37"):
        bl.open(tmp_path / "a.npz")


def test_a_matrix_has_columns_of_one_type_and_shape(tmp_path):
    numpy.savez(tmp_path / "a.npz", **COLUMNS, text=numpy.array(["a"] * ROWS))
    with refused(bl.DTypeError, "'x'", "'label'", "int64", "'flag'", "bool"):
        bl.open(tmp_path / "a.npz", columns={"x": ["label", "flag"]})
    with refused(bl.DataError, "'all'", "'x'", "[37, 3]"):
        bl.open(tmp_path / "a.npz", columns={"all": ["x"]})
    texts = bl.open(tmp_path / "a.npz", columns=["label", "text"])
    assert texts[3]["text"] == "a"


def test_arrays_are_mapped_and_not_read(tmp_path):
    """Stored arrays lie in their files: a dataset pickles as paths, and writes to a file are seen."""
    numpy.save(tmp_path / "x.npy", COLUMNS["x"])
    numpy.savez(tmp_path / "x.npz", x=COLUMNS["x"], y=COLUMNS["label"])
    safetensors.numpy.save_file({"x": COLUMNS["x"]}, tmp_path / "x.safetensors")
    for name in ("x.npy", "x.npz", "x.safetensors"):
        dataset = bl.open(tmp_path / name)
        assert len(pickle.dumps(dataset)) < 2000
        again = pickle.loads(pickle.dumps(dataset))
        assert torch_seen(bl.DataLoader(again, 4)) == torch_seen(bl.DataLoader(dataset, 4))
        array = dataset.fields[0]
        assert isinstance(array, numpy.memmap)
        assert not array.flags.writeable
        if name == "x.npz":
            continue  # whose elements do not lie at multiples of their size, and are copied
        with open(tmp_path / name, "r+b") as file:
            file.seek(array.offset)
            file.write(numpy.float32(99).tobytes())
        (batch,) = bl.DataLoader(dataset.select([0]), 1)
        assert (batch[0] if name == "x.npy" else batch["x"])[0, 0] == 99


def test_only_what_is_chosen_is_opened(tmp_path):
    safetensors.torch.save_file(
        {"x": torch.zeros(3, 2), "scale": torch.zeros(()), "other": torch.zeros(3)}, tmp_path / "a.safetensors"
    )
    assert len(bl.open(tmp_path / "a.safetensors", columns=["x"])) == 3
    with refused(bl.DataError, "'scale'", "a.safetensors", "scalar"):
        bl.open(tmp_path / "a.safetensors")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "bool", "uint16", "int8"])
def test_types_of_safetensors(dtype, tmp_path):
    values = torch.arange(8).reshape(4, 2).to(getattr(torch, dtype))
    safetensors.torch.save_file({"x": values}, tmp_path / "a.safetensors")
    (batch,) = bl.DataLoader(bl.open(tmp_path / "a.safetensors"), 4, output="torch")
    assert batch["x"].dtype == values.dtype
    assert torch.equal(batch["x"].float(), values.float())


def test_a_type_that_needs_a_package_names_it(tmp_path, monkeypatch):
    safetensors.torch.save_file({"x": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with refused(bl.DTypeError, "'x'", "a.safetensors", "bfloat16", "ml_dtypes"):
        bl.open(tmp_path / "a.safetensors")
    assert ml_dtypes.bfloat16


def test_records_have_a_column_for_each_field(tmp_path):
    records = numpy.zeros(6, [("id", "i8"), ("x", "f4", 3)])
    records["id"], records["x"] = numpy.arange(6), numpy.arange(18).reshape(6, 3)
    numpy.save(tmp_path / "a.npy", records[:2])
    numpy.save(tmp_path / "b.npy", records[2:])
    found = bl.open(tmp_path)
    assert_same(found, bl.TensorDataset(id=records["id"].copy(), x=records["x"].copy()), {"batch_size": 4})


def test_times_count_nanoseconds_and_texts_are_objects(tmp_path):
    times = numpy.array(["2026-01-01", "2026-01-02"], "datetime64[D]")
    numpy.savez(tmp_path / "a.npz", time=times, took=times - times[0], name=["one", "two"])
    numpy.savez(tmp_path / "b.npz", time=times, took=times - times[0], name=["three", "four"])
    found = bl.open(tmp_path)
    day = 86400 * 10**9
    assert [found[k]["took"] for k in range(4)] == [0, day, 0, day]
    assert found[1]["time"] == times[1].astype("datetime64[ns]").astype(numpy.int64)
    assert [found[k]["name"] for k in range(4)] == ["one", "two", "three", "four"]


def test_orders_of_fortran_and_empty_files(tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.asfortranarray(COLUMNS["x"]))
    numpy.savez(tmp_path / "a.npz", x=numpy.asfortranarray(COLUMNS["x"]))
    numpy.save(tmp_path / "b.npy", COLUMNS["x"][:0])
    expected = bl.TensorDataset(COLUMNS["x"])
    assert_same(bl.open(tmp_path / "*.npy"), expected, {"batch_size": 4})
    assert_same(bl.open(tmp_path / "*.npz"), bl.TensorDataset(x=COLUMNS["x"]), {"batch_size": 4})


def test_files_that_differ_are_named(tmp_path):
    numpy.save(tmp_path / "a.npy", COLUMNS["x"])
    numpy.save(tmp_path / "b.npy", COLUMNS["x"].astype(numpy.float64))
    numpy.save(tmp_path / "c.npy", COLUMNS["x"][:, :2])
    with refused(bl.DTypeError, "a.npy", "b.npy", "float32", "float64"):
        bl.open([tmp_path / "a.npy", tmp_path / "b.npy"])
    with refused(bl.DataError, "a.npy", "c.npy", "[3]", "[2]"):
        bl.open([tmp_path / "a.npy", tmp_path / "c.npy"])
    numpy.savez(tmp_path / "a.npz", x=COLUMNS["x"], y=COLUMNS["label"])
    numpy.savez(tmp_path / "b.npz", x=COLUMNS["x"])
    for files in (["a.npz", "b.npz"], ["b.npz", "a.npz"]):
        with refused(bl.DataError, "a.npz", "b.npz", "'y'"):
            bl.open([tmp_path / name for name in files])
    assert len(bl.open([tmp_path / "a.npz", tmp_path / "b.npz"], columns=["x"])) == 2 * ROWS


def test_objects_are_refused_by_name(tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.array([{}, 1], object))
    numpy.savez(tmp_path / "a.npz", x=numpy.array([{}, 1], object))
    numpy.savez_compressed(tmp_path / "b.npz", x=numpy.array([{}, 1], object))
    for name in ("a.npy", "a.npz", "b.npz"):
        with refused(bl.DTypeError, name, "objects"):
            bl.open(tmp_path / name)
    import scipy.sparse

    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.eye(3, format="csr"))
    with refused(bl.DataError, "s.npz", "scipy.sparse.load_npz"):
        bl.open(tmp_path / "s.npz")


@pytest.mark.parametrize("how", ["npy", *WRITERS])
def test_a_file_that_shrinks_ends_the_epoch(how, tmp_path):
    columns = {"x": numpy.zeros((4_000, 500), numpy.float32)}
    path = tmp_path / f"a{SUFFIXES.get(how, '.npy')}"
    if how == "compressed":
        return  # in memory
    numpy.save(path, columns["x"]) if how == "npy" else WRITERS[how](path, columns)
    # Nothing is read ahead, as a read past the end of a file would end the process.
    loader = bl.DataLoader(bl.open(path), 16, num_threads=1, prefetch=0)
    batches = iter(loader)
    next(batches)
    os.truncate(path, 1 << 20)
    with refused(bl.DataError, path.name, "truncated"):
        for _ in batches:
            pass
    state = loader.state_dict()
    assert state["epoch"] == 0


@few
@given(places=cuts, others=cuts)
def test_fields_lie_in_files_apart(tmp_path_factory, places, others):
    folder = tmp_path_factory.mktemp("files")
    for name, ends in (("x", places), ("label", others)):
        for number, columns in enumerate(in_parts(COLUMNS, ends)):
            numpy.save(folder / f"{name}-{number}.npy", columns[name])
    found = bl.open({"x": folder / "x-*.npy", "y": folder / "label-*.npy"})
    assert_same_runs(found, bl.TensorDataset(x=COLUMNS["x"], y=COLUMNS["label"]), batch_size=5, shuffle=True)


def test_fields_in_files_that_do_not_fit(tmp_path):
    numpy.save(tmp_path / "x.npy", COLUMNS["x"])
    numpy.save(tmp_path / "y.npy", COLUMNS["label"][:9])
    numpy.save(tmp_path / "r.npy", numpy.zeros(3, [("a", "i8")]))
    numpy.savez(tmp_path / "z.npz", y=COLUMNS["label"])
    with refused(bl.DataError, "'y'", "9 rows", "y.npy", "37", "x.npy"):
        bl.open({"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"})
    for name in ("z.npz", "r.npy"):
        with refused(bl.ArgumentError, "'y'", name):
            bl.open({"y": tmp_path / name})
    with refused(bl.ArgumentError, "empty"):
        bl.open({})
    with refused(bl.ArgumentError, "columns"):
        bl.open({"x": tmp_path / "x.npy"}, columns=["x"])
    with refused(bl.ArgumentError, "7"):
        bl.open({7: tmp_path / "x.npy"})
    numpy.save(tmp_path / "t.npy", numpy.arange("2026-01-01", "2026-01-10", dtype="datetime64[D]"))
    windows = bl.open(
        {"v": tmp_path / "y.npy", "t": tmp_path / "t.npy"}, kind="windows", input_len=2, time="t", freq="D"
    )
    assert (len(windows), str(windows.times[0])[:10]) == (8, "2026-01-01")


def test_kinds_of_arrays(tmp_path):
    numpy.savez(tmp_path / "a.npz", x=COLUMNS["x"], query=COLUMNS["label"], time=numpy.arange(ROWS))
    groups = bl.open(tmp_path / "a.npz", kind="groups", id="query", columns=["x"])
    assert_same(groups, bl.GroupDataset(COLUMNS["label"], x=COLUMNS["x"]), {"batch_size": 3})
    numpy.savez(
        tmp_path / "w.npz", a=COLUMNS["label"], b=COLUMNS["flag"] * 2.0, time=numpy.arange(ROWS), c=COLUMNS["flag"]
    )
    windows = bl.open(tmp_path / "w.npz", kind="windows", input_len=4, horizon=2, time="time", columns=["a", "b"])
    frame = {"a": COLUMNS["label"], "b": COLUMNS["flag"] * 2.0}
    assert_same(windows, bl.WindowDataset(frame, 4, 2), {"batch_size": 3})
    numpy.save(tmp_path / "t.npy", COLUMNS["label"])
    pieces = bl.open(tmp_path / "t.npy", kind="tokens", seq_len=5)
    assert_same(pieces, bl.TokenDataset(COLUMNS["label"], 5), {"batch_size": 2})
    with refused(bl.ArgumentError, "'tokens'", "3 columns", "'query'"):
        bl.open(tmp_path / "a.npz", kind="tokens", seq_len=5)
    with refused(bl.ArgumentError, "'sequences'", "t.npy"):
        bl.open(tmp_path / "t.npy", kind="sequences")
    with refused(bl.ArgumentError, "'groups'", "t.npy", "'query'"):
        bl.open(tmp_path / "t.npy", kind="groups", id="query")
    with refused(bl.ArgumentError, "dict", "windows"):
        bl.open(tmp_path / "w.npz", kind="windows", input_len=4, columns={"x": "a"})


@pytest.mark.parametrize("kind", ["M8[s]", "m8[h]"])
def test_times_that_are_absent_are_refused(kind, tmp_path):
    """A time that is converted is read, and so NaT is found; nanoseconds are mapped, and not looked at."""
    values = numpy.array([3, 4, "NaT", 5], kind)
    numpy.save(tmp_path / "a.npy", values)
    numpy.savez(tmp_path / "a.npz", times=values, x=numpy.arange(4))
    for source, label in (
        (tmp_path / "a.npy", "array"),
        (tmp_path / "a.npz", "'times'"),
        ({"t": tmp_path / "a.npy"}, "'t'"),
    ):
        with refused(bl.DataError, label, {"a.npy", "a.npz"}, "NaT", "row 2"):
            bl.open(source)
    numpy.save(tmp_path / "b.npy", values.astype(f"{kind[0]}8[ns]"))
    assert bl.open(tmp_path / "b.npy")[2] == (numpy.iinfo(numpy.int64).min,)


def test_files_of_torch_are_named(tmp_path):
    torch.save({"x": torch.arange(3)}, tmp_path / "x.pt")
    with refused(bl.DataError, "x.pt", "torch.save", "torch.load(path, mmap=True)", "bl.TensorDataset"):
        bl.open(tmp_path / "x.pt")
    numpy.save(tmp_path / "y.npy", numpy.arange(3))
    assert len(bl.open(tmp_path)) == 3
