"""Disk usage of a node and its limit, so that pushes are refused before the disk is full."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["RESERVE_BYTES", "DiskBudget", "size_text"]

RESERVE_PART = 10
RESERVE_BYTES = 10 << 30
"""If no limit is set, a node keeps a tenth of the file system free, or this much if that is less."""

NEAR_SHARE = 0.8
_MIB, _GIB = 1 << 20, 1 << 30


def size_text(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= 10 * _GIB else f"{size_bytes / _MIB:.0f} MiB"


class DiskBudget:
    """The disk usage at the last look.

    Attributes:
        shortage: the reason to refuse pushes; empty while there is room.
        used_bytes: bytes that count for the limit: the newest snapshot and the pages.
        limit_bytes: the limit; if none is set, the size that leaves the reserve free now.
        is_near: whether pushes are refused now or soon.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Limit the usage of `folder` to `bytes_max`; 0 keeps the reserve free instead."""
        self._folder = folder
        self._bytes_max = bytes_max
        self.shortage = ""
        self.used_bytes = 0
        self.limit_bytes = bytes_max
        self.is_near = False

    def look(self, kept_bytes: int) -> None:
        """Update the figures; the node keeps `kept_bytes` on the disk."""
        self.used_bytes = kept_bytes
        self.shortage = self._own_shortage() if self._bytes_max else self._shortage()

    def _own_shortage(self) -> str:
        used, limit = self.used_bytes, self._bytes_max
        self.is_near = used > NEAR_SHARE * limit
        if used <= limit:
            return ""
        return f"snapshots and pages take {size_text(used)}, {size_text(limit)} are allowed (disk_bytes_max)"

    def _shortage(self) -> str:
        usage = shutil.disk_usage(self._folder)
        reserve = min(usage.total // RESERVE_PART, RESERVE_BYTES)
        self.limit_bytes = self.used_bytes + max(0, usage.free - reserve)
        self.is_near = usage.free < reserve
        if not self.is_near:
            return ""
        free, kept = size_text(usage.free), size_text(reserve)
        return f"the disk of {self._folder} has {free} free, {kept} are kept free (disk_bytes_max)"
