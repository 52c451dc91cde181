"""Batches of one source on ranks that are processes: all see the same at every step, through a change of world."""

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

    uneven, path, stop, state = sys.argv[1:]
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    sizes = {"web": 83, "books": 41, "code": 7}
    starts = numpy.cumsum([0, *sizes.values()])
    sources = {
        name: bl.TensorDataset(x=numpy.arange(size) + start) for (name, size), start in zip(sizes.items(), starts)
    }
    mixture = bl.Mixture(sources, when_exhausted="renormalise")
    loader = bl.DataLoader(mixture, 4, True, seed=5, homogeneous_by="source", uneven=uneven, output="torch")
    if state != "none":
        loader.load_state_dict(json.loads(state))
    seen = []
    for step, batch in enumerate(loader):
        if step == int(stop):
            break
        # A head for each source: all ranks have to enter the same one, with as many samples.
        source = batch["source"]
        here = torch.tensor([source.min(), source.max(), len(source)])
        parts = [torch.empty_like(here) for _ in range(world_size)]
        distributed.all_gather(parts, here)
        assert all(part[0] == part[1] and part.tolist() == parts[0].tolist() for part in parts), parts
        weight = batch["weight"] if uneven == "mask" else torch.ones(len(source))
        seen += batch["x"][weight != 0].tolist()
        state = loader.state_dict()
    print(json.dumps({"seen": seen, "state": state, "steps": step}))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.parametrize("uneven", ["mask", "pad"])
def test_every_step_has_one_source_in_every_world(ranks, uneven, tmp_path):
    first = ranks(RANK, 3, uneven, tmp_path / "first", 4, "none", timeout=100)
    states = [rank["state"] for rank in first]
    assert states == states[:1] * 3
    second = ranks(RANK, 2, uneven, tmp_path / "second", 10**6, json.dumps(states[0]), timeout=100)
    times = Counter(sample for rank in first + second for sample in rank["seen"])
    assert set(times) == set(range(131))
    # A step is filled by at most one batch less than there are ranks, for each source and world.
    assert set(times.values()) == {1} if uneven == "mask" else sum(times.values()) <= 131 + 3 * 4 * (2 + 1)
