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
    ) -> None:
        """Start to accept.

        Args:
            port: name of the port, for people.
            sockets: they listen and do not block.
            accepts_per_turn: limited so that other tasks can run.
            accepted: called with each accepted socket and its peer's address. It may call `pause`.
        """
        self._port = port
        self._sockets = list(sockets)
        self._accepts = accepts_per_turn
        self._accepted = accepted
        self._is_paused = True
        self._resumption: asyncio.TimerHandle | None = None
        self.resume()

    def close(self) -> None:
        """Stop accepting and close the listening sockets."""
        self.pause()
        for one in self._sockets:
            one.close()
        self._sockets = []

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
        if not self._is_paused:
            self._is_paused = True
            for one in self._sockets:
                asyncio.get_running_loop().remove_reader(one)

    def resume(self) -> None:
        """Accept again."""
        if self._is_paused:
            self._is_paused = False
            for one in self._sockets:
                asyncio.get_running_loop().add_reader(one, self._accept, one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._accepts):
            if self._is_paused:
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                self._failed(exc)
                return
            accepted.setblocking(False)
            self._accepted(accepted, address)

    def _failed(self, error: OSError) -> None:
        log.error("accepting connections failed", port=self._port, reason=str(error), retry_after_s=PAUSE_S)
        self.pause()
        self._resumption = asyncio.get_running_loop().call_later(PAUSE_S, self.resume)
