"""The pages on trainers are true: their code runs, page by page, in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[3] / "docs" / "trainers"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "package"),
    [("lightning", "lightning"), ("accelerate", "accelerate"), ("hf", "trl"), ("ray", "ray")],
)
def test_code_on_page_runs(page, package, tmp_path):
    pytest.importorskip(package, reason="scripts/setup --integrations installs it")
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    assert blocks
    path = tmp_path / "page.py"
    path.write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
