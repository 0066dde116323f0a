"""How much a node may keep on its disk, so that messages are refused before the disk is full."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["RESERVE_BYTES", "DiskBudget"]

RESERVE_PART = 10
RESERVE_BYTES = 10 << 30
"""Without a limit of its own a node leaves a tenth of the file system free, or so much if that is less."""


class DiskBudget:
    """What was found when the disk was looked at last.

    Attributes:
        shortage: why nothing more is to be stored; empty as long as there is room.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """`bytes_max` bounds what the node keeps in `folder`; 0 for what leaves the reserve free."""
        self._folder = folder
        self._bytes_max = bytes_max
        self.shortage = ""

    def look(self, kept_bytes: int) -> None:
        """Look at the disk, on which the node keeps so many bytes."""
        self.shortage = self._shortage(kept_bytes)

    def _shortage(self, kept_bytes: int) -> str:
        if self._bytes_max:
            if kept_bytes <= self._bytes_max:
                return ""
            return f"snapshots and pages have {kept_bytes} bytes, the limit is {self._bytes_max} (disk_bytes_max)"
        usage = shutil.disk_usage(self._folder)
        reserve = min(usage.total // RESERVE_PART, RESERVE_BYTES)
        if usage.free >= reserve:
            return ""
        return f"the disk of {self._folder} has {usage.free} bytes free, {reserve} are kept free (disk_bytes_max)"
