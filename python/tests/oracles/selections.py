"""Datasets of every kind over chosen samples, copied: what selections, splits and concatenations are compared to."""

import batchloom as bl
import numpy
import torch
from oracles.devices import seen

SAMPLES = 40
LENGTHS = [(11 * k) % 9 for k in range(SAMPLES)]
OFFSETS = numpy.concatenate([[0], numpy.cumsum(LENGTHS)])
SHUFFLED = {"shuffle": True, "seed": 3}


def parts(numbers):
    """The elements of each of some samples."""
    return [100 * k + numpy.arange(LENGTHS[k]) for k in numbers]


def joined(numbers):
    return numpy.concatenate([*parts(numbers), numpy.zeros(0, numpy.int64)])


def of(numbers):
    return numpy.concatenate([[0], numpy.cumsum([LENGTHS[k] for k in numbers])])


def rows(numbers, like=torch.from_numpy):
    wide = numpy.arange(3 * SAMPLES).reshape(SAMPLES, 3)
    return bl.TensorDataset(like(wide[numbers]), like(numpy.array(numbers)))


def sequences(numbers, like=torch.from_numpy):
    return bl.SequenceDataset(
        ids=(like(joined(numbers)), of(numbers)), label=like(numpy.array(numbers)), sizes=[LENGTHS[k] for k in numbers]
    )


def own(numbers):
    other = [100 * k + numpy.arange(k % 4) for k in numbers]
    return bl.SequenceDataset(ids=(joined(numbers), of(numbers)), own=other, own_lengths=["own"])


def shapes(numbers):
    images = [numpy.full((1 + k % 3, 1 + k % 5), k) for k in numbers]
    return bl.SequenceDataset(image=images)


def groups(numbers, **options):
    # Each group has a row; its rows lie apart.
    places = [(step, place, k) for place, k in enumerate(numbers) for step in range(1 + LENGTHS[k])]
    places.sort(key=lambda entry: (entry[0], entry[1]))
    values = torch.tensor([100 * k + step for step, _, k in places])
    ids = numpy.array([place for _, place, _ in places])
    # Ids number groups in the order of their first rows.
    return bl.GroupDataset(ids, x=values, **options)


def documents(numbers, **options):
    return bl.TokenDataset(joined(numbers).astype(numpy.int64), 3, documents=of(numbers), **options)


def read(k):
    return {"x": numpy.full(3, k), "noise": numpy.array([k])}


def on_demand(numbers):
    return bl.MapDataset([int(k) for k in numbers], read)


def sized(numbers):
    return bl.MapDataset(parts(numbers), sizes=[LENGTHS[k] for k in numbers])


KINDS = {
    "rows": (rows, {"batch_size": 7} | SHUFFLED),
    "sequences": (sequences, {"batching": bl.TokenBudget(32, pool=9), "labels": "ids"} | SHUFFLED),
    "left": (sequences, {"batch_size": 4, "pad_side": "left", "pad_value": -1}),
    "packed": (sequences, {"batching": bl.Packing(10)} | SHUFFLED),
    "own lengths": (own, {"batching": bl.LengthBuckets(3)} | SHUFFLED),
    "shapes": (shapes, {"batching": bl.TokenBudget(30)} | SHUFFLED),
    "groups": (groups, {"batch_size": 3} | SHUFFLED),
    "padded groups": (lambda numbers: groups(numbers, layout="padded"), {"batching": bl.TokenBudget(24)} | SHUFFLED),
    "pieces": (documents, {"batch_size": 2, "shuffle": False}),
    "shuffled documents": (
        lambda numbers: documents(numbers, separator=7, segment_ids=True, position_ids=True),
        {"batch_size": 2, "shuffle": False},
    ),
    "on demand": (on_demand, {"batch_size": 4} | SHUFFLED),
    "sized": (sized, {"batching": bl.TokenBudget(32)} | SHUFFLED),
}


def without_ids(fields):
    """Fields without the ids of groups, which differ in a copy that holds a group twice."""
    return {name: field for name, field in fields.items() if name != "group_ids"}


def tensor(value):
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(numpy.array(value))


def torch_seen(loader):
    return seen(
        {name: tensor(value) if hasattr(value, "shape") else value for name, value in without_ids(batch).items()}
        if isinstance(batch, dict)
        else [tensor(value) for value in batch]
        for batch in loader
    )


def assert_same(found, copied, options):
    """Two datasets have the same samples, and loaders make the same batches of them."""
    assert len(found) == len(copied)
    assert [numpy.array(list(values(found[k])), object).tolist() for k in range(len(found))] == [
        numpy.array(list(values(copied[k])), object).tolist() for k in range(len(copied))
    ]
    if len(copied):
        for _ in range(2):
            assert torch_seen(bl.DataLoader(found, **options)) == torch_seen(bl.DataLoader(copied, **options))


def values(sample):
    fields = (
        without_ids(sample).values() if isinstance(sample, dict) else sample if isinstance(sample, tuple) else (sample,)
    )
    return [numpy.asarray(field).tolist() for field in fields]
