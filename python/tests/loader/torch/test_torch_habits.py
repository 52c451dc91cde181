"""Requests of scripts and frameworks for torch's ``DataLoader``: arguments, attributes, datasets, samplers."""

import inspect
import itertools
import time
import warnings
from pathlib import Path

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.loader.keywords import LoaderKeywords
from hypothesis import given
from hypothesis import strategies as st
from named import named
from refusals import refused
from torch.utils.data import ConcatDataset, Subset
from torch.utils.data import TensorDataset as Rows

X = torch.arange(23)
DATASET = bl.TensorDataset(X)
UNNEEDED = {
    "num_workers": 2,
    "pin_memory": True,
    "pin_memory_device": "cuda",
    "persistent_workers": True,
    "prefetch_factor": 4,
    "worker_init_fn": print,
    "multiprocessing_context": "spawn",
    "timeout": 5,
    "in_order": False,
}
USUAL = {
    "num_workers": 0,
    "pin_memory": False,
    "pin_memory_device": "",
    "persistent_workers": False,
    "prefetch_factor": None,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "timeout": 0,
    "in_order": True,
    "collate_fn": None,
    "sampler": None,
    "batch_sampler": None,
    "generator": None,
}


def values(batches):
    return [(batch[0] if isinstance(batch, tuple) else batch).tolist() for batch in batches]


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def test_arguments_without_use_have_no_effect_and_one_warning():
    with pytest.warns(UserWarning, match="no need") as caught:
        ours = bl.DataLoader(DATASET, 4, True, **UNNEEDED)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert all(name in str(caught[0].message) for name in UNNEEDED)
    assert values(ours) == values(bl.DataLoader(DATASET, 4, shuffle=True))


@pytest.mark.parametrize("name", UNNEEDED)
def test_each_argument_without_use_is_told_of(name):
    with pytest.warns(UserWarning, match=f"{name}="):
        bl.DataLoader(DATASET, **{name: UNNEEDED[name]})


def test_the_usual_values_of_torch_are_no_news():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.DataLoader(DATASET, 4, **USUAL)
        bl.DataLoader(DATASET, 4, collate_fn=torch.utils.data.default_collate)


def test_every_argument_of_torch_is_taken_and_has_its_row():
    ours, theirs = (inspect.signature(kind).parameters for kind in (bl.DataLoader, torch.utils.data.DataLoader))
    assert theirs.keys() <= ours.keys() | LoaderKeywords.__annotations__.keys()
    assert list(ours)[:3] == list(theirs)[:3]
    page = (Path(__file__).parents[4] / "docs/coming-from-torch.md").read_text(encoding="utf-8")
    assert [name for name in theirs if f"\n| `{name}` |" not in page] == []


def test_arguments_of_nobody_are_type_errors():
    with pytest.raises(TypeError, match="'num_worker'"):
        bl.DataLoader(DATASET, num_worker=2)


def test_functions_of_samples_are_refused_with_what_to_use():
    with refused(bl.ArgumentError, "collate_fn", "values", "SequenceDataset", "map", "MapDataset"):
        bl.DataLoader(DATASET, collate_fn=values)


