"""Meshes: batches differ along data-parallel dimensions, and are the same along all others."""

import itertools
import math

import batchloom as bl
import numpy
import pytest
from batchloom.ranks.mesh import Mesh
from refusals import refused

NAMES = ("pp", "dp", "cp", "tp")
SIZES = [sizes for sizes in itertools.product(range(1, 17), repeat=4) if math.prod(sizes) <= 16]


def coordinates(rank, sizes):
    """The place of a rank in a mesh, the last dimension first, by counting."""
    return list(itertools.product(*map(range, sizes)))[rank]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_groups_agree_and_data_ranks_share_the_epoch(sizes):
    mesh, world_size = dict(zip(NAMES, sizes, strict=True)), math.prod(sizes)
    digests = {}
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "distributed": mesh, "shuffle": True, "uneven": "short"}
        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(101)), 4, num_threads=1, **options)
        assert loader.world_size == mesh["dp"]
        batches = tuple(tuple(batch.tolist()) for (batch,) in loader)
        place = coordinates(rank, sizes)[1]
        assert loader.rank == place
        assert digests.setdefault(place, batches) == batches
    taken = sorted(sample for batches in digests.values() for batch in batches for sample in batch)
    assert taken == list(range(101))


def test_several_data_dimensions_count_together():
    mesh = Mesh({"dp_replicate": 2, "dp_shard": 3, "tp": 2})
    assert [mesh.data_ranks(rank, 12) for rank in range(12)] == [(rank // 2, 6) for rank in range(12)]


DEVICE_MESH = """
    import json
    import os
    import sys
    import torch
    import torch.distributed as distributed
    from torch.distributed.device_mesh import init_device_mesh
    import batchloom as bl

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    seen = []
    for given in (mesh, {"dp": 2, "tp": 2}, mesh["dp"]):
        loader = bl.DataLoader(bl.TensorDataset(torch.arange(24)), 4, shuffle=True, distributed=given)
        seen.append([loader.rank, loader.world_size, [batch.tolist() for (batch,) in loader]])
    assert seen[0] == seen[1] == seen[2]
    print(json.dumps(seen[0]))
    distributed.barrier()
    distributed.destroy_process_group()
"""


def test_a_mesh_of_torch_on_four_processes(ranks, tmp_path):
    found = ranks(DEVICE_MESH, 4, tmp_path / "store")
    assert [rank[:2] for rank in found] == [[0, 2], [0, 2], [1, 2], [1, 2]]
    assert found[0] == found[1] != found[2] == found[3]
    assert sorted(sample for rank in found[::2] for batch in rank[2] for sample in batch) == list(range(24))


def test_bad_meshes_are_refused():
    dataset = bl.TensorDataset(numpy.arange(24))
    with refused(bl.ArgumentError, "dp 4", "tp 2", "8", "6"):
        bl.DataLoader(dataset, 4, rank=0, world_size=6, distributed={"dp": 4, "tp": 2})
    with refused(bl.ArgumentError, "ep", "dp", "tp"):
        bl.DataLoader(dataset, 4, rank=0, world_size=8, distributed={"dp": 4, "ep": 2})
    for mesh in ({"dp": 0}, {"dp": 2.5}):
        with refused(bl.ArgumentError, "dp", str(mesh["dp"])):
            bl.DataLoader(dataset, 4, distributed=mesh)
    for mesh in (4, "dp", {}):
        with pytest.raises(bl.ArgumentError):
            bl.DataLoader(dataset, 4, distributed=mesh)
    alone = bl.DataLoader(dataset, 4, distributed={"dp": 2})
    with refused(bl.ArgumentError, "dp 2", "1"):
        next(iter(alone))
