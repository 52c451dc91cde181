"""Fabric: ``setup_dataloaders`` takes a loader, whose batches keep their order, ranks and place."""

import json
import subprocess
import sys

import batchloom as bl
import numpy as np
import pytest

pytest.importorskip("lightning", reason="scripts/setup --integrations installs it")

ROWS = 103

HEAD = """
import json
import os
import sys

import batchloom as bl
import torch

rows = torch.arange(103.0)[:, None]


def loader(**options):
    return bl.DataLoader(bl.TensorDataset(rows), 10, **{"shuffle": True, **options})


def plain(batches):
    return [x[:, 0].long().tolist() for (x,) in batches]


def planned(*epochs, **options):
    return [batch.tolist() for epoch in epochs for batch in loader(**options).plan(epoch)]


def refused(call, kind, *said):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in said), error
    else:
        raise AssertionError(said)
"""


@pytest.fixture
def program(tmp_path):
    """Run a program from a file of its own; return what it wrote to files, by name."""

    def run(code, package="lightning.fabric"):
        path = tmp_path / "program.py"
        path.write_text(HEAD + code.replace("FABRIC", f"from {package} import Fabric"), encoding="utf-8")
        command = [sys.executable, str(path), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}

    return run


@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
def test_each_epoch_is_the_one_of_the_plan(program, package):
    """A loader is made before Fabric is imported; epochs advance, and may be set, and a checkpoint holds the place."""
    pytest.importorskip(package)
    program(
        """
early = loader()
FABRIC
fabric = Fabric(accelerator="cpu", devices=1)
data, other = fabric.setup_dataloaders(early, loader(seed=1), move_to_device=False)
assert plain(data) + plain(data) == planned(0, 1) and len(data) == 11
assert plain(other) == planned(0, seed=1)
data.set_epoch(7)
assert plain(data) == planned(7) and data.epoch == 8 and data.device is None

theirs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), 10)
mixed = fabric.setup_dataloaders(theirs, loader())
assert [type(each).__name__ for each in mixed] == ["_FabricDataLoader", "FabricLoader"]
assert plain(mixed[0]) == planned(0, shuffle=False) and plain(mixed[1]) == planned(0)
turns = fabric.setup_dataloaders(bl.interleave({"a": loader(), "b": loader()}))
assert [name for name, _ in turns][:4] == ["a", "b", "a", "b"]

meta = Fabric(accelerator="cpu", devices=1)
meta.to_device = lambda batch: [each.to("meta") for each in batch]
assert {x.device.type for (x,) in meta.setup_dataloaders(loader())} == {"meta"}
assert {x.device.type for (x,) in meta.setup_dataloaders(loader(), move_to_device=False)} == {"cpu"}

for step in (4, 11, 15):
    data, taken = fabric.setup_dataloaders(loader()), 0
    while taken < step:
        for _ in data:
            taken += 1
            if taken == step:
                break
    path = f"{sys.argv[1]}/{step}.ckpt"
    fabric.save(path, {"loader": data})
    again = fabric.setup_dataloaders(loader())
    fabric.load(path, {"loader": again})
    assert again.steps_taken == step
    seen = [batch for _ in range(3 - step // 11) for batch in plain(again)]
    assert seen == planned(0, 1, 2)[step:], step

refused(lambda: fabric.setup_dataloaders(data), bl.ArgumentError, "before")
refused(lambda: Fabric(accelerator="cpu", devices=1).setup_dataloaders(early), bl.LoaderError, "Fabric")
refused(lambda: fabric.setup_dataloaders([rows]), TypeError, "PyTorch DataLoader")
alone = loader(rank=0, world_size=2)
refused(lambda: fabric.setup_dataloaders(alone), bl.ArgumentError, "rank 0 of 2", "process 0 of 1", "launch")
""",
        package,
    )


def test_ranks_are_dealt_by_the_engine(program):
    """Two processes with gloo, which resume in the middle of an epoch."""
    found = program(
        """
FABRIC
if __name__ == "__main__":
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    early = loader()
    if "LOCAL_RANK" not in os.environ:
        refused(lambda: fabric.setup_dataloaders(early), bl.ArgumentError, "rank 0 of 1", "of 2", "launch")
    fabric.launch()
    model = fabric.setup_module(torch.nn.Linear(1, 1))
    refused(lambda: fabric.setup_dataloaders(loader(uneven="short")), bl.ArgumentError, "short")
    data = fabric.setup_dataloaders(early)
    seen = []
    for epoch in range(2):
        for (x,) in data:
            fabric.backward(model(x).sum())
            seen += plain([(x,)])
            if len(seen) == 8:
                fabric.save(sys.argv[1] + "/mid.ckpt", {"loader": data})
    again = fabric.setup_dataloaders(loader())
    fabric.load(sys.argv[1] + "/mid.ckpt", {"loader": again})
    rest = plain(again) + plain(again)
    assert rest[:4] == seen[8:], (rest, seen)
    with open(sys.argv[1] + f"/rank{fabric.global_rank}.json", "w") as file:
        json.dump(seen, file)
"""
    )
    data = bl.TensorDataset(np.arange(ROWS))
    for rank in range(2):
        plan = bl.DataLoader(data, 10, shuffle=True, rank=rank, world_size=2).plan
        assert found[f"rank{rank}"] == [batch.tolist() for epoch in range(2) for batch in plan(epoch)]
