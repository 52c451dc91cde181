"""Measure batches on a GPU beside peers and beside the device's own limits, under a clock.

    python -m bench device [--minutes 9] [--only rows] [--device cuda] [--rounds 5] [--scale 0.1] [--out DIR]

Parts run in their order of value until the minutes are over (visit.py):

- ``laws``, ``more_laws``: the project's tests on the device (laws.py). ``limits``: copies and products (limits.py).
- ``rows``, ``narrow_rows``, ``training``: the published experiment on a small model (rows.py). ``groups`` (groups.py).
- ``windows``, ``windows_features``, ``windows_batch``, ``windows_length``: views, by memory and time (windows.py).
- ``documents``: documents of any length through a model of 70 layers (sequences.py).
- ``dlinear``, ``transformer``, ``informer``, ``autoformer``, ``patchtst``: epochs of forecasters (forecasters.py).
- ``attention``: packs through FlexAttention and attention of variable lengths (attention.py). ``jax`` (jax_rows.py).
- ``errors``: PatchTST/42 on ETTh1 (patchtst.py), which goes on from visit to visit.

``scripts/device`` packs what a machine without a network needs, runs this there and brings the results home, which are
``device-<name>.json`` in ``--out``. Ratios to bandwidth are taken inside a round, to copies of the same bytes in it.
Without a GPU the CPU stands in, with smaller data (``--device cpu``): that shows that everything runs.

Exit codes: 0 if nothing failed, 1 if a part failed, 2 if nothing could run, or a part lacks a package or memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.device.attention import measure_attention
from bench.device.forecasters import measure_family
from bench.device.groups import measure_groups
from bench.device.jax_rows import measure_jax
from bench.device.laws import measure_laws, measure_more_laws
from bench.device.limits import measure_limits
from bench.device.patchtst import measure_patchtst
from bench.device.place import Place
from bench.device.rows import measure_narrow_rows, measure_rows, measure_training
from bench.device.sequences import measure_sequences
from bench.device.visit import FAILED, Part, Visit, elsewhere, now
from bench.device.windows import measure_sweep, measure_windows
from bench.harness.command import arguments
from bench.harness.record import commit, machine, results, versions

TRANSFORMERS = ("transformers",)
PARTS: dict[str, Part] = {
    "laws": Part(measure_laws, 45, 10, ("pytest", "hypothesis", "xdist", "pytest_timeout"), 8e9),
    "rows": Part(measure_rows, 40, 4, ("batch_iter",), 14e9),
    "windows": Part(measure_windows, 32, memory=12e9),
    "training": Part(measure_training, 35, 5, ("batch_iter",)),
    "documents": Part(measure_sequences, 125, 5, memory=30e9),
    "dlinear": Part(measure_family("DLinear"), 45),
    "transformer": Part(measure_family("Transformer"), 45, 6, TRANSFORMERS),
    "groups": Part(measure_groups, 28, 4, ("batch_iter",), 14e9),
    "narrow_rows": Part(measure_narrow_rows, 40, 4, ("batch_iter",)),
    "informer": Part(measure_family("Informer"), 45, 6, TRANSFORMERS),
    "autoformer": Part(measure_family("Autoformer"), 55, 6, TRANSFORMERS),
    "patchtst": Part(measure_family("PatchTST"), 55, 6, TRANSFORMERS),
    "attention": Part(measure_attention, 70, 4, memory=20e9),
    "jax": Part(measure_jax, 20, 6, ("jax",)),
    "limits": Part(measure_limits, 12, 2),
    "windows_features": Part(measure_sweep("features"), 60, 4, memory=40e9),
    "windows_batch": Part(measure_sweep("batch"), 30, 4, memory=14e9),
    "windows_length": Part(measure_sweep("length"), 60, 4, memory=40e9),
    "more_laws": Part(measure_more_laws, 240, 0.1, ("pytest", "hypothesis", "xdist", "pytest_timeout"), 8e9),
    "errors": Part(measure_patchtst, 60, 12, memory=12e9, long=True),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "device": {"default": "cuda", "help": "where batches are to be: cuda, or cpu to see that everything runs"},
    "minutes": {"type": float, "default": 9.0, "help": "the minutes that the visit may take"},
    "out": {"help": "the folder to write to; by default $OUT, else results/local"},
    "commit": {"help": "the commit that is measured, where this folder is in no repository"},
}
# On the CPU a round says nothing, so there is one.
CPU_ROUNDS = 1


def main() -> None:
    """Run the chapter."""
    started = time.monotonic()
    chosen = arguments(__doc__, PARTS, **OPTIONS)
    is_gpu = chosen.device != "cpu"
    least = min(PARTS[name].estimate if is_gpu else PARTS[name].on_cpu for name in names_of(chosen))
    if chosen.minutes * 60 < least:
        refuse(f"the clock is {chosen.minutes * 60:.0f} s; expected at least {least:.0f} s, for the shortest part")
    place = partial(Place.named, chosen.device, chosen.rounds if is_gpu else CPU_ROUNDS, chosen.scale)
    facts = elsewhere(lambda: described(place()), 60)
    if "failure" in facts:
        refuse(facts["failure"])
    print(f"{facts['note']}; {chosen.minutes:g} minutes", flush=True)
    out = Path(chosen.output).parent if chosen.output else Path(chosen.out or os.environ.get("OUT") or results(False))
    out.mkdir(parents=True, exist_ok=True)
    file = Path(chosen.output) if chosen.output else out / f"device-{facts['slug']}.json"
    visit = Visit(PARTS, place, file, head(chosen, facts), started + chosen.minutes * 60, out, is_gpu)
    records = visit.run(names_of(chosen))
    print(f"\nwritten: {file}", flush=True)
    sys.exit(exit_code(records))


def names_of(chosen: argparse.Namespace) -> list[str]:
    """Return the parts that ``--only`` chose, or all, in their order of value."""
    return [name for name in PARTS if name in (chosen.only or PARTS)]


def refuse(reason: str) -> None:
    """Say in one line why nothing can run, and end."""
    print(f"device: {reason}", file=sys.stderr)
    sys.exit(2)


def described(place: Place) -> dict[str, Any]:
    """Return the facts of the device, and its name for a file."""
    return {**place.facts(), "slug": place.slug}


def head(chosen: argparse.Namespace, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what the results are of."""
    known = {"id": chosen.commit, "changed": False} if chosen.commit else commit()
    return {
        "name": "device",
        "device": facts,
        "commit": known,
        "arguments": {"scale": chosen.scale, "rounds": chosen.rounds},
        "taken": now(),
        "machine": machine(),
        "versions": versions(),
    }


def exit_code(records: dict[str, Any]) -> int:
    """Return 0 if nothing failed, 2 if a part lacked what it needs, else 1."""
    failures = [record["failure"] for record in records.values() if record["status"] == FAILED]
    if not failures:
        return 0
    return 2 if all("expected" in failure for failure in failures) else 1


if __name__ == "__main__":
    main()
