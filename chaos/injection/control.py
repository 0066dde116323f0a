"""The shared memory page through which a drill controls the library under a node (native/interpose.c)."""

from __future__ import annotations

import errno
import mmap
import struct
from enum import IntEnum
from pathlib import Path
from typing import Literal

__all__ = ["Control"]

_FIELD = struct.Struct("=q")


class _Field(IntEnum):
    """The fields in the order of interpose.c."""

    SYNC_DELAY_US = 0
    SYNC_ERRNO = 1
    SPACE_LIMITED = 2
    SPACE_LEFT = 3
    CLOCK_OFFSET_NS = 4
    SYNCS_LIE = 5
    SYNCS_SEEN = 6
    READS_HANG = 7
    READS_HUNG = 8
    PASSED_NS = 9
    SHOWS_FREE = 10
    FREE_BYTES = 11


class Control:
    """Switches for one node's disk and clock. They outlive its process, so a restarted node has the same disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_FIELD.size * len(_Field)))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()

    def slow_syncs(self, delay_s: float) -> None:
        """Delay every sync."""
        self._set(_Field.SYNC_DELAY_US, round(delay_s * 1e6))

    def fail_syncs(self, *, fail: bool) -> None:
        """Make syncs fail with an input/output error."""
        self._set(_Field.SYNC_ERRNO, errno.EIO if fail else 0)

    def lie_about_syncs(self, *, lie: bool) -> None:
        """Make syncs succeed without effect, like a disk with a volatile cache: a power failure loses the written data."""
        self._set(_Field.SYNCS_LIE, int(lie))

    def limit_space(self, left_bytes: int | None) -> None:
        """Limit the total growth of files, None for no limit; beyond it, writes fail for lack of space."""
        self._set(_Field.SPACE_LEFT, left_bytes or 0)
        self._set(_Field.SPACE_LIMITED, int(left_bytes is not None))

    def jump_clock(self, offset_s: float) -> None:
        """Set the offset of the wall clock."""
        self._set(_Field.CLOCK_OFFSET_NS, round(offset_s * 1e9))

    def pass_time(self, passed_s: float) -> None:
        """Make the node's monotonic clock run ahead by `passed_s`, as if that time had passed."""
        self._set(_Field.PASSED_NS, round(passed_s * 1e9))

    def show_free(self, free_bytes: int | None) -> None:
        """Make the file system report this much free space, None for the real value; writes still succeed."""
        self._set(_Field.FREE_BYTES, free_bytes or 0)
        self._set(_Field.SHOWS_FREE, int(free_bytes is not None))

    def mend(self) -> None:
        """End all faults; reset the wall clock. A monotonic clock never goes back."""
        for field in _Field:
            if field not in (_Field.SYNCS_SEEN, _Field.READS_HUNG, _Field.PASSED_NS):
                self._set(field, 0)

    @property
    def syncs_seen(self) -> int:
        """Return the number of syncs that the node has requested."""
        value: int = _FIELD.unpack_from(self._page, _Field.SYNCS_SEEN * _FIELD.size)[0]
        return value

    def hang_reads(self, kind: Literal["snapshots", "pages"] | None) -> None:
        """Hang reads of this kind of file, and let other reads, or all, continue."""
        self._set(_Field.READS_HUNG, 0)
        self._set(_Field.READS_HANG, {None: 0, "snapshots": 1, "pages": 2}[kind])

    @property
    def reads_hung(self) -> int:
        """Return the number of reads that hang or hung since `hang_reads`."""
        value: int = _FIELD.unpack_from(self._page, _Field.READS_HUNG * _FIELD.size)[0]
        return value

    def _set(self, field: _Field, value: int) -> None:
        _FIELD.pack_into(self._page, field * _FIELD.size, value)
