"""The folder in which indices of files are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> str | None:
    """Return the folder in which indices are kept; ``None`` if ``BATCHLOOM_CACHE`` is empty, for no such folder.

    It is ``BATCHLOOM_CACHE``, and otherwise ``batchloom`` in the folder for caches of this user.
    """
    given = os.environ.get("BATCHLOOM_CACHE")
    if given is not None:
        return given or None
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(caches) / "batchloom")
