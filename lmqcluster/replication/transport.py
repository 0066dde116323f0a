"""The peers' network: one TCP connection per direction and pair, authenticated, with bounded buffers.

A node dials every other member and sends on that connection only; what it receives comes on the connections that others
dialled. So each direction is one ordered stream, and a fault drill can hit one direction alone. A new connection from a peer
replaces its older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from pysyncobj.transport import Transport

from ..wire.limits import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX
from . import handshake, messages
from .handshake import Greeting, HandshakeError, Identity
from .membership import PeerNode

__all__ = ["PeerTransport", "ask"]

log = structlog.get_logger("lmq.peers")

HANDSHAKE_TIMEOUT_S = 5.0
RECONNECT_MIN_S = 0.05
RECONNECT_MAX_S = 1.0
SEND_BUFFER_BYTES_MAX = 64 * 1024 * 1024
UNACKNOWLEDGED_MS_MAX = 4000
"""A connection whose data the peer's kernel does not confirm for so long is given up."""

Message = dict[str, Any]
Ask = Callable[[str, list[Any]], Awaitable[Message]]


class PeerTransport(Transport):
    """PySyncObj's transport interface over asyncio.

    Args:
        me: this node's identity.
        secret: the cluster secret, empty for none.
        on_frame: called with (peer, message) for every message received from an authenticated peer.
        on_ask: answers an administrative question.
    """

    def __init__(self, me: Identity, secret: bytes, on_frame: Callable[[PeerNode, Message], None], on_ask: Ask) -> None:
        super().__init__(None, None, [])
        self.me = me
        self._secret = secret
        self._on_frame = on_frame
        self._on_ask = on_ask
        self._links: dict[str, _Link] = {}
        self._inbound: dict[str, _Inbound] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> int:
        """Accept peers; returns the bound port.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Inbound(self), host, port, backlog=128)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Drop all connections and stop accepting."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links.values()):
            link.stop()
        self._links.clear()
        for inbound in list(self._inbound.values()):
            inbound.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- PySyncObj's interface ------------------------------------------------------------------------------------

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - PySyncObj's name
        """Begin to dial a member, or dial it at a new address."""
        if node.id == self.me.node_id:
            return
        link = self._links.get(node.id)
        if link is None:
            self._links[node.id] = _Link(self, node)
        elif link.address != node.address:
            link.redirect(node.address)

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802
        """Stop dialling a former member."""
        link = self._links.pop(node.id, None)
        if link is not None:
            link.stop()
            self._onNodeDisconnected(node)

    def send(self, node: PeerNode, message: Message) -> bool:
        """Queue a message; False if the peer is not connected."""
        link = self._links.get(node.id)
        if link is None:
            # A leader that this node does not list as a member yet: it tells its address when it connects.
            inbound = self._inbound.get(node.id)
            if inbound is None or inbound.peer is None:
                return False
            self.addNode(PeerNode(node.id, inbound.peer.address))
            link = self._links[node.id]
        return link.send(message)

    def flush(self, *, synced: bool = True) -> None:
        """Hand what is queued to the sockets; unless the journal is `synced`, without what promises that something is on disk."""
        for link in self._links.values():
            link.flush(synced=synced)

    def connected_ids(self) -> set[str]:
        """Ids of the peers that this node can send to."""
        return {node_id for node_id, link in self._links.items() if link.connected}

    # --- used by links and inbound connections --------------------------------------------------------------------

    @property
    def secret(self) -> bytes:
        """The cluster secret."""
        return self._secret

    def link_up(self, node: PeerNode) -> None:
        """A link is authenticated."""
        log.info("peer connected", peer=node.id)
        self._onNodeConnected(node)

    def link_down(self, node: PeerNode) -> None:
        """A link that was up is down."""
        log.info("peer disconnected", peer=node.id)
        self._onNodeDisconnected(node)

    def adopt(self, inbound: _Inbound, peer: Identity) -> None:
        """Take an authenticated inbound connection, in place of an older one of the same peer."""
        older = self._inbound.get(peer.node_id)
        self._inbound[peer.node_id] = inbound
        if older is not None and older is not inbound:
            older.close()

    def forget(self, inbound: _Inbound) -> None:
        """An inbound connection is gone."""
        if inbound.peer is not None and self._inbound.get(inbound.peer.node_id) is inbound:
            del self._inbound[inbound.peer.node_id]

    def received(self, peer: Identity, message: Message) -> None:
        """Pass a message on."""
        self._on_frame(PeerNode(peer.node_id, peer.address), message)

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run a task that ends with the transport."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def answer(self, inbound: _Inbound, message: Message) -> None:
        """Answer an administrative question and close."""
        reply = await self._on_ask(message["verb"], message["arguments"])
        inbound.write(messages.encode({"type": "answer", **reply}))
        inbound.close()


class _Frames(asyncio.Protocol):
    """Splits a byte stream into length-prefixed frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = HANDSHAKE_BYTES_MAX
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= 4:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > self._frame_bytes_max:
                self.frame_too_large(size)
                return
            if len(buffer) - position - 4 < size:
                break
            payload = bytes(buffer[position + 4 : position + 4 + size])
            position += 4 + size
            self.frame_received(payload)
        if position:
            del buffer[:position]

    def frame_received(self, payload: bytes) -> None:
        raise RuntimeError(f"a subclass takes the frame of {len(payload)} bytes")

    def frame_too_large(self, size: int) -> None:
        log.warning("frame over the limit, closing", size=size, limit=self._frame_bytes_max)
        self.close()

    def write(self, payload: bytes) -> None:
        self.write_frames(messages.frame(payload))

    def write_frames(self, data: bytes) -> None:
        # The peer may be gone though nobody has been told yet; uvloop raises on writing to such a transport.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Inbound(_Frames):
    """A connection that a peer dialled; it only receives, except for answers to questions."""

    def __init__(self, owner: PeerTransport) -> None:
        super().__init__()
        self._owner = owner
        self._dialer: Greeting | None = None
        self._mine = Greeting(owner.me, secrets.token_bytes(handshake.NONCE_BYTES))
        self.peer: Identity | None = None
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._handshake_late)

    def _handshake_late(self) -> None:
        if self.peer is None and self._transport is not None:
            log.warning("peer did not authenticate in time, closing", limit_s=HANDSHAKE_TIMEOUT_S)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._deadline is not None:
            self._deadline.cancel()
        if self.peer is None and self._dialer is not None and not self._refused:
            # Whoever dials sees first that the secrets differ, and goes.
            reason = "it broke off when it was asked to authenticate; it may have another cluster secret"
            log.warning("peer did not authenticate", peer=self._dialer.identity.node_id, reason=reason)
        self._owner.forget(self)

    def frame_received(self, payload: bytes) -> None:
        try:
            if self.peer is None:
                self._greet(payload)
            else:
                self._deliver(self.peer, messages.decode(payload))
        except (HandshakeError, messages.FrameError) as exc:
            self._refused = True
            log.warning("peer refused, closing", reason=str(exc), peer=self.peer and self.peer.node_id)
            self.close()

    def _greet(self, payload: bytes) -> None:
        if self._dialer is None:
            self._dialer = handshake.read_hello(payload)
            self.write(handshake.challenge(self._owner.me, self._mine.nonce, self._dialer, self._owner.secret))
            return
        shown: bytes = handshake.parse(payload, (bytes,))[0]
        expected = handshake.proof(self._owner.secret, b"dialer", self._dialer, self._mine)
        if not secrets.compare_digest(shown, expected):
            raise HandshakeError(f"node {self._dialer.identity.node_id} has another cluster secret")
        self.peer = self._dialer.identity
        self._frame_bytes_max = FRAME_BYTES_MAX
        self.write(handshake.WELCOME)

    def _deliver(self, peer: Identity, message: Message) -> None:
        if message["type"] == "ask":
            self._owner.spawn(self._owner.answer(self, message))
            return
        self._owner.adopt(self, peer)
        self._owner.received(peer, message)


