"""Measure batches on a GPU beside peers and beside the device's own limits.

    python -m bench device [--only rows] [--device cuda] [--rounds 5] [--scale 0.1] [--commit ID] [--add]

- ``limits``: copies on the device and to it, matrix products (limits.py).
- ``rows`` and ``training``: the published experiment on a small model, its loop and its epochs (rows.py).
- ``groups``: batches of whole groups of these rows (groups.py).
- ``windows``: memory and time of a batch, in every mode (windows.py).
- ``sequences``: documents of any length through a model of 70 layers (sequences.py).

It needs this folder and ``pip install batchloom torch numpy batch-iter``; no compiler, no repository. Without a GPU the
CPU stands in, with smaller data: that shows that everything runs, and its output says that no GPU was measured. Ratios
to bandwidth are taken inside a round, to copies of the same bytes in it. place.py holds the promises about the clock,
and the file of each part its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.device.groups import measure_groups
from bench.device.limits import measure_limits
from bench.device.place import Found, Place
from bench.device.rows import measure_rows, measure_training
from bench.device.sequences import measure_sequences
from bench.device.windows import measure_windows
from bench.harness.claims import Claim
from bench.harness.command import LEAST_ROUNDS, arguments, wanted
from bench.harness.record import commit, results, write
from bench.harness.report import table

PARTS: dict[str, Callable[[Place], Found]] = {
    "limits": measure_limits,
    "rows": measure_rows,
    "training": measure_training,
    "groups": measure_groups,
    "windows": measure_windows,
    "sequences": measure_sequences,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "device": {
        "default": "cuda" if torch.cuda.is_available() else "cpu",
        "help": "where batches are to be; cuda if there is one",
    },
    "commit": {"help": "the commit that is measured, where this folder is in no repository"},
    "add": {
        "action": "store_true",
        "help": "keep what the file has of other parts: to measure in pieces on one device",
    },
}


def recorded(place: Place, claim: Claim) -> dict[str, Any]:
    """Return the JSON's record of a figure: on the CPU there is no number to reach."""
    if place.is_gpu:
        return claim.record()
    return {"text": claim.text, "measured": claim.measured, "best": claim.best}


def print_figures(place: Place, claims: list[Claim]) -> None:
    """Print a line for each figure, beside the number to reach, where there is one."""
    if not claims:
        return
    rows = []
    for claim in claims:
        to_reach = (f"{claim.relation} {claim.bound:g}", "reached" if claim.reached else "NOT REACHED")
        best = "-" if claim.best is None else f"{claim.best:.4g}"
        rows.append((claim.text, f"{claim.measured:.4g}", best, *(to_reach if place.is_gpu else ("-", "-"))))
    table(place.note, ("figure", "measured", "shortest runs", "to reach", ""), rows)


def measured_commit(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the commit that was measured: that of the command line, or of the repository."""
    if chosen.commit:
        return {"id": chosen.commit, "changed": None}
    return commit()


def kept(chosen: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    """Return the parts that the file has, which must be of the same device, commit and size."""
    path = Path(chosen.output)
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text())
    same = [earlier[name] == now for name, now in body.items()]
    same += [earlier["arguments"][name] == getattr(chosen, name) for name in ("scale", "rounds")]
    if not all(same):
        raise SystemExit(f"{path} is of another device, commit or size; expected one to add to, or no --add")
    return {name: earlier[name] for name in PARTS if name in earlier}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS, **OPTIONS)
    place = Place.named(chosen.device, chosen.rounds, chosen.scale)
    print(place.note, flush=True)
    torch.manual_seed(0)
    published = chosen.scale == 1 and chosen.rounds >= LEAST_ROUNDS
    folder = results(published and (chosen.add or not chosen.only))
    chosen.output = chosen.output or str(folder / f"device-{place.slug}.json")
    body: dict[str, Any] = {"place": place.facts(), "commit": measured_commit(chosen)}
    body |= kept(chosen, body) if chosen.add else {}
    claims: list[Claim] = []
    for name, measure in wanted(chosen, PARTS).items():
        found = measure(place)
        claims += found.claims
        body[name] = {**found.body, "claims": [recorded(place, claim) for claim in found.claims]}
        place.clear()
        # After each part: a machine that is lent may be taken back.
        write("device", chosen, body, published and body.keys() >= PARTS.keys())
    print_figures(place, claims)


if __name__ == "__main__":
    main()
