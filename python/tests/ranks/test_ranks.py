"""The rank and the world size: as given, as torch.distributed says, or as the environment says."""

import json
import pickle

import batchloom as bl
import numpy
import pytest
import torch
import torch.distributed as distributed
from batchloom.ranks.ranks import _compared as compared
from oracles.runs import Run, listed
from refusals import refused


def place(**options):
    loader = bl.DataLoader(bl.TensorDataset(numpy.arange(100)), 4, **options)
    return loader.rank, loader.world_size


def test_alone_by_default():
    assert place() == (0, 1)


def test_the_environment_decides_where_nothing_is_given(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert place() == (2, 5)
    assert place(rank=0, world_size=3) == (0, 3)


@pytest.mark.parametrize(
    ("rank", "world_size"),
    [
        ("1", None),
        (None, "2"),
        ("one", "2"),
        ("1", "two"),
        ("", "2"),
        ("1.0", "2"),
        ("2", "2"),
        ("-1", "2"),
        ("0", "0"),
    ],
)
def test_an_environment_that_makes_no_sense(monkeypatch, rank, world_size):
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(bl.ArgumentError) as caught:
        place()
    assert any(value is not None and value in str(caught.value) for value in (rank, world_size))
    assert place(rank=1, world_size=2) == (1, 2)


@pytest.mark.parametrize("given", [{"rank": 1}, {"world_size": 2}, {"rank": 0}, {"world_size": 1}])
def test_half_a_place_is_an_error_whatever_the_environment_says(monkeypatch, given):
    ((name, value),) = given.items()
    with refused(bl.ArgumentError, name, str(value), "both", "neither"):
        place(**given)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(bl.ArgumentError, name, str(value), "both", "neither"):
        place(**given)


LAUNCHED = [
    ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
    ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, (1, 2)),
    ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
    ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "12"}, (9, 12)),
    ({"LOCAL_RANK": "1", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, (3, 4)),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (3, 4)),
    # Tasks of SLURM may be runs of their own, and what is left of a launcher that has ended says nothing.
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, (0, 1)),
    ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, (0, 1)),
]


@pytest.mark.parametrize(("environment", "expected"), LAUNCHED)
def test_the_variables_of_launchers(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert place() == expected


@pytest.mark.parametrize("environment", [{"NODE_RANK": "1", "LOCAL_RANK": "0"}, {"SLURM_PROCID": "1"}])
def test_a_world_without_a_rank_is_an_error_when_something_asks(monkeypatch, environment):
    monkeypatch.setenv("WORLD_SIZE", "4")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    loader = Run(40, 3).loader(None, None)
    for ask in (len, bl.DataLoader.state_dict, bl.DataLoader.plan, lambda loader: next(iter(loader))):
        with refused(bl.ArgumentError, 'WORLD_SIZE="4"', "RANK", "given"):
            ask(loader)
    assert 'WORLD_SIZE="4"' in repr(loader)
    iter(loader)
    assert loader.epoch == 0


def test_the_environment_is_read_when_something_asks_and_then_kept(monkeypatch):
    loader, given = Run(40, 3).loader(None, None), Run(40, 3).loader(1, 0)
    batches = iter(loader)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert next(batches)[0].tolist() == Run(40, 3).seen(0, 2, 1)[0]
    monkeypatch.setenv("RANK", "0")
    assert (loader.rank, loader.world_size) == (1, 2)
    assert (given.rank, given.world_size) == (0, 1)


class Group:
    """A stand-in for torch.distributed: its ranks, and the store of its process group."""

    def __init__(self, monkeypatch):
        self.place, self.store = None, distributed.HashStore()
        monkeypatch.setattr(distributed, "is_initialized", lambda: self.place is not None)
        monkeypatch.setattr(distributed, "get_rank", lambda: self.place[0])
        monkeypatch.setattr(distributed, "get_world_size", lambda: self.place[1])
        monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: self.store)


@pytest.fixture
def group(monkeypatch):
    return Group(monkeypatch)


