"""Power failure: removes unsynced changes from the files of a dead node.

The library under the node wrote an undo log (native/interpose.c). A change is durable if a sync began after it, of the
file for its content and of the folder for its name. Of the other changes, a disk may have kept a prefix: for each file,
and for the names in each folder, a random prefix of the changes is kept, and the first lost write may be torn.
"""

from __future__ import annotations

import os
import random
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PowerFailure", "cut_power"]

_HEAD = struct.Struct("=8Q")
_SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""
_WRITE, _CREATE, _RENAME, _UNLINK, _SYNC = range(1, 6)


@dataclass(frozen=True, slots=True)
class _Record:
    position: int
    kind: int
    domain: int
    inode: int
    offset: int
    old_size: int
    mark: int
    first: bytes
    second: bytes


@dataclass(frozen=True, slots=True)
class PowerFailure:
    """The changes lost in a power failure.

    Attributes:
        writes: file writes undone.
        names: creations, renames and removals undone.
        bytes: bytes by which files shrank.
    """

    writes: int
    names: int
    bytes: int


def cut_power(undo_folder: Path, data_folder: Path, rng: random.Random, *, kept: float | None = None) -> PowerFailure:
    """Undo what was not durable. The node must be dead.

    Args:
        undo_folder: where the node's library wrote; empty afterwards.
        data_folder: the node's files.
        rng: decides which unsynced changes the disk kept.
        kept: share of them that it kept; None for a random part.

    Raises:
        OSError: a file cannot be read or written.
    """
    log = undo_folder / "log"
    pending = _undurable(_read(log)) if log.exists() else {}
    lost = {domain: records[_kept(records, rng, kept) :] for domain, records in pending.items()}
    names = [record for records in lost.values() for record in records if record.kind != _WRITE]
    names.sort(key=lambda record: record.position, reverse=True)
    for record in names:
        _undo_name(record)
    files = {path.stat().st_ino: path for path in data_folder.rglob("*") if path.is_file()}
    writes = size = 0
    for records in lost.values():
        own = [record for record in records if record.kind == _WRITE and record.inode in files]
        if own:
            writes += len(own)
            torn = _torn_bytes(own[0], rng) if kept is None else 0
            size += _undo_writes(files[own[0].inode], own, torn)
    for path in undo_folder.iterdir():
        path.unlink()
    return PowerFailure(writes, len(names), size)


def _read(log: Path) -> list[_Record]:
    data = log.read_bytes()
    records = []
    position = 0
    while position + _HEAD.size <= len(data):
        kind, domain, inode, offset, old_size, mark, first, second = _HEAD.unpack_from(data, position)
        body = position + _HEAD.size
        if body + first + second > len(data):
            break
        parts = data[body : body + first], data[body + first : body + first + second]
        records.append(_Record(position, kind, domain, inode, offset, old_size, mark, *parts))
        position = body + first + second
    return records


def _undurable(records: list[_Record]) -> dict[int, list[_Record]]:
    """Return the changes that no sync covers, in order, by the file or folder whose sync would cover them."""
    durable: dict[int, int] = {}
    for record in records:
        if record.kind == _SYNC:
            durable[record.domain] = max(durable.get(record.domain, 0), record.mark)
    pending: dict[int, list[_Record]] = defaultdict(list)
    for record in records:
        if record.kind != _SYNC and record.position >= durable.get(record.domain, 0):
            pending[record.domain].append(record)
    return pending


def _kept(records: list[_Record], rng: random.Random, share: float | None) -> int:
    """Return the number of changes that the disk kept; if random, none, all, or those before some point."""
    if share is not None:
        return round(len(records) * share)
    return rng.choice((0, len(records), rng.randrange(len(records) + 1)))


def _undo_name(record: _Record) -> None:
    first, second = Path(os.fsdecode(record.first)), Path(os.fsdecode(record.second))
    if record.kind == _CREATE:
        first.unlink(missing_ok=True)
    elif record.kind == _RENAME and second.exists():
        second.rename(first)
    elif record.kind == _UNLINK and second.exists():
        first.unlink(missing_ok=True)
        os.link(second, first)


def _undo_writes(path: Path, records: list[_Record], torn_bytes: int) -> int:
    """Undo writes to one file, newest first; the oldest may have been written in part. Return the bytes cut off."""
    before = path.stat().st_size
    with path.open("r+b", buffering=0) as file:
        for record in reversed(records[1:]):
            _undo_write(file.fileno(), record, 0)
        _undo_write(file.fileno(), records[0], torn_bytes)
    return max(before - path.stat().st_size, 0)


def _torn_bytes(record: _Record, rng: random.Random) -> int:
    """Return how much of a lost write reached the disk anyway: some whole sectors of the overwritten data."""
    inside = len(record.first) - (-record.offset) % _SECTOR_BYTES
    if inside < _SECTOR_BYTES or rng.random() < 0.5:
        return 0
    return (-record.offset) % _SECTOR_BYTES + rng.randrange(inside // _SECTOR_BYTES) * _SECTOR_BYTES


def _undo_write(fd: int, record: _Record, kept_bytes: int) -> None:
    os.pwrite(fd, record.first[kept_bytes:], record.offset + kept_bytes)
    if os.fstat(fd).st_size > record.old_size:
        os.ftruncate(fd, record.old_size)
