"""The file `synced`: the durable end of the journal, which distinguishes damage from a torn write."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..io.disk import DamagedFileError, Disk
from .segment import HEADER_BYTES, sector, sector_fields

__all__ = ["MARK_NAME", "SyncedMark", "read_mark"]

MARK_NAME = "synced"
_MAGIC = b"LMQSYNC1"
_FIELDS = struct.Struct("<QQQ")


class SyncedMark(NamedTuple):
    """One sector, which a disk writes as a whole or not at all.

    Attributes:
        first: number of the first segment of the log; segments before it are void.
        segment, offset: all segments before this one, and this one up to the offset, are durable. Segment 0 stands for a journal
            whose creation was never finished.
    """

    first: int
    segment: int
    offset: int

    def encode(self) -> bytes:
        """Return the file's content."""
        return sector(_MAGIC, _FIELDS.pack(*self))


def read_mark(disk: Disk) -> SyncedMark:
    """Read the file.

    Raises:
        DamagedFileError: it is missing or damaged.
    """
    path = disk.path(MARK_NAME)
    try:
        file = disk.open(MARK_NAME)
    except FileNotFoundError:
        raise DamagedFileError(path, 0, "the file is missing, although there are segments") from None
    try:
        fields = sector_fields(file.read_at(0, HEADER_BYTES + 1), _MAGIC)
    except ValueError as exc:
        raise DamagedFileError(path, 0, str(exc)) from None
    finally:
        file.close()
    return SyncedMark(*_FIELDS.unpack_from(fields))
