"""Requests that are answered with the result of one command, which is sent immediately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....node.commit.proposer import PendingCommand, producer_of
from ....node.queues.sending.requests import Request
from ....wire.errors import LmqError, forget_frames
from ..connection.connection import Connection
from ..values import replies

__all__ = ["propose", "say_ok"]


class _Call:
    """A request with a separate command (`Sink`)."""

    __slots__ = ("connection", "render")

    def __init__(self, connection: Connection, render: Callable[[Any], bytes]) -> None:
        self.connection = connection
        self.render = render

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Answer the request, once."""
        requests, pending.requests = pending.requests, []
        for msgid in requests:
            try:
                answer = self.render(result)
            except LmqError as exc:
                self.connection.fail(msgid, exc.rpc_text())
                forget_frames(exc)
            else:
                self.connection.succeed(msgid, answer)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Refuse the request, once."""
        if producer_of(pending.command) is not None:
            self.connection.push_refused(error)
        requests, pending.requests = pending.requests, []
        for msgid in requests:
            self.connection.fail(msgid, error.rpc_text())


def propose(connection: Connection, msgid: Any, request: Request, render: Callable[[Any], bytes]) -> None:
    """Send a request now, and answer with the bytes that `render` makes of its result; `render` may raise `LmqError`."""
    connection.add(PendingCommand(request.command, [msgid], _Call(connection, render)), request.size_bytes)


def say_ok(_result: Any) -> bytes:
    """Return the answer "ok" for any result."""
    return replies.OK
