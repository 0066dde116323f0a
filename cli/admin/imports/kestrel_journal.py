"""Parses Kestrel's journals: the items that a queue has left, and the positions of their bytes.

A journal is a sequence of operations in several files. Parsing keeps the position of each item, not its bytes. A file
ends at its last complete operation: the rest is reported, and the next file is read.
"""

from __future__ import annotations

import errno
import hashlib
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

__all__ = ["Damage", "Item", "Journal", "journal_files", "queues_in"]

_CHUNK_BYTES: Final = 1024 * 1024
_INT: Final = struct.Struct("<i")
_OLD_ADD: Final = struct.Struct("<ii")
_ADD: Final = struct.Struct("<iqq")
_NUMBERED_ADD: Final = struct.Struct("<iiqq")
ADD_OLD, REMOVE, ADD, OPEN_OLD, SET_NUMBER, ABORT, CONFIRM, ADD_NUMBERED, CONTINUE, OPEN = range(10)


class Item(NamedTuple):
    """An item left in a queue.

    Attributes:
        number: its rank in the order of puts.
        file: index of the file with its bytes.
        offset: position of its bytes in the file.
        size: number of bytes.
        expires_ms: Unix time in milliseconds; 0 for never.
    """

    number: int
    file: int
    offset: int
    size: int
    expires_ms: int


class Damage(NamedTuple):
    """The unreadable end of a file."""

    path: Path
    offset: int
    left_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} at byte {self.offset}; {self.left_bytes} bytes were skipped"


class _BadOperationError(Exception):
    """There is no complete operation here."""


def queues_in(folder: Path) -> list[str]:
    """Return the names of all queues that have a journal in a folder.

    Raises:
        OSError: the folder cannot be read, or holds a symbolic link.
    """
    names = (re.sub(r"\.[0-9]+(\.pack)?\Z", "", path.name) for path in folder.iterdir() if _is_journal(path))
    return sorted({name for name in names if "." not in name})


def _is_journal(path: Path) -> bool:
    if path.is_symlink():
        # Kestrel creates none. An attacker who can write to the folder must not make the importer read other files.
        raise OSError(errno.ELOOP, f"{path.name} is a symbolic link; replace it with the file, or remove it")
    return path.is_file() and "~~" not in path.name


def journal_files(folder: Path, queue: str) -> list[Path]:
    """Return the files of a queue in reading order, without those that a packed file replaces.

    Raises:
        OSError: the folder cannot be read.
    """
    numbered = re.compile(re.escape(queue) + r"\.([0-9]+)(\.pack)?")
    old: list[tuple[int, bool, Path]] = []
    for path in folder.iterdir():
        found = numbered.fullmatch(path.name)
        if found is not None and _is_journal(path):
            old.append((int(found[1]), found[2] is not None, path))
    packed = max((number for number, is_packed, _ in old if is_packed), default=-1)
    kept = [(number, path) for number, is_packed, path in old if number > packed or (is_packed and number == packed)]
    current = folder / queue
    return [path for _, path in sorted(kept)] + ([current] if _is_journal(current) else [])


@dataclass
class Journal:
    """The items left in a queue.

    Attributes:
        paths: its files.
        items: the items left, head first. An item that was open at the end is in its old position.
        damages: the parts that could not be read.
        missing: number of removed items that are not in the files.
        digest: hexadecimal digest of all bytes of all files.
    """

    paths: list[Path]
    items: list[Item] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    missing: int = 0
    digest: str = ""

    @classmethod
    def read(cls, paths: list[Path], on_bytes: Callable[[int], None] = lambda _size: None) -> Journal:
        """Read all files; `on_bytes` is called from time to time with the number of bytes read since.

        Raises:
            OSError: a file cannot be read.
        """
        journal, state, digest = cls(paths), _State(), hashlib.sha256()
        for number, path in enumerate(paths):
            with path.open("rb") as stream:
                file = _File(stream, path.stat().st_size, digest, on_bytes)
                try:
                    while file.offset < file.size:
                        start = file.offset
                        state.apply(file, number)
                except _BadOperationError as exc:
                    journal.damages.append(Damage(path, start, file.size - start, str(exc)))
                file.finish()
        journal.items, journal.missing = state.left(), state.missing
        journal.digest = digest.hexdigest()
        return journal

    def contents(self, first: int) -> Iterator[tuple[Item, bytes]]:
        """Yield the items from index `first` of `items` on, with their bytes.

        Raises:
            OSError: a file cannot be read, or has shrunk.
        """
        streams: dict[int, BinaryIO] = {}
        try:
            for item in self.items[first:]:
                stream = streams.get(item.file)
                if stream is None:
                    stream = streams[item.file] = self.paths[item.file].open("rb")
                stream.seek(item.offset)
                content = stream.read(item.size)
                if len(content) != item.size:
                    raise OSError(f"{self.paths[item.file]} has shrunk while it was read")
                yield item, content
        finally:
            for stream in streams.values():
                stream.close()