def test_attributes_are_those_of_the_loader():
    ours = bl.DataLoader(DATASET, 4, True, seed=9, drop_last=True)
    plan = ours.plan()
    assert (ours.batch_size, ours.drop_last, ours.seed, ours.num_workers) == (4, True, 9, 0)
    assert list(ours.sampler) == [sample for batch in plan for sample in batch.tolist()]
    assert list(ours.batch_sampler) == values(plan)
    assert (len(ours.sampler), len(ours.batch_sampler)) == (20, 5)
    assert (ours.batch_sampler.batch_size, ours.batch_sampler.drop_last) == (4, True)
    ours.sampler.set_epoch(3)
    assert values(ours) == values(ours.plan(3))
    ours.batch_sampler.sampler.set_epoch(7)
    assert values(ours) == values(ours.plan(7))
    with refused(bl.ArgumentError, "2"):
        ours.collate_fn([1, 2])
    assert bl.DataLoader(DATASET, batching=bl.Listed([[1], [2, 3]])).batch_size is None
    assert bl.DataLoader(DATASET, batching=bl.Listed([[1, 2], [3]])).batch_size == 2
    assert bl.DataLoader(DATASET, 5, sampler=range(23)).batch_size == 5


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (X, X),
        (X.numpy(), X),
        (Subset(X, [5, 3, 8]), torch.tensor([5, 3, 8])),
        (ConcatDataset([X, X[:3]]), torch.cat([X, X[:3]])),
        (Rows(X), [X]),
        (Rows(X, -X), [X, -X]),
        (Subset(Subset(Rows(X, -X), [9, 5, 3]), [2, 0]), [torch.tensor([3, 9]), torch.tensor([-3, -9])]),
        (ConcatDataset([Rows(X), Subset(Rows(X), [4])]), [torch.cat([X, X[4:5]])]),
        (Subset(DATASET, range(4)), [X[:4]]),
        (ConcatDataset([bl.TensorDataset(X[:0]), bl.TensorDataset(X[:3])]), [X[:3]]),
        (Subset(bl.TensorDataset(numpy.arange(9)), numpy.array([8])), [torch.tensor([8])]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rows_of_torch_are_taken_as_they_are(dataset, expected):
    """The oracle is torch's loader, but for lists, which are tuples here."""
    size = 4
    parts = [expected] if isinstance(expected, torch.Tensor) else expected
    batches = list(bl.DataLoader(dataset, size))
    for place, batch in enumerate(batches):
        assert isinstance(batch, tuple) == (expected is not parts[0])
        arrays = batch if isinstance(batch, tuple) else (batch,)
        assert [torch.as_tensor(array).tolist() for array in arrays] == [
            part[place * size : (place + 1) * size].tolist() for part in parts
        ]
    assert len(batches) == -(-len(parts[0]) // size)


@pytest.mark.parametrize("dataset", [X[:0], X[:0].numpy(), Rows(X[:0]), Subset(Rows(X), [])])
def test_no_rows_are_named_as_such(dataset):
    with refused(bl.DataError, "no samples"):
        bl.DataLoader(dataset, 2)


def test_rows_of_torch_share_their_memory():
    (array,) = bl.DataLoader(Rows(X)).dataset.fields
    assert array.data_ptr() == X.data_ptr()


def test_batches_of_a_bare_array_resume():
    ours = bl.DataLoader(X, 4, True)
    iterator = iter(ours)
    begun = values([next(iterator), next(iterator)])
    other = bl.DataLoader(X, 4, True)
    other.load_state_dict(ours.state_dict())
    assert begun + values(other) == values(bl.DataLoader(X, 4, True))


@given(seed=st.integers(0, 99), size=st.integers(1, 9), drop_last=st.booleans(), epochs=st.integers(1, 3))
def test_samplers_give_the_batches_that_torch_makes_of_them(seed, size, drop_last, epochs):
    def sampler():
        return torch.utils.data.RandomSampler(X, generator=generator(seed))

    theirs = torch.utils.data.DataLoader(X, size, sampler=sampler(), drop_last=drop_last)
    ours = bl.DataLoader(X, size, sampler=sampler(), drop_last=drop_last)
    batches = torch.utils.data.BatchSampler(sampler(), size, drop_last)
    explicit = bl.DataLoader(X, batch_sampler=batches)
    for _ in range(epochs):
        expected = values(theirs)
        assert values(ours) == expected
        assert values(explicit) == expected
    assert len(ours) == len(theirs)


@given(stop=st.integers(0, 5), epoch=st.integers(0, 2), world=st.integers(1, 3))
def test_samplers_resume_in_another_process_and_world(stop, epoch, world):
    def loader(rank, world):
        sampler = torch.utils.data.RandomSampler(X, generator=generator())
        return bl.DataLoader(X, 4, sampler=sampler, rank=rank, world_size=world, uneven="short")

    whole = loader(0, 1)
    for _ in range(epoch):
        list(whole)
    expected = values(whole)
    before = loader(0, 1)
    for _ in range(epoch):
        list(before)
    iterator = iter(before)
    begun = values(next(iterator) for _ in range(stop))
    state = before.state_dict()
    ranks = [loader(rank, world) for rank in range(world)]
    for rank in ranks:
        rank.load_state_dict(state)
    taken = [values(rank) for rank in ranks]
    rest = [taken[place % world][place // world] for place in range(sum(map(len, taken)))]
    assert begun + rest == expected


class Endless:
    """Samples, or lists of them, without an end."""

    def __init__(self, item, says=None):
        self.item = item
        if says is not None:
            self.__class__ = type("Said", (Endless,), {"__len__": lambda self: says})

    def __iter__(self):
        return itertools.repeat(self.item)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": itertools.cycle(range(23))},
        {"sampler": Endless(3)},
        {"sampler": Endless(3, says=23)},
        {"batch_sampler": Endless([1, 2])},
        {"batch_sampler": itertools.repeat([1, 2])},
    ],
    ids=["cycle", "samples", "a length that is none", "batches", "repeat"],
)
def test_samplers_without_an_end_are_refused(options):
    name, sampler = next(iter(options.items()))
    with refused(bl.ArgumentError, name, type(sampler).__name__, str(2**20), "shuffle=True", "islice"):
        bl.DataLoader(X, **options)


def test_a_sampler_may_repeat_samples_on_purpose():
    often = torch.utils.data.RandomSampler(range(3), replacement=True, num_samples=2**20 + 5)
    assert len(bl.DataLoader(X, 1024, sampler=often)) == 2**10 + 1
    assert len(bl.DataLoader(X, sampler=(sample for _ in range(500) for sample in range(23)))) == 180


def test_samplers_with_epochs_are_told_of_them():
    class Epochs:
        def __init__(self):
            self.epoch, self.read = None, 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            self.read += 1
            return iter([[self.epoch, self.epoch + 1], [9]])

    sampler = Epochs()
    ours = bl.DataLoader(X, batch_sampler=sampler)
    assert [values(ours) for _ in range(3)] == [[[0, 1], [9]], [[1, 2], [9]], [[2, 3], [9]]]
    assert sampler.read == 3
    assert values(ours.plan(7)) == [[7, 8], [9]]
    ours.set_epoch(5)
    assert values(ours) == [[5, 6], [9]]


def test_plans_samplers_and_lists_of_ours():
    plan = bl.Plan(23, 5, shuffle=True, seed=2)
    ours = bl.DataLoader(X, batch_sampler=plan)
    assert values(ours) == values(ours) == values(plan)
    ours = bl.DataLoader(X, batch_sampler=bl.BatchSampler(23, 5, True, seed=2))
    assert [values(ours) for _ in range(2)] == [values(plan), values(plan.at_epoch(1))]
    ours = bl.DataLoader(X, batch_sampler=iter([[1], [2, 3]]))
    assert values(ours) == values(ours) == [[1], [2, 3]]


def test_samplers_that_come_in_another_order_do_not_resume():
    ours = bl.DataLoader(X, 4, sampler=torch.utils.data.RandomSampler(X, generator=generator(1)))
    next(iter(ours))
    other = bl.DataLoader(X, 4, sampler=torch.utils.data.RandomSampler(X, generator=generator(2)))
    with refused(bl.StateError, ours.state_dict()["lists"]):
        other.load_state_dict(ours.state_dict())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sampler": [1], "shuffle": True}, ("sampler", "shuffle")),
        ({"sampler": [1], "batch_sampler": [[1]]}, ("sampler", "batch_sampler")),
        ({"batch_sampler": [[1]], "batch_size": 4}, ("batch_sampler", "batch_size")),
        ({"batch_sampler": [[1]], "batching": bl.FixedSize(4)}, ("batch_sampler", "batching")),
        ({"sampler": 3}, ("sampler", "int")),
        ({"batch_sampler": [1, 2]}, ("batch 0",)),
        ({"sampler": torch.utils.data.DistributedSampler(X, 2, 1)}, ("DistributedSampler", "1", "2", "shuffle=True")),
        ({"batch_sampler": bl.Plan(23, 4, rank=1, world_size=2)}, ("Plan", "1", "2")),
        ({"batch_sampler": bl.BatchSampler(23, 4, rank=1, world_size=2)}, ("BatchSampler", "1", "2")),
        ({"generator": 3}, ("generator", "int")),
        ({"generator": generator(), "seed": 4}, ("generator", "seed=4")),
    ],
    ids=named,
)
def test_samplers_and_generators_that_make_no_sense(options, named):
    with refused(bl.ArgumentError, *named):
        bl.DataLoader(X, **options)


