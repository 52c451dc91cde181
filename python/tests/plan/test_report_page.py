"""The page as a browser lays it out: every section is there, and nothing is wider than the screen."""

import html
import json
import shutil
import subprocess
from pathlib import Path

import batchloom as bl
import numpy
import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium to lay the page out")

LENGTHS = numpy.random.default_rng(0).lognormal(5, 0.8, 5000).clip(1, 4000).astype(int)

# Lays a page out in frames of two widths, and writes down what is where.
LOOK = """<!doctype html><body><pre></pre><script>
const page = %s, found = {};
for (const width of [380, 800]) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 4000; frame.srcdoc = page;
  frame.onload = () => {
    const inside = frame.contentDocument, root = inside.documentElement;
    const wide = element => element.getBoundingClientRect().right > width + 1 && !element.closest(".wide, svg");
    found[width] = {
      scrolls: root.scrollWidth - root.clientWidth,
      wide: [...inside.body.querySelectorAll("*")].filter(wide).map(element => element.outerHTML.slice(0, 80)),
      sections: [...inside.querySelectorAll("section")].map(section => [
        section.querySelector("h2").textContent, section.getBoundingClientRect().height > 60,
        [...section.querySelectorAll("svg")].every(svg => svg.getBoundingClientRect().height > 60)]),
    };
    document.querySelector("pre").textContent = JSON.stringify(found);
  };
  document.body.append(frame);
}
</script>"""


def laid_out(page: str, folder: Path) -> dict:
    """Return what a browser makes of a page, for each width."""
    # A tag that ends the script would end it within the text too.
    text = json.dumps(page).replace("</", "<\\/")
    (folder / "look.html").write_text(LOOK % text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", (folder / "look.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    return json.loads(html.unescape(dom.partition("<pre>")[2].partition("</pre>")[0]))


def check(page: str, folder: Path, sections: list[str]) -> None:
    found = laid_out(page, folder)
    assert sorted(found) == ["380", "800"]
    for width in found.values():
        assert width["scrolls"] == 0
        assert width["wide"] == []
        assert width["sections"] == [[name, True, True] for name in sections]


def test_a_plan_fits_any_screen(tmp_path):
    plan = bl.Plan(len(LENGTHS), batching=bl.TokenBudget(8192), sizes=LENGTHS, shuffle=True, world_size=3)
    plan.report(tmp_path / "plan.html")
    step = len(plan) // 2
    sections = ["Lengths", "What it costs", f"The batch of step {step}, rank 0", "Steps", "Order"]
    check((tmp_path / "plan.html").read_text(encoding="utf-8"), tmp_path, sections)


def test_rules_fit_any_screen(tmp_path):
    bl.compare(LENGTHS, world_size=3).report(tmp_path / "rules.html", "rules " * 20)
    check((tmp_path / "rules.html").read_text(encoding="utf-8"), tmp_path, ["Lengths", "Rules"])
