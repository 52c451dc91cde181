"""Profiles of Hypothesis, a clean environment, and scripts that run in processes of their own."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import worlds
from hypothesis import settings
from missing_packages import stand_for

settings.register_profile("fast", max_examples=20, deadline=None, derandomize=True, database=None)
settings.register_profile("long", max_examples=60, deadline=None, derandomize=True, database=None)
settings.register_profile("slow", max_examples=2000, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("BATCHLOOM_HYPOTHESIS", "fast"))

stand_for("polars")

# Their assertions tell what they compared, as those of tests do.
pytest.register_assert_rewrite("campaign", "oracles", "refusals")

# A job in the background ignores interrupts, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A pool of compilers takes longer to start than what tests compile.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

TESTS = str(Path(__file__).parent)
FOREIGN = ("RANK", "WORLD_SIZE", "BATCHLOOM_CHECK", "BATCHLOOM_POISON")


# Files that take minutes begin first, so that no process waits for one of them at the end.
LONG = ("test_device_bench.py", "test_interpreter_end.py", "test_map_processes.py", "test_campaign.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    yield
    logging.getLogger("batchloom").setLevel(logging.NOTSET)


@pytest.fixture
def script(tmp_path_factory):
    """Run Python code in another process, which finds the oracles; it has to end well, and in time.

    Return what it printed. The process is forked after torch was imported: see `interpreter`.
    """

    def run(code, *arguments, timeout=60, **environment):
        kept = {name: str(value) for name, value in environment.items()}
        return worlds.run_alone(code, arguments, kept, timeout, tmp_path_factory.mktemp("script"))

    return run


@pytest.fixture
def interpreter():
    """Run Python code in a new interpreter, which has imported nothing: for tests of imports, of ends and of memory."""

    def run(code, *arguments, timeout=60, **environment):
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        kept |= {"RUST_BACKTRACE": "0", "PYTHONPATH": os.pathsep.join(filter(None, (TESTS, kept.get("PYTHONPATH"))))}
        environment = kept | {name: str(value) for name, value in environment.items()}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
        assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert "Exception ignored" not in done.stderr, done.stderr
        assert "leaked" not in done.stderr, done.stderr
        return done.stdout

    return run


@pytest.fixture
def ranks(tmp_path_factory):
    """Run Python code as all ranks of a world; they have to end well, and in time. Return the JSON of each."""

    def run(code, world_size, *arguments, timeout=60):
        return worlds.run(code, world_size, arguments, timeout, tmp_path_factory.mktemp("world"))

    return run