class _File:
    """A file being read; every byte is added to the digest."""

    def __init__(self, stream: BinaryIO, size: int, digest: hashlib._Hash, on_bytes: Callable[[int], None]) -> None:
        self._stream = stream
        self._digest = digest
        self._on_bytes = on_bytes
        self._told = 0
        self.size = size
        self.offset = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if not 0 <= size <= self.size - self.offset:
            raise _BadOperationError("an incomplete operation")
        data = self._stream.read(size)
        self._digest.update(data)
        self.offset += len(data)
        if self.offset - self._told >= _CHUNK_BYTES:
            self._on_bytes(self.offset - self._told)
            self._told = self.offset
        if len(data) != size:
            raise _BadOperationError("an incomplete operation")
        return data

    def skip(self, size: int) -> int:
        """Skip the bytes of an item; return their offset."""
        start = self.offset
        if not 0 <= size <= self.size - start:
            raise _BadOperationError("an incomplete operation")
        while self.offset < start + size:
            self.take(min(_CHUNK_BYTES, start + size - self.offset))
        return start

    def finish(self) -> None:
        """Skip the rest of the file."""
        self._on_bytes(self.offset - self._told)
        while data := self._stream.read(_CHUNK_BYTES):
            self._digest.update(data)
            self._on_bytes(len(data))


class _State:
    """The queue after the operations read so far."""

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._open: dict[int, Item] = {}
        self._added = 0
        self._number = 0
        self.missing = 0

    def apply(self, file: _File, number: int) -> None:
        """Apply the next operation."""
        code = file.take(1)[0]
        if code == REMOVE:
            self._take()
        elif code == ADD:
            size, _, expires_ms = _ADD.unpack(file.take(_ADD.size))
            self._add(file, number, size - 16, expires_ms)
        elif code in (CONTINUE, ADD_NUMBERED):
            transaction, size, _, expires_ms = _NUMBERED_ADD.unpack(file.take(_NUMBERED_ADD.size))
            self._add(file, number, size - 16, expires_ms)
            if code == CONTINUE:
                self._open.pop(transaction, None)
        elif code == ADD_OLD:
            size, expires_s = _OLD_ADD.unpack(file.take(_OLD_ADD.size))
            self._add(file, number, size - 4, expires_s * 1000)
        elif code == OPEN_OLD:
            self._number += 1
            self._begin(self._number)
        elif code in (SET_NUMBER, ABORT, CONFIRM, OPEN):
            self._settle(code, _INT.unpack(file.take(_INT.size))[0])
        else:
            raise _BadOperationError(f"an unknown operation {code}")

    def _settle(self, code: int, transaction: int) -> None:
        if code == SET_NUMBER:
            self._number = transaction
        elif code == OPEN:
            self._number = transaction
            self._begin(transaction)
        else:
            item = self._open.pop(transaction, None)
            if item is not None and code == ABORT:
                self._waiting.appendleft(item)

    def _add(self, file: _File, number: int, size: int, expires_ms: int) -> None:
        offset = file.skip(size)
        self._waiting.append(Item(self._added, number, offset, size, expires_ms))
        self._added += 1

    def _begin(self, transaction: int) -> None:
        item = self._take()
        if item is not None:
            self._open[transaction] = item

    def _take(self) -> Item | None:
        if self._waiting:
            return self._waiting.popleft()
        self.missing += 1
        return None

    def left(self) -> list[Item]:
        """Return all items left, head first."""
        return [*sorted(self._open.values()), *self._waiting]
