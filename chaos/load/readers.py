"""Consumers with open reads at one node: a session over MessagePack-RPC, and connections of the memcache protocol."""

from __future__ import annotations

import re
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Protocol

from lmqcluster import Client, LmqError

from ..errors import DrillError

__all__ = ["MemcacheReader", "Reader", "SessionReader"]

_SESSION_S = 5.0
_ANSWER_S = 90.0
"""How long a node that was paused may take to answer after it continues."""
_VALUE = re.compile(rb"VALUE \S+ \d+ (\d+)\r\n")


class Reader(Protocol):
    """Reads messages of a queue and confirms them later, always through the same node."""

    def take(self, count: int) -> list[bytes]:
        """Open `count` reads; return their contents in order."""

    def send_confirmations(self) -> None:
        """Send the confirmation of every open read, without waiting."""

    def answers(self) -> list[str]:
        """Return the confirmations that seem to have succeeded."""

    def close(self) -> None:
        """Disconnect."""


class SessionReader:
    """One session of the native client, which knows only this node."""

    def __init__(self, address: str, queue: str) -> None:
        """Take the MessagePack-RPC address of the node."""
        self._queue = queue
        self._stack = ExitStack()
        self._client = self._stack.enter_context(Client(address, timeout_s=_ANSWER_S, discover=False))
        self._session = self._stack.enter_context(self._client.session(ttl=_SESSION_S))
        self._thread = ThreadPoolExecutor(1, "confirmations")
        self._stack.callback(self._thread.shutdown)
        self._ids: list[str] = []
        self._confirming: Future[list[bool]] | None = None

    def take(self, count: int) -> list[bytes]:
        """Read all messages in one pull."""
        messages = self._session.pull_many(self._queue, count, timeout=_ANSWER_S)
        self._ids = [message.id for message in messages]
        return [bytes(message.content) for message in messages]

    def send_confirmations(self) -> None:
        """Confirm from a thread, which waits until the node answers."""
        self._confirming = self._thread.submit(lambda: self._client.done_many(self._queue, self._ids))

    def answers(self) -> list[str]:
        """Return the ids whose ack was reported as successful."""
        if self._confirming is None:
            return []
        try:
            results = self._confirming.result()
        except LmqError:
            return []
        return [number for number, done in zip(self._ids, results, strict=True) if done]

    def close(self) -> None:
        """End the session too, if it is alive."""
        self._stack.close()


class MemcacheReader:
    """One connection for each open read, as Kestrel's clients use them."""

    def __init__(self, port: int, queue: str) -> None:
        """Take the memcache port of the node."""
        self._port = port
        self._queue = queue.encode()
        self._connections: list[socket.socket] = []

    def take(self, count: int) -> list[bytes]:
        """Read one message after another, so that their order is known."""
        contents = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_S)
            self._connections.append(connection)
            connection.sendall(b"get %b/t=%d/open\r\n" % (self._queue, _ANSWER_S * 1000))
            contents.append(_value(_answer(connection)))
        return contents

    def send_confirmations(self) -> None:
        """Write to the sockets' buffers, where a paused node finds the confirmations."""
        for connection in self._connections:
            try:
                connection.sendall(b"get %b/close\r\n" % self._queue)
            except OSError:
                # The node is dead, so there is no connection to confirm through.
                continue

    def answers(self) -> list[str]:
        """Wait for the answers. Kestrel answers ``END`` to every close, so they contain no information."""
        for connection in self._connections:
            try:
                _answer(connection)
            except (OSError, DrillError):
                # Connections of expired reads are closed.
                continue
        return []

    def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            connection.close()


def _answer(connection: socket.socket) -> bytes:
    """Return the node's answer up to ``END``.

    Raises:
        DrillError: the node closed the connection.
        OSError: the node did not answer.
    """
    data = b""
    while not data.endswith(b"END\r\n"):
        received = connection.recv(65_536)
        if not received:
            raise DrillError(f"the connection was closed after {data[:200]!r}")
        data += received
    return data


def _value(answer: bytes) -> bytes:
    head = _VALUE.match(answer)
    if head is None:
        raise DrillError(f"no item came, but {answer[:200]!r}")
    return answer[head.end() : head.end() + int(head[1])]
