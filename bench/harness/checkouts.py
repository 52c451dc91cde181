"""Find code of peers that is in no package: checkouts, and single functions and classes of a script.

``BENCH_PEERS`` names a folder with the checkouts. A function is compiled from its script as it stands, without the rest
of the script. What it reads of the module around it is given by name. No code of peers is here.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class NotHereError(LookupError):
    """A checkout or a package is not on this machine: the reason why a peer is not measured."""


def find_checkout(name: str) -> Path | None:
    """Return the folder of a checkout in ``BENCH_PEERS``, or ``None`` without a checkout."""
    folder = Path(os.environ.get("BENCH_PEERS", "")) / name
    return folder if "BENCH_PEERS" in os.environ and folder.is_dir() else None


def need_checkout(name: str) -> Path:
    """Return the folder of a checkout in ``BENCH_PEERS``.

    Raises:
        NotHereError: It is not there.
    """
    folder = find_checkout(name)
    if folder is None:
        raise NotHereError(f"no checkout {name} in the folder that BENCH_PEERS names")
    return folder


def need_package(name: str) -> Any:
    """Import a module of a peer.

    Raises:
        NotHereError: It is not installed, or it imports what is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotHereError(f"{name} is not installed: {error}") from error


def read_commit(folder: Path) -> str | None:
    """Return the commit of a checkout; ``None`` where it has no history."""
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    top, _, commit = done.stdout.strip().partition("\n")
    return commit if done.returncode == 0 and Path(top).resolve() == folder.resolve() else None


def take(file: Path, names: Sequence[str], space: dict[str, Any]) -> dict[str, Any]:
    """Compile the functions and classes so named, at any depth of a script; return ``space`` with them.

    Args:
        file: The script.
        names: The functions and classes, in the order in which they are to be defined.
        space: The names that they read of the module around them.

    Raises:
        NotHereError: The script is not there, or has none of a name.
    """
    if not file.exists():
        raise NotHereError(f"no file {file}")
    kinds = (ast.FunctionDef, ast.ClassDef)
    tree = ast.parse(file.read_text())
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, kinds) and node.name in names}
    if missing := [name for name in names if name not in found]:
        raise NotHereError(f"{file} has no {', '.join(missing)}")
    exec(compile(ast.Module([found[name] for name in names], []), str(file), "exec"), space)
    return space
