"""Lightning Fabric: ``setup_dataloaders`` takes loaders, as it takes torch's.

Fabric refuses data that is no loader of torch's, so :func:`introduce` adds loaders of batchloom, which deal batches to
ranks themselves. A loader that was set up promises the batches of the loader in their order, on the device of Fabric,
and ``fabric.save`` and ``fabric.load`` hold its place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from batchloom.errors import ArgumentError
from batchloom.integrations.claim import claim
from batchloom.integrations.rank_checks import refuse_other_rank, refuse_short
from batchloom.loader.interleave import LOADERS, Interleaved
from batchloom.loader.loader import DataLoader


def introduce(module: Any) -> None:
    """Add loaders to the data that Fabric sets up.

    Args:
        module: The module ``lightning.fabric.fabric``, under that name or ``lightning_fabric.fabric``.
    """
    set_up_others = module.Fabric.setup_dataloaders

    @functools.wraps(set_up_others)
    def setup_dataloaders(
        fabric: Any, *dataloaders: Any, use_distributed_sampler: bool = True, move_to_device: bool = True
    ) -> Any:
        options = {"use_distributed_sampler": use_distributed_sampler, "move_to_device": move_to_device}
        if not any(isinstance(each, (*LOADERS, FabricLoader)) for each in dataloaders):
            return set_up_others(fabric, *dataloaders, **options)
        set_up = [
            _set_up(fabric, each, move_to_device=move_to_device)
            if isinstance(each, (*LOADERS, FabricLoader))
            else set_up_others(fabric, each, **options)
            for each in dataloaders
        ]
        return set_up[0] if len(set_up) == 1 else set_up

    module.Fabric.setup_dataloaders = setup_dataloaders


class FabricLoader:
    """A loader that Fabric has set up. It has the attributes and methods of the loader.

    Attributes:
        loader: The loader.
        device: The device of the batches; ``None`` if they stay where they are.
    """

    def __init__(self, loader: DataLoader[Any] | Interleaved, device: Any, move: Callable[[Any], Any]) -> None:
        self.loader, self.device, self._move = loader, device, move

    def __iter__(self) -> Iterator[Any]:
        """Return the batches of the next epoch of the loader."""
        return map(self._move, self.loader)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.loader)

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state of the run after the last batch that was handed over."""
        return self.loader.state_dict(batches)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``."""
        self.loader.load_state_dict(state)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the loader."""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def _set_up(fabric: Any, loader: Any, *, move_to_device: bool) -> FabricLoader:
    """Return a loader as Fabric has set it up.

    Raises:
        ArgumentError: The loader was set up before, or has another rank than the process.
        LoaderError: Another Fabric has the loader.
    """
    if isinstance(loader, FabricLoader):
        raise ArgumentError("the loader was set up before; expected one call of setup_dataloaders() for each loader")
    hint = ", and call fabric.launch() before setup_dataloaders()"
    refuse_other_rank(loader, "Fabric", fabric.global_rank, fabric.world_size, hint)
    refuse_short(loader)
    claim(loader, fabric)
    return (
        FabricLoader(loader, fabric.device, fabric.to_device) if move_to_device else FabricLoader(loader, None, _keep)
    )


def _keep(batch: Any) -> Any:
    return batch
