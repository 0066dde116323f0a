"""Check that a snapshot file from an untrusted source holds a state, in little memory.

A few kilobytes can expand to gigabytes: blocks of zeros, or of values that take a hundred times their bytes when
decoded. So blocks are decompressed one at a time, records are delimited without decoding, and content that no node
writes is refused. Compressible content costs time too: a hundred million tiny records fit into as many bytes as a few
thousand real ones. So the file's size bounds the numbers of records and values.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from ...core import Restoration, State
from ...wire.values import Scan
from ..storage.snapshots.snapshot_file import Block, End, Kind
from ..storage.snapshots.stored_snapshot import StoredSnapshot

__all__ = ["RECORD_BYTES_MAX", "RECORD_VALUES_MAX", "check_outline"]

_ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of a record."""
RECORD_BYTES_MAX: Final = 512 * 1024 * 1024
"""The largest record. A slice of messages is below a megabyte, except for one large message, which may be compound."""
RECORD_VALUES_MAX: Final = 4_000_000
"""Most values in one record. A slice has a few thousand; a compound message has three for each part."""
RECORDS_FREE: Final = 1_000_000
RECORDS_PER_BYTE: Final = 8
"""Records per byte of the file that are allowed beyond the first million. Empty numbered queues take 1.2."""
VALUES_FREE: Final = 10_000_000
VALUES_PER_BYTE: Final = 200
"""Values per byte of the file beyond the first ten million; such queues take 30."""


def check_outline(stored: StoredSnapshot) -> None:
    """Check every block, and that the records begin and end like those of a state.

    The records in between are checked when a node loads them.

    Raises:
        DamagedFileError: the content is not as a node writes it.
    """
    outline = _Outline()
    for block in stored.blocks():
        with stored.damage_at(block.head.number):
            try:
                outline.add(block)
            except (msgpack.UnpackException, TypeError) as exc:
                raise ValueError(f"malformed MessagePack: {exc}") from exc


class _Outline:
    """State of the check."""

    def __init__(self) -> None:
        self._count = 0
        self._values = 0
        self._bytes = 0
        self._last = b""
        self._record: Scan | None = None
        self._record_bytes = 0

    def add(self, block: Block) -> None:
        """Take the next block."""
        kind, payload = block.head.kind, block.payload()
        self._bytes += block.head.size_bytes
        if kind == Kind.RECORDS:
            self._take_records(payload)
        elif kind in {Kind.PIECE, Kind.LAST_PIECE}:
            self._take_piece(payload, is_last=kind == Kind.LAST_PIECE)
        elif kind == Kind.END:
            End.unpack(payload).check_count(self._count)
            self._check_end()

    def _take_records(self, payload: bytes) -> None:
        position = 0
        while position < len(payload) or not payload:
            if payload and payload[position] not in _ARRAYS:
                raise ValueError("malformed: a record is no array")
            scan = self._scan()
            end = scan.feed(payload, position)
            if end < 0:
                raise ValueError("a record is cut off")
            self._values += scan.count
            self._last = payload[position:end]
            if self._count == 0:
                # A restoration reports problems of the header, such as a version that this program does not know.
                Restoration(State(_no_pattern)).take(_unpacked(self._last))
            self._count += 1
            position = end

    def _take_piece(self, payload: bytes, *, is_last: bool) -> None:
        if self._count == 0:
            raise ValueError("it does not begin with the header of a state")
        if self._record is None:
            self._record, self._record_bytes = self._scan(), 0
        self._record_bytes += len(payload)
        if self._record_bytes > RECORD_BYTES_MAX:
            raise ValueError(f"a record has more than {RECORD_BYTES_MAX} bytes")
        if self._record.feed(payload) != (len(payload) if is_last else -1):
            raise ValueError("a record is cut off")
        if is_last:
            self._values += self._record.count
            self._count, self._last, self._record = self._count + 1, b"", None

    def _scan(self) -> Scan:
        """Begin a record, if the file is large enough for another one."""
        values_left = VALUES_FREE + VALUES_PER_BYTE * self._bytes - self._values
        if self._count >= RECORDS_FREE + RECORDS_PER_BYTE * self._bytes or values_left <= 0:
            raise ValueError("it holds more records than a file of this size can")
        return Scan(min(RECORD_VALUES_MAX, values_left))

    def _check_end(self) -> None:
        if self._count == 0:
            raise ValueError("it holds no state")
        if not self._last or _unpacked(self._last) != ["end", self._count - 1]:
            raise ValueError("it does not hold a whole state: the last record is missing")


def _unpacked(record: bytes) -> Any:
    return msgpack.unpackb(record, strict_map_key=False)


def _no_pattern(_pattern: bytes) -> Any:
    """Accept any pattern: the node that loads the header's rules compiles them."""
    return lambda _name: False
