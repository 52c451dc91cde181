"""The prose of the repository, as texts: docstrings, doc comments of Rust, guides and README, without code.

python python/tests/prose.py   # turns of phrase in 1000 words, by kind of text, and the files with most of them
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Pronouns in place of nouns, and data that comes, says or asks: a reader stops there. Each has honest uses.
PHRASES = re.compile(
    r"\b([Tt]hat|[Tt]hose) of\b|\b(of|by) which\b|\bwhose\b|\b(as|so) many\b|\bcomes?\b|\b(says?|tells?|asks?)\b"
    r"|\bof (its|their) own\b|\blets? go of\b|\b(is|are) none\b|\bthe ones?\b|\bgoes? on\b|\bothers\b"
)
RUST = ("crates/batchloom/src", "crates/batchloom-cli/src", "crates/batchloom-burn/src", "python/src")
KINDS = ("docstrings", "Rust docs", "guides", "README")
CODE = re.compile(r"```.*?```", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """The prose of one file."""

    path: Path
    prose: str

    @property
    def words(self) -> int:
        """The number of words."""
        return len(self.prose.split())

    @property
    def phrases(self) -> int:
        """The number of turns of phrase."""
        return sum(1 for _ in PHRASES.finditer(self.prose))

    @property
    def share(self) -> float:
        """The turns of phrase in 1000 words."""
        return 1000 * self.phrases / max(self.words, 1)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring: of a file, of its classes and functions, and beneath fields."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if found := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), found
            for field, string in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.Assign | ast.AnnAssign) and is_text(string):
                    yield string.lineno, string.value.value


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def doc_comments(text: str) -> str:
    """Return the doc comments of a file of Rust."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line[3:] for line in lines if line.startswith(("///", "//!")))


def texts() -> dict[str, list[Text]]:
    """Return the prose of each file, by kind of text."""
    python = sorted((ROOT / "python" / "batchloom").rglob("*.py"))
    rust = [path for folder in RUST for path in sorted((ROOT / folder).rglob("*.rs"))]
    guides = sorted((ROOT / "docs").rglob("*.md"))
    front = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    by_kind = (
        [Text(path, "\n".join(text for _, text in docstrings(read(path)))) for path in python],
        [Text(path, CODE.sub("", doc_comments(read(path)))) for path in rust],
        [Text(path, CODE.sub("", read(path))) for path in guides],
        [Text(path, CODE.sub("", read(path))) for path in front],
    )
    return dict(zip(KINDS, by_kind, strict=True))


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def total(texts: list[Text]) -> Text:
    """Return several texts as one."""
    return Text(ROOT, "\n".join(text.prose for text in texts))


def main() -> None:
    """Print the counts."""
    for kind, found in texts().items():
        whole = total(found)
        print(f"{kind}: {whole.words} words, {whole.share:.1f} turns of phrase in 1000")
        for text in sorted(found, key=lambda text: -text.share)[:10]:
            print(f"    {text.share:5.1f} {text.phrases:4} of {text.words:5} {text.path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
