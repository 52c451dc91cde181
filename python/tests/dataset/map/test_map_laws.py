"""Laws of samples made on demand: the batches of the same samples in arrays (L1 to L5, L8 to L10), and L12."""

import time
from threading import Lock

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.samples import LENGTHS, row, sequence

RULES = (bl.FixedSize(5), bl.LengthBuckets(4), bl.TokenBudget(25), bl.Packing(25), bl.LengthBuckets(3, pool=2))
ROWS = bl.TensorDataset(x=numpy.stack([row(number)["x"] for number in range(60)]), y=numpy.arange(60))
SEQUENCES = bl.SequenceDataset(**{"0": [sequence(number)[0] for number in range(60)]}, **{"1": numpy.arange(60)})


def plain(batch):
    """The contents of a batch, by name or in order."""
    arrays = batch.values() if isinstance(batch, dict) else batch
    return [array.tolist() if hasattr(array, "tolist") else array for array in arrays]


def delayed(fn, places):
    """The same function after delays that differ from sample to sample."""

    def made(number):
        time.sleep(places[number % len(places)] / 10_000)
        return fn(number)

    return made


@given(
    rule=st.sampled_from([None, *RULES]),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    threads=st.sampled_from([1, 2, 7]),
    prefetch=st.integers(0, 4),
    world_size=st.integers(1, 3),
    uneven=st.sampled_from(["pad", "mask", "short"]),
    places=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    data=st.data(),
)
def test_batches_are_those_of_arrays(rule, shuffle, seed, threads, prefetch, world_size, uneven, places, data):
    if rule is None:
        stored, lazy = ROWS, bl.MapDataset(range(60), delayed(row, places))
    else:
        stored, lazy = SEQUENCES, bl.MapDataset(range(60), delayed(sequence, places), sizes=LENGTHS)
    options = {"batching": rule, "shuffle": shuffle, "seed": seed, "world_size": world_size, "uneven": uneven}
    rank = data.draw(st.integers(0, world_size - 1))
    expected = bl.DataLoader(stored, rank=rank, **options)
    found = bl.DataLoader(lazy, rank=rank, num_threads=threads, prefetch=prefetch, **options)
    assert len(expected) == len(found)
    assert list(map(plain, expected)) == list(map(plain, found))
    stop = data.draw(st.integers(0, len(expected)))
    for loader in (expected, found):
        for _ in zip(range(stop), loader, strict=False):
            pass
    assert expected.state_dict()["batches"] == found.state_dict()["batches"]
    others = data.draw(st.integers(1, 3))
    if uneven == "short" or stop == len(expected):
        others = world_size
    rest = bl.DataLoader(lazy, **options | {"world_size": others}, rank=others - 1, num_threads=threads)
    same = bl.DataLoader(stored, **options | {"world_size": others}, rank=others - 1)
    rest.load_state_dict(found.state_dict())
    same.load_state_dict(found.state_dict())
    assert list(map(plain, rest)) == list(map(plain, same))


class Counted:
    """Numbers, and those that were asked for."""

    def __init__(self, samples):
        self._samples, self.asked, self._lock = samples, [], Lock()

    def __len__(self):
        return self._samples

    def __getitem__(self, number):
        with self._lock:
            self.asked.append(number)
        return number


@pytest.mark.parametrize("prefetch", [0, 1, 2, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_is_read_early_late_or_twice(threads, prefetch):
    items = Counted(200)
    loader = bl.DataLoader(bl.MapDataset(items), batch_size=5, num_threads=threads, prefetch=prefetch)
    loader.plan().stats()
    batches = iter(loader)
    time.sleep(0.02)
    assert items.asked == []
    for step in range(1, 9):
        next(batches)
        time.sleep(0.005)
        assert len(items.asked) <= 5 * (step + prefetch)
    batches.close()
    read = len(items.asked)
    time.sleep(0.02)
    assert len(items.asked) == read
    items.asked.clear()
    list(loader)
    assert sorted(items.asked) == list(range(200))


def noise(number, rng):
    return rng.standard_normal(2), number


def test_generators_follow_from_seed_epoch_and_sample():
    def drawn(**options):
        loader = bl.DataLoader(bl.MapDataset(range(40), noise), shuffle=True, **options)
        epochs = [{int(n): x.tolist() for batch in loader for x, n in zip(*batch, strict=True)} for _ in range(2)]
        return epochs

    first = drawn(batch_size=7, num_threads=1)
    assert first == drawn(batch_size=16, num_threads=4)
    assert first != drawn(batch_size=7, seed=1)
    assert first[0] != first[1]
    assert len({tuple(x) for epoch in first for x in epoch.values()}) == 80
    ranks = [drawn(batch_size=7, rank=rank, world_size=2, uneven="short")[0] for rank in range(2)]
    assert ranks[0] | ranks[1] == first[0]


GOLDEN = [[-0.686767866077, 0.056711052297], [-0.33066418249, 0.906507280969], [0.094412629675, -0.145456793675]]


def test_numbers_of_generators_survive_releases():
    loader = bl.DataLoader(bl.MapDataset(range(3), noise), seed=7)
    ((x, _),) = loader
    assert x.round(12).tolist() == GOLDEN