@pytest.mark.parametrize("asked", [False, True])
def test_a_loader_made_before_the_process_group_follows_it(group, asked):
    run = Run(101, 4)
    loader, given = run.loader(None, None), run.loader(1, 0)
    if asked:
        assert (len(loader), loader.rank, loader.state_dict()["worlds"]) == (26, 0, [])
    batches = iter(loader)
    group.place = (1, 2)
    assert len(loader) == 13
    assert listed(batches) == run.seen(0, 2, 1)
    group.place = (2, 3)
    assert listed(loader) == run.seen(1, 3, 2)
    # Nothing is said any more, as after the group was destroyed: what was found stays.
    group.place = None
    assert (loader.rank, loader.world_size) == (2, 3)
    assert listed(given) == run.seen(0)


def test_what_is_left_of_a_loaded_epoch_is_shared_by_the_ranks_of_then(group):
    run = Run(100, 4, uneven="short")
    loader, plan = run.loader(None, None), run.plan(3)
    loader.load_state_dict(plan._native.state(5))
    group.place = (1, 2)
    assert (loader.remaining, loader.epoch) == (10, 3)
    assert listed(loader) == run.seen(3)[5:][1::2]


def test_another_rank_in_mid_epoch_is_refused_with_ways_out(group):
    run = Run(100, 4)
    for way in range(3):
        group.place = None
        loader = run.loader(None, None)
        next(iter(loader))
        group.place = (1, 2)
        # Questions are answered for the epoch that was left in the middle.
        assert (loader.world_size, loader.state_dict()["worlds"]) == (1, [[1, 1]])
        batches = iter(loader)
        for _ in range(2):
            with refused(bl.LoaderError, "1 of 25", "rank 0 of 1", "rank 1 of 2", "epoch 0", "epoch 1"):
                next(batches)
        if way < 2:
            loader.set_epoch(way)
            assert listed(batches) == run.seen(way, 2, 1)
        else:
            loader.load_state_dict(loader.state_dict())
            assert listed(batches) == run.seen(0)[1:][1::2]


def test_ranks_that_disagree_are_named(group):
    def begin(rank, run, **options):
        group.place = (rank, 3)
        next(iter(run.loader(None, None, **options)))

    compared.clear()
    begin(1, Run(100, 4, seed=1))
    for other in (Run(101, 4, seed=1), Run(100, 4, seed=2), Run(100, 4, seed=1, shuffle=False)):
        compared.clear()  # as in another process
        for _ in range(2):  # another try is no way round it
            with refused(bl.DataError, "rank 2 of 3", "rank 1", "seed" if other.seed == 2 else "fingerprint"):
                begin(2, other)
    compared.clear()
    begin(0, Run(100, 4, seed=1))
    # Each rank compares once for a loader; a loader of its own does not.
    loader = Run(99, 4).loader(1, 0)
    compared.clear()
    listed(loader)
    assert not compared


def test_samplers_of_sizes_that_disagree_are_named(group):
    def begin(rank, sizes):
        group.place = (rank, 3)
        next(iter(bl.BatchSampler(sizes, batching=bl.TokenBudget(50))))

    compared.clear()
    begin(1, list(range(1, 41)))
    compared.clear()  # as in another process
    with refused(bl.DataError, "rank 2 of 3", "rank 1", "fingerprint"):
        begin(2, list(range(2, 42)))
    compared.clear()
    begin(0, list(range(1, 41)))


WORKER = """
    import json
    import os
    import pickle
    import sys
    import numpy
    import torch
    import torch.distributed as distributed
    import batchloom as bl

    mode, path, pickled = sys.argv[1:]
    X = torch.arange(101 * 3.0).reshape(101, 3)
    loader = bl.DataLoader(bl.TensorDataset(X, numpy.arange(101)), 8, shuffle=True, seed=3)
    if mode == "late":
        # A loader is made, and asked, before there are ranks, as under a launcher that sets no RANK.
        for name in ("RANK", "WORLD_SIZE"):
            os.environ[f"MY_{name}"] = os.environ.pop(name)
        assert (len(loader), loader.rank) == (13, 0)
        os.environ |= {name: os.environ.pop(f"MY_{name}") for name in ("RANK", "WORLD_SIZE")}
    if mode == "pickled":
        loader = pickle.loads(bytes.fromhex(pickled))
    if mode != "environment":
        place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        distributed.init_process_group("gloo", init_method=f"file://{path}", **place)
        # What is asked first, so the environment may say nonsense.
        os.environ |= {"RANK": "nonsense", "WORLD_SIZE": "nonsense"}

    report = {"place": [loader.rank, loader.world_size], "length": len(loader), "epochs": [], "states": []}
    for _ in range(2):
        seen = []
        for rows, samples in loader:
            assert torch.equal(rows, X[samples])
            if mode != "environment":
                # A collective at each step: unequal step counts would hang here.
                total = torch.tensor(len(samples))
                distributed.all_reduce(total)
                step = loader.plan(len(report["epochs"])).step(len(seen))
                assert total.item() == step.samples
            seen.append(samples.tolist())
            report["states"].append(loader.state_dict())
        report["epochs"].append(seen)
    report["states"].append(loader.state_dict())
    print(json.dumps(report))
    if mode != "environment":
        distributed.barrier()
        distributed.destroy_process_group()
"""


