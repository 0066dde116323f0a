"""Calls of the asynchronous client for writers that number their messages."""

from __future__ import annotations

from asyncio import Future, ensure_future
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..options import Header, PushOptions, packed_headers, packed_push_options
from ..transport.calls import Call
from ..transport.requests import Name, name_bytes, request_body
from .call_base import CallBase, mappings

__all__ = ["JobCalls", "Mark"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Stored position of a stream of a job.

    Attributes:
        position: position of its next message, which is the number of stored ones.
        done: whether the stream is complete.
        notes: the concatenated notes of its pushes.
    """

    position: int
    done: bool
    notes: bytes


class JobCalls(CallBase):
    """Pushes that are stored exactly once, without a limit on the number or delay of repetitions."""

    def push_marked(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        job: Name,
        stream: Name,
        first: int,
        note: bytes = b"",
        done: bool = False,
        epoch: int | None = None,
        run: Name = b"",
        content_types: Sequence[Name | None] | None = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> Future[int | None]:
        """Push the next messages of a stream atomically, in one request.

        A job that must write exactly once numbers the messages of each of its streams 0, 1, 2, ... The cluster stores each
        stream's position until `end_jobs`, or until the job was not used for 30 days. So the cost is independent of the number
        of messages.

        Args:
            queue: name of the queue.
            contents: any MessagePack values; up to 10,000, together within the size of a request.
            job: name of the job, with which `end_jobs` ends its streams; 1 to 255 bytes. It belongs to the token that pushes.
            stream: name of the stream within the job; 1 to 255 bytes.
            first: position of the first content.
            note: at most 1 MiB that the cluster stores with the position; `mark` returns it.
            done: whether these contents, possibly none, complete the stream. The cluster then deletes its notes and treats any
                later push to it as already stored.
            epoch, run: for a job that writes in epochs, see `begin_epoch`; the note then has 16 bytes for each message.
            content_types: as in `push_many`, without keys.
            headers: for each content (name, value) pairs or None; the cluster keeps those that the queue's hooks name.
            options: for each content the options of `push` except the key, or None.

        Returns:
            Awaited: number of messages stored by this call: all except those that an earlier run of the epoch has stored. None
            if the stream was already past them, for example because of a lost attempt of this call.

        Raises:
            LmqError: awaited: ``out_of_sequence`` if `first` is not the stream's position; ``quota_exceeded``. In both cases
                nothing is stored.
        """
        if isinstance(contents, (str, bytes)):
            raise TypeError("contents must be a list of messages")
        request: dict[str, Any] = {"job": name_bytes(job), "stream": name_bytes(stream), "first": first}
        if note:
            request["note"] = note
        if done:
            request["done"] = True
        if epoch is not None:
            request |= {"epoch": epoch, "run": name_bytes(run)}
        if options is not None:
            request["options"] = [None if one is None else packed_push_options(one) for one in options]
        if content_types is not None:
            request["content_types"] = [None if kind is None else name_bytes(kind) for kind in content_types]
        if headers is not None:
            request["headers"] = packed_headers(headers)
        return self._call(Call, request_body(b"push_marked", [name_bytes(queue), list(contents), request]), _stored)

    def begin_epoch(self, job: Name, epoch: int, run: Name) -> Future[bool]:
        """Begin an attempt to write an epoch of a job.

        If a job divides its messages into different streams on each attempt, it numbers its writes 0, 1, 2, ..., its *epochs*. A
        *run* is one attempt to write an epoch. It has one client per stream, and each of them begins it. The notes of its pushes
        are the digests of the messages: 16 bytes for each, which identify it. The cluster does not store a message again that an
        earlier run of the epoch has stored in any stream. `finish_epoch` ends the epoch.

        Args:
            job: name of the job, 1 to 255 bytes.
            epoch: number of the epoch, 0 or more. When a later epoch begins, the cluster drops an unfinished one.
            run: name of the attempt, 1 to 64 bytes, for example a random text. After another run begins, this one cannot push.

        Returns:
            Awaited: False if the epoch is already finished, so that no push is needed.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if another run has taken over, or if the epoch is older than the last 100
                finished ones, which the cluster remembers.
        """
        return self._call(Call, request_body(b"begin_epoch", [name_bytes(job), epoch, name_bytes(run)]), bool)

    def finish_epoch(self, job: Name, epoch: int, run: Name, rows: int, digest: bytes) -> Future[None]:
        """Finish an epoch after all its messages were pushed. Idempotent, also for a later run.

        Args:
            job: name of the job.
            epoch: number of the epoch.
            run: name of the attempt.
            rows: number of messages in the epoch.
            digest: the sum of their digests modulo 2**128, 16 bytes, most significant byte first.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if the stored messages differ from these.
        """
        request = [name_bytes(job), epoch, name_bytes(run), rows, digest]
        return self._call(Call, request_body(b"finish_epoch", request), _nothing)

    def mark(self, job: Name, stream: Name) -> Future[Mark | None]:
        """Return the stored position of a stream. Awaited: None if the stream is unknown."""
        return ensure_future(self._mark(name_bytes(job), name_bytes(stream)))

    async def _mark(self, job: bytes, stream: bytes) -> Mark | None:
        notes = b""
        while True:
            found = await self._call(Call, request_body(b"mark", [job, stream, len(notes)]), _mark_part)
            if found is None:
                return None
            position, done, note_bytes, part = found
            notes += part
            if done or len(notes) >= note_bytes:
                return Mark(position, done, b"" if done else notes)

    def end_jobs(self, jobs: Sequence[Name]) -> Future[int]:
        """Delete jobs with all their streams. Awaited: number of deleted streams."""
        return self._call(Call, request_body(b"end_jobs", [[name_bytes(job) for job in jobs]]), int)

    def jobs(self) -> Future[list[dict[str, Any]]]:
        """List the jobs of the client's token; all jobs for a token with all permissions.

        Returns:
            Awaited: for each job ``owner``, ``name``, ``streams``, ``messages``, ``note_bytes``, ``idle_s``, and for jobs that
            write in epochs ``finished_epoch``, ``open_epoch`` and ``unclaimed``.
        """
        return self._call(Call, request_body(b"jobs", []), mappings)


def _stored(reply: Any) -> int | None:
    return None if reply is None else int(reply)


def _nothing(_reply: Any) -> None:
    return None


def _mark_part(reply: Any) -> tuple[int, bool, int, bytes] | None:
    if reply is None:
        return None
    position, done, note_bytes, part = reply
    return int(position), bool(done), int(note_bytes), bytes(part)
