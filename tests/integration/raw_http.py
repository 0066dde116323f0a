"""A small HTTP client that hides nothing: every byte of an answer is visible, and half a request can be sent."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = ["GUARDS", "Answer", "Connection", "call", "open_many", "settle"]

TIMEOUT_S = 60.0
_OURS = (b"date: ", b"server: ", b"x-lmq-message-sequence: ")
GUARDS = [b"x-content-type-options: nosniff", b"content-security-policy: sandbox; default-src 'none'"]
"""Headers of every delivered message besides LMQ's."""


@dataclass(frozen=True)
class Answer:
    """One HTTP answer.

    Attributes:
        status: the code.
        head: status line and header lines, without line ends, as received.
        body: the body.
    """

    status: int
    head: tuple[bytes, ...]
    body: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def lines(self) -> list[bytes]:
        """Return the header lines that LMQ specifies: without date, server and sequence."""
        return [line for line in self.head[1:] if not line.startswith(_OURS)]

    @property
    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)

    @property
    def boundary(self) -> bytes:
        """Return the boundary of a multipart body."""
        return self["content-type"].partition(b"multipart/mixed; boundary=")[2]

    def __getitem__(self, name: str) -> bytes:
        """Return a header by its exact, lower-case name."""
        return self.headers[name]


class Connection:
    """One TCP connection to a node.

    Attributes:
        address: of the node; `ask` names it as the host.
    """

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a request without waiting for the answer."""
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self.address}",
            *(f"{k}: {v}" for k, v in (headers or {}).items()),
        ]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    def call(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request and read its answer."""
        self.ask(method, target, body, headers)
        return self.read(has_body=method != "HEAD")

    def read(self, *, has_body: bool = True) -> Answer:
        """Read one answer.

        Raises:
            EOFError: the server closed the connection first.
        """
        head = self._until(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        pairs = [line.partition(b": ") for line in lines[1:]]
        headers = {name.decode("latin-1"): value for name, _separator, value in pairs}
        if has_body and headers.get("transfer-encoding") == b"chunked":
            body = self._chunks()
        else:
            body = self._bytes(int(headers.get("content-length", b"0")) if has_body else 0)
        return Answer(int(lines[0].split(b" ")[1]), tuple(lines), body, headers)

    def read_line(self) -> bytes:
        """Read up to the next line end."""
        return self._until(b"\r\n")

    def rest(self) -> bytes:
        """Return everything until the server closes the connection."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self._more()
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def is_silent(self, seconds: float) -> bool:
        """Return whether nothing arrives within `seconds`."""
        if self._buffer:
            return False
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self._more()
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(self.read_line(), 16):
            body += self._bytes(size)
            self.read_line()
        self.read_line()
        return bytes(body)

    def _bytes(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._more()
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._more()
        length = self._buffer.index(end)
        data = bytes(self._buffer[:length])
        del self._buffer[: length + len(end)]
        return data

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError(f"the server closed the connection after {bytes(self._buffer[:200])!r}")
        self._buffer += data


def call(
    address: str, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send one request on a new connection."""
    with Connection(address) as connection:
        return connection.call(method, target, body, headers)


@contextlib.contextmanager
def open_many(addresses: Iterable[str]) -> Iterator[list[Connection]]:
    """Open several connections at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Connection(address)) for address in addresses]


def settle(address: str) -> None:
    """Return when the node has received everything that was sent to it before.

    A request that arrived before is at most one turn of the event loop behind; three round trips are more than that.
    """
    with Connection(address) as connection:
        for _ in range(3):
            assert connection.call("GET", "/livez").status == 200