class _Link:
    """This node's sending side to one member: dials, authenticates, dials again when the connection is lost."""

    def __init__(self, owner: PeerTransport, node: PeerNode) -> None:
        self._owner = owner
        self._node = node
        self.address = node.address
        self._outbox: list[bytes] = []
        self._held: list[bytes] = []
        self._stream: _Outbound | None = None
        self.connected = False
        self._task = owner.spawn(self._run())

    def stop(self) -> None:
        """Close for good."""
        self._task.cancel()
        if self._stream is not None:
            self._stream.close()
        self.connected = False

    def send(self, message: Message) -> bool:
        if not self.connected or self._stream is None:
            return False
        if self._stream.buffered() > SEND_BUFFER_BYTES_MAX:
            log.warning("send buffer full, dropping the connection", peer=self._node.id)
            self._stream.abort()
            return False
        queue = self._held if message["type"] in messages.AFTER_SYNC else self._outbox
        queue.append(messages.frame(messages.encode(message)))
        return True

    def flush(self, *, synced: bool) -> None:
        if synced and self._held:
            self._outbox += self._held
            self._held = []
        if self._outbox:
            data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
            self._outbox = []
            if self._stream is not None:
                self._stream.write_frames(data)

    def redirect(self, address: str) -> None:
        """Dial the member at another address from now on."""
        self.address = address
        if self._stream is not None:
            self._stream.close()

    async def _run(self) -> None:
        pause_s = RECONNECT_MIN_S
        said = ""
        while True:
            try:
                stream = await _dial(self._owner.me, self._owner.secret, self.address, self._node.id)
            except (OSError, HandshakeError, TimeoutError) as exc:
                reason = _reason(exc)
                if reason != said:
                    said = reason
                    log.info("peer unreachable", peer=self._node.id, address=self.address, reason=said)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, RECONNECT_MAX_S)
                continue
            pause_s, said = RECONNECT_MIN_S, ""
            await self._use(stream)

    async def _use(self, stream: _Outbound) -> None:
        self._stream, self._outbox, self._held, self.connected = stream, [], [], True
        self._owner.link_up(self._node)
        try:
            await stream.closed.wait()
        finally:
            stream.close()
            self._stream, self._outbox, self._held, self.connected = None, [], [], False
        self._owner.link_down(self._node)


