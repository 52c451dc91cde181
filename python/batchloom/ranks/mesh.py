"""A mesh of processes: which processes take different batches, and which take the same batches.

Processes that differ in a data-parallel coordinate get different batches. Those of a tensor-, context- or
pipeline-parallel group work on one batch together, so all of them get the same bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from batchloom.arguments import integer
from batchloom.errors import ArgumentError

# The names of dimensions along which batches differ, and of those along which they are the same.
DATA = ("dp", "ddp", "fsdp", "dp_replicate", "dp_shard", "replicate", "shard", "data", "batch")
SAME = ("tp", "cp", "pp", "sp", "tensor", "context", "pipeline", "sequence", "model")


class Mesh:
    """The dimensions of a mesh, and this process's coordinates.

    Args:
        mesh: A ``torch.distributed.DeviceMesh`` with names of its dimensions, or a dict of their sizes, as
            ``{"dp": 4, "tp": 2}``. In a dict, processes are numbered along the last dimension first, as
            ``init_device_mesh`` does.

    Raises:
        ArgumentError: It is something else, or a dimension has no known name.
    """

    def __init__(self, mesh: Any) -> None:
        self._device_mesh = None if isinstance(mesh, Mapping) else mesh
        if isinstance(mesh, Mapping):
            sizes = {name: integer(f"distributed[{name!r}]", size, least=1) for name, size in mesh.items()}
        else:
            names = getattr(mesh, "mesh_dim_names", None)
            if not hasattr(mesh, "get_coordinate") or not names:
                raise ArgumentError(
                    f"distributed is {mesh!r}; expected True, False, a DeviceMesh with mesh_dim_names, or a dict of "
                    'sizes by name, as {"dp": 4, "tp": 2}'
                )
            sizes = dict(zip(names, mesh.shape, strict=True))
        unknown = [name for name in sizes if name not in (*DATA, *SAME)]
        if unknown or not sizes:
            raise ArgumentError(
                f"distributed has dimensions {list(sizes)}; expected names out of {', '.join(DATA)}, along which "
                f"batches differ, and {', '.join(SAME)}, along which they are the same"
            )
        self._sizes: dict[str, int] = sizes

    def data_ranks(self, rank: int, world_size: int) -> tuple[int, int]:
        """Return the rank and the number of ranks that take different batches.

        Args:
            rank: The rank of this process among all.
            world_size: The number of all processes.

        Raises:
            ArgumentError: The mesh does not hold all processes.
        """
        coordinates = self._coordinates(rank, world_size)
        data_rank, size = 0, 1
        for (name, length), place in zip(self._sizes.items(), coordinates, strict=True):
            if name in DATA:
                data_rank, size = data_rank * length + place, size * length
        return data_rank, size

    def _coordinates(self, rank: int, world_size: int) -> list[int]:
        held = math.prod(self._sizes.values())
        mesh = self._device_mesh
        if mesh is not None:
            held = math.prod(_whole_mesh(mesh).shape)
        if held != world_size:
            sizes = " * ".join(f"{name} {size}" for name, size in self._sizes.items())
            raise ArgumentError(
                f"distributed is {sizes}, for {held} processes, and the world size is {world_size}; expected a mesh of "
                "all of them"
            )
        if mesh is not None:
            coordinates = mesh.get_coordinate()
            if coordinates is None:
                raise ArgumentError(f"rank {rank} is not in the mesh {mesh}; expected a mesh of all processes")
            return list(coordinates)
        places = []
        for size in reversed(self._sizes.values()):
            rank, place = divmod(rank, size)
            places.append(place)
        return places[::-1]

    def __repr__(self) -> str:
        return f"Mesh({self._sizes})"


def is_mesh(distributed: Any) -> bool:
    """Return whether the argument is a mesh: a dict of sizes, or an object with coordinates."""
    return isinstance(distributed, Mapping) or hasattr(distributed, "get_coordinate")


def _whole_mesh(mesh: Any) -> Any:
    """Return the whole mesh that a part such as ``mesh["dp"]`` was taken from."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    # Older versions of torch keep that beside the class.
    resources = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    return mesh if resources is None else resources.get_root_mesh(mesh)