@pytest.mark.parametrize("mode", ["environment", "gloo", "late", "pickled"])
def test_two_processes(ranks, tmp_path, mode):
    X = torch.arange(101 * 3.0).reshape(101, 3)
    loader = bl.DataLoader(bl.TensorDataset(X, numpy.arange(101)), 8, shuffle=True, seed=3)
    first, second = ranks(WORKER, 2, mode, tmp_path / "rendezvous", pickle.dumps(loader).hex())
    assert (first["place"], second["place"]) == ([0, 2], [1, 2])
    assert first["length"] == second["length"] == 7
    assert first["states"] == second["states"]
    run = Run(101, 8, seed=3)
    for epoch in range(2):
        assert [first["epochs"][epoch], second["epochs"][epoch]] == [run.seen(epoch, 2, rank) for rank in range(2)]
        both = [sample for report in (first, second) for batch in report["epochs"][epoch] for sample in batch]
        assert set(both) == set(range(101))


def test_torch_distributed_comes_before_the_environment_and_after_arguments(script, tmp_path):
    script(
        """
        import sys
        import numpy
        import torch.distributed as distributed
        import batchloom as bl

        dataset = bl.TensorDataset(numpy.arange(10))
        loader = bl.DataLoader(dataset)
        assert (loader.rank, loader.world_size) == (1, 3)
        distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
        loader = bl.DataLoader(dataset)
        assert (loader.rank, loader.world_size) == (0, 1)
        loader = bl.DataLoader(dataset, rank=2, world_size=5)
        assert (loader.rank, loader.world_size) == (2, 5)
        distributed.destroy_process_group()
        loader = bl.DataLoader(dataset)
        assert (loader.rank, loader.world_size) == (1, 3)
        """,
        tmp_path / "rendezvous",
        RANK=1,
        WORLD_SIZE=3,
    )


FORKED = """
    import json
    import multiprocessing
    import sys
    import numpy
    import torch.distributed as distributed
    import batchloom as bl

    def train(rank, loader, batches, queue):
        distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
        queue.put((rank, [batch[0].tolist() for batch in batches] + [batch[0].tolist() for batch in loader]))
        distributed.barrier()
        distributed.destroy_process_group()

    loader = bl.DataLoader(bl.TensorDataset(numpy.arange(101)), 8, shuffle=True, seed=3)
    batches = iter(loader)  # has not begun, so it begins in each child
    assert len(loader) == 13
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=train, args=(rank, loader, batches, queue)) for rank in range(2)]
    for child in children:
        child.start()
    found = dict(queue.get(timeout=60) for _ in children)
    for child in children:
        child.join()
        assert child.exitcode == 0
    print(json.dumps([found[0], found[1]]))
"""


def test_processes_that_are_forked_after_the_loader_was_made(script, tmp_path):
    run = Run(101, 8, seed=3)
    found = json.loads(script(FORKED, tmp_path / "rendezvous"))
    assert found == [run.seen(0, 2, rank) + run.seen(1, 2, rank) for rank in range(2)]


