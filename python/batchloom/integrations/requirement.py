"""The framework of an integration, in a version that has what the integration relies on."""

from __future__ import annotations

import importlib.metadata
import re

from batchloom.errors import Error


class RequirementError(Error, ImportError):
    """A framework is missing, or too old."""


def require(package: str, least: str) -> None:
    """Check that ``package`` is installed, in version ``least`` or newer.

    Raises:
        RequirementError: It is not.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise RequirementError(
            f"{package} is not installed; batchloom.integrations needs {package} {least} or newer: "
            f"pip install '{package}>={least}'"
        ) from None
    if _numbers(version) < _numbers(least):
        raise RequirementError(
            f"{package} is version {version}; batchloom.integrations needs {least} or newer: "
            f"pip install '{package}>={least}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
