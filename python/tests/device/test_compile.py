"""Batches go into what compiles, casts and differentiates."""

import itertools

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import WAYS, loader_on, seen

LENGTHS = [(13 * k) % 29 + 1 for k in range(120)]
OFFSETS = numpy.concatenate([[0], numpy.cumsum(LENGTHS)])


def sequences():
    torch.manual_seed(0)
    return bl.SequenceDataset(x=(torch.randn(int(OFFSETS[-1]), 4), OFFSETS), y=torch.arange(len(LENGTHS)) % 2)


@pytest.mark.parametrize("way", ["resident", "streamed"])
@pytest.mark.parametrize("buffers", ["views", "static"])
def test_a_compiled_model_sees_as_many_graphs_as_there_are_shapes(way, buffers):
    """A few, where lengths are multiples; and none of them for where a batch lies, or how it was made."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    layer = torch.nn.Linear(4, 2)
    counter = CompileCounter()

    @torch.compile(backend=counter, dynamic=False)
    def model(x, mask):
        return (layer(x) * mask.unsqueeze(-1)).sum(1)

    rule = bl.LengthBuckets(8, pool=4, multiple_of=16)
    loader, _ = loader_on(way, sequences(), batching=rule, shuffle=True, drop_last=True, buffers=buffers)
    shapes = set()
    for _ in range(2):
        for batch in loader:
            shapes.add(batch["x"].shape)
            expected = (layer(batch["x"]) * batch["attention_mask"].unsqueeze(-1)).sum(1)
            assert torch.equal(model(batch["x"], batch["attention_mask"]), expected)
    assert len(shapes) == 2
    assert counter.frame_count == len(shapes)


@pytest.mark.parametrize("way", WAYS)
def test_mixed_precision_takes_batches_as_they_are(way):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader, _ = loader_on(way, sequences(), batch_size=8, shuffle=True)
    for batch in loader:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch["x"]).mean(1)
            assert logits.dtype == torch.bfloat16
            loss = torch.nn.functional.cross_entropy(logits, batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    assert batch["x"].dtype == torch.float32


@pytest.mark.parametrize("way", WAYS)
def test_training_in_a_device_way_is_training_on_the_host(way):
    def trained(loader):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad()
                (model(batch["x"]).squeeze(-1) * batch["attention_mask"]).square().mean().backward()
                optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    loader, same = loader_on(way, sequences(), batch_size=8, shuffle=True)
    assert seen([trained(loader)]) == seen([trained(bl.DataLoader(sequences(), **same))])


@given(samples=st.integers(1, 60), width=st.sampled_from([1, 3, 16]), batch_size=st.integers(1, 9))
def test_jax_arrays_are_aligned_and_no_block_is_used_again(samples, width, batch_size):
    """On the CPU, JAX keeps the memory that it is given: it never comes back while an array lives."""
    jax = pytest.importorskip("jax")
    X = numpy.arange(samples * width, dtype=numpy.float32).reshape(samples, width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHLOOM_POISON", "1")
        loader = bl.DataLoader(bl.TensorDataset(X), batch_size, shuffle=True, output="jax", num_threads=1, prefetch=1)
    held = [
        (samples, batch) for epoch in range(3) for samples, (batch,) in zip(loader.plan(epoch), loader, strict=True)
    ]
    del loader
    for samples, batch in held:
        assert isinstance(batch, jax.Array)
        assert batch.unsafe_buffer_pointer() % 64 == 0
        assert numpy.array_equal(numpy.asarray(batch), X[samples])
    places = sorted((batch.unsafe_buffer_pointer(), batch.nbytes) for _, batch in held)
    assert all(start + size <= after for (start, size), (after, _) in itertools.pairwise(places))
