"""Lightning's own count of batches, which has to agree with that of a loader: the watcher of Lightning.

Lightning counts the batches of an epoch itself, in steps of a rank, and takes the length of the first epoch for that of
all. Where that is not so it would leave batches out in silence. Only Lightning knows its count, and it calls the loader
from the object that holds it; so that is where it is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from batchloom.errors import LoaderError, StateError

# The calls between the loop of Lightning and the loader.
MOST_CALLS = 12


def check_place(place: Callable[[], tuple[int, int]]) -> None:
    """Refuse a place that differs from the count of the Lightning loop that is loading it, if one is.

    Args:
        place: Returns the number of batches of a whole epoch, and how many of them are left.

    Raises:
        StateError: They differ from Lightning's, and no callback restates the count.
    """
    fit = _caller("_load_combined_loader_states", "epoch_loop")
    if fit is None or _is_restated(fit):
        return
    combined = fit._combined_loader
    if len(combined.flattened) != 1:
        return
    length, remaining = place()
    progress, whole = fit.epoch_loop.batch_progress, min([length, *(combined.limits or ())])
    taken = whole if progress.is_last_batch else length - remaining
    if progress.current.ready != taken:
        raise StateError(
            f"Lightning stands at batch {progress.current.ready} of an epoch, in steps of the ranks that saved the "
            f"checkpoint, and the loader at batch {taken} of {length}; to go on with another number of ranks, "
            "expected Trainer(callbacks=[batchloom.integrations.lightning.ExactEpochs()])"
        )


def check_length(length: Callable[[], int]) -> None:
    """Refuse an epoch of another length than that of the Lightning loop that begins it, if one does.

    Args:
        length: Returns the number of batches of the whole epoch.

    Raises:
        LoaderError: They differ, so that Lightning would leave batches out, and no callback restates the length.
    """
    loop = _caller("advance", "batch_progress")
    fit = None if loop is None else getattr(loop.trainer, "fit_loop", None)
    if fit is None or loop is not fit.epoch_loop or _is_restated(fit):
        return
    limit = loop.trainer.limit_train_batches
    if limit != 1.0 or isinstance(limit, int) or len(fit._combined_loader.flattened) != 1:
        return
    found = length()
    if fit.max_batches != found:
        raise LoaderError(
            f"Lightning takes {fit.max_batches} batches in every epoch, as in the first one, and this one has "
            f"{found}, since the rule looks at sizes; expected "
            "Trainer(callbacks=[batchloom.integrations.lightning.ExactEpochs()])"
        )


def _is_restated(fit: Any) -> bool:
    return any(getattr(callback, "restates_counters", False) for callback in fit.trainer.callbacks)


def _caller(function: str, attribute: str) -> Any:
    """Return the object whose method is among the callers, if it has an attribute."""
    frame = sys._getframe(2)
    for _ in range(MOST_CALLS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if frame.f_code.co_name == function and hasattr(caller, attribute):
            return caller
    return None
