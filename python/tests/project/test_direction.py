"""Imports of the package point one way: from `integrations` down to `errors`, and no two files import each other."""

import ast
from pathlib import Path

import batchloom
import pytest

PACKAGE = Path(batchloom.__file__).parent

# Lowest first: the folders of the package, and its files. A file imports its own folder, and folders of layers below.
LAYERS = (
    ("_native", "errors"),
    ("arguments", "arrays", "command_line"),
    ("__main__", "ranks", "samples"),
    ("batching",),
    ("collate", "plan"),
    ("device",),
    ("dataset",),
    ("formats",),
    ("delivery",),
    ("loader",),
    ("integrations",),
)

# Folders inside of folders, each above the one that its files do not import.
INNER = (
    ("dataset.map", "dataset"),
    ("dataset.map", "dataset.windows"),
    ("dataset.windows", "dataset"),
    ("device", "device.collate"),
    ("loader", "loader.torch"),
)


def name_of(path):
    """The name of a file of the package without `batchloom`: "arrays.field", and "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in PACKAGE.rglob("*.py")} | {"_native": PACKAGE / "_native.pyi"}


def imported(text, name):
    """The files of the package that a file imports: at its top, in functions, or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import in line {node.lineno}"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {f"{path}.".removeprefix("batchloom.") for path in found if path.split(".")[0] == "batchloom"}
    return {nearest(path.rstrip(".")) for path in ours}


def nearest(path):
    """The file that has what an import names: `arrays.field` for `arrays.field.BorrowedArray`."""
    while path and path not in FILES:
        path = path.rpartition(".")[0]
    return path


def room(name):
    """The folder of a file, or the file itself where it lies in none; "" for the package itself."""
    return name.partition(".")[0]


def layer(name):
    """The layer of a file; the one above all for the package itself."""
    return next((level for level, rooms in enumerate(LAYERS) if room(name) in rooms), len(LAYERS))


def inner(name):
    """The folder that a file lies in, however deep; "" where it lies in none."""
    is_folder = any(other.startswith(f"{name}.") for other in FILES)
    return name if is_folder else name.rpartition(".")[0]


IMPORTS = {name: imported(path.read_text(encoding="utf-8"), name) - {name} for name, path in FILES.items()}


def circle(imports):
    """The files of a circle of imports; empty where there is none."""
    left = dict(imports)
    while leaves := [name for name, others in left.items() if not others & left.keys()]:
        for name in leaves:
            del left[name]
    return sorted(left)


def test_every_file_has_a_layer():
    assert [name for name in FILES if name and layer(name) == len(LAYERS)] == []


def test_few_files_lie_in_no_folder():
    flat = {path.name for path in PACKAGE.glob("*.py*")}
    assert flat == {"__init__.py", "__main__.py", "_native.pyi", "arguments.py", "command_line.py", "errors.py"}


def test_imports_point_down():
    """To layers below: folders of one layer do not know each other."""
    up = [
        (name, other)
        for name, others in IMPORTS.items()
        for other in others
        if room(other) != room(name) and layer(other) >= layer(name)
    ]
    assert up == []


@pytest.mark.parametrize(("above", "below"), INNER)
def test_imports_of_inner_folders_point_down(above, below):
    assert {above, below} <= {inner(name) for name in FILES}
    up = [
        (name, other)
        for name, others in IMPORTS.items()
        for other in others
        if (inner(name), inner(other)) == (below, above)
    ]
    assert up == []


def test_no_circle_of_folders():
    """However deep: no two folders import each other, directly or through more folders."""
    imports = {inner(name) or name: set() for name in FILES if name}
    for name, others in IMPORTS.items():
        if name:
            imports[inner(name) or name] |= {inner(other) or other for other in others}
    assert circle({folder: others - {folder} for folder, others in imports.items()}) == []


def test_folders_import_nothing_themselves():
    """A package of a folder names no file in it, so that an import loads what it needs alone."""
    heavy = {name for name, others in IMPORTS.items() if others and name and FILES[name].name == "__init__.py"}
    assert heavy == {"integrations"}  # for types alone


def test_the_map_is_small():
    """Count folders, files outside of them, and arrows between them; imports of the package itself are exports."""
    rooms = {room(name) for name in FILES}
    arrows = {(room(name), room(other)) for name, others in IMPORTS.items() for other in others} - {
        (each, each) for each in rooms
    }
    assert len(rooms) <= 18
    assert len([each for each, _ in arrows if each]) <= 68


def test_no_file_imports_the_package_itself():
    assert [name for name, others in IMPORTS.items() if "" in others] == []


def test_no_circle_of_files():
    assert circle(IMPORTS) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import batchloom._native as _native", {"_native"}),
        ("from batchloom._native import Tensor", {"_native"}),
        ("from batchloom.arrays import frames, torch", {"arrays.frames", "arrays.torch"}),
        ("from batchloom.arrays.field import BorrowedArray", {"arrays.field"}),
        ("from batchloom import plan, DataLoader", {"plan", ""}),
        ("def f():\n    from batchloom.device.shards import Shards", {"device.shards"}),
        ("if TYPE_CHECKING:\n    import batchloom.loader.loader", {"loader.loader"}),
        ("import numpy\nfrom torch import nn", set()),
    ],
)
def test_an_import_is_seen_wherever_it_stands(line, expected):
    assert imported(line, "here") == expected


def test_a_circle_is_seen():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
