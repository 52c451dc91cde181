"""Batches of sequences: the same bytes from any blocks and threads, owned by the consumer that holds them."""

import gc
import itertools
import threading

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.dataset.base import samples_of
from batchloom.plan.options import NumberedSamples
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import rules, sized
from oracles.elements import raw
from oracles.runs import few
from oracles.sequences import SIZES


@given(
    sizes=sized(samples=40),
    rule=rules,
    shuffle=st.booleans(),
    block_bytes=st.integers(1, 3000),
    threads=st.integers(1, 4),
    prefetch=st.integers(0, 3),
    labels=st.booleans(),
    side=st.sampled_from(["right", "left"]),
)
@few
def test_blocks_of_any_size_and_any_threads_give_the_same_bytes(
    sizes, rule, shuffle, block_bytes, threads, prefetch, labels, side
):
    """The size of blocks never shows. The interface has no word for it, so the engine is asked itself."""
    assume(batching.refused(rule, sizes) is None)
    assume(batching.policy(rule) != "drop" or not all(batching.too_large(rule, size) for size in sizes))
    dataset = batching.dataset(sizes, y=numpy.arange(len(sizes)))
    loader = bl.DataLoader(
        dataset, batching=rule, shuffle=shuffle, labels="x" if labels else None, pad_side=side, num_threads=1
    )
    other = bl.DataLoader(dataset, batching=rule, shuffle=shuffle, labels="x" if labels else None, pad_side=side)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHLOOM_POISON", "1")
        other._native = type(loader._native)(
            samples_of(dataset).engine(),
            bl.PlanOptions(shuffle=shuffle).native(rule, NumberedSamples(len(dataset))),
            rank=0,
            world_size=1,
            pad_values=[],
            pad_side=side,
            labels="x" if labels else None,
            num_threads=threads,
            prefetch=prefetch,
            block_bytes=block_bytes,
        )
    for _ in range(2):
        held = list(other)
        for expected, found in zip(loader, held, strict=True):
            assert list(found) == list(expected)
            assert all(
                found[name] == value if name == "max_seqlen" else raw(found[name]) == raw(value)
                for name, value in expected.items()
            )


def test_loaders_side_by_side_do_not_disturb_each_other():
    sizes = [place * 37 % 101 for place in range(3000)]
    dataset = batching.dataset(sizes)

    def held(threads):
        return [
            batching.held(batch)
            for batch in bl.DataLoader(dataset, batching=bl.TokenBudget(2000), shuffle=True, num_threads=threads)
        ]

    expected, found = held(1), {}
    threads = [
        threading.Thread(target=lambda place=place: found.update({place: held(place)})) for place in (1, 2, 3, 7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[place] == expected for place in (1, 2, 3, 7))


# Batches belong to who holds them


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize(
    "rule", [bl.LengthBuckets(5), bl.TokenBudget(100), bl.Packing(64)], ids=lambda rule: type(rule).__name__
)
def test_arrays_are_aligned_compact_writable_and_apart(output, rule):
    sizes = [place * 7 % 23 for place in range(200)]
    dataset = batching.dataset(
        sizes, y=numpy.arange(200, dtype=numpy.uint8), z=numpy.arange(600, dtype=numpy.float32).reshape(200, 3)
    )
    batches = list(bl.DataLoader(dataset, batching=rule, shuffle=True, output=output, labels="x"))
    arrays = [
        (number, value) for number, batch in enumerate(batches) for name, value in batch.items() if name != "max_seqlen"
    ]
    for number, array in arrays:
        address = array.data_ptr() if output == "torch" else array.__array_interface__["data"][0]
        assert address % 64 == 0 or not len(array.reshape(-1))
        assert array.is_contiguous() if output == "torch" else array.flags.c_contiguous
        array[...] = number % 2 if "bool" in str(array.dtype) else number % 100
    assert all(
        (array == (number % 2 if "bool" in str(array.dtype) else number % 100)).all() for number, array in arrays
    )
    again = [batching.held(batch) for batch in bl.DataLoader(dataset, batching=rule)]
    assert sorted(len(row) - 1 for batch in again for row in batch) == sorted(sizes)


def test_writing_to_one_batch_leaves_the_graph_of_another_alone():
    dataset = bl.SequenceDataset(x=[torch.ones(size) for size in SIZES])
    first, second = itertools.islice(bl.DataLoader(dataset, batching=bl.LengthBuckets(6)), 2)
    weight = torch.ones((), requires_grad=True)
    loss = (first["x"] * weight).sum()
    second["x"].zero_()
    loss.backward()
    assert weight.grad == first["x"].sum()
    with torch.inference_mode():
        batch = next(iter(bl.DataLoader(dataset, batching=bl.LengthBuckets(6))))
    assert not batch["x"].is_inference()


KEEP = """
    import sys
    import numpy
    import batchloom as bl

    output = sys.argv[1]
    random = numpy.random.default_rng(0)
    sizes = random.integers(0, 900, 2500)
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    values = numpy.arange(offsets[-1], dtype=numpy.int32)
    dataset = bl.SequenceDataset(x=(values, offsets), y=numpy.arange(2500))

    def check(batch):
        x, index = numpy.asarray(batch["x"]), numpy.asarray(batch["index"])
        assert (numpy.asarray(batch["y"]) == index).all()
        if "cu_seqlens" in batch:
            ends = numpy.asarray(batch["cu_seqlens"])
            rows = [x[start:end] for start, end in zip(ends, ends[1:])]
        else:
            rows = [row[mask] for row, mask in zip(x, numpy.asarray(batch["attention_mask"]))]
            assert x.sum() == sum(int(row.sum()) for row in rows)
        for row, sample in zip(rows, index):
            assert (row == values[offsets[sample] : offsets[sample + 1]]).all()

    for rule in (bl.TokenBudget(20000), bl.Packing(16384)):
        loader = bl.DataLoader(dataset, batching=rule, shuffle=True, output=output, num_threads=3, labels="x")
        held, count = [], 0
        for epoch in range(2):
            for batch in loader:
                count += 1
                check(batch)
                if count % 3 == 0:
                    held.append(batch)
                del batch
        list(loader)
        for batch in held:
            check(batch)
        del loader
        for batch in held:
            check(batch)
        assert len(held) > 30
"""


@pytest.mark.law("L11")
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_kept_batches_never_change(script, output):
    script(KEEP, output, BATCHLOOM_POISON=1)


def test_batches_outlive_loader_dataset_and_values():
    batches = list(bl.DataLoader(batching.dataset(SIZES), batching=bl.TokenBudget(20)))
    gc.collect()
    starts = numpy.cumsum([0, *SIZES])
    for batch in batches:
        for sample, *row in batching.held(batch):
            assert row == list(range(starts[sample], starts[sample + 1]))
