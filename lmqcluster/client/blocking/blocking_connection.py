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
"""What a line raises that cannot be used any more."""


class BlockingConnection:
    """See the module. Not thread-safe.

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
        """Connect.

        Args:
            silence_s: how long connecting may take. After so much silence the node is asked for a sign of life, and after as much
                again it is given up; see `settimeout`.

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
        """The result of a request of the connection's own.

        Raises:
            LmqError: the node refuses.
        """
        error, result = self.request(request_body(method, arguments), deadline)
        if error is not None:
            raise parse_error(error)
        return result

    def request(self, body: bytes, deadline: float) -> tuple[Any, Any]:
        """Send a request and wait for its answer: error and result, as the node sent them.

        Args:
            body: what follows the msgid.
            deadline: of the monotonic clock; looked at when the node is silent.

        Raises:
            Exception: one of `BROKEN`.
        """
        self._msgid = msgid = self._msgid % _MSGID_MAX + 1
        self._socket.sendall(_head(0x94, 0, 0xCE, msgid) + body)
        return self._answer(msgid, deadline)

    def settimeout(self, silence_s: float) -> None:
        """Change the silence after which the node is asked for a sign of life."""
        self._socket.settimeout(silence_s)

    def cancel(self, deadline: float) -> tuple[Any, Any]:
        """Have the node forget the pull that is under way, and wait for the answer to it, as `request`."""
        self._socket.sendall(b"\x93\x02" + request_body(b"cancel", [self._msgid]))
        return self._answer(self._msgid, deadline)

    def forget(self) -> None:
        """Have a pull end that another thread waits for; see `wake` too."""
        if isinstance(self._socket, ssl.SSLSocket):
            self.wake()  # Two threads cannot use it at once.
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
        """Close the connection for a thread that waits for an answer."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # It is closed already.

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()
