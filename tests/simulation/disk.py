"""An in-memory disk that loses what real disks may lose.

It keeps durable data apart from data that was only written. A crash of the process loses nothing that was written. A
power failure keeps of each sector some version since the last sync, and of the directory changes some that may have
reached the disk. A failed sync of a file marks the written pages as clean: they can be read until the power fails, but
no later sync writes them.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

__all__ = ["SECTOR", "PowerCut", "SimDisk"]

SECTOR = 512
"""Bytes that a disk writes atomically."""
_PAGE = 4096
_NO_PAGE = bytes(_PAGE)


class PowerCut(BaseException):
    """Ends the process; no handler of ordinary exceptions may catch it."""


class _Content:
    """One file: what a reader sees, what is durable, and the writes between the two, in order. Absent pages
    are zeros.
    """

    __slots__ = ("durable", "durable_size", "pages", "size", "unsynced")

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self.size = 0
        self.durable: dict[int, bytes] = {}
        self.durable_size = 0
        self.unsynced: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        self.unsynced.append((offset, data))
        _put(self.pages, offset, data)
        self.size = max(self.size, offset + len(data))

    def read(self, offset: int, size: int) -> bytes:
        stop = min(offset + size, self.size)
        parts: list[bytes | bytearray] = []
        while offset < stop:
            page, start = divmod(offset, _PAGE)
            end = min(_PAGE, start + stop - offset)
            parts.append(self.pages.get(page, _NO_PAGE)[start:end])
            offset += end - start
        return b"".join(parts)

    def sync(self) -> None:
        touched: set[int] = set()
        for offset, data in self.unsynced:
            touched.update(range(offset // _PAGE, (offset + len(data) - 1) // _PAGE + 1))
        for page in touched:
            if page in self.pages:
                self.durable[page] = bytes(self.pages[page])
        self.unsynced.clear()
        self.durable_size = self.size

    def sync_failed(self) -> None:
        """Treat the writes as clean from now on, though they have not reached the disk."""
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Keep of each sector the durable version or a later one; a sector's versions come in the order of
        its writes.
        """
        pages = {page: bytearray(content) for page, content in self.durable.items()}
        size = self.durable_size
        kept_whole = rng.choice((0, 0, len(self.unsynced), rng.randint(0, len(self.unsynced))))
        chance = rng.choice((0.0, 0.0, 0.5, 0.9))
        closed: set[int] = set()
        for position, (offset, data) in enumerate(self.unsynced):
            if position < kept_whole:
                _put(pages, offset, data)
                size = max(size, offset + len(data))
                continue
            for sector in range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1):
                if sector in closed or rng.random() >= chance:
                    closed.add(sector)
                    continue
                start, stop = max(offset, sector * SECTOR), min(offset + len(data), (sector + 1) * SECTOR)
                _put(pages, start, data[start - offset : stop - offset])
                size = max(size, stop)
        self.pages = pages
        self.size = size
        self.settle()

    def settle(self) -> None:
        """Make everything visible durable."""
        self.durable = {page: bytes(content) for page, content in self.pages.items()}
        self.durable_size = self.size
        self.unsynced.clear()

    def cut(self, size: int) -> None:
        """Truncate to `size`."""
        kept = self.read(0, size)
        self.pages.clear()
        _put(self.pages, 0, kept)
        self.size = size
        self.settle()


