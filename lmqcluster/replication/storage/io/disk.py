"""The files of one folder. The node reads and writes all its data through `Disk`, which the simulator replaces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

__all__ = ["DamagedFileError", "Disk", "DiskFile", "Folder"]


class DamagedFileError(RuntimeError):
    """A file does not hold the bytes written to it; the node must not start with a guess.

    Attributes:
        file: the file's path.
        offset: where the damage begins, in bytes.
    """

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file} is damaged at byte {offset}: {reason}")
        self.file = file
        self.offset = offset
        self.reason = reason


class DiskFile(Protocol):
    """An open file. All methods raise OSError, after which the content is unknown."""

    def size(self) -> int:
        """Return the size in bytes."""

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data`; durable after `sync`."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes, fewer only at the end of the file."""

    def sync(self) -> None:
        """Make all writes durable, the file's size included."""

    def close(self) -> None:
        """Close the file; this makes nothing durable."""


class Disk(Protocol):
    """One flat folder of files. All methods raise OSError."""

    def path(self, name: str) -> str:
        """Return the file's path, for messages."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def create(self, name: str) -> DiskFile:
        """Create an empty file, in place of a file of that name; its name is durable after `sync`."""

    def open(self, name: str) -> DiskFile:
        """Open an existing file, for reading and writing.

        Raises:
            FileNotFoundError: there is none.
        """

    def rename(self, old: str, new: str) -> None:
        """Rename a file, in place of a file of the new name; durable after `sync`."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists; durable after `sync`."""

    def sync(self) -> None:
        """Make creations, renames and removals durable."""


class _File:
    """A file of the operating system, without a buffer of ours."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = str(path)
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write_at(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        with self._named():
            while view:
                written = os.pwrite(self._fd, view, offset)
                view = view[written:]
                offset += written

    def read_at(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        with self._named():
            while size > 0 and (part := os.pread(self._fd, size, offset)):
                parts.append(part)
                offset += len(part)
                size -= len(part)
        return b"".join(parts)

    def sync(self) -> None:
        # fdatasync does not exist everywhere; where it does, it includes the size if that changed.
        with self._named():
            getattr(os, "fdatasync", os.fsync)(self._fd)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors."""
        try:
            yield
        except OSError as exc:
            exc.filename = self._path
            raise

    def close(self) -> None:
        os.close(self._fd)


class Folder:
    """A `Disk` in a folder of the operating system, which is created, durably, if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in missing:
            _sync_folder(folder.parent)

    def path(self, name: str) -> str:
        return str(self._path / name)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._path.iterdir() if entry.is_file())

    def create(self, name: str) -> DiskFile:
        return _File(self._path / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def open(self, name: str) -> DiskFile:
        return _File(self._path / name, os.O_RDWR)

    def rename(self, old: str, new: str) -> None:
        (self._path / old).replace(self._path / new)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        _sync_folder(self._path)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
