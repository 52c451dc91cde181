"""`DeliveryOptions`: where batches go, and the memory and the threads of a loader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from batchloom.arguments import BUFFERS, Buffers, Resident, choice, integer
from batchloom.arrays.frameworks import Output, require_known
from batchloom.errors import ArgumentError

if TYPE_CHECKING:
    import jax
    import torch

    Device: TypeAlias = (
        str | int | torch.device | jax.Device | jax.sharding.Sharding | Mapping[str | int, jax.sharding.Sharding]
    )

# More threads, or more blocks ahead, than any machine has use for.
MOST = 4096


class DeliveryKeywords(TypedDict, total=False):
    """Keywords of a loader: the attributes of :class:`DeliveryOptions`."""

    device: Device | None
    resident: Resident
    output: Output | None
    buffers: Buffers
    num_threads: int | None
    prefetch: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class DeliveryOptions:
    """Options about the place of batches; a :class:`batchloom.DataLoader` takes them as keywords.

    Attributes:
        device: The place of batches; ``None`` for the device of the data. A torch device: batches are then torch
            tensors, ready for the stream that is current when they are taken. With ``output="jax"``, what
            ``jax.device_put`` takes for a batch: a device of JAX, a ``jax.sharding.Sharding`` for all fields, or a dict
            of one for each. With shardings, batches are global arrays, in which the batches of all processes lie one
            after the other.
        resident: ``True`` moves the data to the device once, when the loader is made, and makes batches there (windows
            of neighbours are views). ``False`` copies blocks that are formed in memory (for windows of neighbours, the
            rows that a batch covers: ``batch_size + input_len + horizon - 1`` of them). A number is the bytes that the
            data may take on the device: ``True`` if the data fits; larger data moves there in shards, of ``shard_size``
            samples or of the most samples that fit twice. Samples are then shuffled within shards. (Windows of
            neighbours keep their order: the rows of the most batches that fit move at a time.) ``"auto"`` means
            ``True`` if the data fits into half of the free memory of the device; otherwise it means ``False``, or
            shards where ``shard_size`` is given. Without ``device``, torch does the same on the CPU. (There, the engine
            forms windows of other frameworks that cannot be views.) With ``device="cpu"`` the engine makes batches,
            whatever ``resident`` is: it is faster there.
        output: ``"torch"``, ``"numpy"`` or ``"jax"``; ``None`` for the framework of each field.
        buffers: The memory of batches. ``"views"``: batches of windows of neighbours are views on the series, and other
            batches own their memory. ``"own"``: every batch owns its memory. ``"static"``: every batch is written into
            the same torch tensors, one set for each shape, as CUDA graphs need; the next batch overwrites it.
            ``"checked"``: as ``"views"``, and a write into a batch that is a view is an error when the next batch is
            taken, at the end of the epoch, or when the iterator is closed (after ``break``, a warning). The error names
            the step, the window and the field; in fields whose windows share a row (masks, covariates of series), the
            step and the field. The check copies the rows of each batch and compares them, for debugging; batches that
            own their memory have none. BATCHLOOM_CHECK=1 in the environment turns ``"views"`` into ``"checked"``.
        num_threads: The number of threads that form blocks, including the consumer while it waits; ``None`` for one on
            each core, at most 8 (16 where blocks are streamed to a device). ``None`` is one thread in a worker of a
            torch ``DataLoader``, and for plain rows of ``datasets``, which are read by code that holds the interpreter.
            With one, a separate thread forms blocks. An epoch of less than 512 KiB is formed by the consumer alone.
        prefetch: The number of blocks that are formed ahead of the block in use (for samples on demand: of batches);
            ``None`` for 2, or 1 where a batch is larger than a block of 2 MiB (on demand: than 32 MiB). With 0, a block
            is formed when it is needed, by all threads, in the memory of the last block if nothing holds that.

    Raises:
        ArgumentError: A value has the wrong type, or is no known choice.
    """

    device: Device | None = None
    resident: Resident = "auto"
    output: Output | None = None
    buffers: Buffers = "views"
    num_threads: int | None = None
    prefetch: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.resident, bool) or self.resident == "auto"):
            if isinstance(self.resident, str) or self.resident is None:
                raise ArgumentError(
                    f'resident is {self.resident!r}; expected True, False, "auto", or a number of bytes'
                )
            object.__setattr__(self, "resident", integer("resident", self.resident, least=1))
        if self.output is not None:
            require_known(self.output)
        choice("buffers", self.buffers, BUFFERS)
        for name, least, most in (("num_threads", 1, MOST), ("prefetch", 0, MOST)):
            if (value := getattr(self, name)) is not None:
                limits = {"least": least} if most is None else {"least": least, "most": most}
                object.__setattr__(self, name, integer(name, value, **limits))

    @property
    def copies(self) -> bool:
        """``True`` if every batch owns its memory."""
        return self.buffers == "own"

    @property
    def is_static(self) -> bool:
        """``True`` if every batch is written into the same tensors."""
        return self.buffers == "static"

    @property
    def checks_views(self) -> bool:
        """``True`` if batches that are views are compared for writes."""
        variable = os.environ.get("BATCHLOOM_CHECK", "").lower()
        return self.buffers == "checked" or (
            self.buffers == "views" and variable not in ("", "0", "false", "no", "off")
        )
