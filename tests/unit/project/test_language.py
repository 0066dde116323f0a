"""The language of the repository: no banned words, docstrings that open well, Markdown of 100 columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from .language import banned_words, breaches, docstring_openings, long_lines


def test_the_repository_keeps_the_rules() -> None:
    found = list(breaches("."))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("text", ["It is told.", "# who is\n    # told of it", "Whoever asks", "a peer stood\nstill"])
def test_banned_words_are_found(text: str) -> None:
    assert [breach.line for breach in banned_words(Path("x.py"), text)] == [1]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('def f():\n    """What it does."""', 1),
        ('class A:\n    x: int\n    """Whether it is."""', 1),
        ('def f():\n    """As `g`, but slower."""', 1),
        ('def f():\n    """Return whether it is."""', 0),
        ('def f():\n    """Hashes of rows."""', 0),
    ],
)
def test_openings_of_docstrings_are_found(text: str, count: int) -> None:
    assert len(list(docstring_openings(Path("x.py"), text))) == count


def test_long_lines_of_prose_are_found() -> None:
    prose, row, link = "a word " * 20, "| a | " + "b " * 60 + "|", "- https://example.org/" + "a" * 100
    assert [breach.line for breach in long_lines(Path("x.md"), f"{prose}\n{row}\n{link}")] == [1]
