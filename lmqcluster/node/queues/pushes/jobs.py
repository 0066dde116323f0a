"""Pushes of writers that number what they write, for protocols; see `lmqcluster.core.dedup.stream_positions`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core import PushFlag
from ....core.dedup.epochs import EPOCH_MAX, RUN_BYTES_MAX
from ....core.dedup.row_digests import DIGEST_BYTES
from ....core.dedup.stream_positions import NOTE_BYTES_MAX, Job
from ....core.handlers.stream_pushes import SEED_BYTES
from ....core.log.commands import BeginEpoch, EndJobs, FinishEpoch, PushStream
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE
from ....wire.limits import NAME_BYTES_MAX, PUSH_COUNT_MAX
from ..sending.command_sender import CommandSender

__all__ = ["JobInfo", "Jobs", "MarkInfo", "Run", "Stream"]

_BEGUN, _TO_BE_REPEATED = 0, 1
NOTES_SLICE_BYTES = 4 * 1024 * 1024
"""Most bytes of notes in one answer."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The key of a stream: its job, its name, and the owner of the job."""

    job: bytes
    name: bytes
    owner: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt to write an epoch of a job."""

    epoch: int
    name: bytes


@dataclass(frozen=True, slots=True)
class MarkInfo:
    """The progress of a stream.

    Attributes:
        position: position of its next message.
        done: whether it is complete.
        note_bytes: size of its notes.
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
        messages: number of stored messages of all its streams. If the job writes in epochs: those of the open epoch, by
            all its runs, or of the last finished epoch if none is open.
        note_bytes: size of its notes and of the digests of earlier runs.
        idle_s: seconds of log time since the last use.
        finished_epoch: the last finished epoch; None if there is none.
        open_epoch: the epoch that is being written; None if there is none.
        unclaimed: messages that earlier runs have stored and that the present run has not reached yet.
    """

    owner: bytes
    name: bytes
    streams: int
    messages: int
    note_bytes: int
    idle_s: float
    finished_epoch: int | None = None
    open_epoch: int | None = None
    unclaimed: int = 0


class Jobs:
    """The jobs of the cluster. Every asynchronous method raises `LmqError`, and may be retried."""

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender

    async def push(
        self,
        queue: bytes,
        rows: list[list[Any]],
        stream: Stream,
        first: int,
        *,
        note: bytes,
        done: bool,
        run: Run | None = None,
    ) -> int | None:
        """Store the next messages of a stream, or nothing if they are already stored.

        Args:
            rows: ``[content, content type, attributes]`` of each message, optionally with a row of `PushOptions`.
            run: the run, if the job writes in epochs; the note then holds the digests of the messages.

        Returns:
            How many messages were stored: all but those that an earlier run of the epoch has stored. None if the stream
                is already past them.

        Raises:
            LmqError: among others ``out_of_sequence`` if `first` is not the stream's position, ``quota_exceeded``.
        """
        sender = self._sender
        sender.check_name(queue)
        for name in (stream.job, stream.name):
            _check_name(name)
        if not 0 <= first < 1 << 61:
            raise LmqError("bad_request", f"a position must be 0 or more, not {first}")
        if len(note) > NOTE_BYTES_MAX:
            raise LmqError("too_large", f"a note may have {NOTE_BYTES_MAX} bytes, this has {len(note)}")
        if len(rows) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(rows)}")
        size = 128 + len(note)
        for content, content_type, attributes, *options in rows:
            if content_type == CONTENT_TYPE:
                sender.check_packed(content)
            else:
                sender.check_push(len(content))
            size += len(content) + len(content_type or b"") + len(attributes) + 32
            size += sum(_options_bytes(row) for row in options)
        epoch = () if run is None else (run.epoch, run.name)
        if run is not None:
            _check_run(run)
            if done or len(note) != len(rows) * DIGEST_BYTES:
                raise LmqError(
                    "bad_request",
                    f"the note of an epoch has {DIGEST_BYTES} bytes for each message, and its streams are not done",
                )
        command = PushStream(queue, rows, stream.job, stream.name, first, note, done, stream.owner, *epoch)
        flags: list[int] = await sender.propose(command, size)
        return flags.count(PushFlag.STORED) if flags or not rows else None

    async def begin(self, job: bytes, run: Run, owner: bytes) -> bool:
        """Begin a run of an epoch of a job; False if the epoch is finished.

        Raises:
            LmqError: among others ``epoch_conflict`` if another run has taken over, or the epoch is too old.
        """
        _check_name(job)
        _check_run(run)
        while True:
            command = BeginEpoch(job, run.epoch, run.name, os.urandom(SEED_BYTES), owner)
            state: int = await self._sender.propose(command, 128)
            if state != _TO_BE_REPEATED:
                return state == _BEGUN

    async def finish(self, job: bytes, run: Run, rows: int, digest: bytes, owner: bytes) -> None:
        """Finish an epoch of a job whose rows have all been pushed.

        Args:
            rows: number of rows.
            digest: the sum of their digests modulo 2**128, most significant byte first.

        Raises:
            LmqError: among others ``epoch_conflict`` if other rows are stored.
        """
        _check_name(job)
        _check_run(run)
        if not 0 <= rows < 1 << 61 or len(digest) != DIGEST_BYTES:
            raise LmqError("bad_request", f"rows must be 0 or more, and their digest must have {DIGEST_BYTES} bytes")
        await self._sender.propose(FinishEpoch(job, run.epoch, run.name, rows, digest, owner), 128)

    async def mark(self, stream: Stream, notes_from: int = 0) -> MarkInfo | None:
        """Return the progress of a stream, with its notes from byte `notes_from` on; None if it is unknown."""
        await self._sender.barrier()
        found = self._sender.state().marks.find(stream.owner, stream.job, stream.name)
        if found is None:
            return None
        notes = _part(found.notes, notes_from, NOTES_SLICE_BYTES)
        return MarkInfo(found.position, found.done, found.note_bytes, notes)

    async def end(self, names: Sequence[bytes], owner: bytes) -> int:
        """Delete an owner's jobs; return how many streams they had."""
        if len(names) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a request may name at most {PUSH_COUNT_MAX} jobs, this names {len(names)}")
        ended: int = await self._sender.propose(EndJobs(list(names), owner), 64 + sum(map(len, names)))
        return ended

    async def show(self, owner: bytes | None, client: bytes) -> list[JobInfo]:
        """Return an owner's jobs (None: all jobs), the least recently used first.

        They are read in slices for this client.
        """
        await self._sender.barrier()
        state = self._sender.state()
        return [
            _info(whose, name, job, state.now_us)
            async for whose, name, job in self._sender.turns.each(list(state.marks.jobs()), client)
            if owner is None or whose == owner
        ]


