"""Pushes of writers that number their messages, see `stream_positions`. Every public method is one command."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..dedup.epochs import Epochs, Finished, checked_run
from ..dedup.row_digests import DIGEST_BYTES
from ..dedup.stream_positions import NOTE_BYTES_MAX, checked_position
from ..log import commands as log
from ..log.items import checked_item
from ..log.results import PushFlag, RefusedError
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..routing.admission import PLAIN_PUSH, Push, Room
from ..state.state import State
from .checks import Row, checked_push

__all__ = ["SEED_BYTES", "StreamPushes"]

SEED_BYTES = 16
_NAME_BYTES_MAX = 255
_SEQUENCES = (list, tuple)
_ONLY_BYTES = {bytes}


class StreamPushes:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def push(self, command: log.PushStream) -> list[int]:
        """Store messages numbered from `first` on in a stream, or nothing if they have been stored before.

        Returns:
            A flag for each: stored now, or before by an earlier run of the epoch; an empty list for a repetition.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``out_of_sequence``, ``epoch_conflict``, ``forbidden``, ``quota_exceeded``, ``full``,
                ``too_large``; nothing was stored.
        """
        owner, note, done = command.owner, command.note, command.done
        for text in (command.job, command.stream):
            if type(text) is not bytes or not 0 < len(text) <= _NAME_BYTES_MAX:
                raise ValueError(f"a job and a stream must have 1 to {_NAME_BYTES_MAX} bytes")
        if type(note) is not bytes or len(note) > NOTE_BYTES_MAX or type(done) is not bool:
            raise ValueError(
                f"a note must be bytes, at most {NOTE_BYTES_MAX}, and whether a stream is done true or false"
            )
        state, marks = self._state, self._state.marks
        place = (checked_owner(owner), command.job, command.stream)
        checked = [self._checked(row) for row in command.rows]
        epochs = self._epochs(command, len(checked))
        is_new = marks.is_new(*place, checked_position(command.first), len(checked))
        queue = state.queue(command.queue)
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

    def _store(self, queue: Queue, items: list[Row]) -> None:
        if queue.special:
            room = Room(self._state.admission)
            for item, _ in items:
                room.require(queue, len(item.content), len(item.attributes))
        # Messages that differ only in their bodies are stored together: that takes a third of the time.
        for (content_type, attributes, _), run in groupby(items, _all_but_body):
            pushes = list(run)
            self._state.store(queue, (content_type, attributes), [item.content for item, _ in pushes], pushes[0][1])

    def _epochs(self, command: log.PushStream, count: int) -> Epochs | None:
        """Return the epochs of the job that a push names; None if it names none.

        Raises:
            ValueError: the epoch, the run or the note is malformed.
            RefusedError: ``epoch_conflict``.
        """
        job, epoch, run = command.job, command.epoch, command.run
        epochs = self._state.marks.epochs(command.owner, job)
        if epoch < 0:
            if epochs is not None:
                raise RefusedError("epoch_conflict", f"job {job!r} writes in epochs, and the push names none")
            return None
        checked_run(epoch, run)
        if command.done or len(command.note) != count * DIGEST_BYTES:
            raise ValueError(
                f"the note of an epoch has {DIGEST_BYTES} bytes for each message, and its streams are not done"
            )
        if epochs is None:
            raise RefusedError("epoch_conflict", f"epoch {epoch} of job {job!r} has not begun, or the job has ended")
        epochs.check_run(epoch, run)
        return epochs

    def begin_epoch(self, command: log.BeginEpoch) -> int:
        """Begin a run of an epoch; see `epochs`.

        Returns:
            0 if it has begun, 1 if the command must be repeated first, 2 if the epoch is finished.

        Raises:
            RefusedError: ``epoch_conflict``, ``quota_exceeded``.
        """
        state, job, epoch, run, seed = self._state, command.job, command.epoch, command.run, command.seed
        checked_run(epoch, run)
        if type(job) is not bytes or not 0 < len(job) <= _NAME_BYTES_MAX:
            raise ValueError(f"a job must have 1 to {_NAME_BYTES_MAX} bytes")
        if type(seed) is not bytes or len(seed) != SEED_BYTES:
            raise ValueError(f"a seed must have {SEED_BYTES} bytes")
        if not state.marks.begin(checked_owner(command.owner), job, epoch, run, seed, state.now_us):
            return 2
        state.expiry.at(state.now_us + state.marks.REMEMBER_US)
        epochs = state.marks.epochs(command.owner, job)
        return int(epochs is not None and epochs.move())

    def finish_epoch(self, command: log.FinishEpoch) -> bool:
        """Finish an epoch whose run has sent all its rows; the digest is the sum of theirs modulo 2**128.

        Raises:
            RefusedError: ``epoch_conflict`` if other rows are stored.
        """
        state, epoch, run, rows, digest = self._state, command.epoch, command.run, command.rows, command.digest
        checked_run(epoch, run)
        if type(rows) is not int or rows < 0 or type(digest) is not bytes or len(digest) != DIGEST_BYTES:
            raise ValueError(f"a number of rows must be 0 or more, and their digest must have {DIGEST_BYTES} bytes")
        state.marks.finish(checked_owner(command.owner), command.job, epoch, run, Finished(rows, digest), state.now_us)
        return True

    def _checked(self, row: list[Any]) -> Row:
        content, content_type, attributes, *traits = row
        push = checked_push(*traits) if traits else PLAIN_PUSH
        return checked_item(content, content_type, attributes, None), push

    def end_jobs(self, command: log.EndJobs) -> int:
        """Forget the owner's jobs; return how many marks they had."""
        jobs = command.jobs
        if type(jobs) not in _SEQUENCES or not set(map(type, jobs)) <= _ONLY_BYTES:
            raise ValueError("jobs must be bytes")
        return self._state.marks.end(checked_owner(command.owner), jobs)


def _all_but_body(row: Row) -> tuple[bytes | None, bytes, Push | None]:
    item, push = row
    return item.content_type, item.attributes, None if push is PLAIN_PUSH else push
