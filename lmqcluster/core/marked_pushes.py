"""Pushes of writers that number what they write, see `marks`. Every public method is one command of the state machine."""

from __future__ import annotations

from typing import Any

from .intake import PLAIN_PUSH, Push, Room
from .items import Item, checked_item
from .keyed_pushes import store_item
from .marks import NOTE_BYTES_MAX, checked_position
from .quotas import checked_owner
from .state import State
from .trait_commands import checked_push

__all__ = ["MarkedPushes"]

_NAME_BYTES_MAX = 255
_SEQUENCES = (list, tuple)
_ONLY_BYTES = {bytes}


class MarkedPushes:
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
    ) -> int:
        """Store messages that are numbered from `first` on in a stream, or nothing if they have been stored before.

        Args:
            name: the queue.
            items: [content, content type or None, headers] of each; from machine version 3 on also traits, as in
                ``PUSH_TRAITS``.
            job: by its name streams are ended together.
            stream: the stream's name within the job.
            first: position of the first message.
            note: appended to the stream's notes with the messages.
            done: whether the stream ends with them; its notes are let go then.
            owner: to whom the job belongs.

        Returns:
            How many were stored: all or none.

        Raises:
            RefusedError: ``out_of_sequence``, ``quota_exceeded``, ``full``, ``too_large``; nothing was stored.
        """
        state = self._state
        for text in (job, stream):
            if type(text) is not bytes or not 0 < len(text) <= _NAME_BYTES_MAX:
                raise ValueError(f"a job and a stream must have 1 to {_NAME_BYTES_MAX} bytes")
        if type(note) is not bytes or len(note) > NOTE_BYTES_MAX or type(done) is not bool:
            raise ValueError(
                f"a note must be bytes, at most {NOTE_BYTES_MAX}, and whether a stream is done true or false"
            )
        checked = [self._checked(item) for item in items]
        is_new = state.marks.is_new(checked_owner(owner), job, stream, checked_position(first), len(checked), note)
        queue = state.queue(name)
        if not is_new:
            return 0
        room = Room(state.intake)
        for item, _ in checked:
            room.require(queue, len(item.content))
        for item, push in checked:
            store_item(state, queue, item, push)
        state.marks.advance(owner, job, stream, len(checked), note, state.now_us, done=done)
        state.expiry.at(state.now_us + state.marks.REMEMBER_US)
        return len(checked)

    def _checked(self, item: list[Any]) -> tuple[Item, Push]:
        if self._state.version < 3:
            return checked_item([*item, None]), PLAIN_PUSH
        content, content_type, headers, *traits = item
        push = checked_push(*traits) if traits else PLAIN_PUSH
        return checked_item([content, content_type, headers, None]), push

    def end_jobs(self, jobs: list[bytes], owner: bytes = b"") -> int:
        """Forget the owner's jobs; returns how many streams they had."""
        if type(jobs) not in _SEQUENCES or not set(map(type, jobs)) <= _ONLY_BYTES:
            raise ValueError("jobs must be bytes")
        return self._state.marks.end(checked_owner(owner), jobs)
