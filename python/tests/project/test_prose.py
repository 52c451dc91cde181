"""Docstrings of the package: summaries and descriptions of arguments begin with a verb or a noun."""

import ast
import re
from pathlib import Path

import batchloom
import pytest

PACKAGE = Path(batchloom.__file__).parent
FILES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])

# A reader who scans a list of summaries looks for what a function does, or for the thing that a class is.
QUESTION = re.compile(
    r"(what|where|when|who|whom|whose|whether|why|how|which|that|nothing|nobody|none)(ever)?\b", re.IGNORECASE
)
SECTIONS = ("Args:", "Attributes:")
ENTRY = re.compile(r"    (\w+): (.*)")


def docstrings(text):
    """The line and the text of each docstring: of a file, of its classes and functions, and beneath fields."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if found := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), found
            for field, string in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.Assign | ast.AnnAssign) and is_text(string):
                    yield string.lineno, string.value.value


def is_text(node):
    """Tells whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def entries(docstring):
    """The names and the descriptions of arguments and attributes."""
    section = None
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            section = line
        elif section in SECTIONS and (entry := ENTRY.fullmatch(line)):
            yield entry[1], entry[2]


SUMMARIES = [
    (f"{path.relative_to(PACKAGE)}:{line}", text.strip().splitlines()[0])
    for path in FILES
    for line, text in docstrings(path.read_text(encoding="utf-8"))
]
ENTRIES = [
    (f"{path.relative_to(PACKAGE)}:{line} {name}", description)
    for path in FILES
    for line, text in docstrings(path.read_text(encoding="utf-8"))
    for name, description in entries(text)
]


def test_summaries_begin_with_a_verb_or_a_noun():
    assert len(SUMMARIES) > 300
    assert [(place, text) for place, text in SUMMARIES if QUESTION.match(text)] == []


def test_descriptions_of_arguments_begin_with_a_verb_or_a_noun():
    assert len(ENTRIES) > 100
    assert [(place, text) for place, text in ENTRIES if QUESTION.match(text)] == []


def test_summaries_end_their_sentence():
    assert [(place, text) for place, text in SUMMARIES if not text.endswith((".", ":", "``"))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""A file."""\nimport os\n', ["A file."]),
        ('def f():\n    """Return it.\n\n    More.\n    """', ["Return it.\n\nMore."]),
        ('class A:\n    """A class."""\n    x: int\n    """A field."""', ["A class.", "A field."]),
        ('x = 1\n"""A value."""', ["A value."]),
        ('def f():\n    pass\n\n\nx = "no docstring"\n', []),
    ],
)
def test_a_docstring_is_seen_wherever_it_stands(text, expected):
    assert [found for _, found in docstrings(text)] == expected


@pytest.mark.parametrize("text", ["What it is.", "Whether so.", "whoever asks", "None of them.", "That which is."])
def test_a_question_is_seen(text):
    assert QUESTION.match(text)
    assert not QUESTION.match(f"Return {text}")


def test_an_entry_is_seen():
    docstring = "Summary.\n\nArgs:\n    name: Its name,\n        more: no.\n    size: Its size.\n\nRaises:\n    E: No."
    assert list(entries(docstring)) == [("name", "Its name,"), ("size", "Its size.")]
