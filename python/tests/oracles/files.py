"""Files of arrays, written by the libraries that people use, and runs over them beside runs over the arrays."""

import itertools

import batchloom as bl
import numpy
from hypothesis import strategies as st
from oracles.runs import assert_resumes, part
from oracles.selections import torch_seen

ROWS = 37


def arrays(rows=ROWS):
    """Columns of several types and shapes with a row for each sample."""
    return {
        "x": numpy.arange(3 * rows, dtype=numpy.float32).reshape(rows, 3),
        "image": numpy.arange(4 * rows, dtype=numpy.uint8).reshape(rows, 2, 2),
        "label": numpy.arange(rows) * 7 % 11,
        "flag": numpy.arange(rows) % 3 == 0,
    }


cuts = st.lists(st.integers(0, ROWS), max_size=4).map(sorted)
"""The places where a file ends and the next one begins: some files may be empty."""


def in_parts(columns, places):
    """The columns of each of several files."""
    ends = [0, *places, len(next(iter(columns.values())))]
    return [{name: array[a:b] for name, array in columns.items()} for a, b in itertools.pairwise(ends)]


def assert_same_runs(found, expected, is_selection=False, **options):
    """Two datasets make the same batches: in two epochs, on each rank of some worlds, and resumed at each step.

    A selection has a plan of its own, which knows the samples that it was selected from.
    """

    def loader(dataset, **more):
        return bl.DataLoader(dataset, **options, **more)

    assert len(found) == len(expected)
    first, second = loader(found), loader(expected)
    assert is_selection or first.plan().fingerprint == second.plan().fingerprint
    epochs = [torch_seen(second) for _ in range(2)]
    assert [torch_seen(first) for _ in range(2)] == epochs
    for world_size in range(1, 5):
        for rank in range(world_size):
            ranks = {"world_size": world_size, "rank": rank}
            assert torch_seen(loader(found, **ranks)) == torch_seen(loader(expected, **ranks))
    assert_resumes(loader(found), lambda: loader(found), epochs[:1], torch_seen)


def damaged(contents, place, byte, length):
    """A file with one byte of its head exchanged, and cut: a fraction of its place and of its length."""
    changed = bytearray(contents)
    changed[part(place, len(changed) - 1)] = byte
    return bytes(changed[: part(length, len(changed))])
