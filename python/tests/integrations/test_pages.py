"""The pages on trainers and forecasting libraries are true: their code runs, each in a process of its own."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "package"),
    [
        *[("README", "numpy"), ("lightning", "lightning"), ("accelerate", "accelerate")],
        *[("hf", "trl"), ("keras", "keras"), ("ray", "ray")],
    ],
)
def test_code_on_page_runs(page, package, tmp_path):
    # An import would choose the backend of Keras.
    if find_spec(package) is None:
        pytest.skip("scripts/setup --integrations installs it")
    blocks = BLOCK.findall((DOCS / "trainers" / f"{page}.md").read_text(encoding="utf-8"))
    assert blocks
    run("\n".join(blocks), tmp_path)


@pytest.mark.parametrize("library", ["neuralforecast", "darts", "pytorch_forecasting"])
@pytest.mark.timeout(240)
def test_code_on_forecasting_libraries_runs(library, tmp_path):
    pytest.importorskip(library, reason="scripts/setup --integrations installs it")
    blocks = BLOCK.findall((DOCS / "forecasting-libraries.md").read_text(encoding="utf-8"))
    (block,) = (block for block in blocks if f"batchloom.integrations.{library}" in block)
    run(block, tmp_path, timeout=230)


def run(code, folder, timeout=110):
    """Run code from a file in a folder."""
    path = folder / "page.py"
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, path]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
