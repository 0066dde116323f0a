"""Accepts connections from listening sockets, a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

import structlog

__all__ = ["Acceptor"]

log = structlog.get_logger("lmq.ports")

PAUSE_S = 0.2
"""How long accepting pauses after the system failed to accept a connection."""
BUSY_PAUSE_S = 0.01
"""How long accepting pauses while no further connection may be accepted."""


class Acceptor:
    """Accepts connections until it is closed.

    asyncio's servers report a connection only after its TLS handshake, and stop accepting for a second when descriptors
    run out.
    """

    def __init__(
        self,
        port: str,
        sockets: Iterable[socket.socket],
        accepts_per_turn: int,
        accepted: Callable[[socket.socket, object], None],
        may_accept: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start to accept.

        Args:
            port: name of the port, for people.
            sockets: they listen and do not block.
            accepts_per_turn: limited so that other tasks can run.
            accepted: called with each accepted socket and its peer's address.
            may_accept: returns whether one more connection may be accepted now.
        """
        self._port = port
        self._sockets = list(sockets)
        self._accepts = accepts_per_turn
        self._accepted = accepted
        self._may_accept = may_accept
        self._resumption: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        if self._resumption is not None:
            self._resumption.cancel()
        for one in self._sockets:
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._accepts):
            if not self._may_accept():
                self._pause(BUSY_PAUSE_S)
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                log.error("accepting connections failed", port=self._port, reason=str(exc), retry_after_s=PAUSE_S)  # noqa: TRY400
                self._pause(PAUSE_S)
                return
            accepted.setblocking(False)
            self._accepted(accepted, address)

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
        self._resumption = loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        for one in self._sockets:
            asyncio.get_running_loop().add_reader(one, self._accept, one)
