"""The laws of docs/laws.md and the tests that hold them, by the marks on these tests.

    python python/tests/laws.py

writes the list of tests to ``python/tests/LAWS.md``. A test in Python has the mark ``@pytest.mark.law("L4")``, a test
in Rust the comment ``// law: L4`` above its attributes. A test of several laws names them all.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAWS = ROOT / "docs" / "laws.md"
PAGE = Path(__file__).with_name("LAWS.md")
PYTHON, RUST = ROOT / "python" / "tests", ROOT / "crates" / "batchloom" / "tests"

HEADING = re.compile(r"^## ([LW]\d+): (.+)$", re.MULTILINE)
RUST_MARK = re.compile(r"^ *// law: (.+)\n(?: *#\[.*\]\n)+ *fn (\w+)\(", re.MULTILINE)


def laws():
    """The names of all laws and their titles."""
    return dict(HEADING.findall(LAWS.read_text(encoding="utf-8")))


def marks():
    """The language, the file, the test and the law of each mark."""
    for path in sorted(PYTHON.rglob("test_*.py")):
        for test, law in marks_in_python(path.read_text(encoding="utf-8")):
            yield "Python", str(path.relative_to(PYTHON)), test, law
    for path in sorted(RUST.rglob("*.rs")):
        for test, law in marks_in_rust(path.read_text(encoding="utf-8")):
            yield "Rust", str(path.relative_to(RUST)), test, law


def marks_in_python(text):
    """The tests of a file in Python with their laws."""
    for node in ast.walk(ast.parse(text)):
        for mark in getattr(node, "decorator_list", ()):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.law":
                yield from ((node.name, ast.literal_eval(law)) for law in mark.args)


def marks_in_rust(text):
    """The tests of a file in Rust with their laws."""
    for names, test in RUST_MARK.findall(text):
        yield from ((test, law) for law in names.split(", "))


def page():
    """The list of tests, a section for each law."""
    found = list(marks())
    lines = ["# Tests of the laws", "", "`python python/tests/laws.py` writes this page from the marks on the tests."]
    for law, title in laws().items():
        lines += ["", f"## {law}: {title}", ""]
        for language in ("Rust", "Python"):
            ours = [(file, test) for kind, file, test, held in found if (kind, held) == (language, law)]
            lines += [f"- {language}: `{file}::{test}`" for file, test in ours]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