def _info(owner: bytes, name: bytes, job: Job, now_us: int) -> JobInfo:
    epochs, messages = job.epochs, sum(mark.position for mark in job.streams.values())
    if epochs is not None:
        messages = messages + epochs.unclaimed_count() if epochs.open >= 0 else epochs.finished[epochs.last].rows
    return JobInfo(
        owner,
        name,
        len(job.streams),
        messages,
        job.note_bytes,
        (now_us - job.used_us) / 1e6,
        None if epochs is None or epochs.last < 0 else epochs.last,
        None if epochs is None or epochs.open < 0 else epochs.open,
        0 if epochs is None else epochs.unclaimed_count(),
    )


def _part(chunks: list[bytes], start: int, size: int) -> bytes:
    """Return up to `size` bytes of the joined chunks, from `start` on."""
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


def _options_bytes(row: Sequence[Any]) -> int:
    return 48 + sum(len(value) for value in row if isinstance(value, bytes))


def _check_run(run: Run) -> None:
    if not 0 <= run.epoch < EPOCH_MAX or not 0 < len(run.name) <= RUN_BYTES_MAX:
        raise LmqError("bad_request", f"an epoch must be 0 or more, and a run must have 1 to {RUN_BYTES_MAX} bytes")


def _check_name(name: bytes) -> None:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"a job and a stream have 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
