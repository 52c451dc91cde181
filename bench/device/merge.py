"""Join the results of a visit with the results of earlier visits, and write the tables of README and docs.

    python -m bench.device.merge DIR      (or scripts/device merge DIR)
    python -m bench.device.merge          writes the tables again

Promises:

- A device has one file, ``bench/results/device-<name>.json``. A part of it is the newest one that is done, or else the
  newest; each has the commit and the time of its own visit.
- What a visit keeps for the next one goes to ``results/local/device``, from where ``scripts/device pack`` takes it.
- Results of the CPU that stood in go to ``results/local`` alone: no table has them.
- A table has a column for each device. A figure stands there with the number to reach; italics mark a miss.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from bench.device.visit import DONE
from bench.harness.record import BENCH, results
from bench.windows.peers import PER_BATCH, PRELOADED

README, PAGE = BENCH.parent / "README.md", BENCH.parent / "docs" / "device.md"
START, END = "<!-- The figures of scripts/device merge -->\n", "<!-- The end of the figures -->\n"
SAVED = ": share of stacking's epoch that no loading saves"
KEPT = ("patchtst.tar", "device-*.json")
# The lines of README's table: words, and the beginning of the claim.
SHORT = {
    "rows of 4 KB, resident, 64 a batch: torch `DataLoader`, data on the device": (
        "rows of 4 KB, batches of 64: time of torch DataLoader, data on the device"
    ),
    "the same: torch `DataLoader`, `.to(device)`": "rows of 4 KB, batches of 64: time of torch DataLoader, .to(device)",
    "the same: batch-iter": "rows of 4 KB, batches of 64: time of batch-iter",
    "rows of 64 B, resident, 64 a batch: torch `DataLoader`, data on the device": (
        "rows of 64 B, batches of 64: time of torch DataLoader, data on the device"
    ),
    "rows of 4 KB, 1024 a batch: bandwidth, as a share of the device's copy": (
        "rows of 4 KB, batches of 1024: bandwidth of batchloom resident, times that of the copy on the device"
    ),
    "the same, streamed: bandwidth, as a share of the copy from pinned memory": (
        "rows of 4 KB, batches of 1024: bandwidth of batchloom streamed"
    ),
    "groups of about 8 rows, 64 a batch: torch `DataLoader`, `.to(device)`": (
        "groups, 64 a batch: time of torch DataLoader"
    ),
    "training the small network: share of the epoch that loading takes": (
        "training, batches of 64: share of the epoch that loading takes, batchloom resident"
    ),
    "500 windows of 1000 x 500 as views: time of a batch, as a share of stacking": (
        "windows of 1000 x 500, batches of 500: time of a batch, times stacking's, batchloom preloaded"
    ),
    "the same: memory of a batch, as a share of stacking": (
        "windows of 1000 x 500, batches of 500: memory of a batch, times stacking's, batchloom preloaded"
    ),
    "1000 documents, 70 layers: speed, as a multiple of padding to the longest": (
        "sequences: speed of {best} padded to the longest"
    ),
    "the same: speed, as a share of no padding at all": "sequences: speed of {best} without padding",
}


@dataclass(frozen=True)
class Figure:
    """A claim of a part, and the device that it was measured on."""

    device: str
    part: str
    text: str
    measured: float
    relation: str
    bound: float
    reached: bool


def main() -> None:
    """Join a visit's results, if a folder is named, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="the folder that the visit wrote to")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        files = sorted(chosen.folder.glob("device-*.json"))
        if not files:
            print(f"device: {chosen.folder} holds no device-*.json; expected the folder of a visit", file=sys.stderr)
            sys.exit(2)
        for file in files:
            print(f"written: {join(file, json.loads(file.read_text()))}")
        keep(chosen.folder)
    for page, text in tables().items():
        page.write_text(with_table(page.read_text(encoding="utf-8"), text), encoding="utf-8")


def tables() -> dict[Path, str]:
    """Return the tables of each page."""
    return {README: short_table(figures()), PAGE: long_table(figures()) + "\n" + saved_table(saved())}


def join(file: Path, visit: dict[str, Any], folder: Path | None = None) -> Path:
    """Join a visit with the file of its device; return that file."""
    folder = folder or results(visit["device"]["is_gpu"])
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / file.name
    known = json.loads(home.read_text())["parts"] if home.exists() else {}
    parts = {name: newer(known.get(name), visit["parts"].get(name)) for name in {**visit["parts"], **known}}
    home.write_text(json.dumps({**visit, "parts": parts}, indent=1) + "\n")
    return home


def newer(known: dict[str, Any] | None, found: dict[str, Any] | None) -> dict[str, Any]:
    """Return the record to keep of a part: a done one before another, a newer one before an older."""
    if known is None or found is None:
        return known or found or {}
    ranks = [(each["status"] == DONE, bool(each.get("body")), each.get("taken", "")) for each in (known, found)]
    return known if ranks[0] > ranks[1] else found


def keep(folder: Path) -> None:
    """Keep what the next visit goes on with."""
    home = results(False) / "device"
    home.mkdir(parents=True, exist_ok=True)
    for pattern in KEPT:
        for file in folder.glob(pattern):
            shutil.copy(file, home / file.name)


