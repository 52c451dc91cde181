"""A framework that is missing or too old: the error says which version is needed."""

import importlib.metadata

import pytest
from batchloom.integrations.requirement import RequirementError, require
from refusals import refused


def test_old_and_missing_frameworks_are_refused(monkeypatch):
    require("numpy", "1.0")
    require("numpy", importlib.metadata.version("numpy"))
    with refused(RequirementError, "no-such-package", "2.5"):
        require("no-such-package", "2.5")
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "2.4.1.post3")
    with refused(RequirementError, "lightning", "2.4.1", "2.5"):
        require("lightning", "2.5")
    require("lightning", "2.4.1")
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "2.10.0rc1")
    require("lightning", "2.9")


def test_the_error_is_one_of_imports():
    with pytest.raises(ImportError):
        require("no-such-package", "1")
