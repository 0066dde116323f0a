"""Sends that clients repeat with other bodies, see `wire.repeated_sends`.

A front end verifies and decodes those of its clients.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from ...core import PushFlag
from ...node.queues.sending.push_items import refusal_of
from ...ports import RelayedTransport
from ...wire.errors import LmqError, forget_frames
from ...wire.repeated_sends import RepeatedSend, Sent
from ..http.server.repeated_requests import NO_ANSWER
from ..http.server.replies.reply import Reply
from .batches import batch_output, outcome_of
from .codec import head_of
from .errors import INTERNAL_FAILURE, SqsError, as_sqs
from .json_codec import CONTENT_TYPE, json_refusal
from .request_ids import new_id
from .send_actions import TEXT

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...ports import Answer
    from ..http.server.connection import Connection
    from .call import Tools
    from .rendering import Output

__all__ = ["ConnectionSends", "RepeatedSends", "SendsObserver"]

log = structlog.get_logger("lmq.sqs")

_DONE: Final = "200"
_ROW_BYTES: Final = 176
"""Approximate size of a row of the log without the body."""


class SendsObserver(NamedTuple):
    """The observer of the number and the duration of sends.

    Attributes:
        begun: called with the number of requests that begin.
        ended: called with their code, their duration in seconds and their number when they end.
    """

    begun: Callable[[int], None]
    ended: Callable[[str, float, int], None]


class RepeatedSends:
    """Sends of one client to one queue, over any of its connections (`RepeatGroup`).

    Args:
        tools: the parts that all actions use.
        action: the action, which is the same for all.
        queue: the name of the queue.
        principal: the client.
        is_allowed: returns whether it may still send.
        observer: counts the sends.
        answer: answers those that a front end has decoded.
    """

    def __init__(
        self,
        tools: Tools,
        action: str,
        queue: bytes,
        principal: Principal,
        is_allowed: Callable[[], bool],
        observer: SendsObserver,
        answer: Answer | None = None,
    ) -> None:
        self._tools = tools
        self._action = action
        self._queue = queue
        self._principal = principal
        self._is_allowed = is_allowed
        self._answer = answer
        self.observer = observer

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what is equal for the sends of a group."""
        return "sqs", self._action, self._queue, self._principal

    def of_front_end(self, answer: Answer) -> RepeatedSends:
        """Return the group of such sends that a front end decodes."""
        return RepeatedSends(
            self._tools, self._action, self._queue, self._principal, self._is_allowed, self.observer, answer
        )

    def push(self, sent: Sequence[Sent]) -> asyncio.Future[list[tuple[int, int]]] | None:
        """Store messages; return None, and store none, if their requests must be handled in full.

        Raises:
            LmqError: they cannot be stored, see `AttemptedPushes.push`.
        """
        tools = self._tools
        facts = tools.known(self._queue)
        if facts is None or facts.is_fifo or not self._is_allowed():
            return None
        sizes = [len(one.content) for one in sent]
        if max(sizes) > facts.message_bytes(tools.message_bytes_max):
            return None
        service = tools.service
        service.sender.check_push(max(sizes))
        rows: list[list[object]] = [[one.content, TEXT, b"", one.attempt, []] for one in sent]
        size_bytes = sum(sizes) + _ROW_BYTES * len(sizes)
        return service.attempts.push_rows(self._queue, rows, size_bytes, self._principal.owner)

    def reply(self, sent: Sequence[Sent], outcome: Sequence[tuple[int, int]] | LmqError) -> tuple[str, Reply]:
        """Return the code and the answer of a request, from the flags and sequences of its messages or from their error."""
        first = sent[0]
        if not isinstance(outcome, LmqError) and not first.name and outcome[0][0] >= PushFlag.FULL:
            outcome = refusal_of(outcome[0][0])
        if isinstance(outcome, LmqError):
            error = as_sqs(outcome)
            return error.kind.code, json_refusal(error, new_id())
        results = [self._result(one, flag, sequence) for one, (flag, sequence) in zip(sent, outcome, strict=True)]
        if first.name:
            successful = [one for one in results if "MessageId" in one]
            failed = [one for one in results if "MessageId" not in one]
            output = batch_output(successful, failed)
        else:
            (output,) = results
        return _DONE, Reply(200, head_of(CONTENT_TYPE, new_id()), json.dumps(output).encode())

    def _result(self, sent: Sent, flag: int, sequence: int) -> Output:
        named: Output = {"Id": sent.name} if sent.name else {}
        if flag >= PushFlag.FULL:
            return outcome_of(named, as_sqs(refusal_of(flag)))
        named["MessageId"] = self._tools.receipts.message_id(sequence)
        named["MD5OfMessageBody"] = sent.digest.hex()
        return named

    def start(self, connections: list[int], bodies: list[bytes]) -> bool:
        """Store messages that a front end has decoded. Return False, and store none, if they must be handled in full."""
        requests = [Sent.unpacked(body) for body in bodies]
        try:
            outcome = self.push([one for sent in requests for one in sent])
        except LmqError as exc:
            # The answer to each request explains it.
            forget_frames(exc)
            return False
        if outcome is None:
            return False
        self.observer.begun(len(requests))
        outcome.add_done_callback(partial(self._ended, connections, requests, time.monotonic()))
        return True

    def _ended(
        self,
        connections: list[int],
        requests: list[list[Sent]],
        began_s: float,
        done: asyncio.Future[list[tuple[int, int]]],
    ) -> None:
        assert self._answer is not None  # noqa: S101 - a front end has decoded them
        outcome = _outcome(done)
        codes: Counter[str] = Counter()
        start = 0
        for connection, sent in zip(connections, requests, strict=True):
            end = start + len(sent)
            code, reply = self.reply(sent, outcome if isinstance(outcome, LmqError) else outcome[start:end])
            codes[code] += 1
            self._answer([connection], reply.whole(), b"")
            start = end
        seconds = time.monotonic() - began_s
        for code, count in codes.items():
            self.observer.ended(code, seconds, count)