class _Outbound(_Frames):
    """A connection that this node dialled."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed.set()
        self._inbox.put_nowait(b"")

    def frame_received(self, payload: bytes) -> None:
        self._inbox.put_nowait(payload)

    def frame_too_large(self, size: int) -> None:
        super().frame_too_large(size)
        self._inbox.put_nowait(b"")

    async def next_frame(self) -> bytes:
        """The next frame.

        Raises:
            HandshakeError: the connection was closed instead.
        """
        payload = await self._inbox.get()
        if not payload:
            raise HandshakeError("the peer closed the connection; does it have another cluster secret?")
        return payload

    def accept_large_frames(self) -> None:
        self._frame_bytes_max = FRAME_BYTES_MAX

    def buffered(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def _dial(me: Identity, secret: bytes, address: str, expected_id: str | None) -> _Outbound:
    """Connect to a peer and authenticate both sides.

    Raises:
        OSError, TimeoutError: it cannot be reached.
        HandshakeError: it is not the node expected, or has another secret.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        _, stream = await loop.create_connection(_Outbound, host.strip("[]"), int(port))
        try:
            await _authenticate(stream, me, secret, expected_id)
        except BaseException:
            stream.close()
            raise
    stream.accept_large_frames()
    return stream


async def _authenticate(stream: _Outbound, me: Identity, secret: bytes, expected_id: str | None) -> None:
    mine = Greeting(me, secrets.token_bytes(handshake.NONCE_BYTES))
    stream.write(handshake.hello(me, mine.nonce))
    listener = handshake.read_challenge(await stream.next_frame(), mine, secret)
    if expected_id is not None and listener.identity.node_id != expected_id:
        raise HandshakeError(f"{listener.identity.address} is node {listener.identity.node_id}, not {expected_id}")
    stream.write(handshake.proof_frame(secret, mine, listener))
    if await stream.next_frame() != handshake.WELCOME:
        raise HandshakeError(f"node {listener.identity.node_id} did not welcome this node")


async def ask(
    me: Identity, secret: bytes, address: str, verb: str, arguments: list[Any], *, timeout_s: float
) -> dict[str, Any]:
    """Put one administrative question to the node at `address` and return its result.

    Raises:
        OSError, TimeoutError, HandshakeError: the node cannot be reached.
        LookupError: the node refused; the text says why.
    """
    stream = await _dial(me, secret, address, None)
    try:
        async with asyncio.timeout(timeout_s):
            stream.write(messages.encode({"type": "ask", "verb": verb, "arguments": arguments}))
            answer = messages.decode(await stream.next_frame())
    finally:
        with contextlib.suppress(OSError):
            stream.close()
    if answer["type"] != "answer" or not answer["ok"]:
        raise LookupError(str(answer.get("result", "no answer")))
    result: dict[str, Any] = answer["result"]
    return result


def _reason(error: Exception) -> str:
    """An error in words, without its number."""
    said = error.strerror if isinstance(error, OSError) else str(error)
    return said or str(error) or type(error).__name__
