"""The peers' network: one TCP connection per direction and pair, authenticated, with bounded buffers.

A node dials every other member and sends on that connection only; it receives on the connections that others dialled.
So each direction is one ordered stream, and a fault drill can hit one direction alone. A new connection from a peer
replaces its older one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from pysyncobj.transport import Transport

from ...ports import ConnectionSlot, Ending, Listener
from ..base.membership import PeerNode
from . import handshake, messages
from .bulk import BulkIntake, BulkSender
from .dialer import Outbound, ask, dial
from .frames import FrameStream, speaks_tls
from .handshake import Exchange, Greeting, HandshakeError, Identity
from .security import PeerSecurity

__all__ = ["PeerTransport"]

log = structlog.get_logger("lmq.peers")

RECONNECT_MIN_S = 0.05
RECONNECT_MAX_S = 1.0
SEND_BUFFER_BYTES_MAX = 64 * 1024 * 1024

Message = dict[str, Any]
Ask = Callable[[str, list[Any]], Awaitable[Message]]


class PeerTransport(Transport):
    """PySyncObj's transport interface over asyncio.

    Args:
        me: this node's identity.
        security: credentials required of peers.
        on_frame: called with (peer, message) for every message received from an authenticated peer.
        on_ask: answers an administrative question.
    """

    def __init__(
        self, me: Identity, security: PeerSecurity, on_frame: Callable[[PeerNode, Message], None], on_ask: Ask
    ) -> None:
        super().__init__(None, None, [])
        self.me = me
        self._security = security
        self._on_frame = on_frame
        self._on_ask = on_ask
        self._links: dict[str, _Link] = {}
        self._inbound: dict[str, _Inbound] = {}
        self._open: set[_Inbound] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> int:
        """Accept peers; return the bound port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listener = Listener(self._security.gate, lambda place: _Inbound(self, place))
        return await self._listener.start(host, port)

    @property
    def is_listening(self) -> bool:
        """Return whether peers can connect."""
        return self._listener is not None

    def stop_listening(self) -> None:
        """Stop accepting peers, and drop the connected ones."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for inbound in list(self._open):
            inbound.abort()

    async def close(self) -> None:
        """Drop all connections and stop accepting."""
        self.stop_listening()
        for link in list(self._links.values()):
            link.stop()
        self._links.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The loop closes sockets in its next turn.
        await asyncio.sleep(0)

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
            # A leader that this node does not list as a member yet: the leader announces its address when it
            # connects.
            inbound = self._inbound.get(node.id)
            if inbound is None or inbound.peer is None:
                return False
            self.addNode(PeerNode(node.id, inbound.peer.address))
            link = self._links[node.id]
        return link.send(message)

    def flush(self, *, synced: bool = True) -> None:
        """Write queued messages to the sockets; unless the journal is `synced`, hold back those in `AFTER_SYNC`."""
        for link in self._links.values():
            link.flush(synced=synced)

    async def ask(self, address: str, verb: str, arguments: list[Any], *, timeout_s: float) -> dict[str, Any]:
        """Put one administrative question to the node at `address` and return its result.

        Raises:
            OSError, TimeoutError, HandshakeError: the node cannot be reached.
            LookupError: the node refused; the text gives the reason.
        """
        return await ask(self.me, self._security, address, verb, arguments, timeout_s=timeout_s)

    def connected_ids(self) -> set[str]:
        """Return the ids of the peers that this node can send to."""
        return {node_id for node_id, link in self._links.items() if link.connected}

    # --- used by links and inbound connections --------------------------------------------------------------------

    @property
    def security(self) -> PeerSecurity:
        """Return the credentials required of peers."""
        return self._security

    def link_up(self, node: PeerNode) -> None:
        """Note that a link is authenticated."""
        log.info("peer connected", peer=node.id)
        self._onNodeConnected(node)

    def link_down(self, node: PeerNode) -> None:
        """Note that a link is down."""
        log.info("peer disconnected", peer=node.id)
        self._onNodeDisconnected(node)

    def opened(self, inbound: _Inbound) -> None:
        """Note a new inbound connection. It may have been accepted before this transport stopped listening."""
        if self._listener is None:
            # Its peer would send to a member that no longer exists, and never dial the one in its place.
            inbound.abort()
        else:
            self._open.add(inbound)

    def adopt(self, inbound: _Inbound, peer: Identity) -> None:
        """Take an authenticated inbound connection, in place of an older one of the same peer."""
        older = self._inbound.get(peer.node_id)
        if older is inbound:
            return
        self._inbound[peer.node_id] = inbound
        if older is not None:
            older.close()
        link = self._links.get(peer.node_id)
        if link is not None:
            link.peer_started(peer.incarnation)

    def forget(self, inbound: _Inbound) -> None:
        """Forget an inbound connection that is gone."""
        self._open.discard(inbound)
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


class _Inbound(FrameStream):
    """A connection that a peer dialled; it only receives, except for answers to questions."""

    def __init__(self, owner: PeerTransport, place: ConnectionSlot) -> None:
        super().__init__()
        self._owner = owner
        self._place = place
        self._dialer: Greeting | None = None
        self._exchange = Exchange(owner.me, owner.security.key())
        self._begun = False
        self.peer: Identity | None = None
        self._refused = False
        self._bulk = BulkIntake(self._whole_received)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._place.release()
        self._bulk.close()
        self._owner.forget(self)

    def data_received(self, data: bytes) -> None:
        if not self._begun and data:
            self._begun = True
            if not self._choose_tls(data):
                return
        super().data_received(data)

    def _choose_tls(self, first: bytes) -> bool:
        """Detect TLS by the first byte; return False if the node does not accept this kind of connection."""
        security = self._owner.security
        if speaks_tls(first):
            if security.tls is None:
                self.broken("it speaks TLS, and this node has no raft_tls_ca")
                return False
            self._tls = security.tls.stream(listening=True)
        elif not security.takes_plain:
            self.broken("it does not speak TLS, which this node asks of peers (raft_tls_ca)")
            return False
        return True

    def broken(self, reason: str) -> None:
        self._refused = True
        if self.peer is None:
            self._place.note(Ending.HANDSHAKE, reason)
        else:
            log.warning("peer refused, closing", reason=reason, peer=self.peer.node_id)
        self.close()

    def frame_received(self, payload: bytes) -> None:
        if self._refused:
            return
        try:
            if self.peer is None:
                self._greet(payload)
            else:
                self._deliver(self.peer, messages.decode(payload))
        except (HandshakeError, messages.FrameError) as exc:
            self.broken(str(exc))

    def _greet(self, payload: bytes) -> None:
        if self._dialer is None:
            self._dialer = handshake.read_hello(payload)
            self.write(self._exchange.challenge())
        else:
            self._check(self._dialer, payload)

    def _check(self, dialer: Greeting, payload: bytes) -> None:
        exchange = self._exchange
        welcome, known = exchange.welcome(dialer, payload)
        self.peer = dialer.identity
        self._place.admit()
        self.accept_large_frames()
        self.write(welcome)
        if self._owner.security.secret:
            self.seal(
                outgoing=exchange.seal_key(known, handshake.TO_DIALER),
                incoming=exchange.seal_key(known, handshake.TO_LISTENER),
            )

    def _deliver(self, peer: Identity, message: Message) -> None:
        if message["type"] == "ask":
            self._owner.spawn(self._owner.answer(self, message))
            return
        self._owner.adopt(self, peer)
        if not self._bulk.take(message):
            self._owner.received(peer, message)

    def _whole_received(self, envelope: bytes, bulk: bytes) -> None:
        if self._refused or self.peer is None:
            return
        try:
            message = messages.decode(envelope, bulk)
        except messages.FrameError as exc:
            self.broken(str(exc))
        else:
            self._owner.received(self.peer, message)


class _Link:
    """This node's sending side to one member: dials, authenticates, and dials again when the connection is lost."""

    def __init__(self, owner: PeerTransport, node: PeerNode) -> None:
        self._owner = owner
        self._node = node
        self.address = node.address
        self._outbox: list[bytes] = []
        self._held: list[bytes] = []
        self._stream: Outbound | None = None
        self._bulk: BulkSender | None = None
        self.connected = False
        self._task = owner.spawn(self._run())

    def stop(self) -> None:
        """Close permanently."""
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
        large = messages.bulk_of(message)
        if large is not None and self._bulk is not None:
            self._bulk.send(message, large)
            return True
        queue = self._held if message["type"] in messages.AFTER_SYNC else self._outbox
        queue.append(messages.encode(message))
        return True

    def flush(self, *, synced: bool) -> None:
        if synced and self._held:
            self._outbox += self._held
            self._held = []
        if self._outbox:
            payloads, self._outbox = self._outbox, []
            if self._stream is not None:
                self._stream.write(*payloads)
        if self._bulk is not None:
            self._bulk.flush()

    def redirect(self, address: str) -> None:
        """Dial the member at another address from now on."""
        self.address = address
        if self._stream is not None:
            self._stream.close()

    def peer_started(self, incarnation: int) -> None:
        """Drop a connection to another process of the member.

        The process may hang, or its machine may have vanished, while the member runs at another address of its name.
        """
        stream = self._stream
        if stream is not None and stream.listener is not None and stream.listener.incarnation != incarnation:
            stream.abort()

    async def _run(self) -> None:
        pause_s = RECONNECT_MIN_S
        said, attempt = "", 0
        while True:
            try:
                stream = await dial(self._owner.me, self._owner.security, self.address, self._node.id, attempt=attempt)
            except (OSError, HandshakeError, TimeoutError) as exc:
                attempt += 1
                reason = _reason(exc)
                if reason != said:
                    said = reason
                    log.info("peer unreachable", peer=self._node.id, address=self.address, reason=said)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, RECONNECT_MAX_S)
                continue
            pause_s, said = RECONNECT_MIN_S, ""
            await self._use(stream)

    async def _use(self, stream: Outbound) -> None:
        self._stream, self._outbox, self._held, self.connected = stream, [], [], True
        self._bulk = BulkSender(stream)
        self._owner.link_up(self._node)
        try:
            await stream.closed.wait()
        finally:
            stream.close()
            self._stream, self._outbox, self._held, self.connected = None, [], [], False
            self._bulk = None
        self._owner.link_down(self._node)


def _reason(error: Exception) -> str:
    """Return an error in words, without its number."""
    said = error.strerror if isinstance(error, OSError) else str(error)
    return said or str(error) or type(error).__name__
