"""The static files of the console. They contain no data, so every client may load them."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final, NamedTuple

__all__ = ["INDEX", "Asset", "load"]

INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file: its media type, its content, and a tag that changes with the content."""

    media_type: str
    content: bytes
    tag: str


def load() -> dict[str, Asset]:
    """Return all files by name."""
    assets = {}
    for file in files(__package__).joinpath("static").iterdir():
        content = file.read_bytes()
        media_type = _TYPES[PurePosixPath(file.name).suffix]
        assets[file.name] = Asset(media_type, content, f'"{sha256(content).hexdigest()[:20]}"')
    return assets
