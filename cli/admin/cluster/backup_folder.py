"""A folder of backups: a new name for each, and the removal of old ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

__all__ = ["DRAFT_AGE_S", "new_backup", "remove_old"]

_NAMES: Final = "lmq-[0-9]*.backup"
_DRAFTS: Final = ".lmq-[0-9]*.backup.*.tmp"
DRAFT_AGE_S: Final = 24 * 3600.0
"""Age from which the draft of a backup belongs to a program that was killed."""


def new_backup(folder: Path) -> Path:
    """Return the file for a backup made now; names sort by time."""
    return folder / time.strftime("lmq-%Y-%m-%dT%H%M%SZ.backup", time.gmtime())


def remove_old(newest: Path, keep: int) -> list[Path]:
    """Remove all but `keep` backups from the folder of the newest one, and abandoned drafts; return the removed backups.

    Only files with the names of `new_backup` are removed, and the newest one never, even after the clock was set back.

    Raises:
        OSError: the folder cannot be read, or a file cannot be removed.
    """
    folder = newest.parent
    others = sorted(path for path in folder.glob(_NAMES) if path != newest and path.is_file())
    old = others[: max(0, len(others) - (keep - 1))]
    now = time.time()
    drafts = [path for path in folder.glob(_DRAFTS) if now - path.stat().st_mtime > DRAFT_AGE_S]
    for path in (*old, *drafts):
        path.unlink(missing_ok=True)
    return old
