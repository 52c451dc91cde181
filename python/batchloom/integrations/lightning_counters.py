"""The watcher of Lightning: compares Lightning's count of batches with the place of a loader.

Lightning counts the batches of an epoch itself, in steps of a rank, and takes the length of the first epoch for that of
all. Where that is not so it would leave batches out in silence. It loads no states of loaders from the checkpoint of an
epoch's end, as if an epoch followed from its number. Only Lightning knows its count, and it calls the loader from the
object that holds it; so that is where it is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from batchloom.errors import LoaderError, StateError, many
from batchloom.loader.interleave import LOADERS
from batchloom.loader.watchers import Standing

# The calls between the loop of Lightning and the loader.
MOST_CALLS = 12


def check_place(loader: Any, place: Callable[[], Standing]) -> None:
    """Refuse a place that differs from the count of the Lightning loop that is loading it, if one is.

    Args:
        loader: The loader.
        place: Returns where it would stand.

    Raises:
        StateError: It differs from Lightning's count, and no callback restates that.
    """
    fit = _caller("_load_combined_loader_states", "epoch_loop")
    if fit is None or _is_restated(fit) or not _holds(fit, loader):
        return
    combined, progress = combined_of(fit), fit.epoch_loop.batch_progress
    length, remaining, is_resized = place()
    if len(combined.flattened) == 1:
        # Lightning asked for the length before it loaded the state.
        whole = min([length, *(combined.limits or ())])
        taken = whole if progress.is_last_batch else length - remaining
        if progress.current.ready == taken:
            return
        stands = f"the loader at batch {taken} of {length}"
    elif is_resized and not progress.is_last_batch:
        stands = f"a loader that other ranks took batches of at batch {length - remaining} of {length}"
    else:
        return
    raise StateError(
        f"Lightning stands at batch {progress.current.ready} of an epoch, in steps of the ranks that saved the "
        f"checkpoint, and {stands}; to go on with another number of ranks, expected "
        "Trainer(callbacks=[batchloom.integrations.lightning.ExactEpochs()])"
    )


def is_over(loader: Any, place: Callable[[], Standing]) -> bool:
    """Return whether a loader has no more batches in the epoch of the Lightning loop that is loading its state.

    With ``max_size``, loaders that came to their end wait for the longest one. Their states are the start of an epoch
    that is not due yet.

    Args:
        loader: The loader.
        place: Returns where it stands.
    """
    fit = _caller("_load_combined_loader_states", "epoch_loop")
    if fit is None or not _holds(fit, loader) or mode_of(combined_of(fit)) != "max_size":
        return False
    progress, standing = fit.epoch_loop.batch_progress, place()
    is_between = standing.remaining == standing.length
    return is_between and progress.current.ready > 0 and not progress.is_last_batch


def restore(loader: Any) -> None:
    """Load the states of loaders that Lightning has read and left alone, as those of a checkpoint of an epoch's end.

    Args:
        loader: The loader that Lightning calls ``set_epoch`` of.
    """
    fit = _caller("on_advance_start", "epoch_loop")
    states = None if fit is None else fit._combined_loader_states_to_load
    if not states or not _holds(fit, loader):
        return
    fit._combined_loader_states_to_load = []
    stateful = [each for each in combined_of(fit).flattened if isinstance(each, _Stateful)]
    for each, state in zip(stateful, states, strict=True):
        if isinstance(each, LOADERS):
            each.load_state_dict(state)


def check_length(loader: Any, length: Callable[[], int]) -> None:
    """Refuse an epoch if the Lightning loop that begins it expects another length.

    Args:
        loader: The loader.
        length: Returns the number of batches of its whole epoch.

    Raises:
        LoaderError: The epochs of Lightning have another length, so that it would leave batches out, and no callback
            restates that.
    """
    loop = _caller("advance", "batch_progress")
    fit = None if loop is None else getattr(loop.trainer, "fit_loop", None)
    if fit is None or loop is not fit.epoch_loop or _is_restated(fit) or not _holds(fit, loader):
        return
    limit = loop.trainer.limit_train_batches
    if limit != 1.0 or isinstance(limit, int):
        return
    combined = combined_of(fit)
    lengths = [
        length() if each is loader else len(each) if isinstance(each, LOADERS) else most
        for each, most in zip(combined.flattened, combined.limits, strict=True)
    ]
    batches = epoch_length(combined, lengths)
    if fit.max_batches != batches:
        raise LoaderError(
            f"Lightning takes {many(fit.max_batches, 'batch')} in every epoch, as in the first one, and this one has "
            f"{batches}, since the loader makes another number of batches in each; expected "
            "Trainer(callbacks=[batchloom.integrations.lightning.ExactEpochs()])"
        )


def combined_of(fit: Any) -> Any:
    """Return the ``CombinedLoader`` of a loop of Lightning's; ``None`` before it has one."""
    return fit._combined_loader


def mode_of(combined: Any) -> str:
    """Return the mode of a ``CombinedLoader``: how its loaders end an epoch."""
    mode: str = combined._mode
    return mode


def epoch_length(combined: Any, lengths: list[Any]) -> Any:
    """Return the batches of an epoch of a ``CombinedLoader``, given the lengths of its loaders."""
    return min(lengths) if mode_of(combined) == "min_size" else max(lengths)


def _holds(fit: Any, loader: Any) -> bool:
    """Return whether a loop iterates over a loader itself, not over one that holds it."""
    combined = combined_of(fit)
    return combined is not None and any(each is loader for each in combined.flattened)


@runtime_checkable
class _Stateful(Protocol):
    """A loader that Lightning saves the state of."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def _is_restated(fit: Any) -> bool:
    return any(getattr(callback, "restates_counters", False) for callback in fit.trainer.callbacks)


def _caller(function: str, attribute: str) -> Any:
    """Return the first object with an attribute among the owners of the calling methods."""
    frame = sys._getframe(2)
    for _ in range(MOST_CALLS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        # A look at the variables of a function keeps them alive until it returns, so only this function is looked at.
        if frame.f_code.co_name == function and hasattr(caller := frame.f_locals.get("self"), attribute):
            return caller
    return None
