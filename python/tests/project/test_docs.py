"""The documentation is true: its code runs, its links lead somewhere, and the tests and files that it names exist."""

import inspect
import re
import unicodedata
from pathlib import Path

import batchloom as bl
import laws
import pytest
from torch.utils import data

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
# The guide to the Rust interface is tested by rustdoc, which compiles and runs its blocks, and the page on forecasting
# libraries by tests/integrations, where these are installed.
NOT_RUN = ("rust.md", "laws.md", "forecasting-libraries.md")
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
RUN = [page for page in (ROOT / "python" / "README.md", *PAGES) if page.name not in NOT_RUN]
# All Markdown of the repository; what cargo builds may hold pages of others.
FOLDERS = ("bench", "crates", "docs", "examples", "python")
EVERYWHERE = [*ROOT.glob("*.*"), *(found for folder in FOLDERS for found in (ROOT / folder).rglob("*.*"))]
FILES = sorted(file for file in EVERYWHERE if "target" not in file.relative_to(ROOT).parts)
MARKDOWN = [file for file in FILES if file.suffix == ".md"]

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|rs|md))`")

TESTS = {".py": laws.PYTHON, ".rs": laws.RUST}


def name(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """The text of a page without its blocks of code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    found = []
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = (letter for letter in text if letter in " -_" or unicodedata.category(letter)[0] in "LN")
        anchor = "".join(kept).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return found


@pytest.mark.parametrize("page", RUN, ids=name)
def test_code_on_page_runs(page, tmp_path, monkeypatch):
    """Each block of Python runs, page by page, as a reader would type it."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks, f"{page.name} has no code"
    names = {}
    try:
        for block in blocks:
            exec(compile(block, page.name, "exec"), names)
    finally:
        # Functions of a page hold its names, and so loaders whose threads other tests would count.
        names.clear()


@pytest.mark.parametrize("page", MARKDOWN, ids=name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{name(page)} links to {link}, which is outside the repository"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}; {name(target)} has {anchors(target)}"


@pytest.mark.parametrize("page", MARKDOWN, ids=name)
def test_files_that_a_page_names_exist(page):
    """A file is named by the end of its path: `buffer.rs`, or `tensor/buffer.rs`."""
    for named in NAMED_FILE.findall(prose(page)):
        assert any(f"/{file.relative_to(ROOT)}".endswith(f"/{named}") for file in FILES), f"{name(page)} names {named}"


def test_every_guide_is_linked_from_the_readme():
    links = set(LINK.findall(prose(ROOT / "README.md")))
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= links


def test_every_argument_of_torchs_loader_has_an_answer():
    table = prose(DOCS / "coming-from-torch.md")
    arguments = [argument for argument in inspect.signature(data.DataLoader.__init__).parameters if argument != "self"]
    assert [argument for argument in arguments if f"\n| `{argument}` |" not in table] == []


def test_every_count_of_a_plan_is_explained():
    table = re.findall(r"^\| (`.+?`) \|", prose(DOCS / "plans.md"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(table))) == set(bl.Plan(10).stats())


def test_every_law_has_tests_in_both_languages():
    languages = {law: set() for law in laws.laws()}
    for language, file, test, law in laws.marks():
        assert law in languages, f"{file}::{test} has the mark of {law}, which {laws.LAWS.name} does not have"
        languages[law].add(language)
    both = [f"L{number}" for number in range(1, 13)]
    assert list(languages) == [*both, *(f"W{number}" for number in range(1, 5))]
    for law, found in languages.items():
        # Frames, scales and views are Python's.
        assert found == {"Python", "Rust"} or (law not in both and "Python" in found), law


def test_every_mark_of_a_law_is_read():
    comments = [line for file in laws.RUST.rglob("*.rs") for line in file.read_text(encoding="utf-8").splitlines()]
    marked = [line.strip().removeprefix("// law: ") for line in comments if line.strip().startswith("// law")]
    read = [law for language, *_, law in laws.marks() if language == "Rust"]
    assert sorted(", ".join(marked).split(", ")) == sorted(read)


def test_the_list_of_tests_is_that_of_the_marks():
    assert laws.PAGE.read_text(encoding="utf-8") == laws.page(), "write it with python python/tests/laws.py"


def test_tests_cite_laws_that_exist():
    known = set(laws.laws())
    for suffix, folder in TESTS.items():
        for file in folder.rglob(f"*{suffix}"):
            comments = re.findall(r"(?:#|//)[!/]? .*|\"\"\".*", file.read_text(encoding="utf-8"))
            cited = set(re.findall(r"\bL\d+\b", "\n".join(comments)))
            assert cited <= known, f"{file.name} cites {sorted(cited - known)}"
