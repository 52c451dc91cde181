"""Patches whose windows repeat their last step at the end: equal to those of PatchTST, wherever batches are made."""

import batchloom as bl
import jax.numpy
import ml_dtypes
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.elements import TORCH_TYPES
from oracles.windows import equal, loader_of, modes, pretended, shapes


def as_patchtst(x, length, stride):
    """The patches of ``[batch, steps, features]`` as PatchTST makes them: by a layer that pads, and unfolding."""
    channels = torch.as_tensor(x).double().permute(0, 2, 1)
    return torch.nn.ReplicationPad1d((0, stride))(channels).unfold(-1, length, stride).numpy()


padded_patches = st.tuples(st.integers(1, 6), st.none() | st.integers(1, 9))


@given(shape=shapes(), patch=padded_patches, mode=modes(), order=st.sampled_from([False, True, "runs"]))
def test_padded_patches_are_those_of_patchtst(shape, patch, mode, order):
    length, stride = patch
    assume(length <= shape.input_len)
    dataset = shape.dataset(patch_len=length, patch_stride=stride, patch_pad="end", mask=True)
    loader = loader_of(dataset, mode, 4, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        x, *rest = shape.stack(samples)
        assert equal(batch, [as_patchtst(x, length, stride or length), *rest])
        assert all(equal([part[0]], [numpy.asarray(own)]) for part, own in zip(batch, dataset[samples[0]], strict=True))


def test_published_patches_are_42():
    dataset = bl.WindowDataset(torch.randn(500, 7), 336, 96, patch_len=16, patch_stride=8, patch_pad="end")
    assert all(x.shape == (20, 7, 42, 16) for x, _ in bl.DataLoader(dataset, batch_size=20, drop_last=True))


@given(
    shape=shapes(),
    patch=padded_patches,
    pad=st.sampled_from([None, "end"]),
    order=st.sampled_from([False, True, "runs"]),
)
def test_statistics_say_what_patches_take(shape, patch, pad, order):
    length, stride = patch
    assume(length <= shape.input_len)
    dataset = shape.dataset(patch_len=length, patch_stride=stride, patch_pad=pad)
    for x, *rest in bl.DataLoader(dataset, batch_size=3, shuffle=order):
        stats = dataset.stats(len(x))
        assert stats.patched_bytes == x.nbytes
        assert stats.materialised_bytes == (stats.gathered_bytes if pad else 0)
        if pad:
            first, end = numpy.lib.array_utils.byte_bounds(x)
            assert stats.gathered_bytes == end - first + sum(part.nbytes for part in rest[: bool(shape.horizon)])


CONTAINERS = {
    "numpy": numpy.asarray,
    "torch": torch.as_tensor,
    "jax": lambda values: jax.numpy.asarray(values.astype(numpy.int32)),
    "one column": lambda values: values[:, 0],
    "features first": numpy.asfortranarray,
    "backwards": lambda values: values[::-1],
    "no feature": lambda values: values[:, :0],
    "more dimensions": lambda values: values.reshape(-1, 3, 2),
    "bfloat16": lambda values: values.astype(ml_dtypes.bfloat16),
    "torch uint16": lambda values: torch.as_tensor(values).to(torch.uint16),
    "torch float8": lambda values: torch.as_tensor(values).to(torch.float8_e5m2),
    "torch with gradient": lambda values: torch.as_tensor(values / 1).requires_grad_(),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_ends_of_any_type_and_layout_are_repeated(kind):
    """The patches are those of an input that is longer by hand."""
    if kind == "torch float8" and "float8_e5m2" not in TORCH_TYPES:
        pytest.skip("this torch shares no float8")
    values = CONTAINERS[kind](numpy.arange(240).reshape(40, 6) % 60)
    padded = bl.WindowDataset([values, values[:4]], 7, 2, patch_len=3, patch_stride=2, patch_pad="end")
    whole = bl.WindowDataset([values, values[:4]], 7, 2)
    ways = [{}, {"buffers": "own"}, {"shuffle": "runs"}, {"shuffle": True}]
    if kind.startswith("torch"):
        ways += [{"resident": True}, {"resident": False}, {"device": "meta"}, {"device": "meta", "shuffle": True}]
    for options in ways:
        with pretended():
            both = [bl.DataLoader(dataset, batch_size=4, **options) for dataset in (padded, whole)]
        for (patches, y), (x, same) in zip(*both, strict=True):
            assert type(patches) is type(x)
            assert patches.dtype == x.dtype
            assert bits(y) == bits(same)
            # Seven steps, and two more: patches begin at 0, 2, 4 and 6.
            longer = [[step[min(k, 6)] for k in range(9)] for step in listed(x)]
            expected = [[window[k : k + 3] for k in (0, 2, 4, 6)] for window in longer]
            steps = numpy.moveaxis(numpy.asarray(listed(patches)).reshape(patches.shape), (-2, -1), (1, 2))
            assert numpy.array_equal(steps, numpy.asarray(expected).reshape(steps.shape))


def bits(array):
    """An array as bytes of its numbers."""
    return numpy.asarray(listed(array)).tobytes()


def listed(array):
    """An array of whatever framework and type as lists of numbers."""
    if isinstance(array, torch.Tensor):
        array = array.detach().double().numpy()
    return numpy.asarray(array).astype(float).tolist()


@pytest.mark.parametrize("where", [{}, {"resident": True}, {"device": "meta"}, {"resident": False}], ids=str)
def test_means_are_taken_off_repeated_data_and_not_off_repeated_padding(where):
    values = torch.arange(1, 21, dtype=torch.uint8)
    series = [values, values[:1], values[:3]]
    dataset = bl.WindowDataset(series, 4, 2, patch_len=2, patch_stride=1, patch_pad="end", short="pad")
    with pretended():
        loader = bl.DataLoader(dataset, batch_size=32, fields={"x": bl.Field(dtype="float32", mean=2.0)}, **where)
    ((x, *_),) = loader
    last = numpy.asarray(x)[:, -1].tolist()
    assert last[0] == [2.0, 2.0]  # 4, twice
    assert last[-2:] == [[0.0, 0.0], [-1.0, -1.0]]  # padding alone; 1, twice


@pytest.mark.parametrize("options", [{"shuffle": True}, {}, {"resident": False}, {"device": "meta"}], ids=str)
def test_writing_to_patches_leaves_the_series_as_it_is(options):
    values = torch.arange(80.0).reshape(40, 2)
    dataset = bl.WindowDataset(values, 6, 2, patch_len=2, patch_pad="end")
    with pretended():
        loader = bl.DataLoader(dataset, batch_size=4, **options)
    for x, _ in loader:
        x.zero_()
    assert torch.equal(values, torch.arange(80.0).reshape(40, 2))
