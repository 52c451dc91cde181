"""The rank and the world size: as given, as torch.distributed says, or as the environment says."""

import batchloom as bl
import numpy
import pytest
from oracles.runs import Run
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


def test_the_environment_is_read_when_a_loader_is_made(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = Run(40, 3).loader(1, 0)
    monkeypatch.setenv("RANK", "0")
    assert (loader.rank, loader.world_size) == (0, 1)


WORKER = """
    import json
    import os
    import sys
    import numpy
    import torch
    import torch.distributed as distributed
    import batchloom as bl

    mode, path = sys.argv[1:]
    if mode == "gloo":
        place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        distributed.init_process_group("gloo", init_method=f"file://{path}", **place)
        # What is asked first, so the environment may say nonsense.
        os.environ |= {"RANK": "nonsense", "WORLD_SIZE": "nonsense"}

    X = torch.arange(101 * 3.0).reshape(101, 3)
    loader = bl.DataLoader(bl.TensorDataset(X, numpy.arange(101)), 8, shuffle=True, seed=3)
    report = {"place": [loader.rank, loader.world_size], "length": len(loader), "epochs": [], "states": []}
    for _ in range(2):
        seen = []
        for rows, samples in loader:
            assert torch.equal(rows, X[samples])
            if mode == "gloo":
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
    if mode == "gloo":
        distributed.destroy_process_group()
"""


@pytest.mark.parametrize("mode", ["environment", "gloo"])
def test_two_processes(ranks, tmp_path, mode):
    first, second = ranks(WORKER, 2, mode, tmp_path / "rendezvous")
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
