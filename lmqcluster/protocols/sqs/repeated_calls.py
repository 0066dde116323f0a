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
    from .signature import Claim, Signatures

__all__ = ["RepeatedCall"]

log = structlog.get_logger("lmq.sqs")

Handle = Callable[[bytes, bytes | None], Coroutine[None, None, bool]]
"""Answers a repetition with this body, of this invocation; returns whether the connection stays open."""


class RepeatedCall:
    """A request that later ones of its connection may repeat with other bodies.

    Args:
        pattern: recognizes them.
        signed: its signature, and what checks it; None for a client without one.
        is_allowed: returns whether the client has the rights that it had.
        handle: answers them.
    """

    __slots__ = ("_handle", "_is_allowed", "_pattern", "_signed")

    def __init__(
        self,
        pattern: HeadPattern,
        signed: tuple[Claim, Signatures] | None,
        is_allowed: Callable[[], bool],
        handle: Handle,
    ) -> None:
        self._pattern = pattern
        self._signed = signed
        self._is_allowed = is_allowed
        self._handle = handle

    def start(self, data: bytes) -> asyncio.Task[bool] | None:
        """Begin to answer a repetition; return None if `data` must be handled in full."""
        found = self._pattern.match(data)
        if found is None or not self._is_allowed():
            return None
        values, body = found
        if self._signed is not None:
            claim, signatures = self._signed
            try:
                signatures.verify(signatures.renewed(claim, *self._pattern.signature(values), time.time()), body)
            except LmqError:
                return None
        return asyncio.create_task(self._handle(body, self._pattern.invocation(values)))

    def end(self, outcome: asyncio.Future[bool]) -> tuple[bytes, bool]:
        """Return the bytes that remain to be sent, which are none, and whether the connection stays open."""
        error = None if outcome.cancelled() else outcome.exception()
        if error is None:
            return b"", not outcome.cancelled() and outcome.result()
        if not isinstance(error, ConnectionError):
            log.error("request failed", exc_info=error)
        forget_frames(error)
        return b"", False
