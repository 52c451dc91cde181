"""Names that begin with an underscore are read by the class, or the file, that has them: exceptions are counted here.

What one part of the package asks of another has a public name, which users do not see.
"""

import ast
from functools import cache
from pathlib import Path

import batchloom
import pytest

PACKAGE = Path(batchloom.__file__).parent

# The most accesses to private names: of our own, and of other libraries, which have no public name for these.
OWN, OTHERS = 4, 12

# Names that documentation of Python names, though they begin with an underscore.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_replace"}


def has_words(name):
    """Tells whether a name is a private one: with one underscore in front."""
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def is_own(value):
    """Tells whether a name belongs to the object that reads it, to its class, or to the extension."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "_native")


def defined(tree):
    """The private names that classes of a file have: methods, fields, slots, and what is set on `self`."""
    found = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(kind):
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
                found.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return {name for name in found if has_words(name)}


def foreign(text):
    """The line and the name of each access to a private name of something else than the file's own classes."""
    tree = ast.parse(text)
    own = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and has_words(node.attr) and not is_own(node.value) and node.attr not in own:
            yield node.lineno, node.attr


@cache
def accesses():
    """The place and the name of each access to a private name, of our own and of other libraries."""
    files = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    ours = set().union(*(defined(ast.parse(text)) for text in files.values()))
    found = [
        (f"{path.relative_to(PACKAGE)}:{line}", name) for path, text in files.items() for line, name in foreign(text)
    ]
    return [each for each in found if each[1] in ours], [each for each in found if each[1] not in ours]


def test_few_private_names_of_ours_are_read_elsewhere():
    found, _ = accesses()
    assert len(found) <= OWN, found


def test_few_private_names_of_other_libraries_are_read():
    _, found = accesses()
    assert len(found) <= OTHERS, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a._b", [(1, "_b")]),
        ("a.b._c()", [(1, "_c")]),
        ("f(a)._b = 1", [(1, "_b")]),
        ("self._b\ncls._b\nsuper()._b\n_native._b", []),
        ("a.__dict__\na.b\nnamed._asdict()", []),
        ("class A:\n    def _f(self): ...\n\ndef f(a):\n    return a._f(), a._g", [(5, "_g")]),
        ("class A:\n    def f(self):\n        self._b = 1\n\nf(a._b)", []),
        ("class A:\n    _b: int\n\nf(a._b)", []),
    ],
)
def test_accesses_to_private_names_are_found(text, expected):
    assert list(foreign(text)) == expected
