"""A small MessagePack-RPC client that hides nothing: every byte of an answer is visible, and half a request
can be sent.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self

import msgpack

__all__ = ["OLD_TYPES_ONLY", "Reply", "Rpc", "RpcError", "notification", "old", "open_rpc", "request", "types_of"]

TIMEOUT_S = 60.0
"""Deadline of a read; an answer normally arrives much earlier."""
_RECEIVE_BYTES = 1 << 16


class RpcError(Exception):
    """An answer with an error element, `text`."""

    def __init__(self, text: Any) -> None:
        super().__init__(text)
        self.text = text


class Reply(NamedTuple):
    """One response.

    Attributes:
        raw: its bytes as received.
        msgid, error, result: its elements.
    """

    raw: bytes
    msgid: Any
    error: Any
    result: Any


def old(value: object) -> bytes:
    """Encode a value in MessagePack's old specification."""
    data: bytes = msgpack.packb(value, use_bin_type=False)
    return data


def request(msgid: object, method: object, *arguments: object) -> bytes:
    """Return the bytes of a request."""
    return old([0, msgid, method, list(arguments)])


def notification(method: object, *arguments: object) -> bytes:
    """Return the bytes of a notification."""
    return old([2, method, list(arguments)])


class Rpc:
    """One TCP connection to a node."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._msgids = itertools.count(1)
        self._unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=0)
        # Received bytes that were not returned yet, and their offset in the stream.
        self._received = bytearray()
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection in order (FIN)."""
        self.socket.close()

    def abort(self) -> None:
        """Reset the connection (RST), as the machine of a killed client does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def ask(self, method: str, *arguments: object) -> int:
        """Send a request without waiting for the answer; return its msgid."""
        msgid = next(self._msgids)
        self.send(request(msgid, method, *arguments))
        return msgid

    def call(self, method: str, *arguments: object) -> Any:
        """Send a request and return the result; no other request may be in flight.

        Raises:
            RpcError: the answer is an error.
        """
        msgid = self.ask(method, *arguments)
        reply = self.read()
        assert reply.msgid == msgid, reply
        if reply.error is not None:
            assert reply.result is None, reply
            raise RpcError(reply.error)
        return reply.result

    def error(self, method: str, *arguments: object) -> Any:
        """Send a request that must fail; return the error element."""
        try:
            result = self.call(method, *arguments)
        except RpcError as exc:
            return exc.text
        raise AssertionError(f"{method}{arguments} answered {result!r}, not an error")

    def exchange(self, data: bytes) -> bytes:
        """Send bytes and return the bytes of the one response that follows."""
        self.send(data)
        return self.read().raw

    def many(self, requests: Sequence[tuple[Any, ...]]) -> list[Reply]:
        """Send requests, each (method, argument, ...), in one segment; return their replies in the order of
        the requests.
        """
        msgids = [next(self._msgids) for _ in requests]
        self.send(b"".join(request(msgid, *parts) for msgid, parts in zip(msgids, requests, strict=True)))
        replies = {reply.msgid: reply for reply in (self.read() for _ in requests)}
        return [replies[msgid] for msgid in msgids]

    def read(self) -> Reply:
        """Read one response.

        Raises:
            EOFError: the server closed the connection first.
            TimeoutError: nothing arrived.
        """
        while True:
            try:
                fields = self._unpacker.unpack()
                break
            except msgpack.OutOfData:
                self._more()
        end = self._unpacker.tell()
        raw = bytes(self._received[: end - self._offset])
        del self._received[: end - self._offset]
        self._offset = end
        assert type(fields) is list, fields
        assert len(fields) == 4, fields
        assert fields[0] == 1, fields
        return Reply(raw, *fields[1:])

    def is_closed(self) -> bool:
        """Wait for the server to close the connection; return False if it sends something instead.

        Raises:
            TimeoutError: it does neither.
        """
        if self._received:
            return False
        try:
            self._more()
        except (EOFError, ConnectionError):
            return True
        return False

    def settle(self) -> None:
        """Return when the node has received everything sent on this connection before."""
        assert self.call("ping") == b"pong"

    def _more(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise EOFError(f"the server closed the connection after {bytes(self._received[:200])!r}")
        self._received += data
        self._unpacker.feed(data)


@contextmanager
def open_rpc(address: str, count: int) -> Iterator[list[Rpc]]:
    """Open several connections at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(Rpc(address)) for _ in range(count)]


OLD_TYPES_ONLY = frozenset(
    {"fixint", "nil", "bool", "float64", "uint", "int", "fixraw", "raw16", "raw32", "array", "map"}
)
"""The types that a response may contain: no str8, bin, ext or float32."""


def contents(messages: list[dict[bytes, Any]]) -> list[Any]:
    """Return the contents of the messages of a pull."""
    return [message[b"content"] for message in messages]


def pull_all(rpc: Rpc, queue: str) -> list[Any]:
    """Pull all messages that are due and return their contents."""
    return contents(rpc.call("pull_many", queue, 1000))


def is_error(error: bytes, code: str) -> bool:
    """Return whether an error, which reads ``code: text``, has the code."""
    return error.startswith(f"{code}: ".encode())


def types_of(data: bytes) -> set[str]:
    """Return the types of all MessagePack tokens in `data`, which must be complete."""
    kinds: set[str] = set()
    position = 0
    while position < len(data):
        kind, size = _token(data, position)
        kinds.add(kind)
        position += size
    assert position == len(data)
    return kinds


def _token(data: bytes, at: int) -> tuple[str, int]:
    """Return the type and total size of the token at a position; elements of arrays and maps are separate tokens."""
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return "fixint", 1
    if first < 0x90:
        return "map", 1
    if first < 0xA0:
        return "array", 1
    if first < 0xC0:
        return "fixraw", 1 + (first & 0x1F)
    fixed = {0xC0: ("nil", 1), 0xC2: ("bool", 1), 0xC3: ("bool", 1), 0xCA: ("float32", 5), 0xCB: ("float64", 9)}
    fixed |= {0xCC + i: ("uint", 1 + (1 << i)) for i in range(4)} | {0xD0 + i: ("int", 1 + (1 << i)) for i in range(4)}
    fixed |= {0xDC: ("array", 3), 0xDD: ("array", 5), 0xDE: ("map", 3), 0xDF: ("map", 5)}
    if first in fixed:
        return fixed[first]
    if first in (0xDA, 0xDB):
        width = 2 if first == 0xDA else 4
        return f"raw{8 * width}", 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    return f"0x{first:02x}", 1
