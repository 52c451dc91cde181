"""Run the laws on the device: batches, resumes, memory and graphs on a GPU itself, by the project's own tests.

Promises:

- ``BATCHLOOM_TEST_DEVICE`` names the device, so that tests of the ways of a device make their batches on it
  (python/tests/oracles/devices.py); on the CPU these tests run without it.
- A test that fails makes the part fail, and the JSON names the test and the end of its report. Other parts run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.device.place import Found, Place
from bench.harness.record import BENCH

TESTS = BENCH.parent / "python"
FILES = ("test_cuda.py",)
# The laws of every way of a device, which make thousands of loaders; on the CPU, scripts/test runs them.
MORE_FILES = ("test_laws.py", "test_static_buffers.py", "test_device.py", "test_transfer.py", "test_compile.py")
# Each process takes memory of the device for its context.
MOST_PROCESSES, SLACK, KEPT_LINES = 12, 5.0, 25


def measure_laws(place: Place) -> Found:
    """Run the tests of a GPU; return the record for the JSON."""
    return measure(place, FILES)


def measure_more_laws(place: Place) -> Found:
    """Run the laws of every way of a device; return the record for the JSON."""
    if not place.is_gpu:
        return Found({"skipped": "scripts/test runs them on the CPU"})
    return measure(place, MORE_FILES)


def measure(place: Place, files: Sequence[str]) -> Found:
    """Run some tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        output = run(place, files, report)
        if not report.exists():
            return Found({"output": output[-4000:]}, failure=f"the tests did not end: {output.strip()[-200:]!r}")
        return found(ElementTree.parse(report))


def run(place: Place, files: Sequence[str], report: Path) -> str:
    """Run the tests until the clock ends; return what they printed."""
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-W", "default", "--timeout=60", "--tb=short"]
    if place.is_gpu:
        options += ["-n", str(min(MOST_PROCESSES, os.cpu_count() or 1)), "--dist", "load"]
    # JAX's laws are the CPU's, and it would take the memory of the device for itself.
    environment = dict(os.environ, PYTHONHASHSEED="0", OMP_NUM_THREADS="1", JAX_PLATFORMS="cpu")
    if place.is_gpu:
        environment["BATCHLOOM_TEST_DEVICE"] = str(place.device)
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/device/{name}" for name in files)]
    seconds = max(place.until - time.monotonic() - SLACK, 1)
    try:
        done = subprocess.run(
            command, cwd=TESTS, env=environment, text=True, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        return str(error)
    print(done.stdout[-6000:], flush=True)
    return done.stdout + done.stderr


def found(report: ElementTree.ElementTree[Any]) -> Found:
    """Return the counts of a report, and the tests that failed."""
    cases = list(report.iter("testcase"))
    failed = {}
    for case in cases:
        problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        if problem is not None:
            text = (problem.text or problem.get("message") or "").strip().splitlines()
            failed[f"{case.get('classname')}.{case.get('name')}"] = "\n".join(text[-KEPT_LINES:])
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - skipped - len(failed)
    counts = {"passed": passed, "failed": len(failed), "skipped": skipped}
    failure = f"{len(failed)} of {len(cases)} tests failed: {', '.join(list(failed)[:5])}" if failed else None
    return Found(
        {**counts, "failures": failed}, ratios={f"laws: tests {name}": n for name, n in counts.items()}, failure=failure
    )
