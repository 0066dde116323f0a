"""Watches files that other programs replace, such as certificates, and reports when their content is new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["WATCH_S", "WatchedFiles"]

WATCH_S = 2.0
"""Seconds between two looks. A change is reported at the second look that finds the files unchanged."""

_Stamps = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """Files, and whether they have changed since their content was loaded.

    A program that renews a certificate replaces several files, one after the other. A change is reported once, when two
    looks find the same files, so that no half of a pair is loaded. A link, also of a folder on the path, counts as the
    file that it leads to: Kubernetes replaces a link.

    Args:
        paths: the files.
        on_change: called after a change.
    """

    def __init__(self, paths: Iterable[Path], on_change: Callable[[], None]) -> None:
        self._paths = tuple(paths)
        self._on_change = on_change
        self._loaded = self._seen = self._stamps()

    async def keep(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.note(await asyncio.to_thread(self._stamps))

    def note(self, stamps: _Stamps) -> None:
        """Compare the files with those of the last look, and report a change."""
        is_settled = stamps == self._seen
        self._seen = stamps
        if is_settled and stamps != self._loaded:
            # Noted before the files are read: a change during that time is reported too.
            self._loaded = stamps
            self._on_change()

    def _stamps(self) -> _Stamps:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
