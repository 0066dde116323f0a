"""Reads the sections of the routes in ``docs/http*.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "TEXT", "Route", "routes"]

PAGES: Final = tuple(sorted((Path(__file__).parents[2] / "docs").glob("http*.md")))
TEXT: Final = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
_SECTION: Final = re.compile(r"^### `([A-Z]+) (/[^`]*)`\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Route:
    """One section.

    Attributes:
        text: its whole text.
        needs: the permission that a token needs, the first part of it.
        names: parameters and members in the tables of the section.
    """

    method: str
    path: str
    text: str
    needs: str
    names: frozenset[str]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def routes() -> list[Route]:
    """Return the sections of all pages.

    Raises:
        ValueError: a section does not state what the route needs.
    """
    return [_route(*found) for page in PAGES for found in _SECTION.findall(page.read_text(encoding="utf-8"))]


def _route(method: str, path: str, section: str) -> Route:
    needs = re.search(r"Needs: ([^.,]+)[.,]", " ".join(section.split()))
    if needs is None:
        raise ValueError(f"the section of {method} {path} does not state what it needs")
    table = re.search(
        r"^\| (?:Parameter|Member|`reply`) \| Meaning \|\n(.*?)(?:\n\n|\Z)", section, re.DOTALL | re.MULTILINE
    )
    names = frozenset(re.findall(r"^\| `(\w+)` \|", table[1], re.MULTILINE)) if table else frozenset()
    return Route(method, path, section, needs[1], names)