def test_a_generator_gives_the_seed_by_one_draw():
    ours = generator()
    loader = bl.DataLoader(X, 4, True, generator=ours)
    before = ours.get_state()
    assert before.equal(generator().get_state()), "nothing is drawn before an epoch begins"
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator()).item())
    assert values(loader) == values(bl.DataLoader(X, 4, True, seed=seed))
    after = ours.get_state()
    assert not after.equal(before)
    list(loader)
    assert ours.get_state().equal(after)
    assert loader.seed == seed
    numbers = bl.DataLoader(X, 4, True, generator=numpy.random.default_rng(3))
    assert numbers.seed == int(numpy.random.default_rng(3).integers(2**63))


def test_a_state_has_the_seed_and_the_generator_none():
    ours = bl.DataLoader(X, 4, True, generator=generator(1))
    next(iter(ours))
    other = bl.DataLoader(X, 4, True, generator=generator(2))
    other.load_state_dict(ours.state_dict())
    assert other.seed == ours.seed
    assert values(other) == values(ours.plan(0))[1:]


@pytest.mark.parametrize("make", [lambda x: bl.TensorDataset(x), lambda x: bl.SequenceDataset(x=(x, [0, 3, 23]))])
def test_memory_that_torch_shares_moves_the_dataset_too(make):
    rows = torch.arange(23)
    ours = bl.DataLoader(make(rows), 2, seed=3, shuffle=True)
    expected = [str(batch) for batch in bl.DataLoader(make(rows.clone()), 2, seed=3, shuffle=True)]
    dataset = ours.dataset
    late = bl.DataLoader(dataset, 2, seed=3, shuffle=True)
    rows.share_memory_()
    assert [str(batch) for batch in ours] == expected
    assert [str(batch) for batch in late] == expected
    assert [str(batch) for batch in bl.DataLoader(dataset, 2, seed=3, shuffle=True)] == expected
    ours.set_epoch(0)
    assert [str(batch) for batch in ours] == expected


