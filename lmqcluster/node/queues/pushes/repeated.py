"""Pushes that clients of a front end repeat. Those of a group share commands of the log with all others of the queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import structlog

from ....core import PushFlag
from ....core.log.commands import Push
from ....ports import Answer
from ....wire.errors import LmqError, forget_frames
from ...commit.proposer import PendingCommand
from ..sending.command_sender import CommandSender
from ..sending.push_items import refusal_of

__all__ = ["RepeatedAnswers", "RepeatedPushes"]

log = structlog.get_logger("lmq.repeats")

Render = Callable[[int | LmqError], tuple[bytes, bytes]]
"""Returns the bytes of an answer before and after the tag of its request, for the flag of a push or its error."""
Begun = Callable[[int], None]
"""Called with the number of pushes that begin."""
Ended = Callable[[int, int | LmqError, float], None]
"""Called with the number of pushes that have ended, their flag or error, and their duration in seconds."""

_BATCH: Final = itemgetter(0)


class RepeatedPushes:
    """A group of pushes to one queue (`RepeatGroup`).

    Attributes:
        since: number of the command after which the clients' pushes must be, see `Proposer.open_command`.
    """

    def __init__(
        self,
        sender: CommandSender,
        answers: RepeatedAnswers,
        push: tuple[bytes, bytes | None, bytes],
        answer: Answer,
        *,
        is_allowed: Callable[[], bool],
        render: Render,
        begun: Begun | None = None,
        ended: Ended | None = None,
    ) -> None:
        """Create a group.

        Args:
            sender: sends the commands.
            answers: the sink of the commands, which all groups share.
            push: the queue, the content type and the owner of the clients.
            answer: answers clients.
            is_allowed: returns whether the clients may still push.
            render: makes answers.
            begun, ended: count pushes.
        """
        self.since = 0
        self._sender = sender
        self._answers = answers
        self._queue, self._content_type, self._owner = push
        self._answer = answer
        self._is_allowed = is_allowed
        self._render = render
        self._begun = begun
        self._ended = ended

    def start(self, connections: list[int], bodies: list[bytes]) -> bool:
        """Send pushes now. Return False, and send none, if they must be handled in full."""
        sender, queue, content_type = self._sender, self._queue, self._content_type
        try:
            if not self._is_allowed():
                return False
            sender.check_name(queue, self._owner)
            sender.check_push(max(map(len, bodies)))
            self._send(_Batch(self), connections, bodies, Push(queue, content_type, bodies))
        except LmqError as exc:
            # Their protocol explains it.
            forget_frames(exc)
            return False
        if self._begun is not None:
            self._begun(len(bodies))
        return True

    def _send(self, batch: _Batch, connections: list[int], bodies: list[bytes], push: Push) -> None:
        proposer = self._sender.proposer
        requests, size = [(batch, connection) for connection in connections], sum(map(len, bodies)) + 8 * len(bodies)
        command = proposer.open_command(self._answers, Push, push.queue, self.since)
        if command is not None and command.content_type == push.content_type:
            command.contents.extend(bodies)
            proposer.share(size, *requests)
        else:
            proposer.add(PendingCommand(push, requests, self._answers), size + 64)

    def ended(self, connections: list[int], outcome: int | LmqError, seconds: float) -> None:
        """Answer pushes with the same outcome."""
        if self._ended is not None:
            self._ended(len(connections), outcome, seconds)
        self._answer(connections, *self._render(outcome))


class _Batch:
    """Pushes of a group that have arrived together."""

    __slots__ = ("_began_s", "_group")

    def __init__(self, group: RepeatedPushes) -> None:
        self._group = group
        self._began_s = time.monotonic()

    def ended(self, connections: list[int], outcome: int | LmqError) -> None:
        self._group.ended(connections, outcome, time.monotonic() - self._began_s)


class RepeatedAnswers:
    """Sink of commands whose requests are pairs of a batch and a connection (`Sink`).

    An error in the answers to one batch does not stop those to the others.
    """

    def completed(self, pending: PendingCommand, flags: list[int]) -> None:
        """Answer the pushes."""
        requests, pending.requests = pending.requests, []
        start = 0
        for batch, connections in _batches(requests):
            own = flags[start : start + len(connections)]
            start += len(connections)
            for flag in set(own):
                pushed = [number for number, result in zip(connections, own, strict=True) if result == flag]
                _end(batch, pushed, flag if flag < PushFlag.FULL else refusal_of(flag))

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Refuse the pushes."""
        requests, pending.requests = pending.requests, []
        for batch, connections in _batches(requests):
            _end(batch, connections, error)


def _end(batch: _Batch, connections: list[int], outcome: int | LmqError) -> None:
    try:
        batch.ended(connections, outcome)
    except Exception:
        log.exception("reply failed")


def _batches(requests: list[Any]) -> list[tuple[_Batch, list[int]]]:
    """Return the requests of each batch, which are adjacent."""
    return [(batch, [connection for _batch, connection in own]) for batch, own in groupby(requests, _BATCH)]
