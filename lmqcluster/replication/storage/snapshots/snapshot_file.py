"""The format of a snapshot file: blocks of compressed records, every byte of which is covered by a checksum.

    file   = magic, format version, block 0 (header), block 1, ..., last block (end)
    block  = checksum (xxh3-64 of all that follows), kind, number, raw length, stored length, payload (zstd)

The header is a map (format, index, term, members, created_us); records are MessagePack, one behind the other. A block
holds whole records, or a piece of one that is too large. The end holds the numbers of blocks and records, and a
digest over the checksums of all blocks before it, so a missing, repeated or foreign block is detected. The same
blocks, unchanged, are sent to followers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import msgpack
import xxhash
import zstandard

__all__ = [
    "BLOCK_BYTES_MAX",
    "FORMAT",
    "HEAD_BYTES",
    "PREFIX",
    "RAW_BYTES",
    "RAW_BYTES_MAX",
    "Block",
    "BlockPacker",
    "Chain",
    "End",
    "Head",
    "Header",
    "Kind",
    "Packed",
    "encode_block",
    "parse_head",
    "records_of",
    "verified",
]

FORMAT = 1
PREFIX = b"\x93LMQSNAP" + struct.pack("<I", FORMAT)
"""Beginning of a file."""

RAW_BYTES = 512 * 1024
"""Size at which a block of records is complete, before compression."""

BLOCK_BYTES_MAX = 8 * 1024 * 1024
"""Largest block, whatever the size of a record."""

# Incompressible data grows by less than one part in 256.
RAW_BYTES_MAX = BLOCK_BYTES_MAX - 64 * 1024

_HEAD = struct.Struct("<QB3xIII")
HEAD_BYTES = _HEAD.size
_CHECKSUM_BYTES = 8
_ZSTD_LEVEL = 1

_T = TypeVar("_T")


class Kind:
    """Kinds of blocks."""

    HEADER = 1
    RECORDS = 2
    PIECE = 3
    """A piece of a record that continues in the next block."""
    LAST_PIECE = 4
    END = 5


_KINDS = range(Kind.HEADER, Kind.END + 1)


class Head(NamedTuple):
    """The fixed part of a block, not verified.

    Attributes:
        raw_bytes: size of the payload before compression.
        size_bytes: size of the whole stored block.
    """

    checksum: int
    kind: int
    number: int
    raw_bytes: int
    size_bytes: int


class Block(NamedTuple):
    """A block whose checksum is right."""

    head: Head
    stored: bytes

    def payload(self) -> bytes:
        """Return the decompressed payload.

        Raises:
            ValueError: it does not match the head.
        """
        compressed = memoryview(self.stored)[HEAD_BYTES:]
        try:
            # Checked first, because decompression allocates the memory before it looks at the content.
            if zstandard.frame_content_size(compressed) != self.head.raw_bytes:
                raise ValueError("the payload has another length than the block says")
            return zstandard.ZstdDecompressor().decompress(compressed, allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise ValueError(f"the payload cannot be decompressed: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Header:
    """The content of the first block.

    Attributes:
        index, term: of the last log entry that the state contains.
        members: address by node id, as of that entry.
        created_us: when the snapshot was made, in microseconds; for humans.
    """

    index: int
    term: int
    members: dict[str, str]
    created_us: int

    def pack(self) -> bytes:
        """Return the payload of the header block."""
        return bytes(msgpack.packb({"format": FORMAT, **asdict(self)}))

    @classmethod
    def unpack(cls, payload: bytes) -> Header:
        """Read the payload of a header block.

        Raises:
            ValueError: it is not a header of this format.
        """
        fields = _unpacked(payload)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(f"the header is not of format {FORMAT}, which this program reads")
        if set(fields) != set(cls.__slots__):
            raise ValueError("the header has other fields than it should")
        header = cls(**fields)
        numbers = (header.index, header.term, header.created_us)
        if any(type(number) is not int or number < 0 for number in numbers) or not isinstance(header.members, dict):
            raise ValueError("the header has a field of the wrong type")
        if any(type(text) is not str for member in header.members.items() for text in member):
            raise ValueError("the members in the header must be strings")
        return header


class End(NamedTuple):
    """The content of the last block; `blocks` counts header and end too."""

    blocks: int
    records: int
    digest: bytes

    def pack(self) -> bytes:
        """Return the payload of the end block."""
        return bytes(msgpack.packb(list(self)))

    def check_count(self, records: int) -> None:
        """Compare with the number of records found.

        Raises:
            ValueError: the numbers differ.
        """
        if self.records != records:
            raise ValueError(f"there are {records} records and should be {self.records}")

    @classmethod
    def unpack(cls, payload: bytes) -> End:
        """Read the payload of an end block.

        Raises:
            ValueError: it is malformed.
        """
        fields = _unpacked(payload)
        if not isinstance(fields, list) or list(map(type, fields)) != [int, int, bytes]:
            raise ValueError("the end block is malformed")
        return cls(*fields)


class Packed(NamedTuple):
    """The content of one block: its kind, the parts of its payload, and the number of records that end in it."""

    kind: int
    parts: list[bytes | memoryview]
    records: int


def encode_block(kind: int, number: int, payload: bytes | memoryview) -> bytes:
    """Return the stored form of a block."""
    compressed = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(payload)
    rest = _HEAD.pack(0, kind, number, len(payload), len(compressed))[_CHECKSUM_BYTES:] + compressed
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(rest)) + rest


def parse_head(data: bytes) -> Head:
    """Read a block's fixed part; any data may follow it.

    Raises:
        ValueError: it is too short, or cannot be the head of a block.
    """
    if len(data) < HEAD_BYTES:
        raise ValueError("the block is cut off")
    checksum, kind, number, raw_bytes, compressed_bytes = _HEAD.unpack_from(data)
    head = Head(checksum, kind, number, raw_bytes, HEAD_BYTES + compressed_bytes)
    if kind not in _KINDS:
        raise ValueError(f"there is no block of kind {kind}")
    if head.size_bytes > BLOCK_BYTES_MAX or raw_bytes > BLOCK_BYTES_MAX:
        raise ValueError("the block is larger than a block may be")
    return head


def verified(stored: bytes, number: int) -> Block:
    """Return the block, if it is undamaged and has that number.

    Raises:
        ValueError: it is not.
    """
    head = parse_head(stored)
    if head.size_bytes != len(stored):
        raise ValueError(f"the block has {len(stored)} bytes and should have {head.size_bytes}")
    if xxhash.xxh3_64_intdigest(memoryview(stored)[_CHECKSUM_BYTES:]) != head.checksum:
        raise ValueError("the checksum of the block is wrong")
    if head.number != number:
        raise ValueError(f"block {head.number} is where block {number} should be")
    return Block(head, stored)


class Chain:
    """Follows the heads of a snapshot from block 0 on: the kind that may come next, and the digest over all."""

    def __init__(self) -> None:
        self.next_number = 0
        self.ended = False
        self._in_pieces = False
        self._digest = xxhash.xxh3_128()

    def add(self, head: Head) -> None:
        """Take the next head.

        Raises:
            ValueError: such a block cannot follow; nothing has changed.
        """
        if self.ended:
            raise ValueError("the snapshot goes on behind its end")
        if head.number != self.next_number:
            raise ValueError(f"block {head.number} is where block {self.next_number} should be")
        if (head.kind == Kind.HEADER) != (self.next_number == 0):
            raise ValueError("the header is not the first block")
        if self._in_pieces and head.kind not in {Kind.PIECE, Kind.LAST_PIECE}:
            raise ValueError("a record is not complete")
        if not self._in_pieces and head.kind == Kind.LAST_PIECE:
            raise ValueError("a record has no beginning")
        self._in_pieces = head.kind == Kind.PIECE
        self.ended = head.kind == Kind.END
        self.next_number += 1
        if not self.ended:
            self._digest.update(struct.pack("<Q", head.checksum))

    def end(self, records: int) -> End:
        """Return the end block for the heads added."""
        return End(self.next_number + 1, records, self._digest.digest())

    def check(self, end: End) -> None:
        """Compare the heads added with the end block, which comes next.

        Raises:
            ValueError: blocks are missing or foreign.
        """
        if end != self.end(end.records):
            raise ValueError("the blocks are not those that were written")


class BlockPacker:
    """Packs encoded records into blocks."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._complete: list[Packed] = []

    def add(self, record: bytes) -> None:
        """Take the next record."""
        if self._size + len(record) > RAW_BYTES_MAX:
            self._close()
        if len(record) > RAW_BYTES_MAX:
            self.add_large([record])
            return
        self._parts.append(record)
        self._size += len(record)
        if self._size >= RAW_BYTES:
            self._close()

    def add_large(self, parts: Iterable[bytes]) -> None:
        """Take the next record, which is larger than a block, in parts; they are not copied."""
        self._close()
        pieces: list[list[bytes | memoryview]] = [[]]
        room = RAW_BYTES_MAX
        for part in parts:
            rest = memoryview(part)
            while rest:
                if not room:
                    pieces.append([])
                    room = RAW_BYTES_MAX
                piece, rest = rest[:room], rest[room:]
                pieces[-1].append(piece)
                room -= len(piece)
        self._complete += [Packed(Kind.PIECE, piece, 0) for piece in pieces[:-1]]
        self._complete.append(Packed(Kind.LAST_PIECE, pieces[-1], 1))

    def add_piece(self, piece: bytes, *, is_last: bool) -> None:
        """Take a piece of the next record; it must fit into a block."""
        self._close()
        self._complete.append(Packed(Kind.LAST_PIECE if is_last else Kind.PIECE, [piece], int(is_last)))

    def take(self) -> list[Packed]:
        """Return the complete blocks, each of them once."""
        complete, self._complete = self._complete, []
        return complete

    def take_all(self) -> list[Packed]:
        """Return the complete blocks and the last one, which may be small."""
        self._close()
        return self.take()

    def _close(self) -> None:
        if self._parts:
            self._complete.append(Packed(Kind.RECORDS, self._parts, len(self._parts)))
            self._parts, self._size = [], 0


def records_of(payload: bytes) -> list[Any]:
    """Return the records in the payload of a block, or of all pieces together.

    Raises:
        ValueError: they are not whole MessagePack values.
    """
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=0)
    return _decoded(lambda: _all_of(unpacker, payload))


def _all_of(unpacker: Any, payload: bytes) -> list[Any]:
    unpacker.feed(payload)
    records: list[Any] = []
    end = 0
    for record in unpacker:
        records.append(record)
        end = unpacker.tell()
    if end != len(payload):
        raise ValueError("a record is cut off")
    return records


def _unpacked(payload: bytes) -> Any:
    return _decoded(lambda: msgpack.unpackb(payload))


def _decoded(decode: Callable[[], _T]) -> _T:
    try:
        return decode()
    except (msgpack.UnpackException, TypeError, RecursionError) as exc:
        raise ValueError(f"malformed MessagePack: {exc}") from exc
