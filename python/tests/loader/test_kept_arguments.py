"""Arguments as they were when a loader was made: what is changed later, or read once, is the same in replays."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import batchloom as bl
import numpy
import pandas
import pytest
import torch

ROWS = bl.TensorDataset(x=numpy.arange(40, dtype=numpy.float32).reshape(20, 2))
SEQUENCES = bl.SequenceDataset(x=[numpy.arange(1 + place % 7) for place in range(20)])


def change(value: Any) -> None:
    """Change an argument in place."""
    if isinstance(value, dict):
        value["x"] = bl.Field(dtype="int32")
    elif isinstance(value, list):
        value[0] = 9
    else:
        value[:] = 0
        value[3] = 1


@pytest.mark.parametrize(
    ("dataset", "name", "value"),
    [
        (ROWS, "ban", [0, 1]),
        (ROWS, "ban", numpy.array([0, 1, 2, 5])),
        (ROWS, "fields", {"x": bl.Field(dtype="float64")}),
        (ROWS, "weights", numpy.ones(20)),
        (ROWS, "weights", torch.ones(20)),
        (ROWS, "weights", pandas.Series(numpy.ones(20))),
        (ROWS, "homogeneous_by", numpy.arange(20) % 3),
        (ROWS, "balanced_by", numpy.arange(20) % 2),
        (ROWS, "sampler", list(range(20))),
        (SEQUENCES, "pad_to", [8, 16]),
    ],
)
def test_a_change_in_place_reaches_neither_run_nor_replay_nor_copy(dataset: Any, name: str, value: Any) -> None:
    def loader(given: Any) -> Any:
        return bl.DataLoader(dataset, 4, shuffle=name != "sampler", seed=5, **{name: given})

    expected = seen(loader(copy.deepcopy(value)))
    changed = loader(value)
    change(value)
    assert [seen([changed.replay(0, step)])[0] for step in range(len(changed))] == expected
    assert seen(pickle.loads(pickle.dumps(changed))) == seen(copy.copy(changed)) == seen(changed) == expected


@pytest.mark.parametrize(
    ("dataset", "name", "value"), [(ROWS, "ban", [0, 1, 7]), (SEQUENCES, "ban", [3]), (ROWS, "sampler", range(20))]
)
def test_an_iterator_is_read_once_and_kept(dataset: Any, name: str, value: Any) -> None:
    given = bl.DataLoader(dataset, 4, **{name: iter(value)})
    expected = seen(bl.DataLoader(dataset, 4, **{name: list(value)}))
    assert [seen([given.replay(0, step)])[0] for step in range(len(given))] == expected
    assert seen(copy.copy(given)) == seen(given) == seen(given) == expected


def test_threads_replay_at_once() -> None:
    loader = bl.DataLoader(bl.TensorDataset(x=numpy.arange(4000)), 4, shuffle=True)
    expected = [batch.tolist() for batch in loader.plan(0)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2):
            assert [batch["x"].tolist() for batch in threads.map(loader.__getitem__, range(1000))] == expected


def seen(batches: Any) -> list[Any]:
    """Return batches as lists."""
    return [{name: (str(field.dtype), field.tolist()) for name, field in batch.items()} for batch in batches]
