"""A snapshot with the content of its pages, in one file from which another cluster can begin.

The snapshots of a node name pages, which are separate files. In a portable snapshot, each page is replaced by the
chunk of messages, or of bodies, from which it was made. So it needs no other file, and a reader treats it like any
other snapshot.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgpack

from ..io.disk import Disk, DiskFile
from .snapshot_file import PREFIX, BlockPacker, Chain, Header, Kind, Packed, encode_block, parse_head
from .stored_snapshot import StoredSnapshot

__all__ = ["Payload", "write_portable"]

_COLUMNS = 8
_CHUNK = b"%c" % (0x90 | (_COLUMNS + 1)) + bytes(msgpack.packb("chunk"))
_BODIES = b"\x93" + bytes(msgpack.packb("bodies"))

Payload = Callable[[bytes], bytes]
"""Returns the content of a page."""


def write_portable(disk: Disk, name: str, header: Header, records: Iterable[Any], payload: Payload) -> StoredSnapshot:
    """Write a snapshot under a separate name, without a sync.

    Raises:
        OSError: it cannot be written; the file is removed.
        ValueError: a page is damaged; the file is removed.
    """
    file = disk.create(name)
    try:
        output = _Output(file)
        output.write([Packed(Kind.HEADER, [header.pack()], 0)])
        for record in _portable(records, payload):
            output.add(record)
        output.end()
    except BaseException:
        file.close()
        disk.remove(name)
        raise
    return StoredSnapshot(file, disk.path(name), name, header, output.offsets)


def _portable(records: Iterable[Any], payload: Payload) -> Iterator[bytes]:
    pack = msgpack.Packer().pack
    count = 0
    for record in records:
        if record[0] == "pages":
            for row in record[1]:
                # A page is an array of columns; a record has its kind before them.
                yield _CHUNK + payload(row[0])[1:]
                count += 1
        elif record[0] == "body pages":
            for page, first, _sizes in record[1]:
                # Here the array has one column.
                yield _BODIES + pack(first) + payload(page)[1:]
                count += 1
        elif record[0] == "end":
            yield pack(["end", count])
        else:
            yield pack(record)
            count += 1


class _Output:
    """The blocks of a file."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self._packer = BlockPacker()
        self._chain = Chain()
        self._records = 0
        self.offsets = array("Q", [len(PREFIX)])
        file.write_at(0, PREFIX)

    def add(self, record: bytes) -> None:
        self._packer.add(record)
        self.write(self._packer.take())

    def end(self) -> None:
        self.write(self._packer.take_all())
        self.write([Packed(Kind.END, [self._chain.end(self._records).pack()], 0)])

    def write(self, packed: list[Packed]) -> None:
        for kind, parts, records in packed:
            block = encode_block(kind, self._chain.next_number, b"".join(parts))
            self._chain.add(parse_head(block))
            self._file.write_at(self.offsets[-1], block)
            self.offsets.append(self.offsets[-1] + len(block))
            self._records += records
