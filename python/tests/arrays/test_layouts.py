"""Layouts: views, strides and memory maps go in as they are; batches are compact."""

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from oracles.rows import assert_gathers, batches_of, numpy_array
from refusals import refused


def layouts(X):
    """Views of ``X``, an array [8, 6, 4], by name."""
    frozen = X.copy()
    frozen.flags.writeable = False
    packed = numpy.zeros(8, [("first", "u1"), ("value", "f8", (3,))])
    packed["value"] = X[:, :3, 0]
    unaligned = numpy.frombuffer(b"." + X.tobytes(), X.dtype, offset=1).reshape(X.shape)
    return {
        "slice": X[2:7],
        "step": X[::3],
        "backwards": X[::-1],
        "all backwards": X[::-1, ::-1, ::-1],
        "inner step": X[:, ::2],
        "inner backwards": X[:, :, ::-1],
        "inner slice": X[:, 1:3, 1:3],
        "last column": X[:, :, -1],
        "column": X[:, 0, 0],
        "transposed": X.T,
        "swapped": X.transpose(1, 0, 2),
        "inner swapped": X.transpose(0, 2, 1),
        "Fortran": numpy.asfortranarray(X),
        "one row for all": numpy.broadcast_to(X[0], (9, 6, 4)),
        "one value for all": numpy.broadcast_to(X[0, 0, :1], (9, 5)),
        "repeated columns": numpy.broadcast_to(X[:, :, :1], (8, 6, 5)),
        "windows": numpy.lib.stride_tricks.sliding_window_view(X.reshape(-1), 7),
        "new axis": X[:, None, :, None],
        "read-only": frozen,
        "field of a packed record": packed["value"],
        "unaligned": unaligned,
        "imaginary part": (X * 1j).imag,
        "single": X[:1, ::-1],
        "none": X[:, :0],
        "many dimensions": X.reshape(2, 2, 2, 3, 2, 2, 2)[::-1, :, ::-1, ::2],
    }


NAMES = list(layouts(numpy.zeros((8, 6, 4))))


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name):
    X = layouts(numpy.random.default_rng(1).random((8, 6, 4)))[name]
    before = X.copy()
    assert_gathers(X)
    assert_gathers(X, output="torch", reference=torch.from_numpy(before))
    assert numpy.array_equal(X, before)
    assert all(batch.flags.c_contiguous and batch.flags.aligned for _, batch in batches_of(X))


@pytest.mark.parametrize("name", ["bool", "float16", "bfloat16", "float8_e5m2", "complex128"])
def test_layouts_of_other_sizes(name):
    X = numpy_array(name, (8, 6, 4))
    for view in (X[::-1], X[:, ::2], X.T, numpy.broadcast_to(X[0], (9, 6, 4)), numpy.asfortranarray(X)):
        assert_gathers(view)


@st.composite
def views(draw):
    """Any view that indexing and transposing make, of any element size and rank."""
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=5, min_side=1, max_side=6))
    dtype = numpy.dtype(draw(st.sampled_from(["u1", "u2", "u4", "u8", "c16"])))
    X = numpy.arange(numpy.prod(shape), dtype=numpy.int64).astype(dtype).reshape(shape)
    X = X.transpose(draw(st.permutations(range(X.ndim))))
    index = draw(arrays.basic_indices(X.shape, min_dims=1, allow_newaxis=True, allow_ellipsis=True))
    view = X[index]
    if draw(st.booleans()):
        view = numpy.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return view


@given(view=views(), batch_size=st.integers(1, 8), threads=st.integers(1, 3))
def test_any_view_is_gathered(view, batch_size, threads):
    if len(view) == 0:
        with refused(bl.DataError, "no samples"):
            batches_of(view)
    else:
        assert_gathers(view, batch_size=batch_size, num_threads=threads)


@given(
    width=st.integers(1, 300),
    samples=st.integers(1, 400),
    batch_size=st.integers(1, 150),
    dense=st.booleans(),
)
def test_rows_of_any_width(width, samples, batch_size, dense):
    X = (numpy.arange(samples * width * 2, dtype=numpy.uint32) * 2654435761 >> 24).astype(numpy.uint8)
    X = X.reshape(samples, 2 * width)[:, width:] if not dense else X[: samples * width].reshape(samples, width)
    assert_gathers(X, batch_size=batch_size)


