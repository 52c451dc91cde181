"""Sequences on several ranks, which are processes that talk: equal steps, counts known beforehand, elastic resume."""

import json
from collections import Counter

import pytest

RANK = """
    import json
    import os
    import sys
    import numpy
    import torch
    import torch.distributed as distributed
    import batchloom as bl

    rule, path, stop, state = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{path}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    lengths = numpy.random.default_rng(0).geometric(0.02, 700)
    values = torch.arange(int(lengths.sum()))
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    rules = {
        "budget": bl.TokenBudget(800, pool=150),
        "optimal": bl.CostOptimal(bl.CostModel(100, 1), max_tokens=800, pool=150),
        "packing": bl.Packing(800, pool=150),
    }
    loader = bl.DataLoader(
        bl.SequenceDataset(tokens=(values, offsets)),
        batching=rules[rule], shuffle=True, seed=3, uneven="short", balance=True, largest_first=True,
    )
    if state != "none":
        loader.load_state_dict(json.loads(state))
    plan, seen, tokens = loader.plan(), [], 0
    for step, batch in enumerate(loader):
        if step == int(stop):
            break
        real = batch["tokens"].numel() if rule == "packing" else int(batch["lengths"].sum())
        here = plan.step(step)
        if len(here.batches) == loader.world_size:
            total = torch.tensor([real, len(batch["index"])])
            distributed.all_reduce(total)
            assert total.tolist() == [here.tokens, here.samples]
        tokens += real
        seen += batch["index"].tolist()
        state = loader.state_dict()
    print(json.dumps({"seen": seen, "tokens": tokens, "state": state, "total": int(lengths.sum())}))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.law("L3", "L5")
@pytest.mark.parametrize("rule", ["budget", "packing"])
def test_an_epoch_that_changes_its_world(ranks, rule, tmp_path):
    first = ranks(RANK, 3, rule, tmp_path / "first", 5, "none", timeout=100)
    states = [rank["state"] for rank in first]
    assert states == states[:1] * 3
    second = ranks(RANK, 2, rule, tmp_path / "second", 10**6, json.dumps(states[0]), timeout=100)
    times = Counter(sample for rank in first + second for sample in rank["seen"])
    assert times == Counter(range(700))
    assert sum(rank["tokens"] for rank in first + second) == first[0]["total"]
