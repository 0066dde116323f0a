"""Sends that clients repeat with other bodies, see `wire.repeated_sends`.

A front end verifies and decodes those of its clients. All of one client that arrive together are stored in one operation.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from ...core import PushFlag
from ...node.queues.sending.push_items import refusal_of
from ...wire.errors import LmqError, forget_frames
from ..http.server.replies.reply import whole_answer
from .batches import outcome_of
from .codec import head_of
from .errors import INTERNAL_FAILURE, SqsError, as_sqs
from .json_codec import CONTENT_TYPE, json_refusal
from .request_ids import new_id
from .send_actions import TEXT

if TYPE_CHECKING:
    from ...ports import Answer
    from ...wire.repeated_sends import Sent
    from .call import Tools

__all__ = ["RepeatedSends", "SendsObserver"]

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
        queue: the name of the queue.
        owner: the owner of the attempts.
        is_allowed: returns whether the client may still send.
        observer: counts the sends.
        answer: answers them.
    """

    def __init__(
        self,
        tools: Tools,
        queue: bytes,
        owner: bytes,
        is_allowed: Callable[[], bool],
        observer: SendsObserver,
        answer: Answer,
    ) -> None:
        self._tools = tools
        self._queue = queue
        self._owner = owner
        self._is_allowed = is_allowed
        self._observer = observer
        self._answer = answer

    def start(self, connections: list[Any], bodies: list[list[Sent]]) -> bool:
        """Store messages. Return False, and store none, if their requests must be handled in full."""
        try:
            outcome = self._push([sent for body in bodies for sent in body])
        except LmqError as exc:
            # The answer to each request explains it.
            forget_frames(exc)
            return False
        if outcome is None:
            return False
        self._observer.begun(len(connections))
        outcome.add_done_callback(partial(self._ended, connections, bodies, time.monotonic()))
        return True

    def _push(self, sent: list[Sent]) -> asyncio.Future[list[tuple[int, int]]] | None:
        """Store messages; return None, and store none, if their requests must be handled in full.

        Raises:
            LmqError: they cannot be stored, see `AttemptedPushes.push`.
        """
        tools = self._tools
        facts = tools.known(self._queue)
        if facts is None or facts.is_fifo or not self._is_allowed():
            return None
        rows: list[list[object]] = [[content, TEXT, b"", attempt, []] for _name, _digest, attempt, content in sent]
        sizes = [len(content) for _name, _digest, _attempt, content in sent]
        if max(sizes) > facts.message_bytes(tools.message_bytes_max):
            return None
        service = tools.service
        service.sender.check_push(max(sizes))
        return service.attempts.push_rows(self._queue, rows, sum(sizes) + _ROW_BYTES * len(sizes), self._owner)

    def _ended(
        self,
        connections: list[Any],
        bodies: list[list[Sent]],
        began_s: float,
        done: asyncio.Future[list[tuple[int, int]]],
    ) -> None:
        prefix, outcome = b"", _outcome(done)
        if not isinstance(outcome, LmqError):
            try:
                prefix = self._tools.receipts.message_prefix().encode()
            except LmqError as exc:
                # The node has left its cluster since.
                outcome = exc.again()
        codes: Counter[str] = Counter()
        start = 0
        for connection, sent in zip(connections, bodies, strict=True):
            end = start + len(sent)
            code, answer = _answer(sent, outcome if isinstance(outcome, LmqError) else outcome[start:end], prefix)
            codes[code] += 1
            self._answer([connection], answer, b"")
            start = end
        seconds = time.monotonic() - began_s
        for code, count in codes.items():
            self._observer.ended(code, seconds, count)


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


def _answer(sent: list[Sent], outcome: Sequence[tuple[int, int]] | LmqError, prefix: bytes) -> tuple[str, bytes]:
    """Return the code and the answer of a request, from the flags and sequences of its messages or from their error."""
    is_batch = bool(sent[0][0])
    if not isinstance(outcome, LmqError) and not is_batch and outcome[0][0] >= PushFlag.FULL:
        outcome = refusal_of(outcome[0][0])
    if isinstance(outcome, LmqError):
        error = as_sqs(outcome)
        return error.kind.code, json_refusal(error, new_id()).whole()
    content = _batch_content(sent, outcome, prefix) if is_batch else _content(sent[0], outcome[0][1], prefix)
    return _DONE, whole_answer(200, head_of(CONTENT_TYPE, new_id()), content)


def _content(sent: Sent, sequence: int, prefix: bytes) -> bytes:
    # None of these values needs an escape in JSON.
    return b'{"MessageId": "%b%012x", "MD5OfMessageBody": "%b"}' % (prefix, sequence, sent[1])


def _batch_content(sent: list[Sent], outcome: Sequence[tuple[int, int]], prefix: bytes) -> bytes:
    successful: list[bytes] = []
    failed: list[bytes] = []
    for one, (flag, sequence) in zip(sent, outcome, strict=True):
        if flag >= PushFlag.FULL:
            failed.append(json.dumps(outcome_of({"Id": one[0].decode()}, as_sqs(refusal_of(flag)))).encode())
        else:
            successful.append(b'{"Id": "%b", ' % one[0] + _content(one, sequence, prefix)[1:])
    lists = ((b"Successful", successful), (b"Failed", failed))
    return b"{%b}" % b", ".join([b'"%b": [%b]' % (name, b", ".join(rows)) for name, rows in lists if rows])
