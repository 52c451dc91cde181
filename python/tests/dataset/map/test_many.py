"""Items that are read many at once (`__getitems__`), and functions of whole batches that draw random numbers."""

import batchloom as bl
import numpy
import pytest
from oracles.runs import resume_after


class Table:
    """Rows that count how they are read."""

    def __init__(self, samples=200, wrong=None):
        self.values = numpy.random.default_rng(0).normal(size=(samples, 4)).astype(numpy.float32)
        self.one = self.many = 0
        self.wrong = wrong

    def __len__(self):
        return len(self.values)

    def __getitem__(self, number):
        self.one += 1
        if number == self.wrong:
            raise OSError(f"row {number} is damaged")
        return {"x": self.values[number], "k": number}

    def __getitems__(self, numbers):
        self.many += 1
        if self.wrong in numbers:
            raise OSError("some row is damaged")
        return [{"x": self.values[number], "k": number} for number in numbers]


class Short(Table):
    def __getitems__(self, numbers):
        return super().__getitems__(numbers)[1:]


class Columns(Table):
    def __getitems__(self, numbers):
        return {"x": self.values[numbers], "k": numbers}


def double(item):
    return {"x": item["x"] * 2, "k": item["k"]}


def flip(item, rng):
    return {"x": item["x"] * rng.choice([-1, 1]), "k": item["k"]}


def ragged(item):
    return {"x": numpy.repeat(item["x"][:1], item["k"] % 5 + 1), "k": item["k"]}


def mix(samples, rng):
    weights = rng.random(len(samples))
    return {"x": numpy.stack([sample["x"] for sample in samples]) * weights[:, None], "weight_of": weights}


def same(batches, others):
    return all(
        list(one) == list(other) and all(numpy.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(batches, others, strict=True)
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize(
    "function", [None, double, flip, ragged], ids=lambda given: getattr(given, "__name__", "items")
)
def test_batches_are_those_of_items_one_by_one(function, workers, threads):
    table = Table()
    options = {"workers": workers}
    if function is ragged:
        options |= {"sizes": [number % 5 + 1 for number in range(len(table))], "columns": ["x"]}
    many = bl.MapDataset(table, function, **options)
    one = bl.MapDataset([table[number] for number in range(len(table))], function, **options)
    loaders = [bl.DataLoader(dataset, 32, shuffle=True, num_threads=threads) for dataset in (many, one)]
    for _ in range(2):
        batches, others = map(list, loaders)
        assert same(batches, others)


def test_a_part_of_a_batch_is_one_call():
    table = Table(1000)
    loader = bl.DataLoader(bl.MapDataset(table), 50, shuffle=True)
    numbers = numpy.concatenate([batch["k"] for batch in loader])
    assert sorted(numbers.tolist()) == list(range(1000))
    assert table.many >= 20
    assert table.one <= 20


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_damaged_item_is_named(workers):
    dataset = bl.MapDataset(Table(wrong=7), workers=workers)
    with pytest.raises(bl.SampleError, match="row 7 is damaged") as caught:
        list(bl.DataLoader(dataset, 20))
    assert caught.value.sample == 7
    skipping = bl.MapDataset(Table(wrong=7), workers=workers, on_error="skip")
    (first, *_) = bl.DataLoader(skipping, 20)
    assert first["weight"].tolist() == [float(number != 7) for number in range(20)]
    assert first["k"].tolist() == [number if number != 7 else 0 for number in range(20)]


def test_a_dict_of_columns_is_refused():
    with pytest.raises(bl.SampleError, match=r"Columns.__getitems__ returned a dict; expected a list of items"):
        list(bl.DataLoader(bl.MapDataset(Columns()), 2, num_threads=1))


def test_another_number_of_items_is_refused():
    with pytest.raises(bl.SampleError, match=r"Short.__getitems__ returned \d+ items? for \d+ numbers; expected one"):
        list(bl.DataLoader(bl.MapDataset(Short()), 20, num_threads=1))


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_function_of_whole_batches_draws_by_seed_epoch_and_samples(workers):
    dataset = bl.MapDataset(Table(), workers=workers)

    def epochs(threads):
        loader = bl.DataLoader(dataset, 32, shuffle=True, seed=4, collate=mix, num_threads=threads)
        return [list(loader) for _ in range(2)]

    first = epochs(1)
    assert all(same(one, other) for one, other in zip(first, epochs(2), strict=True))
    drawn = numpy.concatenate([batch["weight_of"] for batches in first for batch in batches])
    assert len(set(drawn.tolist())) == len(drawn)


def test_a_resumed_run_draws_what_a_whole_one_drew():
    def loader():
        return bl.DataLoader(bl.MapDataset(Table()), 32, shuffle=True, collate=mix)

    whole = list(loader())
    for step in range(1, len(whole)):
        assert same(list(resume_after(loader, step)), whole[step:])
    assert same([loader().replay(0, 3)], [whole[3]])
