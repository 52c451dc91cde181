"""Prose: summaries and arguments begin with a verb or a noun, and few turns of phrase make a reader stop."""

import re
from functools import cache
from pathlib import Path

import batchloom
import prose
import pytest
from prose import docstrings

PACKAGE = Path(batchloom.__file__).parent
FILES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])

# A reader who scans a list of summaries looks for what a function does, or for the thing that a class is.
QUESTION = re.compile(
    r"(what|where|when|who|whom|whose|whether|why|how|which|that|nothing|nobody|none)(ever)?\b", re.IGNORECASE
)
# Turns of phrase in 1000 words, over each kind of text and in one file.
MOST, MOST_IN_A_FILE = 6.5, 12
# In fewer words, a share means little.
LEAST_WORDS = 150

SECTIONS = ("Args:", "Attributes:")
ENTRY = re.compile(r"    (\w+): (.*)")


def entries(docstring):
    """The names and the descriptions of arguments and attributes."""
    section = None
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            section = line
        elif section in SECTIONS and (entry := ENTRY.fullmatch(line)):
            yield entry[1], entry[2]


@cache
def texts():
    """The prose of each file, by kind of text: read once, and only where it is asked for."""
    return prose.texts()


@cache
def all_docstrings():
    """The place and the text of each docstring."""
    return [
        (f"{path.relative_to(PACKAGE)}:{line}", text)
        for path in FILES
        for line, text in docstrings(path.read_text(encoding="utf-8"))
    ]


def summaries():
    """The place and the first line of each docstring."""
    return [(place, text.strip().splitlines()[0]) for place, text in all_docstrings()]


def test_summaries_begin_with_a_verb_or_a_noun():
    assert len(summaries()) > 300
    assert [(place, text) for place, text in summaries() if QUESTION.match(text)] == []


def test_descriptions_of_arguments_begin_with_a_verb_or_a_noun():
    found = [(place, name, description) for place, text in all_docstrings() for name, description in entries(text)]
    assert len(found) > 100
    assert [each for each in found if QUESTION.match(each[2])] == []


def test_summaries_end_their_sentence():
    assert [(place, text) for place, text in summaries() if not text.endswith((".", ":", "``"))] == []


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


@pytest.mark.parametrize("kind", prose.KINDS)
def test_few_turns_of_phrase_make_a_reader_stop(kind):
    whole = prose.total(texts()[kind])
    assert whole.words > 1000
    assert whole.share <= MOST, f"{kind}: `python tests/prose.py` lists the files with most of them"


@pytest.mark.parametrize("kind", prose.KINDS)
def test_no_file_is_full_of_turns_of_phrase(kind):
    long = [text for text in texts()[kind] if text.words >= LEAST_WORDS]
    assert [(text.path.name, round(text.share, 1)) for text in long if text.share > MOST_IN_A_FILE] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The order is that of the plan, and those of ranks are as many.", 3),
        ("Data comes and says nothing; let go of it, by which others ask.", 6),
        ("Samples of its own whose rank goes on: the one that is none.", 5),
        ("Return the type of the field.", 0),
    ],
)
def test_turns_of_phrase_are_counted(text, count):
    assert prose.Text(Path(), text).phrases == count
