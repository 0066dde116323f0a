"""Dialling a peer: connect, authenticate both sides, and ask administrative questions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from ...net.loop import connect
from ...wire.address import Address
from . import handshake, messages
from .frames import FrameStream
from .handshake import Exchange, HandshakeError, Identity
from .security import PeerSecurity
from .tls import PeerTls, TlsStream

__all__ = ["HANDSHAKE_TIMEOUT_S", "Outbound", "UnansweredError", "ask", "dial"]

CONNECT_TIMEOUT_S = 3.0
HANDSHAKE_TIMEOUT_S = 5.0


class _ClosedError(HandshakeError):
    """The peer closed the connection: it may not speak TLS, or may have refused this node."""


class UnansweredError(ConnectionError):
    """The peer has probably received a question, and gave no answer."""


class Outbound(FrameStream):
    """A connection that this node dialled.

    Attributes:
        closed: set when the connection is gone.
        listener: the peer at the other end; None until it has authenticated itself.
    """

    def __init__(self, tls: TlsStream | None = None) -> None:
        super().__init__(tls)
        self.listener: Identity | None = None
        self.closed = asyncio.Event()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._established = asyncio.Event()
        self._reason = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._tls is None:
            self._established.set()
        else:
            self._send(self._tls.start())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()
        self._established.set()
        self._inbox.put_nowait(b"")

    def tls_established(self) -> None:
        self._established.set()

    def frame_received(self, payload: bytes) -> None:
        self._inbox.put_nowait(payload)

    def broken(self, reason: str) -> None:
        self._reason = reason
        self.close()
        self._established.set()
        self._inbox.put_nowait(b"")

    async def ready(self) -> None:
        """Wait until TLS is established, if there is any.

        Raises:
            HandshakeError: the connection was closed instead.
        """
        await self._established.wait()
        if self._reason or self.closed.is_set():
            raise _ClosedError(self._reason or "the peer closed the connection; does it speak TLS?")

    async def next_frame(self) -> bytes:
        """Return the next frame.

        Raises:
            HandshakeError: the connection was closed instead.
        """
        payload = await self._inbox.get()
        if not payload:
            which = "certificate authority or another cluster secret" if self.has_tls else "cluster secret"
            raise _ClosedError(self._reason or f"the peer closed the connection; does it have another {which}?")
        return payload


async def dial(
    me: Identity, security: PeerSecurity, address: str, expected_id: str | None, *, attempt: int = 0
) -> Outbound:
    """Connect to a peer and authenticate both sides, with TLS if both have it.

    Args:
        me: identity of this node.
        security: credentials required of peers.
        address: where the peer listens.
        expected_id: the required node id; None for any.
        attempt: how often this has failed: each time another address of the host comes first.

    Raises:
        OSError, TimeoutError: it cannot be reached.
        HandshakeError: it is not the node expected, or has another secret.
    """
    problem = ""
    for tls in security.tls_choices():
        reached = await _reach(address, attempt)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                return await _dial(me, security, reached, expected_id, tls)
        except _ClosedError as exc:
            problem = problem or str(exc)
    raise HandshakeError(problem)


async def _reach(address: str, attempt: int) -> socket.socket:
    try:
        host, port = Address.parse(address)
    except ValueError as exc:
        raise OSError(str(exc)) from exc
    return await connect(host, port, timeout_s=CONNECT_TIMEOUT_S, attempt=attempt)


async def _dial(
    me: Identity, security: PeerSecurity, reached: socket.socket, expected_id: str | None, tls: PeerTls | None
) -> Outbound:
    loop = asyncio.get_running_loop()
    wrapped = None if tls is None else tls.stream(listening=False)
    _, stream = await loop.create_connection(lambda: Outbound(wrapped), sock=reached)
    try:
        await stream.ready()
        stream.listener = await _greet(stream, me, security)
        _check_id(stream.listener, expected_id)
    except BaseException:
        stream.close()
        raise
    stream.accept_large_frames()
    return stream


def _check_id(listener: Identity, expected_id: str | None) -> None:
    if expected_id is not None and listener.node_id != expected_id:
        raise HandshakeError(f"{listener.address} is node {listener.node_id}, not {expected_id}")


async def _greet(stream: Outbound, me: Identity, security: PeerSecurity) -> Identity:
    exchange = Exchange(me, security.key())
    stream.write(exchange.hello())
    proof, known = exchange.answer(await stream.next_frame())
    stream.write(proof)
    listener = exchange.read_welcome(await stream.next_frame(), known)
    if security.secret:
        stream.seal(
            outgoing=exchange.seal_key(known, handshake.TO_LISTENER),
            incoming=exchange.seal_key(known, handshake.TO_DIALER),
        )
    return listener


async def ask(
    me: Identity, security: PeerSecurity, address: str, verb: str, arguments: list[Any], *, timeout_s: float
) -> dict[str, Any]:
    """Put one administrative question to the node at `address` and return its result.

    Raises:
        OSError, TimeoutError, HandshakeError: the node cannot be reached, so it has not received the question.
        UnansweredError: it gave no answer.
        LookupError: the node refused; the text says why.
    """
    stream = await dial(me, security, address, None)
    try:
        async with asyncio.timeout(timeout_s):
            stream.write(messages.encode({"type": "ask", "verb": verb, "arguments": arguments}))
            answer = messages.decode(await stream.next_frame())
    except TimeoutError as exc:
        raise UnansweredError(f"no answer within {timeout_s:g} s") from exc
    except HandshakeError as exc:
        raise UnansweredError("the connection was closed before the answer") from exc
    finally:
        with contextlib.suppress(OSError):
            stream.close()
    if answer["type"] != "answer" or not answer["ok"]:
        raise LookupError(str(answer.get("result", "no answer")))
    result: dict[str, Any] = answer["result"]
    return result
