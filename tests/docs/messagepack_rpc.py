"""Reads the sections of the methods in ``docs/messagepack-rpc*.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "TEXT", "Method", "methods"]

PAGES: Final = tuple(sorted((Path(__file__).parents[2] / "docs").glob("messagepack-rpc*.md")))
TEXT: Final = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
_SECTION: Final = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_CALL: Final = re.compile(r"```text\n(\w+)\(([^)\n]*)\) -> .+\n```")


@dataclass(frozen=True)
class Method:
    """One section.

    Attributes:
        page: the name of its file.
        text: its whole text, white space folded.
        required, optional: names of the arguments in the call.
        described: names in the table of arguments, empty without one.
        needs: the permission that a token needs, the first part of it.
        errors: codes besides those of every method.
    """

    name: str
    page: str
    text: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    described: set[str]
    needs: str
    errors: tuple[str, ...]

    @property
    def arguments(self) -> set[str]:
        """Return the names of all arguments."""
        return {*self.required, *self.optional}


def methods() -> list[Method]:
    """Return the sections of all pages.

    Raises:
        ValueError: a section lacks its call or what it needs.
    """
    return [
        _method(name, page.name, section)
        for page in PAGES
        for name, section in _SECTION.findall(page.read_text(encoding="utf-8"))
    ]


def _method(name: str, page: str, section: str) -> Method:
    call = _CALL.search(section)
    folded = " ".join(section.split())
    needs = re.search(r"Needs: ([^.,]+)[.,]", folded)
    if call is None or needs is None or call[1] != name:
        raise ValueError(f"the section of {name} does not show its call, or what it needs")
    required, _bracket, optional = call[2].partition("[")
    table = section.partition("| Argument | Type | Meaning |")[2].partition("\n\n")[0]
    errors = re.search(r"Errors: (`[^.]+`)\.", folded)
    return Method(
        name,
        page,
        folded,
        tuple(re.findall(r"\w+", required)),
        tuple(re.findall(r"\w+", optional)),
        set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)),
        needs[1],
        tuple(re.findall(r"`(\w+)`", errors[1])) if errors else (),
    )
