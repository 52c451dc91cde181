"""Rows of one shape on several ranks, which are processes that talk: one shape everywhere, each token once, resumed."""

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
    values, offsets = torch.arange(int(lengths.sum())), numpy.concatenate([[0], numpy.cumsum(lengths)])
    patches = numpy.random.default_rng(1).integers(0, 40, 700)
    rules = {
        "rows": bl.Packing(256, rows=3, oversize="split", pool=150),
        "rests": bl.Packing(256, rows=3, rests="continue", pool=150),
        "budgets": bl.Packing({"tokens": 700, "patches": 300}, pool=150),
    }
    more = {} if rule == "budgets" else {"block_mask": "causal", "buffers": "static"}
    loader = bl.DataLoader(
        bl.SequenceDataset(tokens=(values, offsets), sizes={"patches": patches}),
        batching=rules[rule], shuffle=True, seed=3, uneven="short", balance=rule != "rests", **more,
    )
    if state != "none":
        loader.load_state_dict(json.loads(state))
    plan, seen, addresses = loader.plan(), [], set()
    for step, batch in enumerate(loader):
        if step == int(stop):
            break
        real = batch["tokens"][batch["segment_ids"] > 0]
        index = batch["index"][batch["index"] >= 0]
        here = plan.step(step)
        if len(here.batches) == loader.world_size:
            shapes = [None] * loader.world_size
            mine = {name: list(value.shape) for name, value in batch.items() if torch.is_tensor(value)}
            distributed.all_gather_object(shapes, mine)
            assert rule == "budgets" or shapes == shapes[:1] * loader.world_size, shapes
            total = torch.tensor([len(real), len(index)])
            distributed.all_reduce(total)
            assert total[0] == here.tokens
        if rule == "budgets":
            assert len(real) <= 700 and patches[index].sum() <= 300
        addresses.add(batch["tokens"].data_ptr())
        seen += real.tolist()
        state = loader.state_dict()
    print(json.dumps({"seen": seen, "state": state, "total": len(values), "addresses": len(addresses)}))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.law("L3", "L5")
@pytest.mark.parametrize("rule", ["rows", "rests", "budgets"])
def test_an_epoch_that_changes_its_world(ranks, rule, tmp_path):
    first = ranks(RANK, 3, rule, tmp_path / "first", 4, "none", timeout=100)
    states = [rank["state"] for rank in first]
    assert states == states[:1] * 3
    second = ranks(RANK, 2, rule, tmp_path / "second", 10**6, json.dumps(states[0]), timeout=100)
    times = Counter(token for rank in first + second for token in rank["seen"])
    assert times == Counter(range(first[0]["total"]))
    if rule != "budgets":
        assert {rank["addresses"] for rank in first + second} == {1}
