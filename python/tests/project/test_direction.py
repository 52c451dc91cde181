"""Imports of the package point one way: from `loader` down to `errors`, and no two files import each other."""

import ast
from pathlib import Path

import batchloom
import pytest

PACKAGE = Path(batchloom.__file__).parent

# Lowest first. A file imports files of its own layer and of those below.
LAYERS = (
    ("_native", "errors"),
    ("arguments", "arrays", "bans", "batch_digest", "classes", "draws", "sizes"),
    ("batch", "batching", "field_names", "label_counts", "slots", "window_steps"),
    ("calibrate", "mesh", "plan", "plan_attributes", "plan_options", "ranks", "restore_order"),
    ("device",),
    ("dataset",),
    ("delivery",),
    (
        "conversions",
        "epoch_count",
        "epoch_lists",
        "loader",
        "loader_options",
        "metrics",
        "mixture",
        "sampler",
        "torch_attributes",
        "torch_options",
        "watchers",
    ),
    ("compare", "interleave"),
    ("integrations",),
    ("command_line",),
    ("__main__",),
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
    """The file that has what an import names: `arrays.field` for `arrays.field.Field`."""
    while path and path not in FILES:
        path = path.rpartition(".")[0]
    return path


def layer(name):
    """The layer of a file; the one above all for the package itself."""
    room = name.partition(".")[0]
    return next((level for level, rooms in enumerate(LAYERS) if room in rooms), len(LAYERS))


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


def test_imports_point_down():
    up = [(name, other) for name, others in IMPORTS.items() for other in others if layer(other) > layer(name)]
    assert up == []


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
        ("from batchloom.arrays.field import Field", {"arrays.field"}),
        ("from batchloom import plan, DataLoader", {"plan", ""}),
        ("def f():\n    from batchloom.device.shards import Shards", {"device.shards"}),
        ("if TYPE_CHECKING:\n    import batchloom.loader", {"loader"}),
        ("import numpy\nfrom torch import nn", set()),
    ],
)
def test_an_import_is_seen_wherever_it_stands(line, expected):
    assert imported(line, "here") == expected


def test_a_circle_is_seen():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
