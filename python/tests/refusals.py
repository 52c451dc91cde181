"""How an error is expected whose class and message are promised."""

import pytest


def refused(kind, *parts):
    """The error is of this very class, and its message holds these parts."""
    return pytest.raises(kind, check=lambda error: type(error) is kind and all(part in str(error) for part in parts))
