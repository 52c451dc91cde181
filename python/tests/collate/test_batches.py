"""Batches of rows: tuples or dicts, aligned, compact, and the consumer's own."""

import itertools

import batchloom as bl
import numpy
import pytest
import torch


def test_positional_fields_make_tuples():
    X, y = numpy.arange(10.0).reshape(5, 2), torch.arange(5)
    batches = list(bl.DataLoader(bl.TensorDataset(X, y), 2))
    assert [type(batch) for batch in batches] == [tuple] * 3
    assert [[type(part) for part in batch] for batch in batches] == [[numpy.ndarray, torch.Tensor]] * 3
    assert [batch[0].shape for batch in batches] == [(2, 2), (2, 2), (1, 2)]
    assert numpy.array_equal(numpy.concatenate([xb for xb, _ in batches]), X)
    assert torch.equal(torch.cat([yb for _, yb in batches]), y)


def test_one_positional_field_makes_tuples_too():
    ((batch),) = bl.DataLoader(bl.TensorDataset(numpy.arange(3)), 5)
    assert type(batch) is tuple
    assert len(batch) == 1


def test_named_fields_make_dicts():
    batches = list(bl.DataLoader(bl.TensorDataset(pixels=numpy.arange(10.0).reshape(5, 2), label=torch.arange(5)), 2))
    assert [type(batch) for batch in batches] == [dict] * 3
    assert [list(batch) for batch in batches] == [["pixels", "label"]] * 3
    assert batches[1]["label"].tolist() == [2, 3]
    batches[0]["pixels"] = None
    assert batches[1]["pixels"] is not None


@pytest.mark.parametrize(("output", "kind"), [("torch", torch.Tensor), ("numpy", numpy.ndarray)])
def test_output_decides_for_all_fields(output, kind):
    dataset = bl.TensorDataset(numpy.arange(5.0), torch.arange(5))
    for batch in bl.DataLoader(dataset, 2, output=output):
        assert [type(part) for part in batch] == [kind, kind]
        assert [str(part.dtype).removeprefix("torch.") for part in batch] == ["float64", "int64"]
        assert batch[0].tolist() == batch[1].tolist()


def test_many_fields():
    fields = {f"field {number}": numpy.full((50, number % 5), number) for number in range(200)}
    for batch in bl.DataLoader(bl.TensorDataset(**fields), 7):
        assert all((batch[f"field {number}"] == number).all() for number in range(200))


def test_the_same_array_twice():
    X = torch.arange(5)
    for first, second in bl.DataLoader(bl.TensorDataset(X, X), 2):
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("samples", [1000, 960, 70])
def test_a_shorter_last_batch_lies_behind_the_others(samples):
    """So torch takes all batches of a small epoch at once."""
    X = torch.arange(samples * 3).view(samples, 3)
    batches = list(bl.DataLoader(bl.TensorDataset(X, X[:, 0].double()), 64, shuffle=True))
    for field in zip(*batches, strict=True):
        ends = [part.data_ptr() + part.nbytes for part in field]
        assert [part.data_ptr() for part in field[1:]] == ends[:-1]


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("width", [0, 1, 3, 16, 17, 1000])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_batches_are_aligned_compact_and_writable(output, width, batch_size):
    X = numpy.arange(700 * width, dtype=numpy.float32).reshape(700, width)
    dataset = bl.TensorDataset(X, numpy.arange(700, dtype=numpy.uint8))
    batches = list(bl.DataLoader(dataset, batch_size, shuffle=True, output=output))
    for number, batch in enumerate(batches):
        for part in batch:
            address = part.data_ptr() if output == "torch" else part.__array_interface__["data"][0]
            assert part.numel() == 0 if address == 0 else address % 64 == 0
            compact = part.is_contiguous() if output == "torch" else part.flags.c_contiguous
            assert compact
            part[...] = number % 251
    assert all((part == number % 251).all() for number, batch in enumerate(batches) for part in batch)
    assert numpy.array_equal(X, numpy.arange(700 * width, dtype=numpy.float32).reshape(700, width))


@pytest.mark.parametrize("kind", [numpy.asarray, torch.from_numpy])
def test_writing_to_a_batch_leaves_dataset_and_later_epochs_alone(kind):
    X = numpy.arange(120.0).reshape(40, 3)
    loader = bl.DataLoader(bl.TensorDataset(kind(X)), 7)
    for _ in range(3):
        for number, (batch,) in enumerate(loader):
            assert numpy.array_equal(numpy.asarray(batch), X[number * 7 : number * 7 + 7])
            batch += 1000
    assert numpy.array_equal(X, numpy.arange(120.0).reshape(40, 3))


# Autograd


def pairs(width, **options):
    """Neighbouring batches, with a gap between them unless their bytes are a multiple of 64."""
    X = torch.arange(90.0 * width).reshape(90, width)
    batches = [batch for (batch,) in bl.DataLoader(bl.TensorDataset(X), 8, **options)]
    return itertools.pairwise(batches)


@pytest.mark.parametrize("width", [2, 3, 64])
def test_writing_to_one_batch_leaves_the_graph_of_another_alone(width):
    for first, second in pairs(width):
        weight = torch.ones(width, requires_grad=True)
        expected = first.sum(0)
        loss = (first * weight).sum()
        second.add_(1)
        second[0] = 7
        loss.backward()
        assert torch.equal(weight.grad, expected)


@pytest.mark.parametrize("width", [2, 3, 64])
def test_writing_to_a_batch_that_a_graph_needs_still_raises(width):
    for first, _ in pairs(width):
        loss = (first * torch.ones(width, requires_grad=True)).sum()
        first.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("width", [2, 3, 64])
def test_a_batch_may_ask_for_its_own_gradient(width):
    for first, second in pairs(width):
        first.requires_grad_()
        assert first.is_leaf
        second.mul_(2)
        (first * 3).sum().backward()
        assert torch.equal(first.grad, torch.full_like(first, 3))
        assert not second.requires_grad


@pytest.mark.parametrize("width", [2, 3, 64])
def test_an_augmentation_in_place_is_tracked(width):
    for first, second in pairs(width):
        scale = torch.ones(1, requires_grad=True)
        expected = first.sum()
        first.mul_(scale)
        second.zero_()
        first.sum().backward()
        assert torch.allclose(scale.grad, expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_mode_at_one_batch_does_not_stick_to_the_next(mode):
    batches = iter(bl.DataLoader(bl.TensorDataset(torch.ones(100, 4)), 8))
    with mode():
        next(batches)
    (batch,) = next(batches)
    assert not batch.is_inference()
    weight = torch.ones(4, requires_grad=True)
    (batch * weight).sum().backward()
    assert weight.grad is not None


def test_default_devices_and_types_of_torch_do_not_matter():
    X = torch.arange(100.0)
    with torch.device("meta"):
        batches = list(bl.DataLoader(bl.TensorDataset(X), 8))
    assert {batch.device.type for (batch,) in batches} == {"cpu"}
    assert torch.equal(torch.cat([batch for (batch,) in batches]), X)
