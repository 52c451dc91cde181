"""The examples in trainers, forecasting libraries, and of patches: in less than a minute each, and they say what they
should.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
# They take less than a minute, but on a busy machine.
pytestmark = pytest.mark.timeout(240)
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("name", "package", "launcher"),
    [("lightning", "lightning", ()), ("accelerate", "accelerate", ()), ("hf", "accelerate", TORCHRUN)],
)
def test_digits_are_learnt_and_each_is_counted_once(name, package, launcher, tmp_path):
    pytest.importorskip(package, reason="scripts/setup --integrations installs it")
    said = output(f"digits_{name}", launcher, tmp_path)
    steps, right = map(int, re.search(r"(\d+) steps of 2 processes; right: (\d+) of 397 digits", said).groups())
    assert steps == 10 * 22  # 44 batches of 1400 digits
    assert right > 320


def test_workers_of_ray_train_each_digit_once_an_epoch(tmp_path):
    pytest.importorskip("ray", reason="scripts/setup --integrations installs it")
    said = output("digits_ray", (), tmp_path)
    two, one = map(int, re.search(r"(\d+) samples on two workers and (\d+) on one", said).groups())
    assert 0 < two < one
    assert two + one == 10 * 1797


def test_a_model_of_patches_forecasts_better_than_the_last_step(tmp_path):
    said = output("patches", (), tmp_path, "--epochs", "1")
    assert "[7, 42, 16]" in said
    mse, repeated = map(float, re.search(r"MSE ([\d.]+), .*again and again: ([\d.]+)", said).groups())
    assert mse < repeated


@pytest.mark.parametrize(("library", "most"), [("neuralforecast", 0.4), ("darts", 0.4)])
def test_forecasts_are_about_as_good_with_either_loader(library, most, tmp_path):
    pytest.importorskip(library, reason="scripts/setup --integrations installs it")
    said = output(f"forecast_{library}", (), tmp_path)
    own, ours = map(float, re.findall(r"mean absolute error (\d\.\d+)", said))
    assert max(own, ours) < most


def output(name, launcher, folder, *arguments):
    """The output of an example. Temporary files go to a folder of the test; Ray's sockets need a short path."""
    environment = os.environ if name == "digits_ray" else {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, *launcher, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=230, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
