"""MkDocs hooks: add pages from outside docs/, rewrite links that leave the site, and let long code in tables break.

A page keeps its path in the repository below the site's root; pages of docs/ are at the root itself. Links to files that are
not pages, such as source code, become their paths, because the site does not know where the repository is published.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "chaos/DESIGN.md",
    "deploy/monitoring/README.md",
    "lmqcluster/DESIGN.md",
)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_LONG_CODE = re.compile(r"<code>([^<]{25,})</code>")
_SEPARATOR = re.compile(r"([_./,=(])")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """List the decisions below their index."""
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    for section in config.nav:
        for place, entry in enumerate(pages := next(iter(section.values()))) if isinstance(section, dict) else ():
            if isinstance(entry, dict) and entry.get("Decisions") == "decisions/README.md":
                pages[place] = {"Decisions": ["decisions/README.md", *(f"decisions/{path.name}" for path in records)]}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/."""
    for path in OUTSIDE:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, **_more: Any) -> str:
    """Rewrite links to the locations of pages in the site."""
    uri = page.file.src_uri
    source = uri if uri in OUTSIDE else f"docs/{uri}"

    def moved(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target == "README.md":
            # The home of the site takes its place, without its sections.
            anchor = ""
        place = site_place(target)
        if place is None:
            return text if text.strip("`") == posixpath.normpath(path).lstrip("./") else f"{text} (`{path}`)"
        link = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"[{text}]({link}{'#' + anchor if anchor else ''})"

    return _LINK.sub(moved, markdown)


def site_place(path: str) -> str | None:
    """Return the location of a repository file in the site; None if it is not a page."""
    if path == "README.md":
        return "README.md"
    if path in OUTSIDE:
        return path
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    return None


def on_page_content(html: str, **_more: Any) -> str:
    """Make long code in tables breakable behind its separators. Short code stays whole."""

    def breakable(code: re.Match[str]) -> str:
        broken = _SEPARATOR.sub(r"\1<wbr>", code[1])
        return f"<code>{broken}</code>"

    return _TABLE.sub(lambda table: _LONG_CODE.sub(breakable, table[0]), html)
