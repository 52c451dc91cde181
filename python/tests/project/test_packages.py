"""The wheel and the source distribution: what is in them, and that each works where nothing else is installed.

Building and installing take about a minute, so that only scripts/test runs these: ``pytest -m packaging``.
"""

import email
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
MEGABYTE = 1_000_000
# The profile with which scripts/test compiled the extension, which is used again here.
PROFILE = os.environ.get("BATCHLOOM_PROFILE", "release")
# The endings of what a source distribution may hold.
SOURCES = {".rs", ".py", ".pyi", ".toml", ".md", ".lock", ".typed", ".html", ".txt", ""}

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(400)]

# Run in the environment where the package was installed; prints what is found there.
LOOK = """
import importlib.metadata
import json
import sys
import numpy
import batchloom as bl

values = numpy.arange(20, dtype=numpy.float32).reshape(10, 2)
loader = bl.DataLoader(bl.TensorDataset(values, numpy.arange(10)), batch_size=4, shuffle=True, seed=3)
rows, labels = next(iter(loader))
files = importlib.metadata.files("batchloom")
print(json.dumps({
    "version": bl.__version__,
    "declared": importlib.metadata.version("batchloom"),
    "packages": sorted(found.name for found in importlib.metadata.distributions()),
    "typed": any(str(file) == "batchloom/py.typed" for file in files),
    "imported_from": bl.__file__,
    "prefix": sys.prefix,
    "batch": [rows.tolist(), values[labels].tolist()],
}))
"""


def run(*command, **environment):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    manifest = ROOT / "python" / "Cargo.toml"
    run(
        BIN / "maturin", "build", "--profile", PROFILE, "--quiet", "-i", sys.executable, "-m", manifest, "--out", folder
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    run(BIN / "maturin", "sdist", "-m", ROOT / "python" / "Cargo.toml", "--out", folder)
    (path,) = folder.glob("*.tar.gz")
    return path


def look_after_installing(package, python, folder):
    """Install into an empty environment, import, make a batch."""
    run(BIN / "uv", "venv", "--quiet", "--python", python, folder / "env")
    installed = folder / "env" / "bin" / "python"
    # A source distribution is compiled here, and has to work, not to be fast: our crates are not optimised, and what
    # the workspace has compiled of others is used again.
    quick = {
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")),
        f"CARGO_PROFILE_{PROFILE.upper()}_OPT_LEVEL": "0",
        f"CARGO_PROFILE_{PROFILE.upper()}_CODEGEN_UNITS": "16",
        "MATURIN_PEP517_ARGS": f"--profile {PROFILE}",
    }
    run(BIN / "uv", "pip", "install", "--quiet", "--python", installed, package, **quick)
    return json.loads(run(installed, "-I", "-c", LOOK))


def check_installed(found):
    assert found["version"] == found["declared"]
    assert found["packages"] == ["batchloom", "numpy"]
    assert found["typed"]
    assert found["imported_from"].startswith(found["prefix"])
    rows, expected = found["batch"]
    assert rows == expected
    assert len(rows) == 4


def metadata(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(files.read(name))


def classified_pythons():
    text = (ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def sections(library):
    """Return the names of an ELF file's sections."""
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names = struct.unpack_from("<HHH", library, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", library, table + index * size) for index in range(count)]
    start = headers[names][4]
    return {library[start + header[0] : library.index(b"\0", start + header[0])].decode() for header in headers}


def test_wheel_serves_every_python_from_the_oldest_on(wheel):
    assert "-cp311-abi3-" in wheel.name


def test_wheel_holds_the_package_and_both_licences(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        texts = {name: files.read(name) for name in names if "/licenses/" in name}
    assert {"batchloom/__init__.py", "batchloom/py.typed", "batchloom/_native.pyi"} <= names
    assert all(name.startswith(("batchloom/", "batchloom-")) for name in names), names
    parts = {part for name in names for part in name.split("/")}
    assert not [part for part in parts if part.startswith(("test", "conftest")) or part.endswith((".rs", ".pyc"))]
    assert sorted(name.rpartition("/")[2] for name in texts) == sorted(LICENCES)
    for name, text in texts.items():
        assert text == (ROOT / name.rpartition("/")[2]).read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF")
def test_wheel_is_small_and_has_no_symbols_for_debuggers(wheel):
    with zipfile.ZipFile(wheel) as files:
        (library,) = (files.read(name) for name in files.namelist() if name.endswith(".so"))
    found = sections(library)
    assert ".dynsym" in found
    assert not {name for name in found if name.startswith((".debug", ".symtab"))}
    # Linked in parts, as here, a wheel is larger than one of scripts/wheels: code is shared within a part alone. It is
    # larger still where code of dependencies is not optimised.
    assert wheel.stat().st_size < (8.1 if PROFILE == "quick" else 5.8) * MEGABYTE


def test_metadata_is_complete(wheel):
    found = metadata(wheel)
    assert found["License-Expression"] == "MIT OR Apache-2.0"
    assert sorted(found.get_all("License-File")) == sorted(LICENCES)
    assert found["Requires-Python"] == ">=3.11"
    assert [need for need in found.get_all("Requires-Dist") if "extra" not in need] == ["numpy>=2.2.5"]
    assert {"Typing :: Typed", f"Programming Language :: Python :: {HERE}"} <= set(found.get_all("Classifier"))
    assert {url.partition(",")[0] for url in found.get_all("Project-URL")} == {
        "Changelog",
        "Documentation",
        "Issues",
        "Repository",
    }


def test_description_has_no_link_that_breaks_away_from_the_repository(wheel):
    found = metadata(wheel)
    assert found["Description-Content-Type"].startswith("text/markdown")
    text = found.get_payload()
    assert text.startswith("# batchloom\n")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert not [link for link in links if not link.startswith("https://")]


def test_source_distribution_holds_both_crates_and_both_licences(sdist):
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
        links = [member.name for member in files if not member.isfile()]
    assert {"PKG-INFO", "pyproject.toml", "Cargo.lock", "README.md", *LICENCES} <= names
    assert {"crates/batchloom/src/lib.rs", "python/src/lib.rs", "batchloom/py.typed"} <= names
    assert not links
    # Sources alone: 590 files of 4.0 MB, which compress to 1.05. Data, results or pictures would not fit.
    assert {Path(name).suffix for name in names} <= SOURCES
    assert sdist.stat().st_size < 1.3 * MEGABYTE


def test_source_distribution_builds_and_works_where_nothing_else_is_installed(sdist, tmp_path):
    check_installed(look_after_installing(sdist, sys.executable, tmp_path))


@pytest.mark.parametrize("version", classified_pythons())
def test_wheel_works_where_nothing_else_is_installed(wheel, version, tmp_path):
    python = sys.executable if version == HERE else shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version} here")
    check_installed(look_after_installing(wheel, python, tmp_path))