def _put(pages: dict[int, bytearray], offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        page, start = divmod(offset, _PAGE)
        part = view[: _PAGE - start]
        content = pages.get(page)
        if content is None and part != _NO_PAGE[: len(part)]:
            content = pages[page] = bytearray(_PAGE)
        if content is not None:
            content[start : start + len(part)] = part
        offset += len(part)
        view = view[len(part) :]


class SimDisk:
    """A `Disk` whose crashes are drawn from `rng`.

    Attributes:
        full: writes that make a file longer fail, and new files cannot be created.
        calls: mutating calls so far.
        syncs: syncs of files so far.
        reads: reads so far.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names: dict[str, _Content] = {}
        self._durable_names: dict[str, _Content] = {}
        self._folder_changes: list[tuple[str, str, _Content | None]] = []
        self._life = 0
        self._calls_left: int | None = None
        self._error: Callable[[], BaseException] = PowerCut
        self.full = False
        self.calls = 0
        self.syncs = 0
        self.reads = 0

    # --- Disk -----------------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        return f"disk/{name}"

    def names(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str) -> _SimFile:
        self._count()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        content = _Content()
        self._names[name] = content
        self._folder_changes.append(("", name, content))
        return _SimFile(self, content)

    def open(self, name: str) -> _SimFile:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return _SimFile(self, self._names[name])

    def rename(self, old: str, new: str) -> None:
        self._count()
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        content = self._names[new] = self._names.pop(old)
        self._folder_changes.append((old, new, content))

    def remove(self, name: str) -> None:
        self._count()
        if self._names.pop(name, None) is not None:
            self._folder_changes.append(("", name, None))

    def sync(self) -> None:
        self._count()
        self._durable_names = dict(self._names)
        self._folder_changes.clear()

    # --- failures -------------------------------------------------------------------------------------------------

    def process_crash(self) -> None:
        """Keep all writes and invalidate open files. A power failure may still lose the writes."""
        self._begin_life()

    def power_failure(self, rng: random.Random | None = None) -> None:
        """Lose some of what was not synced."""
        rng = rng or self._rng
        self._lose_names(rng)
        for content in self._names.values():
            content.lose_power(rng)
        self._begin_life()

    def _lose_names(self, rng: random.Random) -> None:
        """Keep changes of one name in order; changes of different names may be reordered."""
        kept = rng.randint(0, len(self._folder_changes))
        chance = rng.choice((0.0, 0.0, 0.5))
        names = dict(self._durable_names)
        closed: set[str] = set()
        for position, (old, new, content) in enumerate(self._folder_changes):
            if position >= kept and (closed & {old, new} or rng.random() >= chance):
                closed |= {old, new} - {""}
                continue
            names.pop(old, None)
            if content is None:
                names.pop(new, None)
            else:
                names[new] = content
        self._names = names
        self._durable_names = dict(names)
        self._folder_changes.clear()

    def _begin_life(self) -> None:
        self._life += 1
        self._calls_left = None
        self.full = False

    def fail_after(self, calls: int, error: Callable[[], BaseException] = PowerCut) -> None:
        """Allow `calls` more mutating calls; the next one raises `error`, after writing some sectors if it is
        a write.
        """
        self._calls_left = calls
        self._error = error

    def never_fail(self) -> None:
        """Cancel `fail_after`."""
        self._calls_left = None

    def flip_bit(self, name: str, rng: random.Random, offset: int | None = None) -> int:
        """Flip one bit of a file durably; return the offset of its byte."""
        content = self._names[name]
        if offset is None:
            offset = rng.randrange(content.size)
        byte = content.read(offset, 1)[0] ^ 1 << rng.randrange(8)
        content.write(offset, bytes([byte]))
        content.settle()
        return offset

    def truncate(self, name: str, rng: random.Random) -> int:
        """Truncate a file durably; return its new size."""
        content = self._names[name]
        size = rng.randrange(content.size)
        content.cut(size)
        return size

    def lose(self, name: str) -> None:
        """Remove a file durably, as if by hand."""
        del self._names[name]
        self._durable_names.pop(name, None)

    def copy(self) -> SimDisk:
        """Return a disk with the same files, all durable."""
        twin = SimDisk(self._rng)
        for name, content in self._names.items():
            other = _Content()
            other.pages = {page: bytearray(data) for page, data in content.pages.items()}
            other.size = content.size
            other.settle()
            twin._names[name] = other
        twin._durable_names = dict(twin._names)
        return twin

    def content(self, name: str) -> bytes:
        """Return the visible contents of a file."""
        content = self._names[name]
        return content.read(0, content.size)

    def _count(self) -> None:
        self.calls += 1
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise self._error()
            self._calls_left -= 1


class _SimFile:
    """An open file; unusable after a crash."""

    def __init__(self, disk: SimDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._life = disk._life
        self._open = True

    def size(self) -> int:
        self._check()
        return self._content.size

    def write_at(self, offset: int, data: bytes) -> None:
        self._check()
        if self._disk.full and offset + len(data) > self._content.size:
            raise OSError(errno.ENOSPC, "No space left on device")
        try:
            self._disk._count()
        except BaseException:
            # An interrupted write reaches the file up to some sector.
            stop = (offset // SECTOR + self._disk._rng.randint(0, len(data) // SECTOR + 1)) * SECTOR
            if stop > offset:
                self._content.write(offset, data[: stop - offset])
            raise
        if data:
            self._content.write(offset, data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._check()
        self._disk.reads += 1
        return self._content.read(offset, size)

    def sync(self) -> None:
        self._check()
        try:
            self._disk._count()
        except OSError:
            self._content.sync_failed()
            raise
        self._disk.syncs += 1
        self._content.sync()

    def close(self) -> None:
        self._open = False

    def _check(self) -> None:
        if not self._open or self._life != self._disk._life:
            raise OSError(errno.EBADF, "Bad file descriptor")
