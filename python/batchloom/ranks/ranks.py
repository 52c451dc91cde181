"""The rank of this process and the world size: as given, or from ``torch.distributed``, JAX or a launcher."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import batchloom._native as _native
import numpy
from batchloom.arguments import U32, boolean, integer
from batchloom.errors import ArgumentError, DataError
from batchloom.ranks.mesh import Mesh, is_mesh

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# The name of seeds that are drawn, among the facts of ranks.
SEED = "seed"

Ranks = tuple[int, int]
"""A rank, and the world size."""


class RankKeywords(TypedDict, total=False):
    """Keywords of loaders and samplers: the attributes of :class:`RankOptions`."""

    rank: int | None
    world_size: int | None
    distributed: bool | Mapping[str, int] | DeviceMesh


@dataclass(frozen=True, kw_only=True, eq=False)
class RankOptions:
    """Options of ranks; a :class:`batchloom.DataLoader` takes them as keywords.

    If neither ``rank`` nor ``world_size`` is given, they are looked up when the first epoch begins, or when a property
    needs them: in ``torch.distributed`` if it is initialised, or in JAX, for batches of JAX, if ``jax.distributed`` is;
    otherwise in the environment of a launcher, RANK and WORLD_SIZE (or LOCAL_RANK, NODE_RANK and WORLD_SIZE, as
    Lightning sets them); and otherwise they are 0 and 1. If ``torch.distributed`` gives another rank afterwards, the
    next epoch follows it.

    Attributes:
        rank: The rank of this process, from 0 to ``world_size - 1``.
        world_size: The number of processes.
        distributed: ``False`` for a loader of one rank, as in an evaluation on rank 0 alone: each process that iterates
            over it gets every batch. Or the mesh of all processes, where some of them work on one batch together: a
            ``DeviceMesh`` with names, or a dict of sizes, as ``{"dp": 4, "tp": 2, "cp": 2, "pp": 1}``. Batches then
            differ along data-parallel dimensions alone, and ``loader.rank`` and ``loader.world_size`` count along them.
    """

    rank: int | None = None
    world_size: int | None = None
    distributed: bool | Mapping[str, int] | DeviceMesh = True


def _read_distributed(distributed: object) -> bool:
    try:
        return boolean("distributed", distributed)
    except ArgumentError:
        raise ArgumentError(
            f"distributed is {distributed!r}; expected True, False, or a mesh, as {{'dp': 4, 'tp': 2}}"
        ) from None


class RankFinder:
    """Finds the rank of this process and the world size, anew at each call.

    Given ones win. Otherwise ``torch.distributed`` decides once it is initialised, or JAX, for batches of JAX, once
    ``jax.distributed`` is. Until then the environment of a launcher does, as it was when something asked first, and
    without a launcher this is rank 0 of 1.

    Args:
        rank: The rank, if it is given.
        world_size: The world size, if it is given.
        distributed: ``False`` for rank 0 of 1 in each process; or the mesh of all processes, whose data-parallel
            dimensions count the ranks.
        jax: If ``True``, JAX may give the rank.

    Raises:
        ArgumentError: Only one of the two is given, or the rank is not below the world size, or ``distributed`` is
            ``False`` beside them.
    """

    def __init__(
        self,
        rank: int | None,
        world_size: int | None,
        *,
        distributed: bool | Mapping[str, int] | DeviceMesh = True,
        jax: bool = False,
    ) -> None:
        mesh = Mesh(distributed) if distributed is not True and is_mesh(distributed) else None
        if mesh is None and not _read_distributed(distributed):
            if rank is not None or world_size is not None:
                given = {"rank": rank, "world_size": world_size}
                said = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
                raise ArgumentError(
                    f"distributed is False, for a loader of one rank, and {said} is given; expected one of the two"
                )
            rank, world_size = 0, 1
        if (rank is None) != (world_size is None):
            raise ArgumentError(f"rank is {rank} and world_size is {world_size}; expected both or neither")
        self._mesh = mesh
        self._given = None if rank is None or world_size is None else self._in_mesh(check_ranks(rank, world_size))
        self._jax = jax
        self._found: Ranks | None = None
        # The name under which the ranks that compared facts are counted.
        self._meeting: str | None = None

    @property
    def given(self) -> Ranks | None:
        """The rank and the world size that the user gave."""
        return self._given

    @property
    def is_said(self) -> bool:
        """``True`` if ``torch.distributed`` is initialised, and no rank is given."""
        return self._given is None and _from_torch() is not None

    def find(self) -> Ranks:
        """Return the rank and the world size.

        Raises:
            ArgumentError: The environment of the launcher makes no sense.
        """
        if self._given is not None:
            return self._given
        said = _from_torch() or (_from_jax() if self._jax else None)
        if said is not None:
            self._found = said
        elif self._found is None:
            self._found = _native.launched() or (0, 1)
        return self._in_mesh(self._found)

    def _in_mesh(self, ranks: Ranks) -> Ranks:
        return ranks if self._mesh is None else self._mesh.data_ranks(*ranks)

    def seed_source(self) -> Callable[[], int]:
        """Return the function that draws a seed: rank 0 draws it and broadcasts it. Every rank calls the function.

        Raises:
            ArgumentError: There are other ranks, and no way to send them the seed.
        """
        # Ranks that are given share no seed: the others would wait for the number of this one.
        _compared[SEED] += self._given is None
        number = _compared[SEED]
        return lambda: self._draw_seed(number)

    def _draw_seed(self, number: int) -> int:
        seed = int.from_bytes(os.urandom(8)) >> 1
        world_size = self.find()[1]
        said = None if self._given is not None else _from_torch()
        if said is not None and said[1] > 1 and (store := _store()) is not None:
            key = f"batchloom/{SEED}/{number}"
            if said[0] == 0:
                store.set(key, str(seed))
            return int(store.get(key))
        if said is None and self._given is None and self._jax and (_from_jax() or (0, 1))[1] > 1:
            from jax.experimental import multihost_utils

            halves = numpy.array([seed >> 31, seed & (2**31 - 1)], numpy.int32)
            high, low = (int(half) for half in multihost_utils.broadcast_one_to_all(halves))
            return high << 31 | low
        if world_size > 1:
            raise ArgumentError(
                f"seed is None in a world of {world_size}, whose ranks do not know each other; expected a number, or "
                "torch.distributed or JAX initialised"
            )
        return seed

    def compare(self, name: str, find_facts: Callable[[], dict[str, Any]], expected: str) -> None:
        """Compare facts that all ranks of ``torch.distributed`` have to share. Without it, do nothing.

        The first rank leaves its facts in the store of the process group, and later ranks compare their facts. There
        is no collective, so no rank waits for another one, and no collective of a trainer is mixed up with ours.

        Args:
            name: A name for what is compared: the n-th comparison of a name meets the n-th one of other ranks.
            find_facts: Returns the facts, as JSON has them. It is called where there are other ranks.
            expected: Things that have to be the same, in the words of the message.

        Raises:
            DataError: This rank differs from the first one.
        """
        ranks = None if self._given is not None else _from_torch()
        store = None if ranks is None or ranks[1] == 1 else _store()
        if ranks is None or store is None:
            return
        import json

        facts = find_facts()
        _compared[name] += 1
        mine = json.dumps({"rank": ranks[0], **facts})
        theirs = json.loads(store.compare_set(f"batchloom/{name}/{_compared[name]}", "", mine))
        first = theirs.pop("rank")
        meeting = f"batchloom/{name}/{_compared[name]}/ranks"
        differ = [key for key in facts if facts[key] != theirs.get(key)]
        if differ:
            _compared[name] -= 1  # another try meets the same facts
            here, there = (", ".join(f"{key} {every.get(key)}" for key in differ) for every in (facts, theirs))
            raise DataError(
                f"ranks disagree on what they batch: rank {ranks[0]} of {ranks[1]} has {here}, and rank {first} has "
                f"{there}; expected {expected} on every rank. A loader that ranks do not share takes distributed=False"
            )
        if self._meeting is None and hasattr(store, "add"):
            self._meeting = meeting
            store.add(meeting, 1)

    @property
    def is_alone(self) -> bool:
        """``True`` if no other rank of ``torch.distributed`` has compared facts so far, and there are some."""
        store = None if self._meeting is None or _from_torch() is None else _store()
        return store is not None and store.add(self._meeting, 0) == 1


# How often facts of each name were compared.
_compared: Counter[str] = Counter()


def check_ranks(rank: int, world_size: int) -> Ranks:
    """Return a rank and a world size.

    Raises:
        ArgumentError: The rank is not below the world size.
    """
    rank, world_size = integer("rank", rank, most=U32), integer("world_size", world_size, least=1, most=U32)
    if rank >= world_size:
        raise ArgumentError(f"rank is {rank} in a world of {world_size}; expected 0 <= rank < {world_size}")
    return rank, world_size


def _from_torch() -> Ranks | None:
    distributed = sys.modules.get("torch.distributed")
    # A torch that was built without it has no such function.
    is_initialized = getattr(distributed, "is_initialized", None)
    if distributed is None or is_initialized is None or not is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _store() -> Any:
    """Return the store of the process group; ``None`` where a backend has none."""
    groups = sys.modules["torch.distributed"].distributed_c10d
    return getattr(groups, "_get_default_store", lambda: None)()


def _from_jax() -> Ranks | None:
    jax = sys.modules.get("jax")
    # Asking for the process would start JAX, which has to be told of other processes first.
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def is_worker() -> bool:
    """Return whether this is a worker process of a torch ``DataLoader``: other workers then use the other cores."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
