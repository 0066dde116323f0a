"""How much a node may keep on its disk, so that messages are refused before the disk is full."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["RESERVE_BYTES", "DiskBudget"]

RESERVE_PART = 10
RESERVE_BYTES = 10 << 30
"""Without a limit of its own a node leaves a tenth of the file system free, or so much if that is less."""

NEAR_SHARE = 0.8


class DiskBudget:
    """What was found when the disk was looked at last.

    Attributes:
        shortage: why nothing more is to be stored; empty as long as there is room.
        used_bytes: what the node keeps, as counted for the limit: its newest snapshot and its pages.
        limit_bytes: what it may keep; without a limit of its own, as much as leaves the reserve free now.
        is_near: whether pushes will soon be refused, or are by now.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """`bytes_max` bounds what the node keeps in `folder`; 0 for what leaves the reserve free."""
        self._folder = folder
        self._bytes_max = bytes_max
        self.shortage = ""
        self.used_bytes = 0
        self.limit_bytes = bytes_max
        self.is_near = False

    def look(self, kept_bytes: int) -> None:
        """Look at the disk, on which the node keeps so many bytes."""
        self.used_bytes = kept_bytes
        self.shortage = self._own_shortage() if self._bytes_max else self._shortage()

    def _own_shortage(self) -> str:
        used, limit = self.used_bytes, self._bytes_max
        self.is_near = used > NEAR_SHARE * limit
        return f"snapshots and pages have {used} bytes, the limit is {limit} (disk_bytes_max)" if used > limit else ""

    def _shortage(self) -> str:
        usage = shutil.disk_usage(self._folder)
        reserve = min(usage.total // RESERVE_PART, RESERVE_BYTES)
        self.limit_bytes = self.used_bytes + max(0, usage.free - reserve)
        self.is_near = usage.free < reserve
        if not self.is_near:
            return ""
        return f"the disk of {self._folder} has {usage.free} bytes free, {reserve} are kept free (disk_bytes_max)"
