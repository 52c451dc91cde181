"""Epochs and states of loaders of sequences, also in other processes."""

import pickle

import batchloom as bl
import numpy
import polars
import pytest
from batchloom.collate.schema import field_views
from oracles import batching
from oracles.batching import flat
from oracles.sequences import SIZES


@pytest.mark.parametrize(
    "rule",
    [bl.TokenBudget(60), bl.CostOptimal(bl.CostModel(9, 1, 1)), bl.Packing(60)],
    ids=lambda rule: type(rule).__name__,
)
def test_each_iteration_is_the_next_epoch(rule):
    sizes = [place * 7 % 41 for place in range(80)]
    loader = bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True)
    epochs = [[batching.held(batch) for batch in loader] for _ in range(3)]
    assert len(set(map(str, epochs))) == 3
    assert [sorted(flat(epoch)) for epoch in epochs] == [sorted(flat(epochs[0]))] * 3
    for number, epoch in enumerate(epochs):
        loader.set_epoch(number)
        assert len(loader) == len(epoch)
        assert [batching.held(batch) for batch in loader] == epoch


@pytest.mark.parametrize(
    "rule",
    [bl.TokenBudget(60), bl.TokenBudget(30, oversize="truncate"), bl.Packing(60), bl.Packing(16, oversize="split")],
    ids=str,
)
def test_every_rank_knows_the_tokens_of_every_step(rule):
    sizes = [place * 7 % 41 for place in range(80)]
    loaders = [
        bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True, rank=rank, world_size=3)
        for rank in range(3)
    ]
    plans = [loader.plan() for loader in loaders]
    for number, batches in enumerate(zip(*loaders, strict=True)):
        tokens = [len(row) - 1 for batch in batches for row in batching.held(batch)]
        assert {(plan.step(number).tokens, plan.step(number).samples) for plan in plans} == {(sum(tokens), len(tokens))}


def test_an_epoch_that_is_interrupted_by_an_exception_goes_on():
    sizes = [place * 7 % 41 for place in range(80)]
    loader = bl.DataLoader(batching.dataset(sizes), batching=bl.TokenBudget(60), shuffle=True)
    whole = [batching.held(batch) for batch in loader]
    loader.set_epoch(0)
    taken = []

    def consume():
        for batch in loader:
            taken.append(batching.held(batch))
            if len(taken) == 5:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consume()
    resumed = bl.DataLoader(batching.dataset(sizes), batching=bl.TokenBudget(60), shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert taken + [batching.held(batch) for batch in resumed] == whole


def test_interrupted_cuts_lose_nothing(monkeypatch):
    sizes = [place * 7 % 41 for place in range(300)]
    calls, received = [], []

    def loader():
        return bl.DataLoader(batching.dataset(sizes), batching=bl.Packing(60), shuffle=True)

    def views(*options):
        first, *others = field_views(*options)

        def interrupted(lent):
            calls.append(lent)
            if len(calls) in (1, 4, 40):
                raise KeyboardInterrupt
            return first.one(lent)

        return [first._replace(one=interrupted), *others]

    whole = [batching.held(batch) for batch in loader()]
    monkeypatch.setattr("batchloom.delivery.host.field_views", views)
    batches = iter(loader())
    while True:
        try:
            received.append(batching.held(next(batches)))
        except KeyboardInterrupt:
            continue
        except StopIteration:
            break
    assert received == whole
    assert len(calls) > 40


def test_datasets_and_plans_go_to_other_processes(script, tmp_path):
    dataset = bl.SequenceDataset(
        x=polars.Series([list(range(size)) for size in SIZES]),
        y=[numpy.ones(size, numpy.float16) for size in SIZES],
        label=numpy.arange(12),
    )
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20), shuffle=True)
    batches = iter(loader)
    next(batches), next(batches)
    path = tmp_path / "state"
    path.write_bytes(
        pickle.dumps((dataset, loader.plan(0), loader.state_dict(), [batch["index"].tolist() for batch in batches]))
    )
    script(
        """
        import pickle
        import sys
        import batchloom as bl

        dataset, plan, state, expected = pickle.load(open(sys.argv[1], "rb"))
        loader = bl.DataLoader(dataset, batching=plan.batching, shuffle=True)
        assert loader.plan(0) == plan
        loader.load_state_dict(state)
        assert [batch["index"].tolist() for batch in loader] == expected
        """,
        path,
    )


def test_a_forked_child_sees_the_dataset(script):
    script(
        """
        import os
        import numpy
        import batchloom as bl

        dataset = bl.SequenceDataset(x=[numpy.arange(size) for size in (3, 0, 7, 1)])
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(9))
        assert sum(len(batch["index"]) for batch in loader) == 4
        child = os.fork()
        if child == 0:
            count = sum(len(batch["index"]) for batch in bl.DataLoader(dataset, batching=bl.Packing(9)))
            os._exit(count)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        """
    )
