"""The files of an event journal: appended gzip members, rotated by size; the oldest files are deleted.

A file is a sequence of complete gzip members. Each is written at once and contains whole lines. So any gzip reader (``zcat``,
Python, Spark) can read a file at any time, even during writes and after the node was killed. If the disk is full, the node
removes the partial member. Nothing is fsynced.

If a process is killed during a write, or the machine fails, a file can end with a partial member. The node removes it at its
next start. Until then readers get everything before it: Python's `gzip` returns the lines and then raises EOFError (BadGzipFile
if one byte of the member is left); Spark returns them with the option ``ignoreCorruptFiles``. No process appends to a file of an
earlier process.

Names are ``events-20261103T141516.123456Z-NODE.jsonl.gz``: the log time of the first event, so that names sort by time, and the
node's name, percent-encoded except for ASCII letters, digits and ``@._-~``. Nodes with different names may share a folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

__all__ = ["EventFiles"]

_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(microseconds=1)
_CHUNK_BYTES: Final = 64 * 1024
_GZIP: Final = 31
"""The `wbits` value of `zlib` for the gzip format."""


class EventFiles:
    """The files of one node in one folder; used by one thread.

    Args:
        folder: must exist.
        node: the node's name.
        bytes_max: a member that would make a file larger starts a new file; a file has at least one member.
        files_max: number of files to keep, including the one being written; at least 1.
    """

    def __init__(self, folder: Path, node: str, *, bytes_max: int, files_max: int) -> None:
        self.folder = folder
        self._suffix = f"-{quote(node, safe='@')}.jsonl.gz"
        self._own = re.compile(r"events-(\d{8}T\d{6}\.\d{6}Z)" + re.escape(self._suffix))
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._path: Path | None = None

    def mend(self) -> int:
        """Remove the partial member that a killed process left; return its size in bytes.

        Raises:
            OSError: the newest file cannot be read or truncated.
        """
        own = self._names()
        if not own:
            return 0
        path = self.folder / own[-1]
        with path.open("r+b") as file:
            whole = _whole_bytes(file)
            cut = os.fstat(file.fileno()).st_size - whole
            if cut and whole:
                file.truncate(whole)
        if not whole:
            path.unlink()
        return cut

    def append(self, member: bytes, first_us: int) -> None:
        """Append one gzip member, all of it or nothing.

        Args:
            first_us: log time of its first event.

        Raises:
            OSError: the member was not written; the call may be repeated.
        """
        descriptor = self._open_with_room(len(member))
        is_new = descriptor is None
        if descriptor is None:
            descriptor = self._create(first_us)
        try:
            self._write(descriptor, member)
        finally:
            os.close(descriptor)
        if is_new:
            self._delete_oldest()

    def _open_with_room(self, size_bytes: int) -> int | None:
        """Open the current file; None if a new one is needed."""
        if self._path is None:
            return None
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            # The file was moved or deleted, which is allowed.
            return None
        if os.fstat(descriptor).st_size + size_bytes <= self._bytes_max:
            return descriptor
        os.close(descriptor)
        return None

    def _create(self, first_us: int) -> int:
        moment = _EPOCH + timedelta(microseconds=first_us)
        own = self._names()
        if own:
            # Names must sort by time even if log time started over in a new cluster.
            moment = max(moment, _stamp_of(own[-1]) + _STEP)
        while True:
            path = self.folder / f"events-{moment.strftime(_STAMP)}{self._suffix}"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                moment += _STEP
                continue
            self._path = path
            return descriptor

    def _write(self, descriptor: int, member: bytes) -> None:
        whole = os.fstat(descriptor).st_size
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            self._take_back(descriptor, whole)
            raise

    def _take_back(self, descriptor: int, whole: int) -> None:
        """Remove a partially written member; if it is the first of its file, remove the file."""
        path = self._path
        if path is None or whole == 0:
            self._path = None
            if path is not None:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
            return
        try:
            os.ftruncate(descriptor, whole)
        except OSError:
            # Nothing may follow a partial member.
            self._path = None
            raise

    def _names(self) -> list[str]:
        """Return the names of this node's files, oldest first."""
        return sorted(name for name in os.listdir(self.folder) if self._own.fullmatch(name))  # noqa: PTH208 - names only

    def _delete_oldest(self) -> None:
        for name in self._names()[: -self._files_max]:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).unlink()


def _stamp_of(name: str) -> datetime:
    return datetime.strptime(name.split("-", 2)[1], _STAMP).replace(tzinfo=UTC)


def _whole_bytes(file: BinaryIO) -> int:
    """Return the offset of the end of the last complete member; the file is read from its beginning."""
    whole = position = 0
    member = zlib.decompressobj(_GZIP)
    data = file.read(_CHUNK_BYTES)
    while data:
        try:
            member.decompress(data)
        except zlib.error:
            return whole
        position += len(data) - len(member.unused_data)
        data = member.unused_data or file.read(_CHUNK_BYTES)
        if member.eof:
            whole = position
            member = zlib.decompressobj(_GZIP)
    return whole
