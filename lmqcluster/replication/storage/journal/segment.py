"""The format of one journal segment: a header, then records, then zeros up to the size that the header names.

Each record's checksum is seeded with the checksum of the record before it, the first one's with the header's. So a
record is valid only as the continuation of exactly the records before it; stale data behind the end never passes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

__all__ = [
    "BODY_BYTES_MAX",
    "ENTRY",
    "HEADER_BYTES",
    "RECORD_BYTES",
    "TRUNCATE",
    "Record",
    "SegmentHeader",
    "check_record",
    "encode_record",
    "scan",
    "sector",
    "sector_fields",
    "segment_name",
    "segment_number",
]

ENTRY = 1
"""Kind of a record that appends an entry."""
TRUNCATE = 2
"""Kind of a record that removes the entry at its index and all later ones."""

HEADER_BYTES = 512
"""Size of a header: one sector, so that no write of a record touches it."""
_CHECKSUM = struct.Struct("<Q")
_RECORD_HEAD = struct.Struct("<IBQQ")
RECORD_BYTES = _CHECKSUM.size + _RECORD_HEAD.size
"""Size of a record without its body."""
BODY_BYTES_MAX = 2**32 - 2**20
"""Largest body; offsets and lengths fit into 32 bits."""

_MAGIC = b"LMQSEGM1"
_HEADER = struct.Struct("<QQQQQB")
_NAME = re.compile(r"\d{20}\.log")


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:020d}.log"


def segment_number(name: str) -> int | None:
    """Return the number of the segment in the file `name`; None if that is not a segment."""
    return int(name[:20]) if _NAME.fullmatch(name) else None


def sector(magic: bytes, fields: bytes) -> bytes:
    """Return one sector with its checksum in front."""
    body = (magic + fields).ljust(HEADER_BYTES - _CHECKSUM.size, b"\0")
    return _CHECKSUM.pack(xxh3_64_intdigest(body)) + body


def sector_fields(data: bytes, magic: bytes) -> bytes:
    """Return the fields in a sector, padded.

    Raises:
        ValueError: it is damaged, or of another format.
    """
    if len(data) != HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes, not {HEADER_BYTES}")
    if _CHECKSUM.unpack_from(data)[0] != xxh3_64_intdigest(data[_CHECKSUM.size :]):
        raise ValueError("wrong checksum")
    start = _CHECKSUM.size + len(magic)
    if data[_CHECKSUM.size : start] != magic:
        raise ValueError(f"it is not of the format {magic.decode()}, which this program reads")
    return data[start:]


class SegmentHeader(NamedTuple):
    """The beginning of a segment.

    Attributes:
        size: size of the file, in bytes.
        base_index, base_term: index and term of the last entry before the segment.
        chain: checksum of the last record before the segment.
        fresh: the log begins here; all earlier segments are void.
    """

    number: int
    size: int
    base_index: int
    base_term: int
    chain: int
    fresh: bool

    def encode(self) -> bytes:
        """Return the header's `HEADER_BYTES`."""
        return sector(_MAGIC, _HEADER.pack(*self))

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader:
        """Read a header.

        Raises:
            ValueError: it is damaged.
        """
        number, size, base_index, base_term, chain, fresh = _HEADER.unpack_from(sector_fields(data, _MAGIC))
        return cls(number, size, base_index, base_term, chain, bool(fresh))

    def seed(self) -> int:
        """Return the seed of the first record's checksum."""
        return int(_CHECKSUM.unpack_from(self.encode())[0])


class Record(NamedTuple):
    """Place and fields of a record.

    Attributes:
        seed: checksum of the record before it.
        checksum: its own.
        start, stop: place of its body.
    """

    seed: int
    checksum: int
    kind: int
    idx: int
    term: int
    start: int
    stop: int


def encode_record(kind: int, index: int, term: int, body: bytes, seed: int) -> tuple[bytes, int]:
    """Return the bytes in front of the body in the file, and the record's checksum."""
    head = _RECORD_HEAD.pack(len(body), kind, index, term)
    state = xxh3_64(head, seed)
    state.update(body)
    checksum = state.intdigest()
    return _CHECKSUM.pack(checksum) + head, checksum


def check_record(data: bytes | memoryview, offset: int, seed: int) -> Record | None:
    """Return the record at `offset` of `data`; None if no whole record there continues the chain from `seed`."""
    start = offset + RECORD_BYTES
    if start > len(data):
        return None
    length, kind, index, term = _RECORD_HEAD.unpack_from(data, offset + _CHECKSUM.size)
    stop = start + length
    if kind not in {ENTRY, TRUNCATE} or stop > len(data):
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, offset)
    if checksum != xxh3_64_intdigest(data[offset + _CHECKSUM.size : stop], seed):
        return None
    return Record(seed, checksum, kind, index, term, start, stop)


def scan(data: memoryview, seed: int) -> Iterator[Record]:
    """Yield the records of a whole segment file, up to the first place where none continues the chain."""
    offset = HEADER_BYTES
    while (record := check_record(data, offset, seed)) is not None:
        yield record
        offset, seed = record.stop, record.checksum