class ConnectionSends:
    """The repeated sends of one connection, one after the other.

    Those that this process receives are decoded here. Once two follow each other, the front end of the connection decodes
    the next ones, if it has one.
    """

    __slots__ = ("_answered", "_began_s", "_client", "_pattern", "_sends", "_sent")

    def __init__(self, client: Connection, pattern: RepeatedSend, sends: RepeatedSends) -> None:
        self._client = client
        self._pattern = pattern
        self._sends = sends
        self._sent: list[Sent] = []
        self._began_s = 0.0
        self._answered = 0

    def start(self, data: bytes) -> asyncio.Future[list[tuple[int, int]]] | None:
        """Begin a send; return None if `data` must be handled in full."""
        sent = self._pattern.messages(data)
        if sent is None:
            return None
        self._sent, self._began_s = sent, time.monotonic()
        try:
            outcome = self._sends.push(sent)
        except LmqError as exc:
            forget_frames(exc)
            return None
        if outcome is not None:
            self._sends.observer.begun(1)
            self._offer()
        return outcome

    def _offer(self) -> None:
        client, sends = self._client, self._sends
        transport = client.transport
        if isinstance(transport, RelayedTransport) and self._answered == client.answered:
            transport.offer_repeat(sends.identity, self._pattern, sends.of_front_end)
        self._answered = client.answered + 1

    def end(self, done: asyncio.Future[list[tuple[int, int]]]) -> tuple[bytes, bool]:
        """Return the answer, and whether the connection stays open."""
        sent, self._sent = self._sent, []
        seconds = time.monotonic() - self._began_s
        if done.cancelled():
            self._sends.observer.ended(str(NO_ANSWER), seconds, 1)
            return b"", False
        code, reply = self._sends.reply(sent, _outcome(done))
        self._sends.observer.ended(code, seconds, 1)
        if self._client.count_answer():
            reply.force_close()
        return reply.repeated(self._client), reply.keep_alive


def _outcome(done: asyncio.Future[list[tuple[int, int]]]) -> list[tuple[int, int]] | LmqError:
    """Return the outcome of a push, with its error as clients see it."""
    error = done.exception()
    if error is None:
        return done.result()
    if not isinstance(error, LmqError):
        log.error("request failed", exc_info=error)
        error = SqsError(INTERNAL_FAILURE, "An internal error occurred.")
    forget_frames(error)
    return error
