"""Finds prose that breaks the rules of language in CONTRIBUTING.md.

``python -m tests.unit.project.language [PATH]...`` lists each place below the paths, by default the whole repository.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
BANNED = re.compile(
    r"\b(?:(?:is|are|was|were|be|been|being)\s+told|hears?\s+of|whoever|whomever|somebody|nobody"
    r"|(?:stand|stands|stood|standing)\s+still|(?:let|lets|letting)\s+go|of\s+(?:its|their)\s+own"
    r"|(?:get|gets|got|getting)\s+on\s+with|by\s+then|meanwhile)\b",
    re.IGNORECASE,
)
"""Words for which the documentation and the code have plainer ones."""
OPENINGS = re.compile(r"(?:What|Whether|Let|Lets|Have|Has|As `)\b|As `")
"""Openings that a docstring must not have: it begins with a verb ("Return", "Remove") or, for a class, a noun."""
SUFFIXES = {".css", ".html", ".js", ".md", ".mjs", ".py", ".sh", ".toml", ".yml", ".yaml"}
MARKDOWN_COLUMNS = 100
"""Longest line of Markdown, but for table rows and lines that are one link."""
EXEMPT = (
    Path("tests/unit/project/language.py"),
    Path("tests/unit/project/test_language.py"),
    Path("lmqcluster/protocols/http/openapi/static"),
)
"""The files that name the words, and files of other projects."""


class Breach(NamedTuple):
    """A place that breaks a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def tracked_files(*paths: str) -> list[Path]:
    """Return the text files below `paths` that git tracks, relative to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    files = [Path(name) for name in listed.stdout.split("\0") if Path(name).suffix in SUFFIXES]
    return [path for path in files if (ROOT / path).is_file() and not any(path.is_relative_to(e) for e in EXEMPT)]


def banned_words(path: Path, text: str) -> Iterator[Breach]:
    """Yield each banned word, also one that a line break divides."""
    for found in BANNED.finditer(re.sub(r"\n[ \t]*(?:#+ )?", lambda gap: "\n" + " " * (len(gap[0]) - 1), text)):
        yield Breach(path, text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))


def docstring_openings(path: Path, text: str) -> Iterator[Breach]:
    """Yield each docstring, of an attribute too, that opens with a word it must not open with."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            words = node.value.value.lstrip()
            if OPENINGS.match(words):
                yield Breach(path, node.lineno, words.splitlines()[0][:60])


def long_lines(path: Path, text: str) -> Iterator[Breach]:
    """Yield each line of Markdown that is too long; code blocks count too, table rows and lone links do not."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MARKDOWN_COLUMNS and not line.lstrip().startswith("|") and " " in line.strip().lstrip("-*> "):
            yield Breach(path, number, f"{len(line)} characters")


def breaches(*paths: str) -> Iterator[Breach]:
    """Yield all breaches in the tracked files below `paths`."""
    for path in tracked_files(*paths):
        text = (ROOT / path).read_text(encoding="utf-8")
        yield from banned_words(path, text)
        if path.suffix == ".py":
            yield from docstring_openings(path, text)
        if path.suffix == ".md":
            yield from long_lines(path, text)


if __name__ == "__main__":
    count = 0
    for breach in breaches(*sys.argv[1:]):
        print(breach)
        count += 1
    sys.exit(count > 0)