@pytest.mark.parametrize(("samples", "width", "batch_size"), [(3, 3_000_000, 2), (200_001, 1, 1), (70_000, 65, 9000)])
def test_rows_and_batches_that_span_pieces_and_blocks(samples, width, batch_size):
    X = numpy.random.default_rng(0).integers(0, 256, (samples, width), numpy.uint8)
    assert_gathers(X, batch_size=batch_size)
    if samples < 100_000:
        assert_gathers(numpy.asfortranarray(X), batch_size=batch_size)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X[::2],
        lambda X: X[:, 1:],
        lambda X: X.t(),
        lambda X: X.flip(0),
        lambda X: X[:1].expand(9, 6),
        lambda X: X.unfold(0, 3, 1),
        lambda X: X.as_strided((5, 3), (1, 2), 3),
        lambda X: torch.nn.Parameter(X),
        lambda X: X.clone().requires_grad_(),
        lambda X: X.clone().requires_grad_() * 2,
        lambda X: torch.complex(X, X).conj(),
        lambda X: torch.complex(X, X).conj().imag,
        lambda X: X.share_memory_(),
        lambda X: X.to(memory_format=torch.channels_last) if X.ndim == 4 else X[:, ::3],
    ],
)
def test_torch_layouts(change):
    X = change(torch.arange(48.0).reshape(8, 6).clone())
    for samples, batch in batches_of(X):
        assert torch.equal(batch, X.detach()[torch.from_numpy(samples)])
        assert not batch.requires_grad
        assert not batch.is_conj()
        assert batch.is_contiguous()


def test_images_with_channels_last():
    X = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_gathers(X)


@pytest.mark.parametrize("dimensions", [32, 62, 63, 64])
def test_the_highest_ranks_come_out_or_are_refused_at_once(dimensions):
    X = numpy.arange(3).reshape(3, *[1] * (dimensions - 1))
    try:
        loader = bl.DataLoader(bl.TensorDataset(X), 2)
    except bl.Error:
        return
    assert [batch.shape[0] for (batch,) in loader] == [2, 1]


# Files


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps_of_npy_files(tmp_path, order, mode):
    X = numpy.asarray(numpy.random.default_rng(2).random((50, 7)), order=order)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode=mode)
    assert_gathers(mapped, reference=X)
    assert_gathers(mapped[10:40:3, ::-1], reference=X[10:40:3, ::-1])
    for _, batch in batches_of(mapped):
        assert type(batch) is numpy.ndarray
        batch[:] = 0
    assert numpy.array_equal(numpy.load(tmp_path / "rows.npy"), X)


def test_a_memory_map_with_an_offset(tmp_path):
    X = numpy.arange(5000, dtype=numpy.int32)
    path = tmp_path / "rows.bin"
    path.write_bytes(b"head" * 2000 + X.tobytes())
    assert_gathers(numpy.memmap(path, numpy.int32, "r", offset=8000), reference=X)
    assert_gathers(numpy.memmap(path, numpy.int32, "r", offset=8000)[4000:], reference=X[4000:])


def test_a_memory_map_whose_file_was_deleted(tmp_path):
    X = numpy.arange(5000)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode="r")
    (tmp_path / "rows.npy").unlink()
    assert_gathers(mapped, reference=X)


def test_a_memory_map_whose_file_was_replaced_by_a_shorter_one(tmp_path):
    X = numpy.arange(5000)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode="r")
    numpy.save(tmp_path / "new.npy", X[:3])
    (tmp_path / "new.npy").rename(tmp_path / "rows.npy")
    # The old file lives on, unnamed, as long as it is mapped.
    assert_gathers(mapped, reference=X)


def test_subclasses_of_arrays():
    class Kind(numpy.ndarray):
        pass

    X = numpy.arange(12.0).reshape(6, 2)
    assert_gathers(X.view(Kind), reference=X)
    assert_gathers(X.view(numpy.matrix), reference=X)
    records = numpy.zeros(6, [("a", "f8"), ("b", "f8")]).view(numpy.recarray)
    records.b = X[:, 1]
    assert_gathers(records.b, reference=X[:, 1].copy())