def figures() -> list[Figure]:
    """Return the claims of all devices that were measured."""
    found = []
    for file in sorted(results(True).glob("device-*.json")):
        visit = json.loads(file.read_text())
        for part, record in visit["parts"].items():
            for claim in record.get("claims", ()):
                values = (claim[name] for name in ("text", "measured", "relation", "bound", "reached"))
                found.append(Figure(visit["device"]["name"], part, *values))
    return found


def saved() -> list[tuple[str, str, dict[str, float]]]:
    """Return the forecasters that were trained: the device, the family, and its ratios by name."""
    found = []
    for file in sorted(results(True).glob("device-*.json")):
        visit = json.loads(file.read_text())
        for record in visit["parts"].values():
            ratios = record.get("ratios", {})
            families = [name.removesuffix(SAVED) for name in ratios if name.endswith(SAVED)]
            of_family = [
                {name.removeprefix(f"{family}: "): ratio for name, ratio in ratios.items()} for family in families
            ]
            found += [(visit["device"]["name"], *pair) for pair in zip(families, of_family, strict=True)]
    return found


def saved_table(found: list[tuple[str, str, dict[str, float]]]) -> str:
    """Return the guide's table of epochs of forecasters, beside the published shares; nothing if none was measured."""
    if not found:
        return ""
    share = "share of stacking's epoch that {} saves"
    heads = ("no loading at all", "views, preloaded", "views per batch", "published, preloaded", "published, per batch")
    lines = [
        f"| share of stacking's epoch that is saved by | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
    ]
    for device, family, ratios in found:
        names = [share.format(mode) for mode in ("no loading", PRELOADED, PER_BATCH)]
        names += [f"the published share, {mode}" for mode in (PRELOADED, PER_BATCH)]
        cells = [f"{ratios[name]:.1%}" if name in ratios else "" for name in names]
        lines.append(f"| {family}, {device} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def short_table(found: list[Figure]) -> str:
    """Return README's table: chosen figures, a column for each device."""
    return table([(words, {"": chosen(found, text)}) for words, text in SHORT.items()], devices(found))


def chosen(found: list[Figure], text: str) -> list[Figure]:
    """Return the figures of a line: of each device the claim that begins so; ``{best}`` stands for any words."""
    first, _, rest = text.partition("{best}")
    return [each for each in found if each.text.startswith(first) and rest.strip() in each.text]


def long_table(found: list[Figure]) -> str:
    """Return the guide's table: every figure, with one line for a claim about several cases."""
    claims: dict[tuple[str, str, float], dict[str, list[Figure]]] = {}
    for each in found:
        case, colon, claim = each.text.partition(": ")
        cases = claims.setdefault((claim if colon else each.text, each.relation, each.bound), {})
        cases.setdefault(case if colon else "", []).append(each)
    return table([line(claim, cases) for (claim, _, _), cases in claims.items()], devices(found))


def line(claim: str, cases: dict[str, list[Figure]]) -> tuple[str, dict[str, list[Figure]]]:
    """Return a line of the guide's table: the words that all cases share, and the figures of each case."""
    if len(cases) == 1:
        (figures,) = cases.values()
        return figures[0].text, {"": figures}
    alike = takewhile(lambda words: len(set(words)) == 1, zip(*map(str.split, cases), strict=False))
    shared = " ".join(words[0] for words in alike)
    words = f"{shared} ...: {claim}" if shared else claim
    return words, {case.removeprefix(shared).strip(): figures for case, figures in cases.items()}


def devices(found: list[Figure]) -> list[str]:
    """Return the names of the devices."""
    return list(dict.fromkeys(each.device for each in found))


def table(lines: Iterable[tuple[str, dict[str, list[Figure]]]], names: list[str]) -> str:
    """Return a table in Markdown; without a device, a line."""
    if not names:
        return "Nothing is measured on a GPU yet.\n"
    rows = [f"| | to reach | {' | '.join(names)} |", f"|---|---:|{'---:|' * len(names)}"]
    for words, cases in lines:
        if several := [each for figures in cases.values() for each in figures]:
            first = several[0]
            cells = [cells_of(cases, name) for name in names]
            rows.append(f"| {words} | {first.relation} {number(first.bound)} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def cells_of(cases: dict[str, list[Figure]], device: str) -> str:
    """Return the figures of a device, each after its case."""
    found = {case: cell([each for each in figures if each.device == device]) for case, figures in cases.items()}
    return "; ".join(f"{case}: {text}" if case else text for case, text in found.items() if text)


def cell(several: list[Figure]) -> str:
    """Return the figure of a device; of several, the first."""
    if not several:
        return ""
    text = number(several[0].measured)
    return text if several[0].reached else f"*{text}*"


def number(value: float) -> str:
    """Return a number with three digits that count."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def with_table(page: str, text: str) -> str:
    """Return a page with another table."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"the page has no place for the figures; expected {START!r} and {END!r}")
    return f"{before}{START}\n{text}\n{END}{after}"


if __name__ == "__main__":
    main()
