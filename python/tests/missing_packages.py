"""Stands for packages that have no wheel for this Python: a test that comes to use one is skipped."""

import importlib.util
import sys

import pytest


class Absent:
    """A part of a package that is not there. It may be named and called, as parameters of tests do."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **options):
        """Return what stands for the result."""
        return Absent(self._name)

    def __repr__(self):
        return self._name

    def __getattr__(self, name):
        pytest.skip(f"{self._name} has no wheel for this Python", allow_module_level=True)

    __getitem__ = __getattr__


class AbsentPackage:
    """A package that is not there, whose parts can be named."""

    def __init__(self, name):
        self.__name__, self.__spec__ = name, None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(self.__name__)


def stand_for(*names):
    """Stand for those of these packages that are not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = AbsentPackage(name)
