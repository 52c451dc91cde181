"""A loader in a checkpoint of torch.distributed: saved by two processes, it goes on on any number."""

from collections import Counter

import pytest

RANK = """
    import json
    import os
    import sys
    import torch
    import torch.distributed as distributed
    import torch.distributed.checkpoint as checkpoint
    import batchloom as bl

    path, folder, stop = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{path}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(103)), 5, shuffle=True, seed=3, uneven="mask")
    assert isinstance(loader, checkpoint.stateful.Stateful)
    model, seen = torch.nn.Linear(2, 1), []
    if os.path.exists(folder + "/.metadata"):
        with torch.no_grad():
            model.weight.zero_()
        held = {"model": model.state_dict(), "loader": loader}
        checkpoint.load(held, checkpoint_id=folder)
        assert model.weight.tolist() == [[2.0, 3.0]]
    else:
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[2.0, 3.0]]))
    epoch = loader.epoch
    for step, (x, index, weight) in enumerate(loader):
        seen += x[weight > 0].tolist()
        if step + 1 == int(stop):
            checkpoint.save({"model": model.state_dict(), "loader": loader}, checkpoint_id=folder)
            break
    print(json.dumps({"seen": seen, "epoch": epoch}))
    distributed.barrier()
    distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("world", "stop"), [(3, 4), (1, 11)])
def test_a_loader_goes_on_from_a_distributed_checkpoint(ranks, world, stop, tmp_path):
    """Eleven steps are all of the epoch: what goes on is the next one."""
    first = ranks(RANK, 2, tmp_path / "first", tmp_path / "saved", stop, timeout=100)
    second = ranks(RANK, world, tmp_path / "second", tmp_path / "saved", 0, timeout=100)
    everything = Counter(range(103))
    before, after = (Counter(sample for rank in run for sample in rank["seen"]) for run in (first, second))
    if stop == 11:
        assert before == after == everything
    else:
        assert before + after == everything
    assert {rank["epoch"] for rank in second} == {int(stop == 11)}
