"""Checkpoints and logs of trainers go to folders of tests, and not to the working directory."""

import os

import pytest

TRACES = {"checkpoints", "lightning_logs", "darts_logs", "tmp_trainer", "runs"}


@pytest.fixture(autouse=True)
def _no_traces():
    before = set(os.listdir())
    yield
    left = (set(os.listdir()) - before) & TRACES
    assert not left, f"the test left {left} in {os.getcwd()}; expected them in tmp_path"
