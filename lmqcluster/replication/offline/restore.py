"""Copy of a backup into a new folder, with another salt of message ids, and with long queues in pages again.

A backup holds all messages. Messages that were in pages are separate records, which become pages here, so that the
new node need not hold them in memory. At most one block of the backup is decoded at a time, whatever it holds.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from ...core.messages.bodies import sizes_of
from ...core.messages.columns import messages_of
from ...core.queue.paged_tail import Chunk
from ...core.snapshot.records import with_salt
from ...wire.values import Scan, TooManyValuesError
from ..storage.page_files import PageFiles
from ..storage.snapshots.snapshot_file import Block, Kind
from ..storage.snapshots.snapshot_output import SnapshotWriter
from ..storage.snapshots.stored_snapshot import StoredSnapshot

__all__ = ["copy_restored"]

_CHUNK: Final = msgpack.packb(["chunk", *[0] * 8])[:7]
"""Beginning of a record whose messages may go to a page."""
_BODIES: Final = msgpack.packb(["bodies", 0, []])[:8]
_END: Final = msgpack.packb(["end", 0])[:5]
_PAGES_MAX: Final = 500
"""Most pages that one record names."""
_BYTES_MAX: Final = 1 << 20
_VALUES_MAX: Final = 200_000
"""A record with more bytes and more values is copied unchanged: decoded it would take too much memory."""


def copy_restored(stored: StoredSnapshot, writer: SnapshotWriter, pages: PageFiles, salt: bytes) -> None:
    """Write a backup's records as those of a snapshot of this program; `writer` is not finished, and `pages` not synced.

    Args:
        stored: a backup whose outline has been checked.
        salt: salt of the new cluster's message ids.

    Raises:
        DamagedFileError: the backup is damaged.
        OSError: a file cannot be read or written.
    """
    copy = _Copy(writer, pages, salt)
    for block in stored.blocks():
        with stored.damage_at(block.head.number):
            try:
                copy.take(block)
            except (TypeError, LookupError, msgpack.UnpackException) as exc:
                raise ValueError(f"the messages of a page are malformed: {exc}") from exc


class _Copy:
    """State of the copy."""

    def __init__(self, writer: SnapshotWriter, pages: PageFiles, salt: bytes) -> None:
        self._writer = writer
        self._pages = pages
        self._salt = salt
        self._records = 0
        # Rows of pages that no record names yet, and the kind of the record that will.
        self._rows: list[Any] = []
        self._kind = "pages"

    def take(self, block: Block) -> None:
        """Write the next block's records."""
        kind = block.head.kind
        if kind == Kind.RECORDS:
            self._take_records(block.payload())
        elif kind in {Kind.PIECE, Kind.LAST_PIECE}:
            self._name_pages()
            self._writer.add_piece(block.payload(), is_last=kind == Kind.LAST_PIECE)
            self._records += kind == Kind.LAST_PIECE
        work = self._writer.take_work()
        if work is not None:
            work()

    def _take_records(self, payload: bytes) -> None:
        unpacker = msgpack.Unpacker(max_buffer_size=len(payload))
        unpacker.feed(payload)
        position = 0
        while position < len(payload):
            unpacker.skip()
            record, position = payload[position : unpacker.tell()], unpacker.tell()
            if self._records == 0 and not self._rows:
                self._take_header(record)
            elif record.startswith(_CHUNK) and _takes_little(record):
                self._take_chunk(record)
            elif record.startswith(_BODIES) and _takes_little(record):
                self._take_bodies(record)
            else:
                self._name_pages()
                self._add(msgpack.packb(["end", self._records]) if record.startswith(_END) else record)

    def _take_header(self, record: bytes) -> None:
        header = with_salt(_unpacked(record), self._salt)
        self._add(msgpack.packb(header))

    def _take_chunk(self, record: bytes) -> None:
        columns = _unpacked(record)[1:]
        chunk = Chunk.of(messages_of(columns))
        chunk.page = self._pages.save(columns)
        self._add_row("pages", chunk.row())

    def _take_bodies(self, record: bytes) -> None:
        first, bodies = _unpacked(record)[1:]
        self._add_row("body pages", [self._pages.save([bodies]), first, sizes_of(bodies)])

    def _add_row(self, kind: str, row: list[Any]) -> None:
        if kind != self._kind:
            self._name_pages()
            self._kind = kind
        self._rows.append(row)
        if len(self._rows) == _PAGES_MAX:
            self._name_pages()

    def _name_pages(self) -> None:
        if self._rows:
            self._add(msgpack.packb([self._kind, self._rows]))
            self._rows = []

    def _add(self, record: bytes) -> None:
        self._writer.add_encoded(record)
        self._records += 1


def _takes_little(record: bytes) -> bool:
    if len(record) <= _BYTES_MAX:
        return True
    try:
        Scan(_VALUES_MAX).feed(record)
    except TooManyValuesError:
        return False
    return True


def _unpacked(record: bytes) -> Any:
    return msgpack.unpackb(record, strict_map_key=False)