DISAGREEING = """
    import json
    import os
    import sys
    import numpy
    import torch.distributed as distributed
    import batchloom as bl

    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)
    # Some ranks do not iterate at all: no one waits for them.
    if rank < 2:
        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(100 + rank)), 8)
        try:
            next(iter(loader))
            said = "nothing"
        except bl.DataError as error:
            said = str(error)
    else:
        said = "absent"
    print(json.dumps(said))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.law("L2")
def test_a_rank_with_another_dataset_is_named_and_no_rank_waits(ranks, tmp_path):
    first, second, third = ranks(DISAGREEING, 3, tmp_path / "rendezvous")
    assert third == "absent"
    (message,) = {first, second} - {"nothing"}
    for value in ("rank 0", "rank 1", "samples 100", "samples 101", "of 3"):
        assert value in message


SAMPLING = """
    import json
    import os
    import sys
    import torch
    import batchloom as bl
    from torch import distributed
    from torch.utils.data import RandomSampler

    way, path = sys.argv[1:]
    rank, X = int(os.environ["RANK"]), torch.arange(40)
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(0 if way == "late" else rank)
    loaders = {
        "alike": lambda: bl.DataLoader(X, 4, sampler=RandomSampler(X, generator=torch.Generator().manual_seed(5))),
        "unseeded": lambda: bl.DataLoader(X, 4, sampler=RandomSampler(X)),
        "late": lambda: bl.DataLoader(X, 4, sampler=RandomSampler(X)),
        "lists": lambda: bl.DataLoader(X, batching=bl.Listed([[rank], [2]])),
    }
    loader, said = loaders[way](), []
    for epoch in range(2):
        if epoch == 1:
            torch.manual_seed(rank)
        try:
            said.append([batch.tolist() for batch in loader])
        except bl.DataError as error:
            said.append(str(error))
        distributed.barrier()
    print(json.dumps(said))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.law("L2")
@pytest.mark.parametrize(("way", "epoch"), [("alike", None), ("unseeded", 0), ("late", 1), ("lists", 0)])
def test_samplers_that_differ_between_ranks_are_named_in_the_epoch_in_which_they_do(ranks, tmp_path, way, epoch):
    """Ranks would else repeat some samples and leave out others: nobody would notice."""
    found = ranks(SAMPLING, 2, way, tmp_path / "rendezvous")
    messages = [[said for said in rank if isinstance(said, str)] for rank in found]
    if epoch is None:
        assert messages == [[], []]
        for first, second in zip(*found, strict=True):
            assert sorted(sample for batch in first + second for sample in batch) == list(range(40))
        return
    (message,) = {rank[epoch] for rank in found if isinstance(rank[epoch], str)}
    for value in ("rank 0", "rank 1", "of 2", "lists ", "seed"):
        assert value in message
    assert all(not isinstance(said, str) for rank in found for said in rank[:epoch])


# Loaders of one rank


def test_a_loader_of_one_rank_ignores_the_world(group, monkeypatch):
    group.place = (1, 4)
    monkeypatch.setenv("WORLD_SIZE", "4")
    alone = bl.DataLoader(torch.arange(10), 5, distributed=False)
    assert (alone.rank, alone.world_size, len(alone)) == (0, 1, 2)
    assert torch.cat(list(alone)).tolist() == list(range(10))
    assert (pickle.loads(pickle.dumps(alone)).world_size, alone[1].tolist()) == (1, [5, 6, 7, 8, 9])
    assert len(bl.BatchSampler(10, 5, distributed=False)) == 2
    assert bl.DataLoader(torch.arange(10), 5).world_size == 4


@pytest.mark.parametrize("given", [{"rank": 0, "world_size": 2}])
def test_a_loader_of_one_rank_has_no_other_ranks(given):
    with refused(bl.ArgumentError, "distributed is False", *given):
        bl.DataLoader(torch.arange(10), 5, distributed=False, **given)
    with refused(bl.ArgumentError, "distributed", "3"):
        bl.DataLoader(torch.arange(10), 5, distributed=3)


def test_a_rank_that_iterates_alone_is_logged_once(ranks, tmp_path):
    code = """
import json, logging, os, sys
import torch, torch.distributed as distributed
import batchloom as bl

rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("batchloom").addHandler(handler)

def seen(loader):
    said.clear()
    return sum(len(x) for epoch in range(2) for x in loader), list(said)

together = bl.DataLoader(torch.arange(100), 10, shuffle=True)
distributed.barrier()
first = [len(list(together))]
distributed.barrier()
results = [seen(together)]
if rank == 0:
    results += [seen(bl.DataLoader(torch.arange(60), 10)), seen(bl.DataLoader(torch.arange(60), 10, distributed=False))]
distributed.barrier()
print(json.dumps(results))
"""
    found, other = ranks(code, 2, tmp_path / "group")
    assert found[0] == [100, []]
    assert other == [[100, []]]
    (count, (line,)) = found[1]
    assert count == 60
    assert "rank 0 of 2" in line
    assert "distributed=False" in line
    assert found[2] == [120, []]
