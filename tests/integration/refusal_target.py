"""A node that receives requests which it refuses, and the description of such a request."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .bad_input import connect

__all__ = ["TIMEOUT_S", "Data", "Kind", "Send", "Target", "exchange", "lines", "plain"]

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Target:
    """A node that is flooded.

    Attributes:
        addresses: its addresses by port: ``http``, ``rpc``, ``queued``, ``sqs``, ``memcache``, ``text``, ``thrift`` and
            ``raft``.
        size: approximate size of a request in bytes.
        secret: a token that covers no queue that refusals name; empty for a node without tokens.
    """

    addresses: Mapping[str, str]
    size: int
    secret: str = ""


Data = Callable[[Target], bytes]
Send = Callable[[Target, bytes], bytes]


class Kind(NamedTuple):
    """A request that is refused, or a connection that breaks.

    Attributes:
        port: the port to which it is sent.
        name: what is wrong with it.
        send: sends it on a new connection, and returns the answer up to the second argument, or to its end.
        says: a part of the answer; empty if the connection may end without one.
    """

    port: str
    name: str
    send: Send
    says: bytes = b""

    def __str__(self) -> str:
        return f"{self.port}: {self.name}"

    def check(self, target: Target, *, under_load: bool = False) -> None:
        """Send the request, and check that it was refused for the intended reason, or for `under_load`."""
        answer = self.send(target, self.says)
        assert self.says in answer or (under_load and b"overloaded" in answer), f"{self}: {answer[:900]!r}"


def exchange(address: str, data: bytes, says: bytes) -> bytes:
    """Send all of it, though the node may answer and close first, and return the answer up to `says`, or to its end."""
    answer = b""
    with connect(address, TIMEOUT_S) as sock, contextlib.suppress(ConnectionError):
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        if not says:
            # The node may have closed the connection.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        while not (says and says in answer) and (piece := sock.recv(1 << 16)):
            answer += piece
    return answer


def plain(target: Target) -> bytes:
    return b"x" * target.size


def lines(port: str, data: Data) -> Send:
    """Send bytes on a new connection."""
    return lambda target, says: exchange(target.addresses[port], data(target), says)
