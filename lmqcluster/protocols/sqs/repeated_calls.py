"""Requests that repeat the head of an earlier one of their connection, see `HeadPattern`.

The port does not parse and route their heads. It handles every other request in full, and also these if their signature is
wrong, or once the rights of the client have changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import structlog

from ...wire.errors import LmqError, forget_frames

if TYPE_CHECKING:
    from ...wire.head_patterns import HeadPattern
    from ..http.server.connection import Connection
    from .signature import Claim, Signatures

__all__ = ["RepeatedCall"]

log = structlog.get_logger("lmq.sqs")

Handle = Callable[[bytes, bytes | None], Coroutine[None, None, bool]]
"""Answers a repetition with this body, of this invocation; returns whether the connection stays open."""


class RepeatedCall:
    """A request that later ones of its connection may repeat with other bodies (`Repeat`).

    Args:
        client: the connection.
        pattern: recognizes them.
        signed: its signature, and what checks it; None for a client without one.
        is_allowed: returns whether the client has the rights that it had.
        handle: answers them.
    """

    __slots__ = ("_client", "_handle", "_is_allowed", "_pattern", "_signed", "_task")

    def __init__(
        self,
        client: Connection,
        pattern: HeadPattern,
        signed: tuple[Claim, Signatures] | None,
        is_allowed: Callable[[], bool],
        handle: Handle,
    ) -> None:
        self._client = client
        self._pattern = pattern
        self._signed = signed
        self._is_allowed = is_allowed
        self._handle = handle
        self._task: asyncio.Task[bool] | None = None

    def start(self, data: bytes) -> bool:
        found = self._pattern.match(data)
        if found is None or not self._is_allowed():
            return False
        values, body = found
        if self._signed is not None:
            claim, signatures = self._signed
            try:
                signatures.verify(signatures.renewed(claim, *self._pattern.signature(values), time.time()), body)
            except LmqError:
                return False
        self._task = asyncio.create_task(self._handle(body, self._pattern.invocation(values)))
        self._task.add_done_callback(self._ended)
        return True

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, ConnectionError):
                log.error("request failed", exc_info=error)
            forget_frames(error)
        self._client.end_repetition(stays_open=error is None and not task.cancelled() and task.result())
