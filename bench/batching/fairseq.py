"""fairseq's batcher, without fairseq: from Python 3.11 on the package cannot be imported, but its Cython module builds.

``load`` returns ``batch_by_size_vec`` of the source package on PyPI, unchanged, compiled once into
the folder of the Python environment; where that fails, an ``ImportError`` that says why.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

VERSION = "0.12.2"
MODULE = "data_utils_fast"
FOLDER = Path(sys.prefix) / f"fairseq-{VERSION}"


def load() -> Callable[..., list[numpy.ndarray]]:
    """Return the batcher, built on first use, which takes some seconds, a compiler and PyPI.

    Raises:
        ImportError: It cannot be built here.
    """
    built = FOLDER / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists():
        _build()
    spec = importlib.util.spec_from_file_location(MODULE, built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.batch_by_size_vec


def _build() -> None:
    """Download the source package; compile the one module."""
    FOLDER.mkdir(exist_ok=True)
    alone = ("--no-deps", "--no-binary", "fairseq", "--no-build-isolation", "--dest", str(FOLDER))
    _run("pip", "download", "--quiet", "--disable-pip-version-check", *alone, f"fairseq=={VERSION}")
    with tarfile.open(FOLDER / f"fairseq-{VERSION}.tar.gz") as package:
        source = package.extractfile(f"fairseq-{VERSION}/fairseq/data/{MODULE}.pyx").read().decode()
    settings = {"language": "c++", "include_dirs": numpy.get_include(), "extra_compile_args": "-O3"}
    head = "".join(f"# distutils: {name} = {value}\n" for name, value in settings.items())
    path = FOLDER / f"{MODULE}.pyx"
    path.write_text(head + source)
    _run("Cython.Build.Cythonize", "--inplace", str(path))


def _run(module: str, *arguments: Any) -> None:
    """Run a module of Python in its own process."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=FOLDER)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise ImportError(f"{module} ended with status {done.returncode}: {last}")
