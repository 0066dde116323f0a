"""Pushes of writers that number their messages, see `stream_positions`. Every public method is one command."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..dedup.epochs import Epochs, Finished, checked_run
from ..dedup.row_digests import DIGEST_BYTES
from ..dedup.stream_positions import NOTE_BYTES_MAX, checked_position
from ..log.commands import PushFlag, RefusedError
from ..log.items import Item, checked_item
from ..messages.message import Headers
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..routing.admission import PLAIN_PUSH, Push, Room, preserved_headers
from ..state.state import State
from .traits import checked_push

__all__ = ["SEED_BYTES", "StreamPushes"]

SEED_BYTES = 16
_NAME_BYTES_MAX = 255
_SEQUENCES = (list, tuple)
_ONLY_BYTES = {bytes}


class StreamPushes:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def push(
        self,
        name: bytes,
        items: list[list[Any]],
        job: bytes,
        stream: bytes,
        first: int,
        note: bytes,
        done: bool,
        owner: bytes = b"",
        epoch: int = -1,
        run: bytes = b"",
    ) -> list[int]:
        """Store messages numbered from `first` on in a stream, or nothing if they have been stored before.

        Args:
            name: the queue.
            items: [content, content type or None, headers] of each, perhaps also traits, see ``PUSH_TRAITS``.
            job: the job, by whose name its streams are ended together.
            stream: the stream's name within the job.
            first: position of the first message.
            note: appended to the stream's notes with the messages.
            done: True if the stream ends with them; its notes are then dropped.
            owner: owner of the job.
            epoch, run: set by a job that writes in epochs; the note is then the digests of the messages.

        Returns:
            A flag for each: stored now, or before by an earlier run of the epoch; an empty list for a repetition.

        Raises:
            ValueError: an argument is malformed.
            RefusedError: ``out_of_sequence``, ``epoch_conflict``, ``forbidden``, ``quota_exceeded``, ``full``,
                ``too_large``; nothing was stored.
        """
        for text in (job, stream):
            if type(text) is not bytes or not 0 < len(text) <= _NAME_BYTES_MAX:
                raise ValueError(f"a job and a stream must have 1 to {_NAME_BYTES_MAX} bytes")
        if type(note) is not bytes or len(note) > NOTE_BYTES_MAX or type(done) is not bool:
            raise ValueError(
                f"a note must be bytes, at most {NOTE_BYTES_MAX}, and whether a stream is done true or false"
            )
        state, marks, place = self._state, self._state.marks, (checked_owner(owner), job, stream)
        checked = [self._checked(item) for item in items]
        epochs = self._epochs(owner, job, epoch, run, len(checked), note, done)
        is_new = marks.is_new(*place, checked_position(first), len(checked))
        queue = state.queue(name)
        if not is_new:
            return []
        claimed = [False] * len(checked) if epochs is None else epochs.claim(note)
        try:
            marks.check_note(owner, note, sum(claimed))
            self._store(queue, [one for one, is_claimed in zip(checked, claimed, strict=True) if not is_claimed])
        except RefusedError:
            if epochs is not None:
                epochs.give_up(note, claimed)
            raise
        marks.advance(*place, len(checked), note, state.now_us, done=done, claimed=sum(claimed))
        state.expiry.at(state.now_us + marks.REMEMBER_US)
        return [PushFlag.REPLAYED if is_claimed else PushFlag.STORED for is_claimed in claimed]

    def _store(self, queue: Queue, items: list[tuple[Item, Push]]) -> None:
        if queue.special:
            room = Room(self._state.admission)
            for item, _ in items:
                room.require(queue, len(item.content))
        # Messages that differ only in their bodies are stored together: that takes a third of the time.
        for (content_type, headers, _), run in groupby(items, _all_but_body):
            pushes = list(run)
            meta = (content_type, preserved_headers(headers, queue.settings.preserved))
            self._state.store(queue, meta, [item.content for item, _ in pushes], pushes[0][1])

    def _epochs(
        self, owner: bytes, job: bytes, epoch: int, run: bytes, count: int, note: bytes, done: bool
    ) -> Epochs | None:
        """Return the epochs of the job that a push names; None if it names none.

        Raises:
            ValueError: the epoch, the run or the note is malformed.
            RefusedError: ``epoch_conflict``.
        """
        epochs = self._state.marks.epochs(owner, job)
        if epoch < 0:
            if epochs is not None:
                raise RefusedError("epoch_conflict", f"job {job!r} writes in epochs, and the push names none")
            return None
        checked_run(epoch, run)
        if done or len(note) != count * DIGEST_BYTES:
            raise ValueError(
                f"the note of an epoch has {DIGEST_BYTES} bytes for each message, and its streams are not done"
            )
        if epochs is None:
            raise RefusedError("epoch_conflict", f"epoch {epoch} of job {job!r} has not begun, or the job has ended")
        epochs.check_run(epoch, run)
        return epochs

    def begin_epoch(self, job: bytes, epoch: int, run: bytes, seed: bytes, owner: bytes = b"") -> int:
        """Begin a run of an epoch; see `epochs`.

        Args:
            job: the job.
            epoch: its number, 0 or more.
            run: names the run.
            seed: random bytes that clients do not know.
            owner: owner of the job.

        Returns:
            0 if it has begun, 1 if the command must be repeated first, 2 if the epoch is finished.

        Raises:
            RefusedError: ``epoch_conflict``, ``quota_exceeded``.
        """
        state = self._state
        checked_run(epoch, run)
        if type(job) is not bytes or not 0 < len(job) <= _NAME_BYTES_MAX:
            raise ValueError(f"a job must have 1 to {_NAME_BYTES_MAX} bytes")
        if type(seed) is not bytes or len(seed) != SEED_BYTES:
            raise ValueError(f"a seed must have {SEED_BYTES} bytes")
        if not state.marks.begin(checked_owner(owner), job, epoch, run, seed, state.now_us):
            return 2
        state.expiry.at(state.now_us + state.marks.REMEMBER_US)
        epochs = state.marks.epochs(owner, job)
        return int(epochs is not None and epochs.move())

    def finish_epoch(self, job: bytes, epoch: int, run: bytes, rows: int, digest: bytes, owner: bytes = b"") -> bool:
        """Finish an epoch whose run has sent all its rows.

        Args:
            job, epoch, run, owner: see `begin_epoch`.
            rows: number of its rows.
            digest: the sum of their digests modulo 2**128.

        Raises:
            RefusedError: ``epoch_conflict`` if other rows are stored.
        """
        state = self._state
        checked_run(epoch, run)
        if type(rows) is not int or rows < 0 or type(digest) is not bytes or len(digest) != DIGEST_BYTES:
            raise ValueError(f"a number of rows must be 0 or more, and their digest must have {DIGEST_BYTES} bytes")
        state.marks.finish(checked_owner(owner), job, epoch, run, Finished(rows, digest), state.now_us)
        return True

    def _checked(self, item: list[Any]) -> tuple[Item, Push]:
        content, content_type, headers, *traits = item
        push = checked_push(*traits) if traits else PLAIN_PUSH
        return checked_item([content, content_type, headers, None]), push

    def end_jobs(self, jobs: list[bytes], owner: bytes = b"") -> int:
        """Forget the owner's jobs; return how many marks they had."""
        if type(jobs) not in _SEQUENCES or not set(map(type, jobs)) <= _ONLY_BYTES:
            raise ValueError("jobs must be bytes")
        return self._state.marks.end(checked_owner(owner), jobs)


def _all_but_body(row: tuple[Item, Push]) -> tuple[bytes | None, Headers, Push | None]:
    item, push = row
    return item.content_type, item.headers, None if push is PLAIN_PUSH else push
