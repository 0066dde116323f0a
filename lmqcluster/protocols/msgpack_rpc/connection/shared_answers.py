"""Answers to the requests that share a command: pushes and settlements of any connections."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Protocol

import structlog

from ....core import PushFlag
from ....core.log.commands import Push
from ....node.commit.proposer import PendingCommand
from ....node.queues.sending.push_items import refusal_of
from ....wire.errors import LmqError
from ..values import replies

__all__ = ["SharedAnswers"]

log = structlog.get_logger("lmq.rpc")

_CONNECTION: Final = itemgetter(0)
_FAILED: Final = "reply failed"
_OF_SETTLEMENT: Final[dict[bool, bytes | str]] = {True: replies.OK, False: "throw:not_found"}


class Answered(Protocol):
    """A connection with requests that share commands."""

    def answer_ok(self, msgids: list[Any]) -> None:
        """Answer requests that have succeeded; at least one."""

    def succeed(self, msgid: Any, result: bytes) -> None:
        """Answer a request with an encoded result."""

    def fail(self, msgid: Any, error_text: str) -> None:
        """Answer a request with an error."""

    def push_refused(self, error: LmqError) -> None:
        """Handle the refusal of a push."""


class SharedAnswers:
    """Sink of commands whose requests are pairs of a connection and a msgid (`Sink`).

    An error in the reply to one client does not stop the replies to the others.
    """

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Answer the requests, once."""
        requests, pending.requests = pending.requests, []
        if not requests:
            return
        if result is not None and result.count(0 if isinstance(pending.command, Push) else True) == len(requests):
            for connection, adjacent in groupby(requests, _CONNECTION):
                try:
                    connection.answer_ok([msgid for _connection, msgid in adjacent])
                except Exception:
                    log.exception(_FAILED)
            return
        for (connection, msgid), answer in zip(requests, _answers(pending, result, len(requests)), strict=True):
            try:
                connection.succeed(msgid, answer) if isinstance(answer, bytes) else connection.fail(msgid, answer)
            except Exception:
                log.exception(_FAILED)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Refuse the requests, once."""
        requests, pending.requests = pending.requests, []
        is_push, text = isinstance(pending.command, Push), error.rpc_text()
        for connection, msgid in requests:
            try:
                if is_push:
                    connection.push_refused(error)
                connection.fail(msgid, text)
            except Exception:
                log.exception(_FAILED)


def _answers(pending: PendingCommand, result: Any, count: int) -> Iterator[bytes | str]:
    """Yield the result or the text of the error of each request."""
    command = pending.command
    if isinstance(command, Push):
        # A push that a queue refuses does not hold back the producer's later ones: the cluster remembers its number.
        for flag in result:
            is_stored = flag < PushFlag.FULL
            yield replies.FLAG_TEXTS[flag] if is_stored else refusal_of(flag).rpc_text()
    elif result is None:
        yield from ["throw:queue_not_found"] * count
    else:
        yield from (_OF_SETTLEMENT[settled] for settled in result)
