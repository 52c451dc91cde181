"""Indices of files are kept in a folder of the tests."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache_of_tests(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
