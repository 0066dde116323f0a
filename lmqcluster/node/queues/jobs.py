"""Pushes of writers that number what they write, as front ends use them; see `lmqcluster.core.marks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core import command_layout as layout
from ...core.marks import NOTE_BYTES_MAX
from ...wire.errors import LmqError
from ...wire.legacy_msgpack import CONTENT_TYPE
from ...wire.limits import NAME_BYTES_MAX, PUSH_COUNT_MAX
from .proposals import Proposals

__all__ = ["JobInfo", "Jobs", "MarkInfo", "Stream"]

_PLAIN_ROW = 3
NOTES_SLICE_BYTES = 4 * 1024 * 1024
"""Most bytes of notes in one answer."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, by its job's name and its own, and to whom the job belongs."""

    job: bytes
    name: bytes
    owner: bytes


@dataclass(frozen=True, slots=True)
class MarkInfo:
    """How far a stream is stored.

    Attributes:
        position: of its next message.
        done: whether it is complete.
        note_bytes: how long its notes are.
        notes: a part of them.
    """

    position: int
    done: bool
    note_bytes: int
    notes: bytes


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job of a writer.

    Attributes:
        messages: how many are stored in all its streams.
        note_bytes: how long their notes are.
        idle_s: seconds of log time since the last push.
    """

    owner: bytes
    name: bytes
    streams: int
    messages: int
    note_bytes: int
    idle_s: float


class Jobs:
    """The jobs of the cluster. Every asynchronous method raises `LmqError`, and may be repeated."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals

    async def push(
        self, queue: bytes, rows: list[list[Any]], stream: Stream, first: int, *, note: bytes, done: bool
    ) -> int:
        """Store the next messages of a stream, or nothing if they are stored already.

        Args:
            rows: ``[content, content type, headers]`` of each, and perhaps a row of `PushOptions`.

        Returns:
            How many were stored.

        Raises:
            LmqError: among others ``out_of_sequence`` if `first` is not the stream's position, ``quota_exceeded``.
        """
        proposals = self._proposals
        proposals.check_version()
        proposals.check_name(queue)
        for name in (stream.job, stream.name):
            _check_name(name)
        if not 0 <= first < 1 << 61:
            raise LmqError("bad_request", f"a position must be 0 or more, not {first}")
        if len(note) > NOTE_BYTES_MAX:
            raise LmqError("too_large", f"a note may have {NOTE_BYTES_MAX} bytes, this has {len(note)}")
        if len(rows) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(rows)}")
        size = 128 + len(note)
        if any(len(row) > _PLAIN_ROW for row in rows):
            proposals.check_version(3)
        for content, content_type, headers, *options in rows:
            if content_type == CONTENT_TYPE:
                proposals.check_packed(content)
            else:
                proposals.check_push(len(content))
            size += len(content) + len(content_type or b"") + sum(map(_header_bytes, headers)) + 32
            size += sum(_options_bytes(row) for row in options)
        command = layout.push_marked(queue, rows, (stream.job, stream.name), first, note, done, stream.owner)
        stored: int = await proposals.propose(command, size)
        return stored

    async def mark(self, stream: Stream, notes_from: int = 0) -> MarkInfo | None:
        """How far a stream is stored, with its notes from a byte on; None if it is not known."""
        self._proposals.check_version()
        await self._proposals.barrier()
        found = self._proposals.machine().marks.find(stream.owner, stream.job, stream.name)
        if found is None:
            return None
        notes = _part(found.notes, notes_from, NOTES_SLICE_BYTES)
        return MarkInfo(found.position, found.done, found.note_bytes, notes)

    async def end(self, names: Sequence[bytes], owner: bytes) -> int:
        """Forget an owner's jobs; returns how many streams they had."""
        self._proposals.check_version()
        if len(names) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a request may name at most {PUSH_COUNT_MAX} jobs, this names {len(names)}")
        ended: int = await self._proposals.propose(layout.end_jobs(list(names), owner), 64 + sum(map(len, names)))
        return ended

    async def show(self, owner: bytes | None, client: bytes) -> list[JobInfo]:
        """An owner's jobs (None: everybody's), the least recently used first, read in slices for this client."""
        await self._proposals.barrier()
        machine = self._proposals.machine()
        return [
            JobInfo(
                whose,
                name,
                len(job.streams),
                sum(mark.position for mark in job.streams.values()),
                job.note_bytes,
                (machine.now_us - job.used_us) / 1e6,
            )
            async for whose, name, job in self._proposals.turns.each(list(machine.marks.jobs()), client)
            if owner is None or whose == owner
        ]


def _part(chunks: list[bytes], start: int, size: int) -> bytes:
    """Up to `size` bytes from `start` on of the chunks joined together."""
    taken: list[bytes] = []
    at = have = 0
    for chunk in chunks:
        begin = max(0, start - at)
        at += len(chunk)
        if begin < len(chunk):
            taken.append(chunk[begin : begin + size - have])
            have += len(taken[-1])
            if have == size:
                break
    return b"".join(taken)


def _header_bytes(header: Sequence[bytes]) -> int:
    return sum(map(len, header)) + 8


def _options_bytes(row: Sequence[Any]) -> int:
    return 48 + sum(len(value) for value in row if isinstance(value, bytes))


def _check_name(name: bytes) -> None:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"a job and a stream have 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
