"""A blocking connection to a node, for one request at a time."""

from __future__ import annotations

import socket
import ssl
import time
from struct import Struct
from typing import Any, Self

import msgpack

from lmqcluster.net import blocking
from lmqcluster.wire.legacy_msgpack import make_unpacker

from ..transport.addresses import NodeAddress
from ..transport.connection import REPLY_BYTES_MAX
from ..transport.in_memory import IN_MEMORY, connect
from ..transport.replies import parse_error
from ..transport.requests import request_body

__all__ = ["BROKEN", "BlockingConnection"]

_READ_BYTES = 65_536
_PING = 0
_MSGID_MAX = 0xFFFF_FFFF

_head = Struct(">BBBI").pack  # array of 4, type 0, uint32 msgid

BROKEN = (OSError, ValueError, TypeError, OverflowError, msgpack.UnpackException)
"""Exceptions that a broken connection raises."""


class BlockingConnection:
    """A blocking connection to a node, for one request at a time. Not thread-safe.

    Attributes:
        address: the node.
    """

    def __init__(self, address: NodeAddress, connected: socket.socket) -> None:
        self.address = address
        self._socket = connected
        self._unpacker = make_unpacker(REPLY_BYTES_MAX)
        self._msgid = _PING

    @classmethod
    def open(cls, address: NodeAddress, *, silence_s: float, tls: ssl.SSLContext | None) -> Self:
        """Connect to a node.

        Args:
            silence_s: timeout for connecting, in seconds. After this much silence the connection pings the node; after as much
                again it fails; see `settimeout`.

        Raises:
            OSError: the node cannot be reached.
        """
        if address.host == IN_MEMORY:
            connected = connect(address)
        else:
            connected = blocking.connect(*address, timeout_s=silence_s, lookup_s=silence_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                connected = tls.wrap_socket(connected, server_hostname=address.host)
        connected.settimeout(silence_s)
        return cls(address, connected)

    def ask(self, method: bytes, arguments: list[object], deadline: float) -> Any:
        """Return the result of a request that concerns the connection itself.

        Raises:
            LmqError: the node answers with an error.
        """
        error, result = self.request(request_body(method, arguments), deadline)
        if error is not None:
            raise parse_error(error)
        return result

    def request(self, body: bytes, deadline: float) -> tuple[Any, Any]:
        """Send a request, wait for its answer and return error and result as the node sent them.

        Args:
            body: the request after its msgid.
            deadline: time of the monotonic clock in seconds, checked when the node is silent.

        Raises:
            Exception: one of `BROKEN`.
        """
        self._msgid = msgid = self._msgid % _MSGID_MAX + 1
        self._socket.sendall(_head(0x94, 0, 0xCE, msgid) + body)
        return self._answer(msgid, deadline)

    def settimeout(self, silence_s: float) -> None:
        """Set the silence in seconds after which the connection pings the node."""
        self._socket.settimeout(silence_s)

    def cancel(self, deadline: float) -> tuple[Any, Any]:
        """Cancel the pull in flight at the node and wait for its answer, see `request`."""
        self._socket.sendall(b"\x93\x02" + request_body(b"cancel", [self._msgid]))
        return self._answer(self._msgid, deadline)

    def forget(self) -> None:
        """Cancel the pull for which another thread waits, if necessary by `wake`."""
        if isinstance(self._socket, ssl.SSLSocket):
            self.wake()  # Two threads cannot use a TLS socket at once.
            return
        try:
            self._socket.sendall(b"\x93\x02" + request_body(b"cancel", [self._msgid]))
        except OSError:
            self.wake()

    def _answer(self, msgid: int, deadline: float) -> tuple[Any, Any]:
        unpacker = self._unpacker
        while True:
            for kind, answered, error, result in unpacker:
                if kind == 1 and answered == msgid:
                    return error, result
                if kind != 1 or answered != _PING:
                    raise ValueError(f"the node answered msgid {answered!r}, which nothing waits for")
            unpacker.feed(self._receive(deadline))

    def _receive(self, deadline: float) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise
            self._socket.sendall(_head(0x94, 0, 0xCE, _PING) + request_body(b"ping", []))
            data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the node")
        return data

    def wake(self) -> None:
        """Shut the connection down, which ends the wait of another thread for an answer."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The connection is already closed.

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()
