"""Write measurements to a JSON file, beside the machine, the versions and the commit that they were taken on."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

# The folder of all chapters.
BENCH = Path(__file__).parents[1]
PACKAGES = (
    *("batchloom", "torch", "numpy", "batch-iter", "grain"),
    *("scipy", "pillow", "torchvision", "spdl-core"),
    *("torchcodec", "simplejpeg", "soundfile", "py-spy"),
    *("transformers", "tokenizers", "trl", "verl", "datasets", "pyarrow", "lhotse", "numba"),
    *("lightning", "accelerate", "ray", "torchdata", "litdata", "jax"),
    *("mosaicml-streaming", "array-record"),
    *("neuralforecast", "darts", "pytorch-forecasting", "pandas"),
)


def machine() -> dict[str, Any]:
    """Return the machine of this run."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_average_at_end": os.getloadavg(),
    }


def _cpu_model() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _caches() -> dict[str, str]:
    """Return the size of each cache of the first core."""
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    names = ("level", "type", "size")
    levels = [[(folder / name).read_text().strip() for name in names] for folder in folders]
    return {f"L{level} {kind}": size for level, kind, size in levels}


def versions() -> dict[str, str | None]:
    """Return the version of every peer; ``None`` where one is not installed."""
    found: dict[str, str | None] = {name: _version(name) for name in PACKAGES}
    lock = (BENCH / "rows" / "dataloader_rs" / "Cargo.lock").read_text()
    crate = re.search(r'name = "dataloader-rs"\nversion = "(.*)"', lock)
    return {**found, "dataloader-rs": crate[1] if crate else None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> dict[str, Any]:
    """Return the commit that was measured, and whether tracked files outside the results differ from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results")
    return {"id": _git("rev-parse", "HEAD"), "changed": bool(changed)}


def _git(*arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(BENCH.parent), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def write(name: str, chosen: argparse.Namespace, body: dict[str, Any], whole: bool) -> None:
    """Write measurements to their file."""
    head = {"name": name, "taken": datetime.now(UTC).isoformat(timespec="seconds"), "whole": whole}
    where = {"machine": machine(), "versions": versions(), "commit": commit(), "arguments": vars(chosen)}
    body = {"torch_threads": torch.get_num_threads(), **body}
    path = file_of(name, chosen, whole)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, **where, **body}, indent=1) + "\n")
    print(f"\nwritten: {path}")


def file_of(name: str, chosen: argparse.Namespace, whole: bool) -> Path:
    """Return the file that ``--output`` names, or ``results/<name>-<machine>.json``.

    A run that is not ``whole`` goes to ``results/local/``, which git ignores.
    """
    return Path(chosen.output or results(whole) / _file_name(name))


def results(whole: bool) -> Path:
    """Return the folder of results."""
    return BENCH / "results" if whole else BENCH / "results" / "local"


def pictures_folder(chosen: argparse.Namespace, whole: bool) -> Path:
    """Return the folder of pictures: ``--pictures``, or a folder beside the results. Make it where it is missing."""
    folder = Path(chosen.pictures or results(whole) / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _file_name(name: str) -> str:
    model = re.sub(r"[^a-z0-9]+", "-", _cpu_model().lower()).strip("-")
    return f"{name}-{model}-{len(os.sched_getaffinity(0))}-cores.json"
