"""The files of an event journal: whole gzip members, appended, rotated by size, the oldest deleted.

A file is a sequence of complete gzip members, each written at once and holding whole lines. So a file can be read at any
moment, also while it is written and after the node was killed, by anything that reads gzip: ``zcat``, Python, Spark. What a full
disk cut off is taken back. Nothing is synced.

A member can be cut at the end of a file if a process is killed in the middle of a write, or the machine fails. The node cuts it
off when it is started again. Until then readers get everything before it: Python's `gzip` gives the lines and then raises
EOFError (BadGzipFile if one byte is left of the member), Spark gives them with the option ``ignoreCorruptFiles``. No process
appends to a file of an earlier one.

Names are ``events-20261103T141516.123456Z-NODE.jsonl.gz``: the log time of the first event, so that names sort by time, and the
node's name, in which all but ASCII letters, digits and ``@._-~`` is percent-encoded. Nodes of different names may share a folder.
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
"""What `zlib` calls its gzip format."""


class EventFiles:
    """The files of one node in one folder; used by one thread.

    Args:
        folder: must exist.
        node: the node's name.
        bytes_max: a member that would make a file larger begins another; a file has at least one.
        files_max: how many are kept, the one being written included; at least 1.
    """

    def __init__(self, folder: Path, node: str, *, bytes_max: int, files_max: int) -> None:
        self.folder = folder
        self._suffix = f"-{quote(node, safe='@')}.jsonl.gz"
        self._own = re.compile(r"events-(\d{8}T\d{6}\.\d{6}Z)" + re.escape(self._suffix))
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._path: Path | None = None

    def mend(self) -> int:
        """Cut off what a process that was killed has left of a member; returns how many bytes.

        Raises:
            OSError: the newest file cannot be read or cut.
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
            OSError: it was not written; the call may be repeated.
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
        """The present file, or None if another has to be begun."""
        if self._path is None:
            return None
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            # Somebody took it away, which is their right.
            return None
        if os.fstat(descriptor).st_size + size_bytes <= self._bytes_max:
            return descriptor
        os.close(descriptor)
        return None

    def _create(self, first_us: int) -> int:
        moment = _EPOCH + timedelta(microseconds=first_us)
        own = self._names()
        if own:
            # Names sort by time even where log time started over, in another cluster.
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
        """Cut off what was written of a member; a file without any is removed."""
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
            # Nothing may follow a cut member.
            self._path = None
            raise

    def _names(self) -> list[str]:
        """This node's files, oldest first."""
        return sorted(name for name in os.listdir(self.folder) if self._own.fullmatch(name))  # noqa: PTH208 - names only

    def _delete_oldest(self) -> None:
        for name in self._names()[: -self._files_max]:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).unlink()


def _stamp_of(name: str) -> datetime:
    return datetime.strptime(name.split("-", 2)[1], _STAMP).replace(tzinfo=UTC)


def _whole_bytes(file: BinaryIO) -> int:
    """Where the last whole member of a file ends that is read from its beginning."""
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
