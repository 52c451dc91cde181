"""Real runs that are killed, resized and resumed: nothing lost, nothing repeated, the same order."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# A run of Ray takes as long as all of another trainer.
RULES = {"ray": ["rows"]}


@pytest.mark.parametrize(
    ("trainer", "package"),
    [
        *[("loop", "torch"), ("lightning", "lightning"), ("accelerate", "accelerate"), ("hf", "accelerate")],
        *[("jax", "grain"), ("ray", "ray")],
    ],
)
@pytest.mark.timeout(700)
def test_no_sample_is_lost_or_repeated(trainer, package, tmp_path):
    pytest.importorskip(package, reason="scripts/setup --integrations installs it")
    pytest.importorskip("accelerate", reason="scripts/setup --integrations installs it")
    path = tmp_path / "matrix.json"
    rules = [option for rule in RULES.get(trainer, ()) for option in ("--rules", rule)]
    options = ["--only", trainer, "--loaders", "batchloom", *rules, "--output", str(path)]
    command = [sys.executable, "-m", "bench", "resume", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=690, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for case in json.loads(path.read_text())["cases"]:
        for event, found in case["found"].items():
            order = "" if event == "whole" or "ranks" in event else ", same order"
            assert found == f"0 lost, 0 repeated{order}", (case["rule"], event)
