"""Calls of the asynchronous client for writers that number what they write."""

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
    """How far a stream of a job is stored.

    Attributes:
        position: of its next message, and so how many are stored.
        done: whether it is complete.
        notes: what the pushes left, one after the other.
    """

    position: int
    done: bool
    notes: bytes


class JobCalls(CallBase):
    """Pushes that are stored exactly once, however often and however late they are repeated."""

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
        """Push the next messages of a stream, all or none of them, in one request.

        A job that must write exactly once numbers the messages of each of its streams 0, 1, 2, ... The cluster keeps each
        stream's position, until `end_jobs` or until the job was not used for 30 days; so this costs the same for a
        thousand messages and for a billion.

        Args:
            queue: name of the queue.
            contents: any MessagePack values; up to 10,000, together within the size of a request.
            job: name of the job, by which its streams are ended; 1 to 255 bytes. It belongs to the token that pushes.
            stream: name of the stream within the job; 1 to 255 bytes.
            first: position of the first content.
            note: at most 1 MiB that the cluster keeps with the position, for `mark` to give back.
            done: the stream is complete with these contents, which may be none: its notes are let go, and whatever is pushed
                to it later counts as stored.
            epoch, run: of a job that writes in epochs, see `begin_epoch`; the note is 16 bytes for each message then.
            content_types: as in `push_many`, without keys.
            headers: for each content (name, value) pairs or None; those are kept that the queue's hooks name.
            options: for each content those of `push`, but for the key, or None.

        Returns:
            Awaited: how many messages were stored now: all, but for those that an earlier run of the epoch has stored. None if
            the stream had passed them before, perhaps by a lost attempt of this call.

        Raises:
            LmqError: awaited: ``out_of_sequence`` if `first` is not the stream's position; ``quota_exceeded``. Nothing is stored
                then.
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

        A job that divides its messages into streams anew when it is repeated numbers its writes 0, 1, 2, ..., its *epochs*. A
        *run* is one attempt to write an epoch, by as many clients as there are streams, each of which begins it. The notes
        of its pushes are the digests of the messages: 16 bytes for each that tell it from others. A message that an earlier
        run of the epoch has stored, in whatever stream, is not stored again. `finish_epoch` ends the epoch.

        Args:
            job: name of the job, 1 to 255 bytes.
            epoch: number of the epoch, 0 or more. The job forgets an epoch that is not finished when a later one begins.
            run: names the attempt, 1 to 64 bytes, such as a random text. When another run begins this one can push no more.

        Returns:
            Awaited: False if the epoch is finished, and nothing is to be pushed.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if another run has taken over, or the epoch is older than the 100 finished ones
                that the cluster remembers.
        """
        return self._call(Call, request_body(b"begin_epoch", [name_bytes(job), epoch, name_bytes(run)]), bool)

    def finish_epoch(self, job: Name, epoch: int, run: Name, rows: int, digest: bytes) -> Future[None]:
        """Finish an epoch all of whose messages have been pushed. May be repeated, also by a later run.

        Args:
            job: name of the job.
            epoch: number of the epoch.
            run: the attempt.
            rows: how many messages the epoch has.
            digest: the sum of their digests modulo 2**128, 16 bytes, most significant byte first.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if it is not exactly these messages that are stored.
        """
        request = [name_bytes(job), epoch, name_bytes(run), rows, digest]
        return self._call(Call, request_body(b"finish_epoch", request), _nothing)

    def mark(self, job: Name, stream: Name) -> Future[Mark | None]:
        """How far a stream is stored, as of now; awaited: None if it is not known."""
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
        """Let the cluster forget jobs, with all their streams. Awaited: how many streams there were."""
        return self._call(Call, request_body(b"end_jobs", [[name_bytes(job) for job in jobs]]), int)

    def jobs(self) -> Future[list[dict[str, Any]]]:
        """One's own jobs; everybody's for a token that may do everything.

        Returns:
            Awaited: for each ``owner``, ``name``, ``streams``, ``messages``, ``note_bytes``, ``idle_s``, and of jobs that write
            in epochs ``finished_epoch``, ``open_epoch`` and ``unclaimed``.
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