def test_an_iteration_under_way_ends_where_memory_was_shared():
    rows = torch.arange(2**20)
    ours = bl.DataLoader(bl.TensorDataset(rows), 64)
    iterator = iter(ours)
    next(iterator)
    time.sleep(0.3)  # no thread is reading
    rows.share_memory_()
    with refused(bl.DataError, "field 0", "share_memory_()"):
        list(iterator)
    assert values([next(iter(ours))]) == [list(range(64))]


def test_spawned_workers_leave_the_dataset_as_it_is(interpreter):
    interpreter(
        """
        import batchloom as bl, torch

        if __name__ == "__main__":
            dataset = bl.TensorDataset(torch.arange(50.))
            ours = bl.DataLoader(dataset, 10)
            before = [batch[0].tolist() for batch in ours]
            workers = {"num_workers": 1, "multiprocessing_context": "spawn"}
            theirs = torch.utils.data.DataLoader(dataset, batch_size=10, **workers)
            assert [batch[0].tolist() for batch in theirs] == before
            assert [batch[0].tolist() for batch in ours] == before
        """
    )


class Permuted:
    """A sampler of arrays without dimensions, as torch gives them."""

    def __iter__(self):
        return iter(torch.randperm(20, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("sampler", [Permuted(), torch.tensor([3, 1, 2]), [numpy.array(3)]])
def test_samplers_may_give_arrays_without_dimensions(sampler):
    expected = [int(sample) for sample in sampler]
    loader = bl.DataLoader(torch.arange(20), 2, sampler=sampler)
    assert torch.cat(list(loader)).tolist() == expected


def test_a_batch_sampler_of_samples_is_refused():
    with refused(bl.ArgumentError):
        bl.DataLoader(torch.arange(20), batch_sampler=torch.arange(3))


def test_the_plan_of_the_epoch_under_way_is_known_with_any_sampler():
    loader = bl.DataLoader(torch.arange(20), 5, sampler=torch.utils.data.RandomSampler(range(20)))
    for step, batch in enumerate(loader):
        assert loader.plan(loader.epoch)[step].tolist() == batch.tolist()
